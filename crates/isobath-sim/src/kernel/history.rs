//! The data that writers write: every commit is computed from the database's seed, the life, the
//! writer and its number.
//!
//! So a check needs only the number of commits of each writer and the life of each: from these it
//! computes what a recovery must find. Every commit begins with its writer's marker, set to its
//! number. A writer has keys of its own in all families; a few keys are shared by all. Now and then
//! a commit is a long value, put at once or as a stream, or deletes a range of the writer's keys,
//! or puts a value whose end is far away.

use super::notes::{COMMITS_MAX, Record, WRITERS_MAX};
use std::collections::BTreeMap;

/// The families that always exist: the default one, and two with names.
pub(crate) const FAMILIES: [&str; 3] = ["default", "left", "right"];
/// Keys of a writer in each family.
const OWN_KEYS: u32 = 32;
/// Those of them in each family that may have a long value: a small disk must hold them all.
const LONG_KEYS: u32 = 3;
/// Long values are up to a thousand bytes longer.
const LONG_LENS: [usize; 2] = [8 << 10, 64 << 10];
/// A value from this length on has a file of its own if it is put as a stream.
pub(crate) const STREAM_LEN: usize = 4 << 10;
/// Keys that all writers share.
const SHARED_KEYS: u32 = 8;

/// A family, by its place in [`FAMILIES`], and a key.
pub(crate) type Place = (usize, Vec<u8>);

/// A write of a batch; without a value it removes the key.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) place: Place,
    pub(crate) value: Option<Value>,
    pub(crate) how: How,
}

/// How a write is made. What it leaves follows from its value alone, but for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Plainly,
    /// Written piece by piece, then put.
    Streamed,
    /// With an end that no test lives to see.
    Ending,
    /// Removes these of the writer's keys, from the first on and without the last, which need not
    /// be one.
    Range {
        writer: usize,
        first: u32,
        end: u32,
    },
}

impl How {
    /// The key at which a range ends.
    pub(crate) fn range_end(self) -> Option<Vec<u8>> {
        match self {
            How::Range { writer, end, .. } => Some(own_key(writer, end)),
            _ => None,
        }
    }
}

impl Write {
    /// What the write leaves, place by place.
    fn effects(self) -> Vec<(Place, Option<Value>)> {
        match self.how {
            How::Range { writer, first, end } => {
                let family = self.place.0;
                (first..end).map(|index| ((family, own_key(writer, index)), None)).collect()
            }
            _ => vec![(self.place, self.value)],
        }
    }
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
    /// One of so many commits is of a long value; 0 if none is.
    long_one_in: u32,
    /// False for engines that cannot delete ranges in a batch.
    has_ranges: bool,
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
            long_one_in: rng.choice([0, 12, 60]).unwrap_or(0),
            has_ranges: true,
        }
    }

    #[cfg(any(feature = "rocksdb", feature = "fjall"))]
    /// The same for a peer: every commit waits until it survives power loss, and none deletes a
    /// range.
    pub(crate) fn for_peer(mut self) -> Plan {
        self.sync_percent = 100;
        self.has_ranges = false;
        self
    }

    /// The commit of this number, from 1 on.
    pub(crate) fn commit(&self, life: u64, writer: usize, n: u64) -> Commit {
        let mut rng = fastrand::Rng::with_seed(mix(&[self.seed, 2, life, writer as u64, n]));
        let marker = Value::Whole(n.to_string().into_bytes());
        let place = marker_place(writer);
        let mut writes = vec![Write { place, value: Some(marker), how: How::Plainly }];
        if self.long_one_in > 0 && rng.u32(..self.long_one_in) == 0 {
            writes.push(long_write(writer, &mut rng));
        } else {
            for _ in 0..rng.u32(1..=5) {
                writes.push(self.short_write(writer, &mut rng));
            }
        }
        if rng.u32(..4) == 0 {
            let place = (rng.usize(..FAMILIES.len()), shared_key(rng.u32(..SHARED_KEYS)));
            let value = Value::Whole(Origin { life, writer, n }.value());
            writes.push(Write { place, value: Some(value), how: How::Plainly });
        }
        let promise = match rng.u32(..100) < self.sync_percent {
            true if self.sync_percent < 100 && rng.bool() => Promise::SyncLater,
            true => Promise::Sync,
            false => Promise::Process,
        };
        Commit { writes, promise }
    }

    fn short_write(&self, writer: usize, rng: &mut fastrand::Rng) -> Write {
        let family = rng.usize(..FAMILIES.len());
        let first = rng.u32(..OWN_KEYS);
        let place = (family, own_key(writer, first));
        let value = (rng.u32(..5) > 0).then(|| self.noise(rng));
        let how = match (&value, rng.u32(..8)) {
            (None, 0) if self.has_ranges => {
                How::Range { writer, first, end: rng.u32(first + 1..=OWN_KEYS) }
            }
            (Some(_), 0) => How::Ending,
            _ => How::Plainly,
        };
        Write { place, value, how }
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
            let writes = self.commit(life, writer, n).writes.into_iter().rev();
            for (place, value) in writes.flat_map(Write::effects) {
                if is_shared(&place) {
                    shared.entry(place).or_insert(Origin { life, writer, n });
                } else {
                    own.entry(place).or_insert(value);
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

/// A long value; every third is a stream.
fn long_write(writer: usize, rng: &mut fastrand::Rng) -> Write {
    let place = (rng.usize(..FAMILIES.len()), own_key(writer, rng.u32(..LONG_KEYS)));
    let len = LONG_LENS[rng.usize(..LONG_LENS.len())] + rng.usize(..1000);
    let how = if rng.u32(..3) == 0 { How::Streamed } else { How::Plainly };
    Write { place, value: Some(Value::Noise { len, seed: rng.u64(..) }), how }
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
        (7..10).for_each(leaves_what_its_commits_leave);
    }

    fn leaves_what_its_commits_leave(seed: u64) {
        let plan = Plan::new(seed);
        let record = Record::of_lives(vec![[0; WRITERS_MAX], [30; WRITERS_MAX]]);
        for count in [0, 1, 30, 31, 500] {
            let (mut own, mut shared) = (BTreeMap::new(), BTreeMap::new());
            for n in 1..=count {
                let life = u64::from(n > 30);
                for write in plan.commit(life, 2, n).writes {
                    if let Some(end) = write.how.range_end() {
                        let range = write.place.clone()..(write.place.0, end);
                        own.retain(|place, _| !range.contains(place));
                        continue;
                    }
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
