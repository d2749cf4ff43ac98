//! Tests of the text of errors, and of their size.

use super::*;
use std::error::Error as _;

/// One error of each kind.
fn one_of_each() -> Vec<Error> {
    let (path, full) = (Path::new("db/wal/7.wal"), || io::Error::from_raw_os_error(28));
    vec![
        Error::io("sync", path, full()),
        Error::corruption(path, 4096, "a block's checksum does not match"),
        Error::newer_format(path, "block codec 9"),
        Error::missing_codec(path, "lz4"),
        Error::not_a_database(path, NotADatabaseCause::OtherFiles),
        Error::already_exists(path),
        Error::locked(path, LockHolder::Process { id: 7 }),
        Error::invalid_argument("a key may have at most 65536 bytes"),
        Error::unknown_family("users"),
        Error::family_exists("users"),
        Error::would_stall(StallCause::LogFull),
        Error::poisoned(PoisonCause::of(&Error::io("sync", path, full()))),
        Error::outcome_unknown(PoisonCause::of(&Error::io("sync", path, full()))),
        Error::conflict("users", b"ada", ConflictKind::Read),
        Error::deadlock(vec![DeadlockWait {
            transaction: Some(7),
            family: "users".to_owned(),
            key: b"ada".to_vec(),
        }]),
        Error::lock_timeout("users", b"ada", Some(7), None),
        Error::transaction_exists(&Xid::new("x")),
        Error::unknown_transaction(&Xid::new("x")),
        Error::transaction_aborted(AbortReason::Asked),
        Error::commit_vetoed("not on Sundays".into()),
        Error::transaction_too_large(2, 1),
        Error::read_only(),
        Error::memory_limit(2, 1),
        Error::outrun(path, 3),
        Error::closed(),
        Error::cancelled(),
    ]
}

#[test]
fn errors_and_the_results_of_reads_are_small() {
    const WORD: usize = size_of::<usize>();
    assert_eq!((size_of::<Error>(), size_of::<Result<()>>()), (WORD, WORD));
    assert_eq!(size_of::<Result<u64>>(), 2 * WORD);
    // The error takes no extra room in an answer, or at most a word.
    type Answer = Option<crate::Value>;
    assert_eq!(size_of::<Result<Answer>>(), size_of::<Answer>());
    type Pinned = Option<crate::table::PinnedValue>;
    assert_eq!(size_of::<Result<Pinned>>(), size_of::<Pinned>() + WORD);
}

#[test]
fn names_are_one_word_for_each_kind_and_never_change() {
    let names: Vec<_> = one_of_each().iter().map(Error::name).collect();
    assert_eq!(
        names,
        [
            "IO",
            "CORRUPTION",
            "NEWER_FORMAT",
            "MISSING_CODEC",
            "NOT_A_DATABASE",
            "ALREADY_EXISTS",
            "LOCKED",
            "INVALID_ARGUMENT",
            "UNKNOWN_FAMILY",
            "FAMILY_EXISTS",
            "WOULD_STALL",
            "POISONED",
            "OUTCOME_UNKNOWN",
            "CONFLICT",
            "DEADLOCK",
            "LOCK_TIMEOUT",
            "TRANSACTION_EXISTS",
            "UNKNOWN_TRANSACTION",
            "TRANSACTION_ABORTED",
            "COMMIT_VETOED",
            "TRANSACTION_TOO_LARGE",
            "READ_ONLY",
            "MEMORY_LIMIT",
            "OUTRUN",
            "CLOSED",
            "CANCELLED"
        ]
    );
}

#[test]
fn what_the_system_said_is_part_of_the_text_and_no_chain_says_it_twice() {
    for error in one_of_each() {
        let text = error.to_string();
        let has_system = text.contains("No space left on device");
        assert_eq!(has_system, ["IO", "POISONED", "OUTCOME_UNKNOWN"].contains(&error.name()));
        assert!(error.source().is_none(), "{text}");
    }
    #[derive(Debug)]
    struct Below(io::Error);
    impl fmt::Display for Below {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the cloud is away")
        }
    }
    impl std::error::Error for Below {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let cloud = io::Error::other(Below(io::Error::other("the cable is cut")));
    let failed = Error::io("read", Path::new("7.tbl"), cloud);
    let poisoned = Error::poisoned(PoisonCause::of(&failed));
    for error in [failed, poisoned] {
        let mut chain = vec![error.to_string()];
        let mut next = error.source();
        while let Some(error) = next {
            chain.push(error.to_string());
            next = error.source();
        }
        assert!(chain[0].contains("the cloud is away"), "{chain:?}");
        assert_eq!(chain[1..], ["the cable is cut"]);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told_with_what_was_wanted_of_it() {
    let failed = || Error::io("read", Path::new("7.tbl"), io::Error::from_raw_os_error(24));
    let text = failed().to_string();
    let (head, tail) = text.split_once(": ").unwrap();
    assert_eq!(head, "could not read 7.tbl");
    let told = failed().at_offset(4096).for_key(b"a\0");
    let wanted = "(offset 4096, the value of key \"a\\x00\")";
    assert_eq!(told.to_string(), format!("{head} {wanted}: {tail}"));
    assert!(told.is_too_many_files() && told.is_retryable());
}

#[test]
fn a_cause_that_is_wrapped_again_stays_the_first_failure() {
    let first = Error::io("sync", Path::new("7.wal"), io::Error::from_raw_os_error(5));
    let poisoned = Error::poisoned(PoisonCause::of(&first));
    let unknown = Error::outcome_unknown(PoisonCause::of(&poisoned));
    let again = PoisonCause::of(&unknown);
    assert!(matches!(again, PoisonCause::Failed { error } if Arc::ptr_eq(&error.0, &first.0)));
    assert!(unknown.is_outcome_unknown() && !unknown.is_retryable());
}

#[test]
fn std_io_gets_the_nearest_kind_and_the_same_text() {
    for (error, kind) in one_of_each().into_iter().zip([
        io::ErrorKind::StorageFull,
        io::ErrorKind::InvalidData,
        io::ErrorKind::InvalidData,
        io::ErrorKind::Unsupported,
        io::ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists,
        io::ErrorKind::ResourceBusy,
        io::ErrorKind::InvalidInput,
        io::ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists,
        io::ErrorKind::WouldBlock,
        io::ErrorKind::Other,
        io::ErrorKind::Other,
        io::ErrorKind::ResourceBusy,
        io::ErrorKind::Deadlock,
        io::ErrorKind::TimedOut,
        io::ErrorKind::AlreadyExists,
        io::ErrorKind::NotFound,
        io::ErrorKind::Other,
        io::ErrorKind::Other,
        io::ErrorKind::OutOfMemory,
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::OutOfMemory,
        io::ErrorKind::ResourceBusy,
        io::ErrorKind::Other,
        io::ErrorKind::Other,
    ]) {
        let text = error.to_string();
        let converted = io::Error::from(error);
        assert_eq!((converted.kind(), converted.to_string()), (kind, text));
    }
}

#[test]
fn what_a_transaction_met_is_told_with_keys_and_numbers() {
    let wait = |transaction, key: &[u8]| DeadlockWait {
        transaction,
        family: "users".to_owned(),
        key: key.to_vec(),
    };
    let deadlock = Error::deadlock(vec![wait(Some(9), b"ada"), wait(None, &[b'x'; 40])]);
    let text = deadlock.to_string();
    for part in ["transaction 9 waits for the key \"ada\"", "a plain write waits", "xxx...\""] {
        assert!(text.contains(part), "{text}");
    }
    let alone = Error::deadlock(vec![wait(Some(9), b"ada")]).to_string();
    assert!(alone.contains("that this thread called last") && !alone.contains("again"), "{alone}");
    let timeout = |holder| Error::lock_timeout("users", b"\0", holder, None).to_string();
    assert!(timeout(Some(7)).contains("\"\\x00\" of column family \"users\" stayed locked, by tr"));
    let in_doubt = Error::lock_timeout("users", b"k", Some(7), Some(Xid::new("t"))).to_string();
    assert!(in_doubt.contains("locked by the prepared transaction \"t\""), "{in_doubt}");
    assert!(timeout(None).contains("stayed locked, for longer"), "{}", timeout(None));
    for conflict in [deadlock, Error::lock_timeout("users", b"k", None, None)] {
        assert!(conflict.is_conflict() && !conflict.is_retryable());
    }
}

#[test]
fn causes_say_what_happened() {
    let panicked = PoisonCause::panicked("while it wrote to the log", "index out of bounds");
    assert_eq!(
        panicked.to_string(),
        "a thread panicked while it wrote to the log: index out of bounds"
    );
    let quiet = PoisonCause::panicked("in a compaction", "");
    assert_eq!(quiet.to_string(), "a thread panicked in a compaction");
    let given_up = PoisonCause::given_up("a change of a column family");
    assert_eq!(given_up.to_string(), "a change of a column family was given up halfway");
    assert_eq!(LockHolder::ThisProcess.to_string(), "this process");
    assert_eq!(LockHolder::Process { id: 7 }.to_string(), "process 7");
    assert_eq!(LockHolder::Unknown.to_string(), "another process");
}
