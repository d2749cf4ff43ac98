//! The scheduler: tasks are coroutines on one thread, one runs at a time, and a seed decides which
//! task runs next.
//!
//! A task gives way at labelled points, at every n-th access to what threads share (locks, atomics,
//! views, blocks of a cache), with n drawn anew each time around a mean that the life draws, when
//! it blocks on a lock or a condition variable, sleeps, or joins another. Then, or in the middle of
//! a call, it may stay away for long: for a drawn time, or until other tasks have reached a drawn
//! label a drawn number of times. However many steps these take, a flush or a compaction is then
//! over. In some lives a task often does so when it has just woken another, which must find all
//! that it relies on.
//!
//! The same tasks run on threads of the system, too, each alone on its own (`real.rs`).
//!
//! Time is virtual: it moves a little with each step, and jumps to the next deadline when no task
//! can run. If no task can run and none has a deadline, the run has deadlocked. That is a failure
//! like any other; so is a run without an end, and a task that panics.

mod notes;
pub(crate) mod real;

pub(crate) use notes::{Waits, forget_reserved, last_reserved, waits};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use isobath::env::Point;
use isobath::env::reach::{Reach, reached};
use isobath::env::simulation::{HeldLocks, Hooks, install, preempt_after, ring_slots};
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

/// Bytes of stack for a task.
const STACK_LEN: usize = 256 << 10;
/// Virtual nanoseconds that pass with each step.
const STEP_NS: u64 = 1_000;
/// A life that takes this many steps is taken for one without an end.
const STEPS_MAX: u64 = 64_000_000;
/// No task takes and gives back as many locks between two labels without ever sleeping, unless it
/// spins.
const LOOKS_MAX: u64 = 2_000_000;

/// A task that the system does not run for long is away for up to two to the power of this in
/// virtual nanoseconds: 67 ms.
const STALL_NS_LOG_MAX: u32 = 26;
/// The address of a wait that no task ends. Addresses are never odd.
const STALLED: usize = usize::MAX;

/// How long a task is away at most that is to come back when others have done something: 268 ms.
const AWAITED_NS_LOG: u32 = 28;
/// The labels that others must reach before the task comes back, and how often at most. Each label
/// is a step that removes or replaces something that the task may be using.
const AWAITED: [Point; 5] =
    [Point::Publishing, Point::Publishing, Point::Built, Point::Sealed, Point::Applied];
const AWAITED_MAX: u32 = 8;

/// A task that has just woken another one goes away within so many accesses to shared data.
const WAKER_ACCESSES: u32 = 6;

/// The labels at which a reading task may stay away for long: each lies between pinning something
/// and using it.
const LINGER: [Point; 3] = [Point::Viewing, Point::Pinned, Point::Registering];
/// In a life where that may happen, it happens once in so many times.
const LINGER_ONCE_IN: u8 = 4;

/// Why a task gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// It can go on at once.
    Ready,
    Blocked {
        on: usize,
        deadline_ns: Option<u64>,
    },
    Done,
}

type Task = Coroutine<(), (), (), DefaultStack>;

struct Slot {
    name: String,
    wait: Wait,
    /// Taken out while it runs.
    task: Option<Task>,
    yielder: *const Yielder<(), ()>,
    last_point: Option<Point>,
    /// It is away until others have come to this label so often.
    awaited: Option<(Point, u32)>,
    /// It has woken another task, and goes away for long when it is preempted.
    is_waker: bool,
    /// What [`LOOKS`] was when it was preempted.
    looks: u64,
    /// The locks it holds, while others run.
    held: HeldLocks,
    /// Where the record ends that it reserved last, if it has reserved one since it was asked to
    /// forget.
    reserved: Option<u64>,
    /// It has waited for others since then.
    has_waited: bool,
    waits: Waits,
}

#[derive(Default)]
struct Shared {
    slots: Vec<Slot>,
    current: Option<usize>,
    now_ns: u64,
    rng: fastrand::Rng,
    switch_percent: u8,
    /// How often, of a thousand times, a task that gives way where it need not does not come back
    /// for long.
    stall_permille: u16,
    /// The same for tasks that read, so that what they have pinned becomes old while they use it.
    reader_stall_permille: u16,
    /// The label at which reading tasks wait for flushes and compactions of other tasks.
    linger_at: Option<Point>,
    /// How often, of a hundred times, a task that has woken another one goes away for long soon
    /// after. The woken task must then find everything that it relies on.
    waker_stall_percent: u8,
    /// Accesses to what threads share between two preemptions, on average; 0 if there are none.
    preempt_mean: u32,
    /// No task stays away for long any more.
    is_calm: bool,
    steps: u64,
    /// A digest of every decision, to show that a seed repeats.
    digest: u64,
    panic: Option<String>,
}

thread_local! {
    static SHARED: RefCell<Shared> = RefCell::new(Shared::default());
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    /// How often the running task has looked at the scheduler since it last passed a label, slept
    /// or gave way of its own accord.
    static LOOKS: Cell<u64> = const { Cell::new(0) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// How a run of tasks ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) steps: u64,
    pub(crate) digest: u64,
    /// Why it did not end well: which task waited where when none could run any more, or which task
    /// panicked.
    pub(crate) failure: Option<String>,
}

/// Hooks the engine up. More than once does no harm.
pub(crate) fn hook() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let reserved = notes::reserved;
        install(Hooks { is_task, point, reserved, block, wake, woke, yield_now, preempt, task });
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // A panic of a task fails the seed, and is reported as the reason.
            if !is_task() || std::env::var_os("ISOBATH_SIM_TRACE").is_some() {
                print(panic);
            }
        }));
    });
}

/// Runs `body` as the first task, and all that it spawns, to their end.
pub(crate) fn run(seed: u64, body: Box<dyn FnOnce()>) -> Ended {
    SHARED.with_borrow_mut(|shared| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let switch_percent = [2, 10, 30, 60][rng.usize(..4)];
        let stall_permille = [1, 5, 30, 100][rng.usize(..4)];
        let preempt_mean = [0, 1000, 1000, 50, 50, 50, 5, 5][rng.usize(..8)];
        let reader_stall_permille = [0, 0, 0, 200][rng.usize(..4)];
        let linger_at = LINGER.get(rng.usize(..8)).copied();
        let waker_stall_percent = [0, 0, 5, 30, 30][rng.usize(..5)];
        ring_slots([0, 16, 64, 1024][rng.usize(..4)]);
        let now_ns = 1_000_000_000;
        *shared = Shared {
            rng,
            switch_percent,
            stall_permille,
            reader_stall_permille,
            linger_at,
            waker_stall_percent,
            preempt_mean,
            now_ns,
            ..Shared::default()
        };
        preempt_after(shared.draw_gap());
    });
    spawn("main".to_owned(), body);
    let stuck = loop {
        match SHARED.with_borrow_mut(Shared::choose) {
            Choice::Run(at) => resume(at),
            Choice::Finished => break None,
            Choice::Stuck(why) => break Some(why),
        }
    };
    preempt_after(u32::MAX);
    ring_slots(0);
    ended(stuck)
}

fn ended(stuck: Option<String>) -> Ended {
    SHARED.with_borrow_mut(|shared| {
        // What a deadlock left behind cannot be unwound; the process is about to report and end.
        shared.slots.drain(..).filter_map(|slot| slot.task).for_each(|task| {
            if !task.done() {
                std::mem::forget(task);
            }
        });
        let failure = shared.panic.take().or(stuck);
        Ended { steps: shared.steps, digest: shared.digest, failure }
    })
}

enum Choice {
    Run(usize),
    Finished,
    Stuck(String),
}

impl Shared {
    fn choose(&mut self) -> Choice {
        self.steps += 1;
        self.now_ns += STEP_NS;
        if self.slots.iter().all(|slot| slot.wait == Wait::Done) {
            return Choice::Finished;
        }
        if self.steps > STEPS_MAX {
            return Choice::Stuck(format!("it goes on and on: {}", self.describe()));
        }
        loop {
            let now = self.now_ns;
            let can_run = |slot: &Slot| match slot.wait {
                Wait::Ready => true,
                Wait::Blocked { deadline_ns: Some(deadline), .. } => deadline <= now,
                _ => false,
            };
            let count = self.slots.iter().filter(|slot| can_run(slot)).count();
            if count > 0 {
                let nth = self.rng.usize(..count);
                let found =
                    self.slots.iter().enumerate().filter(|(_, slot)| can_run(slot)).nth(nth);
                let at = found.map_or(0, |(at, _)| at);
                self.digest =
                    (self.digest.rotate_left(5) ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                return Choice::Run(at);
            }
            let deadlines = self.slots.iter().filter_map(|slot| match slot.wait {
                Wait::Blocked { deadline_ns, .. } => deadline_ns,
                _ => None,
            });
            match deadlines.min() {
                Some(deadline) => self.now_ns = deadline,
                None => return Choice::Stuck(format!("no task can go on: {}", self.describe())),
            }
        }
    }

    /// Accesses to what threads share until the next preemption.
    fn draw_gap(&mut self) -> u32 {
        match self.preempt_mean {
            0 => u32::MAX,
            mean => self.rng.u32(..2 * mean),
        }
    }

    /// Sometimes keeps the task away for long.
    fn draw_stall(&mut self) -> Option<Wait> {
        let of_readers = if self.reads() { self.reader_stall_permille } else { 0 };
        if self.is_calm || self.rng.u16(..1000) >= self.stall_permille.max(of_readers) {
            return None;
        }
        Some(self.stall())
    }

    /// True if the running task only reads.
    fn reads(&self) -> bool {
        self.current.is_some_and(|at| self.slots[at].name.starts_with("reader"))
    }

    /// In lives where readers stay away at a label, keeps the task away there until views have been
    /// replaced.
    fn draw_linger(&mut self, point: Point) -> Option<Wait> {
        // Where readers are late to register, tasks that list them are slow.
        let is_lister = point == Point::Listed && self.linger_at == Some(Point::Registering);
        let is_reader = self.linger_at == Some(point) && self.reads();
        if self.is_calm || !(is_lister || is_reader) {
            return None;
        }
        let at = self.current.filter(|_| self.rng.u8(..LINGER_ONCE_IN) == 0)?;
        if is_lister {
            return Some(self.stall_for(STALL_NS_LOG_MAX));
        }
        // Half of those that are late to register come as soon as they have been missed.
        let is_missed = point == Point::Registering && self.rng.bool();
        let until = if is_missed { Point::Listed } else { Point::Publishing };
        Some(self.stall_until(at, until))
    }

    /// Keeps the task away until others have reached a label as often as is drawn.
    fn stall_until(&mut self, at: usize, point: Point) -> Wait {
        self.slots[at].awaited = Some((point, self.rng.u32(1..=AWAITED_MAX)));
        Wait::Blocked { on: STALLED, deadline_ns: Some(self.now_ns + (1 << AWAITED_NS_LOG)) }
    }

    /// Keeps the task away for a long time that is drawn.
    fn stall(&mut self) -> Wait {
        if let Some(at) = self.current.filter(|_| self.rng.bool()) {
            let point = AWAITED[self.rng.usize(..AWAITED.len())];
            return self.stall_until(at, point);
        }
        self.stall_for(10)
    }

    /// Keeps the task away for less than a power of two of nanoseconds, of at least this magnitude.
    fn stall_for(&mut self, least: u32) -> Wait {
        let magnitude = self.rng.u32(least..=STALL_NS_LOG_MAX);
        let stalled_ns = self.rng.u64(..1 << magnitude);
        Wait::Blocked { on: STALLED, deadline_ns: Some(self.now_ns + stalled_ns) }
    }

    /// The running task is at a label: tasks that are away until then come back.
    fn note(&mut self, point: Point) {
        let Some(current) = self.current else { return };
        self.slots[current].last_point = Some(point);
        for slot in &mut self.slots {
            match &mut slot.awaited {
                Some((awaited, left)) if *awaited == point && *left > 1 => *left -= 1,
                Some((awaited, _)) if *awaited == point => {
                    (slot.wait, slot.awaited) = (Wait::Ready, None);
                }
                _ => {}
            }
        }
    }

    fn describe(&self) -> String {
        let waiting = self.slots.iter().filter(|slot| slot.wait != Wait::Done);
        let lines: Vec<String> = waiting
            .map(|slot| {
                format!("{} waits ({:?}), last at {:?}", slot.name, slot.wait, slot.last_point)
            })
            .collect();
        lines.join("; ")
    }
}

fn resume(at: usize) {
    let (mut task, yielder, looks, mut held) = SHARED.with_borrow_mut(|shared| {
        let slot = &mut shared.slots[at];
        (slot.wait, slot.awaited) = (Wait::Ready, None);
        shared.current = Some(at);
        let task = slot.task.take().expect("only the chosen one runs");
        (task, slot.yielder, std::mem::take(&mut slot.looks), std::mem::take(&mut slot.held))
    });
    YIELDER.set(yielder);
    LOOKS.set(looks);
    held.exchange();
    let result = task.resume(());
    held.exchange();
    YIELDER.set(std::ptr::null());
    SHARED.with_borrow_mut(|shared| {
        shared.current = None;
        let slot = &mut shared.slots[at];
        slot.held = held;
        match result {
            CoroutineResult::Yield(()) => slot.task = Some(task),
            CoroutineResult::Return(()) => {
                slot.wait = Wait::Done;
                STACKS.with_borrow_mut(|stacks| stacks.push(task.into_stack()));
            }
        }
    });
    let is_done = SHARED.with_borrow(|shared| shared.slots[at].wait == Wait::Done);
    if is_done {
        wake(join_key(at), true);
    }
}

/// What tasks that wait for the end of a task block on. Addresses are never odd.
fn join_key(at: usize) -> usize {
    at * 2 + 1
}

/// Starts a task; it runs when it is chosen.
pub(crate) fn spawn(name: String, body: Box<dyn FnOnce()>) -> usize {
    let stack = STACKS.with_borrow_mut(Vec::pop);
    let stack =
        stack.unwrap_or_else(|| DefaultStack::new(STACK_LEN).expect("a stack can be mapped"));
    let at = SHARED.with_borrow(|shared| shared.slots.len());
    let task = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        YIELDER.set(yielder);
        SHARED.with_borrow_mut(|shared| shared.slots[at].yielder = yielder);
        if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(body)) {
            SHARED.with_borrow_mut(|shared| {
                let what = format!("{} panicked: {}", shared.slots[at].name, message(&*panic));
                shared.panic.get_or_insert(what);
            });
        }
    });
    let yielder = std::ptr::null();
    let task = Some(task);
    let slot = Slot {
        name,
        wait: Wait::Ready,
        task,
        yielder,
        last_point: None,
        awaited: None,
        is_waker: false,
        looks: 0,
        held: HeldLocks::default(),
        reserved: None,
        has_waited: false,
        waits: Waits::default(),
    };
    SHARED.with_borrow_mut(|shared| shared.slots.push(slot));
    at
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// The task that runs, if one does.
pub(crate) fn current() -> Option<usize> {
    SHARED.with_borrow(|shared| shared.current)
}

/// Waits for the end of a task.
pub(crate) fn join(at: usize) {
    while SHARED.with_borrow(|shared| shared.slots[at].wait != Wait::Done) {
        block(join_key(at), None);
    }
}

/// True if a task whose name is one of those asked for has not ended.
pub(crate) fn is_at_work(is_asked: impl Fn(&str) -> bool) -> bool {
    SHARED.with_borrow(|shared| {
        shared.slots.iter().any(|slot| slot.wait != Wait::Done && is_asked(&slot.name))
    })
}

/// True if the task that runs is one of the engine's threads of this name.
pub(crate) fn is_thread(name: &str) -> bool {
    SHARED.with_borrow(|shared| {
        shared.current.is_some_and(|at| shared.slots[at].name.starts_with(name))
    })
}

pub(crate) fn now_ns() -> u64 {
    if real::is_here() {
        return real::now_ns();
    }
    SHARED.with_borrow_mut(|shared| {
        shared.now_ns += 20;
        shared.now_ns
    })
}

pub(crate) fn sleep_ns(ns: u64) {
    if real::is_here() {
        return std::thread::sleep(Duration::from_nanos(ns));
    }
    block(STALLED, Some(ns));
}

/// A random number below `end` that belongs to the schedule's seed.
pub(crate) fn random(end: u64) -> u64 {
    SHARED.with_borrow_mut(|shared| shared.rng.u64(..end))
}

/// The number of the running task, for the hooks.
fn task() -> usize {
    current().unwrap_or(usize::MAX)
}

fn is_task() -> bool {
    let is_task = !YIELDER.get().is_null();
    let looks = LOOKS.get() + u64::from(is_task);
    LOOKS.set(looks);
    if looks == LOOKS_MAX && !std::thread::panicking() {
        panic!("it spins");
    }
    is_task
}

fn give_way(wait: Wait) {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only tasks give way");
    SHARED.with_borrow_mut(|shared| {
        if let Some(at) = shared.current {
            shared.slots[at].wait = wait;
        }
    });
    // SAFETY: the yielder lives on the stack of the running task, which set it when it began and is
    // suspended nowhere but in here; `resume` sets it again before the task goes on.
    unsafe { (*yielder).suspend(()) };
}

fn point(point: Point) {
    LOOKS.set(0);
    let wait = SHARED.with_borrow_mut(|shared| {
        shared.note(point);
        let stall = shared.draw_linger(point).or_else(|| shared.draw_stall());
        stall.or_else(|| (shared.rng.u8(..100) < shared.switch_percent).then_some(Wait::Ready))
    });
    if let Some(wait) = wait {
        give_way(wait);
    }
}

fn preempt() {
    reached(Reach::Preempted);
    let wait = SHARED.with_borrow_mut(|shared| {
        preempt_after(shared.draw_gap());
        if let Some(at) = shared.current {
            let slot = &mut shared.slots[at];
            slot.looks = LOOKS.get();
            if std::mem::take(&mut slot.is_waker) && !shared.is_calm {
                return shared.stall();
            }
        }
        shared.draw_stall().unwrap_or(Wait::Ready)
    });
    give_way(wait);
}

/// The running task has woken another one. Draws whether it goes away within a few accesses.
fn woke() {
    SHARED.with_borrow_mut(|shared| {
        let Some(at) = shared.current else { return };
        if !shared.is_calm && shared.rng.u8(..100) < shared.waker_stall_percent {
            shared.slots[at].is_waker = true;
            preempt_after(shared.rng.u32(..WAKER_ACCESSES));
        }
    });
}

/// A thread begins. It may take a while until it first runs.
pub(crate) fn come_late() {
    let wait = SHARED.with_borrow_mut(|shared| match shared.is_calm || shared.rng.u8(..4) > 0 {
        true => None,
        false => {
            reached(Reach::ThreadLate);
            Some(shared.stall())
        }
    });
    wait.into_iter().for_each(give_way);
}

/// From now on no task goes away for long. Returns how long tasks that are away may stay so.
pub(crate) fn calm() -> u64 {
    SHARED.with_borrow_mut(|shared| shared.is_calm = true);
    1 << AWAITED_NS_LOG
}

/// Lets other tasks run first. Used for I/O, which no label marks.
pub(crate) fn maybe_yield() {
    if is_task()
        && SHARED.with_borrow_mut(|shared| shared.rng.u8(..100) < shared.switch_percent / 2)
    {
        give_way(Wait::Ready);
    }
}

pub(crate) fn yield_now() {
    if real::is_here() {
        return real::yield_now();
    }
    give_way(Wait::Ready);
}

fn block(on: usize, timeout_ns: Option<u64>) {
    SHARED.with_borrow_mut(|shared| {
        let running = shared.current.map(|at| &mut shared.slots[at]);
        running.into_iter().for_each(|slot| notes::blocked(slot, on, timeout_ns));
    });
    let deadline_ns = timeout_ns.map(|timeout| now_ns() + timeout);
    give_way(Wait::Blocked { on, deadline_ns });
}

fn wake(on: usize, all: bool) {
    SHARED.with_borrow_mut(|shared| {
        let waiting =
            |slot: &Slot| matches!(slot.wait, Wait::Blocked { on: there, .. } if there == on);
        let count = shared.slots.iter().filter(|slot| waiting(slot)).count();
        if count == 0 {
            return;
        }
        let chosen = shared.rng.usize(..count);
        let sleepers = shared.slots.iter_mut().filter(|slot| waiting(slot)).enumerate();
        for (nth, slot) in sleepers {
            if all || nth == chosen {
                slot.wait = Wait::Ready;
            }
        }
    });
}
