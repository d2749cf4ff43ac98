//! Frames: places for shared values that are found by number, without a lock, and that a cache can
//! let go of at any time.
//!
//! A frame's state is a reference count. Pins are counted in its upper bits; the cache's own hold
//! is a single bit, `RESIDENT`. A reader who has a number pins the frame if it is resident, and
//! only then looks at the key, since a number may be old. The last holder drops the value.
//! `docs/internals/block-cache.md` has the protocol and why it is safe.
//!
//! Frames lie in chunks that never move, each twice as long as the one before. A frame with a value
//! holds its chunk, so a value outlives the cache. A value that is in no cache has a frame of its
//! own.

use crate::env::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::env::without_preemption;
use crate::memory::Charge;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(loom)]
use loom::cell::UnsafeCell;

/// The cache holds the value.
const RESIDENT: u64 = 1;
/// There is no value, and no one is about to drop one.
const FREE: u64 = 2;
/// Touches are counted up to three.
const TOUCH: u64 = 4;
const TOUCHES: u64 = 3 * TOUCH;
const PIN: u64 = 16;

/// The length of the first chunk.
const FIRST_LEN: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// A power of two, and enough for all numbers of 32 bits, whatever the first length. The last one
/// is never there: it is what the number 0 leads to.
const CHUNK_COUNT: usize = if cfg!(loom) { 4 } else { 64 };
/// How many numbers of either kind are looked at before a new frame is made. An evicted frame is in
/// use as long as a reader holds its value.
const LOOKS_MAX: usize = 4;

/// As loom's, which checks the accesses.
#[cfg(not(loom))]
#[derive(Default)]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    fn with<R>(&self, body: impl FnOnce(*const T) -> R) -> R {
        body(self.0.get())
    }

    #[inline(always)]
    fn with_mut<R>(&self, body: impl FnOnce(*mut T) -> R) -> R {
        body(self.0.get())
    }
}

struct Frame<K, T> {
    state: AtomicU64,
    content: UnsafeCell<Content<K, T>>,
}

// SAFETY: the content is written by one thread while it holds the frame alone, and only read while
// others pin it (`docs/internals/block-cache.md`). A thread that pins a frame may be the one that
// drops the value.
unsafe impl<K: Send + Sync, T: Send + Sync> Sync for Frame<K, T> {}

struct Content<K, T> {
    /// The frame's own chunk, while it has a value. `None` for a frame in no chunk.
    home: Option<Arc<Chunk<K, T>>>,
    key: K,
    value: MaybeUninit<T>,
}

/// None of its frames has a value when it is dropped.
struct Chunk<K, T> {
    frames: Box<[CachePadded<Frame<K, T>>]>,
    /// Declared last: the memory goes first.
    _charge: Option<Charge>,
}

impl<K, T> Chunk<K, T> {
    fn at(&self, place: usize) -> &Frame<K, T> {
        &self.frames[place - self.frames.len()]
    }
}

impl<K, T> Frame<K, T> {
    fn new(state: u64, key: K, value: MaybeUninit<T>) -> Frame<K, T> {
        let content = UnsafeCell::new(Content { home: None, key, value });
        Frame { state: AtomicU64::new(state), content }
    }

    /// Pins the frame if it is resident.
    #[inline(always)]
    fn try_pin(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & RESIDENT != 0 {
            debug_assert_eq!(state & FREE, 0, "a resident frame has a value");
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            match self.state.compare_exchange_weak(state, state + PIN, success, failure) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Counts a use, if the cache still holds the value.
    #[inline(always)]
    fn touch(&self) {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & RESIDENT != 0 && state & TOUCHES != TOUCHES {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.state.compare_exchange_weak(state, state + TOUCH, success, failure) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }
}

/// A value in a frame. It stays in memory as long as this or a clone of it lives.
pub(crate) struct FrameRef<K, T>(NonNull<Frame<K, T>>);

// SAFETY: like `Arc`, it gives shared access to the value from any thread, and whichever thread
// gives up the last one drops it. The key is dropped nowhere and only read.
unsafe impl<K: Send + Sync, T: Send + Sync> Send for FrameRef<K, T> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, T: Send + Sync> Sync for FrameRef<K, T> {}

impl<K: Default, T> FrameRef<K, T> {
    /// A value that is in no cache.
    pub(crate) fn alone(value: T) -> FrameRef<K, T> {
        let frame = Frame::new(PIN, K::default(), MaybeUninit::new(value));
        FrameRef(NonNull::from(Box::leak(Box::new(frame))))
    }
}

impl<K, T> FrameRef<K, T> {
    #[inline(always)]
    fn frame(&self) -> &Frame<K, T> {
        // SAFETY: a pinned frame has a value, so it holds its chunk, or is a box that only the last
        // pin frees.
        unsafe { self.0.as_ref() }
    }

    /// The value, if no one else holds it and no cache does.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        let state = without_preemption(|| self.frame().state.load(Ordering::Acquire));
        if state & !TOUCHES != PIN {
            return None;
        }
        // SAFETY: this is the only pin, borrowed exclusively, and there will be no other: the frame
        // is not resident. It is pinned, so its value is there.
        self.frame().content.with_mut(|content| Some(unsafe { (*content).value.assume_init_mut() }))
    }

    /// Drops the value of a frame that no one holds any longer.
    #[cold]
    fn release(frame: NonNull<Frame<K, T>>) {
        // SAFETY: the caller has given up the last hold on a value, which has kept the frame. None
        // but this call frees it or lets another value in.
        let this = unsafe { frame.as_ref() };
        // Everything that others have done with the value comes before this.
        this.state.load(Ordering::Acquire);
        // SAFETY: for the same reason no one else looks at the content. The value is there, as it
        // was pinned, and is taken out once.
        let (home, value) = this.content.with_mut(|content| unsafe {
            ((*content).home.take(), (*content).value.assume_init_read())
        });
        match home {
            Some(chunk) => {
                this.state.store(FREE, Ordering::Release);
                // After the last access to the frame.
                drop(chunk);
            }
            // SAFETY: only `alone` makes frames without a home, by `Box::leak`.
            None => drop(unsafe { Box::from_raw(frame.as_ptr()) }),
        }
        drop(value);
    }
}

impl<K, T> Deref for FrameRef<K, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: a pinned frame has a value, which nothing changes or takes away while `self`
        // pins it; `get_mut` borrows `self` exclusively.
        self.frame().content.with(|content| unsafe { (*content).value.assume_init_ref() })
    }
}

impl<K, T> Clone for FrameRef<K, T> {
    #[inline]
    fn clone(&self) -> Self {
        without_preemption(|| self.frame().state.fetch_add(PIN, Ordering::Relaxed));
        FrameRef(self.0)
    }
}

impl<K, T> Drop for FrameRef<K, T> {
    #[inline]
    fn drop(&mut self) {
        without_preemption(|| {
            let before = self.frame().state.fetch_sub(PIN, Ordering::Release);
            debug_assert!(before >= PIN, "a pin is given up once");
            if before & !TOUCHES == PIN {
                FrameRef::release(self.0);
            }
        });
    }
}

impl<K: Default, T: Default> Default for FrameRef<K, T> {
    fn default() -> Self {
        FrameRef::alone(T::default())
    }
}

impl<K, T: std::fmt::Debug> std::fmt::Debug for FrameRef<K, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Frames by number. They grow, and are freed with the cache and the last of their values.
pub(super) struct Frames<K, T> {
    /// Where the place 0 would be of each chunk that is there.
    bases: [AtomicPtr<CachePadded<Frame<K, T>>>; CHUNK_COUNT],
    stock: CachePadded<Mutex<Stock<K, T>>>,
}

struct Stock<K, T> {
    chunks: Vec<Arc<Chunk<K, T>>>,
    /// A thread makes the next chunk.
    is_growing: bool,
    /// The last number that was given out.
    last: u32,
    /// Numbers of evicted frames, oldest first.
    spare: VecDeque<u32>,
    /// Those of them that were in use when their turn came.
    held: VecDeque<u32>,
}

impl<K, T> Stock<K, T> {
    /// A free frame of the chunks that are there.
    fn take(&mut self) -> Option<(u32, Arc<Chunk<K, T>>)> {
        for _ in 0..LOOKS_MAX {
            let Some(number) = self.spare.pop_front() else { break };
            match self.free(number) {
                Some(home) => return Some((number, home)),
                None => self.held.push_back(number),
            }
        }
        for _ in 0..self.held.len().min(LOOKS_MAX) {
            let Some(number) = self.held.pop_front() else { break };
            match self.free(number) {
                Some(home) => return Some((number, home)),
                None => self.held.push_back(number),
            }
        }
        let number = self.last.checked_add(1)?;
        let home = self.chunks.get(place_of(number).0)?.clone();
        self.last = number;
        Some((number, home))
    }

    /// The chunk of a frame that has no value any longer.
    fn free(&self, number: u32) -> Option<Arc<Chunk<K, T>>> {
        let (chunk, place) = place_of(number);
        let home = &self.chunks[chunk];
        (home.at(place).state.load(Ordering::Acquire) == FREE).then(|| home.clone())
    }
}

/// The chunk in which a number lies, and its place. A chunk's first place is its length.
#[inline(always)]
fn place_of(number: u32) -> (usize, usize) {
    let place = (number as usize).wrapping_add(FIRST_LEN - 1);
    let chunk = place.ilog2().wrapping_sub(FIRST_LEN.ilog2());
    (chunk as usize % CHUNK_COUNT, place)
}

impl<K: Copy + Default + PartialEq, T> Frames<K, T> {
    pub(super) fn new() -> Frames<K, T> {
        let (chunks, spare, held) = (Vec::new(), VecDeque::new(), VecDeque::new());
        let stock = Stock { chunks, is_growing: false, last: 0, spare, held };
        let bases = std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()));
        Frames { bases, stock: CachePadded::new(Mutex::new(Rank::FrameStock, stock)) }
    }

    /// The value with this key, if the frame with this number has it, and the cache still holds it.
    /// That counts as a use. Any number can be asked for.
    #[inline(always)]
    pub(super) fn get(&self, number: u32, key: &K) -> Option<FrameRef<K, T>> {
        let found = self.pin(number)?;
        // SAFETY: nothing changes the key of a pinned frame.
        let is_same = found.frame().content.with(|content| unsafe { (*content).key == *key });
        if !is_same {
            // A stale number: who was met by chance was not used.
            return None;
        }
        found.frame().touch();
        Some(found)
    }

    /// Puts a value into a frame of the cache, and returns its number. If there are no more frames
    /// it gives the value back: the caller lets them [grow](Self::grow).
    pub(super) fn put(&self, key: K, value: T) -> Result<(u32, FrameRef<K, T>), T> {
        let Some((number, chunk)) = self.stock.lock().take() else { return Err(value) };
        let (_, place) = place_of(number);
        let frame = NonNull::from(chunk.at(place));
        // SAFETY: the frame is free and its number was taken from the stock, so no one else writes
        // to it, and no one reads it as long as it is not resident. `chunk` keeps it here, and goes
        // with the value from here on.
        let this = unsafe { frame.as_ref() };
        debug_assert_eq!(this.state.load(Ordering::Relaxed), FREE, "a frame is given out twice");
        let value = MaybeUninit::new(value);
        this.content
            // SAFETY: as above.
            .with_mut(|content| unsafe { *content = Content { home: Some(chunk), key, value } });
        this.state.store(RESIDENT + PIN, Ordering::Release);
        Ok((number, FrameRef(frame)))
    }

    /// Makes frames if there are no more, without asking.
    #[cfg(test)]
    pub(super) fn grow(&self) -> bool {
        self.grow_if(|_| Some(None))
    }

    /// Makes frames if there are no more. False if another thread is about to, or if there can be
    /// none. A chunk may have hundreds of megabytes, so the caller holds no lock that others need.
    /// `charge` is asked for its bytes; `None` if there is no memory for them.
    pub(super) fn grow_if(&self, charge: impl FnOnce(u64) -> Option<Option<Charge>>) -> bool {
        let mut stock = self.stock.lock();
        let chunk = stock.chunks.len();
        if stock.last.checked_add(1).is_some_and(|next| place_of(next).0 < chunk) {
            return true;
        }
        if stock.is_growing || stock.last == u32::MAX {
            return false;
        }
        stock.is_growing = true;
        drop(stock);
        let len = FIRST_LEN << chunk;
        let free = |_| CachePadded::new(Frame::new(FREE, K::default(), MaybeUninit::uninit()));
        let made = charge((len * Self::FRAME_LEN) as u64)
            .map(|_charge| Arc::new(Chunk { frames: (0..len).map(free).collect(), _charge }));
        let mut stock = self.stock.lock();
        stock.is_growing = false;
        let Some(made) = made else { return false };
        debug_assert_eq!(stock.chunks.len(), chunk, "one thread at a time makes a chunk");
        let base = made.frames.as_ptr().wrapping_sub(len);
        self.bases[chunk].store(base.cast_mut(), Ordering::Release);
        stock.chunks.push(made);
        true
    }

    /// Gives up the cache's hold on a frame, and gives its number back to the stock. The value goes
    /// with its last reader, which may be the one that this returns. Only one thread at a time may
    /// evict a frame. `None` if the cache does not hold it.
    pub(super) fn evict(&self, number: u32) -> Option<FrameRef<K, T>> {
        let evicted = self.pin(number)?;
        let before = evicted.frame().state.fetch_and(!(RESIDENT | TOUCHES), Ordering::Release);
        debug_assert_ne!(before & RESIDENT, 0, "a frame is evicted once");
        self.stock.lock().spare.push_back(number);
        Some(evicted)
    }
}

impl<K, T> Frames<K, T> {
    /// The bytes of a frame.
    pub(super) const FRAME_LEN: usize = size_of::<CachePadded<Frame<K, T>>>();

    #[inline(always)]
    fn frame(&self, number: u32) -> Option<&Frame<K, T>> {
        let (chunk, place) = place_of(number);
        let base = self.bases[chunk].load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // SAFETY: the chunk has `FIRST_LEN << chunk` frames, whose places begin with that number
        // and end before the next power of two, as `ilog2` says of `place`. The stock keeps the
        // chunk as long as `self` lives.
        Some(unsafe { &*base.wrapping_add(place) })
    }

    #[inline(always)]
    fn pin(&self, number: u32) -> Option<FrameRef<K, T>> {
        let frame = self.frame(number)?;
        frame.try_pin().then(|| FrameRef(NonNull::from(frame)))
    }

    /// Takes one of the touches of a frame away. False if there was none.
    pub(super) fn take_touch(&self, number: u32) -> bool {
        let Some(frame) = self.frame(number) else { return false };
        // Only the one thread that may evict the frame takes touches away.
        let is_touched = frame.state.load(Ordering::Relaxed) & TOUCHES != 0;
        if is_touched {
            frame.state.fetch_sub(TOUCH, Ordering::Relaxed);
        }
        is_touched
    }

    /// Takes all touches of a frame away. False if there was none.
    pub(super) fn take_touches(&self, number: u32) -> bool {
        let Some(frame) = self.frame(number) else { return false };
        frame.state.load(Ordering::Relaxed) & TOUCHES != 0
            && frame.state.fetch_and(!TOUCHES, Ordering::Relaxed) & TOUCHES != 0
    }

    /// Frames that were made so far.
    #[cfg(test)]
    pub(super) fn made(&self) -> u32 {
        self.stock.lock().last
    }
}

impl<K, T> Drop for Frames<K, T> {
    fn drop(&mut self) {
        // A value that the cache still holds keeps its chunk.
        without_preemption(|| {
            let last = self.stock.lock().last;
            for number in 1..=last {
                if let Some(held) = self.pin(number) {
                    held.frame().state.fetch_and(!(RESIDENT | TOUCHES), Ordering::Release);
                }
            }
        });
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
