//! The transactions under way, as a program may list them.

use crate::db::Db;
use crate::options::Isolation;
use std::time::Duration;

/// A transaction under way: [`Db::transactions`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RunningTransaction {
    /// The number by which errors name it: [`Transaction::id`](crate::Transaction::id).
    pub id: u64,
    /// The time since it got its number: since its begin if it has a timeout; otherwise since it
    /// first asked for a lock, or was asked for its number or an abort handle.
    pub age: Duration,
    /// What it is protected from.
    pub isolation: Isolation,
    /// The keys that it has locked.
    pub locked_keys: u64,
    /// The ranges that it has locked. Those that overlap or touch count as one.
    pub locked_ranges: u64,
    /// It waits for a lock now.
    pub is_waiting: bool,
    /// The memory that it took for what it wrote and read when it was last called.
    pub bytes: u64,
}

impl Db {
    /// The transactions under way, by their numbers: those that have asked for a lock, have a
    /// timeout or an [`AbortHandle`](crate::AbortHandle), or were asked for their number. Others
    /// hold nothing for which others wait, and are counted only: they are the difference of
    /// `transactions_begun` and the sum of `transactions_committed`, `transactions_rolled_back` and
    /// `transactions_prepared` in [`Db::metrics`]. Prepared ones are in [`Db::in_doubt`].
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("running")?;
    /// let tx = db.begin();
    /// tx.get_for_update("key")?;
    /// let running = db.transactions();
    /// assert_eq!((running[0].id, running[0].locked_keys), (tx.id(), 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn transactions(&self) -> Vec<RunningTransaction> {
        let engine = self.engine();
        let now_ns = engine.options.env.clock.now_ns();
        let all = engine.running.list();
        let told = all.iter().map(|entry| RunningTransaction {
            id: entry.owner.id,
            age: Duration::from_nanos(now_ns.saturating_sub(entry.since_ns)),
            isolation: entry.isolation,
            locked_keys: entry.owner.held_len() as u64,
            locked_ranges: engine.locks.ranges_held_by(&entry.owner) as u64,
            is_waiting: entry.owner.is_waiting(),
            bytes: entry.owner.bytes(),
        });
        told.collect()
    }
}
