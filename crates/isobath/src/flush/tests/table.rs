//! What a flush writes of its memtables into the table, and what a failed step leaves.

use super::*;
use crate::cursor::fixtures::{Version, sort_versions};
use crate::format::checksum64;
use crate::memtable::{Arena, ChunkPool};
use crate::table::cache::{BlockCache, FileCache};
use crate::table::{Table, TableContext};
use crate::version::ObsoleteFiles;
use crate::vfs::{Fault, FileAccess, FileOp, MemoryFs};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

const TABLES: &str = "/db/table";

/// A directory for tables that survives power loss, and file numbers that begin at 7.
pub(super) fn workshop() -> (MemoryFs, Arc<FileNumbers>) {
    let fs = MemoryFs::new();
    fs.create_dir_all(Path::new(TABLES)).unwrap();
    ["/", "/db"].iter().for_each(|dir| fs.sync_dir(Path::new(dir)).unwrap());
    (fs, FileNumbers::new(7, ObsoleteFiles::new()))
}

pub(super) fn pending(family: FamilyId, versions: &[Version]) -> Pending {
    let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(4096, 0, 0))));
    let memtable = Arc::new(Memtable::new(arena));
    for Version { key, seq, kind, value } in versions {
        memtable.insert(key, *seq, *kind, value);
    }
    let options = TableOptions { block_len: 128, ..TableOptions::default() };
    let (memtable, layers) = (Some(memtable), Vec::new());
    Pending { family, options, memtable, layers, beneath: None, merging: None }
}

pub(super) fn build(
    fs: &MemoryFs,
    numbers: &FileNumbers,
    pending: &[Pending],
    readers: &ReaderPoints,
) -> Result<Option<Built>> {
    build_table(fs, Path::new("/db"), [7; 16], numbers, pending, readers)
}

const NEWEST: ReaderPoints = ReaderPoints::newest();

/// What opens the tables.
pub(super) fn context(fs: &MemoryFs) -> TableContext {
    let files = FileCache::new(Arc::new(fs.clone()), TABLES.into(), FileAccess::Positional, 4);
    TableContext::new(Arc::new(files), BlockCache::new(0))
}

/// All versions that a table holds, by family.
pub(super) fn contents(fs: &MemoryFs, table: &Finished) -> BTreeMap<FamilyId, Vec<Version>> {
    let context = context(fs);
    let read = |meta| {
        let mut cursor = Table::open(context.clone(), meta).unwrap().cursor(false);
        let mut versions = Vec::new();
        cursor.seek_first().unwrap();
        while let Some(entry) = cursor.entry() {
            let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
            versions.push(Version { key, seq: entry.seq, kind: entry.kind, value });
            cursor.next().unwrap();
        }
        versions
    };
    table.slices.iter().map(|meta| (meta.family, read(meta))).collect()
}

/// The versions that a reader at one of the points, or anywhere from the horizon on, sees.
fn kept(versions: &[Version], readers: &ReaderPoints) -> Vec<Version> {
    let mut sorted = versions.to_vec();
    sort_versions(&mut sorted);
    let is_kept = |at: usize| {
        let Some(newer) = at.checked_sub(1).map(|newer| &sorted[newer]) else { return true };
        let seen_by = |point: &Lsn| *point > sorted[at].seq && *point <= newer.seq;
        newer.key != sorted[at].key
            || newer.seq >= readers.horizon()
            || readers.registered().iter().any(seen_by)
    };
    (0..sorted.len()).filter(|at| is_kept(*at)).map(|at| sorted[at].clone()).collect()
}

fn some_versions() -> impl Strategy<Value = Vec<Version>> {
    let one = (0u8..6, 10u64..60, prop::bool::weighted(0.3));
    prop::collection::vec(one, 1..40).prop_map(|drawn| {
        let mut seqs = BTreeSet::new();
        let fresh = drawn.into_iter().filter(|(_, seq, _)| seqs.insert(*seq));
        let version = |(key, seq, is_delete)| match is_delete {
            true => Version::delete([b'k', key], seq),
            false => Version::put([b'k', key], seq, format!("the value {seq}").as_bytes()),
        };
        fresh.map(version).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_table_holds_of_each_family_exactly_the_versions_that_someone_can_read(
        memory in prop::collection::btree_map(0u32..9, some_versions(), 1..4),
        points in prop::collection::btree_set(5u64..65, 0..4),
        above in 0u64..20,
    ) {
        let points: Vec<Lsn> = points.into_iter().collect();
        let horizon = points.last().map_or(5, |last| *last) + above;
        let readers = ReaderPoints::new(points, horizon);
        let (fs, numbers) = workshop();
        let pending: Vec<_> = memory.iter().map(|(id, versions)| pending(*id, versions)).collect();
        let built = build(&fs, &numbers, &pending, &readers).unwrap().unwrap();
        let expected: BTreeMap<_, _> =
            memory.iter().map(|(id, versions)| (*id, kept(versions, &readers))).collect();
        // A power cut here must not lose what is installed next.
        let left = fs.crashed(|_| 0);
        prop_assert_eq!(contents(&left, &built.table), expected);
        let path = table_path(Path::new(TABLES), built.file.number());
        let len = left.open_read(&path, FileAccess::Positional).unwrap().len();
        prop_assert_eq!((built.file.number(), len), (7, built.table.file_len));
    }
}

#[test]
fn nothing_to_keep_makes_no_table() {
    let (fs, numbers) = workshop();
    assert!(build(&fs, &numbers, &[], &NEWEST).unwrap().is_none());
    assert_eq!(fs.tried(FileOp::Create), 0);
    // A family may get its memtable before its first operation.
    assert!(build(&fs, &numbers, &[pending(3, &[])], &NEWEST).unwrap().is_none());
    assert_eq!(numbers.obsolete().take(), [7]);
}

#[test]
fn a_table_that_fails_at_any_step_is_reported_and_given_up() {
    let versions: Vec<_> =
        (0..3000u64).map(|i| Version::put(i.to_be_bytes(), i, [i as u8; 90])).collect();
    let pending = [pending(0, &versions), pending(1, &versions), pending(5, &versions[..10])];
    let steps = (1..10_000).take_while(|nth| {
        let (fs, numbers) = workshop();
        fs.inject(Fault::on_any().nth(*nth));
        let built = build(&fs, &numbers, &pending, &NEWEST);
        assert_eq!(built.is_err(), fs.struck() > 0, "step {nth}");
        let is_cut = built.is_err();
        drop(built);
        assert_eq!(numbers.obsolete().take(), [7], "step {nth}");
        is_cut
    });
    assert!(steps.count() > 5);
}

/// A value this long is written when its slice is finished; everything written after it finds room.
#[test]
fn a_slice_that_cannot_be_finished_is_reported_though_the_next_one_can() {
    let noise = (0..300_000u32).map(|i| checksum64(&i.to_le_bytes()) as u8).collect::<Vec<_>>();
    let pending = [
        pending(0, &[Version::put(b"key", 9, &noise)]),
        pending(1, &[Version::put(b"another", 8, b"value")]),
    ];
    let (fs, numbers) = workshop();
    fs.inject(Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull));
    let built = build(&fs, &numbers, &pending, &NEWEST);
    assert!(built.is_err_and(|error| error.is_out_of_space()));
}

#[test]
fn families_out_of_order_are_refused() {
    let (fs, numbers) = workshop();
    let version = [Version::put(b"key", 9, b"value")];
    let pending = [pending(3, &version), pending(2, &version)];
    assert!(build(&fs, &numbers, &pending, &NEWEST).is_err());
}

/// By that time it goes down the tree, however few writes come.
#[test]
fn a_table_says_when_its_oldest_delete_came() {
    let db = Options::in_memory().open("/db").unwrap();
    let (engine, clock) = (db.engine(), &db.engine().options.env.clock);
    engine.maintenance.close();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let before = clock.unix_ms();
    db.delete("key").unwrap();
    db.flush().unwrap();
    let family = engine.families.by_id(DEFAULT_FAMILY).unwrap();
    let oldest = family.view().tree.runs[0].meta.oldest_delete.unwrap();
    assert!((before..=clock.unix_ms()).contains(&oldest.flushed_ms), "{oldest:?} after {before}");
}
