//! The order in which a thread may take the locks of the engine, and the check of that order.
//!
//! Every [`Mutex`](super::sync::Mutex) has a [`Rank`]. A thread that holds a lock takes only locks
//! of later ranks, never a second one of the same rank. So no two threads can each hold what the
//! other waits for. Builds with debug assertions check this before each lock is taken, whether or
//! not another thread holds it. A violation panics with the names of both locks and the two places
//! in the code. Releases keep no ranks and check nothing. Model checkers look for deadlocks
//! themselves.
//!
//! A wait on a condition variable releases its lock and takes it again. The check treats it in the
//! same way. Some waits involve no lock: the holder of one lock waits for a thread that needs
//! another lock. The sentences below name these waits, and the other lock's rank is later.
//!
//! Tasks of a simulator share one thread of the system. With each switch between tasks the
//! simulator exchanges the list of held locks (`HeldLocks`), so the list follows the task.
//!
//! `docs/internals/locks.md` shows the ranks as a table; a test compares it with this file.

macro_rules! ranks {
    ($($(#[doc = $what:literal])+ $name:ident at $place:literal,)+) => {
        /// The locks of the engine, in the order in which a thread may take them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(dead_code)] // A build without some feature is without its locks.
        pub(crate) enum Rank {
            $($(#[doc = $what])+ $name,)+
            /// A lock of a test, around anything and never checked.
            #[cfg(test)]
            Unranked,
        }

        /// Name, place and description of each rank, in their order.
        #[cfg(all(any(test, debug_assertions), not(any(loom, shuttle))))]
        const TABLE: &[(&str, &str, &str)] =
            &[$((stringify!($name), $place, concat!($($what),+)),)+];
    };
}

ranks! {
    /// Held by the thread that closes the database until it has closed; others who close wait here.
    Close at "engine/mod.rs: close_outcome",
    /// Held by the thread that decides a prepared transaction; what that transaction holds. A
    /// decider waits for room in the log, and so for flushes.
    PreparedDecision at "engine/prepared.rs: held",
    /// One change of families at a time, from its check to its edit. A close holds it, too, until
    /// its threads have ended.
    FamiliesChange at "engine/mod.rs: families_change",
    /// Held from a change's record in the log to its edit in the manifest; a flush waits for it
    /// before its own edit. It guards whether such a change was given up.
    FamiliesPending at "engine/mod.rs: families_pending",
    /// Held while the threads of a pool are joined.
    WorkersEnd at "background/workers.rs: handles",
    /// Held while a ticker's thread is joined.
    TickerEnd at "background/ticker.rs: handle",
    /// The preparer's thread, taken out to be joined.
    PreparerEnd at "wal/log.rs: preparer",
    /// The lock on the directory, given back at the end of a close.
    Directory at "engine/mod.rs: lock",
    /// Where a reader of a database that is open for reading only stands in the log; held while it
    /// catches up.
    Line at "engine/shown.rs: line",
    /// The prepared transactions, and the families that are being dropped.
    Prepared at "engine/prepared.rs: lists",
    /// Where the operations of a prepared transaction are.
    PreparedContent at "engine/prepared.rs: content",
    /// Transactions under way that are known by a number.
    Running at "engine/running.rs: shards",
    /// The phase of a transaction that others may end, and what it holds between two calls.
    Watch at "engine/watch.rs: state",
    /// Opening and closing the gate of transactions. A thread that opens it waits for commits that
    /// are under way.
    Gate at "conflict/gate.rs: change",
    /// Sealing and retiring epochs. Writers take it between reserving and publishing, so its holder
    /// waits for none of them.
    Epochs at "engine/epochs.rs: change",
    /// Owners that sleep until they get a lock, while cycles are looked for.
    LockWaits at "lock/waits.rs: sleepers",
    /// The locked ranges of keys, who holds them and who waits.
    LockRanges at "lock/ranges.rs: families",
    /// The locked keys of a shard, who holds them and who waits.
    LockShard at "lock/mod.rs: shards",
    /// What an owner of locks holds, and how its wait stands. The block cache may give blocks up
    /// while it is held, for the memory of a lock.
    LockOwner at "lock/owner.rs: state",
    /// The memory of a transaction's footprint that the next one takes.
    SpareFootprint at "footprint/spares.rs: places",
    /// What compactions of a family are under way.
    Compactions at "engine/compactions.rs: state",
    /// Parts of a compaction that are taken and done.
    CompactionParts at "compact/run/job.rs: progress",
    /// The state of the database and its manifest; held while an edit is synced.
    Versions at "engine/mod.rs: versions",
    /// The earlier points that readers beside a writer have asked for.
    OldPoints at "engine/shown.rs: asked",
    /// Read points that found no slot, and the dropped families that points see.
    ReadPoints at "engine/read_points.rs: registry",
    /// At which time the database was at which point.
    Moments at "engine/history.rs: moments",
    /// What time it is from which point on.
    Ticks at "engine/ticks.rs: known",
    /// Files of large commits that the log needs until an edit is confirmed.
    RetiredSpills at "engine/spill.rs: retired",
    /// The open families by id and name.
    Families at "engine/families.rs: lists",
    /// Replacing a family's view.
    View at "engine/family.rs: change",
    /// A family's name.
    FamilyName at "engine/family.rs: name",
    /// A family's options.
    FamilyOptions at "engine/family.rs: options",
    /// The memtables of an epoch, by family.
    Memtables at "engine/epochs.rs: content",
    /// Why flushes are stuck.
    FlushFailure at "engine/epochs.rs: failures",
    /// The compaction debt, by family.
    Backlog at "engine/mod.rs: backlog",
    /// Setting the pace of writers, so that the last one to set it has the last word.
    Pace at "engine/pacer.rs: setting",
    /// Edits that wait for the manifest.
    Edits at "engine/edits.rs: waiting",
    /// Jobs of a pool that wait.
    Jobs at "background/workers.rs: queue",
    /// The result of a job that a thread waits for.
    Promise at "background/promise.rs: result",
    /// Callbacks that wait until a commit is durable, while they are added and taken.
    Notices at "engine/notices.rs: state",
    /// What wakes a ticker.
    Ticker at "background/ticker.rs: signals",
    /// Why names of files of one kind may be lost; held while they are synced.
    FileNames at "version/durable_names.rs: synced",
    /// Numbers of table files and blob files that can be removed, and which of them threads are
    /// removing.
    ObsoleteFiles at "version/files.rs: inner",
    /// Numbers of spill files that can be removed.
    ObsoleteSpills at "engine/spill.rs: obsolete",
    /// What a close of the database waits for, and whether more may begin.
    Errands at "engine/errands.rs: state",
    /// Who leads the round of syncs and who waits for it.
    Syncs at "wal/syncer.rs: state",
    /// What is prepared of the log, and writers that wait for more.
    Room at "wal/room.rs: state",
    /// What wakes the preparer of the log.
    Preparer at "wal/preparer.rs: state",
    /// Writers that sleep until a frontier has passed.
    Frontier at "wal/frontier.rs: sleepers",
    /// Why the log has ended.
    Health at "wal/health.rs: end",
    /// The log's segments by place.
    Segments at "wal/segment_table.rs: live",
    /// Segments to be used again or removed.
    Spares at "wal/recycler.rs: state",
    /// Replacing the tree of range deletes of a memtable.
    MemtableSpans at "memtable/spans.rs: change",
    /// The chunks of an arena.
    Arena at "memtable/arena.rs: stock",
    /// Chunks that no arena uses, and below a ceiling for memory what is spoken for. The block
    /// cache may give blocks up while it is held.
    Chunks at "memtable/pool.rs: idle",
    /// Open tables that do not stay open.
    RecentTables at "table/recent.rs: tables",
    /// What a scan has read ahead of values in blob files.
    ScanAhead at "read/scan.rs: ahead",
    /// Table files that readers beside a writer hold open.
    HeldTables at "table/cache/files.rs: held",
    /// Contexts of Zstandard that no thread uses.
    Zstd at "table/codec.rs: zstd",
    /// The name of a log segment's file, for errors.
    SegmentName at "vfs/system/segment.rs and vfs/memory/handle.rs: name",
    /// Names of the file system in memory.
    MemoryTree at "vfs/memory/mod.rs: tree",
    /// Bytes of one file of it.
    MemoryFile at "vfs/memory/file.rs: data",
    /// Faults planted in it.
    MemoryFaults at "vfs/memory/fault.rs: armed",
    /// What it is taken for.
    MemoryKind at "vfs/memory/mod.rs: kind",
    /// A part of the block cache, while a block is looked for, goes in or out.
    CacheShard at "table/cache/blocks.rs: shards",
    /// Numbers of frames of the block cache that are free, or will be.
    FrameStock at "table/cache/frames.rs: stock",
    /// A leap of the wall clock that is not believed yet.
    Leap at "engine/clock.rs: leap",
    /// At which point the database was when.
    PointTimes at "engine/point_times.rs: notes",
}

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
mod imp {
    use super::{Rank, TABLE};
    use std::cell::RefCell;
    use std::panic::Location;

    impl Rank {
        /// False for the locks of tests, which may be taken in any order.
        fn is_checked(self) -> bool {
            (self as usize) < TABLE.len()
        }

        fn label(self) -> (&'static str, &'static str) {
            TABLE.get(self as usize).map_or(("a test's lock", ""), |(name, place, _)| (name, place))
        }
    }

    type Entry = (Rank, &'static Location<'static>);

    thread_local! {
        static HELD: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    }

    /// The locks that a task of a simulator holds while others run.
    #[cfg(any(test, feature = "simulation"))]
    #[cfg_attr(not(feature = "simulation"), allow(unreachable_pub))] // Public in the other build.
    #[derive(Debug, Default)]
    pub struct HeldLocks(Vec<Entry>);

    #[cfg(any(test, feature = "simulation"))]
    #[cfg_attr(not(feature = "simulation"), allow(unreachable_pub))]
    impl HeldLocks {
        /// Exchanges these locks with those that the calling thread holds.
        pub fn exchange(&mut self) {
            HELD.with_borrow_mut(|held| std::mem::swap(held, &mut self.0));
        }
    }

    /// The rank of a lock.
    #[derive(Debug)]
    pub(in super::super) struct Ranked(Rank);

    impl Ranked {
        pub(in super::super) fn new(rank: Rank) -> Ranked {
            Ranked(rank)
        }

        /// Checks that the lock may be taken, and enters it among those held. With `may_repeat`,
        /// locks of the same rank may be held already.
        #[track_caller]
        pub(in super::super) fn enter(&self, may_repeat: bool) -> Held {
            enter(self.0, may_repeat);
            Held(self.0)
        }
    }

    /// A lock's entry in the list of the locks that its thread holds.
    #[derive(Debug)]
    pub(in super::super) struct Held(Rank);

    impl Held {
        /// Runs `wait` on a condition variable, which releases the lock and takes it again.
        #[track_caller]
        pub(in super::super) fn while_given_back<T>(&self, wait: impl FnOnce() -> T) -> T {
            leave(self.0);
            let waited = wait();
            enter(self.0, false);
            waited
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            leave(self.0);
        }
    }

    #[track_caller]
    fn enter(rank: Rank, may_repeat: bool) {
        let here = Location::caller();
        // A thread that ends may have dropped the list already.
        let _ = HELD.try_with(|held| {
            let refused = held.borrow().iter().copied().find(|(other, _)| {
                other.is_checked() && (*other > rank || (*other == rank && !may_repeat))
            });
            if let Some((other, at)) = refused.filter(|_| !std::thread::panicking()) {
                let ((name, place), (other, other_place)) = (rank.label(), other.label());
                panic!(
                    "lock order: {name} ({place}) would be taken at {here} \
                     while {other} ({other_place}) is held since {at}"
                );
            }
            held.borrow_mut().push((rank, here));
        });
    }

    /// Fails if the thread holds a lock: the program's own code runs next, for as long as it wants.
    /// A close keeps other closes and changes of families out until it is over. A callback that
    /// closes the database waits for neither.
    #[track_caller]
    pub(in super::super) fn demand_no_locks() {
        let is_wrong = |entry: &Entry| {
            entry.0.is_checked() && !matches!(entry.0, Rank::Close | Rank::FamiliesChange)
        };
        let held = HELD.try_with(|held| held.borrow().iter().copied().find(is_wrong));
        if let Ok(Some((rank, at))) = held
            && !std::thread::panicking()
        {
            let (name, place) = rank.label();
            panic!("{name} ({place}) is held since {at} while the program is called back");
        }
    }

    /// A lock that the thread holds, and where it was taken.
    pub(in super::super) fn any_held() -> Option<String> {
        let first =
            HELD.try_with(|held| held.borrow().iter().copied().find(|(rank, _)| rank.is_checked()));
        let (rank, at) = first.ok().flatten()?;
        let (name, place) = rank.label();
        Some(format!("{name} ({place}) since {at}"))
    }

    fn leave(rank: Rank) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|(other, _)| *other == rank) {
                held.remove(at);
            }
        });
    }
}

#[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
mod imp {
    use super::Rank;

    /// The locks that a task of a simulator holds while others run. This build does not record
    /// them.
    #[cfg(feature = "simulation")]
    #[derive(Debug, Default)]
    pub struct HeldLocks;

    #[cfg(feature = "simulation")]
    impl HeldLocks {
        /// Does nothing in this build.
        #[inline]
        pub fn exchange(&mut self) {}
    }

    /// Does nothing in this build.
    #[inline]
    pub(in super::super) fn demand_no_locks() {}

    /// Locks keep no ranks in this build.
    #[derive(Debug)]
    pub(in super::super) struct Ranked;

    impl Ranked {
        #[inline]
        pub(in super::super) fn new(_: Rank) -> Ranked {
            Ranked
        }

        #[inline]
        pub(in super::super) fn enter(&self, _: bool) -> Held {
            Held
        }
    }

    /// The entry of a held lock. This build records none.
    #[derive(Debug)]
    pub(in super::super) struct Held;

    impl Held {
        #[inline]
        #[cfg_attr(any(loom, shuttle), allow(dead_code))]
        pub(in super::super) fn while_given_back<T>(&self, wait: impl FnOnce() -> T) -> T {
            wait()
        }
    }
}

#[cfg(feature = "simulation")]
pub use imp::HeldLocks;
#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
pub(super) use imp::any_held;
pub(super) use imp::{Held, Ranked, demand_no_locks};

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::super::sync::{Condvar, Mutex, Rank};
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    /// The message with which `act` panics; `None` if it does not.
    fn refused(act: impl FnOnce()) -> Option<String> {
        let panic = catch_unwind(AssertUnwindSafe(act)).err()?;
        Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
    }

    #[test]
    fn the_program_is_called_back_under_no_lock_of_the_engine() {
        let (engines, programs) = (Mutex::new(Rank::Versions, 0), Mutex::unranked(0));
        let call = || super::super::call_back(&0, || {});
        let _its_own = programs.lock();
        assert!(refused(call).is_none());
        let held = engines.lock();
        let told = refused(call).unwrap();
        assert!(told.contains("is held since") && told.contains("called back"), "{told}");
        drop(held);
        assert!(refused(call).is_none());
    }

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks_and_given_back_in_any() {
        let outer = Mutex::new(Rank::Close, 0);
        let middle = Mutex::new(Rank::Versions, 0);
        let inner = Mutex::new(Rank::Health, 0);
        let (first, second) = (outer.lock(), middle.lock());
        drop(first);
        let third = inner.lock();
        drop(second);
        let told = refused(|| drop(middle.lock())).unwrap();
        for part in ["Versions (engine/mod.rs: versions)", "Health (wal/health.rs: end)", file!()] {
            assert!(told.contains(part), "{told}");
        }
        drop(third);
        drop(middle.lock());
    }

    #[test]
    fn two_locks_of_a_rank_are_refused_unless_another_lock_guards_the_taking_of_both() {
        let (one, other) = (Mutex::new(Rank::View, 0), Mutex::new(Rank::View, 0));
        let held = one.lock();
        assert!(refused(|| drop(other.lock())).is_some());
        drop(other.lock_beside());
        drop(held);
        drop(other.lock());
    }

    #[test]
    fn a_wait_gives_its_lock_back_and_takes_it_again_in_order() {
        let (outer, inner) = (Mutex::new(Rank::Room, 0), Mutex::new(Rank::Health, 0));
        let condvar = Condvar::new();
        let mut waiting = outer.lock();
        condvar.wait_for(&mut waiting, Duration::from_millis(1));
        let within = inner.lock();
        let told = refused(|| condvar.wait_for(&mut waiting, Duration::from_millis(1))).unwrap();
        assert!(told.contains("Room") && told.contains("Health"), "{told}");
        drop(within);
    }

    #[test]
    fn what_is_held_follows_a_task_that_is_exchanged_for_another() {
        let (outer, inner) = (Mutex::new(Rank::Room, 0), Mutex::new(Rank::Health, 0));
        let (mut one, mut other) = (imp::HeldLocks::default(), imp::HeldLocks::default());
        let of_one = inner.lock();
        one.exchange();
        other.exchange();
        let of_other = outer.lock();
        other.exchange();
        one.exchange();
        assert!(refused(|| drop(outer.lock())).is_some(), "the task's own list is back");
        drop(of_one);
        one.exchange();
        other.exchange();
        drop(of_other);
        assert!(refused(|| drop(inner.lock())).is_none());
    }

    #[test]
    fn each_rank_names_a_place_where_there_is_a_lock() {
        for (name, place, _) in TABLE {
            let (files, field) = place.split_once(": ").unwrap();
            for file in files.split(" and ") {
                let path = format!("{}/src/{file}", env!("CARGO_MANIFEST_DIR"));
                let text = std::fs::read_to_string(path).unwrap();
                let is_lock =
                    |line: &str| line.contains(&format!("{field}: ")) && line.contains("Mutex<");
                assert!(text.lines().any(is_lock), "{name}: {file} has no lock {field}");
            }
        }
    }

    #[test]
    fn the_documented_table_is_the_order_that_is_checked() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/locks.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = TABLE.iter().enumerate().map(|(at, (name, place, what))| {
            format!("| {} | `{name}` | `{place}` | {} |", at + 1, what.trim())
        });
        let rows: Vec<String> = rows.collect();
        let is_row = |line: &&str| {
            line.strip_prefix("| ").is_some_and(|row| row.starts_with(|c: char| c.is_ascii_digit()))
        };
        let shown: Vec<&str> = text.lines().filter(is_row).collect();
        assert_eq!(shown, rows, "the table should be\n{}", rows.join("\n"));
    }
}
