//! Locks on ranges of keys: who holds a range of a family, and who waits for one or behind one.
//!
//! A range excludes other ranges that overlap it, keys in it that others have locked, and writes in
//! it. Ranges have no slot and no bit. They work as the gate of transactions does: the holder
//! publishes its range, touches the log's tail, and waits until everything that was reserved before
//! is visible. A writer looks for ranges before it announces itself, and once more when it has its
//! LSN: one that reserves behind the touch sees [`Ranges::version`] changed. So a range must be
//! held until `visible` has passed the holder's own LSN. If it were released earlier, a writer that
//! reserved below that LSN and looks again after the release would not see it.
//!
//! A range is granted in two steps: among ranges, in the order of arrival, which publishes it; then
//! its owner waits for keys in it that others have locked ([`Locks::take_range`](super::Locks)). A
//! locker of a key looks for ranges after it has the key. If a range is in its way, it gives the
//! key back and waits for the range. So if a range and a key in it are requested at once, at least
//! one of the two requests sees the other.
//!
//! To wait until a range is free is not enough where others lock it one after the other: when it is
//! given back, the next one has it. So a locker of a key that has waited before takes a turn among
//! them: it holds the range of its key and takes the key in it, if no other has the key by then.
//! One that has had such a turn in vain waits for the key in its next turn.
//!
//! Requests that wait for an owner do not hold it up. If it holds a range and asks for more of it,
//! or for all of it alone, it goes before those who wait for it, directly or through others of the
//! family ([`OfFamily::waiting_for`]): they would wait in any case, and behind them it would wait
//! for itself. Which ones those are is settled when it asks. So what a sleeper waits for changes
//! later only where a request is granted or withdrawn, and the search for deadlocks misses nothing.
//!
//! A commit may hold very many ranges, and while it does every writer asks about each of its keys.
//! So what is held stands by owner, and of each owner in an order by lower bound (`range_set.rs`):
//! a question costs one search for each owner that holds a range of the family. Only requests that
//! wait are compared one by one.

use super::owner::Owner;
use super::range_set::OwnRanges;
use super::waits::note_look;
use super::{LockMode, LockRefusal};
use crate::env::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Plant, planted};
use crate::format::FamilyId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The keys of a family from `lower` on and, if there is an `upper`, below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) lower: Arc<[u8]>,
    pub(crate) upper: Option<Arc<[u8]>>,
}

impl Span {
    /// The span of one key.
    pub(crate) fn of_key(key: &[u8]) -> Span {
        let mut upper = key.to_vec();
        upper.push(0);
        Span { lower: key.into(), upper: Some(upper.into()) }
    }

    /// The span of a range delete. An empty end means that there is none.
    pub(crate) fn of_delete(start: &[u8], end: &[u8]) -> Span {
        Span { lower: start.into(), upper: (!end.is_empty()).then(|| end.into()) }
    }

    /// False if the span ends where it begins.
    pub(crate) fn holds_keys(&self) -> bool {
        self.upper.as_ref().is_none_or(|upper| *upper > self.lower)
    }

    /// True if the key lies in the span.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        *self.lower <= *key && self.upper.as_ref().is_none_or(|upper| *key < **upper)
    }

    /// Widens the span, so that it also has the keys of the other one and those in between.
    pub(crate) fn reach_over(&mut self, other: &Span) {
        if other.lower < self.lower {
            self.lower = Arc::clone(&other.lower);
        }
        self.upper = self.upper.take().zip(other.upper.clone()).map(|(one, next)| one.max(next));
        debug_assert!(
            self.contains(&other.lower) && (self.upper.is_none() || self.upper >= other.upper),
            "a span becomes no smaller"
        );
    }

    /// True if all keys of the other span lie in this one.
    fn covers(&self, other: &Span) -> bool {
        let ends_behind = |upper: &Arc<[u8]>| other.upper.as_ref().is_some_and(|end| end <= upper);
        self.lower <= other.lower && self.upper.as_ref().is_none_or(ends_behind)
    }

    /// True if a key may lie in both.
    pub(crate) fn overlaps(&self, other: &Span) -> bool {
        let ends_before = |one: &Span, other: &Span| {
            one.upper.as_ref().is_some_and(|upper| *upper <= other.lower)
        };
        !ends_before(self, other) && !ends_before(other, self)
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeWant {
    Hold(LockMode),
    /// To hold the range of a key until that key is taken. Its owner relies on nothing in it.
    Turn(LockMode),
    /// To wait until no range that others hold excludes a key in this mode. The key is not held
    /// afterwards.
    Pass(LockMode),
}

impl RangeWant {
    fn mode(self) -> LockMode {
        match self {
            RangeWant::Hold(mode) | RangeWant::Turn(mode) | RangeWant::Pass(mode) => mode,
        }
    }

    fn holds(self) -> bool {
        !matches!(self, RangeWant::Pass(_))
    }
}

/// A request that waits, or is about to.
#[derive(Debug)]
struct Request {
    owner: Arc<Owner>,
    span: Span,
    want: RangeWant,
    /// Requests that came before have a smaller one.
    ticket: u64,
    /// The tickets of those that came before and waited for the owner when it asked.
    overtaken: BTreeSet<u64>,
}

impl Request {
    /// True if this request has to wait for `other`, which came before and waits, too. One that
    /// only passes waits for ranges that are held, and no request waits for it.
    fn waits_behind(&self, other: &Request) -> bool {
        self.want.holds()
            && other.want.holds()
            && self.owner.id != other.owner.id
            && !self.overtaken.contains(&other.ticket)
            && self.want.mode().excludes(other.want.mode())
            && self.span.overlaps(&other.span)
    }

    /// True if this request has to wait for what the owner holds. One that only passes does not
    /// wait for owners that came behind it, or it might wait for ever.
    fn waits_for(&self, holder: &Holder) -> bool {
        let counts = self.want.holds() || holder.since <= self.ticket;
        counts
            && self.owner.id != holder.owner.id
            && holder.ranges.exclude(self.want.mode(), |held| held.overlaps(&self.span))
    }
}

/// An owner that holds ranges of a family.
#[derive(Debug)]
struct Holder {
    owner: Arc<Owner>,
    /// How many tickets had been handed out when it came.
    since: u64,
    ranges: OwnRanges,
    /// All that it holds is the range of a key that it is about to take.
    is_in_turn: bool,
}

/// The ranges of one family.
#[derive(Debug, Default)]
struct OfFamily {
    /// By the ids of owners.
    holders: BTreeMap<u64, Holder>,
    /// In the order of arrival.
    queue: Vec<Request>,
}

impl OfFamily {
    fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// The owners that a request with so many others before it in the queue waits for.
    fn blockers<'a>(
        &'a self,
        request: &'a Request,
        earlier: usize,
    ) -> impl Iterator<Item = &'a Arc<Owner>> {
        let holders = self.holders.values().filter(|holder| request.waits_for(holder));
        let earlier = self.queue[..earlier].iter().filter(|other| request.waits_behind(other));
        let waits = |other: &&Request| other.owner.waits(other.ticket);
        holders.map(|holder| &holder.owner).chain(earlier.filter(waits).map(|other| &other.owner))
    }

    /// Owners that the request at this place waits for, directly or through each other. The list
    /// ends with the nearest earlier request that excludes everything in the request's span and has
    /// overtaken no other, because it waits for all before it that the request would wait for.
    fn nearest_blockers(&self, at: usize) -> Vec<Arc<Owner>> {
        let request = &self.queue[at];
        let holders = self.holders.values().filter(|holder| request.waits_for(holder));
        let mut found: Vec<_> = holders.map(|holder| Arc::clone(&holder.owner)).collect();
        for other in self.queue[..at].iter().rev() {
            note_look(1);
            if request.waits_behind(other) && other.owner.waits(other.ticket) {
                found.push(Arc::clone(&other.owner));
                if other.want.mode() == LockMode::Exclusive
                    && other.overtaken.is_empty()
                    && other.span.covers(&request.span)
                {
                    break;
                }
            }
        }
        found
    }

    /// The tickets of the requests that wait for this owner, or for one that does. Who holds
    /// nothing and waits to pass is left out: nothing waits for it.
    fn waiting_for(&self, owner: u64) -> BTreeSet<u64> {
        let (mut owners, mut tickets) = (BTreeSet::from([owner]), BTreeSet::new());
        if !self.holders.contains_key(&owner) {
            return tickets;
        }
        loop {
            let before = tickets.len();
            for (at, request) in self.queue.iter().enumerate() {
                let is_new = !tickets.contains(&request.ticket);
                let is_waited_for =
                    request.want.holds() || self.holders.contains_key(&request.owner.id);
                if is_new
                    && is_waited_for
                    && request.owner.waits(request.ticket)
                    && self.blockers(request, at).any(|other| owners.contains(&other.id))
                {
                    tickets.insert(request.ticket);
                    owners.insert(request.owner.id);
                }
            }
            if tickets.len() == before {
                return tickets;
            }
        }
    }

    /// Has the owner of the request hold its span. True if the owner held nothing before.
    fn hold(&mut self, request: Request, since: u64) -> bool {
        debug_assert!(
            self.holders.values().all(|holder| !request.waits_for(holder)),
            "two owners hold ranges that exclude each other"
        );
        let Request { owner, span, want, .. } = request;
        let (holders, is_in_turn) = (self.holders.len(), matches!(want, RangeWant::Turn(_)));
        let ranges = OwnRanges::default();
        let holder = self.holders.entry(owner.id);
        let holder = holder.or_insert_with(|| Holder { owner, since, ranges, is_in_turn });
        holder.ranges.add(&span, want.mode());
        holder.is_in_turn &= is_in_turn;
        self.holders.len() > holders
    }
}

/// The ranges of all families.
#[derive(Debug)]
pub(super) struct Ranges {
    families: Mutex<BTreeMap<FamilyId, OfFamily>>,
    /// How many owners hold ranges, in each family anew.
    held: AtomicUsize,
    /// How often a range was published, or the locker of a key overtook what was announced.
    version: AtomicU64,
}

impl Ranges {
    pub(super) fn new() -> Ranges {
        let families = Mutex::new(Rank::LockRanges, BTreeMap::new());
        Ranges { families, held: AtomicUsize::new(0), version: AtomicU64::new(0) }
    }

    /// Changes with each range that is published, and by [`Ranges::overtake`]. If a caller that has
    /// reserved an LSN finds the number that it found before it looked for ranges, no range was
    /// published in between.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// True if a range is held. A caller that has entered a key in the map before this sees each
    /// range whose owner has looked at the map without finding the key.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.held.load(Ordering::SeqCst) > 0
    }

    /// Grants a range among ranges, or puts the request into the queue and returns its ticket.
    pub(super) fn request(
        &self,
        owner: &Arc<Owner>,
        (family, span): (FamilyId, Span),
        want: RangeWant,
        tickets: &AtomicU64,
    ) -> Result<Option<u64>, LockRefusal> {
        let mut families = self.families.lock();
        let of = families.entry(family).or_default();
        if want.holds()
            && let Some(own) = of.holders.get_mut(&owner.id)
            && own.ranges.give(&span, want.mode())
        {
            // The owner of an exclusive range waits for a key that others share; that of a shared
            // one does not. So the range has to tell those who strengthen such a key.
            if let RangeWant::Hold(mode) = want
                && own.ranges.rely_on(&span, mode)
            {
                self.publish(false);
            }
            return Ok(None);
        }
        let (owner_of, overtaken) = (Arc::clone(owner), BTreeSet::new());
        let mut request = Request { owner: owner_of, span, want, ticket: u64::MAX, overtaken };
        if of.queue.iter().any(|other| request.waits_behind(other)) {
            request.overtaken = of.waiting_for(owner.id);
        }
        if of.blockers(&request, of.queue.len()).next().is_some() {
            let ticket = tickets.fetch_add(1, Ordering::Relaxed);
            owner.begin_wait(ticket)?;
            request.ticket = ticket;
            of.queue.push(request);
            return Ok(Some(ticket));
        }
        if want.holds() {
            let is_first = of.hold(request, tickets.load(Ordering::Relaxed));
            self.publish(is_first);
        }
        Ok(None)
    }

    fn publish(&self, is_first: bool) {
        self.held.fetch_add(usize::from(is_first), Ordering::SeqCst);
        self.overtake();
    }

    /// Changes the number that writers compare, though no range is published.
    pub(super) fn overtake(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// True if a range that an owner other than `owner` holds excludes the key in this mode.
    pub(super) fn is_held_against(
        &self,
        (family, key): (FamilyId, &[u8]),
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> bool {
        let excludes = |held: &OwnRanges| held.exclude(mode, |held| held.contains(key));
        self.is_any_held(family, owner, |holder| excludes(&holder.ranges))
    }

    /// The same for a range that overlaps this one.
    pub(super) fn overlaps_against(
        &self,
        (family, span): (FamilyId, &Span),
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> bool {
        let excludes = |held: &OwnRanges| held.exclude(mode, |held| held.overlaps(span));
        self.is_any_held(family, owner, |holder| excludes(&holder.ranges))
    }

    /// True if an owner other than `owner` holds a shared range around the key, and not only until
    /// it has taken the key: one that does waits for those who hold the key alone.
    pub(super) fn is_shared_by_others(
        &self,
        (family, key): (FamilyId, &[u8]),
        owner: &Owner,
    ) -> bool {
        let shares = |holder: &Holder| !holder.is_in_turn && holder.ranges.share(key);
        self.is_any_held(family, Some(owner), shares)
    }

    fn is_any_held(
        &self,
        family: FamilyId,
        but_by: Option<&Owner>,
        is_asked: impl Fn(&Holder) -> bool,
    ) -> bool {
        if !self.is_any() {
            return false;
        }
        let families = self.families.lock();
        let is_against = |holder: &Holder| {
            but_by.is_none_or(|owner| owner.id != holder.owner.id) && is_asked(holder)
        };
        families.get(&family).is_some_and(|of| of.holders.values().any(is_against))
    }

    /// The number of ranges that an owner holds; those that touch count as one.
    pub(super) fn held_by(&self, owner: &Owner) -> usize {
        let families = self.families.lock();
        let held = families.values().filter_map(|of| of.holders.get(&owner.id));
        held.map(|holder| holder.ranges.len()).sum()
    }

    /// The memory that the ranges of an owner take, about.
    pub(super) fn bytes_of(&self, owner: &Owner) -> u64 {
        let families = self.families.lock();
        let held = families.values().filter_map(|of| of.holders.get(&owner.id));
        held.map(|holder| holder.ranges.bytes()).sum()
    }

    /// The ranges that an owner holds, by family and lower bound.
    pub(super) fn of(&self, owner: &Owner) -> Vec<(FamilyId, Span, LockMode)> {
        let families = self.families.lock();
        let mut own: Vec<_> = families
            .iter()
            .filter_map(|(family, of)| Some((family, of.holders.get(&owner.id)?)))
            .flat_map(|(family, held)| held.ranges.all().map(|(span, mode)| (*family, span, mode)))
            .collect();
        own.sort_by(|one, other| (one.0, &one.1.lower).cmp(&(other.0, &other.1.lower)));
        own
    }

    /// True if the owner holds any range of this family.
    pub(super) fn holds_in(&self, owner: &Owner, family: FamilyId) -> bool {
        let families = self.families.lock();
        families.get(&family).is_some_and(|of| of.holders.contains_key(&owner.id))
    }

    /// Gives back all ranges of an owner.
    pub(super) fn release_all(&self, owner: &Owner) {
        // Freed once the lock is: there may be very many.
        let mut released = Vec::new();
        let mut families = self.families.lock();
        families.retain(|_, of| {
            released.extend(self.release_of(of, owner));
            !of.is_empty()
        });
        drop(families);
    }

    /// Gives back the ranges of an owner in one family.
    pub(super) fn release_in(&self, owner: &Owner, family: FamilyId) {
        let mut families = self.families.lock();
        let Some(of) = families.get_mut(&family) else { return };
        let released = self.release_of(of, owner);
        if of.is_empty() {
            families.remove(&family);
        }
        drop((families, released));
    }

    fn release_of(&self, of: &mut OfFamily, owner: &Owner) -> Option<Holder> {
        let released = of.holders.remove(&owner.id)?;
        let held = self.held.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(held > 0, "more ranges are given back than were held");
        self.settle(of);
        Some(released)
    }

    /// Removes a request whose wait has ended. If the request was still in the queue, returns an
    /// owner that it waited for.
    pub(super) fn withdraw(&self, family: FamilyId, ticket: u64) -> Option<u64> {
        let mut families = self.families.lock();
        let of = families.get_mut(&family)?;
        let at = of.queue.iter().position(|request| request.ticket == ticket)?;
        let blocker = of.blockers(&of.queue[at], at).next().map(|owner| owner.id);
        of.queue.remove(at);
        self.settle(of);
        if of.is_empty() {
            families.remove(&family);
        }
        blocker
    }

    /// The owners that the request with this ticket waits for.
    pub(super) fn blockers(&self, family: FamilyId, ticket: u64) -> Vec<Arc<Owner>> {
        let families = self.families.lock();
        let Some(of) = families.get(&family) else { return Vec::new() };
        let at = of.queue.binary_search_by_key(&ticket, |request| request.ticket);
        at.map_or_else(|_| Vec::new(), |at| of.nearest_blockers(at))
    }

    /// Grants the requests that no longer have to wait, in the order of the queue.
    fn settle(&self, of: &mut OfFamily) {
        let mut at = 0;
        while let Some(request) = of.queue.get(at) {
            let is_waiting = request.owner.waits(request.ticket);
            if is_waiting && of.blockers(request, at).next().is_some() {
                at += 1;
                continue;
            }
            let request = of.queue.remove(at);
            if !is_waiting {
                continue;
            }
            let (owner, ticket) = (Arc::clone(&request.owner), request.ticket);
            if !request.want.holds() {
                owner.grant_range(ticket);
                continue;
            }
            // The owner goes on as soon as it is granted, and must find the range published. If its
            // wait has just ended some other way, it holds the range until it gives all back: it
            // cannot have done that yet, because it first takes its request out of the queue.
            let is_first = of.hold(request, ticket);
            if !planted(Plant::RangeGrantedUnpublished) {
                self.publish(is_first);
            }
            owner.grant_range(ticket);
            if planted(Plant::RangeGrantedUnpublished) {
                self.publish(is_first);
            }
        }
        debug_assert!(
            of.queue.iter().all(|request| request.ticket != u64::MAX),
            "a request without a ticket was kept"
        );
    }

    /// How many held ranges were looked at so far.
    #[cfg(test)]
    pub(super) fn looks(&self) -> usize {
        let families = self.families.lock();
        let holders = families.values().flat_map(|of| of.holders.values());
        holders.map(|holder| holder.ranges.looks()).sum()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.families.lock().values().all(OfFamily::is_empty) && !self.is_any()
    }
}
