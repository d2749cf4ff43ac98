//! The rules of every file system, checked on each implementation in both read modes.

use super::super::*;
use crate::error::{ErrorKind, LockHolder};
use std::io;

/// A file system under test, and its own directory.
struct Bench {
    fs: Box<dyn FileSystem>,
    root: PathBuf,
    mode: FileAccess,
}

impl Bench {
    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let mut file = self.fs.create(&self.at(name)).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
    }

    fn get(&self, name: &str) -> Vec<u8> {
        let file = self.fs.open_read(&self.at(name), self.mode).unwrap();
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(file.is_mapped(), self.mode == FileAccess::Mapped && !bytes.is_empty());
        bytes
    }

    fn segment(&self, name: &str, len: u64) -> Result<Arc<dyn SegmentFile>> {
        // SAFETY: each test has a file open only once at a time.
        unsafe { self.fs.open_segment(&self.at(name), len, self.mode) }
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<_> =
            self.fs.list(&self.at(dir)).unwrap().into_iter().map(|e| e.name).collect();
        names.sort();
        names
    }
}

/// Runs a check against every file system in both modes.
fn everywhere(check: impl Fn(&Bench)) {
    for mode in [FileAccess::Mapped, FileAccess::Positional] {
        // Miri maps no files.
        #[cfg(all(unix, not(miri)))]
        {
            let dir = tempfile::tempdir().unwrap();
            check(&Bench { fs: Box::new(SystemFs::new()), root: dir.path().to_owned(), mode });
        }
        let (fs, root) = (MemoryFs::new(), PathBuf::from("/in/memory"));
        fs.create_dir_all(&root).unwrap();
        check(&Bench { fs: Box::new(fs), root, mode });
    }
}

fn io_kind<T>(result: Result<T>) -> io::ErrorKind {
    let error = result.err().expect("succeeded");
    error.io_kind().unwrap_or_else(|| panic!("not an error of input or output: {error}"))
}

#[test]
fn what_was_appended_is_read_back_in_small_and_large_pieces() {
    everywhere(|b| {
        let mut file = b.fs.create(&b.at("f")).unwrap();
        let mut all = Vec::new();
        for (i, len) in [0, 1, 100, 70_000, 60_000, 300_000, 5, 131_072, 7].into_iter().enumerate()
        {
            let len = if cfg!(miri) { len / 50 } else { len };
            let piece = vec![i as u8 + 1; len];
            file.append(&piece).unwrap();
            all.extend_from_slice(&piece);
            assert_eq!(file.len(), all.len() as u64);
        }
        file.write_back();
        file.sync().unwrap();
        file.write_back();
        assert_eq!(b.get("f"), all);
        assert_eq!(file.path(), b.at("f"));
    });
}

#[test]
fn a_flush_and_a_drop_show_everything_to_readers() {
    everywhere(|b| {
        let mut file = b.fs.create(&b.at("f")).unwrap();
        file.append(b"one").unwrap();
        file.flush().unwrap();
        assert_eq!(b.get("f"), b"one");
        file.append(b"two").unwrap();
        drop(file);
        assert_eq!(b.get("f"), b"onetwo");
    });
}

#[test]
fn creating_what_exists_fails_and_leaves_it_alone() {
    everywhere(|b| {
        b.put("f", b"precious");
        assert_eq!(io_kind(b.fs.create(&b.at("f"))), io::ErrorKind::AlreadyExists);
        assert_eq!(b.get("f"), b"precious");
    });
}

#[test]
fn what_is_missing_is_reported_as_not_found() {
    everywhere(|b| {
        let missing = b.at("missing");
        assert!(!b.fs.exists(&missing).unwrap());
        assert_eq!(io_kind(b.fs.open_read(&missing, b.mode)), io::ErrorKind::NotFound);
        assert_eq!(io_kind(b.fs.list(&missing)), io::ErrorKind::NotFound);
        assert_eq!(io_kind(b.fs.remove(&missing)), io::ErrorKind::NotFound);
        assert_eq!(io_kind(b.fs.rename(&missing, &b.at("g"))), io::ErrorKind::NotFound);
        assert_eq!(io_kind(b.fs.replace(&missing, &b.at("g"))), io::ErrorKind::NotFound);
        assert_eq!(io_kind(b.fs.link(&missing, &b.at("g"))), io::ErrorKind::NotFound);
        assert_eq!(io_kind(b.fs.sync_dir(&missing)), io::ErrorKind::NotFound);
        assert_eq!(io_kind(b.fs.create(&missing.join("f"))), io::ErrorKind::NotFound);
        assert_eq!(io_kind(b.segment("missing/s", 8)), io::ErrorKind::NotFound);
    });
}

#[test]
fn reading_past_the_end_is_an_error_and_at_the_end_it_is_not() {
    everywhere(|b| {
        b.put("f", b"0123456789");
        let file = b.fs.open_read(&b.at("f"), b.mode).unwrap();
        let mut two = [0; 2];
        file.read_at(8, &mut two).unwrap();
        assert_eq!(&two, b"89");
        file.read_at(10, &mut []).unwrap();
        for offset in [9, 10, 11, 1 << 40, i64::MAX as u64 - 1, u64::MAX] {
            assert_eq!(
                io_kind(file.read_at(offset, &mut two)),
                io::ErrorKind::UnexpectedEof,
                "{offset}"
            );
        }
        // Hints have no visible effect, even with senseless ranges.
        for (offset, len) in [(0, 10), (3, u64::MAX), (u64::MAX, 1), (10, 0), (11, 5)] {
            file.read_ahead(offset, len);
        }
    });
}

#[test]
fn an_empty_file_is_opened_and_read() {
    everywhere(|b| {
        b.put("f", b"");
        let file = b.fs.open_read(&b.at("f"), b.mode).unwrap();
        assert!(file.is_empty());
        file.read_at(0, &mut []).unwrap();
        assert_eq!(io_kind(file.read_at(0, &mut [0])), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn directories_are_made_listed_and_removed() {
    everywhere(|b| {
        b.fs.create_dir_all(&b.at("d/e")).unwrap();
        b.fs.create_dir_all(&b.at("d/e")).unwrap();
        b.put("d/f", b"abc");
        let mut entries = b.fs.list(&b.at("d")).unwrap();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(entries[0].is_dir && entries[0].name == "e");
        assert_eq!(entries[1], DirEntry { name: "f".into(), len: 3, is_dir: false });
        assert!(b.fs.exists(&b.at("d")).unwrap());
        assert_eq!(io_kind(b.fs.remove_dir(&b.at("d"))), io::ErrorKind::DirectoryNotEmpty);
        b.fs.remove_dir(&b.at("d/e")).unwrap();
        b.fs.remove(&b.at("d/f")).unwrap();
        b.fs.sync_dir(&b.at("d")).unwrap();
        b.fs.remove_dir(&b.at("d")).unwrap();
        assert!(!b.fs.exists(&b.at("d")).unwrap());
    });
}

#[test]
fn a_directory_is_not_a_file() {
    everywhere(|b| {
        b.fs.create_dir_all(&b.at("d")).unwrap();
        assert_eq!(io_kind(b.fs.open_read(&b.at("d"), b.mode)), io::ErrorKind::IsADirectory);
        assert_eq!(io_kind(b.fs.create(&b.at("d"))), io::ErrorKind::AlreadyExists);
        b.put("f", b"x");
        assert_eq!(io_kind(b.fs.list(&b.at("f"))), io::ErrorKind::NotADirectory);
        assert_eq!(io_kind(b.fs.create_dir_all(&b.at("f"))), io::ErrorKind::AlreadyExists);
    });
}

#[test]
fn a_rename_leaves_a_file_of_its_new_name_alone_unless_it_is_to_replace_it() {
    everywhere(|b| {
        b.put("old", b"old");
        b.put("new", b"new");
        assert_eq!(io_kind(b.fs.rename(&b.at("new"), &b.at("old"))), io::ErrorKind::AlreadyExists);
        assert_eq!((b.get("old"), b.get("new")), (b"old".to_vec(), b"new".to_vec()));
        b.fs.replace(&b.at("new"), &b.at("old")).unwrap();
        assert_eq!(b.get("old"), b"new");
        assert_eq!(b.names(""), ["old"]);
    });
}

#[test]
fn a_link_is_a_second_name_that_outlives_the_first() {
    everywhere(|b| {
        b.put("a", b"shared");
        b.put("taken", b"other");
        b.fs.link(&b.at("a"), &b.at("b")).unwrap();
        assert_eq!(io_kind(b.fs.link(&b.at("a"), &b.at("taken"))), io::ErrorKind::AlreadyExists);
        b.fs.remove(&b.at("a")).unwrap();
        assert_eq!(b.get("b"), b"shared");
        assert_eq!(b.get("taken"), b"other");
    });
}

#[test]
fn handles_outlive_the_name() {
    everywhere(|b| {
        b.put("f", b"still here");
        let reader = b.fs.open_read(&b.at("f"), b.mode).unwrap();
        b.fs.remove(&b.at("f")).unwrap();
        let mut bytes = [0; 10];
        reader.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"still here");

        let mut writer = b.fs.create(&b.at("g")).unwrap();
        b.fs.remove(&b.at("g")).unwrap();
        writer.append(b"into the void").unwrap();
        writer.sync().unwrap();
        assert!(b.names("").is_empty());
    });
}

#[test]
fn a_new_segment_is_zeros_of_full_length_and_keeps_what_is_copied_in() {
    everywhere(|b| {
        let len = (1 << 20) + 4096 + 17;
        let segment = b.segment("s", len).unwrap();
        assert_eq!(segment.len(), len);
        assert_eq!(b.get("s"), vec![0; len as usize]);
        segment.prefault(0, len);
        // SAFETY: one thread.
        unsafe {
            segment.copy_in(0, b"head").unwrap();
            segment.copy_in(4094, b"page edge").unwrap();
            segment.copy_in(len - 4, b"tail").unwrap();
            segment.copy_in(len, b"").unwrap();
        }
        segment.write_back(0, len);
        segment.sync_range(0, u64::MAX).unwrap();
        let mut bytes = [0; 9];
        segment.read_at(4094, &mut bytes).unwrap();
        assert_eq!(&bytes, b"page edge");
        let all = b.get("s");
        assert_eq!((&all[..4], &all[len as usize - 4..]), (&b"head"[..], &b"tail"[..]));
        drop(segment);

        let again = b.segment("s", len).unwrap();
        let mut bytes = [0; 4];
        again.read_at(len - 4, &mut bytes).unwrap();
        assert_eq!(&bytes, b"tail");
    });
}

#[test]
fn a_segment_refuses_ranges_beyond_its_end_and_keeps_its_length() {
    everywhere(|b| {
        let segment = b.segment("s", 8192).unwrap();
        for offset in [8189, 8192, 1 << 40, u64::MAX - 1] {
            // SAFETY: one thread.
            let copied = unsafe { segment.copy_in(offset, b"four") };
            assert_eq!(io_kind(copied), io::ErrorKind::InvalidInput, "{offset}");
        }
        assert_eq!(io_kind(segment.read_at(8190, &mut [0; 3])), io::ErrorKind::UnexpectedEof);
        for (offset, len) in [(0, u64::MAX), (u64::MAX, 1), (8192, 1), (5000, 0), (5000, 1)] {
            segment.prefault(offset, len);
            segment.write_back(offset, len);
            segment.sync_range(offset, len).unwrap();
        }
        assert_eq!(b.get("s"), vec![0; 8192]);
    });
}

#[test]
fn a_file_of_another_length_is_not_taken_for_a_segment() {
    everywhere(|b| {
        b.put("s", b"short");
        assert_eq!(io_kind(b.segment("s", 4096)), io::ErrorKind::AlreadyExists);
        assert_eq!(b.get("s"), b"short");
    });
}

#[test]
fn a_renamed_segment_goes_on_under_its_new_name() {
    everywhere(|b| {
        let segment = b.segment("1", 4096).unwrap();
        b.fs.rename(&b.at("1"), &b.at("2")).unwrap();
        segment.renamed(&b.at("2"));
        // SAFETY: one thread.
        unsafe { segment.copy_in(100, b"recycled").unwrap() };
        segment.sync_range(0, u64::MAX).unwrap();
        assert_eq!(segment.path(), b.at("2"));
        assert_eq!(&b.get("2")[100..108], b"recycled");
    });
}

#[test]
fn threads_write_disjoint_ranges_of_a_segment_at_once() {
    everywhere(|b| {
        const PIECE_LEN: usize = 100;
        let segment = b.segment("s", 40_000).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let segment = &segment;
                scope.spawn(move || {
                    for piece in (thread..400).step_by(4) {
                        let bytes = [piece as u8; PIECE_LEN];
                        // SAFETY: each piece is written by one thread, once, and read after all
                        // threads have ended.
                        unsafe { segment.copy_in((piece * PIECE_LEN) as u64, &bytes).unwrap() };
                    }
                });
            }
        });
        let mut all = vec![0; 40_000];
        segment.read_at(0, &mut all).unwrap();
        for (piece, bytes) in all.chunks(PIECE_LEN).enumerate() {
            assert_eq!(bytes, [piece as u8; PIECE_LEN]);
        }
    });
}

#[test]
fn a_lock_is_exclusive_names_its_holder_and_ends_with_its_value() {
    everywhere(|b| {
        let path = b.at("LOCK");
        let held = b.fs.lock(&path).unwrap();
        let refused = b.fs.lock(&path).err().expect("locked twice");
        let ErrorKind::Locked { path: named, holder } = refused.kind() else { panic!("{refused}") };
        assert_eq!((named, *holder), (&b.root, LockHolder::ThisProcess));
        drop(held);
        drop(b.fs.lock(&path).unwrap());
    });
}

#[test]
fn there_is_free_space() {
    everywhere(|b| assert!(b.fs.free_space(&b.root).unwrap() > 1 << 20));
}

#[cfg(unix)]
#[test]
fn a_lock_held_elsewhere_names_the_other_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let held = SystemFs::new().lock(&path).unwrap();
    // We hold the lock, but the file names another process. Another process would see the same.
    std::fs::write(&path, "4000000000\n").unwrap();
    let refused = SystemFs::new().lock(&path).err().unwrap().to_string();
    assert!(refused.contains("locked by process 4000000000"), "{refused}");
    std::fs::write(&path, "not a number").unwrap();
    let refused = SystemFs::new().lock(&path).err().unwrap().to_string();
    assert!(refused.contains("locked by another process"), "{refused}");
    drop(held);
}
