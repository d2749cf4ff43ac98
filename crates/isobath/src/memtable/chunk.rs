//! A chunk: one large piece of raw memory from the operating system. Arenas are built of chunks.
//!
//! On Unix a chunk is an anonymous mapping. A chunk of 2 MiB or more starts on a 2 MiB boundary and
//! asks for huge pages, so that the tree's random accesses seldom miss the TLB. On other systems,
//! and under Miri, a chunk is a plain allocation. The bytes of a new chunk can have any value:
//! arenas write before they read.

use std::alloc::handle_alloc_error;
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

pub(super) const PAGE_LEN: usize = 4096;
#[cfg(any(unix, test))]
const HUGE_PAGE_LEN: usize = 2 << 20;

/// Raw memory, freed on drop.
#[derive(Debug)]
pub(super) struct Chunk {
    base: NonNull<u8>,
    len: usize,
    mapped: bool,
}

// SAFETY: a chunk owns its memory as a Box<[MaybeUninit<u8>]> does; it hands out only a raw
// pointer.
unsafe impl Send for Chunk {}
// SAFETY: as above. No method touches the bytes through a shared reference, and `prefault`, which
// does touch them, is called before a chunk is shared.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Allocates `len` bytes, aligned at least to a cache line. Like every allocation of the
    /// standard library, this ends the process when there is no memory. Admission control limits
    /// memory before it comes to that.
    pub(super) fn new(len: usize) -> Chunk {
        match map(len) {
            Some(base) => Chunk { base, len, mapped: true },
            None => Chunk { base: allocate(len), len, mapped: false },
        }
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Makes every page present, so that no later access causes a page fault.
    pub(super) fn prefault(&mut self) {
        if self.mapped && populate(self.base, self.len) {
            return;
        }
        for offset in (0..self.len).step_by(PAGE_LEN) {
            // SAFETY: the offset lies within the chunk, and `&mut self` shows that no other code
            // uses it.
            unsafe { self.base.add(offset).write_volatile(0) };
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.mapped {
            unmap(self.base, self.len);
        } else {
            // SAFETY: `base` came from `allocate` with this length, and nothing refers to it any
            // more.
            unsafe { dealloc(self.base.as_ptr(), layout(self.len)) };
        }
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, 64).expect("a chunk's length is far from isize::MAX")
}

fn allocate(len: usize) -> NonNull<u8> {
    assert!(len > 0, "a chunk has bytes");
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { alloc(layout(len)) }).unwrap_or_else(|| handle_alloc_error(layout(len)))
}

#[cfg(all(unix, not(miri)))]
fn map(len: usize) -> Option<NonNull<u8>> {
    if len < HUGE_PAGE_LEN {
        return None;
    }
    let padded = len.checked_add(HUGE_PAGE_LEN)?;
    // SAFETY: a new private anonymous mapping at an address that the kernel chooses touches
    // nothing.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            padded,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let front = start.addr().next_multiple_of(HUGE_PAGE_LEN) - start.addr();
    let mapped_len = len.next_multiple_of(PAGE_LEN);
    let back = padded - front - mapped_len.min(padded - front);
    // SAFETY: `front` is below the padding, so `base` and the ends cut off lie within the new
    // mapping. No other code knows the mapping yet.
    unsafe {
        let base = start.cast::<u8>().add(front);
        if front > 0 {
            libc::munmap(start, front);
        }
        if back > 0 {
            libc::munmap(base.add(mapped_len).cast(), back);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(base.cast(), mapped_len, libc::MADV_HUGEPAGE);
        NonNull::new(base)
    }
}

#[cfg(any(not(unix), miri))]
fn map(_len: usize) -> Option<NonNull<u8>> {
    None
}

#[cfg(all(unix, not(miri)))]
fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: `map` mapped exactly this range, and its owner is being dropped.
    unsafe { libc::munmap(base.as_ptr().cast(), len.next_multiple_of(PAGE_LEN)) };
}

#[cfg(any(not(unix), miri))]
fn unmap(_base: NonNull<u8>, _len: usize) {}

/// Asks the kernel for all pages in one call (Linux 5.14). False if that is not possible.
#[cfg(all(target_os = "linux", not(miri)))]
fn populate(base: NonNull<u8>, len: usize) -> bool {
    // SAFETY: the range is a mapping that the caller owns, and populating it changes no byte.
    unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) == 0 }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn populate(_base: NonNull<u8>, _len: usize) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_chunk_can_be_written() {
        for len in [64, 5000, HUGE_PAGE_LEN, HUGE_PAGE_LEN + 100] {
            if cfg!(miri) && len > PAGE_LEN * 2 {
                continue;
            }
            let mut chunk = Chunk::new(len);
            chunk.prefault();
            assert_eq!(chunk.base().as_ptr().addr() % 64, 0);
            for at in [0, len / 2, len - 1] {
                // SAFETY: within the chunk, which only this test uses.
                unsafe {
                    chunk.base().add(at).write(0xab);
                    assert_eq!(chunk.base().add(at).read(), 0xab);
                }
            }
        }
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_large_chunk_starts_on_a_huge_page() {
        let chunk = Chunk::new(HUGE_PAGE_LEN);
        assert_eq!(chunk.base().as_ptr().addr() % HUGE_PAGE_LEN, 0);
    }

    /// The test frees each chunk before it makes the next: all at once would take 48 GiB of address
    /// space. The lengths differ, because for some the kernel always finds a place on a boundary of
    /// huge pages, and then nothing is cut off before the chunk.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_chunk_gives_its_addresses_back() {
        let pages = || {
            let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
            sizes.split(' ').next().unwrap().parse::<usize>().unwrap()
        };
        let before = pages();
        for at in 0..16384 {
            let chunk = Chunk::new(HUGE_PAGE_LEN + at * 3 * PAGE_LEN % HUGE_PAGE_LEN);
            assert!(chunk.mapped);
        }
        assert!(pages() < before + (8 << 30) / PAGE_LEN);
    }
}
