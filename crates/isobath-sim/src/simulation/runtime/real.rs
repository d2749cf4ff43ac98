//! Stands in for the scheduler of a task that runs on a thread of the system. It answers what tasks
//! ask a scheduler for: the time, a sleep, and the place that the thread has reserved in the log.
//!
//! Such a thread, and each thread that the engine starts for it, may be delayed at any access to
//! shared data, as the scheduler stops tasks. Most delays are short; some are sleeps in which other
//! threads do much work. Without delays, two threads on few processors would rarely meet within a
//! few instructions.

use isobath::env::simulation::{Company, accompany, preempt_after};
use isobath::env::{Point, Priority, SystemThreads, ThreadHandle, Threads};
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The longer of the two lock timeouts.
pub(crate) const PATIENCE_NS: u64 = 20_000_000_000;

/// Of a hundred delays, so many yield, and so many others spin for a moment. If other processes
/// also use the processors, a yield takes as long as many sleeps.
const YIELDS_PERCENT: u8 = 5;
const SPINS_PERCENT: u8 = 65;
const SPINS_MAX: u32 = 2_000;
/// A sleep lasts for up to two to the power of one of these in microseconds: most are short.
const SLEEP_US_LOG: RangeInclusive<u32> = 0..=9;
/// A thread is delayed at one label in so many.
const POINT_ONCE_IN: u8 = 8;
/// A thread that has woken another one sleeps, once in so many times, within so many accesses.
const WAKER_ONCE_IN: u8 = 12;
const WAKER_ACCESSES: u32 = 6;
/// That sleep is longer, so that the woken thread can do much work.
const WAKER_US_LOG: RangeInclusive<u32> = 6..=13;

thread_local! {
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
    static RESERVED: Cell<Option<u64>> = const { Cell::new(None) };
    static IS_WAKER: Cell<bool> = const { Cell::new(false) };
    static DELAYS: RefCell<Option<(fastrand::Rng, u32)>> = const { RefCell::new(None) };
}

/// True if the calling thread is one of the system that runs a task.
pub(crate) fn is_here() -> bool {
    IS_HERE.get()
}

/// Installs the functions that the engine calls on the threads of this process. Repeated calls do
/// nothing.
pub(crate) fn hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| accompany(Company { point, access, reserved, woke }));
}

/// The calling thread runs a task from now on, delayed each `mean` accesses on average; never if it
/// is 0.
pub(crate) fn enter(seed: u64, mean: u32) {
    IS_HERE.set(true);
    delay_each(seed, mean);
}

fn delay_each(seed: u64, mean: u32) {
    if mean > 0 {
        DELAYS.set(Some((fastrand::Rng::with_seed(seed), mean)));
        preempt_after(0);
    }
}

/// Draws with the thread's random numbers, if the thread is to be delayed.
fn draw<T>(with: impl FnOnce(&mut fastrand::Rng, u32) -> T) -> Option<T> {
    let draw = |delays: &RefCell<Option<(fastrand::Rng, u32)>>| {
        let mut delays = delays.try_borrow_mut().ok()?;
        delays.as_mut().map(|(rng, mean)| with(rng, *mean))
    };
    // A thread that is ending has no random numbers any more.
    DELAYS.try_with(draw).ok().flatten()
}

fn access() {
    let drawn = draw(|rng, mean| {
        preempt_after(rng.u32(..2 * mean));
        if IS_WAKER.replace(false) { Delay::sleep(rng, WAKER_US_LOG) } else { Delay::draw(rng) }
    });
    match drawn {
        Some(delay) => delay.pass(),
        None => preempt_after(u32::MAX),
    }
}

fn point(_: Point) {
    let drawn = draw(|rng, _| (rng.u8(..POINT_ONCE_IN) == 0).then(|| Delay::draw(rng)));
    drawn.flatten().into_iter().for_each(Delay::pass);
}

/// The thread has woken another one, and sometimes sleeps within a few accesses: everything that
/// the woken thread relies on must be there already.
fn woke() {
    let is_away = draw(|rng, _| {
        let is_away = rng.u8(..WAKER_ONCE_IN) == 0;
        is_away.then(|| preempt_after(rng.u32(..WAKER_ACCESSES)))
    });
    if is_away.flatten().is_some() {
        IS_WAKER.set(true);
    }
}

fn reserved(end: u64) {
    RESERVED.set(Some(end));
}

/// Lets other threads run first.
pub(super) fn yield_now() {
    match draw(|rng, _| Delay::draw(rng)) {
        Some(delay) => delay.pass(),
        None => thread::yield_now(),
    }
}

pub(super) fn forget_reserved() {
    RESERVED.set(None);
}

pub(super) fn last_reserved() -> Option<u64> {
    RESERVED.get()
}

pub(super) fn now_ns() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// How a thread is kept from going on.
enum Delay {
    Yield,
    Spin(u32),
    Sleep(Duration),
}

impl Delay {
    fn draw(rng: &mut fastrand::Rng) -> Delay {
        match rng.u8(..100) {
            0..YIELDS_PERCENT => Delay::Yield,
            nth if nth < YIELDS_PERCENT + SPINS_PERCENT => Delay::Spin(rng.u32(..SPINS_MAX)),
            _ => Delay::sleep(rng, SLEEP_US_LOG),
        }
    }

    fn sleep(rng: &mut fastrand::Rng, us_log: RangeInclusive<u32>) -> Delay {
        let magnitude = rng.u32(us_log);
        Delay::Sleep(Duration::from_micros(rng.u64(..1 << magnitude)))
    }

    fn pass(self) {
        match self {
            Delay::Yield => thread::yield_now(),
            Delay::Spin(times) => (0..times).for_each(|_| std::hint::spin_loop()),
            Delay::Sleep(time) => thread::sleep(time),
        }
    }
}

/// The threads of the system, delayed as the tasks are.
#[derive(Debug)]
pub(crate) struct DelayedThreads {
    seed: AtomicU64,
    mean: u32,
}

impl DelayedThreads {
    pub(crate) fn new(seed: u64, mean: u32) -> DelayedThreads {
        DelayedThreads { seed: AtomicU64::new(seed), mean }
    }
}

impl Threads for DelayedThreads {
    fn spawn(
        &self,
        name: String,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn ThreadHandle>> {
        let (seed, mean) = (self.seed.fetch_add(1, Relaxed), self.mean);
        let body = move || {
            delay_each(seed, mean);
            body();
        };
        SystemThreads.spawn(name, priority, Box::new(body))
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }

    fn parallelism(&self) -> usize {
        SystemThreads.parallelism()
    }
}
