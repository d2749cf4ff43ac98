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

use super::owner::Owner;
use super::{LockMode, LockRefusal};
use crate::env::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Plant, planted};
use crate::format::FamilyId;
use std::collections::BTreeMap;
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

    /// True if the key lies in the span.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        *self.lower <= *key && self.upper.as_ref().is_none_or(|upper| *key < **upper)
    }

    /// True if every key of `other` lies in this span.
    pub(crate) fn covers(&self, other: &Span) -> bool {
        let ends_behind = match (&self.upper, &other.upper) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => own >= other,
        };
        self.lower <= other.lower && ends_behind
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
    /// To wait until no range that others hold excludes a key in this mode. The key is not held
    /// afterwards.
    Pass(LockMode),
}

impl RangeWant {
    fn mode(self) -> LockMode {
        match self {
            RangeWant::Hold(mode) | RangeWant::Pass(mode) => mode,
        }
    }
}

#[derive(Debug)]
struct Request {
    owner: Arc<Owner>,
    span: Span,
    want: RangeWant,
    /// The ticket of a request that waits; `None` once it is held.
    ticket: Option<u64>,
}

impl Request {
    fn is_held(&self) -> bool {
        self.ticket.is_none()
    }

    /// True if it is held, and its owner needs no other lock for this span.
    fn gives(&self, owner: &Owner, span: &Span, mode: LockMode) -> bool {
        self.is_held()
            && self.owner.id == owner.id
            && self.want.mode() >= mode
            && self.span.covers(span)
    }

    /// True if this request has to wait for `other`, an earlier one. A request that only passes
    /// waits for ranges that are held, and no request waits for it.
    fn waits_for(&self, other: &Request) -> bool {
        let counts = match (self.want, other.want) {
            (_, RangeWant::Pass(_)) => false,
            (RangeWant::Pass(_), _) => other.is_held(),
            _ => true,
        };
        counts
            && self.owner.id != other.owner.id
            && self.want.mode().excludes(other.want.mode())
            && self.span.overlaps(&other.span)
    }
}

/// The ranges of all families.
#[derive(Debug)]
pub(super) struct Ranges {
    families: Mutex<BTreeMap<FamilyId, Vec<Request>>>,
    /// How many ranges are held.
    held: AtomicUsize,
    /// How often a range was published.
    version: AtomicU64,
}

impl Ranges {
    pub(super) fn new() -> Ranges {
        let families = Mutex::new(Rank::LockRanges, BTreeMap::new());
        Ranges { families, held: AtomicUsize::new(0), version: AtomicU64::new(0) }
    }

    /// Changes with each range that is published. If a caller that has reserved an LSN finds the
    /// number that it found before it looked for ranges, no range was published in between.
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
        let requests = families.entry(family).or_default();
        if let RangeWant::Hold(mode) = want
            && requests.iter().any(|held| held.gives(owner, &span, mode))
        {
            return Ok(None);
        }
        let mut request = Request { owner: Arc::clone(owner), span, want, ticket: Some(u64::MAX) };
        if requests.iter().any(|earlier| request.waits_for(earlier)) {
            let ticket = tickets.fetch_add(1, Ordering::Relaxed);
            owner.begin_wait(ticket)?;
            request.ticket = Some(ticket);
            requests.push(request);
            return Ok(Some(ticket));
        }
        if let RangeWant::Hold(_) = want {
            request.ticket = None;
            requests.push(request);
            self.publish();
            Ranges::check(requests);
        }
        Ok(None)
    }

    fn publish(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// True if a range that an owner other than `owner` holds excludes the key in this mode.
    pub(super) fn is_held_against(
        &self,
        (family, key): (FamilyId, &[u8]),
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> bool {
        self.is_any_held_against(family, |held| held.contains(key), owner, mode)
    }

    /// The same for a range that overlaps this one.
    pub(super) fn overlaps_against(
        &self,
        (family, span): (FamilyId, &Span),
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> bool {
        self.is_any_held_against(family, |held| held.overlaps(span), owner, mode)
    }

    fn is_any_held_against(
        &self,
        family: FamilyId,
        meets: impl Fn(&Span) -> bool,
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> bool {
        if !self.is_any() {
            return false;
        }
        let families = self.families.lock();
        let is_against = |request: &Request| {
            request.is_held()
                && request.want.mode().excludes(mode)
                && meets(&request.span)
                && owner.is_none_or(|owner| owner.id != request.owner.id)
        };
        families.get(&family).is_some_and(|requests| requests.iter().any(is_against))
    }

    /// The number of ranges that an owner holds.
    pub(super) fn held_by(&self, owner: &Owner) -> usize {
        let families = self.families.lock();
        let is_own = |request: &&Request| request.is_held() && request.owner.id == owner.id;
        families.values().flatten().filter(is_own).count()
    }

    /// The ranges that an owner holds, by family and lower bound.
    pub(super) fn of(&self, owner: &Owner) -> Vec<(FamilyId, Span, LockMode)> {
        let families = self.families.lock();
        let all = families
            .iter()
            .flat_map(|(family, requests)| requests.iter().map(move |request| (*family, request)));
        let own = all.filter(|(_, request)| request.is_held() && request.owner.id == owner.id);
        let mut own: Vec<_> =
            own.map(|(family, held)| (family, held.span.clone(), held.want.mode())).collect();
        own.sort_by(|one, other| (one.0, &one.1.lower).cmp(&(other.0, &other.1.lower)));
        own
    }

    /// Gives back all ranges of an owner.
    pub(super) fn release_all(&self, owner: &Owner) {
        let mut families = self.families.lock();
        families.retain(|_, requests| {
            let before = requests.len();
            requests.retain(|request| !request.is_held() || request.owner.id != owner.id);
            if requests.len() < before {
                let released = before - requests.len();
                let held = self.held.fetch_sub(released, Ordering::SeqCst);
                debug_assert!(held >= released, "more ranges are given back than were held");
                self.settle(requests);
            }
            !requests.is_empty()
        });
    }

    /// Removes a request whose wait has ended. If the request was still in the queue, returns the
    /// owners that it waited for.
    pub(super) fn withdraw(&self, family: FamilyId, ticket: u64) -> Option<u64> {
        let mut families = self.families.lock();
        let requests = families.get_mut(&family)?;
        let at = requests.iter().position(|request| request.ticket == Some(ticket))?;
        let holder = blockers(requests, at).first().map(|owner| owner.id);
        requests.remove(at);
        self.settle(requests);
        if requests.is_empty() {
            families.remove(&family);
        }
        holder
    }

    /// The owners that the request with this ticket waits for.
    pub(super) fn blockers(&self, family: FamilyId, ticket: u64) -> Vec<Arc<Owner>> {
        let families = self.families.lock();
        let requests = families.get(&family).map_or(&[][..], Vec::as_slice);
        let at = requests.iter().position(|request| request.ticket == Some(ticket));
        at.map_or_else(Vec::new, |at| blockers(requests, at))
    }

    /// Grants the requests that no longer have to wait, in the order of the queue.
    fn settle(&self, requests: &mut Vec<Request>) {
        let mut at = 0;
        while let Some(request) = requests.get(at) {
            let Some(ticket) = request.ticket else {
                at += 1;
                continue;
            };
            if !request.owner.waits(ticket) {
                requests.remove(at);
                continue;
            }
            if requests[..at].iter().any(|earlier| request.waits_for(earlier)) {
                at += 1;
                continue;
            }
            let is_kept = matches!(request.want, RangeWant::Hold(_));
            if is_kept {
                // The owner goes on as soon as it is granted, and must find the range published.
                requests[at].ticket = None;
                if !planted(Plant::RangeGrantedUnpublished) {
                    self.publish();
                }
            }
            let is_granted = requests[at].owner.grant_range(ticket);
            if is_kept && planted(Plant::RangeGrantedUnpublished) {
                self.publish();
            }
            if is_kept && is_granted {
                at += 1;
                continue;
            }
            requests.remove(at);
            if is_kept {
                self.held.fetch_sub(1, Ordering::SeqCst);
            }
        }
        Ranges::check(requests);
    }

    /// Checks what must hold between two changes of a family's ranges.
    fn check(requests: &[Request]) {
        let held = || requests.iter().filter(|request| request.is_held());
        debug_assert!(
            held().all(|one| held().all(|other| !one.waits_for(other))),
            "two owners hold ranges that exclude each other"
        );
        debug_assert!(
            requests.iter().all(|request| request.ticket != Some(u64::MAX)),
            "a request without a ticket was kept"
        );
        debug_assert!(
            held().all(|request| matches!(request.want, RangeWant::Hold(_))),
            "what only passes is never held"
        );
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.families.lock().values().all(Vec::is_empty) && !self.is_any()
    }
}

fn blockers(requests: &[Request], at: usize) -> Vec<Arc<Owner>> {
    let request = &requests[at];
    let is_alive = |other: &Request| other.ticket.is_none_or(|ticket| other.owner.waits(ticket));
    let earlier = requests[..at].iter().filter(|other| request.waits_for(other) && is_alive(other));
    earlier.map(|other| Arc::clone(&other.owner)).collect()
}
