//! Who waits for whom: the graph in which deadlocks are cycles.
//!
//! Before an owner sleeps it enters the graph, under the one mutex that only sleepers take, and
//! looks for a cycle through itself. Its edges lead to the holders and to the earlier requests that
//! its own is incompatible with; they are read from the queues when they are asked for. Of the
//! owners of a cycle, the last one to enter sees all the others, so it finds the cycle.
//!
//! An edge also leads through a thread. Suppose that an owner waits for a transaction that no
//! thread is calling, and that the thread which called the transaction last sleeps here. Then the
//! transaction cannot go on before that sleep ends. So `tx.get_for_update(k)` followed by
//! `db.put(k, v)` on one thread is a cycle.
//!
//! Queues change while they are read. A holder that sleeps gives nothing back, so an edge to a
//! sleeper goes away only when one of the two stops waiting, and then its ticket is gone from the
//! queue. Reading all edges of a cycle a second time therefore shows that there was a moment at
//! which all of them stood.
//!
//! A list of edges ends with a request behind which all before it wait, too. The owner of that
//! request may not have entered yet, though one behind it has. When it enters, it finds the cycles
//! that lead through it. If it fails then, or its wait has ended before, those behind it wait for
//! what was before it, and the cycles through them are looked for anew.
//!
//! The youngest owner of a cycle fails; its age counts from its first attempt. A plain write, or
//! the commit of an ingest, fails only if the cycle has no transaction: it has no age.

use super::owner::Owner;
use super::{LockRefusal, Place, Wait};
use crate::env::sync::{Mutex, Rank, thread_id};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug)]
struct Sleeper {
    owner: Arc<Owner>,
    thread: u64,
    at: Place,
}

/// The owners that sleep, by their ids.
#[derive(Debug)]
pub(super) struct Waits {
    sleepers: Mutex<Sleepers>,
}

#[cfg(test)]
thread_local! {
    /// How many requests, owners and sleepers this thread has looked at in search of cycles.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts what is looked at, for tests.
#[inline(always)]
pub(super) fn note_look(_count: usize) {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + _count);
}

#[derive(Debug, Default)]
struct Sleepers {
    by_owner: BTreeMap<u64, Sleeper>,
    /// The threads of these, each with the owner.
    by_thread: BTreeSet<(u64, u64)>,
    /// No owner may sleep any more.
    is_closed: bool,
}

/// Returns the owners that the request at this place waits for.
pub(super) type Blockers<'a> = &'a dyn Fn(&Place) -> Vec<Arc<Owner>>;

impl Waits {
    pub(super) fn new() -> Waits {
        Waits { sleepers: Mutex::new(Rank::LockWaits, Sleepers::default()) }
    }

    /// Enters an owner that is about to sleep, and ends the wait of one owner of each cycle that it
    /// closes, which may be the caller. Returns how many cycles there were.
    pub(super) fn enter(&self, owner: &Arc<Owner>, at: Place, blockers: Blockers<'_>) -> u64 {
        let mut guard = self.sleepers.lock();
        if guard.is_closed {
            owner.refuse(|| LockRefusal::Closed);
            return 0;
        }
        guard.add(Sleeper { owner: Arc::clone(owner), thread: thread_id(), at: at.clone() });
        let mut found = guard.end_cycles(&[owner.id], blockers);
        if !owner.waits(at.ticket) {
            let behind = guard.behind(&at);
            found += guard.end_cycles(&behind, blockers);
        }
        found
    }

    /// Forgets an owner whose sleep is over.
    pub(super) fn leave(&self, owner: &Owner) {
        self.sleepers.lock().remove(owner.id);
    }

    /// Ends every wait, present and later.
    pub(super) fn close(&self) {
        let mut sleepers = self.sleepers.lock();
        sleepers.is_closed = true;
        for sleeper in sleepers.by_owner.values() {
            sleeper.owner.refuse(|| LockRefusal::Closed);
        }
    }

    /// The number of owners that sleep.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.sleepers.lock().by_owner.len()
    }
}

impl Sleepers {
    fn add(&mut self, sleeper: Sleeper) {
        let id = sleeper.owner.id;
        self.by_thread.insert((sleeper.thread, id));
        let earlier = self.by_owner.insert(id, sleeper);
        debug_assert!(earlier.is_none(), "an owner sleeps in one place");
    }

    fn remove(&mut self, id: u64) {
        if let Some(sleeper) = self.by_owner.remove(&id) {
            self.by_thread.remove(&(sleeper.thread, id));
        }
        debug_assert!(self.by_owner.len() == self.by_thread.len(), "each sleeper has one thread");
    }

    /// The sleepers whose requests may stand behind this one in a queue.
    fn behind(&self, at: &Place) -> Vec<u64> {
        let is_behind = |sleeper: &&Sleeper| sleeper.at.is_behind(at);
        self.by_owner.values().filter(is_behind).map(|sleeper| sleeper.owner.id).collect()
    }

    /// Ends the wait of one owner of each cycle that one of these waits for. Returns how many there
    /// were.
    fn end_cycles(&mut self, starts: &[u64], blockers: Blockers<'_>) -> u64 {
        let (mut found, mut clear) = (0, BTreeSet::new());
        loop {
            let graph = Graph { sleepers: self, blockers };
            let Some(cycle) = graph.cycle_from(starts, &mut clear) else { return found };
            let sleepers = &self.by_owner;
            debug_assert!(cycle.iter().all(|id| !clear.contains(id)), "who is clear is in none");
            debug_assert!(
                cycle.iter().all(|id| sleepers.contains_key(id)),
                "all of a deadlock sleep"
            );
            let victim = (0..cycle.len()).max_by_key(|at| sleepers[&cycle[*at]].owner.youth());
            let victim = victim.unwrap_or(0);
            let waits = (0..cycle.len()).map(|at| &sleepers[&cycle[(victim + at) % cycle.len()]]);
            let told = waits.map(|sleeper| sleeper.at.told(&sleeper.owner)).collect();
            let id = cycle[victim];
            // An owner whose wait has ended already, by a timeout, leaves the graph as soon as this
            // lock is free.
            found +=
                u64::from(sleepers[&id].owner.refuse(|| LockRefusal::Deadlock { cycle: told }));
            self.remove(id);
        }
    }
}

struct Graph<'a> {
    sleepers: &'a Sleepers,
    blockers: Blockers<'a>,
}

impl Graph<'_> {
    /// The sleepers that this one waits for.
    fn next(&self, id: u64) -> Vec<u64> {
        let Some(sleeper) = self.sleepers.by_owner.get(&id) else { return Vec::new() };
        let blockers = (self.blockers)(&sleeper.at);
        note_look(blockers.len());
        blockers.iter().filter_map(|blocker| self.sleeper_of(blocker)).collect()
    }

    /// The sleep that must end before the owner can go on: its own, or that of its thread.
    fn sleeper_of(&self, owner: &Owner) -> Option<u64> {
        if self.sleepers.by_owner.contains_key(&owner.id) {
            return Some(owner.id);
        }
        let thread = owner.thread();
        let on_it = self.sleepers.by_thread.range((thread, 0)..=(thread, u64::MAX)).next();
        note_look(usize::from(on_it.is_some()));
        on_it.map(|(_, id)| *id)
    }

    /// Owners of which each waits for the next, and the last for the first. One of these waits for
    /// them or is one of them. Those that are in no cycle are added to `clear`, and left out.
    fn cycle_from(&self, starts: &[u64], clear: &mut BTreeSet<u64>) -> Option<Vec<u64>> {
        loop {
            let cycle = starts.iter().find_map(|start| self.search(*start, clear))?;
            let next = |at: usize| cycle[(at + 1) % cycle.len()];
            if (0..cycle.len()).all(|at| self.next(cycle[at]).contains(&next(at))) {
                return Some(cycle);
            }
        }
    }

    /// Walks depth-first. An edge to an owner on the path closes a cycle. One who has been left
    /// again is clear: a cycle through it would have led back to the path.
    fn search(&self, start: u64, clear: &mut BTreeSet<u64>) -> Option<Vec<u64>> {
        if clear.contains(&start) {
            return None;
        }
        let mut on_path = BTreeSet::from([start]);
        let mut path = vec![(start, self.next(start))];
        while let Some((_, next)) = path.last_mut() {
            match next.pop() {
                Some(id) if on_path.contains(&id) => {
                    let cycle = path.iter().map(|(id, _)| *id).skip_while(|on| *on != id);
                    return Some(cycle.collect());
                }
                Some(id) if clear.contains(&id) => {}
                Some(id) => {
                    on_path.insert(id);
                    path.push((id, self.next(id)));
                }
                None => {
                    debug_assert_eq!(on_path.len(), path.len(), "an owner is on the path once");
                    let left = path.pop().map(|(id, _)| id);
                    on_path.remove(&left.unwrap_or(start));
                    clear.extend(left);
                }
            }
        }
        None
    }
}

impl Place {
    /// True if the request may stand behind the other one in a queue. In the queue of a range those
    /// that came later do. In that of a key an owner that holds the key steps before those that do
    /// not, so any of the others may.
    fn is_behind(&self, other: &Place) -> bool {
        let is_same = match self.is_range {
            true => other.is_range && self.name.family == other.name.family,
            false => !other.is_range && self.name == other.name,
        };
        is_same && (!self.is_range || self.ticket > other.ticket)
    }

    /// One link of a cycle, for the error.
    fn told(&self, owner: &Owner) -> Wait {
        let name = self.name();
        Wait {
            owner: (!owner.is_write()).then_some(owner.id),
            family: name.family,
            key: Arc::clone(&name.key),
        }
    }
}
