//! Random programs, step by step on one thread, beside a model that is slow and plain: it keeps
//! lists, and looks for deadlocks with every edge there is.

use super::*;
use crate::env::fixtures::Draw;

const KEYS: [&str; 4] = ["a", "b", "cc", "dd"];

#[derive(Clone, Debug, Default)]
struct ModelKey {
    holders: Vec<(u64, LockMode)>,
    queue: Vec<(u64, Want)>,
}

fn mode_of(want: Want) -> LockMode {
    match want {
        Want::Hold(mode) | Want::Pass(mode) => mode,
    }
}

impl ModelKey {
    /// Whom a request of `owner` at this place of the queue waits for.
    fn blockers(&self, at: usize, owner: u64, want: Want) -> Vec<u64> {
        let earlier = self.queue[..at].iter().map(|(other, want)| (*other, mode_of(*want)));
        let all = self.holders.iter().copied().chain(earlier);
        let others = all.filter(|(other, mode)| *other != owner && mode.excludes(mode_of(want)));
        others.map(|(other, _)| other).collect()
    }

    fn give(&mut self, owner: u64, want: Want) {
        if let Want::Hold(mode) = want {
            let before = self.holders.iter().find(|held| held.0 == owner).map(|held| held.1);
            self.holders.retain(|held| held.0 != owner);
            self.holders.push((owner, before.map_or(mode, |before| before.max(mode))));
        }
    }

    /// True if the request is granted at once.
    fn request(&mut self, owner: u64, want: Want) -> bool {
        let own = self.holders.iter().find(|held| held.0 == owner).map(|held| held.1);
        let is_enough = own.is_some_and(|own| own == Exclusive || want == Want::Hold(Shared));
        let holds = |other: u64| self.holders.iter().any(|held| held.0 == other);
        let at = match own {
            Some(_) => self.queue.iter().take_while(|(other, _)| holds(*other)).count(),
            None => self.queue.len(),
        };
        if is_enough {
            return true;
        }
        if self.blockers(at, owner, want).is_empty() {
            self.give(owner, want);
            return true;
        }
        self.queue.insert(at, (owner, want));
        false
    }

    fn settle(&mut self) {
        while let Some(at) = (0..self.queue.len()).find(|at| {
            let (owner, want) = self.queue[*at];
            self.blockers(*at, owner, want).is_empty()
        }) {
            let (owner, want) = self.queue.remove(at);
            self.give(owner, want);
        }
    }
}

struct Program {
    table: Table,
    model: [ModelKey; 4],
    owners: Vec<Arc<Owner>>,
    /// What each owner waits for.
    waiting: Vec<Option<Place>>,
    next_id: u64,
}

impl Program {
    fn index(&self, id: u64) -> usize {
        self.owners.iter().position(|owner| owner.id == id).unwrap()
    }

    /// The waiters whom `id` waits for, by every edge of the model.
    fn next(&self, id: u64) -> Vec<u64> {
        let find = |key: &ModelKey| {
            let at = key.queue.iter().position(|(owner, _)| *owner == id)?;
            Some(key.blockers(at, id, key.queue[at].1))
        };
        let all = self.model.iter().find_map(find).unwrap_or_default();
        all.into_iter().filter(|id| self.waiting[self.index(*id)].is_some()).collect()
    }

    fn is_in_cycle(&self, id: u64) -> bool {
        let (mut seen, mut next) = (Vec::new(), self.next(id));
        while let Some(at) = next.pop() {
            if at == id {
                return true;
            }
            if !seen.contains(&at) {
                seen.push(at);
                next.extend(self.next(at));
            }
        }
        false
    }

    fn request(&mut self, at: usize, key: usize, want: Want, may_wait: bool) {
        let owner = Arc::clone(&self.owners[at]);
        let locks = &self.table.locks;
        let slot = locks.slots.slot(0, KEYS[key].as_bytes());
        let name = (slot, 0, KEYS[key].as_bytes());
        let tickets = may_wait.then_some(&locks.ticket);
        let before = self.model[key].clone();
        let granted = self.model[key].request(owner.id, want);
        let answer =
            locks.shard(slot).lock().request(&*locks.slots, name, &owner, want, tickets).unwrap();
        match answer {
            Answer::Granted(_) => assert!(granted),
            Answer::Busy => {
                assert!(!granted && !may_wait);
                self.model[key] = before;
            }
            Answer::Queued(place) => {
                assert!(!granted);
                self.waiting[at] = Some(place.clone());
                let in_cycle: Vec<u64> = self.owners.iter().map(|owner| owner.id).collect();
                let in_cycle: Vec<u64> =
                    in_cycle.into_iter().filter(|id| self.is_in_cycle(*id)).collect();
                let blockers =
                    |at: &Place| locks.shard(at.name.slot).lock().blockers(&at.name, at.ticket);
                let found = locks.waits.enter(&owner, place, &blockers);
                assert_eq!(found > 0, !in_cycle.is_empty(), "{in_cycle:?}");
                let dead: Vec<usize> =
                    (0..self.owners.len()).filter(|at| self.is_dead(*at)).collect();
                assert_eq!(dead.len() as u64, found);
                assert!(dead.iter().all(|at| in_cycle.contains(&self.owners[*at].id)));
                if found == 1 && in_cycle.len() == 2 {
                    assert_eq!(
                        self.owners[dead[0]].id,
                        in_cycle[0].max(in_cycle[1]),
                        "the youngest"
                    );
                }
                dead.into_iter().for_each(|at| self.end(at));
            }
        }
    }

    fn is_dead(&self, at: usize) -> bool {
        self.waiting[at].as_ref().is_some_and(|place| !self.owners[at].waits(place.ticket))
    }

    /// Ends an owner, also one that waits, and puts a new one in its place.
    fn end(&mut self, at: usize) {
        let (locks, owner) = (&self.table.locks, Arc::clone(&self.owners[at]));
        if let Some(place) = self.waiting[at].take() {
            owner.sleep(&*locks.clock, 0).unwrap_err();
            locks.waits.leave(&owner);
            let shard = locks.shard(place.name.slot);
            shard.lock().withdraw(&*locks.slots, &place.name, place.ticket);
        }
        locks.release_all(&owner);
        for key in &mut self.model {
            key.holders.retain(|held| held.0 != owner.id);
            key.queue.retain(|(waits, _)| *waits != owner.id);
            key.settle();
        }
        self.owners[at] = super::owner(self.next_id);
        self.next_id += 1;
    }

    /// Wakes those who got what they wait for, and compares.
    fn compare(&mut self) {
        for at in 0..self.owners.len() {
            let owner = &self.owners[at];
            let is_queued =
                self.model.iter().any(|key| key.queue.iter().any(|one| one.0 == owner.id));
            if let Some(place) = &self.waiting[at]
                && !owner.waits(place.ticket)
            {
                owner.sleep(&*self.table.locks.clock, NEVER).unwrap();
                self.table.locks.waits.leave(owner);
                self.waiting[at] = None;
            }
            assert_eq!(self.waiting[at].is_some(), is_queued, "{:?}", owner.id);
            for (key, model) in KEYS.iter().zip(&self.model) {
                let held = model.holders.iter().find(|held| held.0 == owner.id);
                assert_eq!(owner.holds(0, key.as_bytes()), held.map(|held| held.1));
            }
        }
        for (key, model) in KEYS.iter().zip(&self.model) {
            let span = Span::of_key(key.as_bytes());
            let found = self.table.locks.key_against((0, &span), None, Shared);
            let is_expected = model.holders.iter().any(|(_, mode)| *mode == Exclusive);
            assert_eq!(found.is_some(), is_expected, "{key}");
        }
        for slot in 0..2 {
            let is_locked = |at: usize| !self.model[at].holders.is_empty();
            let of_slot = if slot == 1 { [0, 1] } else { [2, 3] };
            assert_eq!(self.table.bits.is_locked(slot), of_slot.into_iter().any(is_locked));
        }
    }
}

#[test]
fn locks_are_as_the_model_has_them() {
    let (mut waits, mut deaths) = (0, 0);
    for seed in 0..if cfg!(miri) { 1 } else { 60 } {
        let mut draw = Draw::new(seed);
        let count = 2 + draw.index(5);
        let mut program = Program {
            table: Table::new(),
            model: Default::default(),
            owners: (0..count as u64).map(super::owner).collect(),
            waiting: vec![None; count],
            next_id: count as u64,
        };
        for _ in 0..400 {
            let at = draw.index(count);
            let before = program.next_id;
            if draw.below(12) == 0 {
                program.end(at);
            } else if program.waiting[at].is_none() {
                let (key, may_wait) = (draw.index(KEYS.len()), draw.below(6) > 0);
                let want =
                    draw.one(&[Want::Hold(Shared), Want::Hold(Exclusive), Want::Pass(Exclusive)]);
                program.request(at, key, want, may_wait);
                deaths += program.next_id - before;
                waits += u64::from(program.waiting[at].is_some());
            }
            program.compare();
        }
        for at in 0..count {
            program.end(at);
            program.compare();
        }
        assert!(program.table.is_free());
    }
    assert!(waits > 100 && (cfg!(miri) || deaths > 100), "{waits} waits, {deaths} deaths");
}
