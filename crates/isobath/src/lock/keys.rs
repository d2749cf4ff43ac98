//! Locks on keys: who holds a key and who waits for it, for the keys of one shard.
//!
//! Requests for a key are granted in the order of arrival. A request waits for the holders, and for
//! the earlier requests, that its mode is incompatible with. The one exception: the request of an
//! owner that holds the key already stands before those of owners that do not, because they wait
//! for it in any case.
//!
//! Keys that share a slot (a word of the table of stamps) are in one chain. The slot's `locked` bit
//! is set exactly while its chain has a key. Everything here happens while the lock on the shard is
//! held.

use super::owner::Owner;
use super::ranges::Span;
use super::waits::note_look;
use super::{LockMode, LockRefusal, Place, Slots};
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::{Plant, planted};
use crate::format::FamilyId;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// A key by its family and bytes, and the slot that its hash belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyName {
    pub(super) family: FamilyId,
    pub(super) key: Arc<[u8]>,
    pub(super) slot: usize,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// To hold the key.
    Hold(LockMode),
    /// To wait until no other owner holds the key in a mode that excludes this one. The key is not
    /// held afterwards.
    Pass(LockMode),
}

impl Want {
    /// The mode that other requests compare theirs with.
    fn mode(self) -> LockMode {
        match self {
            Want::Hold(mode) | Want::Pass(mode) => mode,
        }
    }

    fn held(self) -> Option<LockMode> {
        match self {
            Want::Hold(mode) => Some(mode),
            Want::Pass(_) => None,
        }
    }
}

#[derive(Debug)]
struct Holder {
    owner: Arc<Owner>,
    mode: LockMode,
}

#[derive(Debug)]
struct Request {
    owner: Arc<Owner>,
    ticket: u64,
    want: Want,
}

#[derive(Debug)]
struct Entry {
    name: KeyName,
    holders: Vec<Holder>,
    queue: VecDeque<Request>,
}

/// How a granted request has changed what its owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// Nothing: the owner held the key in this mode or a stronger one.
    Nothing,
    /// The owner holds a key that it did not hold.
    New,
    /// The owner holds a key in a stronger mode than before.
    More,
}

/// How a request was answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted(Got),
    /// It stands in the queue.
    Queued(Place),
    /// It would have to wait, and the caller does not permit that.
    Busy,
}

/// The locked keys whose slots belong to one shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    chains: BTreeMap<usize, Vec<Entry>>,
    /// The slots of the keys in their order, by family. Made when a range is first looked for, and
    /// kept until nothing is locked.
    order: Option<Order>,
    /// How many keys were looked at for ranges.
    #[cfg(test)]
    pub(super) looks: std::cell::Cell<usize>,
}

type Order = BTreeMap<FamilyId, BTreeMap<Arc<[u8]>, usize>>;

impl Shard {
    fn find(&mut self, slot: usize, family: FamilyId, key: &[u8]) -> Option<&mut Entry> {
        let chain = self.chains.get_mut(&slot)?;
        chain.iter_mut().find(|entry| entry.name.family == family && *entry.name.key == *key)
    }

    fn find_shared(&self, slot: usize, family: FamilyId, key: &[u8]) -> Option<&Entry> {
        let chain = self.chains.get(&slot)?;
        chain.iter().find(|entry| entry.name.family == family && *entry.name.key == *key)
    }

    /// Grants a request or, if there are tickets, puts it into the queue.
    pub(super) fn request(
        &mut self,
        slots: &dyn Slots,
        (slot, family, key): (usize, FamilyId, &[u8]),
        owner: &Arc<Owner>,
        want: Want,
        tickets: Option<&AtomicU64>,
    ) -> Result<Answer, LockRefusal> {
        let Some(entry) = self.find(slot, family, key) else {
            if let Want::Hold(mode) = want {
                debug_assert_eq!(slots.slot(family, key), slot, "a key lies in its own slot");
                let name = KeyName { family, key: key.into(), slot };
                owner.note_held(&name, mode);
                let holders = vec![Holder { owner: Arc::clone(owner), mode }];
                if let Some(order) = &mut self.order {
                    order.entry(family).or_default().insert(Arc::clone(&name.key), slot);
                }
                let entry = Entry { name, holders, queue: VecDeque::new() };
                // Most chains have one key.
                let chain = self.chains.entry(slot).or_insert_with(|| Vec::with_capacity(1));
                chain.push(entry);
                if chain.len() == 1 {
                    slots.set_locked(slot);
                }
            }
            return Ok(Answer::Granted(Got::New));
        };
        entry.request(owner, want, tickets)
    }

    /// True if an owner other than this one holds the key, in a mode that excludes `mode`.
    pub(super) fn is_held_against(
        &self,
        (slot, family, key): (usize, FamilyId, &[u8]),
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> bool {
        let held = |entry: &Entry| {
            entry.holders.iter().any(|holder| {
                holder.mode.excludes(mode) && owner.is_none_or(|owner| owner.id != holder.owner.id)
            })
        };
        self.find_shared(slot, family, key).is_some_and(held)
    }

    /// A key of the span that an owner other than `owner` holds in a mode that excludes `mode`.
    pub(super) fn key_against(
        &mut self,
        (family, span): (FamilyId, &Span),
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> Option<Arc<[u8]>> {
        if self.order.is_none() && !self.chains.is_empty() {
            self.order = Some(order_of(&self.chains));
        }
        let order = self.order.as_ref()?.get(&family)?;
        let from = (Bound::Included(&*span.lower), Bound::Unbounded);
        let within = order.range::<[u8], _>(from).take_while(|(key, _)| span.contains(key));
        let mut against = within.filter(|(key, slot)| {
            let entry = self.find_shared(**slot, family, key);
            entry.is_some_and(|entry| self.is_against(entry, owner, mode))
        });
        against.next().map(|(key, _)| Arc::clone(key))
    }

    /// The same of all keys that `is_asked`, for whom has too many spans to look for each.
    pub(super) fn any_key_against(
        &self,
        is_asked: impl Fn(FamilyId, &[u8]) -> bool,
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> Option<(FamilyId, Arc<[u8]>)> {
        let is_found = |entry: &&Entry| {
            is_asked(entry.name.family, &entry.name.key) && self.is_against(entry, owner, mode)
        };
        let found = self.chains.values().flatten().find(is_found)?;
        Some((found.name.family, Arc::clone(&found.name.key)))
    }

    fn is_against(&self, entry: &Entry, owner: Option<&Owner>, mode: LockMode) -> bool {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        let is_other = |holder: &Holder| owner.is_none_or(|owner| holder.owner.id != owner.id);
        entry.holders.iter().any(|holder| is_other(holder) && holder.mode.excludes(mode))
    }

    /// Gives a key back.
    pub(super) fn release(&mut self, slots: &dyn Slots, name: &KeyName, owner: &Owner) {
        if let Some(entry) = self.find(name.slot, name.family, &name.key) {
            debug_assert!(entry.is_holder(owner), "only what is held is given back");
            entry.holders.retain(|holder| holder.owner.id != owner.id);
            self.settle(slots, name);
        }
        if planted(Plant::BitClearedByFirst) {
            slots.clear_locked(name.slot);
        }
    }

    /// Makes the lock of a holder a shared one.
    pub(super) fn weaken(&mut self, slots: &dyn Slots, name: &KeyName, owner: &Owner) {
        if let Some(entry) = self.find(name.slot, name.family, &name.key) {
            let holders = entry.holders.iter_mut();
            for holder in holders.filter(|holder| holder.owner.id == owner.id) {
                holder.mode = LockMode::Shared;
            }
            self.settle(slots, name);
        }
    }

    /// Removes a request whose wait has ended. If the request was still in the queue, returns an
    /// owner that it waited for.
    pub(super) fn withdraw(
        &mut self,
        slots: &dyn Slots,
        name: &KeyName,
        ticket: u64,
    ) -> Option<u64> {
        let entry = self.find(name.slot, name.family, &name.key)?;
        let at = entry.queue.iter().position(|request| request.ticket == ticket)?;
        let holder = entry.blockers(at).first().map(|owner| owner.id);
        entry.queue.remove(at);
        self.settle(slots, name);
        holder
    }

    /// Grants the requests for a key that can be granted, and removes the key from the map if
    /// nothing holds it any more.
    fn settle(&mut self, slots: &dyn Slots, name: &KeyName) {
        let Some(entry) = self.find(name.slot, name.family, &name.key) else { return };
        entry.promote();
        entry.check();
        if !entry.holders.is_empty() || !entry.queue.is_empty() {
            return;
        }
        if let Some(chain) = self.chains.get_mut(&name.slot) {
            debug_assert!(chain.iter().any(|entry| entry.name == *name), "the key is in its chain");
            chain.retain(|entry| entry.name != *name);
            if chain.is_empty() {
                self.chains.remove(&name.slot);
                slots.clear_locked(name.slot);
            }
        }
        match &mut self.order {
            Some(order) if !self.chains.is_empty() => {
                order.entry(name.family).and_modify(|keys| _ = keys.remove(&name.key));
            }
            order => *order = None,
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// The owners that the request with this ticket waits for; none if it does not wait.
    pub(super) fn blockers(&self, name: &KeyName, ticket: u64) -> Vec<Arc<Owner>> {
        let entry = self.find_shared(name.slot, name.family, &name.key);
        let at = entry.and_then(|entry| entry.position(ticket));
        entry.zip(at).map_or_else(Vec::new, |(entry, at)| entry.blockers(at))
    }
}

/// The slots of all keys in the order of the keys.
fn order_of(chains: &BTreeMap<usize, Vec<Entry>>) -> Order {
    let mut order = Order::new();
    for KeyName { family, key, slot } in chains.values().flatten().map(|entry| &entry.name) {
        order.entry(*family).or_default().insert(Arc::clone(key), *slot);
    }
    order
}

impl Entry {
    fn request(
        &mut self,
        owner: &Arc<Owner>,
        want: Want,
        tickets: Option<&AtomicU64>,
    ) -> Result<Answer, LockRefusal> {
        let own = self.holders.iter().find(|holder| holder.owner.id == owner.id);
        let own = own.map(|holder| holder.mode);
        if own.is_some_and(|own| own == LockMode::Exclusive || want == Want::Hold(own)) {
            return Ok(Answer::Granted(Got::Nothing));
        }
        let got = if own.is_some() { Got::More } else { Got::New };
        // A request of an owner that holds the key stands behind other such requests only.
        let at = match own {
            Some(_) => self.queue.iter().take_while(|one| self.is_holder(&one.owner)).count(),
            None => self.queue.len(),
        };
        if !self.is_blocked(at, owner, want) {
            self.give(owner, want);
            if let Some(mode) = want.held() {
                owner.note_held(&self.name, mode);
            }
            return Ok(Answer::Granted(got));
        }
        let Some(tickets) = tickets else { return Ok(Answer::Busy) };
        let ticket = tickets.fetch_add(1, Ordering::Relaxed);
        debug_assert!(
            self.queue.iter().all(|one| one.owner.id != owner.id || !one.owner.waits(one.ticket)),
            "an owner stands in a queue once"
        );
        owner.begin_wait(ticket)?;
        self.queue.insert(at, Request { owner: Arc::clone(owner), ticket, want });
        debug_assert_eq!(self.position(ticket), Some(at), "a request is found where it stands");
        Ok(Answer::Queued(Place { name: self.name.clone(), ticket, got, is_range: false }))
    }

    /// Where in the queue the request with this ticket stands; `None` if it has left the queue.
    /// Tickets ascend but for the first few: those of owners that hold the key.
    fn position(&self, ticket: u64) -> Option<usize> {
        self.position_from(0, ticket).or_else(|| {
            let of_holder = |one: &&Request| self.is_holder(&one.owner);
            let leading = self.queue.iter().take_while(of_holder).count();
            note_look(leading);
            let mut first = self.queue.iter().take(leading);
            match first.position(|one| one.ticket == ticket) {
                None if leading > 0 => self.position_from(leading, ticket),
                found => found,
            }
        })
    }

    /// The same, of those from this place on, as if their tickets did ascend.
    fn position_from(&self, start: usize, ticket: u64) -> Option<usize> {
        let (mut start, mut end) = (start, self.queue.len());
        while start < end {
            note_look(1);
            let middle = start.midpoint(end);
            match self.queue[middle].ticket.cmp(&ticket) {
                Less => start = middle + 1,
                Equal => return Some(middle),
                Greater => end = middle,
            }
        }
        None
    }

    fn is_holder(&self, owner: &Owner) -> bool {
        self.holders.iter().any(|holder| holder.owner.id == owner.id)
    }

    /// True if a request of `owner` at this place of the queue has to wait.
    fn is_blocked(&self, at: usize, owner: &Owner, want: Want) -> bool {
        let is_other = |other: &Owner| other.id != owner.id;
        let holders = self.holders.iter().map(|holder| (&holder.owner, holder.mode));
        let earlier = self.queue.iter().take(at).map(|one| (&one.owner, one.want.mode()));
        holders.chain(earlier).any(|(other, mode)| is_other(other) && mode.excludes(want.mode()))
    }

    fn give(&mut self, owner: &Arc<Owner>, want: Want) {
        let Some(mode) = want.held() else { return };
        match self.holders.iter_mut().find(|holder| holder.owner.id == owner.id) {
            Some(holder) => {
                debug_assert!(holder.mode < mode, "a second lock of an owner is a stronger one");
                holder.mode = mode;
            }
            None => self.holders.push(Holder { owner: Arc::clone(owner), mode }),
        }
    }

    /// Checks what must hold between two changes of an entry.
    fn check(&self) {
        let pairs = || {
            let others = |at: usize| self.holders[at + 1..].iter();
            self.holders.iter().enumerate().flat_map(move |(at, a)| others(at).map(move |b| (a, b)))
        };
        debug_assert!(pairs().all(|(a, b)| a.owner.id != b.owner.id), "an owner holds a key once");
        debug_assert!(
            pairs().all(|(a, b)| !a.mode.excludes(b.mode)),
            "two owners hold a key in modes that exclude each other"
        );
        debug_assert!(
            self.queue.front().is_none_or(|first| self.is_blocked(0, &first.owner, first.want)),
            "the first of the queue waits for nothing"
        );
    }

    /// Grants the requests that no longer have to wait, in the order of the queue.
    fn promote(&mut self) {
        let mut at = 0;
        while let Some(Request { owner, ticket, want }) = self.queue.get(at) {
            if !owner.waits(*ticket) {
                self.queue.remove(at);
                continue;
            }
            if self.is_blocked(at, owner, *want) {
                at += 1;
                continue;
            }
            let (owner, ticket, want) = (Arc::clone(owner), *ticket, *want);
            self.queue.remove(at);
            if owner.grant(ticket, &self.name, want.held()) {
                self.give(&owner, want);
            }
        }
    }

    /// Owners that the request at this place waits for, directly or through each other. The list
    /// ends with the nearest earlier request that excludes everything, because that request itself
    /// waits for all requests before it.
    fn blockers(&self, at: usize) -> Vec<Arc<Owner>> {
        let Request { owner, want, .. } = &self.queue[at];
        let mode = want.mode();
        let mut found: Vec<Arc<Owner>> = Vec::new();
        let mut add = |other: &Arc<Owner>| {
            if other.id != owner.id {
                found.push(Arc::clone(other));
            }
        };
        let holders = self.holders.iter().filter(|holder| holder.mode.excludes(mode));
        holders.for_each(|holder| add(&holder.owner));
        if planted(Plant::EdgesToHoldersOnly) {
            return found;
        }
        for earlier in self.queue.iter().take(at).rev() {
            note_look(1);
            if earlier.want.mode().excludes(mode) && earlier.owner.waits(earlier.ticket) {
                add(&earlier.owner);
                if earlier.want.mode() == LockMode::Exclusive {
                    break;
                }
            }
        }
        found
    }
}
