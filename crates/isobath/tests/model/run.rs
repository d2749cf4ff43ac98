//! Does what a history says, on a database and on its model, and compares them.

use super::home::Home;
use super::ops::{Cut, KeyIndex, Move, Op, Settings, SettingsIndex, Write};
use super::state::{History, Keyspace, Map, State};
use isobath::vfs::MemoryFs;
use isobath::{Batch, Cursor, Db, Durability, Error, Family, Range, Snapshot, Value, WriteOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds as _};
use std::sync::Arc;

struct TakenSnapshot {
    snapshot: Snapshot,
    state: Arc<State>,
}

pub(crate) struct Run {
    home: Home,
    /// The list to which operations refer.
    settings: Vec<Settings>,
    db: Option<Db>,
    /// Handles of all families since the last open. Snapshots may see dropped families too.
    handles: BTreeMap<u32, Family>,
    history: History,
    snapshots: Vec<TakenSnapshot>,
    families_ever: u32,
}

/// Keys of various lengths, including the empty key, some with long common prefixes.
fn key(index: KeyIndex) -> Vec<u8> {
    if index == 0 {
        return Vec::new();
    }
    if index == KeyIndex::MAX {
        // The greatest key of its length.
        return vec![0xff; 9];
    }
    let mut key = match index % 4 {
        0 => Vec::new(),
        1 => b"prefix".to_vec(),
        2 => vec![0xff; 9],
        _ => vec![b'x'; 300],
    };
    key.push(index / 4);
    if index.is_multiple_of(3) {
        key.push(0);
    }
    key
}

/// A value shows its place in the history. It is half compressible.
fn value(stamp: usize, len: u32) -> Arc<[u8]> {
    let mut value = format!("{stamp}.").into_bytes();
    let mut word = stamp as u32 | 1;
    while value.len() < len as usize {
        word = word.wrapping_mul(2_654_435_761).rotate_left(7);
        value.extend_from_slice(&[word as u8, word as u8, b'.', b'.']);
    }
    value.truncate(len as usize);
    value.into()
}

fn bounds(from: KeyIndex, to: KeyIndex) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let lower = match from % 5 {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(from)),
        _ => Bound::Included(key(from)),
    };
    let upper = match to % 5 {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(to)),
        _ => Bound::Excluded(key(to)),
    };
    (lower, upper)
}

/// The part of a map within bounds. `BTreeMap::range` panics on crossed bounds.
fn within(map: &Map, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Arc<[u8]>)> {
    map.iter()
        .filter(|(key, _)| bounds.contains(*key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

fn same(found: Option<&Value>, expected: Option<&Arc<[u8]>>, what: &dyn std::fmt::Debug) {
    let short =
        |bytes: &[u8]| (bytes.len(), bytes[..bytes.len().min(12)].escape_ascii().to_string());
    let (found, expected) = (found.map(|v| &v[..]), expected.map(|v| &v[..]));
    assert!(
        found == expected,
        "{what:?}: found {:?}, expected {:?}",
        found.map(short),
        expected.map(short)
    );
}

/// A small generator for choices within one power cut.
fn scramble(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

fn cut(fs: &MemoryFs, how: Cut) -> MemoryFs {
    match how {
        Cut::LosesAll => fs.crashed(|_| 0),
        Cut::LosesNothing => fs.crashed(|unsynced| unsynced.steps.len()),
        Cut::StopsAt(part) => {
            let step = fs.steps() * u64::from(part) / u64::from(u16::MAX);
            fs.crashed(|unsynced| unsynced.steps_until(step))
        }
        Cut::Random(mut seed) => {
            fs.crashed(|unsynced| scramble(&mut seed) as usize % (unsynced.steps.len() + 1))
        }
    }
}

impl Run {
    /// A new database under the first of `settings`.
    pub(crate) fn new(home: Home, settings: Vec<Settings>) -> Run {
        let db = home.open(settings[0].options()).unwrap();
        let default = Keyspace { name: "default".to_owned(), map: Arc::default() };
        let state = State { families: BTreeMap::from([(0, default)]) };
        let handles = BTreeMap::from([(0, db.default_family())]);
        let history = History::new(state);
        let (snapshots, families_ever) = (Vec::new(), 0);
        Run { home, settings, db: Some(db), handles, history, snapshots, families_ever }
    }

    fn settings(&self, index: SettingsIndex) -> &Settings {
        &self.settings[usize::from(index) % self.settings.len()]
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    pub(crate) fn step(&mut self, at: usize, op: &Op) {
        match op {
            Op::Write { writes, sync } => self.write(at, writes, *sync),
            Op::Get { .. } | Op::MultiGet { .. } | Op::Prefix { .. } => self.read(op),
            Op::Range { family, from, to, backwards, limit, snapshot } => {
                self.range(*family, *snapshot, bounds(*from, *to), (*backwards, *limit));
            }
            Op::Cursor { family, from, to, moves, snapshot } => {
                self.cursor(*family, *snapshot, bounds(*from, *to), moves);
            }
            Op::TakeSnapshot => {
                let (snapshot, state) = (self.db().snapshot(), self.history.now().clone());
                self.snapshots.push(TakenSnapshot { snapshot, state });
            }
            Op::ReadSnapshot { snapshot, family, key } => {
                self.read_snapshot(*snapshot, *family, *key);
            }
            Op::ReleaseSnapshot(index) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.swap_remove(*index as usize % self.snapshots.len());
                }
            }
            Op::Flush => {
                self.db().flush().unwrap();
                self.history.all_is_durable();
            }
            Op::Sync => {
                self.db().sync().unwrap();
                self.history.all_is_durable();
            }
            Op::WaitForCompactions => assert!(self.db().wait_for_compactions(None).unwrap()),
            Op::Compact { family, from, to } => {
                let (id, _) = self.pick(*family);
                self.handles[&id].compact(bounds(*from, *to)).unwrap();
            }
            Op::CreateFamily { .. }
            | Op::DropFamily(_)
            | Op::RenameFamily { .. }
            | Op::CloneFamily { .. } => self.change_families(op),
            Op::Reopen(next) | Op::Kill(next) | Op::CutPower(_, next) => {
                self.end_life(op);
                self.open(*next);
            }
        }
    }

    /// Closes the database, kills its process, or cuts its power. On files of the system it always
    /// closes.
    fn end_life(&mut self, how: &Op) {
        let left = match (how, &self.home) {
            (Op::Kill(_), Home::Memory(fs)) => Some(fs.killed()),
            (Op::CutPower(how, _), Home::Memory(fs)) => Some(cut(fs, *how)),
            _ => None,
        };
        self.check_snapshots();
        self.snapshots.clear();
        let db = self.db.take().unwrap();
        if left.is_none() {
            db.close().unwrap();
        }
        if left.is_none() || matches!(how, Op::Kill(_)) {
            self.history.all_is_durable();
        }
        self.handles.clear();
        if let Some(left) = left {
            self.home = Home::Memory(left);
        }
    }

    fn read(&self, op: &Op) {
        match op {
            Op::Get { family, key: index } => {
                let (id, state) = self.pick(*family);
                let (handle, expected) =
                    (&self.handles[&id], state.families[&id].map.get(&key(*index)));
                same(handle.get(key(*index)).unwrap().as_ref(), expected, op);
                let contains = handle.contains(key(*index)).unwrap();
                assert_eq!(contains, expected.is_some());
            }
            Op::MultiGet { family, keys } => {
                let (id, state) = self.pick(*family);
                let keys: Vec<_> = keys.iter().map(|index| key(*index)).collect();
                let found = self.handles[&id].multi_get(&keys).unwrap();
                for (key, found) in keys.iter().zip(&found) {
                    same(found.as_ref(), state.families[&id].map.get(key), op);
                }
            }
            Op::Prefix { family, key: index, len } => {
                let (id, state) = self.pick(*family);
                let mut prefix = key(*index);
                prefix.truncate(*len as usize);
                let range = self.handles[&id].prefix(&prefix);
                let expected = state.families[&id].map.iter();
                let expected = expected.filter(|(key, _)| key.starts_with(&prefix));
                let expected: Vec<_> = expected.map(|(k, v)| (k.clone(), v.clone())).collect();
                check_both_ends(range, &expected, (0, usize::MAX));
            }
            _ => unreachable!("not a read"),
        }
    }

    /// Opens the database once more, which compares everything, and closes it.
    pub(crate) fn finish(mut self) {
        self.step(0, &Op::Reopen(0));
        self.end_life(&Op::Reopen(0));
    }

    fn pick(&self, family: u8) -> (u32, Arc<State>) {
        let state = self.history.now().clone();
        (state.nth(family), state)
    }

    fn write(&mut self, at: usize, writes: &[Write], sync: bool) {
        let mut state = State::clone(self.history.now());
        let mut batch = Batch::new();
        for (ordinal, write) in writes.iter().enumerate() {
            match *write {
                Write::Put { family, key: index, len } => {
                    let id = state.nth(family);
                    let value = value(at * 100 + ordinal, len);
                    batch.of(&self.handles[&id]).put(key(index), &value);
                    state.map_mut(id).insert(key(index), value);
                }
                Write::Delete { family, key: index } => {
                    let id = state.nth(family);
                    batch.of(&self.handles[&id]).delete(key(index));
                    state.map_mut(id).remove(&key(index));
                }
            }
        }
        let options = if sync {
            WriteOptions::sync()
        } else {
            WriteOptions::default().durability(Durability::Process)
        };
        if at.is_multiple_of(2) {
            // Writing a batch twice has the same result as writing it once.
            self.db().write(&mut batch).unwrap();
        }
        self.db().with(options).write(batch).unwrap();
        self.history.push(state);
        if sync && !writes.is_empty() {
            self.history.all_is_durable();
        }
    }

    /// What to read of `family`, now or in a snapshot, with the expected content.
    fn reading(&self, family: u8, snapshot: Option<u8>) -> (u32, Arc<State>, Option<&Snapshot>) {
        match snapshot {
            Some(index) if !self.snapshots.is_empty() => {
                let taken = &self.snapshots[index as usize % self.snapshots.len()];
                // The families of that moment, including those dropped later, and those created
                // since.
                let both: BTreeSet<_> =
                    taken.state.families.keys().chain(self.history.now().families.keys()).collect();
                let id = *both.iter().nth(family as usize % both.len()).unwrap();
                (*id, taken.state.clone(), Some(&taken.snapshot))
            }
            _ => {
                let (id, state) = self.pick(family);
                (id, state, None)
            }
        }
    }

    fn range(
        &self,
        family: u8,
        snapshot: Option<u8>,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        turns: (u32, usize),
    ) {
        let (id, state, snapshot) = self.reading(family, snapshot);
        let handle = &self.handles[&id];
        let range = match snapshot {
            Some(snapshot) => snapshot.of(handle).range(bounds.clone()),
            None => handle.range(bounds.clone()),
        };
        let empty = Map::new();
        let map = state.families.get(&id).map_or(&empty, |family| &*family.map);
        check_both_ends(range, &within(map, &bounds), turns);
    }

    fn cursor(
        &self,
        family: u8,
        snapshot: Option<u8>,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        moves: &[Move],
    ) {
        let (id, state, snapshot) = self.reading(family, snapshot);
        let handle = &self.handles[&id];
        let mut cursor = match snapshot {
            Some(snapshot) => snapshot.of(handle).cursor(bounds.clone()).unwrap(),
            None => handle.cursor(bounds.clone()).unwrap(),
        };
        let empty = Map::new();
        let map = state.families.get(&id).map_or(&empty, |family| &*family.map);
        check_moves(&mut cursor, &within(map, &bounds), moves);
    }

    fn read_snapshot(&self, index: u8, family: u8, index_of_key: KeyIndex) {
        let (id, state, Some(snapshot)) = self.reading(family, Some(index)) else { return };
        let found = snapshot.of(&self.handles[&id]).get(key(index_of_key)).unwrap();
        let expected =
            state.families.get(&id).and_then(|family| family.map.get(&key(index_of_key)));
        same(found.as_ref(), expected, &("snapshot", id, index_of_key));
    }

    fn check_snapshots(&self) {
        for index in 0..self.snapshots.len() {
            for key in 0..=255 {
                self.read_snapshot(index as u8, key, key);
            }
        }
    }

    fn change_families(&mut self, op: &Op) {
        let mut state = State::clone(self.history.now());
        match op {
            Op::CreateFamily { name, settings } => {
                let name = format!("family {}", name % 8);
                let options = self.settings(*settings).family.clone();
                let opened = self.db().family((&name, options.clone())).unwrap();
                assert_eq!(opened.options(), options);
                if state.has_name(&name) {
                    let known = self.handles.values().find(|known| known.id() == opened.id());
                    assert_eq!(known.map(|known| known.name()), Some(name));
                    return;
                }
                self.families_ever += 1;
                self.handles.insert(self.families_ever, opened);
                state.families.insert(self.families_ever, Keyspace { name, map: Arc::default() });
            }
            Op::DropFamily(family) => {
                let id = state.nth(*family);
                let dropped = self.db().drop_family(&self.handles[&id]);
                if id == 0 {
                    assert!(
                        matches!(dropped.as_ref().map_err(Error::name), Err("INVALID_ARGUMENT")),
                        "{dropped:?}"
                    );
                    return;
                }
                dropped.unwrap();
                state.families.remove(&id);
                let handle = &self.handles[&id];
                let refused = handle.put("key", "value");
                assert_eq!(refused.unwrap_err().name(), "UNKNOWN_FAMILY");
                let refused = self.db().snapshot().of(handle).get("key");
                assert_eq!(refused.unwrap_err().name(), "UNKNOWN_FAMILY");
            }
            Op::RenameFamily { family, name } => {
                let id = state.nth(*family);
                let name = format!("family {}", name % 8);
                let renamed = self.db().rename_family(&self.handles[&id], &name);
                if id == 0 || state.has_name(&name) {
                    renamed.unwrap_err();
                    return;
                }
                renamed.unwrap();
                state.families.get_mut(&id).unwrap().name = name;
            }
            Op::CloneFamily { family, name } => {
                let id = state.nth(*family);
                let name = format!("family {}", name % 8);
                let cloned = self.db().clone_family(&self.handles[&id], &name);
                if state.has_name(&name) {
                    assert_eq!(cloned.unwrap_err().name(), "FAMILY_EXISTS");
                    return;
                }
                self.families_ever += 1;
                self.handles.insert(self.families_ever, cloned.unwrap());
                let map = state.families[&id].map.clone();
                state.families.insert(self.families_ever, Keyspace { name, map });
            }
            _ => unreachable!(),
        }
        self.history.push(state);
        // The change is acknowledged when its record is synced, and so is everything before it.
        self.history.all_is_durable();
    }

    /// Opens the database again, and finds out which state it has.
    fn open(&mut self, settings: SettingsIndex) {
        let db = self.home.open(self.settings(settings).options()).unwrap();
        let mut seen = BTreeMap::new();
        for name in db.list_families() {
            let handle = db.family_if_exists(&name).unwrap().unwrap();
            let items = handle.range(..).map(|item| {
                let (key, value) = item.unwrap();
                (key.to_vec(), Arc::from(&value[..]))
            });
            seen.insert(name, items.collect::<Map>());
        }
        self.history.cut_to(&seen).unwrap();
        // What recovery kept is in tables.
        self.history.all_is_durable();
        for (id, family) in &self.history.now().families {
            self.handles.insert(*id, db.family_if_exists(&family.name).unwrap().unwrap());
        }
        self.db = Some(db);
    }
}

/// Takes at most `limit` items from both ends, in an order that the bits of `backwards` give, and
/// compares them.
fn check_both_ends(
    mut range: Range,
    expected: &[(Vec<u8>, Arc<[u8]>)],
    (backwards, limit): (u32, usize),
) {
    let mut left = expected.iter();
    for turn in 0..limit {
        let (found, wanted) = if backwards >> (turn % 32) & 1 == 0 {
            (range.next(), left.next())
        } else {
            (range.next_back(), left.next_back())
        };
        let found = found.map(Result::unwrap);
        assert_eq!(found.as_ref().map(|(key, _)| &key[..]), wanted.map(|(key, _)| &key[..]));
        same(found.as_ref().map(|(_, value)| value), wanted.map(|(_, value)| value), &"range");
        if found.is_none() {
            return;
        }
    }
}

fn check_moves(cursor: &mut Cursor, expected: &[(Vec<u8>, Arc<[u8]>)], moves: &[Move]) {
    // A position is one more than an index: 0 is before the first key. A new cursor has no
    // position.
    let (mut at, behind) = (None, expected.len() + 1);
    for step in moves {
        let to = match *step {
            Move::First => 1,
            Move::Last => behind - 1,
            Move::Seek(index) => 1 + expected.partition_point(|(k, _)| *k < key(index)),
            Move::SeekForPrev(index) => expected.partition_point(|(k, _)| *k <= key(index)),
            Move::Next => behind.min(at.unwrap_or(0) + 1),
            Move::Prev => at.unwrap_or(behind).saturating_sub(1),
        };
        at = Some(to);
        let entry = match *step {
            Move::First => cursor.first(),
            Move::Last => cursor.last(),
            Move::Seek(index) => cursor.seek(key(index)),
            Move::SeekForPrev(index) => cursor.seek_for_prev(key(index)),
            Move::Next => cursor.next(),
            Move::Prev => cursor.prev(),
        }
        .unwrap();
        let wanted = to.checked_sub(1).and_then(|index| expected.get(index));
        let wanted = wanted.map(|(key, value)| (&key[..], &value[..]));
        let shown = |entry: isobath::Entry<'_>| entry.value().unwrap().to_vec();
        assert!(
            entry.map(|entry| entry.key()) == wanted.map(|(key, _)| key)
                && entry.map(shown).as_deref() == wanted.map(|(_, value)| value),
            "after {step:?}, at {at:?}: {entry:?}"
        );
        let entry = entry.map(|entry| entry.key().to_vec());
        assert_eq!(cursor.entry().map(|entry| entry.key().to_vec()), entry);
    }
}
