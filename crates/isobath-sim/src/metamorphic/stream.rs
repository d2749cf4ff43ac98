//! What is done: operations drawn from a seed, the same for every set of options.

use std::ops::Bound;

/// Families have places; what stands there may be dropped and made again.
pub(super) const PLACES: usize = 4;
const KEYS: u32 = 160;
const SNAPSHOTS: u8 = 4;

pub(super) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// One write of a batch: `None` deletes.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) place: usize,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

/// As of when something is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Now,
    /// A snapshot, if there is one of this number.
    Snapshot(u8),
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Write {
        writes: Vec<Write>,
        is_sync: bool,
    },
    Get {
        place: usize,
        key: Vec<u8>,
        at: At,
    },
    MultiGet {
        place: usize,
        keys: Vec<Vec<u8>>,
    },
    /// Takes `limit` items: from the front, from the back, or by turns.
    Scan {
        place: usize,
        bounds: Bounds,
        at: At,
        limit: usize,
        ends: Ends,
    },
    Prefix {
        place: usize,
        prefix: Vec<u8>,
    },
    /// Moves a cursor about.
    Walk {
        place: usize,
        bounds: Bounds,
        moves: Vec<Move>,
    },
    TakeSnapshot(u8),
    DropSnapshot(u8),
    Flush,
    Compact {
        place: usize,
        bounds: Bounds,
    },
    Settle,
    /// Drops the family that stands there, or makes one if none does. Place 0 is the default
    /// family's.
    ChangeFamily {
        place: usize,
    },
    Reopen,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Ends {
    Front,
    Back,
    Turns,
}

#[derive(Clone, Debug)]
pub(super) enum Move {
    First,
    Last,
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    Next,
    Prev,
}

/// A seed's operations.
pub(super) struct Stream {
    pub(super) ops: Vec<Op>,
}

impl Stream {
    pub(super) fn draw(seed: u64) -> Stream {
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.usize(300..900);
        let mut ops: Vec<Op> = (1..PLACES).map(|place| Op::ChangeFamily { place }).collect();
        ops.extend((0..count).map(|_| op(&mut rng)));
        // In the end everything is looked at.
        ops.push(Op::Reopen);
        ops.extend((0..PLACES).map(scan_all));
        Stream { ops }
    }
}

fn scan_all(place: usize) -> Op {
    let bounds = (Bound::Unbounded, Bound::Unbounded);
    Op::Scan { place, bounds, at: At::Now, limit: usize::MAX, ends: Ends::Front }
}

fn op(rng: &mut fastrand::Rng) -> Op {
    let place = rng.usize(..PLACES);
    match rng.u32(..1000) {
        0..430 => {
            let count = if rng.u8(..5) == 0 { rng.usize(0..30) } else { 1 };
            let writes = (0..count).map(|_| write(rng)).collect();
            Op::Write { writes, is_sync: rng.u8(..20) == 0 }
        }
        430..580 => Op::Get { place, key: key(rng), at: at(rng) },
        580..620 => {
            let keys = (0..rng.usize(0..12)).map(|_| key(rng)).collect();
            Op::MultiGet { place, keys }
        }
        620..740 => {
            let ends = [Ends::Front, Ends::Back, Ends::Turns][rng.usize(..3)];
            let limit = [3, 20, usize::MAX][rng.usize(..3)];
            Op::Scan { place, bounds: bounds(rng), at: at(rng), limit, ends }
        }
        740..780 => {
            let mut prefix = key(rng);
            prefix.truncate(rng.usize(0..5));
            Op::Prefix { place, prefix }
        }
        780..860 => {
            let moves = (0..rng.usize(1..25)).map(|_| one_move(rng)).collect();
            Op::Walk { place, bounds: bounds(rng), moves }
        }
        860..890 => Op::TakeSnapshot(rng.u8(..SNAPSHOTS)),
        890..910 => Op::DropSnapshot(rng.u8(..SNAPSHOTS)),
        910..945 => Op::Flush,
        945..970 => Op::Compact { place, bounds: bounds(rng) },
        970..975 => Op::Settle,
        975..985 => Op::ChangeFamily { place: rng.usize(1..PLACES) },
        _ => Op::Reopen,
    }
}

fn at(rng: &mut fastrand::Rng) -> At {
    if rng.u8(..3) == 0 { At::Snapshot(rng.u8(..SNAPSHOTS)) } else { At::Now }
}

/// Few keys, of several shapes: empty, short, sharing much, long, of bytes that are no text.
fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let nth = rng.u32(..KEYS);
    match nth % 5 {
        0 if nth == 0 => Vec::new(),
        0 => format!("{}{nth:04}", "shared/".repeat(20)).into_bytes(),
        1 => vec![0xff; nth as usize / 5 + 1],
        2 => [&b"key"[..], &[nth as u8, 0]].concat(),
        3 => nth.to_be_bytes().to_vec(),
        _ => format!("key{nth}").into_bytes(),
    }
}

fn write(rng: &mut fastrand::Rng) -> Write {
    let (place, key) = (rng.usize(..PLACES), key(rng));
    let value = (rng.u8(..4) > 0).then(|| {
        let len = match rng.u8(..40) {
            0 => rng.usize(..60_000),
            1..8 => rng.usize(..3000),
            _ => rng.usize(..200),
        };
        // Half of it can be compressed.
        let word = rng.u64(..).to_le_bytes();
        (0..len).map(|at| if at % 16 < 8 { b'.' } else { word[at % 8] ^ (at / 97) as u8 }).collect()
    });
    Write { place, key, value }
}

fn bounds(rng: &mut fastrand::Rng) -> Bounds {
    let mut bound = || match rng.u8(..4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(rng)),
        _ => Bound::Included(key(rng)),
    };
    (bound(), bound())
}

fn one_move(rng: &mut fastrand::Rng) -> Move {
    match rng.u8(..14) {
        0 => Move::First,
        1 => Move::Last,
        2 | 3 => Move::Seek(key(rng)),
        4 | 5 => Move::SeekForPrev(key(rng)),
        6..10 => Move::Next,
        _ => Move::Prev,
    }
}
