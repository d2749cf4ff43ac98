//! Files of large commits while they wait for their flush: which of them a read asks, and what they
//! leave of the memory for writes.

use super::*;
use crate::cursor::Cursor;
use crate::engine::{MAX_LIGHT, MAX_SEALED, MAX_SMALL};
use crate::env::fixtures::Draw;
use crate::error::StallCause;
use crate::flush::Input;
use crate::options::FamilyOptions;
use crate::write::seal_if_room;
use crate::{Codec, WriteOptions};
use std::thread;
use std::time::Duration;

/// A database whose tables deny no key by a filter, and are as long as what is written to them.
fn open(fs: &MemoryFs) -> Db {
    let plain = FamilyOptions::new().codecs(vec![Codec::None]).filter_bits_per_key(0);
    over(fs).family(plain).open("/db").unwrap()
}

/// Ingests every even number below `end`.
fn ingest(db: &Db, end: u32) {
    let mut ingest = db.ingest().unwrap();
    (0..end).step_by(2).for_each(|n| ingest.put(key(n), [1; 300]).unwrap());
    ingest.commit().unwrap();
}

#[test]
fn a_read_asks_only_the_files_that_may_hold_what_it_looks_for() {
    let db = open(&MemoryFs::new());
    let side = db.family("side").unwrap();
    let _busy = Busy::flusher(&db);
    let [reader, scanner] = [(); 2].map(|()| db.begin());
    assert!(reader.get(key(5)).unwrap().is_none());
    assert_eq!(scanner.count(key(5)..key(6)).unwrap(), 0);
    ingest(&db, 4000);
    let files = layers(&db) as u64;
    assert!(files > 8, "{files} files");
    let blocks_of = |read: &dyn Fn()| {
        let blocks = || db.metrics().cache_hits + db.metrics().cache_misses;
        let before = blocks();
        read();
        blocks() - before
    };
    let asks: [(&str, &dyn Fn()); 8] = [
        ("get", &|| assert!(db.get(key(4)).unwrap().is_some())),
        ("absent", &|| assert!(db.get(key(5)).unwrap().is_none())),
        ("several", &|| assert!(db.multi_get([key(4)]).unwrap()[0].is_some())),
        ("scan", &|| assert_eq!(db.count(key(4)..key(7)).unwrap(), 2)),
        ("estimate", &|| _ = db.default_family().estimate(key(4)..key(7)).unwrap()),
        ("first", &|| assert!(db.first().unwrap().is_some())),
        ("last", &|| assert!(db.last().unwrap().is_some())),
        ("back", &|| assert_eq!(db.range(key(4)..key(7)).rev().count(), 2)),
    ];
    for (name, ask) in asks {
        assert!(blocks_of(ask) <= 3, "{name} reads {} blocks of {files} files", blocks_of(ask));
    }
    for (name, tx) in [("reader", &reader), ("scanner", &scanner)] {
        tx.of(&side).put(name, "x").unwrap();
    }
    for tx in [reader, scanner] {
        let tx = std::cell::Cell::new(Some(tx));
        let blocks = blocks_of(&|| _ = tx.take().unwrap().commit().unwrap());
        assert!(blocks <= 3, "a commit that relies on one key reads {blocks} blocks");
    }
}

/// In one ingest they lie apart; those of a transaction overlap, and their range deletes reach
/// beyond their keys.
#[test]
fn the_layers_within_bounds_are_those_whose_extent_meets_them() {
    let fs = MemoryFs::new();
    let db = super::open(&fs);
    (0..400).for_each(|n| _ = db.put(key(n), "older").unwrap());
    let _busy = Busy::flusher(&db);
    let tx = begin(&db, Isolation::ReadCommitted);
    tx.delete_range(key(300)..key(350)).unwrap();
    (0..300).for_each(|n| tx.put(key(n * 97 % 200), [2; 300]).unwrap());
    tx.delete_range(key(210)..key(220)).unwrap();
    tx.commit().unwrap();
    let overlapping = layers(&db);
    let hidden = |n: u32| (300..350).contains(&n) || (210..220).contains(&n);
    for n in 0..400 {
        assert_eq!(db.get(key(n)).unwrap().is_none(), hidden(n), "{n}");
        assert_eq!(db.count(key(n)..key(n + 1)).unwrap(), u64::from(!hidden(n)), "{n}");
    }
    drop(_busy);
    let apart = open(&MemoryFs::new());
    let _busy = Busy::flusher(&apart);
    ingest(&apart, 4000);
    assert!(overlapping > 1 && layers(&apart) > 8);
    let mut draw = Draw::new(7);
    for db in [&db, &apart] {
        let view = keyspace(db).view();
        for _ in 0..500 {
            let start = draw.below(4400) as u32;
            let (one, other) = (key(start), key(start + draw.below(300) as u32));
            let bound = |draw: &mut Draw, key: &'_ [u8]| match draw.below(5) {
                0 => Bound::Unbounded,
                1 | 2 => Bound::Excluded(key.to_vec()),
                _ => Bound::Included(key.to_vec()),
            };
            let (lower, upper) = (bound(&mut draw, &one), bound(&mut draw, &other));
            let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            let all = view.layers_at(u64::MAX).map(|layer| layer.part.meta());
            let met = all.filter(|meta| meta.extent().meets(&lower, &upper));
            let found = view.layers_within(u64::MAX, bounds).map(|layer| layer.part.meta());
            assert!(met.map(std::ptr::from_ref).eq(found.map(std::ptr::from_ref)), "{bounds:?}");
        }
    }
}

#[test]
fn a_flush_has_one_of_the_files_open_that_lie_apart() {
    let db = open(&MemoryFs::new());
    let busy = Busy::flusher(&db);
    ingest(&db, 4000);
    let parts = || -> Vec<_> {
        keyspace(&db).view().layers_at(u64::MAX).map(|layer| layer.part.clone()).collect()
    };
    let mut inputs: Vec<_> = Input::layers(&parts()).collect();
    assert_eq!((inputs.len(), parts().len() > 8), (1, true), "{} files", parts().len());
    let mut keys = Vec::new();
    inputs[0].seek_first().unwrap();
    while let Some(key) = inputs[0].key() {
        keys.push(key.to_vec());
        inputs[0].next().unwrap();
    }
    assert!(keys.into_iter().eq((0..4000).step_by(2).map(key)));
    // What lies over all of them begins an input of its own.
    assert_eq!(Input::layers(&[parts(), parts()].concat()).count(), 2);
    drop((inputs, busy));
    db.flush().unwrap();
    assert_eq!((parts().len(), db.count(..).unwrap()), (0, 2000));
}

#[test]
fn views_share_layers_until_these_change() {
    let db = open(&MemoryFs::new());
    let busy = Busy::flusher(&db);
    ingest(&db, 4000);
    let before = keyspace(&db).view().layers.clone();
    db.put(key(1), "x").unwrap();
    let view = || keyspace(&db).view().layers.clone();
    assert!(before.len() > 8 && !keyspace(&db).view().memtables.is_empty());
    assert!(Arc::ptr_eq(&before, &view()), "a new memtable copies no layer");
    drop(busy);
    db.flush().unwrap();
    assert!(view().is_empty());
}

#[test]
fn two_buffers_are_filled_behind_the_files_of_an_ingest_that_are_being_merged() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    let _busy = Busy::flusher(&db);
    ingest(&db, 1000);
    assert_eq!((engine.epochs.list().sealed.len(), engine.heavy_epochs()), (1, 0));
    // What asks for a flush meanwhile takes none of the two.
    for n in 1..=MAX_SMALL {
        db.put(key(1), "x").unwrap();
        seal_if_room(engine).unwrap();
        assert_eq!((engine.epochs.list().sealed.len(), engine.heavy_epochs()), (1 + n, 0));
    }
    let hasty = db.with(WriteOptions::default().fail_fast(true));
    let is_full = |n: u32| match hasty.put(key(2000 + n % 100), [3; 1000]) {
        Ok(_) => false,
        Err(error) => match error.kind() {
            ErrorKind::WouldStall { cause: StallCause::MemoryFull, .. } => true,
            // The pace of writers, which passes.
            ErrorKind::WouldStall { .. } => {
                thread::sleep(Duration::from_millis(1));
                false
            }
            other => panic!("{other:?}"),
        },
    };
    assert!((0..100_000).any(is_full));
    assert_eq!(engine.epochs.list().sealed.len(), MAX_SEALED + 1 + MAX_SMALL);
    assert_eq!((engine.heavy_epochs(), engine.memory_fullness()), (MAX_SEALED, 1.0));
}

#[test]
fn epochs_that_hold_files_alone_are_sealed_up_to_a_number() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    let _busy = Busy::flusher(&db);
    ingest(&db, 1000);
    let files: Vec<_> =
        keyspace(&db).view().layers.iter().map(|of| of.part.file().clone()).collect();
    for nth in 1..=MAX_SEALED + MAX_LIGHT + 2 {
        let sealed = engine.epochs.list().sealed.len();
        assert_eq!(sealed, nth.min(MAX_SEALED + MAX_LIGHT));
        let lsn = engine.log.tail();
        db.put(key(3000), "x").unwrap();
        let open = engine.epochs.list().open.clone();
        keyspace(&db).lay([(0, &files[0])].into_iter(), &open, lsn);
        seal_if_room(engine).unwrap();
    }
}
