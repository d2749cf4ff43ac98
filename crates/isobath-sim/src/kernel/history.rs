//! The data that writers write: every commit is computed from the database's seed, the life, the
//! writer and its number.
//!
//! So a check needs only the number of commits of each writer and the life of each: from these it
//! computes what a recovery must find. Every commit begins with its writer's marker, set to its
//! number. A writer has keys of its own in all families; a few keys are shared by all.

use super::notes::{COMMITS_MAX, Record, WRITERS_MAX};
use std::collections::BTreeMap;

/// The families that always exist: the default one, and two with names.
pub(crate) const FAMILIES: [&str; 3] = ["default", "left", "right"];
/// Keys of a writer in each family.
const OWN_KEYS: u32 = 32;
/// Keys that all writers share.
const SHARED_KEYS: u32 = 8;

/// A family, by its place in [`FAMILIES`], and a key.
pub(crate) type Place = (usize, Vec<u8>);

/// A write of a batch; without a value it removes the key.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) place: Place,
    pub(crate) value: Option<Value>,
}

/// A value that is made when it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Whole(Vec<u8>),
    Noise { len: usize, seed: u64 },
}

impl Value {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Value::Whole(bytes) => bytes.clone(),
            Value::Noise { len, seed } => {
                let mut bytes = vec![0; *len];
                fastrand::Rng::with_seed(*seed).fill(&mut bytes);
                bytes
            }
        }
    }
}

/// What a writer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Survives the death of the process.
    Process,
    /// Survives power loss.
    Sync,
    /// Survives the death of the process first, and power loss after a separate call.
    SyncLater,
}

/// A batch.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) writes: Vec<Write>,
    pub(crate) promise: Promise,
}

/// How a database is written to and opened.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    seed: u64,
    pub(crate) writers: usize,
    /// The percentage of commits that wait until they survive power loss.
    sync_percent: u32,
    /// The longest usual value. Now and then a value is up to sixteen times as long.
    value_len: usize,
    pub(crate) write_buffer: u64,
    pub(crate) positional_log: bool,
    pub(crate) positional_tables: bool,
    /// Values of this length and more lie apart from their keys, where the engine can do that.
    pub(crate) separate_from: Option<u64>,
    /// How many of a thousand commits are followed by a pause.
    pub(crate) pause_permille: u32,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let mut rng = fastrand::Rng::with_seed(mix(&[seed, 1]));
        Plan {
            seed,
            writers: rng.usize(1..=WRITERS_MAX),
            sync_percent: rng.choice([1, 5, 20, 100]).unwrap_or(5),
            value_len: rng.choice([40, 150, 600]).unwrap_or(150),
            write_buffer: rng.choice([64 << 10, 128 << 10, 256 << 10]).unwrap_or(128 << 10),
            positional_log: rng.u32(..4) == 0,
            positional_tables: rng.bool(),
            separate_from: rng.choice([None, Some(30), Some(200)]).unwrap_or(None),
            pause_permille: rng.choice([5, 30, 200]).unwrap_or(30),
        }
    }

    #[cfg(any(feature = "rocksdb", feature = "fjall"))]
    /// The same, with every commit waiting until it survives power loss.
    pub(crate) fn all_synced(mut self) -> Plan {
        self.sync_percent = 100;
        self
    }

    /// The commit of this number, from 1 on.
    pub(crate) fn commit(&self, life: u64, writer: usize, n: u64) -> Commit {
        let mut rng = fastrand::Rng::with_seed(mix(&[self.seed, 2, life, writer as u64, n]));
        let marker = Value::Whole(n.to_string().into_bytes());
        let mut writes = vec![Write { place: marker_place(writer), value: Some(marker) }];
        for _ in 0..rng.u32(1..=5) {
            let family = rng.usize(..FAMILIES.len());
            let place = (family, own_key(writer, rng.u32(..OWN_KEYS)));
            let value = (rng.u32(..5) > 0).then(|| self.noise(&mut rng));
            writes.push(Write { place, value });
        }
        if rng.u32(..4) == 0 {
            let place = (rng.usize(..FAMILIES.len()), shared_key(rng.u32(..SHARED_KEYS)));
            let value = Value::Whole(Origin { life, writer, n }.value());
            writes.push(Write { place, value: Some(value) });
        }
        let promise = match rng.u32(..100) < self.sync_percent {
            true if self.sync_percent < 100 && rng.bool() => Promise::SyncLater,
            true => Promise::Sync,
            false => Promise::Process,
        };
        Commit { writes, promise }
    }

    fn noise(&self, rng: &mut fastrand::Rng) -> Value {
        let len = rng.usize(8..self.value_len);
        let len = if rng.u32(..64) == 0 { len * 16 } else { len };
        Value::Noise { len, seed: rng.u64(..) }
    }

    /// What the first `count` commits of a writer leave.
    pub(crate) fn newest(&self, record: &Record, writer: usize, count: u64) -> Newest {
        let mut own: BTreeMap<Place, Option<Value>> = BTreeMap::new();
        let mut shared = BTreeMap::new();
        let own_places = 1 + FAMILIES.len() * OWN_KEYS as usize;
        let shared_places = FAMILIES.len() * SHARED_KEYS as usize;
        for n in (1..=count).rev() {
            let life = record.life_of(writer, n);
            for write in self.commit(life, writer, n).writes.into_iter().rev() {
                if is_shared(&write.place) {
                    shared.entry(write.place).or_insert(Origin { life, writer, n });
                } else {
                    own.entry(write.place).or_insert(write.value);
                }
            }
            if own.len() == own_places && shared.len() == shared_places {
                break;
            }
        }
        let own = own.into_iter().filter_map(|(place, value)| Some((place, value?.bytes())));
        Newest { own: own.collect(), shared }
    }
}

/// What a writer left.
#[derive(Debug, PartialEq)]
pub(crate) struct Newest {
    /// In the places that are its own.
    pub(crate) own: BTreeMap<Place, Vec<u8>>,
    /// Its last commit to each shared place that it wrote to.
    pub(crate) shared: BTreeMap<Place, Origin>,
}

/// Which commit wrote a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) life: u64,
    pub(crate) writer: usize,
    pub(crate) n: u64,
}

impl Origin {
    /// What the commit put into a shared place.
    pub(crate) fn value(self) -> Vec<u8> {
        format!("{} {} {}", self.life, self.writer, self.n).into_bytes()
    }
}

/// How many commits of a writer its marker says there are.
pub(crate) fn marker_number(bytes: Option<&Vec<u8>>) -> Result<u64, String> {
    let Some(bytes) = bytes else { return Ok(0) };
    let text = String::from_utf8_lossy(bytes);
    let number = text.parse().ok().filter(|number| (1..=COMMITS_MAX).contains(number));
    number.ok_or_else(|| format!("a marker holds {text:?}"))
}

/// The key that a writer sets to the number of each of its commits.
pub(crate) fn marker_place(writer: usize) -> Place {
    (0, format!("!{writer}").into_bytes())
}

fn own_key(writer: usize, index: u32) -> Vec<u8> {
    format!("own {writer}.{index:02}").into_bytes()
}

fn shared_key(index: u32) -> Vec<u8> {
    format!("shared {index}").into_bytes()
}

/// True for the places that all writers write to.
pub(crate) fn is_shared(place: &Place) -> bool {
    place.1.starts_with(b"shared ")
}

/// A hash of all of these.
pub(crate) fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0x9e37_79b9_7f4a_7c15, |state: u64, number| {
        let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writer_leaves_is_what_its_commits_in_order_leave() {
        let plan = Plan::new(7);
        let record = Record::of_lives(vec![[0; WRITERS_MAX], [30; WRITERS_MAX]]);
        for count in [0, 1, 30, 31, 500] {
            let (mut own, mut shared) = (BTreeMap::new(), BTreeMap::new());
            for n in 1..=count {
                let life = u64::from(n > 30);
                for write in plan.commit(life, 2, n).writes {
                    let place = write.place;
                    match write.value {
                        Some(_) if is_shared(&place) => {
                            shared.insert(place, Origin { life, writer: 2, n });
                        }
                        Some(value) => {
                            own.insert(place, value.bytes());
                        }
                        None => {
                            own.remove(&place);
                        }
                    }
                }
            }
            assert_eq!(plan.newest(&record, 2, count), Newest { own, shared }, "{count} commits");
        }
    }
}
