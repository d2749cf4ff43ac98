//! A transaction: reads and writes over any families, which commit together or not at all, and fail
//! if what they rely on was changed by others meanwhile.

mod abort;
mod running;
mod savepoints;
mod scans;
mod step;
mod streams;

pub use abort::AbortHandle;
pub use running::RunningTransaction;

use crate::db::Owner;
use crate::engine::{Engine, Keyspace};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::format::OpKind;
use crate::key_range::{KeyRange, bounds_of, span_within};
use crate::lock::LockMode;
use crate::options::Expiry;
use crate::options::{ReadOptions, TransactionOptions};
use crate::pinned::Value;
use crate::read::{Read, ScanBounds};
use crate::read_point::ReadPoint;
use crate::steps::steps;
use crate::transact::{Life, Outcome, fetch_update, put_if, rerun, set_expiry};
use crate::write::Commit;
use crate::writes::{merges, range_deletes, writes};
use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use step::OneOf;

/// Begins transactions with given options. [`Db::with`](crate::Db::with) returns it for
/// [`TransactionOptions`]. A transaction reaches all families.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// use isobath::{Isolation, TransactionOptions};
/// # let db = isobath::Options::in_memory().open("transactions")?;
/// let careless = db.with(TransactionOptions::new().isolation(Isolation::Snapshot));
/// let tx = careless.begin();
/// tx.put("key", "value")?;
/// tx.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Transactions<'a> {
    pub(crate) owner: &'a Arc<Owner>,
    pub(crate) options: TransactionOptions,
}

impl Transactions<'_> {
    /// Begins a transaction at the newest point. Waits only if values end: see
    /// [`Db::begin`](crate::Db::begin).
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.owner, self.options)
    }

    /// Like [`Db::transact`](crate::Db::transact), with these options. Also returns the commit.
    pub fn transact<T>(&self, body: impl FnMut(&Transaction) -> Result<T>) -> Result<(T, Commit)> {
        self.try_transact(body)
    }

    /// Like [`Db::try_transact`](crate::Db::try_transact), with these options. Also returns the
    /// commit.
    pub fn try_transact<T, E: From<Error>>(
        &self,
        mut body: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<(T, Commit), E> {
        let mut tx: Option<Transaction> = None;
        rerun(self.owner.engine(), self.options.attempts, || {
            match &mut tx {
                Some(tx) => tx.begin_again(),
                None => tx = Some(self.begin()),
            }
            let tx = tx.as_ref().expect("it has begun");
            let ran = match tx.doom() {
                Some(doomed) => Err(doomed.into()),
                None => body(tx),
            };
            tx.conclude(ran)
        })
    }
}

impl std::fmt::Debug for Transactions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transactions({:?})", self.options)
    }
}

/// A transaction. Its own methods use the default family; [`Transaction::of`] gives access to
/// another one. It reads the database as it was when the transaction began, with its own writes on
/// top. Nothing that it writes is visible to others before [`Transaction::commit`], and dropping it
/// rolls it back.
///
/// The commit fails with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if others have changed
/// what it relies on: by default, whatever it has read. Then nothing was written. Run the
/// transaction again from its start, or let [`Db::transact`](crate::Db::transact) do that. A
/// transaction that wrote nothing always commits.
///
/// Use the transaction for everything that belongs to it: a plain write to a key that it has read
/// conflicts with it like any other write.
///
/// A transaction may move from thread to thread, and is used by one at a time: two cannot share it.
/// It keeps the database open. While it lives, flushes and compactions keep the versions that it
/// reads.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("transaction")?;
/// # let users = db.family("users")?;
/// let tx = db.begin();
/// if !tx.of(&users).contains("ada")? {
///     tx.of(&users).put("ada", "1815")?;
///     tx.put("count", "1")?;
/// }
/// tx.commit()?;
/// assert_eq!(users.get("ada")?.unwrap(), "1815");
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0277
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("shared")?;
/// let tx = db.begin();
/// std::thread::scope(|scope| {
///     scope.spawn(|| tx.put("key", "value")); // `Transaction` is not `Sync`
/// });
/// # Ok(())
/// # }
/// ```
///
/// A range that it deletes is a write of all keys in it, present or not. The order of its writes
/// counts:
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("deletes")?;
/// db.put("cart/7/apple", "1")?;
/// let tx = db.begin();
/// tx.put("cart/7/pear", "1")?;
/// tx.delete_prefix("cart/7/")?;
/// tx.put("cart/7/plum", "1")?;
/// assert_eq!(tx.count(..)?, 1);
/// tx.commit()?;
/// assert_eq!(db.first()?.unwrap().0, "cart/7/plum");
/// # Ok(())
/// # }
/// ```
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction {
    owner: Arc<Owner>,
    life: RefCell<Life>,
}

impl Transaction {
    pub(crate) fn new(owner: &Arc<Owner>, options: TransactionOptions) -> Transaction {
        let life = RefCell::new(Life::begin(owner.engine(), options));
        Transaction { owner: owner.clone(), life }
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.owner.engine()
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    pub(crate) fn life(&self) -> RefMut<'_, Life> {
        self.life.borrow_mut()
    }

    /// The part of the transaction that reads and writes `family`.
    #[inline]
    pub fn of<'a>(&'a self, family: &'a Family) -> TransactionFamily<'a> {
        let place = family.of(self.engine()).map_err(|_| family);
        TransactionFamily { tx: self, place, options: ReadOptions::default() }
    }

    /// The transaction, read with these options.
    #[inline]
    pub fn with(&self, options: ReadOptions) -> TransactionFamily<'_> {
        TransactionFamily { tx: self, place: Ok(&self.engine().default_family), options }
    }

    #[inline]
    fn default_part(&self) -> TransactionFamily<'_> {
        self.with(ReadOptions::default())
    }

    /// The point that the transaction reads. Below
    /// [`Isolation::RepeatableRead`](crate::Isolation::RepeatableRead) it is the newest one.
    pub fn read_point(&self) -> ReadPoint {
        let engine = self.engine();
        engine.read_point(self.life.borrow().read_point(engine))
    }

    /// Commits the transaction: all that it wrote becomes visible at once, also after a crash.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if others changed what the transaction
    /// relies on; [`ErrorKind::LockTimeout`](crate::ErrorKind::LockTimeout) or
    /// [`ErrorKind::Deadlock`](crate::ErrorKind::Deadlock) if a key that it writes is locked by
    /// others; [`ErrorKind::UnknownFamily`](crate::ErrorKind::UnknownFamily) if a family that it
    /// read or wrote was dropped;
    /// [`ErrorKind::TransactionAborted`](crate::ErrorKind::TransactionAborted) after a timeout;
    /// [`ErrorKind::CommitVetoed`](crate::ErrorKind::CommitVetoed);
    /// [`ErrorKind::WouldStall`](crate::ErrorKind::WouldStall) with `fail_fast`;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) on a full disk. Nothing was written then, and the
    /// transaction is over: run all of it again if [`is_conflict`](crate::Error::is_conflict) or
    /// [`is_retryable`](crate::Error::is_retryable). After
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown), others may have seen the
    /// commit, and only a reopen tells whether it survives.
    pub fn commit(self) -> Result<Commit> {
        self.life.borrow_mut().commit(self.engine())
    }

    /// What another thread ends this transaction by, whatever it is doing.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("abort_handle")?;
    /// let tx = db.begin();
    /// tx.get_for_update("key")?;
    /// let handle = tx.abort_handle();
    /// std::thread::spawn(move || assert!(handle.abort())).join().unwrap();
    /// db.put("key", "free again")?;
    /// assert!(tx.put("key", "value").unwrap_err().is_transaction_aborted());
    /// # Ok(())
    /// # }
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        let engine = self.engine();
        let watch = self.life.borrow_mut().handle(engine);
        AbortHandle { watch, engine: Arc::downgrade(engine) }
    }

    fn doom(&self) -> Option<Error> {
        self.life.borrow().doom().cloned()
    }

    /// Begins a call.
    #[inline]
    fn enter(&self) -> Result<Call<'_>> {
        let (engine, mut life) = (self.engine(), self.life.borrow_mut());
        life.enter(engine)?;
        Ok(Call { engine, life })
    }

    /// Ends the transaction without a trace. So does dropping it.
    pub fn rollback(self) {}

    /// Makes the transaction as new: it forgets what it read and wrote, and reads the newest point.
    /// A transaction that met a conflict, or was aborted, can be used again after this. Its
    /// timeouts begin anew, and its abort handles go on to end it.
    pub fn reset(&mut self) {
        self.life.get_mut().reset(self.owner.engine());
    }

    fn begin_again(&mut self) {
        self.life.get_mut().begin_again(self.owner.engine());
    }

    /// The number by which errors about locks name this transaction. No other transaction of this
    /// opening of the database has it.
    pub fn id(&self) -> u64 {
        self.life.borrow_mut().id(self.engine())
    }

    /// The value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default_part().get(key)
    }

    /// The value of `key`, and when it ends.
    pub fn get_expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Expiry)>> {
        self.default_part().get_expiry(key)
    }

    /// The newest value of `key`, locked: until this transaction ends, no other writes the key or
    /// locks it. Waits for others that have locked it.
    ///
    /// If the key was changed since the read point, the read point moves to the newest, provided
    /// that nothing else that the transaction has read was changed; if it was, the call fails with
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict). At
    /// [`Isolation::Snapshot`](crate::Isolation::Snapshot) it fails in any case. If the key was not
    /// changed, the read point stays where it is, however long the call has waited: other keys are
    /// read as of then.
    ///
    /// Write the key through the transaction: a plain write on the same thread would wait for this
    /// transaction for ever, and fails with [`ErrorKind::Deadlock`](crate::ErrorKind::Deadlock).
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("get_for_update")?;
    /// let tx = db.begin();
    /// let count = tx.get_for_update("count")?.map_or(0, |value| value[0]);
    /// assert!(db.put("count", "7").unwrap_err().is_conflict());
    /// tx.put("count", [count + 1])?;
    /// tx.commit()?;
    /// assert_eq!(db.get("count")?.unwrap(), [1]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_for_update(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default_part().get_for_update(key)
    }

    /// Like [`Transaction::get_for_update`], but others may lock the key in this way as well. No
    /// other writes it meanwhile.
    pub fn get_for_share(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default_part().get_for_share(key)
    }

    /// Locks a range: until this transaction ends, no other writes a key in it, present or not.
    /// With [`LockMode::Exclusive`] no other locks the range, one that overlaps it or a key in it;
    /// with [`LockMode::Shared`] others may, in the same mode. Waits for others that hold such
    /// locks. What is read in the range afterwards needs no validation.
    ///
    /// If something in the range was changed since the read point, the read point moves to the
    /// newest, under the conditions of [`Transaction::get_for_update`]. A range that holds no key
    /// is not locked.
    ///
    /// While any range is locked, every writer of the database looks at the list of locked ranges.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # use isobath::{LockMode, Prefix};
    /// # let db = isobath::Options::in_memory().open("lock_range")?;
    /// let tx = db.begin();
    /// tx.lock_range(Prefix("room 7, "), LockMode::Exclusive)?;
    /// if tx.count(Prefix("room 7, "))? == 0 {
    ///     tx.put("room 7, 9:00", "Ada")?;
    /// }
    /// assert!(db.put("room 7, 9:30", "Grace").unwrap_err().is_conflict());
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_range(&self, range: impl KeyRange, mode: LockMode) -> Result<()> {
        self.default_part().lock_range(range, mode)
    }

    /// True if `key` has a value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default_part().contains(key)
    }

    /// The values of several keys, in the order of the keys, all read at one moment.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        self.default_part().multi_get(keys)
    }

    /// The value of `key`, without relying on it: that others change the key is no conflict.
    pub fn get_untracked(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default_part().get_untracked(key)
    }

    fn conclude<T, E: From<Error>>(&self, ran: Result<T, E>) -> Outcome<T, E> {
        self.life.borrow_mut().conclude(self.engine(), ran)
    }

    #[inline]
    fn operate(&self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<()> {
        self.default_part().operate(kind, key, value)
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
        self.default_part().put_expiring(key, value, expiry)
    }

    fn delete_within(&self, bounds: &ScanBounds) -> Result<()> {
        self.default_part().delete_within(bounds)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.life.get_mut().end(self.owner.engine());
    }
}

/// A call of a transaction, which ends with it.
struct Call<'a> {
    engine: &'a Engine,
    life: RefMut<'a, Life>,
}

impl Deref for Call<'_> {
    type Target = Life;

    #[inline]
    fn deref(&self) -> &Life {
        &self.life
    }
}

impl DerefMut for Call<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Life {
        &mut self.life
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        self.life.leave(self.engine);
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({:?})", self.read_point())
    }
}

/// The part of a family in a [`Transaction`].
#[derive(Clone, Copy)]
pub struct TransactionFamily<'a> {
    tx: &'a Transaction,
    /// The family, or the handle that belongs to another database: each call refuses it.
    place: std::result::Result<&'a Arc<Keyspace>, &'a Family>,
    options: ReadOptions,
}

impl<'a> TransactionFamily<'a> {
    /// The same part, read with these options.
    pub fn with(self, options: ReadOptions) -> TransactionFamily<'a> {
        TransactionFamily { options, ..self }
    }

    #[inline]
    fn family(&self) -> Result<&'a Arc<Keyspace>> {
        self.place.or_else(|family| family.of(self.tx.engine()))
    }

    #[inline]
    fn operate(&self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<()> {
        let (family, engine) = (self.family()?, self.tx.engine());
        match kind.is_operand() {
            true => self.tx.enter()?.merge(engine, family, key, value),
            false => self.tx.enter()?.operate(engine, family, kind, key, value),
        }
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
        let (family, engine) = (self.family()?, self.tx.engine());
        self.tx.enter()?.put_expiring(engine, family, (key, value), expiry)
    }

    fn delete_within(&self, bounds: &ScanBounds) -> Result<()> {
        let (family, engine) = (self.family()?, self.tx.engine());
        let span = span_within(bounds)?;
        let span = span.as_ref().map(|(start, end)| (&**start, &**end));
        self.tx.enter()?.delete_range(engine, family, span)
    }

    /// The value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let (family, engine) = (self.family()?, self.tx.engine());
        self.tx.enter()?.get(engine, family, key.as_ref(), self.options)
    }

    /// The value of `key`, and when it ends.
    pub fn get_expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Expiry)>> {
        let (family, engine) = (self.family()?, self.tx.engine());
        let mut life = self.tx.enter()?;
        Ok(life.get_expiry(engine, family, key.as_ref(), self.options)?.map(Read::told))
    }

    /// True if `key` has a value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let (family, engine) = (self.family()?, self.tx.engine());
        self.tx.enter()?.contains(engine, family, key.as_ref(), self.options)
    }

    /// The values of several keys, in the order of the keys, all read at one moment.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        let (family, engine) = (self.family()?, self.tx.engine());
        let keys: Vec<K> = keys.into_iter().collect();
        self.tx.enter()?.multi_get(engine, family, &keys, self.options)
    }

    /// The value of `key`, without relying on it: that others change the key is no conflict.
    pub fn get_untracked(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let (family, engine) = (self.family()?, self.tx.engine());
        self.tx.enter()?.get_untracked(engine, family, key.as_ref(), self.options)
    }

    /// The newest value of `key`, locked: see [`Transaction::get_for_update`].
    pub fn get_for_update(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_locked(key.as_ref(), LockMode::Exclusive)
    }

    /// The newest value of `key`, locked against writes: see [`Transaction::get_for_share`].
    pub fn get_for_share(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_locked(key.as_ref(), LockMode::Shared)
    }

    /// Locks a range of the family: see [`Transaction::lock_range`].
    pub fn lock_range(&self, range: impl KeyRange, mode: LockMode) -> Result<()> {
        let (family, engine) = (self.family()?, self.tx.engine());
        self.tx.enter()?.lock_range(engine, family, &bounds_of(range), mode)
    }

    fn get_locked(&self, key: &[u8], mode: LockMode) -> Result<Option<Value>> {
        let (family, engine) = (self.family()?, self.tx.engine());
        self.tx.enter()?.get_locked(engine, family, key, mode, self.options)
    }

    fn one<'k>(&self, key: &'k [u8]) -> OneOf<'a, 'k> {
        OneOf::new(*self, key)
    }

    #[inline]
    fn step_put_if(&self, key: &[u8], expected: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        put_if(&mut self.one(key), expected, value)
    }

    fn step_set_expiry(&self, key: &[u8], expiry: Expiry) -> Result<bool> {
        set_expiry(&mut self.one(key), expiry)
    }

    #[inline]
    fn step_fetch_update<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Value>> {
        fetch_update(&mut self.one(key), &mut update)
    }
}

writes!(Transaction, self: &Self => Result<()>);
writes!(TransactionFamily<'_>, self: &Self => Result<()>);
range_deletes!(Transaction, self: &Self => Result<()>);
merges!(Transaction, self: &Self => Result<()>);
merges!(TransactionFamily<'_>, self: &Self => Result<()>);
range_deletes!(TransactionFamily<'_>, self: &Self => Result<()>);
steps!(Transaction, self => self.default_part(), bool);
steps!(TransactionFamily<'_>, self => self, bool);

impl std::fmt::Debug for TransactionFamily<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place {
            Ok(family) => write!(f, "TransactionFamily({:?})", family.name()),
            Err(family) => write!(f, "TransactionFamily(foreign {family:?})"),
        }
    }
}
