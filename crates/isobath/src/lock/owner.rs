//! Who holds locks and waits for them: a transaction, or a plain write for as long as it waits.
//!
//! An owner waits for one lock at a time. [`Call`] alone says how that wait stands. The thread that
//! changes it from `Waiting` decides how the wait ends: the one that grants the lock, that has
//! found a deadlock or that aborts the transaction, or the sleeper itself when its time is up. A
//! place in a queue whose wait has ended some other way is skipped, and its owner removes it.
//!
//! The locks that an owner holds are listed in its state and in the maps of locks. Both change
//! together, while the lock on the map's shard is held.
//!
//! Below a ceiling for memory an owner charges its locks. The thread that calls the owner charges
//! them; any thread that gives them back gives the charge back, too.

use super::keys::KeyName;
use super::{LockMode, LockRefusal};
use crate::env::Clock;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::sync::{Condvar, Mutex, Rank, thread_id};
use crate::error::Result;
use crate::format::FamilyId;
use crate::memory::Allowance;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Stands for the thread of an owner that no thread is calling.
const NO_THREAD: u64 = u64::MAX;

/// A transaction as the locks see it, or a plain write that waits.
#[derive(Debug)]
pub(crate) struct Owner {
    /// It is unique, and later owners have greater ones. Of several owners that wait for each
    /// other, the one with the greatest id is the youngest, and fails. A transaction keeps it
    /// through its attempts, and errors name it so.
    pub(crate) id: u64,
    is_write: bool,
    /// The thread that called the transaction last.
    thread: AtomicU64,
    /// The memory that the transaction took when it was last called. It is only shown to people.
    bytes: AtomicU64,
    /// The memory that the locks of keys take that it holds.
    held_bytes: AtomicU64,
    /// The memory of locks that is charged.
    charged: AtomicU64,
    state: Mutex<State>,
    wakeup: Condvar,
}

/// The memory that a lock takes beside its key: the entries of the owner's map, of the shard's and
/// of the shard's order, and what they point to.
const LOCK_BYTES: u64 = 320;

/// The memory that the lock of a key takes, about.
pub(crate) fn lock_bytes(key: &[u8]) -> u64 {
    LOCK_BYTES + key.len() as u64
}

/// The keys that an owner holds, by family.
pub(super) type Held = BTreeMap<FamilyId, BTreeMap<Arc<[u8]>, HeldKey>>;

#[derive(Clone, Copy, Debug)]
pub(super) struct HeldKey {
    /// The slot that the key's hash belongs to.
    pub(super) slot: usize,
    mode: LockMode,
    /// See [`Owner::cover`].
    is_covered: bool,
}

#[derive(Debug)]
struct State {
    call: Call,
    is_aborted: bool,
    held: Held,
    /// None before something is charged.
    allowance: Option<Allowance>,
}

/// How the current wait stands.
#[derive(Debug)]
enum Call {
    /// It does not wait.
    None,
    /// It waits, in the place of a queue that has this ticket.
    Waiting(u64),
    /// It has what it waited for.
    Granted,
    Refused(LockRefusal),
}

impl Owner {
    /// A transaction.
    pub(crate) fn transaction(id: u64) -> Arc<Owner> {
        Owner::new(id, false)
    }

    /// A plain write, or another operation outside of any transaction.
    pub(crate) fn write(id: u64) -> Arc<Owner> {
        Owner::new(id, true)
    }

    fn new(id: u64, is_write: bool) -> Arc<Owner> {
        let (call, held) = (Call::None, Held::new());
        let state = State { call, is_aborted: false, held, allowance: None };
        Arc::new(Owner {
            id,
            is_write,
            thread: AtomicU64::new(thread_id()),
            bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            charged: AtomicU64::new(0),
            state: Mutex::new(Rank::LockOwner, state),
            wakeup: Condvar::new(),
        })
    }

    /// True for a plain write.
    pub(crate) fn is_write(&self) -> bool {
        self.is_write
    }

    /// Orders owners by which fails first in a deadlock: the youngest transaction, and a plain
    /// write last.
    pub(super) fn youth(&self) -> u64 {
        if self.is_write { 0 } else { self.id }
    }

    /// Notes that the owner is called from this thread.
    #[inline]
    pub(crate) fn note_thread(&self) {
        self.thread.store(thread_id(), Ordering::Relaxed);
    }

    /// Notes that no thread is in the transaction, or will be: it never waits.
    pub(crate) fn leave_thread(&self) {
        self.thread.store(NO_THREAD, Ordering::Relaxed);
    }

    /// Notes how much memory the transaction takes.
    #[inline]
    pub(crate) fn note_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The memory that the transaction took when it was last called.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The memory that the locks of keys take that the owner holds, about.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Charges locks that take so many bytes in all, or fails and charges nothing more. `begin`
    /// makes the allowance.
    #[inline]
    pub(crate) fn charge_locks(&self, bytes: u64, begin: impl FnOnce() -> Allowance) -> Result<()> {
        match bytes <= self.charged.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.change_charge(begin, |allowance| allowance.grow_to(bytes)),
        }
    }

    /// The same for locks that are taken in any case: as far as there is room.
    #[inline]
    pub(crate) fn charge_held(&self, bytes: u64, begin: impl FnOnce() -> Allowance) {
        if bytes > self.charged.load(Ordering::Relaxed) {
            self.change_charge(begin, |allowance| allowance.grow_as_far_as_there_is_room(bytes));
        }
    }

    /// True if locks are charged.
    #[inline]
    pub(super) fn is_charged(&self) -> bool {
        self.charged.load(Ordering::Relaxed) > 0
    }

    /// Gives back what is charged beyond so many bytes.
    pub(super) fn shrink_charge(&self, bytes: u64) {
        self.change_charge(Allowance::endless, |allowance| allowance.shrink_to(bytes));
    }

    #[cold]
    fn change_charge<T>(
        &self,
        begin: impl FnOnce() -> Allowance,
        change: impl FnOnce(&mut Allowance) -> T,
    ) -> T {
        let mut state = self.state.lock();
        let allowance = state.allowance.get_or_insert_with(begin);
        let changed = change(allowance);
        self.charged.store(allowance.bytes(), Ordering::Relaxed);
        changed
    }

    fn charge(&self, key: &[u8]) {
        self.held_bytes.fetch_add(lock_bytes(key), Ordering::Relaxed);
    }

    /// True while the owner waits for a lock.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state.lock().call, Call::Waiting(_))
    }

    pub(super) fn thread(&self) -> u64 {
        self.thread.load(Ordering::Relaxed)
    }

    /// The mode in which the owner holds this key.
    pub(crate) fn holds(&self, family: FamilyId, key: &[u8]) -> Option<LockMode> {
        Some(self.state.lock().held.get(&family)?.get(key)?.mode)
    }

    /// Notes that the key, which the owner holds, has not changed since the transaction's read
    /// point. So it needs no validation: it stays as it is until the lock is given back.
    pub(crate) fn cover(&self, family: FamilyId, key: &[u8]) {
        let mut state = self.state.lock();
        if let Some(held) = state.held.get_mut(&family).and_then(|keys| keys.get_mut(key)) {
            held.is_covered = true;
        }
    }

    /// True if the key is known not to have changed since the transaction's read point.
    pub(crate) fn is_covered(&self, family: FamilyId, key: &[u8]) -> bool {
        let state = self.state.lock();
        state.held.get(&family).and_then(|keys| keys.get(key)).is_some_and(|held| held.is_covered)
    }

    /// Forgets which keys have not changed, for a transaction that begins anew.
    pub(crate) fn uncover(&self) {
        let mut state = self.state.lock();
        let keys = state.held.values_mut().flat_map(BTreeMap::values_mut);
        keys.for_each(|held| held.is_covered = false);
    }

    /// The number of keys that the owner holds in this family.
    #[cfg(test)]
    pub(crate) fn held_count(&self, family: FamilyId) -> usize {
        self.state.lock().held.get(&family).map_or(0, BTreeMap::len)
    }

    /// True if the owner holds any key.
    #[cfg(test)]
    pub(crate) fn holds_any(&self) -> bool {
        !self.state.lock().held.is_empty()
    }

    /// Ends the present wait, and every later one.
    pub(crate) fn abort(&self) {
        self.state.lock().is_aborted = true;
        self.refuse(|| LockRefusal::Aborted);
    }

    /// True if no wait is permitted any more.
    pub(super) fn is_aborted(&self) -> bool {
        self.state.lock().is_aborted
    }

    /// Permits waits again, for a transaction that begins anew.
    pub(crate) fn revive(&self) {
        self.state.lock().is_aborted = false;
    }

    /// The number of keys that the owner holds.
    pub(crate) fn held_len(&self) -> usize {
        self.state.lock().held.values().map(BTreeMap::len).sum()
    }

    /// Begins a wait; refused if the owner was aborted.
    pub(super) fn begin_wait(&self, ticket: u64) -> Result<(), LockRefusal> {
        let mut state = self.state.lock();
        if state.is_aborted {
            return Err(LockRefusal::Aborted);
        }
        debug_assert!(matches!(state.call, Call::None), "an owner waits in one place at a time");
        state.call = Call::Waiting(ticket);
        Ok(())
    }

    /// True while the owner waits in the place that has this ticket.
    pub(super) fn waits(&self, ticket: u64) -> bool {
        matches!(self.state.lock().call, Call::Waiting(waiting) if waiting == ticket)
    }

    /// Grants what the owner waits for, under this ticket. With a mode, it then holds the key.
    /// False if the wait has ended already. The caller holds the lock on the key's shard.
    pub(super) fn grant(&self, ticket: u64, name: &KeyName, mode: Option<LockMode>) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.call, Call::Waiting(waiting) if waiting == ticket) {
            return false;
        }
        state.call = Call::Granted;
        if let Some(mode) = mode
            && state.note_held(name, mode)
        {
            self.charge(&name.key);
        }
        self.wakeup.notify_one();
        true
    }

    /// Grants a range, or a passage behind one, that the owner waits for under this ticket. False
    /// if the wait has ended already.
    pub(super) fn grant_range(&self, ticket: u64) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.call, Call::Waiting(waiting) if waiting == ticket) {
            return false;
        }
        state.call = Call::Granted;
        self.wakeup.notify_one();
        true
    }

    /// Enters a key that was free.
    pub(super) fn note_held(&self, name: &KeyName, mode: LockMode) {
        if self.state.lock().note_held(name, mode) {
            self.charge(&name.key);
        }
    }

    /// Notes that the lock on a key is a shared one again.
    pub(super) fn weaken(&self, name: &KeyName) {
        let mut state = self.state.lock();
        let held = state.held.get_mut(&name.family).and_then(|of| of.get_mut(&name.key));
        debug_assert!(held.is_some(), "only a lock that is held gets weaker");
        held.into_iter().for_each(|held| held.mode = LockMode::Shared);
    }

    /// Forgets a key. False if it is not held.
    pub(super) fn forget(&self, name: &KeyName) -> bool {
        let mut state = self.state.lock();
        let Some(keys) = state.held.get_mut(&name.family) else { return false };
        let was_held = keys.remove(&name.key).is_some();
        if keys.is_empty() {
            state.held.remove(&name.family);
        }
        if was_held {
            debug_assert!(self.held_bytes() >= lock_bytes(&name.key), "what is held was charged");
            self.held_bytes.fetch_sub(lock_bytes(&name.key), Ordering::Relaxed);
        }
        was_held
    }

    /// The keys that are held, in their order.
    pub(super) fn held(&self) -> Vec<(FamilyId, Arc<[u8]>)> {
        let state = self.state.lock();
        let of_family = |(family, keys): (&FamilyId, &BTreeMap<Arc<[u8]>, HeldKey>)| {
            keys.keys().map(|key| (*family, Arc::clone(key))).collect::<Vec<_>>()
        };
        state.held.iter().flat_map(of_family).collect()
    }

    /// The keys that are held, in their order, each with its mode.
    pub(crate) fn held_keys(&self) -> Vec<(FamilyId, Arc<[u8]>, LockMode)> {
        let state = self.state.lock();
        let of_family = |(family, keys): (&FamilyId, &BTreeMap<Arc<[u8]>, HeldKey>)| {
            let of_key = |(key, held): (&Arc<[u8]>, &HeldKey)| (*family, key.clone(), held.mode);
            keys.iter().map(of_key).collect::<Vec<_>>()
        };
        state.held.iter().flat_map(of_family).collect()
    }

    /// Takes all that is held, to give it back.
    pub(super) fn take_held(&self) -> Held {
        let mut state = self.state.lock();
        self.held_bytes.store(0, Ordering::Relaxed);
        std::mem::take(&mut state.held)
    }

    /// Ends the present wait without what it is for. False if there is none.
    pub(super) fn refuse(&self, why: impl FnOnce() -> LockRefusal) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.call, Call::Waiting(_)) {
            return false;
        }
        state.call = Call::Refused(why());
        self.wakeup.notify_one();
        true
    }

    /// Sleeps until the wait ends, which it does at `deadline_ns` by the clock at the latest.
    pub(super) fn sleep(&self, clock: &dyn Clock, deadline_ns: u64) -> Result<(), LockRefusal> {
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut state.call, Call::None) {
                Call::Granted => return Ok(()),
                Call::Refused(why) => return Err(why),
                waiting => state.call = waiting,
            }
            if deadline_ns == u64::MAX {
                self.wakeup.wait(&mut state);
                continue;
            }
            let left_ns = deadline_ns.saturating_sub(clock.now_ns());
            if left_ns == 0 {
                state.call = Call::None;
                return Err(LockRefusal::Timeout { holder: None });
            }
            self.wakeup.wait_for(&mut state, Duration::from_nanos(left_ns));
        }
    }
}

impl State {
    /// True if the key was not held before.
    fn note_held(&mut self, name: &KeyName, mode: LockMode) -> bool {
        let held = HeldKey { slot: name.slot, mode, is_covered: false };
        let keys = self.held.entry(name.family).or_default();
        let before = keys.len();
        let noted = keys.entry(Arc::clone(&name.key)).or_insert(held);
        debug_assert!(noted.mode <= mode, "a lock that is held gets no weaker");
        noted.mode = mode;
        keys.len() > before
    }
}
