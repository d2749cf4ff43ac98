//! Values that end, in a family of their own, while the wall clock is set forward and back.
//!
//! One task writes there. So it knows what each key holds and when that ends, but not what time it
//! is for the engine: the time only goes on when someone asks, and never back. Each read at one
//! moment must be explained by one time, which ends some values and leaves the others. What has
//! been seen to have ended is gone for good, as long as the machine keeps its power. Nothing that
//! ends later than the clock has ever shown is gone, but for what a compaction filter may remove;
//! and leaps do not count of what it has shown, unless the database was opened then.

use super::filters::{filtered, may_be_removed, unmarked};
use super::runtime;
use super::workload::Stage;
use isobath::{
    ConflictKind, Error, ErrorKind, Expiry, Family, Isolation, Snapshot, TransactionOptions,
};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// The family's name.
pub(crate) const LEASES: &str = "leases";

const KEYS: u8 = 8;
/// As many snapshots are held at once.
const HELD_MAX: usize = 3;

/// What is known of the family, over all lives.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// When the value with each number ends; `u64::MAX` for never.
    ends: BTreeMap<u64, u64>,
    /// The number of the value of each key; `None` for no value. Keys of which nothing is known
    /// are not there.
    held: BTreeMap<u8, Option<u64>>,
    /// Values that end at or before this are gone.
    floor: u64,
    /// The same, whatever becomes of the machine.
    synced_floor: u64,
    next: u64,
}

impl Leases {
    /// In the next life, which finds all of the last one or not.
    pub(crate) fn grow_old(&mut self, is_kept: bool) {
        if !is_kept {
            self.floor = self.synced_floor;
            self.held.clear();
        }
    }

    /// Notes that a value got an end of which nothing is known. Until one is, it counts as never.
    fn forget_end(&mut self, key: u8, number: u64) {
        self.held.remove(&key);
        self.ends.insert(number, u64::MAX);
    }

    /// Notes what a read at the newest point has found to be gone that the filter may remove. It is
    /// gone for good, removed or ended, unless it was put anew meanwhile.
    fn note_removed(&mut self, held: &BTreeMap<u8, Option<u64>>, found: &BTreeMap<u8, u64>) {
        for (key, number) in held.iter().filter(|(key, _)| !found.contains_key(key)) {
            if number.is_some_and(may_be_removed) && self.held.get(key) == Some(number) {
                self.held.insert(*key, None);
            }
        }
    }

    /// Judges what a read found at one moment: the numbers of values, by key.
    fn judge(
        &self,
        held: &BTreeMap<u8, Option<u64>>,
        found: &BTreeMap<u8, u64>,
        latest_ms: u64,
    ) -> Result<u64, String> {
        let end = |number: &u64| self.ends.get(number).copied();
        // The time of the moment lies from here on ...
        let mut gone = 0;
        for (key, number) in held {
            match (number, found.get(key)) {
                (Some(number), Some(there)) if *number == unmarked(*there) => {}
                (None, None) => {}
                (Some(number), None) if may_be_removed(*number) => {}
                (Some(number), None) => gone = gone.max(end(number).unwrap_or(0)),
                (known, there) => {
                    return Err(format!("key {key} holds {known:?}, and {there:?} was found"));
                }
            }
        }
        if gone > latest_ms {
            return Err(format!("a value that ends at {gone} is gone at {latest_ms}"));
        }
        // ... and below this.
        for (key, number) in found {
            let Some(ends) = end(&unmarked(*number)) else {
                return Err(format!("key {key} has {number}, which was never written"));
            };
            if ends <= gone.max(self.floor) {
                return Err(format!(
                    "key {key} has a value that ends at {ends}, though what ends at {gone} or at {} is gone",
                    self.floor
                ));
            }
        }
        Ok(gone)
    }
}

/// When a value ends that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Never,
    At(u64),
    /// So long after a time that is not known, from this one on.
    After {
        floor: u64,
        ttl_ms: u64,
    },
}

/// A write whose outcome is not known: the task must not go on.
struct Unknown;

/// A snapshot, what the keys held when it was taken, and what it showed first.
struct Held {
    snapshot: Snapshot,
    found: BTreeMap<u8, u64>,
}

/// The task that has the family.
struct Tenant<'a> {
    stage: &'a Stage,
    family: Family,
    held: Vec<Held>,
}

impl Stage {
    /// Writes values that end, and looks what is there.
    pub(crate) fn lease(&self, count: u32, mut rng: fastrand::Rng) {
        if self.is_damaged {
            return;
        }
        let ttl = (rng.u8(..4) == 0).then(|| draw_ttl(&mut rng));
        let options = filtered(self.terrain.family_options(&mut rng).ttl(ttl), &mut rng);
        let family = match self.db.family((LEASES, options)) {
            Ok(family) => family,
            Err(error) => return self.judge_write("the family of leases", &error),
        };
        let mut tenant = Tenant { stage: self, family, held: Vec::new() };
        let mut looked =
            tenant.look(&mut rng, true).map_err(|error| self.judge_write("leases", &error));
        for _ in 0..count {
            if looked.is_err() || self.is_over() {
                return;
            }
            for _ in 0..rng.u8(0..20) {
                runtime::yield_now();
            }
            looked = match rng.u8(..16) {
                0..6 => match tenant.write(&mut rng) {
                    Ok(()) => Ok(()),
                    Err(Unknown) => return,
                },
                6 => match tenant.rely(&mut rng) {
                    Ok(()) => Ok(()),
                    Err(Unknown) => return,
                },
                7 => tenant.hold(&mut rng),
                8 => tenant.tidy(&mut rng),
                _ => tenant.look(&mut rng, false),
            }
            .or_else(|error| {
                self.judge_write("leases", &error);
                if error.is_retryable() { Ok(()) } else { Err(()) }
            });
        }
    }
}

fn draw_ttl(rng: &mut fastrand::Rng) -> Duration {
    // The clock is set by up to a day.
    let longest = [1, 50, 1000, 3_600_000, 86_400_000, 400_000_000][rng.usize(..6)];
    Duration::from_millis(rng.u64(1..=longest))
}

fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

fn number_of(value: &[u8]) -> u64 {
    unmarked(marked_of(value))
}

/// The number of a value, and whether the filter has replaced the value.
fn marked_of(value: &[u8]) -> u64 {
    value.first_chunk().map_or(u64::MAX, |number| u64::from_le_bytes(*number))
}

impl Tenant<'_> {
    fn leases<T>(&self, with: impl FnOnce(&mut Leases) -> T) -> T {
        with(&mut self.stage.history.borrow_mut().leases)
    }

    /// Judges what a read found, and learns from it what is gone.
    fn judge(&self, held: &BTreeMap<u8, Option<u64>>, found: &BTreeMap<u8, u64>) {
        if self.stage.life.is_over() {
            return;
        }
        let latest_ms = self.stage.life.latest_ms();
        match self.leases(|leases| leases.judge(held, found, latest_ms)) {
            Ok(gone) => self.leases(|leases| {
                leases.floor = leases.floor.max(gone);
                leases.note_removed(held, found);
            }),
            Err(wrong) => self.stage.fail(format!("leases: {wrong}")),
        }
    }

    fn value(&self, number: u64, rng: &mut fastrand::Rng) -> Vec<u8> {
        let len = 8 + self.stage.terrain.value_len(rng).min(5000);
        let mut value = vec![number as u8; len];
        value[..8].copy_from_slice(&number.to_le_bytes());
        value
    }

    /// Writes one key, in a way that is drawn.
    fn write(&mut self, rng: &mut fastrand::Rng) -> Result<(), Unknown> {
        let key = rng.u8(..KEYS);
        let number = self.leases(|leases| {
            leases.next += 1;
            leases.next
        });
        let value = self.value(number, rng);
        let now_ms = self.stage.life.wall_clock_ms();
        let ttl = draw_ttl(rng);
        let moment = now_ms + ttl.as_millis() as u64;
        let at = Expiry::At(SystemTime::UNIX_EPOCH + Duration::from_millis(moment));
        let floor = self.leases(|leases| leases.floor);
        let ttl_ms = ttl.as_millis() as u64;
        let (ends, written) = match rng.u8(..10) {
            0..4 => (Ends::At(moment), self.family.put_ttl([key], value, at)),
            4..7 => (Ends::After { floor, ttl_ms }, self.family.put_ttl([key], value, ttl)),
            7 => (Ends::Never, self.family.put_ttl([key], value, Expiry::Never)),
            8 => {
                let deleted = self.family.delete([key]).map(drop);
                return self.outcome(deleted, |leases| {
                    leases.held.insert(key, None);
                });
            }
            _ => return self.move_end(key, at, moment),
        };
        if written.is_ok() {
            self.learn_end(key, number, ends);
        }
        // What is not known to be there is known to have been written.
        self.outcome(written.map(drop), |leases| {
            leases.ends.entry(number).or_insert(u64::MAX);
        })
    }

    /// Asks when the value ends that a key has now. If it is not there any more, nothing is known
    /// of the time: its end may have passed before it was written.
    fn learn_end(&self, key: u8, number: u64, ends: Ends) {
        let told = match self.family.get_expiry([key]) {
            Ok(told) => told,
            Err(error) => {
                self.leases(|leases| leases.forget_end(key, number));
                return self.stage.judge_write("the end of a lease", &error);
            }
        };
        let latest_ms = self.stage.life.latest_ms();
        let Some((value, expiry)) = told else {
            if ends == Ends::Never && !may_be_removed(number) && !self.stage.life.is_over() {
                self.stage.fail(format!("leases: key {key} has lost a value that never ends"));
            }
            return self.leases(|leases| {
                leases.held.insert(key, None);
            });
        };
        let ends_ms = match expiry {
            Expiry::At(moment) => millis(moment),
            _ => u64::MAX,
        };
        let is_right = match ends {
            Ends::Never => ends_ms == u64::MAX,
            Ends::At(moment) => ends_ms == moment,
            Ends::After { floor, ttl_ms } => {
                (floor + ttl_ms..=latest_ms + ttl_ms).contains(&ends_ms)
            }
        };
        if !is_right || number_of(&value) != number {
            let found = number_of(&value);
            self.stage
                .fail(format!("leases: {found} until {expiry:?} is told of {number}, {ends:?}"));
        }
        self.leases(|leases| {
            leases.ends.insert(number, ends_ms);
            leases.held.insert(key, Some(number));
        });
    }

    /// Gives a key another end.
    fn move_end(&mut self, key: u8, at: Expiry, moment: u64) -> Result<(), Unknown> {
        let held = self.leases(|leases| leases.held.get(&key).copied());
        // The value with this number has two ends from now on: readers at earlier moments go.
        self.held.clear();
        let set = self.family.set_expiry([key], at);
        match (held, &set) {
            (Some(Some(number)), Ok(true)) => self.learn_end(key, number, Ends::At(moment)),
            (Some(Some(_)), Ok(false)) => {
                self.judge(&held.map(|held| (key, held)).into_iter().collect(), &BTreeMap::new());
                self.leases(|leases| {
                    leases.held.insert(key, None);
                });
            }
            (Some(None), Ok(true)) => {
                self.stage.fail(format!("leases: key {key} has no value, and got another end"));
            }
            (None, Ok(_)) | (Some(None), Ok(false)) | (_, Err(_)) => {}
        }
        self.outcome(set.map(drop), |_| ())
    }

    /// What becomes of a write. After an error that leaves it unknown the key is, too.
    fn outcome(
        &self,
        written: isobath::Result<()>,
        done: impl FnOnce(&mut Leases),
    ) -> Result<(), Unknown> {
        let Err(error) = written else {
            self.leases(done);
            return Ok(());
        };
        // A seed may allow so little that a value does not fit.
        if error.is_conflict() || matches!(error.kind(), ErrorKind::TransactionTooLarge { .. }) {
            return Ok(());
        }
        self.stage.judge_write("a lease", &error);
        if error.is_retryable() {
            return Ok(());
        }
        self.leases(|leases| {
            done(leases);
            leases.held.clear();
        });
        Err(Unknown)
    }

    /// A transaction that relies on a value. If it is seen to have ended, the commit fails.
    fn rely(&mut self, rng: &mut fastrand::Rng) -> Result<(), Unknown> {
        let key = rng.u8(..KEYS);
        let isolation = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::Snapshot]
            [rng.usize(..3)];
        let options = TransactionOptions::new().isolation(isolation);
        let tx = self.stage.db.with(options).begin();
        // What else it reads has no end that comes.
        let beside = tx.get_expiry([key]).map(drop);
        let read = match rng.u8(..3) {
            0 => tx.of(&self.family).get([key]).map(|value| value.map(|value| number_of(&value))),
            1 => tx
                .of(&self.family)
                .get_expiry([key])
                .map(|read| read.map(|(value, _)| number_of(&value))),
            _ => {
                let mut range = tx.of(&self.family).range([key]..=[key]);
                range.next().transpose().map(|item| item.map(|(_, value)| number_of(&value)))
            }
        };
        let Ok(read) = beside
            .and(read)
            .map_err(|error| self.stage.judge_write("a lease in a transaction", &error))
        else {
            return Ok(());
        };
        for _ in 0..rng.u8(..20) {
            runtime::yield_now();
        }
        let ends = self.leases(|leases| read.and_then(|number| leases.ends.get(&number).copied()));
        let has_ended = match self.family.get([key]) {
            Ok(value) => read.is_some_and(|number| !may_be_removed(number)) && value.is_none(),
            Err(_) => false,
        };
        let other = KEYS;
        let written = tx.of(&self.family).put([other], [0; 8]).and_then(|()| tx.commit());
        let is_checked = isolation != Isolation::Snapshot;
        let kind = written.as_ref().err().map(Error::kind);
        let is_expired =
            matches!(kind, Some(ErrorKind::Conflict { kind: ConflictKind::Expired, .. }));
        if has_ended && is_checked && written.is_ok() && !self.stage.life.is_over() {
            self.stage
                .fail(format!("leases: a commit relied on key {key}, which ended at {ends:?}"));
        }
        let latest_ms = self.stage.life.latest_ms();
        if is_expired && (!is_checked || ends.is_none_or(|ends| ends > latest_ms)) {
            self.stage
                .fail(format!("leases: a commit failed of key {key}, which ends at {ends:?}"));
        }
        self.outcome(written.map(drop), |_| ())
    }

    /// Takes a snapshot, or looks at one again.
    fn hold(&mut self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        if self.held.len() < HELD_MAX && rng.bool() {
            let snapshot = self.stage.db.snapshot();
            let found = numbers(snapshot.of(&self.family).range([0]..[KEYS]))?;
            let known = self.leases(|leases| leases.held.clone());
            self.judge(&known, &found);
            self.held.push(Held { snapshot, found });
            return Ok(());
        }
        if self.held.is_empty() {
            return Ok(());
        }
        let at = rng.usize(..self.held.len());
        let Held { snapshot, found } = &self.held[at];
        let again = numbers(snapshot.of(&self.family).range([0]..[KEYS]))?;
        if again != *found {
            self.stage.fail(format!("leases: a snapshot that showed {found:?} shows {again:?}"));
        }
        if rng.bool() {
            self.held.swap_remove(at);
        }
        Ok(())
    }

    fn tidy(&mut self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        match rng.u8(..4) {
            0 => {
                let floor = self.leases(|leases| leases.floor);
                self.stage.db.sync()?;
                self.leases(|leases| leases.synced_floor = floor);
                Ok(())
            }
            1 => self.family.compact(..),
            2 => self.stage.db.flush(),
            _ => {
                self.held.clear();
                Ok(())
            }
        }
    }

    /// Looks at all keys in a way that is drawn. The first look of a life takes what it finds.
    fn look(&mut self, rng: &mut fastrand::Rng, is_first: bool) -> isobath::Result<()> {
        let known = self.leases(|leases| leases.held.clone());
        let (family, way) = (&self.family, if is_first { 0 } else { rng.u8(..6) });
        let found = match way {
            0 => numbers(family.range([0]..[KEYS]))?,
            1 => {
                let range = family.range([0]..[KEYS]).rev();
                let number = |item: isobath::Result<(isobath::Key, isobath::Value)>| {
                    item.map(|(key, value)| (key[0], number_of(&value)))
                };
                range.map(number).collect::<isobath::Result<_>>()?
            }
            5 => self.step_over()?,
            2 => {
                let keys: Vec<[u8; 1]> = (0..KEYS).map(|key| [key]).collect();
                let values = family.multi_get(&keys)?.into_iter().zip(0..KEYS);
                let there =
                    |(value, key): (Option<isobath::Value>, u8)| Some((key, number_of(&value?)));
                values.filter_map(there).collect()
            }
            _ => return self.look_at_one(rng.u8(..KEYS), way, &known),
        };
        self.judge(&known, &found);
        if is_first {
            for key in (0..KEYS).filter(|key| !known.contains_key(key)) {
                self.take(key, found.contains_key(&key))?;
            }
        }
        Ok(())
    }

    /// What a cursor finds, which must tell the ends that the values were given.
    fn step_over(&self) -> isobath::Result<BTreeMap<u8, u64>> {
        let mut found = BTreeMap::new();
        let mut cursor = self.family.cursor([0]..[KEYS])?;
        while let Some(entry) = cursor.next()? {
            let number = number_of(entry.value()?);
            let told =
                if let Expiry::At(moment) = entry.expiry() { millis(moment) } else { u64::MAX };
            let known = self.leases(|leases| {
                let is_held = leases.held.get(&entry.key()[0]) == Some(&Some(number));
                leases.ends.get(&number).copied().filter(|_| is_held)
            });
            if known.is_some_and(|known| known != told) {
                self.stage.fail(format!("leases: {told} is told of {number}, given {known:?}"));
            }
            found.insert(entry.key()[0], number);
        }
        Ok(found)
    }

    /// Takes what a key of which nothing is known has at the beginning of a life.
    fn take(&self, key: u8, was_there: bool) -> isobath::Result<()> {
        let told = self.family.get_expiry([key])?;
        self.leases(|leases| match told.filter(|_| was_there) {
            Some((value, expiry)) => {
                let ends_ms =
                    if let Expiry::At(moment) = expiry { millis(moment) } else { u64::MAX };
                leases.ends.insert(number_of(&value), ends_ms);
                leases.held.insert(key, Some(number_of(&value)));
            }
            None => {
                leases.held.insert(key, None);
            }
        });
        Ok(())
    }

    fn look_at_one(
        &self,
        key: u8,
        way: u8,
        known: &BTreeMap<u8, Option<u64>>,
    ) -> isobath::Result<()> {
        let known: BTreeMap<_, _> =
            known.iter().filter(|(of, _)| **of == key).map(|(key, held)| (*key, *held)).collect();
        let number = match way {
            3 => self.family.get([key])?.map(|value| number_of(&value)),
            _ => match self.family.contains([key])? {
                // Only that there is something.
                true => known.get(&key).copied().flatten(),
                false => None,
            },
        };
        let found = number.into_iter().map(|number| (key, number)).collect();
        self.judge(&known, &found);
        Ok(())
    }
}

/// The numbers of the values of a range, by key.
fn numbers(range: isobath::Range<'_>) -> isobath::Result<BTreeMap<u8, u64>> {
    range.map(|item| item.map(|(key, value)| (key[0], marked_of(&value)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_time_must_explain_what_is_there_and_what_is_gone() {
        let leases = Leases {
            ends: BTreeMap::from([(4, 100), (8, 200), (3, u64::MAX)]),
            floor: 50,
            ..Leases::default()
        };
        let held = BTreeMap::from([(0, Some(4)), (1, Some(8)), (2, Some(3)), (3, None)]);
        let judge = |found: &[(u8, u64)], latest_ms| {
            leases.judge(&held, &found.iter().copied().collect(), latest_ms).map_err(drop)
        };
        assert_eq!(judge(&[(0, 4), (1, 8), (2, 3)], 1000), Ok(0));
        assert_eq!(judge(&[(1, 8), (2, 3)], 1000), Ok(100));
        assert_eq!(judge(&[(1, 8), (2, 3)], 99), Err(()), "the clock was never there");
        assert_eq!(judge(&[(0, 4), (2, 3)], 1000), Err(()), "the later one is gone");
        assert_eq!(judge(&[(0, 4), (1, 8)], 1000), Err(()), "this one stays for ever");
        assert_eq!(judge(&[(1, 8), (2, 3), (3, 3)], 1000), Err(()), "this one was deleted");
        assert_eq!(judge(&[(1, 4), (2, 3)], 1000), Err(()), "this is the other's value");
        assert_eq!(judge(&[(1, 8), (2, 12)], 1000), Err(()), "nobody wrote this");
        let late = Leases { floor: 150, ends: leases.ends.clone(), ..Leases::default() };
        let found = BTreeMap::from([(0, 4), (1, 8), (2, 3)]);
        assert!(late.judge(&held, &found, 1000).is_err(), "the first was seen to be gone");
    }

    #[test]
    fn a_value_whose_new_end_was_not_told_may_be_there_later_than_its_old_one() {
        let mut leases = Leases { ends: BTreeMap::from([(4, 100), (8, 200)]), ..Leases::default() };
        leases.held = BTreeMap::from([(0, Some(4)), (1, Some(8))]);
        leases.forget_end(0, 4);
        assert!(!leases.held.contains_key(&0), "nothing is known of the key");
        let found = BTreeMap::from([(0, 4)]);
        assert_eq!(leases.judge(&leases.held, &found, 1000), Ok(200));
    }

    #[test]
    fn what_the_filter_may_do_is_no_loss_and_nothing_else_is() {
        let ends = BTreeMap::from([5, 6, 7].map(|number| (number, u64::MAX)));
        let leases = Leases { ends, ..Leases::default() };
        let held = BTreeMap::from([(0, Some(5)), (1, Some(6)), (2, Some(7))]);
        let judge = |found: &[(u8, u64)]| {
            leases.judge(&held, &found.iter().copied().collect(), 1000).map_err(drop)
        };
        let marked = |number: u64| number | 1 << 63;
        assert_eq!(judge(&[(1, 6), (2, 7)]), Ok(0), "the first may be removed");
        assert_eq!(judge(&[(0, 5), (1, marked(6)), (2, 7)]), Ok(0), "the second may be replaced");
        assert_eq!(judge(&[(0, 5), (2, 7)]), Err(()), "but not removed");
        assert_eq!(judge(&[(0, 5), (1, 6), (2, marked(7))]), Err(()), "nor the third replaced");
        assert_eq!(judge(&[(0, marked(5)), (1, 6), (2, 7)]), Err(()), "nor the first");
    }
}
