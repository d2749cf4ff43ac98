//! The transactions under way that are known by a number: those that have locked something or
//! waited for a lock, those that another thread may end, and those that were asked for their
//! number. The others cost nothing here and are not listed.

use super::{Engine, Watch};
use crate::env::sync::{Mutex, Rank};
use crate::lock::Owner;
use crate::options::Isolation;
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Transactions are spread over so many lists.
const SHARDS: usize = 16;

/// A transaction under way.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) owner: Arc<Owner>,
    pub(crate) isolation: Isolation,
    /// When it became known.
    pub(crate) since_ns: u64,
    watch: Option<Arc<Watch>>,
}

type Entries = BTreeMap<u64, Entry>;

/// The known transactions under way, by their numbers.
#[derive(Debug)]
pub(crate) struct Running {
    shards: Box<[CachePadded<Mutex<Entries>>]>,
}

impl Default for Running {
    fn default() -> Running {
        let shard = |_| CachePadded::new(Mutex::new(Rank::Running, BTreeMap::new()));
        Running { shards: (0..SHARDS).map(shard).collect() }
    }
}

impl Running {
    fn shard(&self, id: u64) -> &Mutex<Entries> {
        &self.shards[id as usize % SHARDS]
    }

    /// Enters a transaction.
    pub(crate) fn enter(&self, owner: &Arc<Owner>, isolation: Isolation, now_ns: u64) {
        let entry = Entry { owner: owner.clone(), isolation, since_ns: now_ns, watch: None };
        self.shard(owner.id).lock().insert(owner.id, entry);
    }

    /// Notes that a transaction, which was entered, may be ended by others.
    pub(crate) fn watch(&self, id: u64, watch: &Arc<Watch>) {
        if let Some(entry) = self.shard(id).lock().get_mut(&id) {
            entry.watch = Some(watch.clone());
        }
    }

    /// Forgets a transaction that has ended.
    pub(crate) fn leave(&self, id: u64) {
        self.shard(id).lock().remove(&id);
    }

    /// All of them, by their numbers.
    pub(crate) fn list(&self) -> Vec<Entry> {
        let of_shard = |shard: &CachePadded<Mutex<Entries>>| {
            shard.lock().values().cloned().collect::<Vec<_>>()
        };
        let mut all: Vec<Entry> = self.shards.iter().flat_map(of_shard).collect();
        all.sort_unstable_by_key(|entry| entry.owner.id);
        all
    }

    /// Ends those that have taken too long.
    pub(crate) fn reap(&self, engine: &Engine) {
        for entry in self.list() {
            if let Some(watch) = &entry.watch {
                watch.reap(engine);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed_by_their_numbers_whatever_these_are_until_they_leave() {
        let running = Running::default();
        let ids = || running.list().iter().map(|entry| entry.owner.id).collect::<Vec<_>>();
        for id in (1..50).rev() {
            running.enter(&Owner::transaction(id), Isolation::default(), 0);
        }
        assert_eq!(ids(), (1..50).collect::<Vec<_>>());
        (1..49).for_each(|id| running.leave(id));
        assert_eq!(ids(), [49]);
    }
}
