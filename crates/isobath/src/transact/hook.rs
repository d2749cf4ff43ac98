//! The commit hook of a program. It may veto a commit before it happens, and is called again after
//! each commit.

use super::begin::Life;
use crate::engine::{Engine, Keyspace};
use crate::env::call_back;
use crate::error::{BoxError, Error, Result};
use crate::footprint::{Footprint, Operation};
use crate::format::{FamilyId, Op, OpKind, StreamAddress};
use crate::mvcc::expiry::{lives_at, value_of};
use crate::options::{ErasedHook, Options};
use crate::telemetry::call_out;
use crate::write::Commit;
use std::sync::Arc;

/// It is called before each commit of a transaction that has written something, and again after it.
/// [`Options::commit_hook`] sets it. A step outside a transaction, such as
/// [`Db::put_if`](crate::Db::put_if), is a transaction, too. Plain writes and batches do not call
/// the hook.
///
/// Both methods run on the thread that commits, and several threads may be in them at once. They
/// may read and write the database. A write in them is no part of the transaction. If
/// [`CommitHook::before`] writes a key that the transaction has read, the transaction meets a
/// conflict. If it writes a key that the transaction has locked, that is a deadlock. A transaction
/// that a hook commits calls the hook again.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// use isobath::{BoxError, CommitHook, Operations, Options};
///
/// struct NoDeletes;
///
/// impl CommitHook for NoDeletes {
///     fn before(&self, operations: &Operations<'_>) -> Result<(), BoxError> {
///         match operations.iter().find(|operation| operation.value.is_none()) {
///             Some(delete) => Err(format!("{:?} is to stay", delete.key).into()),
///             None => Ok(()),
///         }
///     }
/// }
///
/// let db = Options::in_memory().commit_hook(NoDeletes).open("hook")?;
/// db.transact(|tx| tx.put("key", "value"))?;
/// let told = db.transact(|tx| tx.delete("key")).unwrap_err();
/// assert_eq!(told.name(), "COMMIT_VETOED");
/// # Ok(())
/// # }
/// ```
pub trait CommitHook: Send + Sync + 'static {
    /// An error vetoes the commit: it fails with
    /// [`ErrorKind::CommitVetoed`](crate::ErrorKind::CommitVetoed), and nothing was written. So
    /// does a panic. A commit that is not vetoed may still fail, of a conflict for example; the
    /// next attempt asks again.
    fn before(&self, operations: &Operations<'_>) -> Result<(), BoxError> {
        let _ = operations;
        Ok(())
    }

    /// The transaction is committed: visible and, if it asked for that, durable. The hook may be
    /// called for commits of different threads in another order than the one in which they
    /// happened; the order of the `commit` arguments is the true one. It is not called for a commit
    /// whose outcome is unknown. A panic ends this call and nothing else.
    fn after(&self, commit: Commit, operations: &Operations<'_>) {
        let _ = (commit, operations);
    }
}

/// What a transaction writes, ordered by family: first the ranges that it deletes, by where they
/// begin, and then for each key the last operation, by key. A key that is written in a deleted
/// range was written after the range was deleted. Ranges that overlapped or touched are one.
pub struct Operations<'a> {
    /// Where they are.
    source: Source<'a>,
    /// The families of the transaction, by ascending id, with their names.
    families: Vec<(FamilyId, Arc<str>)>,
}

enum Source<'a> {
    Footprint(&'a Footprint),
    /// Of a prepared transaction.
    Logged(&'a [Op<'a>]),
}

/// One of [`Operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenOperation<'a> {
    /// The name of the column family.
    pub family: &'a str,
    /// What is written.
    pub kind: OperationKind<'a>,
    /// The key, or where a deleted range begins.
    pub key: &'a [u8],
    /// The new value; `None` for all but a put of one that is in memory.
    pub value: Option<&'a [u8]>,
}

/// The kind of a [`WrittenOperation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationKind<'a> {
    /// A key gets a value.
    Put,
    /// A key gets a value that was written piece by piece. It is not in memory.
    #[non_exhaustive]
    PutStreamed {
        /// The length of the value.
        len: u64,
    },
    /// An operand is added to a key.
    #[non_exhaustive]
    Merge {
        /// The operand.
        operand: &'a [u8],
    },
    /// A key is removed.
    Delete,
    /// All keys of a range are removed.
    #[non_exhaustive]
    DeleteRange {
        /// The first key that is not in the range any more; `None` if the range has no end.
        end: Option<&'a [u8]>,
    },
}

impl<'a> Operations<'a> {
    fn new(footprint: &'a Footprint, families: &'a [Arc<Keyspace>]) -> Operations<'a> {
        let families = families.iter().map(|family| (family.id, family.name())).collect();
        Operations { source: Source::Footprint(footprint), families }
    }

    fn of_prepared(engine: &Engine, ops: &'a [Op<'a>]) -> Operations<'a> {
        let mut ids: Vec<FamilyId> = ops.iter().map(|op| op.family).collect();
        ids.dedup();
        let named = |id| Some((id, engine.families.by_id(id)?.name()));
        let families = ids.into_iter().filter_map(named).collect();
        Operations { source: Source::Logged(ops), families }
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        match self.source {
            Source::Footprint(footprint) => footprint.len(),
            Source::Logged(ops) => ops.len(),
        }
    }

    /// Never true: a transaction that wrote nothing does not call the hook.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The operations.
    pub fn iter(&self) -> impl Iterator<Item = WrittenOperation<'_>> {
        let (footprint, logged) = match self.source {
            Source::Footprint(footprint) => (Some(footprint), &[][..]),
            Source::Logged(ops) => (None, ops),
        };
        let written = footprint.into_iter().flat_map(Footprint::writes);
        let of_log = |op: &Op<'a>| {
            let Op { kind, family, key, value } = *op;
            Operation { kind, family, key, value }
        };
        written.chain(logged.iter().map(of_log)).map(|operation| {
            let at = self.families.binary_search_by_key(&operation.family, |(known, _)| *known);
            let family = at.map_or("", |at| &*self.families[at].1);
            let Operation { key, value, .. } = operation;
            // It ended before it was written.
            let is_over = operation.kind.is_expiring() && !lives_at(value, 0);
            let kind = if is_over { OpKind::Delete } else { operation.kind };
            let (kind, value) = match kind {
                OpKind::Put => (OperationKind::Put, Some(value)),
                OpKind::PutExpiring => (OperationKind::Put, Some(value_of(operation.kind, value))),
                OpKind::Delete => (OperationKind::Delete, None),
                OpKind::Merge => (OperationKind::Merge { operand: value }, None),
                OpKind::DeleteRange => {
                    let end = (!value.is_empty()).then_some(value);
                    (OperationKind::DeleteRange { end }, None)
                }
                OpKind::PutStreamed | OpKind::PutExpiringStreamed => {
                    let address = StreamAddress::of(operation.kind, value);
                    let len = address.map_or(0, |address| address.value_len);
                    (OperationKind::PutStreamed { len }, None)
                }
                OpKind::PutSeparated | OpKind::PutExpiringSeparated => {
                    unreachable!("only tables have addresses of separated values")
                }
            };
            WrittenOperation { family, kind, key, value }
        })
    }
}

impl std::fmt::Debug for Operations<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operations({})", self.len())
    }
}

/// A hook as the options keep it, which know nothing of commits.
struct Hook(Box<dyn CommitHook>);

impl Options {
    /// Calls `hook` around each commit of a transaction. A second hook replaces the first.
    pub fn commit_hook(mut self, hook: impl CommitHook) -> Self {
        let hook: ErasedHook = Arc::new(Hook(Box::new(hook)));
        self.commit_hook = Some(hook);
        self
    }
}

fn hook_of(engine: &Engine) -> Option<&dyn CommitHook> {
    let hook = engine.options.commit_hook.as_deref()?;
    hook.downcast_ref::<Hook>().map(|hook| &*hook.0)
}

/// Runs a hook. False if it panicked.
fn call(engine: &Engine, body: impl FnOnce()) -> bool {
    let mut is_done = false;
    let body = || {
        body();
        is_done = true;
    };
    call_back(engine, || call_out(body));
    is_done
}

/// Tells the hook that a prepared transaction with these operations is committed.
pub(super) fn tell_of_prepared(engine: &Engine, commit: Commit, ops: &[Op<'_>]) {
    let Some(hook) = hook_of(engine) else { return };
    let operations = Operations::of_prepared(engine, ops);
    call(engine, || hook.after(commit, &operations));
}

impl Life {
    /// Asks the hook.
    #[inline]
    pub(super) fn ask_hook(&self, engine: &Engine) -> Result<()> {
        let Some(hook) = hook_of(engine) else { return Ok(()) };
        let operations = Operations::new(&self.footprint, &self.families);
        let mut answer = Ok(());
        let is_done = call(engine, || answer = hook.before(&operations));
        match is_done {
            true => answer.map_err(Error::commit_vetoed),
            false => Err(Error::commit_vetoed("the hook panicked".into())),
        }
    }

    /// Tells the hook.
    #[inline]
    pub(super) fn tell_hook(&self, engine: &Engine, commit: Commit) {
        let Some(hook) = hook_of(engine).filter(|_| self.footprint.len() > 0) else { return };
        let operations = Operations::new(&self.footprint, &self.families);
        call(engine, || hook.after(commit, &operations));
    }
}
