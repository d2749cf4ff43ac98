//! Transactions that are prepared: each is ready to commit, and is decided by its name.

use crate::db::{Db, Owner};
use crate::engine::{Doubtful, Engine, PreparedEntry, isolation_of};
use crate::error::Result;
use crate::format::{Lsn, Payload, decode_payload};
use crate::options::Isolation;
use crate::read_point::ReadPoint;
use crate::transact::{decide, decide_entry};
use crate::transaction::Transaction;
use crate::write::Commit;
use crate::xid::Xid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A transaction that is prepared, and in doubt until it is decided. Dropping this leaves it in
/// doubt: [`Db::commit_prepared`] and [`Db::rollback_prepared`] decide it by its name, now or after
/// any number of crashes, in any process. It keeps the database open.
#[must_use = "a prepared transaction keeps its locks until it is committed or rolled back"]
pub struct Prepared {
    owner: Arc<Owner>,
    entry: Arc<PreparedEntry>,
}

impl Prepared {
    /// Its name.
    pub fn xid(&self) -> &Xid {
        &self.entry.xid
    }

    /// Commits the transaction: see [`Db::commit_prepared`].
    pub fn commit(self) -> Result<Commit> {
        decide_entry(self.owner.engine(), &self.entry, true)
    }

    /// Ends the transaction without a trace: see [`Db::rollback_prepared`].
    pub fn rollback(self) -> Result<()> {
        decide_entry(self.owner.engine(), &self.entry, false).map(drop)
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prepared({})", self.xid())
    }
}

/// A prepared transaction that is in doubt: [`Db::in_doubt`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct InDoubt {
    /// Its name.
    pub xid: Xid,
    /// What it is protected from.
    pub isolation: Isolation,
    /// The bytes that it takes in the log or in a file: what it writes, and what it has locked.
    pub bytes: u64,
    /// The point just before it was prepared.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub point: ReadPoint,
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(point: &ReadPoint, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(point)
}

impl Transaction {
    /// Prepares the transaction: makes sure that it can commit, whatever happens, and leaves the
    /// decision to a program that knows its name. This is the first phase of a commit over several
    /// databases or systems; [`Prepared`] is the second.
    ///
    /// From the moment that this returns, a prepared transaction survives crashes and power cuts.
    /// So do its locks: all that it writes, and all that its isolation level checks, stays locked
    /// until it is decided. Others that want to change it wait, and then fail with
    /// [`ErrorKind::LockTimeout`](crate::ErrorKind::LockTimeout), which has the name. What it
    /// writes is not visible before it is committed. It holds no read point and no part of the log.
    ///
    /// The commit hook is asked now. No timeout ends a prepared transaction.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("prepare")?;
    /// let tx = db.begin();
    /// tx.put("account", "90")?;
    /// let prepared = tx.prepare("transfer 7")?;
    /// assert!(!db.contains("account")?);
    /// assert_eq!(db.in_doubt()[0].xid.as_bytes(), b"transfer 7");
    /// prepared.commit()?;
    /// assert!(db.contains("account")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of [`Transaction::commit`]; also the errors of locks, for it may have to wait for some;
    /// [`ErrorKind::TransactionExists`](crate::ErrorKind::TransactionExists) if another transaction
    /// of this name is in doubt, and
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the name is empty or
    /// longer than [`MAX_XID_LEN`](crate::MAX_XID_LEN), or if the transaction puts a stream or
    /// gives one another end;
    /// [`ErrorKind::TransactionTooLarge`](crate::ErrorKind::TransactionTooLarge) if it has written
    /// more than half of `write_buffer`. The transaction is rolled back then. After
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown), [`Db::in_doubt`] of the
    /// next opening tells whether it is prepared.
    pub fn prepare(self, xid: impl Into<Xid>) -> Result<Prepared> {
        let entry = self.life().prepare(self.engine(), &xid.into())?;
        Ok(Prepared { owner: self.owner().clone(), entry })
    }
}

impl Db {
    /// The prepared transactions that are in doubt, by their names, those of earlier openings
    /// included. One whose decision is being made is among them until the decision is durable, so
    /// one whose decision could not be synced stays among them until the database is opened again.
    /// A database that is open for reading only lists those of the moment that it shows.
    pub fn in_doubt(&self) -> Vec<InDoubt> {
        let engine = self.engine();
        if let Some(shown) = &engine.shown {
            return in_doubt_of(engine, &shown.in_doubt());
        }
        let told = |entry: Arc<PreparedEntry>| InDoubt {
            xid: entry.xid.clone(),
            isolation: entry.isolation,
            bytes: entry.bytes(),
            point: point_at(engine, entry.lsn()),
        };
        engine.prepared.in_doubt().into_iter().map(told).collect()
    }

    /// Commits the prepared transaction of this name: all that it wrote becomes visible at once.
    /// When this returns, the commit survives a power cut.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # use isobath::Xid;
    /// # let db = isobath::Options::in_memory().open("commit_prepared")?;
    /// let tx = db.begin();
    /// tx.put("key", "value")?;
    /// drop(tx.prepare("7")?);
    /// db.commit_prepared(&Xid::new("7"))?;
    /// assert_eq!(db.get("key")?.unwrap(), "value");
    /// let again = db.commit_prepared(&Xid::new("7")).unwrap_err();
    /// assert_eq!(again.name(), "UNKNOWN_TRANSACTION");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::UnknownTransaction`](crate::ErrorKind::UnknownTransaction) if no transaction of
    /// this name is in doubt: it was decided and is forgotten, or never prepared. After
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) the next opening tells:
    /// either it is in doubt there, or it is committed. Until then each further call fails with
    /// [`ErrorKind::Poisoned`](crate::ErrorKind::Poisoned). After any other error it is still in
    /// doubt, and this may be called again.
    pub fn commit_prepared(&self, xid: &Xid) -> Result<Commit> {
        decide(self.engine(), xid, true)
    }

    /// Ends the prepared transaction of this name without a trace. When this returns, that survives
    /// a power cut.
    ///
    /// # Errors
    /// As of [`Db::commit_prepared`].
    pub fn rollback_prepared(&self, xid: &Xid) -> Result<()> {
        decide(self.engine(), xid, false).map(drop)
    }
}

fn in_doubt_of(engine: &Engine, in_doubt: &BTreeMap<Lsn, Doubtful>) -> Vec<InDoubt> {
    let told = |(lsn, doubtful): (&Lsn, &Doubtful)| {
        let isolation = match decode_payload(&doubtful.payload) {
            Ok(Payload::Prepare(prepare)) => isolation_of(prepare.isolation),
            _ => Isolation::default(),
        };
        let (xid, bytes) = (doubtful.xid.clone(), doubtful.payload.len() as u64);
        InDoubt { xid, isolation, bytes, point: point_at(engine, *lsn) }
    };
    let mut told: Vec<_> = in_doubt.iter().map(told).collect();
    told.sort_by(|one, other| one.xid.cmp(&other.xid));
    told
}

/// The point at this LSN, with the tag of the term that it belongs to.
fn point_at(engine: &Engine, lsn: Lsn) -> ReadPoint {
    ReadPoint { lsn, tag: engine.tag_of(lsn) }
}
