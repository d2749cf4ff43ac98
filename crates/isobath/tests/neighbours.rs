//! Two databases in one process, and one directory opened again with other options: nothing of one
//! may appear in the other.

use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{BlockCache, Codec, Db, Error, ErrorKind, FamilyOptions, IoMode, Options};
use std::sync::Arc;

fn over(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).write_buffer(64 << 10).compaction_threads(1)
}

/// The same keys, in files with the same numbers and sizes. Only the values differ.
fn fill(db: &Db, mark: u8) {
    for i in 0..500u32 {
        db.put(i.to_be_bytes(), [mark; 100]).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
}

#[track_caller]
fn check(db: &Db, mark: u8) {
    for i in 0..500u32 {
        assert_eq!(db.get(i.to_be_bytes()).unwrap().unwrap(), [mark; 100]);
    }
    assert!(db.range(..).all(|item| item.unwrap().1 == [mark; 100]));
}

#[test]
fn databases_on_one_cache_see_their_own_blocks() {
    let cache = BlockCache::new(8 << 20);
    let open = |fs: &MemoryFs| over(fs).shared_cache(cache.clone()).open("db").unwrap();
    let (here, there) = (MemoryFs::new(), MemoryFs::new());
    let (first, second) = (open(&here), open(&there));
    fill(&first, 1);
    fill(&second, 2);
    for _ in 0..2 {
        check(&first, 1);
        check(&second, 2);
    }
    // Another database in the same place. Blocks of the old one are still in the cache.
    first.close().unwrap();
    let third = open(&MemoryFs::new());
    fill(&third, 3);
    check(&third, 3);
    check(&open(&here), 1);
    check(&second, 2);
}

#[test]
fn a_database_is_opened_once_at_a_time_in_a_process_too() {
    let fs = MemoryFs::new();
    let dir = tempfile::tempdir().unwrap();
    for (options, path) in [(over(&fs), "db".into()), (Options::new(), dir.path().to_owned())] {
        let first = options.open(&path).unwrap();
        let second = options.open(&path).unwrap_err();
        assert!(
            matches!(second.kind(), ErrorKind::Locked { .. }) && second.is_retryable(),
            "{second}"
        );
        first.put("key", "value").unwrap();
        let (snapshot, mut range) = (first.snapshot(), first.range(..));
        drop(first);
        assert!(
            matches!(options.open(&path).as_ref().map_err(Error::name), Err("LOCKED")),
            "a snapshot keeps it"
        );
        drop(snapshot);
        // A range holds no lock.
        let second = options.open(&path).unwrap();
        assert_eq!(second.get("key").unwrap().unwrap(), b"value");
        assert!(range.next().unwrap().unwrap_err().is_closed());
    }
}

#[test]
fn a_database_opens_with_other_options_each_time() {
    let fs = MemoryFs::new();
    let openings = [
        over(&fs),
        over(&fs).write_buffer(1 << 20).io(IoMode::Positional).block_cache(0),
        over(&fs).write_buffer(64 << 10).io(IoMode::Mapped).max_open_files(8),
        over(&fs).write_buffer(16 << 20).family(FamilyOptions::new().codec(Codec::Zstd)),
        over(&fs).family(FamilyOptions::new().block_size(256).filter_bits_per_key(0)),
        over(&fs).write_buffer(300_000).family(FamilyOptions::new().level_size_ratio(2)),
    ];
    let mut written = 0u32;
    for round in 0..3 {
        for (at, options) in openings.iter().enumerate() {
            let db = options.open("db").unwrap();
            for i in 0..written {
                let value = db.get(i.to_be_bytes()).unwrap().unwrap();
                assert_eq!(value, i.to_le_bytes().repeat(50), "{i}, opened with {options:?}");
            }
            assert_eq!(db.range(..).map(Result::unwrap).count() as u32, written);
            for _ in 0..400 {
                db.put(written.to_be_bytes(), written.to_le_bytes().repeat(50)).unwrap();
                written += 1;
            }
            if (round + at) % 2 == 0 {
                db.wait_for_compactions(None).unwrap();
            }
            db.close().unwrap();
        }
    }
}

#[test]
fn a_family_keeps_its_options_and_the_default_one_follows_the_template() {
    let fs = MemoryFs::new();
    let (then, now) =
        (FamilyOptions::new().level_size_ratio(5), FamilyOptions::new().codec(Codec::Zstd));
    let db = over(&fs).family(then.clone()).open("db").unwrap();
    db.family("old").unwrap();
    db.close().unwrap();
    for _ in 0..2 {
        let db = over(&fs).family(now.clone()).open("db").unwrap();
        assert_eq!(db.default_family().options(), now);
        assert_eq!(db.family("old").unwrap().options(), then);
        let new = db.family("new").unwrap();
        assert_eq!(new.options(), now);
    }
}
