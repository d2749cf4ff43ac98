//! Places in the engine that a simulation must reach. They are counted, so that a run shows which
//! ones it never reached.
//!
//! Without the feature `simulation`, which only test harnesses turn on, nothing is counted and
//! `reached` is empty, but in unit tests. With it, each thread has its own counts, because a
//! simulation runs on one thread. To add a place, add a line here and a call
//! `reached(Reach::Name)` in the code. A long run of the simulator that does not reach it then
//! fails and names it.

macro_rules! places {
    ($($place:ident $name:literal $what:literal;)*) => {
        /// A place to come to.
        // Some are for the simulator to say.
        #[cfg_attr(not(feature = "simulation"), allow(dead_code))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Reach {
            $(#[doc = $what] $place,)*
        }

        #[cfg(any(test, feature = "simulation"))]
        #[cfg_attr(not(feature = "simulation"), allow(dead_code))]
        impl Reach {
            /// Every place there is.
            pub const ALL: &[Reach] = &[$(Reach::$place,)*];

            /// Places of the planner that simulated lives hardly come to. Scenes drawn for it do
            /// (`compact/plan/tests/places.rs`), or that test fails.
            pub const OF_SCENES: &[Reach] = &[
                Reach::RunsForLaterJobs,
                Reach::InPlaceAsNew,
                Reach::ShapeGuessedNone,
                Reach::CleanSlice,
                Reach::CleanHeldUp,
                Reach::CleanForLater,
                Reach::CleanNoFewer,
                Reach::OldDeletesBesideDamage,
                Reach::ShortUneven,
            ];

            /// What it is called in reports and ledgers.
            pub fn name(self) -> &'static str {
                match self {
                    $(Reach::$place => $name,)*
                }
            }

            /// What happens there.
            pub fn what(self) -> &'static str {
                match self {
                    $(Reach::$place => $what,)*
                }
            }
        }
    };
}

places! {
    LevelsTwo "levels-two" "a tree has two levels below level 0";
    LevelsThree "levels-three" "a tree has three levels below level 0";
    LevelsFour "levels-four" "a tree has four levels below level 0";
    SlicesFour "slices-four" "a level has four slices";
    SlicesSixteen "slices-sixteen" "a level has sixteen slices";
    PlanMoveRuns "plan-move-runs" "runs that nothing older overlaps are moved down";
    PlanMoveSlices "plan-move-slices" "slices that overlap nothing in the next level are moved down";
    PlanRuns "plan-runs" "level 0 is compacted down since it has enough runs";
    PlanRunsInPlace "plan-runs-in-place" "the newest runs are made into one";
    LandedDeep "landed-deep" "runs are compacted past the first level below them in use, where they overlap nothing";
    RunsHideMuch "runs-hide-much" "few runs count as enough since they hide much garbage in blob files";
    HeldUpByDamage "held-up-by-damage" "slices wait because a damaged one lies beneath them";
    BlobsHeldUp "blobs-held-up" "blob files are not collected because damage holds up slices with values in them";
    FullLevelWaits "full-level-waits" "a level below level 0 is full, and no job for it can begin";
    FullRunsWait "full-runs-wait" "level 0 is full, and no job for it can begin";
    NextFullest "next-fullest" "a level is relieved since no job for a fuller one can begin";
    RunsNoneFree "runs-none-free" "level 0 is to go down, and no run can leave it";
    RunsBarredByLanding "runs-barred-by-landing" "runs stay since a running job writes where they would go";
    RunsBarredBelow "runs-barred-below" "runs stay since no job may read a slice beneath them";
    RunOverStaying "run-over-staying" "a run stays since it lies over an older one that stays";
    RunsForLaterJobs "runs-for-later-jobs" "more runs may leave level 0 than one job may read";
    InPlaceForJobs "in-place-for-jobs" "runs are made into one since they cannot go down";
    InPlaceForDamage "in-place-for-damage" "runs are made into one that damage holds up";
    InPlaceLong "in-place-long" "a run is not made into one with newer ones since it is longer than they are";
    InPlaceFew "in-place-few" "the newest runs are too few to be made into one";
    InPlaceAsNew "in-place-as-new" "a run is not made into one with newer ones since a run that is left is as new";
    MoveRunShort "move-run-short" "a run that nothing older overlaps is not moved since it is short";
    MoveRunPlain "move-run-plain" "a run that nothing older overlaps is not moved since it is not compressed";
    MoveRunDeep "move-run-deep" "a run is moved past the first level below it in use";
    MovePlain "move-plain" "a slice that overlaps nothing is not moved since it is not compressed";
    MoveSeveral "move-several" "several slices of a level move by one edit";
    MoveOfDeletes "move-of-deletes" "slices with deletes that have stayed too long move to the next level";
    MoveManual "move-manual" "slices move to the next level on request";
    MoveLeftOver "move-left-over" "slices of a level left over move to the next one";
    BarredByReader "barred-by-reader" "a slice is no input since a running job reads it";
    BarredByLanding "barred-by-landing" "a slice is no input since a running job writes where it would go";
    BarredBelow "barred-below" "a slice is no input since a running job reads what it overlaps";
    BarredByDamage "barred-by-damage" "a slice is no input since it, or what it overlaps, is damaged";
    WindowFull "window-full" "a job takes no neighbour along since it would read too much";
    WindowDear "window-dear" "a job takes no neighbour along since that overlaps too much";
    ShapeGuessedLarger "shape-guessed-larger" "levels are taken for those of larger batches than the usual";
    ShapeGuessedNone "shape-guessed-none" "levels are too full for batches of any size";
    ShapeTooFewLevels "shape-too-few-levels" "a tree would need more levels than it may have";
    RunBytesFallSlowly "run-bytes-fall-slowly" "smaller runs are reckoned with only slowly, because of full levels";
    RunBytesKept "run-bytes-kept" "smaller runs are not reckoned with, because of full levels";
    DebtOfHeldUp "debt-of-held-up" "runs that damage holds up slow writers";
    PlanNothing "plan-nothing" "no level needs a job though there is time";
    PlanSize "plan-size" "a full level is relieved by a compaction";
    PlanDeletes "plan-deletes" "slices full of deletes are compacted";
    PlanDeletesOfRuns "plan-deletes-of-runs" "level 0 is compacted down since it is full of deletes";
    PlanDeletesOfLevel "plan-deletes-of-level" "slices below level 0 go down since they are full of deletes";
    DeletesFew "deletes-few" "a slice does not go down early since it has few deletes";
    DeletesBySpan "deletes-by-span" "a slice of few deletes counts as full of them for a range delete";
    DeletesOfFewRuns "deletes-of-few-runs" "level 0 does not go down early since most of it is not full of deletes";
    DeletesForReader "deletes-for-reader" "a slice is not rewritten without its deletes, for a reader";
    PlanIdle "plan-idle" "level 0, or a level left over, is compacted down for want of other work";
    PlanLeftOver "plan-left-over" "a level left over is compacted down for want of other work";
    IdleFewRuns "idle-few-runs" "level 0 does not go down early since it has few runs";
    IdleShortRuns "idle-short-runs" "level 0 does not go down early since it is short beside the next level";
    PlanManual "plan-manual" "runs or slices are compacted on request";
    PlanManualOfRuns "plan-manual-of-runs" "runs are compacted down on request";
    PlanManualOfLevel "plan-manual-of-level" "slices below level 0 are compacted down on request";
    PlanManualRewrite "plan-manual-rewrite" "slices of the last level are rewritten on request";
    ManualUnjudged "manual-unjudged" "a request rewrites slices that a compaction filter has yet to judge";
    ManualOverDamage "manual-over-damage" "a request reads a damaged slice";
    ManualDone "manual-done" "a request finds nothing more to do";
    PlanRewrite "plan-rewrite" "slices of the last level are rewritten without their deletes";
    PlanRewriteOld "plan-rewrite-old" "slices of the last level are rewritten for deletes that have stayed too long";
    RewriteSeveral "rewrite-several" "neighbours in the last level are rewritten together";
    PlanManualWait "plan-manual-wait" "a request waits for a job that is in its way";
    WindowGrown "window-grown" "a job takes neighbours of its first slice along";
    LookedAgain "looked-again" "a transaction looks once more at its keys since many have changed meanwhile";
    JudgedByVersions "judged-by-versions" "a commit that has its LSN looks for versions of a key whose word has changed";
    Fenced "fenced" "a compaction of runs leaves out slices of its target between them";
    Guided "guided" "a compaction's outputs lie over slices of the next level";
    CutAtEdge "cut-at-edge" "an output ends at the edge of a slice of the next level";
    CutOverTooMuch "cut-over-too-much" "an output ends since it lies over too much of the next level";
    CutAtFence "cut-at-fence" "an output ends at a fence";
    CutFull "cut-full" "an output ends since it is full";
    CutHeldBack "cut-held-back" "a full output goes on, within the versions of a key";
    CompactedInParts "compacted-in-parts" "a compaction is done in parts";
    VersionsKept "versions-kept" "a compaction keeps several versions of a key";
    VersionsKeptDeep "versions-kept-deep" "a compaction into the second level or below keeps several versions of a key";
    DeleteKept "delete-kept" "a compaction keeps a delete, as older versions may lie beneath";
    DeleteDropped "delete-dropped" "a compaction drops a delete";
    DeleteUnwritten "delete-unwritten" "a flush drops a delete, as nothing older lies in the tree";
    OperandsFolded "operands-folded" "a read makes a value of several operands";
    OperandOverSpan "operand-over-span" "a read finds operands above a range delete of their key";
    ExpiredInGet "expired-in-get" "a get finds a value that has ended at its point";
    RowsBeforeAnother "rows-before-another" "a scan takes rows of a block before the next key of another source";
    RowsLeftBackward "rows-left-backward" "a scan turns back at the first of the rows that it took";
    ExpiredInScan "expired-in-scan" "a scan passes a value that has ended at its point";
    ExpiredRewritten "expired-rewritten" "a flush or a compaction finds a value that has ended for every reader";
    ExpiredRelied "expired-relied" "a commit finds that a value has ended that it had read";
    PlanEnded "plan-ended" "slices whose values have all ended leave the tree unread";
    EndedHeldForReader "ended-held-for-reader" "a slice whose values have all ended stays for a reader";
    EndedHeldForJob "ended-held-for-job" "a slice whose values have all ended stays since a running job reads it";
    EndedOverOthers "ended-over-others" "a slice whose values have all ended stays for what lies beneath it";
    FilterRemoved "filter-removed" "a compaction filter removes a value";
    FilterReplaced "filter-replaced" "a compaction filter replaces a value";
    FilterHeldBack "filter-held-back" "a compaction filter is not asked, because a reader sees the value";
    ViewHeld "view-held" "a view is held for readers who began before a filter changed values";
    ViewHeldRead "view-held-read" "a reader reads a view that is held";
    ValueSeparated "value-separated" "a flush or a compaction moves a value to a blob file";
    PlanCollect "plan-collect" "slices are rewritten for the garbage in their blob files";
    PlanCollectRuns "plan-collect-runs" "level 0 is compacted down since it hides what is garbage in blob files";
    CollectFirst "collect-first" "garbage in blob files comes before the levels, which are less over their measure";
    CollectAfterLevel "collect-after-level" "garbage in blob files waits for a level that is further over its measure";
    CollectWaits "collect-waits" "garbage in blob files comes first, and no slice with it may be read";
    CollectShared "collect-shared" "a slice is rewritten for garbage though a clone shares its blob files";
    CollectSeveral "collect-several" "neighbours are rewritten together for the garbage in their blob files";
    PlanClean "plan-clean" "slices are rewritten since the table files in which they lie are mostly dead";
    PlanCleanRun "plan-clean-run" "a run is rewritten in place since its table file is mostly dead";
    PlanCleanRuns "plan-clean-runs" "runs are compacted down since their table files are mostly dead";
    CleanSlice "clean-slice" "a slice below level 0 is rewritten where it is since its table file is mostly dead";
    CleanHeldUp "clean-held-up" "a table file is not left since damage holds up a slice in it";
    CleanForLater "clean-for-later" "more slices are to leave their table files than do so at once";
    CleanUnpaid "clean-unpaid" "a table file with dead bytes is not left since that costs too much";
    CleanEnough "clean-enough" "slices are to leave enough table files for now";
    CleanRunsDear "clean-runs-dear" "runs do not leave their table files together since that costs too much";
    CleanNoFewer "clean-no-fewer" "runs do not leave their table files together since as many slices would come of them";
    PlanOldDeletes "plan-old-deletes" "deletes go down since they have stayed as long as the family allows";
    PlanOldDeletesOfRuns "plan-old-deletes-of-runs" "level 0 is compacted down since its deletes have stayed too long";
    PlanOldDeletesOfLevel "plan-old-deletes-of-level" "slices below level 0 go down since their deletes have stayed too long";
    OldDeletesStay "old-deletes-stay" "deletes have stayed too long in runs that cannot leave level 0";
    OldDeletesUndated "old-deletes-undated" "deletes of unknown age are taken for too old";
    OldDeletesLast "old-deletes-last" "level 0 is crowded, and deletes below it go down for want of other work";
    OldDeletesBesideDamage "old-deletes-beside-damage" "damage crowds level 0, and old deletes of other runs go down for want of other work";
    DeletesTakeTurns "deletes-take-turns" "level 0 is crowded, and deletes that are overdue get a turn before it";
    PlanShort "plan-short" "short neighbours of the last level are made into longer slices";
    ShortFew "short-few" "short neighbours of the last level are too few to be made longer";
    ShortFull "short-full" "more neighbours are short than one job takes";
    ShortUneven "short-uneven" "a short slice is left out since it is longer than its neighbours together";
    ShortShared "short-shared" "short neighbours stay as they are, as a clone may share them";
    BlobValueMoved "blob-value-moved" "a compaction moves a value to another blob file";
    BlobValueJoinsOthers "blob-value-joins-others" "a compaction moves a value because its slice has values in too many blob files";
    SliceFullOfValues "slice-full-of-values" "an output ends because of its values in blob files";
    BlobValueGot "blob-value-got" "a get fetches a value from a blob file";
    BlobValueShown "blob-value-shown" "a scan fetches a value from a blob file";
    BlobValuesTogether "blob-values-together" "a get of several keys reads several values at once";
    BlobValueAhead "blob-value-ahead" "a scan has read a value ahead";
    BlobValueJoined "blob-value-joined" "a filter or an operand has a compaction fetch a value";
    OperandsRewritten "operands-rewritten" "a flush or a compaction judges the operands of a key";
    FilterClear "filter-clear" "a filter tells that a slice has no version of a deleted key";
    RetainAtPoint "retain-at-point" "a compaction judges a version whose sequence is a snapshot's point";
    RetainAtOldest "retain-at-oldest" "a compaction judges a version whose sequence is the oldest reader's point";
    PointTooOld "point-too-old" "a snapshot takes a newer point, as a compaction began while it registered the first one";
    PointInMap "point-in-map" "a snapshot's point finds no slot";
    MilestoneSet "milestone-set" "a key in memory has so many versions that one is a milestone";
    MilestonePassed "milestone-passed" "a reader jumps over versions in memory that it does not see";
    ReadAtPointInMemory "read-at-point-in-memory" "a get passes a version in memory whose sequence is its point";
    ReadAtPointInTable "read-at-point-in-table" "a search in a block passes a version whose sequence is its point";
    RestartAtPoint "restart-at-point" "a restart of a block has the searched key, and its sequence is the point";
    ReadAtPointInScan "read-at-point-in-scan" "a scan passes a version whose sequence is its point";
    ConcatSeekLeast "concat-seek-least" "a level is searched for the least key of one of several slices";
    ConcatCrossed "concat-crossed" "a cursor goes on from one slice to the next";
    ConcatCrossedBack "concat-crossed-back" "a cursor goes back from one slice to the one before";
    MemtableDenied "memtable-denied" "the filter of a memtable tells that it does not hold a key";
    KeysInOneBlock "keys-in-one-block" "two keys of one read lie in one block";
    BlocksAnnounced "blocks-announced" "a read of several keys announces the blocks that it needs";
    CacheHit "cache-hit" "a block is found in the cache";
    BatchLarge "batch-large" "a batch has more than 1,000 operations";
    BatchRepeats "batch-repeats" "a batch has several operations on a key, and is sorted";
    BatchSharedHeads "batch-shared-heads" "a sorted batch has different keys with the same first eight bytes";
    KeyEmpty "key-empty" "an empty key is written";
    KeyLong "key-long" "a key of more than 1 KiB is written";
    KeyLongest "key-longest" "a key of the greatest length is written";
    ValueLarge "value-large" "a value of more than 64 KiB is written";
    SealRaced "seal-raced" "a commit goes into an epoch that was sealed after it had its LSN";
    EpochsTwo "epochs-two" "two sealed epochs wait for their flush";
    StallMemory "stall-memory" "a writer waits for a flush";
    StallPaced "stall-paced" "a writer is slowed down for compactions";
    RoomWaited "room-waited" "a writer waits for room in the log";
    SegmentRecycled "segment-recycled" "a log segment is written again";
    SegmentOtherLength "segment-other-length" "an open finds log segments of another length";
    RecordAcross "record-across" "a log record goes over the end of a segment";
    RingLap "ring-lap" "a commit waits since it is more than a lap ahead of the frontier";
    RingReused "ring-reused" "a mark is put where one of an earlier lap is";
    EditsJoint "edits-joint" "several edits share a record of the manifest";
    CeilingRaised "ceiling-raised" "the ceiling of LSNs is raised while the log is open";
    RecoveryInPieces "recovery-in-pieces" "a recovery installs tables before it is at the end of the log";
    RecoveryTorn "recovery-torn" "a recovery finds a torn record at the end of the log";
    RecoveryHole "recovery-hole" "a recovery discards records behind a hole in the log";
    ManifestTorn "manifest-torn" "an open discards a torn edit at the end of the manifest";
    OrphansRemoved "orphans-removed" "an open removes files that nothing names";
    OpenKilledTwice "open-killed-twice" "two opens in a row die";
    OpenKilledThrice "open-killed-thrice" "three opens in a row die";
    Preempted "preempted" "a task gives way between two labels, at an access to shared data";
    DiskSlow "disk-slow" "an operation on files takes time";
    DiskStalled "disk-stalled" "an operation on files stands still for long";
    DiskOvertaken "disk-overtaken" "an operation on files takes effect before one that began earlier";
    CopyTorn "copy-torn" "a copy into a log segment becomes visible in two pieces";
    CopyTornBackward "copy-torn-backward" "the last piece of a copy into a log segment comes first";
    CopyTornAtDeath "copy-torn-at-death" "the machine dies between two pieces of a copy";
    AppendHalved "append-halved" "a killed process has handed over half of what it appended";
    ClockForward "clock-forward" "the wall clock is set forward";
    ClockBack "clock-back" "the wall clock is set back";
    LeapDoubted "leap-doubted" "the wall clock has leapt ahead, and is not believed";
    ClockKept "clock-kept" "the wall clock shows a time to which an earlier life has set it";
    DamagedOpen "damaged-open" "something is damaged while the database is open";
    BitsFlipped "bits-flipped" "bits of a file are flipped";
    SectorsZeroed "sectors-zeroed" "sectors of a file become zeros";
    SectorsMisdirected "sectors-misdirected" "sectors of a file hold what belongs elsewhere";
    SectorsStale "sectors-stale" "sectors of a file hold what they held a life ago";
    FileMissing "file-missing" "a file is gone";
    ThreadLate "thread-late" "a thread starts late";
    ThreadLacking "thread-lacking" "a thread of the engine cannot be started";
    ListShuffled "list-shuffled" "the entries of a directory come in another order than that of their names";
    OpenedTwice "opened-twice" "a second open of an open database is refused";
    DescriptorsOut "descriptors-out" "the process runs out of file descriptors";
    DiskFull "disk-full" "the disk is full for a while";
    RangeAwaited "range-awaited" "a transaction has waited for the lock on a range";
    LockedSinceOvertaken "locked-since-overtaken" "a commit locks what it writes since others have overtaken it";
    LockOvertook "lock-overtook" "who locks a key has announced commits look for locks again";
    RangeLocked "range-locked" "a transaction locks a range that the program names";
    AbortIdle "abort-idle" "a transaction is ended between two calls";
    AbortBusy "abort-busy" "a transaction is ended during a call";
    AbortLate "abort-late" "a transaction is to be ended when its commit may be written";
    TimedOut "timed-out" "a transaction has taken longer than its timeout";
    IdledOut "idled-out" "a transaction was not called for longer than its idle timeout";
    AnomalyWriteSkew "anomaly-write-skew" "two Snapshot transactions commit each of which read what the other wrote";
    AnomalyPhantom "anomaly-phantom" "a RepeatableRead transaction commits though a key was put into what it had scanned";
    AnomalyLostUpdate "anomaly-lost-update" "a ReadCommitted transaction commits over a change of a key that it had read before";
    AnomalyReadSkew "anomaly-read-skew" "no one moment explains what a ReadCommitted transaction has read";
    CreateCut "create-cut" "an open finds a creation that was cut short";
    SpanWritten "span-written" "a range delete is written";
    SpanHidInMemory "span-hid-in-memory" "a get finds a range delete in a memtable and looks no further";
    SpanHidInTable "span-hid-in-table" "a get finds a range delete in a table and looks no further";
    SpanBelowVersion "span-below-version" "a get finds a version that is newer than a range delete of the same source";
    SpanHidInScan "span-hid-in-scan" "a scan passes a version that a range delete hides";
    SpanSkipped "span-skipped" "a scan moves older sources to the end of a range delete";
    SpanCut "span-cut" "a range delete is cut where an output of a compaction ends";
    SpanDropped "span-dropped" "a compaction drops a range delete that nothing older lies beneath";
    SpanHidInCompaction "span-hid-in-compaction" "a compaction drops a version that a range delete hides";
    SpanKeptForReader "span-kept-for-reader" "a compaction keeps a version under a range delete, for a reader before that";
    SpanOnlySlice "span-only-slice" "a slice of range deletes without a key is written";
    PlanDrop "plan-drop" "slices that range deletes cover leave unread";
    DropHeldForReader "drop-held-for-reader" "a slice that range deletes cover stays for a reader";
    DropHeldForJob "drop-held-for-job" "a slice under newer range deletes stays since a running job reads it";
    DropUncovered "drop-uncovered" "a slice under newer range deletes stays since they do not cover all its keys";
    PreparedFiled "prepared-filed" "a flush writes a prepared transaction to a file";
    PreparedFiledCommitted "prepared-filed-committed" "a flush writes a prepared transaction to a file though it is committed, in a later epoch";
    PreparedUnfiled "prepared-unfiled" "a flush removes the file of a prepared transaction with its decision";
    PreparedRecovered "prepared-recovered" "a recovery finds a prepared transaction in the log and files it";
    PreparedReplayed "prepared-replayed" "a recovery applies a prepared transaction that the log decides";
    PreparedRestored "prepared-restored" "an open locks what a prepared transaction has locked";
    SpanConflict "span-conflict" "a transaction finds a range delete over what it relies on";
    SpanInTransaction "span-in-transaction" "a transaction deletes a range";
    SpanOwnHid "span-own-hid" "a scan of a transaction finds a key in a range that the transaction has deleted";
    CommittedLarge "committed-large" "a transaction commits without putting back what it has spilled";
    StreamWritten "stream-written" "a value that is written piece by piece gets a file of its own";
    StreamReplayed "stream-replayed" "a recovery takes charge of a stream that the log names";
    StreamRead "stream-read" "a read opens the file of a stream";
    LayerLaid "layer-laid" "a large commit lays its files over the tree";
    LayerFlushed "layer-flushed" "a flush takes in what a large commit has laid over the tree";
    LayerReplayed "layer-replayed" "a recovery takes in the files of a large commit";
    LayerMetByJudge "layer-met-by-judge" "a commit starts over because a large commit came in between";
    LayerHit "layer-hit" "a get finds its key in the files of a large commit";
    SpillsMerged "spills-merged" "a transaction makes one file of several";
    Spilled "spilled" "a transaction moves what it has written to a file";
    GapAnnounced "gap-announced" "a gap is announced while commits are under way";
    GapKnownAtOnce "gap-known-at-once" "a gap is known at once, since no commit is under way";
    GapConfirmed "gap-confirmed" "a later scan makes an announced gap known";
    GapCut "gap-cut" "a put cuts its key out of a gap";
    GapPassed "gap-passed" "a scan jumps over a gap";
    GapPassedFirst "gap-passed-first" "a scan begins at the end of a gap that its lower bound lies in";
    GapPassedBack "gap-passed-back" "a scan jumps over a gap backward";
    GapUnderOwn "gap-under-own" "a scan jumps over a gap in all sources but what its transaction has written";
    GapUnchanged "gap-unchanged" "a commit need not look for changes in a part of what its scans passed, as a gap lies there";
    FamilyCloned "family-cloned" "a family is cloned";
    CloneConflict "clone-conflict" "a transaction relies on what it read in a clone that is younger than itself";
    CloneUnseen "clone-unseen" "a reader from before a clone finds nothing in it";
    SharedRewritten "shared-rewritten" "a compaction rewrites a slice that was written for another family";
    RetriedInDoubt "retried-in-doubt" "a batch is written once more after a commit of unknown outcome";
    SpanLost "span-lost" "a transaction finds a change in a range that it has deleted";
}

#[cfg(not(any(test, feature = "simulation")))]
#[inline(always)]
pub(crate) fn reached(_place: Reach) {}

/// Counts a place if `is_there`; without the feature it does not even call it.
#[cfg(not(any(test, feature = "simulation")))]
#[inline(always)]
pub(crate) fn reached_if(_place: Reach, _is_there: impl FnOnce() -> bool) {}

#[cfg(any(test, feature = "simulation"))]
pub(crate) use counting::reached_if;
#[cfg(any(test, feature = "simulation"))]
pub use counting::{reached, take};

#[cfg(any(test, feature = "simulation"))]
mod counting {
    use super::Reach;
    use std::cell::Cell;

    thread_local! {
        static COUNTS: [Cell<u64>; Reach::ALL.len()] =
            const { [const { Cell::new(0) }; Reach::ALL.len()] };
    }

    /// Counts a place for the calling thread of the system.
    #[inline]
    pub fn reached(place: Reach) {
        COUNTS.with(|counts| {
            let count = &counts[place as usize];
            count.set(count.get() + 1);
        });
    }

    /// Counts a place if `is_there`.
    #[inline]
    pub(crate) fn reached_if(place: Reach, is_there: impl FnOnce() -> bool) {
        if is_there() {
            reached(place);
        }
    }

    /// How often the calling thread came to each place since it last asked, in the order of
    /// [`Reach::ALL`].
    pub fn take() -> Vec<u64> {
        COUNTS.with(|counts| counts.iter().map(Cell::take).collect())
    }
}
