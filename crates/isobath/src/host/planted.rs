//! Bugs that a test harness plants, to show that it would find them. Each is planted where the real
//! bug would be, behind a call of `planted`. A bug that takes more than a line or two is a function
//! in `plants.rs` of its room.
//!
//! Without the feature `simulation`, which only test harnesses turn on, no bug can be planted:
//! `planted` is the constant `false`, and the compiler removes what it guards. With it, a harness
//! plants one bug at a time, for the whole process ([`plant`]) or only for its own thread
//! ([`plant_here`]; a simulation runs on one thread).
//!
//! The classes are kinds of mistakes that have lost data in other systems, by the numbers of
//! `docs/testing.md`.

macro_rules! plants {
    ($($class:literal $bug:ident $name:literal $what:literal;)*) => {
        /// A bug that can be planted, one at a time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Plant {
            /// No bug.
            #[cfg(feature = "simulation")]
            Nothing,
            $(#[doc = $what] $bug,)*
        }

        #[cfg(feature = "simulation")]
        impl Plant {
            /// Every bug there is.
            pub const ALL: &[Plant] = &[$(Plant::$bug,)*];

            /// What it is called in commands and tables.
            pub fn name(self) -> &'static str {
                match self {
                    Plant::Nothing => "nothing",
                    $(Plant::$bug => $name,)*
                }
            }

            /// The class of mistakes that it stands for; 0 for none.
            pub fn class(self) -> u8 {
                match self {
                    Plant::Nothing => 0,
                    $(Plant::$bug => $class,)*
                }
            }

            /// What is wrong.
            pub fn what(self) -> &'static str {
                match self {
                    Plant::Nothing => "no bug",
                    $(Plant::$bug => $what,)*
                }
            }
        }
    };
}

plants! {
    1 LogRetiredEarly "log-retired-early" "log segments are given up before the flushed table is in the manifest";
    1 RecoveryEatsLog "recovery-eats-log" "recovery removes the old log before its edit";
    1 SweptEarly "swept-early" "an open removes files that only an edit not synced yet has removed";
    2 FileNumberReused "file-number-reused" "an open hands out the newest table's number again";
    2 TableNotSynced "table-not-synced" "the manifest names tables that were not synced";
    2 RecoveryInTwoEdits "recovery-in-two-edits" "recovery ends the term before it installs what it replayed";
    3 TornTailAccepted "torn-tail-accepted" "the checksum of a log record's payload is not looked at";
    3 TornTailFatal "torn-tail-fatal" "a torn record at the end of the log makes the open fail";
    4 SyncSkipped "sync-skipped" "the log is never synced";
    4 HoleAcknowledged "hole-acknowledged" "a sync is acknowledged though earlier commits are not copied yet";
    4 HoleAccepted "hole-accepted" "recovery goes on behind a log record that is missing";
    4 FrontierSkipped "frontier-skipped" "a commit returns before those ahead of it are finished";
    5 TableNameNotSynced "table-name-not-synced" "the directory of tables is not synced";
    5 CurrentNotSynced "current-not-synced" "the switch to a new manifest is not synced";
    5 RenamedBeforeSynced "renamed-before-synced" "CURRENT is renamed into place before its bytes are synced";
    5 SegmentNameNotSynced "segment-name-not-synced" "a log segment is used before its name is synced";
    6 FailedSyncRetried "failed-sync-retried" "a failed sync of the log is tried again and then believed";
    6 FailedTableSyncIgnored "failed-table-sync-ignored" "a table whose sync failed is used";
    6 FailedEditIgnored "failed-edit-ignored" "an edit whose sync failed counts as written";
    6 FailedFlushForgotten "failed-flush-forgotten" "an epoch whose flush found no room is given up as flushed";
    7 SealForgetsRacers "seal-forgets-racers" "a commit beyond the marker goes into the sealed epoch";
    7 FlushedBeforeComplete "flushed-before-complete" "an epoch is flushed while commits of it are under way";
    8 SnapshotSeesTooMuch "snapshot-sees-too-much" "a snapshot's point is the log's tail";
    8 PointBeforeView "point-before-view" "a reader takes its point before its view, and does not look again";
    9 PointNotRegistered "point-not-registered" "a snapshot's point is not in its slot";
    9 PointNotChecked "point-not-checked" "a snapshot's point is not compared with the horizon of compactions";
    9 SnapshotIgnored "snapshot-ignored" "compactions keep nothing for snapshots";
    10 TombstoneDropped "tombstone-dropped" "a compaction drops deletes though older versions lie beneath";
    10 DeleteUnwritten "delete-unwritten" "a flush drops deletes though older versions lie in the tree";
    10 OperandOverSpan "operand-over-span" "a read applies operands to what a range delete has removed beneath them";
    10 OperandOverPoint "operand-over-point" "a flush or a compaction folds operands across the points of readers";
    10 OperandsBaseDropped "operands-base-dropped" "a flush or a compaction takes operands for alone though a value lies beneath";
    10 ExpiryIgnored "expiry-ignored" "a get shows values that have ended";
    10 ExpiredTooEarly "expired-too-early" "flushes and compactions drop what has ended at the newest point, not at the oldest";
    10 ExpiredHidesNothing "expired-hides-nothing" "flushes and compactions drop values that have ended though older ones lie beneath";
    10 EndedDroppedOverOthers "ended-dropped-over-others" "slices whose values have ended leave though older ones lie beneath";
    10 LeapBelieved "leap-believed" "a wall clock that leaps ahead is believed at once";
    10 TicksForgotten "ticks-forgotten" "the manifest is told of no tick";
    17 ExpiryNotValidated "expiry-not-validated" "a commit does not look whether values that it has read have ended";
    10 FilterLosesExpiry "filter-loses-expiry" "a value that a filter replaces does not end any more";
    10 FilterUnasked "filter-unasked" "deletes are dropped though filters tell that older versions may lie beneath";
    10 MemtableDenies "memtable-denies" "the filter of a memtable is not told of keys";
    10 FilterDenies "filter-denies" "a filter denies keys that it was given, deletes too";
    10 OverlappingFiles "overlapping-files" "a compaction leaves a file of its target level out, and the level takes both";
    17 LockNotDraining "lock-not-draining" "who locks a key does not wait for writers that have announced on it";
    17 BitClearedByFirst "bit-cleared-by-first" "the first of two locked keys of a slot to be released clears the slot's bit";
    17 EdgesToHoldersOnly "edges-to-holders-only" "deadlocks are looked for among holders of locks, not among those who wait before";
    17 PutIgnoresLock "put-ignores-lock" "a plain write does not ask whether its key is locked";
    17 PointMovedBeforeChecked "point-moved-before-checked" "a transaction whose read point moves releases the old one before it has checked its reads";
    17 LockedReadsOld "locked-reads-old" "a locking read does not wait until the last commit on its key is visible";
    12 DeletedInUse "deleted-in-use" "a compaction removes its inputs while readers have them";
    12 FilesLeaked "files-leaked" "files that nothing needs stay";
    13 FamilyNotSynced "family-not-synced" "a family is created or dropped in the manifest before the log is synced";
    13 FamilyHalfDropped "family-half-dropped" "a family is dropped in the log and never in the manifest";
    13 FamilyReplayedTwice "family-replayed-twice" "recovery applies changes of families that the manifest holds";
    14 BlockChecksumSkipped "block-checksum-skipped" "the checksums of table blocks are not looked at";
    14 DamageSkipped "damage-skipped" "a damaged block counts as one without the key";
    15 SequenceWraps "sequence-wraps" "tables keep 32 bits of a sequence";
    15 FileNumberWraps "file-number-wraps" "file numbers start again after 24";
    16 KeyLengthBelieved "key-length-believed" "a log record's keys may have any length";
    16 LengthBelieved "length-believed" "a decoder does not hold lengths against what is left";
    16 EntryBelieved "entry-believed" "an entry of a block may run past the block's end";
    16 DescentBelieved "descent-believed" "a walk back does not look whether keys descend";
    16 PrefixWraps "prefix-wraps" "the end of a prefix whose last byte is the greatest wraps round";
    16 EditBelieved "edit-believed" "the checksum of a manifest's edit is not looked at";
    17 ReadsNotValidated "reads-not-validated" "a commit does not validate what it read";
    17 ValidatedBeforeReserve "validated-before-reserve" "a commit validates before it has its LSN, and not again";
    17 PendingMiscounted "pending-miscounted" "a commit takes one other announcement on each slot for its own";
    17 PendingOverflows "pending-overflows" "who announces on a full slot is not counted";
    17 ReserveFailedStaysPending "reserve-failed-stays-pending" "a commit that finds no room leaves its announcement";
    17 StampedAfterPublish "stamped-after-publish" "a commit takes its announcement back and stamps once it is visible";
    17 ProbeNotWaiting "probe-not-waiting" "a commit does not wait for those before it where it finds no newer version";
    17 DroppedFamilyValidated "dropped-family-validated" "a dropped family counts as one where nothing has changed";
    17 GateNotRechecked "gate-not-rechecked" "a writer that found the gate closed does not look again";
    17 EnteredWhileOpening "entered-while-opening" "a commit enters a gate that is not open yet";
    17 LeftGateBeforeVisible "left-gate-before-visible" "a commit leaves the gate at its stamp, and writers only look whether it is closed";
    17 StampsBelievedBelowValid "stamps-believed-below-valid" "a commit believes stamps from before the gate was opened";
    16 CurrentBelieved "current-believed" "the checksum in CURRENT is not looked at";
    17 RangeToLastKey "range-to-last-key" "a scan counts as passed only up to the last key that it returned";
    17 RangeSkipsDeletes "range-skips-deletes" "the check of what scans passed overlooks deletes";
    17 SplitForgetsSequence "split-forgets-sequence" "a leaf split off from another one knows no sequence number";
    17 AbortNotHonoured "abort-not-honoured" "a commit goes on though its transaction was ended";
    17 RangeCoveredUnchecked "range-covered-unchecked" "a range that is locked counts as unchanged since the read point";
    17 RangeGrantedUnpublished "range-granted-unpublished" "who has waited for a range is told that it has it before writers can see the range";
    17 RollbackKeepsIndex "rollback-keeps-index" "a key that was first written after a savepoint stays written when it is rolled back to";
    17 RegisteredAfterPublish "registered-after-publish" "a prepared transaction is entered for flushes once its record is visible";
    17 PrepareNotFiled "prepare-not-filed" "a flush moves on past a prepared transaction without writing it to a file";
    17 FiledOnlyUndecided "filed-only-undecided" "a flush leaves out a prepared transaction whose commit is not flushed yet";
    17 InstallForgetsEntries "install-forgets-entries" "a recovery files prepared transactions in its last edit alone";
    17 MutexHeldWhileAdmitting "mutex-held-while-admitting" "a flush waits for the thread that decides a prepared transaction";
    17 DecidedTwice "decided-twice" "a prepared transaction stays in doubt after its decision";
    17 InDoubtUnlocked "in-doubt-unlocked" "a recovery leaves the keys of prepared transactions unlocked";
    10 ExtentsIgnoreSpans "extents-ignore-spans" "where a slice begins and ends is judged without its range deletes";
    10 SpanDroppedEarly "span-dropped-early" "a compaction drops range deletes though something older lies beneath";
    10 SpanNotTruncated "span-not-truncated" "each output of a compaction has the range deletes of all that come behind it, too";
    10 SpanHidesNewer "span-hides-newer" "a range delete hides what was written after it";
    17 DeletedRangesUnchecked "deleted-ranges-unchecked" "the first committer wins single keys, not the ranges that a transaction deletes";
    17 RangeDeleteKeepsWrites "range-delete-keeps-writes" "a range delete of a transaction leaves what the transaction had put there before";
    17 SpansBehindKeys "spans-behind-keys" "a transaction's range deletes get greater sequence numbers than its puts";
    17 SpillsReadOldestFirst "spills-read-oldest-first" "a transaction's get asks its spill files oldest first";
    17 LayerNotJudged "layer-not-judged" "a commit judges what changed before it by memtables alone though a large commit came between";
    8 LayerSeenTooEarly "layer-seen-too-early" "a reader at an older point sees what a large commit wrote";
    17 GapKeptOverLayer "gap-kept-over-layer" "a gap stays though a large commit puts keys into it";
    5 SpillNamesNotSynced "spill-names-not-synced" "a large commit does not sync the names of its files";
    17 HullNotFlushed "hull-not-flushed" "a large commit leaves what was written before it in the memtables";
    17 SpillsPutBackwards "spills-put-backwards" "a commit puts the newest spill file beneath the oldest";
    10 DroppedThoughRead "dropped-though-read" "slices that a range delete covers leave the tree though a reader sees them";
    8 RowsBeyondThePoint "rows-beyond-the-point" "a scan takes rows of a block without regard to its point";
    8 RowsBeyondTheNext "rows-beyond-the-next" "a scan takes rows of a block that lie beyond a key of another source";
    8 GapKeptOverPut "gap-kept-over-put" "a put leaves the gap that it falls into";
    8 GapKnownUntouched "gap-known-untouched" "a gap is known without regard to commits that had their LSN before it was announced";
    8 GapsBeforePoint "gaps-before-point" "a scan takes the gaps before its point";
    8 GapForOlderReaders "gap-for-older-readers" "a gap is used at points before its own";
    2 BlobNotSynced "blob-not-synced" "the manifest names blob files that were not synced";
    8 AddressShown "address-shown" "a scan takes what a table has of a separated value for the value";
    10 SeparatedForGood "separated-for-good" "a value that ends does not end any more once it lies in a blob file";
    10 AddressJoined "address-joined" "compactions show filters and merge operators where a value lies, not the value";
    10 AddressFolded "address-folded" "reads apply operands to where a value lies, not to the value";
    12 BlobDeletedInUse "blob-deleted-in-use" "a compaction removes the blob files of its inputs while others have values there";
    12 BlobOwnedTwice "blob-owned-twice" "a blob file that goes over to another slice goes with the first of the two";
    12 BlobsHalfNamed "blobs-half-named" "a slice names only one of the blob files where it has values";
    14 AddressOff "address-off" "a value is asked for at the place of its blob file's first one";
    14 BlobCachedByFile "blob-cached-by-file" "the values of a blob file share one place in the cache";
    2 StreamNotSynced "stream-not-synced" "the record of a stream comes before the sync of its file";
    12 StreamNotClaimed "stream-not-claimed" "a recovery does not take charge of the streams that the log names";
    12 StreamGoesWithFlush "stream-goes-with-flush" "the file of a stream goes with the flush of its epoch though a view needs it";
    8 CloneSeenTooEarly "clone-seen-too-early" "a reader from before a clone sees what is in it";
    8 CloneNotFlushed "clone-not-flushed" "a clone of a family lacks what is in memory";
    17 CloneNotJudged "clone-not-judged" "a commit that has read in a clone does not ask whether it began before that";
    10 SpanOnlySliceLost "span-only-slice-lost" "a slice of range deletes without a key is not written";
    10 OrdinalIgnored "ordinal-ignored" "a compaction takes the range deletes of a commit for later than all that it puts";
    15 ChargeForgotten "charge-forgotten" "the memory of a block stays charged when the block goes";
}

/// True if this bug is planted.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn planted(_bug: Plant) -> bool {
    false
}

#[cfg(feature = "simulation")]
pub(crate) use armed::planted;
#[cfg(feature = "simulation")]
pub use armed::{plant, plant_here};

#[cfg(feature = "simulation")]
mod armed {
    use super::Plant;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU8, Ordering};

    static EVERYWHERE: AtomicU8 = AtomicU8::new(Plant::Nothing as u8);
    thread_local! {
        static HERE: Cell<Plant> = const { Cell::new(Plant::Nothing) };
    }

    /// Plants a bug for the whole process, in place of the earlier one.
    pub fn plant(bug: Plant) {
        EVERYWHERE.store(bug as u8, Ordering::Relaxed);
    }

    /// Plants a bug for everything that this thread of the system runs, in place of the earlier
    /// one.
    pub fn plant_here(bug: Plant) {
        HERE.set(bug);
    }

    /// True if this bug is planted.
    #[inline]
    pub(crate) fn planted(bug: Plant) -> bool {
        HERE.get() == bug || EVERYWHERE.load(Ordering::Relaxed) == bug as u8
    }
}
