//! Records: a key with its versions, in the arena.
//!
//! ```text
//! record   | newest: pointer | key_len: u32, 4 bytes unused | key, padded to 8 | its first version |
//! version  | older: pointer  | seq: u64 | about: u64 | value, padded to 8 | perhaps a milestone |
//! ```
//!
//! Everything except the pointers to the newest and to older versions is immutable once a record or
//! version is published. The versions of a key form a list by descending sequence number, which
//! only grows. The list changes under the lock of the key's leaf, and is read without the lock. A
//! new key and its first version are one allocation.
//!
//! # Milestones
//!
//! A reader at an old point would walk over all newer versions of a key, and a key that is written
//! again and again has very many. So about each sixteenth version is a *milestone*: it points to
//! the milestone before it, and to one further back, such that the way to each grows with the
//! logarithm of its distance (E. Myers, *An applicative random-access stack*, 1983). What lies
//! between a version that a reader does not see and an older one that it does not see either, it
//! does not see: the list descends, and what is linked in later has its place in that order. So a
//! milestone stays true and is never changed.

use super::arena::Arena;
use crate::env::sync::atomic::{AtomicPtr, Ordering::*};
use crate::env::{Reach, prefetch, reached, reached_if};
use crate::format::{Lsn, OpKind};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

#[repr(C)]
pub(super) struct RecordHeader {
    newest: AtomicPtr<VersionHeader>,
    key_len: u32,
}

#[repr(C)]
struct VersionHeader {
    older: AtomicPtr<VersionHeader>,
    seq: Lsn,
    /// Length of the value, marks, and kind. See [`LEN_SHIFT`].
    about: u64,
}

/// The value's length takes the upper 48 bits. Below them one bit says that this is a milestone,
/// and seven count the versions from the milestone before it on; then comes the kind.
const LEN_SHIFT: u32 = 16;
const IS_MILESTONE: u64 = 1 << 15;
const COUNT_SHIFT: u32 = 8;
const COUNT_MAX: u64 = 0x7f;
/// Behind so many versions without a milestone the next one becomes one.
const BETWEEN_MILESTONES: u64 = if cfg!(any(test, feature = "simulation")) { 2 } else { 15 };

/// Lies behind the value of a version, padded to 8. Written before the version is published.
#[derive(Clone, Copy)]
#[repr(C)]
struct Milestone<'a> {
    /// The milestone before it; `None` for the first one of a key.
    previous: Option<Version<'a>>,
    /// An older milestone; of the first one, itself.
    jump: Version<'a>,
    /// How many milestones are older.
    depth: u64,
}

/// A key with its versions, in an arena that lives for `'a`.
#[derive(Clone, Copy)]
pub(super) struct Record<'a>(NonNull<RecordHeader>, PhantomData<&'a Arena>);

/// One version of a key, in an arena that lives for `'a`.
#[derive(Clone, Copy)]
pub(super) struct Version<'a>(NonNull<VersionHeader>, PhantomData<&'a Arena>);

// SAFETY: both are shared references to memory that is immutable or atomic.
unsafe impl Send for Record<'_> {}
// SAFETY: as above.
unsafe impl Send for Version<'_> {}

const GRANULE: usize = align_of::<VersionHeader>();
const _: () = assert!(align_of::<RecordHeader>() <= GRANULE && GRANULE <= 8);

impl<'a> Record<'a> {
    /// Copies a key and its first version into the arena. They are not published yet.
    pub(super) fn create(
        arena: &'a Arena,
        key: &[u8],
        seq: Lsn,
        kind: OpKind,
        value: &[u8],
    ) -> Record<'a> {
        let key_len = u32::try_from(key.len()).expect("keys are at most 64 KiB");
        let version_at = version_offset(key.len());
        let memory = arena.alloc_record(version_at + size_of::<VersionHeader>() + value.len());
        // SAFETY: the allocation is ours alone, aligned to 8 and long enough for header, key and
        // version.
        unsafe {
            let version = write_version(memory.add(version_at), seq, kind, value);
            let record = memory.cast::<RecordHeader>();
            debug_assert!(record.is_aligned(), "a record lies at a multiple of its alignment");
            record.write(RecordHeader { newest: AtomicPtr::new(version.0.as_ptr()), key_len });
            key_ptr(record).copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            Record(record, PhantomData)
        }
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: `create` wrote the record's header and key, and they do not change while the
        // arena lives.
        unsafe {
            let key_len = (*self.0.as_ptr()).key_len as usize;
            NonNull::slice_from_raw_parts(key_ptr(self.0), key_len).as_ref()
        }
    }

    #[inline]
    pub(super) fn newest(self) -> Version<'a> {
        // SAFETY: `newest` is never null, and points only to versions of this arena.
        unsafe {
            let newest = (*self.0.as_ptr()).newest.load(Acquire);
            Version(NonNull::new_unchecked(newest), PhantomData)
        }
    }

    /// The newest version that a reader at `point` sees.
    #[inline]
    pub(super) fn newest_below(self, point: Lsn) -> Option<Version<'a>> {
        self.newest().newest_below(point)
    }

    /// True if the next version of this key should have room for a milestone. Nothing breaks if it
    /// has none.
    #[inline]
    pub(super) fn wants_milestone(self) -> bool {
        self.newest().count() >= BETWEEN_MILESTONES
    }

    /// Links a version at its place in the list. Of two versions with the same sequence number, the
    /// one linked later comes first. The caller holds the lock of the leaf that refers to this
    /// record. The version is linked in once.
    pub(super) fn link(self, version: Version<'a>) {
        // SAFETY: the header lives as long as the arena.
        let mut link = unsafe { &(*self.0.as_ptr()).newest };
        loop {
            let next = link.load(Acquire);
            match NonNull::new(next).map(|next| Version::<'a>(next, PhantomData)) {
                Some(next) if next.seq() > version.seq() => link = next.older_link(),
                older => {
                    debug_assert!(
                        older.is_none_or(|older| older.seq() < version.seq()),
                        "two versions of a key have one sequence number"
                    );
                    version.older_link().store(next, Relaxed);
                    // SAFETY: the version is not published yet.
                    unsafe { version.mark(older) };
                    link.store(version.0.as_ptr(), Release);
                    return;
                }
            }
        }
    }

    /// Prefetches the cache lines after the first: a short key's version and the start of its
    /// value.
    #[inline]
    pub(super) fn prefetch_rest(self) {
        let start = self.0.as_ptr().cast::<u8>();
        prefetch(start.wrapping_add(64));
        prefetch(start.wrapping_add(128));
    }

    #[inline]
    pub(super) fn prefetch(self) {
        prefetch(self.0.as_ptr());
        self.prefetch_rest();
    }

    pub(super) fn as_ptr(self) -> *mut RecordHeader {
        self.0.as_ptr()
    }

    /// # Safety
    /// `record` is null or came from [`Record::as_ptr`] of a published record of an arena that
    /// lives for `'a`.
    #[inline]
    pub(super) unsafe fn from_ptr(record: *mut RecordHeader) -> Option<Record<'a>> {
        NonNull::new(record).map(|record| Record(record, PhantomData))
    }

    /// # Safety
    /// The caller keeps the arena alive as long as it uses the result.
    #[inline]
    pub(super) unsafe fn detach(self) -> Record<'static> {
        Record(self.0, PhantomData)
    }
}

impl PartialEq for Record<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<'a> Version<'a> {
    /// Copies a version of an existing key into the arena. It is not published yet.
    pub(super) fn create(
        arena: &'a Arena,
        (seq, kind, value): (Lsn, OpKind, &[u8]),
        is_milestone: bool,
    ) -> Version<'a> {
        let len = size_of::<VersionHeader>() + value.len();
        let milestone_len = if is_milestone { size_of::<Milestone<'_>>() } else { 0 };
        let memory = arena.alloc_record(len.next_multiple_of(GRANULE) + milestone_len);
        // SAFETY: the allocation is ours alone, aligned to 8 and long enough.
        unsafe {
            let version = write_version(memory, seq, kind, value);
            if is_milestone {
                (*version.0.as_ptr()).about |= IS_MILESTONE;
                reached(Reach::MilestoneSet);
                let first = Milestone { previous: None, jump: version, depth: 0 };
                version.milestone_ptr().write(first);
            }
            version
        }
    }

    /// Completes what the version says of those that are older.
    ///
    /// # Safety
    /// The version is not published.
    #[inline]
    unsafe fn mark(self, older: Option<Version<'a>>) {
        if self.about() & IS_MILESTONE != 0 {
            // SAFETY: the caller's promise; `create` wrote a milestone, so there is room for it.
            unsafe { self.milestone_ptr().write(Milestone::before(self, older)) };
        } else if let Some(older) = older {
            let count = (older.count() + 1).min(COUNT_MAX);
            // SAFETY: the caller's promise.
            unsafe { (*self.0.as_ptr()).about |= count << COUNT_SHIFT };
        }
    }

    /// How many versions there are from the milestone before this one on. 0 for a milestone, and
    /// for the first version of a key.
    #[inline]
    fn count(self) -> u64 {
        self.about() >> COUNT_SHIFT & COUNT_MAX
    }

    #[inline]
    fn milestone(self) -> Option<Milestone<'a>> {
        // SAFETY: `create` wrote a milestone if the bit is set, and `mark` before the version was
        // published; immutable since.
        (self.about() & IS_MILESTONE != 0).then(|| unsafe { self.milestone_ptr().read() })
    }

    #[inline]
    fn milestone_ptr(self) -> NonNull<Milestone<'a>> {
        let at = (size_of::<VersionHeader>() + self.value().len()).next_multiple_of(GRANULE);
        // SAFETY: only called where `create` has made the allocation long enough for it.
        unsafe { self.0.cast::<u8>().add(at).cast() }
    }

    /// This version or the newest older one that a reader at `point` sees.
    #[inline]
    pub(super) fn newest_below(self, point: Lsn) -> Option<Version<'a>> {
        if self.seq() < point { Some(self) } else { self.older_below(point) }
    }

    /// The newest older version that a reader at `point` sees. It does not see this one.
    pub(super) fn older_below(self, point: Lsn) -> Option<Version<'a>> {
        debug_assert!(self.seq() >= point, "a version is passed that the reader sees");
        let mut version = self;
        while version.seq() >= point {
            version = version.step_below(point)?;
        }
        Some(version)
    }

    /// An older version, with none in between that a reader at `point` sees. It does not see this
    /// one.
    #[inline]
    fn step_below(self, point: Lsn) -> Option<Version<'a>> {
        reached_if(Reach::ReadAtPointInMemory, || self.seq() == point);
        let is_passed = |back: &Version<'_>| back.seq() >= point && *back != self;
        let passed = self.milestone().and_then(|Milestone { previous, jump, .. }| {
            Some(jump).filter(is_passed).or(previous.filter(is_passed))
        });
        reached_if(Reach::MilestonePassed, || passed.is_some());
        passed.or_else(|| self.older())
    }

    #[inline]
    pub(super) fn seq(self) -> Lsn {
        // SAFETY: written before the version was published, immutable since.
        unsafe { (*self.0.as_ptr()).seq }
    }

    #[inline]
    pub(super) fn kind(self) -> OpKind {
        OpKind::known(self.about() & 0xff).expect("a memtable holds what it was given")
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let len = (self.about() >> LEN_SHIFT) as usize;
        // SAFETY: the value follows its header in one allocation, written before the version was
        // published.
        unsafe { NonNull::slice_from_raw_parts(self.0.add(1).cast::<u8>(), len).as_ref() }
    }

    #[inline]
    pub(super) fn older(self) -> Option<Version<'a>> {
        NonNull::new(self.older_link().load(Acquire)).map(|older| Version(older, PhantomData))
    }

    #[inline]
    fn older_link(self) -> &'a AtomicPtr<VersionHeader> {
        // SAFETY: the header lives as long as the arena.
        unsafe { &(*self.0.as_ptr()).older }
    }

    #[inline]
    fn about(self) -> u64 {
        // SAFETY: written before the version was published, immutable since.
        unsafe { (*self.0.as_ptr()).about }
    }

    /// # Safety
    /// The caller keeps the arena alive as long as it uses the result.
    #[inline]
    pub(super) unsafe fn detach(self) -> Version<'static> {
        Version(self.0, PhantomData)
    }
}

impl PartialEq for Version<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<'a> Milestone<'a> {
    /// The milestone for a version that comes directly before `older`. By the rule of the source, a
    /// jump is as long as the two before it together if these are equally long, and else leads to
    /// the milestone before.
    fn before(version: Version<'a>, older: Option<Version<'a>>) -> Milestone<'a> {
        let mut walk = std::iter::successors(older, |version| version.older());
        let Some((previous, at)) = walk.find_map(|older| Some((older, older.milestone()?))) else {
            return Milestone { previous: None, jump: version, depth: 0 };
        };
        let jump = match at.jump.milestone() {
            Some(far) => match far.jump.milestone() {
                Some(further) if at.depth - far.depth == far.depth - further.depth => far.jump,
                _ => previous,
            },
            None => previous,
        };
        Milestone { previous: Some(previous), jump, depth: at.depth + 1 }
    }
}

/// # Safety
/// `memory` is unpublished, aligned to 8 and has room for a header and the value.
#[inline]
unsafe fn write_version<'a>(
    memory: NonNull<u8>,
    seq: Lsn,
    kind: OpKind,
    value: &[u8],
) -> Version<'a> {
    let version = memory.cast::<VersionHeader>();
    debug_assert!(version.is_aligned(), "a version lies at a multiple of its alignment");
    let about = (value.len() as u64) << LEN_SHIFT | kind as u64;
    // SAFETY: by the contract above.
    unsafe {
        version.write(VersionHeader { older: AtomicPtr::new(null_mut()), seq, about });
        version
            .add(1)
            .cast::<u8>()
            .copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
    }
    Version(version, PhantomData)
}

#[inline]
fn version_offset(key_len: usize) -> usize {
    (size_of::<RecordHeader>() + key_len).next_multiple_of(GRANULE)
}

/// # Safety
/// `record` is followed by its key in the same allocation.
#[inline]
unsafe fn key_ptr(record: NonNull<RecordHeader>) -> NonNull<u8> {
    // SAFETY: by the contract above, the offset stays within the allocation.
    unsafe { record.add(1).cast::<u8>() }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::memtable::ChunkPool;
    use std::sync::Arc;

    #[test]
    fn a_record_gives_back_what_it_was_made_of() {
        let arena = Arena::new(Arc::new(ChunkPool::new(4096, 0, 0)));
        for (key, value) in
            [(&b"k"[..], &b""[..]), (b"12345678", b"value"), (&[0xff; 300], &[7; 9000])]
        {
            let record = Record::create(&arena, key, 77, OpKind::Put, value);
            let version = record.newest();
            assert_eq!(record.key(), key);
            assert_eq!((version.seq(), version.kind(), version.value()), (77, OpKind::Put, value));
            assert!(version.older().is_none());
        }
    }

    #[test]
    fn versions_stay_newest_first_whatever_order_they_come_in() {
        let arena = Arena::new(Arc::new(ChunkPool::new(4096, 0, 0)));
        let record = Record::create(&arena, b"k", 50, OpKind::Put, b"50");
        for seq in [40, 70, 60, 10, 90] {
            let what = (seq, OpKind::Delete, &b""[..]);
            record.link(Version::create(&arena, what, record.wants_milestone()));
        }
        let mut seqs = vec![record.newest()];
        while let Some(older) = seqs.last().unwrap().older() {
            seqs.push(older);
        }
        let seqs: Vec<_> = seqs.into_iter().map(Version::seq).collect();
        assert_eq!(seqs, [90, 70, 60, 50, 40, 10]);
        assert_eq!(record.newest_below(70).unwrap().seq(), 60);
        assert_eq!(record.newest_below(51).unwrap().value(), b"50");
        assert!(record.newest_below(10).is_none());
    }

    #[test]
    fn readers_find_the_same_version_with_milestones_as_step_by_step() {
        let arena = Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0)));
        // In ascending order, in descending order, and neighbours swapped.
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| 2000 - n, |n| n ^ 1];
        let count = if cfg!(miri) { 50 } else { 1000 };
        for order in orders {
            let record = Record::create(&arena, b"k", 3 * order(0) + 3, OpKind::Put, b"");
            for n in 1..=count {
                let (seq, value) = (3 * order(n) + 3, vec![0; n as usize % 20]);
                let what = (seq, OpKind::Put, &value[..]);
                record.link(Version::create(&arena, what, record.wants_milestone()));
            }
            let all: Vec<_> =
                std::iter::successors(Some(record.newest()), |one| one.older()).collect();
            assert!(
                all.len() as u64 == count + 1
                    && all.is_sorted_by(|one, next| one.seq() > next.seq())
            );
            let milestones = all.iter().filter(|one| one.milestone().is_some()).count();
            assert!(milestones as u64 > count / 4 || order(0) > 0, "{milestones}");
            assert!(milestones as u64 <= count / 2, "{milestones} would take much memory");
            for point in (0..7000).step_by(if cfg!(miri) { 101 } else { 7 }) {
                let seen = all.iter().copied().find(|one| one.seq() < point);
                assert_eq!(record.newest_below(point).map(Version::seq), seen.map(Version::seq));
                for from in all.iter().filter(|one| one.seq() >= point).step_by(37) {
                    assert!(from.older_below(point) == seen);
                }
            }
        }
    }

    #[test]
    fn the_way_over_versions_that_a_reader_does_not_see_grows_with_the_logarithm_of_their_number() {
        let arena = Arena::new(Arc::new(ChunkPool::new(1 << 20, 0, 0)));
        let record = Record::create(&arena, b"k", 1, OpKind::Put, b"");
        let (mut longest, last) = (0, if cfg!(miri) { 500 } else { 100_000 });
        for seq in 2..=last {
            let what = (seq, OpKind::Put, &b""[..]);
            record.link(Version::create(&arena, what, record.wants_milestone()));
        }
        for point in (2..last).step_by(if cfg!(miri) { 97 } else { 997 }) {
            let (mut at, mut steps) = (record.newest(), 0);
            while at.seq() >= point {
                (at, steps) = (at.step_below(point).unwrap(), steps + 1);
            }
            assert_eq!(at.seq(), point - 1);
            longest = longest.max(steps);
        }
        assert!(longest < 60, "{longest}");
    }
}
