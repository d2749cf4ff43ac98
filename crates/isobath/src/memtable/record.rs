//! Records: a key with its versions, in the arena.
//!
//! ```text
//! record   | newest: pointer | key_len: u32, 4 bytes unused | key, padded to 8 | its first version |
//! version  | older: pointer  | seq: u64 | value_len << 8 | kind: u64 | value, padded to 8 |
//! ```
//!
//! Everything except the two pointers is immutable once a record or version is published. The
//! versions of a key form a list by descending sequence number, which only grows. The list changes
//! under the lock of the key's leaf, and is read without the lock. A new key and its first version
//! are one allocation.

use super::arena::Arena;
use super::prefetch::prefetch;
use crate::env::sync::atomic::{AtomicPtr, Ordering::*};
use crate::env::{Reach, reached_if};
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
    len_and_kind: u64,
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
        let mut version = self.newest();
        while version.seq() >= point {
            reached_if(Reach::ReadAtPointInMemory, || version.seq() == point);
            version = version.older()?;
        }
        Some(version)
    }

    /// Links a version at its place in the list. Of two versions with the same sequence number, the
    /// one linked later comes first. The caller holds the lock of the leaf that refers to this
    /// record.
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
    pub(super) fn create(arena: &'a Arena, seq: Lsn, kind: OpKind, value: &[u8]) -> Version<'a> {
        let memory = arena.alloc_record(size_of::<VersionHeader>() + value.len());
        // SAFETY: the allocation is ours alone, aligned to 8 and long enough.
        unsafe { write_version(memory, seq, kind, value) }
    }

    #[inline]
    pub(super) fn seq(self) -> Lsn {
        // SAFETY: written before the version was published, immutable since.
        unsafe { (*self.0.as_ptr()).seq }
    }

    #[inline]
    pub(super) fn kind(self) -> OpKind {
        OpKind::known(self.len_and_kind() & 0xff).expect("a memtable holds what it was given")
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let len = (self.len_and_kind() >> 8) as usize;
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
    fn len_and_kind(self) -> u64 {
        // SAFETY: written before the version was published, immutable since.
        unsafe { (*self.0.as_ptr()).len_and_kind }
    }

    /// # Safety
    /// The caller keeps the arena alive as long as it uses the result.
    #[inline]
    pub(super) unsafe fn detach(self) -> Version<'static> {
        Version(self.0, PhantomData)
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
    let len_and_kind = (value.len() as u64) << 8 | kind as u64;
    // SAFETY: by the contract above.
    unsafe {
        version.write(VersionHeader { older: AtomicPtr::new(null_mut()), seq, len_and_kind });
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
            record.link(Version::create(&arena, seq, OpKind::Delete, b""));
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
}
