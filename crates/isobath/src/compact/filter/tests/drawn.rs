//! Drawn programs beside a model: whatever is compacted when, a snapshot shows one state for as
//! long as it is there, a possible one, and nothing older comes back.

use crate::env::Env;
use crate::options::{FamilyOptions, Options};
use crate::vfs::MemoryFs;
use crate::{Db, Family, FilterEntry, FilterVerdict, Snapshot};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Do {
    Put(u8),
    Delete(u8),
    DeleteRange(u8, u8),
    Flush,
    Compact,
    /// Compacts on another thread, beside the steps that follow.
    CompactBeside,
    Hold,
    LetGo,
    Reopen,
}

fn program() -> impl Strategy<Value = Vec<Do>> {
    let key = || 0u8..6;
    let step = prop_oneof![
        8 => key().prop_map(Do::Put),
        2 => key().prop_map(Do::Delete),
        1 => (key(), key()).prop_map(|(from, to)| Do::DeleteRange(from, to)),
        3 => Just(Do::Flush),
        2 => Just(Do::Compact),
        3 => Just(Do::CompactBeside),
        4 => Just(Do::Hold),
        2 => Just(Do::LetGo),
        1 => Just(Do::Reopen),
    ];
    prop::collection::vec(step, 1..50)
}

/// Values are numbers. One in three is removed, and one in three replaced by one that stays.
fn verdict(value: u64) -> FilterVerdict {
    match value % 3 {
        0 => FilterVerdict::Remove,
        1 => FilterVerdict::Replace((value + 1).to_le_bytes().to_vec()),
        _ => FilterVerdict::Keep,
    }
}

fn judged(value: u64) -> Option<u64> {
    match value % 3 {
        0 => None,
        1 => Some(value + 1),
        _ => Some(value),
    }
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

/// The values of keys as they were written, or as they were found.
type Content = BTreeMap<u8, u64>;

struct Held {
    snapshot: Snapshot,
    written: Content,
    seen: Content,
}

struct World {
    fs: MemoryFs,
    db: Option<(Db, Family)>,
    next: u64,
    written: Content,
    held: Vec<Held>,
    beside: Vec<std::thread::JoinHandle<()>>,
}

impl World {
    fn new() -> World {
        let (fs, db, next) = (MemoryFs::new(), None, 0);
        let (written, held, beside) = (Content::new(), Vec::new(), Vec::new());
        let mut world = World { fs, db, next, written, held, beside };
        world.open();
        world
    }

    fn open(&mut self) {
        let env = Env { fs: Arc::new(self.fs.clone()), ..Env::system() };
        let filter = |entry: FilterEntry<'_>| verdict(number(entry.value));
        let options = Options::new().env(env).write_buffer(64 << 10).compaction_threads(2);
        let db = options.compaction_filter("thirds", filter).open("db").unwrap();
        let filtered = FamilyOptions::new().compaction_filter("thirds");
        let family = db.family(("f", filtered)).unwrap();
        self.db = Some((db, family));
    }

    fn db(&self) -> &(Db, Family) {
        self.db.as_ref().unwrap()
    }

    fn join(&mut self) {
        self.beside.drain(..).for_each(|thread| thread.join().unwrap());
    }

    fn carry_out(&mut self, step: &Do) {
        let (db, family) = self.db().clone();
        match step {
            Do::Put(key) => {
                self.next += 1;
                // What replaces a value is never written.
                let value = self.next * 10;
                family.put([*key], value.to_le_bytes()).unwrap();
                self.written.insert(*key, value);
            }
            Do::Delete(key) => {
                family.delete([*key]).unwrap();
                self.written.remove(key);
            }
            Do::DeleteRange(from, to) if from < to => {
                family.delete_range([*from]..[*to]).unwrap();
                self.written.retain(|key, _| !(from..to).contains(&key));
            }
            Do::DeleteRange(..) => {}
            Do::Flush => db.flush().unwrap(),
            Do::Compact => db.compact().unwrap(),
            Do::CompactBeside => {
                let compact = move || db.compact().unwrap();
                self.beside.push(std::thread::spawn(compact));
            }
            Do::Hold => {
                let snapshot = db.snapshot();
                let seen = content(&snapshot, &family);
                self.held.push(Held { snapshot, written: self.written.clone(), seen });
            }
            Do::LetGo => drop((!self.held.is_empty()).then(|| self.held.remove(0))),
            Do::Reopen => {
                self.join();
                self.held.clear();
                drop((db, family));
                self.db.take().unwrap().0.close().unwrap();
                self.open();
            }
        }
    }

    fn check(&self) {
        let (_, family) = self.db();
        for Held { snapshot, written, seen } in &self.held {
            check_possible(written, seen);
            assert_eq!(&content(snapshot, family), seen, "a snapshot shows one state");
        }
        let now: Content =
            family.iter().map(Result::unwrap).map(|(k, v)| (k[0], number(&v))).collect();
        check_possible(&self.written, &now);
    }
}

fn content(snapshot: &Snapshot, family: &Family) -> Content {
    let reads = snapshot.of(family);
    let found: Content =
        reads.iter().map(Result::unwrap).map(|(k, v)| (k[0], number(&v))).collect();
    for key in 0..6 {
        let one = reads.get([key]).unwrap().map(|value| number(&value));
        assert_eq!(one, found.get(&key).copied(), "a get and a scan of one snapshot");
    }
    found
}

/// Each key has what was written to it, or what the filter makes of that.
fn check_possible(written: &Content, found: &Content) {
    for key in 0..6 {
        let (was, is) = (written.get(&key).copied(), found.get(&key).copied());
        assert!(is == was || is == was.and_then(judged), "{key}: {is:?}, written was {was:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn snapshots_show_one_possible_state_whatever_is_compacted_when(program in program()) {
        let mut world = World::new();
        for step in &program {
            world.carry_out(step);
            world.check();
        }
        world.join();
        world.check();
        world.held.clear();
        let (db, family) = world.db().clone();
        assert_eq!(db.metrics().filter_held_views, 0);
        db.compact().unwrap();
        let judged = world.written.iter().filter_map(|(key, value)| Some((*key, judged(*value)?)));
        let found = content(&db.snapshot(), &family);
        prop_assert_eq!(found, judged.collect::<Content>());
        world.carry_out(&Do::Reopen);
    }
}
