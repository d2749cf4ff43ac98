//! What the answers should be: a map for each family, and nothing else.

use super::stream::{At, Bounds, Ends, Move, Op, PLACES, Stream};
use super::{Answers, Digest};
use std::collections::BTreeMap;
use std::ops::RangeBounds as _;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What stands in each place. A family is known by the number of its creation: a snapshot does not
/// see one that is younger.
#[derive(Clone, Default)]
struct State {
    families: [Option<(u64, Map)>; PLACES],
}

/// The answers to every read of the stream. Whatever cannot be asked (a family that is not there, a
/// snapshot that was not taken) has no answer.
pub(super) fn answers(stream: &Stream) -> Answers {
    let mut model = Model::new();
    let mut answers = Vec::new();
    for (at, op) in stream.ops.iter().enumerate() {
        if let Some(digest) = model.step(op) {
            answers.push((at, digest.0));
        }
    }
    answers
}

struct Model {
    now: State,
    snapshots: BTreeMap<u8, State>,
    families_ever: u64,
}

impl Model {
    fn new() -> Model {
        let mut now = State::default();
        now.families[0] = Some((0, Map::new()));
        Model { now, snapshots: BTreeMap::new(), families_ever: 0 }
    }

    /// What a read of a place shows.
    fn map(&self, place: usize, at: At) -> Option<Map> {
        let (id, now) = self.now.families[place].as_ref()?;
        match at {
            At::Now => Some(now.clone()),
            At::Snapshot(nth) => {
                let then = self.snapshots.get(&nth)?.families[place].as_ref();
                Some(then.filter(|(then, _)| then == id).map_or(Map::new(), |(_, map)| map.clone()))
            }
        }
    }

    fn step(&mut self, op: &Op) -> Option<Digest> {
        let mut digest = Digest::new();
        match op {
            Op::Write { writes, .. } => {
                for write in writes {
                    let Some((_, map)) = &mut self.now.families[write.place] else { continue };
                    match &write.value {
                        Some(value) => drop(map.insert(write.key.clone(), value.clone())),
                        None => drop(map.remove(&write.key)),
                    }
                }
                return None;
            }
            Op::Get { place, key, at } => {
                digest.add_value(self.map(*place, *at)?.get(key).map(Vec::as_slice));
            }
            Op::MultiGet { place, keys } => {
                let map = self.map(*place, At::Now)?;
                keys.iter().for_each(|key| digest.add_value(map.get(key).map(Vec::as_slice)));
            }
            Op::Scan { place, bounds, at, limit, ends } => {
                let map = self.map(*place, *at)?;
                let mut items = map.iter().filter(|(key, _)| bounds.contains(*key));
                for turn in 0..*limit {
                    let item = match (ends, turn % 2) {
                        (Ends::Front, _) | (Ends::Turns, 0) => items.next(),
                        _ => items.next_back(),
                    };
                    let Some((key, value)) = item else { break };
                    digest.add(key);
                    digest.add(value);
                }
            }
            Op::Prefix { place, prefix } => {
                let map = self.map(*place, At::Now)?;
                for (key, value) in map.iter().filter(|(key, _)| key.starts_with(prefix)) {
                    digest.add(key);
                    digest.add(value);
                }
            }
            Op::Walk { place, bounds, moves } => {
                let map = self.map(*place, At::Now)?;
                walk(&map, bounds, moves, &mut digest);
            }
            _ => {
                self.change(op);
                return None;
            }
        }
        Some(digest)
    }

    fn change(&mut self, op: &Op) {
        match op {
            Op::TakeSnapshot(nth) => drop(self.snapshots.insert(*nth, self.now.clone())),
            Op::DropSnapshot(nth) => drop(self.snapshots.remove(nth)),
            Op::ChangeFamily { place } => {
                self.families_ever += 1;
                let family = &mut self.now.families[*place];
                *family = match family {
                    Some(_) => None,
                    None => Some((self.families_ever, Map::new())),
                };
            }
            Op::Reopen => self.snapshots.clear(),
            _ => {}
        }
    }
}

fn walk(map: &Map, bounds: &Bounds, moves: &[Move], digest: &mut Digest) {
    let items: Vec<_> = map.iter().filter(|(key, _)| bounds.contains(*key)).collect();
    // Positions are one more than indices: 0 is before the first key, and a fresh cursor is
    // nowhere.
    let (mut at, behind) = (None, items.len() + 1);
    for one in moves {
        let to = match one {
            Move::First => 1,
            Move::Last => behind - 1,
            Move::Seek(key) => 1 + items.partition_point(|(k, _)| *k < key),
            Move::SeekForPrev(key) => items.partition_point(|(k, _)| *k <= key),
            Move::Next => behind.min(at.unwrap_or(0) + 1),
            Move::Prev => at.unwrap_or(behind).saturating_sub(1),
        };
        at = Some(to);
        let item = to.checked_sub(1).and_then(|index| items.get(index));
        digest.add_value(item.map(|item| item.0.as_slice()));
        digest.add_value(item.map(|item| item.1.as_slice()));
    }
}
