//! RocksDB's two kinds of transactional databases: `rocksdb-optimistic`, whose transactions find
//! out when they commit whether what they read has changed, and `rocksdb-locking`, which locks it.
//!
//! A transaction has a snapshot from its beginning on, so that what it writes conflicts with what
//! others have written since. A key is read for an update, so that it counts as changed: that makes
//! transactions of single keys serializable. RocksDB protects no range: of a scan only what is
//! written back is safe, and others may write a new key into it. A transaction that only reads has
//! nothing but its snapshot.

use super::registry::EngineKind;
use super::rocksdb::{Base, RocksDb, usual, usual_table, with_knobs};
use super::{
    Access, Body, Conflict, Durability, Engine, EngineConfig, Operation, RowVisitor, Session,
    Transactor, rerun,
};
use anyhow::{Result, anyhow, bail};
use rocksdb::{
    DBAccess, DBRawIteratorWithThreadMode, Error, ErrorKind, MultiThreaded,
    OptimisticTransactionDB, OptimisticTransactionOptions, ReadOptions, SnapshotWithThreadMode,
    Transaction, TransactionDB, TransactionDBOptions, TransactionOptions,
    WriteBatchWithTransaction, WriteOptions,
};
use self_cell::self_cell;
use std::sync::Arc;

pub(super) const OPTIMISTIC: EngineKind = EngineKind {
    name: "rocksdb-optimistic",
    transactions: Some("conflicts found at the commit, but for ranges"),
    open: open_optimistic,
    ..super::rocksdb::KIND
};
pub(super) const LOCKING: EngineKind = EngineKind {
    name: "rocksdb-locking",
    transactions: Some("what is read and written is locked, but for ranges"),
    open: open_locking,
    ..super::rocksdb::KIND
};

fn open_optimistic(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let options = with_knobs(config, usual(config, &usual_table(config)))?;
    let db: OptimisticTransactionDB = OptimisticTransactionDB::open(&options, &config.path)?;
    Ok(Box::new(RocksDb::new(db, config)))
}

fn open_locking(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let options = with_knobs(config, usual(config, &usual_table(config)))?;
    let db = LockingDb::open(&options, &TransactionDBOptions::default(), &config.path)?;
    Ok(Box::new(RocksDb::new(db, config)))
}

/// The type of database whose properties the package can read.
type LockingDb = TransactionDB<MultiThreaded>;

/// What the two kinds of databases have in common.
trait Kind: Base + DBAccess + Sized {
    type Cell: Cell<Self>;

    fn begin(&self, write: &WriteOptions) -> Transaction<'_, Self>;
    fn apply(&self, batch: WriteBatchWithTransaction<true>, write: &WriteOptions) -> Result<()>;
    fn look_up(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;
    fn snapshot_of(&self) -> SnapshotWithThreadMode<'_, Self>;
    fn rows_of(&self, read: ReadOptions) -> DBRawIteratorWithThreadMode<'_, Self>;
}

/// Implements [`Kind`] for one of the two types. Both have the methods that are called here, but
/// the package has no trait with them.
macro_rules! kind {
    ($db:ty, $cell:ident, $open:ident, $options:expr) => {
        type $open<'a> = Open<'a, $db>;

        self_cell!(
            struct $cell {
                owner: Arc<$db>,
                #[not_covariant]
                dependent: $open,
            }
        );

        impl Cell<$db> for $cell {
            fn with<T>(
                &mut self,
                call: impl for<'a> FnOnce(&'a Arc<$db>, &mut Open<'a, $db>) -> T,
            ) -> T {
                self.with_dependent_mut(call)
            }
        }

        impl Base for $db {
            fn property(&self, name: &str) -> Option<String> {
                self.property_value(name).ok().flatten()
            }

            fn number(&self, name: &str) -> Result<u64> {
                let number = self.property_int_value(name)?;
                number.ok_or_else(|| anyhow!("RocksDB has no {name}"))
            }

            fn flush_memtable(&self) -> Result<()> {
                Ok(self.flush()?)
            }

            fn flush_log(&self) -> Result<()> {
                Ok(self.flush_wal(false)?)
            }

            fn session(db: &Arc<Self>, durability: Durability) -> Result<Box<dyn Session>> {
                Ok(Box::new(Plain { db: Arc::clone(db), write: write_options(durability) }))
            }

            fn transactor(db: &Arc<Self>, durability: Durability) -> Result<Box<dyn Transactor>> {
                let cell = $cell::new(Arc::clone(db), |_| Open::None);
                Ok(Box::new(RocksTransactor::<$db> { cell, write: write_options(durability) }))
            }
        }

        impl Kind for $db {
            type Cell = $cell;

            fn begin(&self, write: &WriteOptions) -> Transaction<'_, Self> {
                self.transaction_opt(write, &$options)
            }

            fn apply(
                &self,
                batch: WriteBatchWithTransaction<true>,
                write: &WriteOptions,
            ) -> Result<()> {
                Ok(self.write_opt(batch, write)?)
            }

            fn look_up(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
                Ok(self.get_pinned(key)?.map(|value| visit(&value)).is_some())
            }

            fn snapshot_of(&self) -> SnapshotWithThreadMode<'_, Self> {
                self.snapshot()
            }

            fn rows_of(&self, read: ReadOptions) -> DBRawIteratorWithThreadMode<'_, Self> {
                self.raw_iterator_opt(read)
            }
        }
    };
}

kind!(OptimisticTransactionDB, OptimisticCell, OptimisticOpen, optimistic_options());
kind!(LockingDb, LockingCell, LockingOpen, locking_options());

fn optimistic_options() -> OptimisticTransactionOptions {
    let mut options = OptimisticTransactionOptions::default();
    options.set_snapshot(true);
    options
}

/// A deadlock is found at once, where the default is to wait for a second.
fn locking_options() -> TransactionOptions {
    let mut options = TransactionOptions::default();
    options.set_deadlock_detect(true);
    options.set_snapshot(true);
    options
}

fn write_options(durability: Durability) -> WriteOptions {
    let mut write = WriteOptions::default();
    write.set_sync(durability == Durability::Sync);
    write
}

fn read_options(to: Option<&[u8]>) -> ReadOptions {
    let mut read = ReadOptions::default();
    if let Some(to) = to {
        read.set_iterate_upper_bound(to);
    }
    read
}

fn walk<D: DBAccess>(
    mut rows: DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    visit: RowVisitor<'_>,
) -> Result<()> {
    rows.seek(from);
    while let Some((key, value)) = rows.item() {
        if visit(key, value) {
            return Ok(());
        }
        rows.next();
    }
    Ok(rows.status()?)
}

/// What is done outside transactions.
struct Plain<D> {
    db: Arc<D>,
    write: WriteOptions,
}

impl<D: Kind> Session for Plain<D> {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let mut batch = WriteBatchWithTransaction::<true>::default();
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => batch.put(key, value),
                Operation::Delete(key) => batch.delete(key),
            }
        }
        self.db.apply(batch, &self.write)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.db.look_up(key, visit)
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        walk(self.db.rows_of(read_options(to)), from, visit)
    }
}

enum Open<'a, D: DBAccess> {
    None,
    Read(SnapshotWithThreadMode<'a, D>),
    Write(Transaction<'a, D>),
}

/// A database with the transaction that borrows it.
trait Cell<D: DBAccess>: 'static {
    fn with<T>(&mut self, call: impl for<'a> FnOnce(&'a Arc<D>, &mut Open<'a, D>) -> T) -> T;
}

struct RocksTransactor<D: Kind> {
    cell: D::Cell,
    write: WriteOptions,
}

fn conflict(error: Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::TimedOut => Conflict.into(),
        _ => error.into(),
    }
}

const NOT_BEGUN: &str = "no transaction has begun";

impl<D: Kind> Session for RocksTransactor<D> {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        self.cell.with(|_, open| {
            let Open::Write(transaction) = open else { bail!(NOT_BEGUN) };
            for operation in operations {
                match *operation {
                    Operation::Put(key, value) => transaction.put(key, value),
                    Operation::Delete(key) => transaction.delete(key),
                }
                .map_err(conflict)?;
            }
            Ok(())
        })
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.cell.with(|_, open| {
            let value = match open {
                Open::None => bail!(NOT_BEGUN),
                Open::Read(snapshot) => snapshot.get_pinned(key)?,
                Open::Write(transaction) => {
                    transaction.get_pinned_for_update(key, true).map_err(conflict)?
                }
            };
            Ok(value.map(|value| visit(&value)).is_some())
        })
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        self.cell.with(|_, open| match open {
            Open::None => bail!(NOT_BEGUN),
            Open::Read(snapshot) => walk(snapshot.raw_iterator_opt(read_options(to)), from, visit),
            Open::Write(transaction) => {
                let mut read = read_options(to);
                read.set_snapshot(&transaction.snapshot());
                walk(transaction.raw_iterator_opt(read), from, visit)
            }
        })
    }
}

impl<D: Kind> Transactor for RocksTransactor<D> {
    fn begin(&mut self, access: Access) -> Result<()> {
        let write = &self.write;
        self.cell.with(|db, open| {
            *open = match access {
                Access::Read => Open::Read(db.snapshot_of()),
                Access::Write => Open::Write(db.begin(write)),
            };
        });
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        self.cell.with(|_, open| {
            match std::mem::replace(open, Open::None) {
                Open::None => bail!(NOT_BEGUN),
                Open::Read(_) => {}
                Open::Write(transaction) => match transaction.commit().map_err(conflict) {
                    Err(error) if error.is::<Conflict>() => return Ok(false),
                    outcome => outcome?,
                },
            }
            Ok(true)
        })
    }

    fn rollback(&mut self) {
        self.cell.with(|_, open| *open = Open::None);
    }

    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64> {
        rerun(self, access, body)
    }
}
