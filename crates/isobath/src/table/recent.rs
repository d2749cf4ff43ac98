//! Open tables that do not stay open: below a ceiling for memory not all of them can.
//!
//! They have a reserve of their own. Who opens one takes its memory there, and those that were not
//! asked for the longest time go for it.

use super::{SliceMeta, Table};
use crate::env::sync::{Mutex, Rank};
use crate::memory::{Reserve, Room};
use std::collections::BTreeMap;
use std::sync::Arc;

/// File and place of a slice's root.
type Key = (u64, u64);

/// The tables that were asked for last.
#[derive(Debug)]
pub(crate) struct Recent {
    reserve: Arc<Reserve>,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    by_key: BTreeMap<Key, (Arc<Table>, u64)>,
    /// When each was asked for last, counted in questions.
    by_age: BTreeMap<u64, Key>,
    asked: u64,
}

fn key_of(meta: &SliceMeta) -> Key {
    (meta.file, meta.root.offset)
}

impl Tables {
    fn put(&mut self, key: Key, table: Arc<Table>) -> Option<Arc<Table>> {
        self.asked += 1;
        let before = self.by_key.insert(key, (table, self.asked));
        before.iter().for_each(|(_, age)| _ = self.by_age.remove(age));
        self.by_age.insert(self.asked, key);
        debug_assert_eq!(self.by_key.len(), self.by_age.len(), "each table has one age");
        before.map(|(table, _)| table)
    }

    fn take_oldest(&mut self) -> Option<Arc<Table>> {
        let (_, key) = self.by_age.pop_first()?;
        self.by_key.remove(&key).map(|(table, _)| table)
    }
}

impl Recent {
    pub(crate) fn new(reserve: Arc<Reserve>) -> Recent {
        Recent { reserve, tables: Mutex::new(Rank::RecentTables, Tables::default()) }
    }

    /// The table of a slice, if it is among them.
    pub(super) fn find(&self, meta: &SliceMeta) -> Option<Arc<Table>> {
        let mut tables = self.tables.lock();
        let key = key_of(meta);
        let table = tables.by_key.get(&key)?.0.clone();
        drop(tables.put(key, table.clone()));
        Some(table)
    }

    pub(super) fn keep(&self, meta: &SliceMeta, table: Arc<Table>) {
        let before = self.tables.lock().put(key_of(meta), table);
        drop(before);
    }

    /// Takes so many bytes of the reserve. Tables go for them, the oldest first.
    pub(super) fn take(&self, bytes: u64) -> Option<Room> {
        loop {
            if let Some(reserved) = self.reserve.take(bytes) {
                return Some(reserved.into());
            }
            // Who still reads it keeps it, and then it makes no room.
            let oldest = self.tables.lock().take_oldest()?;
            drop(oldest);
        }
    }
}
