//! A footprint against the simplest one: a map of operations, a list of range deletes, a list of
//! copies for savepoints, and sets of keys for what was read.

mod charged;
mod spans;

use super::index::LEAF_MAX;
use super::*;
use crate::cursor::Cursor;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

type Key = (FamilyId, Vec<u8>);
/// A family, and where a range delete begins and ends; an end that is empty is none.
type Deleted = (FamilyId, Vec<u8>, Vec<u8>);

/// What was written.
#[derive(Clone, Debug, Default)]
struct Model {
    /// For each key a value, or none for a delete.
    keys: BTreeMap<Key, Option<Vec<u8>>>,
    /// Every range delete, as it was called.
    spans: Vec<Deleted>,
}

fn holds((of, start, end): &Deleted, family: FamilyId, key: &[u8]) -> bool {
    *of == family && &start[..] <= key && (end.is_empty() || key < &end[..])
}

impl Model {
    fn delete_range(&mut self, span: Deleted) {
        self.keys.retain(|(family, key), _| !holds(&span, *family, key));
        self.spans.push(span);
    }

    fn is_deleted(&self, family: FamilyId, key: &[u8]) -> bool {
        self.spans.iter().any(|span| holds(span, family, key))
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.spans.is_empty()
    }

    /// The range deletes, sorted, those that overlap or touch as one.
    fn joined(&self) -> Vec<Deleted> {
        let mut sorted = self.spans.clone();
        sorted.sort();
        let mut joined: Vec<Deleted> = Vec::new();
        for (family, start, end) in sorted {
            match joined.last_mut() {
                Some((of, _, last)) if *of == family && (last.is_empty() || start <= *last) => {
                    if end.is_empty() || !last.is_empty() && end > *last {
                        *last = end;
                    }
                }
                _ => joined.push((family, start, end)),
            }
        }
        joined
    }

    /// All operations: by family, its range deletes before its keys.
    fn listed(&self) -> Vec<(FamilyId, OpKind, Vec<u8>, Vec<u8>)> {
        let kind = |value: &Option<_>| if value.is_some() { OpKind::Put } else { OpKind::Delete };
        let spans = self.joined().into_iter();
        let mut all: Vec<_> =
            spans.map(|(family, start, end)| (family, OpKind::DeleteRange, start, end)).collect();
        all.extend(self.keys.iter().map(|((family, key), value)| {
            (*family, kind(value), key.clone(), value.clone().unwrap_or_default())
        }));
        all.sort_by_key(|(family, kind, ..)| (*family, !kind.is_span()));
        all
    }
}

const ROOMY: u64 = 1 << 30;

#[derive(Clone, Debug)]
enum Step {
    /// The value is so many bytes of this number.
    Put(FamilyId, Vec<u8>, u8, usize),
    Delete(FamilyId, Vec<u8>),
    /// A range from the lesser of the two keys to the greater one, or without an end if the flag
    /// says so.
    DeleteRange(FamilyId, Vec<u8>, Vec<u8>, bool),
    Savepoint(u8),
    RollbackTo(u8),
    Release(u8),
    /// Opens a cursor, in place of an earlier one, and keeps what it has to show.
    Open(FamilyId),
    /// Keeps a value as a reader does.
    Pin(FamilyId, Vec<u8>),
    Clear,
}

impl Footprint {
    fn track_range(&mut self, family: FamilyId, interval: Interval) {
        let mut passed = Intervals::default();
        passed.add(interval);
        self.watch(family, Interval::default())
            .narrow(Passed::Intervals(passed), Allowance::endless());
        self.settle_reads();
    }

    fn put(&mut self, family: FamilyId, key: &[u8], value: &[u8]) -> Result<(), NoRoom> {
        self.write(Operation { family, kind: OpKind::Put, key, value })
    }

    fn delete(&mut self, family: FamilyId, key: &[u8]) -> Result<(), NoRoom> {
        self.write(Operation { family, kind: OpKind::Delete, key, value: &[] })
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(0u8..3, 0..4),
        1 => "shared prefix [ab]{0,3}".prop_map(String::into_bytes),
    ]
}

fn value_len() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0usize..40, 1 => 500usize..900, 1 => 16_000usize..17_000]
}

fn step() -> impl Strategy<Value = Step> {
    let family = prop_oneof![Just(0u32), Just(1), Just(7), Just(u32::MAX)];
    prop_oneof![
        12 => (family.clone(), key(), any::<u8>(), value_len())
            .prop_map(|(f, k, byte, len)| Step::Put(f, k, byte, len)),
        4 => (family.clone(), key()).prop_map(|(f, k)| Step::Delete(f, k)),
        6 => (family.clone(), key(), key(), proptest::bool::weighted(0.1))
            .prop_map(|(f, a, b, is_open)| Step::DeleteRange(f, a, b, is_open)),
        2 => (0u8..3).prop_map(Step::Savepoint),
        2 => (0u8..3).prop_map(Step::RollbackTo),
        1 => (0u8..3).prop_map(Step::Release),
        2 => family.clone().prop_map(Step::Open),
        2 => (family, key()).prop_map(|(f, k)| Step::Pin(f, k)),
        1 => Just(Step::Clear),
    ]
}

fn of_family(model: &Model, family: FamilyId) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let all = model.keys.iter().filter(|((of, _), _)| *of == family);
    all.map(|((_, key), value)| (key.clone(), value.clone())).collect()
}

fn shown(cursor: &WriteSetCursor) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let entry = cursor.entry()?;
    assert_eq!((entry.seq, Some(entry.key)), (99, cursor.key()));
    if let Some((chunk, at)) = cursor.value_in_chunk() {
        assert_eq!(&chunk[at..at + entry.value.len()], entry.value);
    }
    Some((entry.key.to_vec(), entry.kind.has_value().then(|| entry.value.to_vec())))
}

/// Every movement of the cursor, against the list of what it has to show.
fn check_cursor(cursor: &mut WriteSetCursor, expected: &[(Vec<u8>, Option<Vec<u8>>)]) {
    cursor.seek_first().unwrap();
    for item in expected {
        assert_eq!(shown(cursor).as_ref(), Some(item));
        cursor.next().unwrap();
    }
    assert_eq!(shown(cursor), None);
    cursor.next().unwrap();
    cursor.seek_last().unwrap();
    for item in expected.iter().rev() {
        assert_eq!(shown(cursor).as_ref(), Some(item));
        cursor.prev_key().unwrap();
    }
    assert_eq!(shown(cursor), None);
    let strangers = [&b""[..], b"\0\0\x01", b"\x01\x03", b"shared prefix b", b"\xff"];
    for key in expected.iter().map(|(key, _)| &key[..]).chain(strangers) {
        cursor.seek(key).unwrap();
        assert_eq!(shown(cursor).as_ref(), expected.iter().find(|(other, _)| &other[..] >= key));
        cursor.seek_for_prev(key).unwrap();
        let before = expected.iter().rev().find(|(other, _)| &other[..] <= key);
        assert_eq!(shown(cursor).as_ref(), before);
    }
}

/// Keys and their values; `None` for a key that was deleted.
type Shown = Vec<(Vec<u8>, Option<Vec<u8>>)>;

struct Run {
    footprint: Footprint,
    model: Model,
    savepoints: Vec<(String, Model)>,
    open: Option<(WriteSetCursor, Shown)>,
    /// A write set as an iterator keeps it, with what it has to cover.
    kept: Option<(WriteSet, Model)>,
    pinned: Vec<(Arc<[u8]>, usize, Vec<u8>)>,
}

impl Run {
    fn new() -> Run {
        let (model, savepoints, pinned) = (Model::default(), Vec::new(), Vec::new());
        let footprint = Footprint::new(ROOMY);
        Run { footprint, model, savepoints, open: None, kept: None, pinned }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(family, key, byte, len) => {
                let value = vec![byte; len];
                self.footprint.put(family, &key, &value).unwrap();
                self.model.keys.insert((family, key), Some(value));
            }
            Step::Delete(family, key) => {
                self.footprint.delete(family, &key).unwrap();
                self.model.keys.insert((family, key), None);
            }
            Step::DeleteRange(family, one, other, is_open) => {
                let (start, end) = (one.clone().min(other.clone()), one.max(other));
                let end = if is_open { Vec::new() } else { end };
                if is_open || start < end {
                    self.footprint.delete_range(family, (&start, &end)).unwrap();
                    self.model.delete_range((family, start, end));
                }
            }
            Step::Savepoint(name) => {
                self.footprint.savepoint(&name.to_string());
                self.savepoints.push((name.to_string(), self.model.clone()));
            }
            Step::RollbackTo(name) => {
                let at = self.savepoints.iter().rposition(|(other, _)| *other == name.to_string());
                assert_eq!(self.footprint.rollback_to(&name.to_string()), at.is_some());
                if let Some(at) = at {
                    self.savepoints.truncate(at + 1);
                    self.model = self.savepoints[at].1.clone();
                }
            }
            Step::Release(name) => {
                let at = self.savepoints.iter().rposition(|(other, _)| *other == name.to_string());
                assert_eq!(self.footprint.release(&name.to_string()), at.is_some());
                self.savepoints.truncate(at.unwrap_or(self.savepoints.len()));
            }
            Step::Open(family) => {
                let set = self.footprint.write_set();
                assert_eq!(set.is_some(), !self.model.is_empty());
                let cursor = set.as_ref().map(|set| set.cursor(family, 100));
                self.open = cursor.map(|cursor| (cursor, of_family(&self.model, family)));
                self.kept = set.map(|set| (set, self.model.clone()));
            }
            Step::Pin(family, key) => {
                let Some(written) = self.footprint.get(family, &key) else { return };
                let Some((chunk, at)) = written.chunk else { return };
                self.pinned.push((chunk.clone(), at, written.value.to_vec()));
            }
            Step::Clear => {
                self.footprint.clear();
                self.model = Model::default();
                self.savepoints.clear();
            }
        }
    }

    fn check(&mut self) {
        self.footprint.writes.check();
        let owned = |o: Operation<'_>| (o.family, o.kind, o.key.to_vec(), o.value.to_vec());
        let writes: Vec<_> = self.footprint.writes().map(owned).collect();
        assert!(writes == self.model.listed());
        assert_eq!(self.footprint.len(), writes.len());
        let joined = self.model.joined();
        assert_eq!(self.footprint.has_deleted_ranges(), !joined.is_empty());
        let ranges = joined.iter().map(|(of, start, end)| (*of, Interval::of_span(start, end)));
        assert!(self.footprint.deleted_ranges().eq(ranges));
        for ((family, key), value) in &self.model.keys {
            let written = self.footprint.get(*family, key).expect("it was written");
            assert_eq!(written.kind.has_value().then_some(written.value), value.as_deref());
            let stranger = [&key[..], b"no"].concat();
            let is_deleted = self.model.is_deleted(*family, &stranger);
            assert_eq!(self.footprint.get(*family, &stranger).is_some(), is_deleted);
        }
        for (family, key) in [0, 1, 7, u32::MAX].into_iter().flat_map(every_key_of) {
            self.check_key(family, &key);
        }
        if let Some((cursor, expected)) = &mut self.open {
            check_cursor(cursor, expected);
        }
        for (chunk, at, value) in &self.pinned {
            assert_eq!(&chunk[*at..*at + value.len()], &value[..]);
        }
    }

    /// What is known of one key, also of one that only a range delete has.
    fn check_key(&self, family: FamilyId, key: &[u8]) {
        let is_deleted = self.model.is_deleted(family, key);
        let own = self.model.keys.get(&(family, key.to_vec()));
        let written = self.footprint.get(family, key);
        assert_eq!(written.is_some(), own.is_some() || is_deleted);
        let value = written.and_then(|own| own.kind.has_value().then_some(own.value));
        assert_eq!(value, own.and_then(|own| own.as_deref()));
        let range = self.footprint.deleted_range_at(family, key);
        assert_eq!(range.is_some(), is_deleted);
        assert!(range.is_none_or(|range| range.contains(key)));
        let is_written = self.footprint.writes_into(family, &Interval::of_key(key));
        assert_eq!(is_written, own.is_some() || is_deleted);
        if let Some((set, model)) = &self.kept {
            let cover = set.cover(family, key, 100);
            assert_eq!(cover.is_some(), model.is_deleted(family, key));
            assert!(cover.is_none_or(|cover| cover.holds(key) && cover.seq == 98));
        }
    }
}

fn every_key_of(family: FamilyId) -> impl Iterator<Item = Key> {
    all_keys().into_iter().map(move |key| (family, key))
}

proptest! {
    #[test]
    fn a_write_set_agrees_with_a_map_and_its_iterators_with_the_map_as_it_was(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
            run.check();
        }
    }

    #[test]
    fn a_set_of_intervals_covers_what_was_added_and_joins_what_touches(
        added in proptest::collection::vec((bound(), bound()), 0..12),
        charge_max in 0u64..2000,
    ) {
        let mut set = Intervals::default();
        let intervals: Vec<Interval> =
            added.iter().map(|(lower, upper)| Interval::within(lower, upper)).collect();
        intervals.iter().for_each(|interval| set.add(interval.clone()));
        for key in all_keys() {
            let covered = intervals.iter().any(|interval| interval.contains(&key));
            prop_assert_eq!(set.covers(&key), covered, "{:?}", key);
            let listed = set.iter().any(|interval| interval.contains(&key));
            prop_assert_eq!(listed, covered, "{:?}", key);
        }
        let listed: Vec<Interval> = set.iter().collect();
        for pair in listed.windows(2) {
            prop_assert!(pair[0].end.as_ref().is_some_and(|end| *end < pair[1].start), "{:?}", pair);
        }
        let again = listed.iter().fold(Intervals::default(), |mut set, interval| {
            set.add(interval.clone());
            set
        });
        prop_assert_eq!(&again, &set);
        let mut coarse = set.clone();
        coarse.coarsen(charge_max);
        prop_assert!(coarse.charge() <= charge_max || coarse.iter().count() <= 1);
        prop_assert!(all_keys().iter().all(|key| coarse.covers(key) || !set.covers(key)));
        if set.charge() <= charge_max {
            prop_assert_eq!(coarse, set);
        }
    }

    #[test]
    fn an_interval_holds_the_keys_that_its_bounds_hold(lower in bound(), upper in bound()) {
        use std::ops::RangeBounds;
        let interval = Interval::within(&lower, &upper);
        for key in all_keys() {
            let holds = (lower.clone(), upper.clone()).contains(&key);
            prop_assert_eq!(interval.contains(&key), holds, "{:?}", key);
            prop_assert!(!holds || !interval.is_empty());
            let bounds = interval.bounds();
            prop_assert_eq!(bounds.contains(&&key[..]), holds, "{:?}", key);
        }
    }
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    let key = || proptest::collection::vec(0u8..3, 0..3);
    prop_oneof![
        3 => key().prop_map(Bound::Included),
        3 => key().prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

fn all_keys() -> Vec<Vec<u8>> {
    let longer = |keys: &Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        let letters =
            |key: &Vec<u8>| (0..3).map(move |letter| [&key[..], &[letter]].concat()).collect();
        keys.iter().flat_map(|key| -> Vec<Vec<u8>> { letters(key) }).collect()
    };
    let mut all = vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..3 {
        last = longer(&last);
        all.extend_from_slice(&last);
    }
    all
}

fn number(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

#[test]
fn many_keys_fill_many_leaves_in_any_order_and_all_come_back() {
    const COUNT: u32 = LEAF_MAX as u32 * 9;
    let orders: [fn(u32) -> u32; 3] = [|n| n, |n| COUNT - 1 - n, |n| n * 1001 % COUNT];
    for order in orders {
        let mut footprint = Footprint::new(ROOMY);
        for n in 0..COUNT {
            footprint.put(3, &number(order(n)), &number(n)).unwrap();
        }
        footprint.writes.check();
        assert_eq!(footprint.len(), COUNT as usize);
        let keys: Vec<_> = footprint.writes().map(|operation| operation.key.to_vec()).collect();
        assert_eq!(keys, (0..COUNT).map(|n| number(n).to_vec()).collect::<Vec<_>>());
        footprint.savepoint("all");
        for n in 0..COUNT {
            footprint.delete(3, &number(order(n) * 2)).unwrap();
        }
        assert!(footprint.rollback_to("all"));
        footprint.writes.check();
        assert!(footprint.writes().all(|operation| operation.kind.has_value()));
        assert_eq!(footprint.len(), COUNT as usize);
    }
}

#[test]
fn a_counter_and_a_savepoint_that_is_rolled_back_to_do_not_grow_the_set() {
    let mut footprint = Footprint::new(ROOMY);
    footprint.put(0, b"counter", &number(0)).unwrap();
    let charge = footprint.charge();
    (0..10_000).for_each(|n| footprint.put(0, b"counter", &number(n)).unwrap());
    assert_eq!(footprint.charge(), charge);
    footprint.savepoint("s");
    for n in 0..1000 {
        footprint.put(0, &number(n), &[1; 100]).unwrap();
        footprint.put(0, b"counter", &number(n)).unwrap();
        assert!(footprint.rollback_to("s"));
    }
    assert_eq!((footprint.charge(), footprint.len()), (charge, 1));
    assert!(footprint.release("s") && !footprint.release("s") && !footprint.rollback_to("s"));
}

#[test]
fn what_is_too_large_is_refused_and_changes_nothing() {
    let mut footprint = Footprint::new(100_000);
    let mut written = 0;
    while footprint.put(0, &number(written), &[5; 100]).is_ok() {
        written += 1;
        assert!(footprint.charge() <= 100_000 + 16_000, "a chunk's slack is all that comes on top");
    }
    assert!((400..700).contains(&written), "{written}");
    assert_eq!(footprint.len(), written as usize);
    let refused = footprint.put(0, b"large", &[1; 200_000]).unwrap_err();
    let NoRoom::TooLarge { needed, limit } = refused else { panic!("{refused:?}") };
    assert_eq!(limit, 100_000);
    assert!(needed > 200_000 && footprint.get(0, b"large").is_none());
    footprint.clear();
    footprint.put(0, b"again", &[1; 5000]).unwrap();
    assert_eq!(footprint.len(), 1);
}

#[test]
fn a_key_is_tracked_once_however_often_it_is_read() {
    for count in [1u32, 8, 9, 20, 5000] {
        let mut footprint = Footprint::new(ROOMY);
        for round in 0..3 {
            for n in 0..count {
                footprint.track_read(ReadKey::new(n % 2, &number(n / 2)));
                assert!(round == 0 || footprint.read_keys().len() == count as usize);
            }
        }
        let mut keys: Vec<_> =
            footprint.read_keys().iter().map(|read| (read.family, read.key.to_vec())).collect();
        keys.sort_unstable();
        let mut expected: Vec<_> = (0..count).map(|n| (n % 2, number(n / 2).to_vec())).collect();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert!(
            footprint
                .read_keys()
                .iter()
                .all(|read| read.hash == crate::format::checksum64(read.key))
        );
    }
}

fn is_read(footprint: &Footprint, family: FamilyId, key: &[u8]) -> bool {
    footprint.read_keys().iter().any(|read| (read.family, read.key) == (family, key))
        || footprint.read_ranges().any(|(of, interval)| of == family && interval.contains(key))
}

#[test]
fn reads_beyond_the_limit_become_coarser_and_none_is_forgotten() {
    let mut footprint = Footprint::new(40_000);
    footprint.put(9, b"own", &[1; 10_000]).unwrap();
    let all: Vec<_> = (0..4000u32).map(|n| (n % 3, number(n * 7919 % 4000))).collect();
    for (family, key) in &all {
        footprint.track_read(ReadKey::new(*family, key));
        if key[3] == 0 {
            footprint.track_range(*family, Interval::of_key(&[&key[..], b"x"].concat()));
        }
        assert!(footprint.charge() <= 40_000);
    }
    assert!(all.iter().all(|(family, key)| is_read(&footprint, *family, key)));
    assert!(
        all.iter()
            .filter(|(_, key)| key[3] == 0)
            .all(|(family, key)| { is_read(&footprint, *family, &[&key[..], b"x"].concat()) })
    );
    assert!(!is_read(&footprint, 4, &number(5)) && !is_read(&footprint, 0, b"\xff"));
    // A write takes the room of reads, which become coarser still.
    footprint.put(9, b"more", &[1; 25_000]).unwrap();
    assert!(footprint.charge() <= 40_000);
    assert!(all.iter().all(|(family, key)| is_read(&footprint, *family, key)));
}

#[test]
fn a_scan_has_read_its_bounds_until_it_says_what_it_passed() {
    let within = |lower: &[u8], upper: &[u8]| {
        Interval::within(&Bound::Included(lower.to_vec()), &Bound::Excluded(upper.to_vec()))
    };
    let mut footprint = Footprint::new(ROOMY);
    let scan = footprint.watch(1, within(b"a", b"m"));
    let leaked = footprint.watch(2, within(b"k", b"z"));
    assert!(is_read(&footprint, 1, b"a") && !is_read(&footprint, 1, b"m"));
    let mut passed = Intervals::default();
    passed.add(within(b"a", b"c"));
    scan.narrow(Passed::Intervals(passed), Allowance::endless());
    footprint.settle_reads();
    assert!(is_read(&footprint, 1, b"b") && !is_read(&footprint, 1, b"c"));
    assert!(is_read(&footprint, 2, b"y"));
    drop(leaked);
    footprint.settle_reads();
    assert!(is_read(&footprint, 2, b"y"), "it never said what it passed");
    let mut keys = Keys::default();
    keys.add(ReadKey::new(3, b"item"));
    footprint.watch(3, within(b"a", b"z")).narrow(Passed::Keys(keys), Allowance::endless());
    footprint.settle_reads();
    assert!(is_read(&footprint, 3, b"item") && !is_read(&footprint, 3, b"items"));
    footprint.clear();
    assert_eq!(footprint.read_ranges().count() + footprint.read_keys().len(), 0);
}

#[test]
fn many_scans_that_ended_take_the_memory_of_what_they_passed() {
    let mut footprint = Footprint::new(ROOMY);
    for n in 0..10_000u32 {
        let mut passed = Intervals::default();
        passed.add(Interval::within(
            &Bound::Included(number(n).to_vec()),
            &Bound::Excluded(number(n + 1).to_vec()),
        ));
        footprint
            .watch(1, Interval::default())
            .narrow(Passed::Intervals(passed), Allowance::endless());
    }
    assert!(footprint.charge() < 2000, "{}", footprint.charge());
    footprint.settle_reads();
    assert_eq!(footprint.read_ranges().count(), 1);
}
