//! Logs of every kind, replayed whole and in pieces, and compared with a plain fold of their
//! records.

use super::*;
use crate::cursor::Cursor;
use crate::env::Env;
use crate::env::sync::Mutex;
use crate::error::ErrorKind;
use crate::format::{BATCH_PREFIX_LEN, FIRST_LSN, OpKind, put_payload};
use crate::table::cache::{BlockCache, FileCache};
use crate::table::{Table, TableContext, origin_of};
use crate::version::DEFAULT_FAMILY_NAME;
use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};
use crate::wal::{HEADER_PAGE_LEN, Log, LogOptions, RECORD_HEADER_LEN};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io;

const DB: &str = "/db";
const CEILING: Lsn = 1 << 30;

/// A record to be replayed.
#[derive(Clone, Debug)]
enum Say {
    /// A put if there is a value, otherwise a delete.
    Batch(Vec<(FamilyId, &'static str, Option<u64>)>),
    Create(FamilyId, String),
    Drop(FamilyId),
    Rename(FamilyId, String),
    Marker,
    /// A batch of one operation of a kind that this version does not know.
    Newer,
}

impl Say {
    fn record(&self) -> Vec<u8> {
        let mut record = vec![0; RECORD_HEADER_LEN];
        let texts: Vec<_> = match self {
            Say::Batch(ops) => ops.iter().map(|op| op.2.map(|v| format!("value {v}"))).collect(),
            _ => Vec::new(),
        };
        let payload = match self {
            Say::Batch(ops) => {
                let ops = ops.iter().zip(&texts);
                Payload::Batch(ops.map(|(op, value)| op_of(op.0, op.1, value)).collect())
            }
            Say::Create(id, name) => Payload::FamilyCreate { id: *id, name, options: b"{}" },
            Say::Drop(id) => Payload::FamilyDrop { id: *id },
            Say::Rename(id, name) => Payload::FamilyRename { id: *id, name },
            Say::Marker => Payload::EpochMarker,
            Say::Newer => Payload::Batch(vec![op_of(0, "key", &None)]),
        };
        put_payload(&mut record, &payload);
        if let Say::Newer = self {
            record[RECORD_HEADER_LEN + BATCH_PREFIX_LEN] = 15;
        }
        record
    }

    /// Updates the set of existing families.
    fn settle(&self, live: &mut BTreeSet<FamilyId>) {
        match self {
            Say::Create(id, _) => drop(live.insert(*id)),
            Say::Drop(id) => drop(live.remove(id)),
            _ => {}
        }
    }

    /// The manifest's change for this record, if any.
    fn change(&self, lsn: Lsn) -> Option<Change> {
        match self.clone() {
            Say::Batch(_) | Say::Marker | Say::Newer => None,
            Say::Create(family, name) => {
                Some(Change::CreateFamily { family, name, options: b"{}".to_vec(), lsn })
            }
            Say::Drop(family) => Some(Change::DropFamily { family, lsn }),
            Say::Rename(family, name) => Some(Change::RenameFamily { family, name, lsn }),
        }
    }
}

fn op_of<'a>(family: FamilyId, key: &'a str, value: &'a Option<String>) -> Op<'a> {
    let kind = if value.is_some() { OpKind::Put } else { OpKind::Delete };
    let value = value.as_deref().unwrap_or_default();
    Op { kind, family, key: key.as_bytes(), value: value.as_bytes() }
}

fn batch(family: FamilyId, key: &'static str, value: u64) -> Say {
    Say::Batch(vec![(family, key, Some(value))])
}

/// What a dead process left: a manifest and a log.
struct Left {
    fs: MemoryFs,
    versions: VersionSet,
    /// Where each record begins, and the log's end.
    lsns: Vec<Lsn>,
    told: Arc<Mutex<Vec<Event>>>,
    options: Options,
}

impl Left {
    fn by(log: &[Say]) -> Left {
        Left::below(log, CEILING)
    }

    /// The same, of a manifest that does not know of more LSNs than these.
    fn below(log: &[Say], ceiling: Lsn) -> Left {
        let fs = MemoryFs::new();
        let shared: Arc<dyn FileSystem> = Arc::new(fs.clone());
        let mut versions =
            VersionSet::create(shared.clone(), Path::new(DB), [7; 16], b"{}").unwrap();
        let ceiling = Edit::new(vec![Change::LsnCeiling { lsn: ceiling }]);
        versions.install(ceiling, &[]).unwrap();
        let env = Env { fs: shared, ..Env::system() };
        let lsns = write_log(&env, log);
        let told = Arc::new(Mutex::unranked(Vec::new()));
        let heard = told.clone();
        let listener = move |event: &Event| heard.lock().push(event.clone());
        let options = Options::new().env(env).on_event(listener);
        Left { fs, versions, lsns, told, options }
    }

    fn replay(&mut self) -> Result<(Replayed, Rest)> {
        let pool = Arc::new(ChunkPool::new(4096, 0, 0));
        let (ceiling, _lease) = Ceiling::of(&self.options)?;
        replay(&self.options, Path::new(DB), &mut self.versions, (&pool, &ceiling))
    }

    fn set_budget(&mut self, bytes: u64) {
        self.options = self.options.clone().write_buffer(bytes);
    }

    /// Replays, and installs the rest.
    fn recover(&mut self) -> Replayed {
        let (replayed, rest) = self.replay().unwrap();
        let outputs: Vec<_> = rest.built.iter().map(|built| built.file.clone()).collect();
        self.versions.install(Edit::new(rest.changes), &outputs).unwrap();
        replayed
    }

    fn install(&mut self, changes: Vec<Change>) {
        self.versions.install(Edit::new(changes), &[]).unwrap();
    }

    fn context(&self) -> TableContext {
        let dir = Path::new(DB).join("table");
        let files = FileCache::new(Arc::new(self.fs.clone()), dir, FileAccess::Positional, 4);
        TableContext::new(Arc::new(files), BlockCache::new(0))
    }

    /// The families' names and creation LSNs, with the newest version of each key.
    fn found(&self) -> Families {
        let state = self.versions.state();
        let of = |id| {
            let mut newest: BTreeMap<Vec<u8>, Newest> = BTreeMap::new();
            for (_, slice) in state.family(id).unwrap().tree.iter() {
                let mut cursor = Table::open(self.context(), &slice.meta).unwrap().cursor(false);
                cursor.seek_first().unwrap();
                while let Some(entry) = cursor.entry() {
                    let version = (entry.seq, entry.kind, entry.value.to_vec());
                    let best = newest.entry(entry.key.to_vec()).or_insert(version.clone());
                    if version.0 > best.0 {
                        *best = version;
                    }
                    cursor.next().unwrap();
                }
            }
            newest
        };
        let families = state.families();
        families
            .map(|(id, family)| (id, (family.name.to_string(), family.created, of(id))))
            .collect()
    }

    fn flip(&self, record: usize) {
        let segments = wal::inventory(&self.fs, &Path::new(DB).join(LOG_DIR)).unwrap();
        let payload = self.lsns[record] + RECORD_HEADER_LEN as u64;
        let segment = segments.iter().find(|info| info.holds(payload)).unwrap();
        let offset = HEADER_PAGE_LEN + payload - segment.base;
        self.fs.corrupt(&segment.path, offset, 1).unwrap();
    }
}

type Newest = (Lsn, OpKind, Vec<u8>);
type Families = BTreeMap<FamilyId, (String, Lsn, BTreeMap<Vec<u8>, Newest>)>;

fn write_log(env: &Env, says: &[Say]) -> Vec<Lsn> {
    let options = LogOptions {
        dir: Path::new(DB).join(LOG_DIR),
        uuid: [7; 16],
        segment_len: FIRST_LSN,
        first_segment_len: FIRST_LSN,
        mode: FileAccess::Positional,
        spare_segments: 2,
        sync_interval: None,
        raise_ceiling: Box::new(|_| Ok(CEILING)),
        admit_segment: Box::new(|_| Ok(())),
    };
    let log = Log::start(env, options, FIRST_LSN, CEILING, 1).unwrap();
    let mut lsns = Vec::new();
    for say in says {
        let mut record = say.record();
        let mut record = wal::seal(&mut record);
        let mut reservation = log.reserve(record.len() as u64).unwrap();
        lsns.push(reservation.start());
        reservation.write(&mut record);
        reservation.publish();
    }
    lsns.push(log.tail());
    lsns
}

/// The state that a log leads to, and where its replay begins if memory is flushed at `budget` and
/// the manifest already has the changes of families in the first `known` records.
fn folded(log: &[Say], lsns: &[Lsn], known: usize, budget: u64) -> (Families, Lsn) {
    let default = (DEFAULT_FAMILY_NAME.to_owned(), 0, BTreeMap::new());
    let mut families: Families = BTreeMap::from([(0, default)]);
    let fresh = || Arc::new(Arena::new(Arc::new(ChunkPool::new(4096, 0, 0))));
    let (mut arena, mut memory) = (fresh(), BTreeMap::new());
    let mut replay_from = FIRST_LSN;
    let mut live = BTreeSet::from([0]);
    log.iter().take(known).for_each(|say| say.settle(&mut live));
    for (at, (say, lsn)) in log.iter().zip(lsns).enumerate() {
        if at >= known {
            say.settle(&mut live);
        }
        if arena.allocated_bytes() as u64 >= budget {
            (arena, memory, replay_from) = (fresh(), BTreeMap::new(), *lsn);
        }
        match say {
            Say::Marker | Say::Newer => {}
            Say::Create(id, name) => {
                drop(families.insert(*id, (name.clone(), *lsn, BTreeMap::new())));
            }
            Say::Drop(id) => drop(families.remove(id)),
            Say::Rename(id, name) => families.get_mut(id).unwrap().0 = name.clone(),
            Say::Batch(ops) => {
                for (ordinal, (id, key, value)) in ops.iter().enumerate() {
                    let Some(family) = families.get_mut(id) else { continue };
                    let text = value.map(|value| format!("value {value}"));
                    let op = op_of(*id, key, &text);
                    let seq = lsn + ordinal as u64;
                    family.2.insert(op.key.to_vec(), (seq, op.kind, op.value.to_vec()));
                    if !live.contains(id) {
                        continue;
                    }
                    let memtable =
                        memory.entry(*id).or_insert_with(|| Memtable::new(arena.clone()));
                    memtable.insert(op.key, seq, op.kind, op.value);
                }
            }
        }
    }
    (families, replay_from)
}

/// Turns any drawn values into records that a database could have written.
fn sensible(drawn: Vec<(u8, u8, Option<u64>)>) -> Vec<Say> {
    const KEYS: [&str; 4] = ["a", "b", "kettle", "zebra"];
    let (mut live, mut dropped, mut next) = (vec![0], Vec::new(), 1);
    let mut log = Vec::new();
    for (at, (kind, pick, value)) in drawn.into_iter().enumerate() {
        let one = |of: &[FamilyId]| of[pick as usize % of.len()];
        let key = KEYS[pick as usize % 4];
        log.push(match kind {
            0 => {
                next += 1 + FamilyId::from(pick % 3);
                live.push(next - 1);
                Say::Create(next - 1, format!("family {at}"))
            }
            1 if live.len() > 1 => {
                let family = live.remove(1 + pick as usize % (live.len() - 1));
                dropped.push(family);
                Say::Drop(family)
            }
            2 if live.len() > 1 => Say::Rename(one(&live[1..]), format!("family {at}")),
            3 => Say::Marker,
            // A commit that a writer began before its family was dropped.
            4 if !dropped.is_empty() => Say::Batch(vec![(one(&dropped), key, value)]),
            5 => Say::Batch(live.iter().map(|family| (*family, key, value)).collect()),
            _ => Say::Batch(vec![(one(&live), key, value), (0, KEYS[at % 4], Some(at as u64))]),
        });
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_log_leads_to_what_its_records_say_in_one_piece_or_many(
        drawn in prop::collection::vec((0u8..8, any::<u8>(), prop::option::of(0u64..1000)), 1..60),
        known in 0usize..60,
        budget in prop_oneof![Just(1u64), 500u64..6000, Just(64 << 10)],
    ) {
        let log = sensible(drawn);
        let mut left = Left::by(&log);
        left.set_budget(budget);
        // The manifest has the first changes of families already.
        let changes = log.iter().zip(&left.lsns).take(known);
        let changes: Vec<_> = changes.filter_map(|(say, lsn)| say.change(*lsn)).collect();
        changes.into_iter().for_each(|change| left.install(vec![change]));
        let replayed = left.recover();
        let (expected, replay_from) = folded(&log, &left.lsns, known, budget);
        prop_assert_eq!(left.found(), expected);
        let end = *left.lsns.last().unwrap();
        prop_assert_eq!((replayed.end, replayed.records), (end, log.len() as u64));
        prop_assert_eq!(replayed.bytes, end - FIRST_LSN);
        prop_assert_eq!(left.versions.state().replay_from(), replay_from);
    }
}

#[test]
fn memory_is_flushed_from_the_very_budget_on() {
    let log = [batch(0, "a", 1), batch(0, "b", 2), batch(0, "c", 3)];
    let mut left = Left::by(&log);
    let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(4096, 0, 0))));
    Memtable::new(arena.clone()).insert(b"a", FIRST_LSN, OpKind::Put, b"value 1");
    let taken = arena.allocated_bytes() as u64;
    left.set_budget(taken);
    left.replay().unwrap();
    assert_eq!(left.versions.state().replay_from(), left.lsns[2]);
    let mut left = Left::by(&log[..2]);
    left.set_budget(taken + 1);
    left.replay().unwrap();
    assert_eq!(left.versions.state().replay_from(), FIRST_LSN);
}

#[test]
fn what_a_replay_below_a_ceiling_writes_has_an_index_of_two_levels() {
    let key = |n: u64| -> &'static str { format!("a key that is not short {n:06}").leak() };
    let log: Vec<_> = (0..6000).map(|n| batch(0, key(n), n)).collect();
    for memory in [None, Some(24 << 20)] {
        let mut left = Left::by(&log);
        left.options = Options { memory, ..left.options.clone() };
        left.recover();
        let state = left.versions.state();
        let mut slices = state.family(0).unwrap().tree.iter();
        let (_, slice) = slices.next().unwrap();
        let table = Table::open(left.context(), &slice.meta).unwrap();
        assert_eq!(table.has_leaves(), memory.is_some());
    }
}

/// The manifest's last edit may have been lost, though the log went beyond what it allowed.
#[test]
fn a_piece_above_the_ceiling_raises_it() {
    let mut left = Left::below(&[batch(0, "a", 1), batch(0, "b", 2)], FIRST_LSN);
    left.set_budget(1);
    left.replay().unwrap();
    let state = left.versions.state();
    assert!(FIRST_LSN < state.replay_from() && state.replay_from() <= state.ceiling());
}

/// The log is read a second time behind the first piece, for the streams that it names.
#[test]
fn a_replay_that_cannot_read_its_log_at_any_moment_fails() {
    let mut failed = 0;
    for nth in 1.. {
        let mut left = Left::by(&[batch(0, "a", 1), batch(0, "b", 2)]);
        left.set_budget(1);
        left.fs.inject(Fault::on(FileOp::Read).suffix(".wal").nth(nth));
        let replayed = left.replay().map(drop);
        if left.fs.struck() == 0 {
            break;
        }
        assert!(replayed.is_err(), "read {nth}");
        failed += 1;
    }
    assert!(failed > 1, "{failed} reads");
}

#[test]
fn a_piece_that_cannot_be_installed_ends_the_replay() {
    let mut left = Left::by(&[batch(0, "a", 1), batch(0, "b", 2)]);
    left.set_budget(1);
    left.versions.renew().unwrap();
    let manifest = left.versions.manifest().path();
    let name = manifest.file_name().unwrap().to_str().unwrap();
    left.fs.inject(Fault::on(FileOp::Write).suffix(name).kind(io::ErrorKind::StorageFull));
    let refused = left.replay().map(drop).unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(left.versions.state().replay_from(), FIRST_LSN);
    left.recover();
    assert_eq!(left.found()[&0].2.len(), 2);
}

/// The error of replaying a log, if the manifest knows of families up to the id 4.
fn refusal(log: &[Say]) -> Option<String> {
    let mut left = Left::by(&[&[Say::Marker], log].concat());
    left.install(vec![Change::NextFamily { family: 5 }]);
    left.replay().map(drop).err().map(|error| {
        assert!(error.is_corruption() && error.to_string().contains(".wal"), "{error}");
        error.to_string()
    })
}

#[test]
fn an_operation_is_of_a_family_there_is_or_was() {
    let create = |id| Say::Create(id, format!("family {id}"));
    let never = "which was never created";
    assert_eq!(refusal(&[batch(4, "a", 1)]), None, "dropped since");
    assert!(refusal(&[batch(5, "a", 1)]).unwrap().contains(never));
    assert!(refusal(&[batch(0, "a", 1), batch(9, "a", 1)]).unwrap().contains(never));
    assert_eq!(refusal(&[create(9), create(20), batch(15, "a", 1), batch(19, "a", 1)]), None);
    assert!(refusal(&[create(9), create(20), batch(21, "a", 1)]).unwrap().contains(never));
    assert_eq!(refusal(&[create(9), Say::Drop(9), batch(9, "a", 1)]), None);
}

#[test]
fn a_family_gets_an_id_that_none_had() {
    let create = |id: FamilyId| Say::Create(id, format!("family {id}"));
    let spent = "an id that is spent";
    for id in [0, 3, 4, FamilyId::MAX] {
        assert!(refusal(&[create(id)]).unwrap().contains(spent), "{id}");
    }
    for id in [5, 6, FamilyId::MAX - 1] {
        assert_eq!(refusal(&[create(id), batch(id, "a", 1)]), None, "{id}");
    }
    assert!(refusal(&[create(7), create(6)]).unwrap().contains(spent));
    assert!(refusal(&[create(7), create(7)]).unwrap().contains(spent));
    assert_eq!(refusal(&[create(7), create(8)]), None);
}

#[test]
fn an_operation_of_an_unknown_kind_is_a_newer_format_and_nothing_is_given_up() {
    let mut left = Left::by(&[batch(0, "a", 1), Say::Newer, batch(0, "c", 3)]);
    match left.replay().map(drop).unwrap_err().kind() {
        ErrorKind::NewerFormat { path, .. } => assert_eq!(path.extension().unwrap(), "wal"),
        other => panic!("{other}"),
    }
    assert_eq!(left.versions.state().replay_from(), FIRST_LSN);
}

/// The default family exists before any record, so it must not pass for a change at the LSN of the
/// first one. Simulator seed 1795349309009544 lost the manifest's edit, and with it the family.
#[test]
fn the_first_record_of_a_database_may_create_a_family() {
    let mut left = Left::by(&[Say::Create(1, "first".to_owned()), batch(1, "a", 1)]);
    left.recover();
    let (name, created, values) = &left.found()[&1];
    assert_eq!((name.as_str(), *created, values.len()), ("first", FIRST_LSN, 1));
}

#[test]
fn changes_of_families_that_there_are_not_are_passed_over() {
    let log = [
        batch(0, "a", 1),
        Say::Drop(DEFAULT_FAMILY),
        Say::Drop(3),
        Say::Rename(3, "another".to_owned()),
        batch(0, "b", 2),
    ];
    let mut left = Left::by(&log);
    left.install(vec![Change::NextFamily { family: 5 }]);
    let (_, rest) = left.replay().unwrap();
    assert!(matches!(rest.changes[..], [Change::AddSlice { level: 0, .. }]), "{:?}", rest.changes);
    assert_eq!(rest.built.unwrap().table.slices[0].entries, 2);
}

#[test]
fn a_slice_is_labelled_with_the_last_name_of_its_family() {
    let rename = Say::Rename(1, "renamed".to_owned());
    let log = [Say::Marker, Say::Create(1, "named".to_owned()), batch(1, "a", 1), rename];
    let (mut left, mut unnamed) = (Left::by(&log), Left::by(&log[..3]));
    for (left, name) in [(&mut left, "renamed"), (&mut unnamed, "named")] {
        let (_, rest) = left.replay().unwrap();
        let meta = &rest.built.as_ref().unwrap().table.slices[0];
        assert_eq!(origin_of(&left.context(), meta).unwrap().label.unwrap().name, name);
    }
}

/// If the replay skipped such a family, its commits would be lost for good.
#[test]
fn a_family_whose_options_cannot_be_read_stops_the_replay() {
    for json in [&b"{\"block_size\": 0}"[..], b"no JSON"] {
        let mut left = Left::by(&[batch(0, "a", 1), batch(1, "a", 1)]);
        let (name, options) = ("family".to_owned(), json.to_vec());
        left.install(vec![Change::CreateFamily { family: 1, name, options, lsn: FIRST_LSN }]);
        let error = left.replay().map(drop).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NewerFormat { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{DB}/MANIFEST-")), "{error}");
        assert_eq!(left.fs.list(&Path::new(DB).join("table")).unwrap(), []);
    }
}

#[test]
fn a_clean_log_is_replayed_with_a_word_of_progress_and_of_no_loss() {
    let mut left = Left::by(&[batch(0, "a", 1), Say::Marker]);
    left.recover();
    let told = left.told.lock();
    assert!(matches!(
        told[..],
        [Event::RecoveryProgress { done_bytes, total_bytes }] if done_bytes == total_bytes && total_bytes > 0
    ));
}

#[test]
fn what_is_given_up_of_a_log_is_told() {
    let log: Vec<_> = (0..5).map(|i| batch(0, "a", i)).collect();
    // First the last record is torn; then one in the middle, with whole ones after it.
    for (flipped, given_up) in [(4, 4..5), (2, 3..5)] {
        let mut left = Left::by(&log);
        left.flip(flipped);
        let replayed = left.recover();
        let (stop, records) = (left.lsns[flipped], flipped as u64);
        assert_eq!((replayed.end, replayed.records), (stop, records));
        assert_eq!(replayed.bytes, stop - FIRST_LSN);
        let bytes = left.lsns[given_up.end] - left.lsns[given_up.start];
        let told = left.told.lock().last().cloned().unwrap();
        assert!(
            matches!(told, Event::LogTailDiscarded { end, discarded_bytes } if (end, discarded_bytes) == (stop, bytes)),
            "{told:?}"
        );
    }
}

#[test]
fn a_replay_folds_operands_of_families_from_the_manifest_and_from_the_log() {
    for is_in_log_alone in [false, true] {
        let mut fs = MemoryFs::new();
        let open = |fs: &MemoryFs| {
            let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
            Options::new().env(env).open(DB).unwrap()
        };
        let db = open(&fs);
        let manifest = fs.list(Path::new(DB)).unwrap();
        let manifest = manifest.iter().find(|entry| entry.name.starts_with("MANIFEST")).unwrap();
        let manifest = Path::new(DB).join(&manifest.name);
        let len = fs.open_read(&manifest, FileAccess::Positional).unwrap().len();
        let options = FamilyOptions::new().merge_operator("isobath.counter");
        let family = db.family(("counters", options)).unwrap();
        for _ in 0..10 {
            family.merge("hits", 1u64.to_le_bytes()).unwrap();
        }
        fs = fs.killed();
        drop((db, family));
        if is_in_log_alone {
            // Without the edit that made the family.
            fs.truncate(&manifest, len).unwrap();
        }
        let db = open(&fs);
        let metrics = db.metrics();
        let mut families = metrics.families.iter();
        let levels = &families.find(|family| family.name == "counters").unwrap().levels;
        let entries: u64 = levels.iter().map(|level| level.entries).sum();
        assert_eq!(entries, 1, "{is_in_log_alone}");
        let family = db.family_if_exists("counters").unwrap().unwrap();
        assert_eq!(family.get("hits").unwrap().unwrap(), 10u64.to_le_bytes());
    }
}
