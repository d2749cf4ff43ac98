//! Deletes that a flush does not write, because nothing older lies in the tree.

use super::table::{build, contents, context, pending, workshop};
use super::*;
use crate::cursor::fixtures::{Version, sort_versions};
use crate::mvcc::Effect;
use crate::version::Slice;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Versions of up to ten keys, with sequences within `seqs`.
fn versions(seqs: std::ops::Range<u64>) -> impl Strategy<Value = Vec<Version>> {
    let one = (0u8..10, seqs, prop::bool::weighted(0.5));
    prop::collection::vec(one, 1..30).prop_map(|drawn| {
        let mut used = BTreeSet::new();
        let fresh = drawn.into_iter().filter(|(_, seq, _)| used.insert(*seq));
        let version = |(key, seq, is_delete)| match is_delete {
            true => Version::delete([b'k', key], seq),
            false => Version::put([b'k', key], seq, b"value"),
        };
        fresh.map(version).collect()
    })
}

/// The sequence of the put that a reader at `point` finds under each key.
fn answers<'a>(versions: impl Iterator<Item = &'a Version>, point: Lsn) -> BTreeMap<&'a [u8], Lsn> {
    let mut newest: BTreeMap<&[u8], &Version> = BTreeMap::new();
    for version in versions.filter(|version| version.seq < point) {
        let known = newest.entry(&version.key).or_insert(version);
        if known.seq < version.seq {
            *known = version;
        }
    }
    newest.retain(|_, version| version.kind.effect() == Effect::Value);
    newest.into_iter().map(|(key, version)| (key, version.seq)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn deletes_that_hide_nothing_in_the_tree_are_not_written_and_no_reader_notices(
        older in prop::collection::vec(versions(10..100), 0..3),
        epoch in versions(100..160),
        points in prop::collection::btree_set(5u64..165, 0..3),
        above in 0u64..40,
    ) {
        let points: Vec<Lsn> = points.into_iter().collect();
        let horizon = points.last().map_or(5, |last| *last) + above;
        let readers = ReaderPoints::new(points.clone(), horizon);
        let all = ReaderPoints::new((0..200).collect(), 200);
        let (fs, numbers) = workshop();
        let mut tree = Tree::default();
        for versions in &older {
            let built = build(&fs, &numbers, &[pending(0, versions)], &all).unwrap().unwrap();
            tree.runs.insert(0, Slice::new(built.table.slices[0].clone(), built.file, Box::default()));
        }
        let mut pending = pending(0, &epoch);
        pending.beneath = Some((Arc::new(tree), Arc::new(context(&fs))));
        let built = build(&fs, &numbers, &[pending], &readers).unwrap();
        let written = built.map_or_else(BTreeMap::new, |built| contents(&fs, &built.table));
        let written = written.get(&0).cloned().unwrap_or_default();
        let before = || older.iter().flatten();
        for point in points.into_iter().chain(horizon..200) {
            prop_assert_eq!(
                answers(before().chain(&written), point),
                answers(before().chain(&epoch), point),
                "at {}", point
            );
        }
        // A filter of ten keys is wrong about none of them here, so what stays is needed.
        let mut sorted = written.clone();
        sort_versions(&mut sorted);
        for (at, version) in sorted.iter().enumerate() {
            let is_oldest = sorted.get(at + 1).is_none_or(|next| next.key != version.key);
            if version.kind.effect() == Effect::Absent && is_oldest {
                let hides = before().any(|older| older.key == version.key);
                prop_assert!(hides || version.seq >= readers.oldest(), "{:?}", version);
            }
        }
    }
}

#[test]
fn a_pair_of_put_and_delete_leaves_no_table_behind() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("/db").unwrap();
    let slices = || db.engine().versions.lock().state().family(0).unwrap().tree.iter().count();
    for round in 0..3 {
        db.put(format!("popped{round}"), "value").unwrap();
        db.delete(format!("popped{round}")).unwrap();
        db.flush().unwrap();
        assert_eq!(slices(), 0, "round {round}");
    }
    // What a snapshot sees stays, and so do deletes of what is in a table.
    db.put("key", "value").unwrap();
    let snapshot = db.snapshot();
    db.delete("key").unwrap();
    db.flush().unwrap();
    assert!(snapshot.get("key").unwrap().is_some() && db.get("key").unwrap().is_none());
    drop(snapshot);
    db.put("other", "value").unwrap();
    db.flush().unwrap();
    db.delete("other").unwrap();
    db.flush().unwrap();
    assert!(db.get("other").unwrap().is_none());
    drop(db);
    let db = over(&fs).open("/db").unwrap();
    assert_eq!(db.iter().count(), 0);
}

#[test]
fn a_delete_is_written_if_the_table_beneath_cannot_be_opened() {
    let versions = [Version::put(b"a", 10, b"value"), Version::put(b"c", 11, b"value")];
    let (fs, numbers) = workshop();
    let built = build(&fs, &numbers, &[pending(0, &versions)], &ReaderPoints::newest());
    let built = built.unwrap().unwrap();
    let mut tree = Tree::default();
    tree.runs.push(Slice::new(built.table.slices[0].clone(), built.file, Box::default()));
    let tree = Arc::new(tree);
    fs.inject(Fault::on(FileOp::OpenRead).forever());
    let mut pending = pending(0, &[Version::delete(b"b", 20), Version::delete(b"d", 21)]);
    pending.beneath = Some((tree, Arc::new(context(&fs))));
    let built = build(&fs, &numbers, &[pending], &ReaderPoints::newest()).unwrap().unwrap();
    fs.clear_faults();
    // The extents alone tell that nothing lies under the other.
    assert_eq!(contents(&fs, &built.table)[&0], [Version::delete(b"b", 20)]);
}

#[test]
fn all_families_of_a_flush_open_sixteen_tables_together() {
    thread_local! {
        static TRIED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    fn unreadable() -> std::io::Error {
        TRIED.set(TRIED.get() + 1);
        std::io::Error::from_raw_os_error(5)
    }
    let (fs, numbers) = workshop();
    let mut trees = [Tree::default(), Tree::default()];
    let key = |nth: u64, end: &str| format!("{nth:02}{end}").into_bytes();
    for nth in 0..12 {
        let versions = ["a", "c"].map(|end| Version::put(key(nth, end), 10 + nth, b"value"));
        let families = [pending(0, &versions), pending(1, &versions)];
        let built = build(&fs, &numbers, &families, &ReaderPoints::newest()).unwrap().unwrap();
        for (tree, meta) in trees.iter_mut().zip(&built.table.slices) {
            tree.runs.push(Slice::new(meta.clone(), built.file.clone(), Box::default()));
        }
    }
    let versions: Vec<_> = (0..12).map(|nth| Version::delete(key(nth, "b"), 90 + nth)).collect();
    let deletes = trees.into_iter().zip(0..).map(|(tree, family)| {
        let mut pending = pending(family, &versions);
        pending.beneath = Some((Arc::new(tree), Arc::new(context(&fs))));
        pending
    });
    let deletes: Vec<_> = deletes.collect();
    fs.inject(Fault::on(FileOp::OpenRead).calls(unreadable).forever());
    let built = build(&fs, &numbers, &deletes, &ReaderPoints::newest()).unwrap().unwrap();
    fs.clear_faults();
    assert_eq!(TRIED.get(), 16);
    assert!(contents(&fs, &built.table).values().all(|written| *written == versions));
}
