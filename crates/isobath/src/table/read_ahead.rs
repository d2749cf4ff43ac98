//! What a reader's cursor tells the file to read before it asks for it.
//!
//! Files announce random access to the kernel. So each block of a scan costs one wait for the
//! device unless it is told in time, and a cursor does not know how far a scan will go. Therefore
//! each slice remembers how far scans have gone in it of late. The first block of a scan that is
//! not cached is told together with as much. A scan that goes further is told in windows, each
//! twice as long as the one before. Short windows are told when the one before is used up, long
//! ones by halves, so that the device works while the scan does.
//!
//! A new slice begins with what those remember whose place it takes (`version/draft.rs`). A scan
//! passes little in the runs of level 0 and much in the last level, so slices do not share a mean;
//! and threads that scan several slices store to several places.

use super::BlockHandle;
use crate::env::sync::atomic::{AtomicU32, Ordering};
use crossbeam_utils::CachePadded;
use std::ops::Range;

/// The first window of a scan that goes on, unless what came before it was longer.
const WINDOW_MIN: u64 = 16 << 10;
const WINDOW_MAX: u64 = 512 << 10;
/// Windows of this length and above are told by halves.
const HALVED_MIN: u64 = 128 << 10;

/// Smaller differences are not worth a store to what all readers of the slice share.
const NOTED_MIN: u32 = 512;

/// How many bytes of blocks the scans of a slice have passed of late.
#[derive(Debug, Default)]
pub(crate) struct UsualScan(CachePadded<AtomicU32>);

impl UsualScan {
    /// What other slices have learned. For a table that no scan knows yet.
    pub(super) fn begin_with(&self, bytes: u64) {
        self.0.store(bytes.min(WINDOW_MAX) as u32, Ordering::Relaxed);
    }

    /// A forward scan passed so many bytes. The mean falls faster than it rises: bytes that no scan
    /// uses keep the device from other reads, while a second request delays only this scan.
    pub(crate) fn note(&self, passed: u64) {
        let passed = passed.min(WINDOW_MAX) as u32;
        let usual = self.0.load(Ordering::Relaxed);
        if passed.abs_diff(usual) < NOTED_MIN {
            return;
        }
        let next = match passed.checked_sub(usual) {
            None => usual - (usual - passed).div_ceil(2),
            Some(more) => usual + more.div_ceil(8),
        };
        debug_assert!(u64::from(next) <= WINDOW_MAX, "the mean exceeds the longest scan noted");
        // Of two cursors that end at once one may go uncounted.
        self.0.store(next, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.0.load(Ordering::Relaxed))
    }
}

/// The direction in which a cursor goes from block to block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The read-ahead of one cursor.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    direction: Direction,
    /// Blocks reached by steps in this direction since the last seek.
    steps: u32,
    /// What was told since the last seek.
    told: Range<u64>,
    window_len: u64,
    /// The blocks that were passed forward since the last seek.
    passed: Range<u64>,
}

impl ReadAhead {
    pub(crate) fn new() -> ReadAhead {
        ReadAhead::towards(Direction::Forward)
    }

    fn towards(direction: Direction) -> ReadAhead {
        ReadAhead { direction, steps: 0, told: 0..0, window_len: 0, passed: 0..0 }
    }

    /// The next block may be any; the steps that follow go in this direction, as far as is known.
    /// Returns the bytes that were passed forward since the seek before.
    pub(crate) fn seek(&mut self, direction: Direction) -> u64 {
        let before = std::mem::replace(self, ReadAhead::towards(direction));
        before.passed.end - before.passed.start
    }

    /// The next block is a neighbour of the last one.
    pub(crate) fn step(&mut self, direction: Direction) {
        if direction != self.direction {
            (self.direction, self.steps) = (direction, 0);
            (self.told, self.window_len) = (0..0, 0);
        }
        self.steps = self.steps.saturating_add(1);
    }

    /// The cursor comes to this block.
    #[inline]
    pub(crate) fn pass(&mut self, block: BlockHandle) {
        if self.direction == Direction::Forward {
            if self.passed.is_empty() {
                self.passed.start = block.offset;
            }
            self.passed.end = end_of(block).max(self.passed.start);
        }
    }

    /// What to tell the file before this block is read from it. `data` is where the slice's blocks
    /// lie.
    pub(crate) fn wanted(
        &mut self,
        block: BlockHandle,
        usual: &UsualScan,
        data: Range<u64>,
    ) -> Option<Range<u64>> {
        let own = block.offset..end_of(block);
        let block_len = u64::from(block.len);
        let len = match self.steps {
            0 if self.direction == Direction::Backward => return None,
            // The mean of a seek that now and then meets a second block.
            0 if usual.bytes() < block_len + block_len / 2 => return None,
            // A block more: it is chance where a scan begins in its first and ends in its last.
            0 => usual.bytes() + block_len,
            _ if self.is_told_enough(&own) => return None,
            _ => (self.window_len * 2).clamp(WINDOW_MIN, WINDOW_MAX),
        };
        let (is_told, len) = (self.has_told(&own), len.max(block_len));
        let window = match self.direction {
            Direction::Forward => {
                let start = if is_told { self.told.end } else { own.start };
                start..start.saturating_add(len).min(data.end)
            }
            Direction::Backward => {
                let end = if is_told { self.told.start } else { own.end };
                end.saturating_sub(len).max(data.start)..end
            }
        };
        // Handles come from the file, which may be forged.
        if window.is_empty() || window.start < data.start || window.end > data.end {
            return None;
        }
        self.window_len = len;
        self.told = match is_told {
            true => self.told.start.min(window.start)..self.told.end.max(window.end),
            false => window.clone(),
        };
        debug_assert!(
            self.told.start <= window.start && window.end <= self.told.end,
            "a window apart from what was told before is forgotten"
        );
        Some(window)
    }

    /// What to read with one call where this block lies in what was told: the block, and as much
    /// behind it in the direction of the steps as a chunk takes.
    pub(crate) fn chunk(&self, block: BlockHandle, chunk_len: u64) -> Option<Range<u64>> {
        let own = block.offset..end_of(block);
        let chunk = match self.direction {
            Direction::Forward => own.start..self.told.end.min(own.start.saturating_add(chunk_len)),
            Direction::Backward => self.told.start.max(own.end.saturating_sub(chunk_len))..own.end,
        };
        let holds_more = chunk.start <= own.start && own.end <= chunk.end && chunk != own;
        (self.has_told(&own) && holds_more).then_some(chunk)
    }

    fn has_told(&self, own: &Range<u64>) -> bool {
        self.told.start <= own.start && own.end <= self.told.end
    }

    fn is_told_enough(&self, own: &Range<u64>) -> bool {
        let left = match self.direction {
            Direction::Forward => self.told.end.saturating_sub(own.end),
            Direction::Backward => own.start.saturating_sub(self.told.start),
        };
        self.has_told(own) && (self.window_len < HALVED_MIN || left >= self.window_len / 2)
    }
}

fn end_of(block: BlockHandle) -> u64 {
    block.offset.saturating_add(u64::from(block.len))
}

#[cfg(test)]
mod tests {
    use super::Direction::{Backward, Forward};
    use super::*;

    const LEN: u32 = 4000;

    fn block(number: u64) -> BlockHandle {
        BlockHandle { offset: number * u64::from(LEN), len: LEN }
    }

    /// Goes over blocks of which none is cached; returns what was told before which.
    fn told(
        usual: &UsualScan,
        numbers: impl Iterator<Item = u64>,
        blocks: u64,
        direction: Direction,
    ) -> Vec<(u64, Range<u64>)> {
        let (mut ahead, mut told, mut last) = (ReadAhead::new(), Vec::new(), None);
        ahead.seek(direction);
        let data = 0..blocks * u64::from(LEN);
        for number in numbers {
            if let Some(last) = last.replace(number) {
                ahead.step(if last < number { Forward } else { Backward });
            }
            ahead.pass(block(number));
            told.extend(
                ahead.wanted(block(number), usual, data.clone()).map(|wanted| (number, wanted)),
            );
        }
        match ahead.seek(Forward) {
            0 => {}
            passed => usual.note(passed),
        }
        told
    }

    #[test]
    fn a_seek_alone_tells_nothing_and_a_scan_that_goes_on_windows_that_double() {
        let usual = UsualScan::default();
        assert_eq!(told(&usual, 7..8, 1000, Forward), []);
        let long = told(&usual, 7..900, 1000, Forward);
        let ends: Vec<u64> = long.iter().map(|(_, window)| window.end - window.start).collect();
        assert_eq!(ends[..6], [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10]);
        assert!(ends[6..ends.len() - 1].iter().all(|len| *len == WINDOW_MAX), "{ends:?}");
        assert_eq!(long[0], (8, 32_000..32_000 + (16 << 10)));
        for pair in long.windows(2) {
            assert!(pair[1].1.start <= pair[0].1.end, "nothing is left out");
            let left = pair[0].1.end as i64 - (pair[1].0 * u64::from(LEN)) as i64;
            let is_long = pair[0].1.end - pair[0].1.start >= HALVED_MIN;
            assert_eq!(left > i64::from(LEN), is_long, "long windows are told early: {pair:?}");
        }
        assert_eq!(long.last().unwrap().1.end, 4_000_000, "not beyond the data");
    }

    #[test]
    fn what_scans_usually_pass_is_told_with_their_first_block() {
        let usual = UsualScan::default();
        for _ in 0..60 {
            told(&usual, 10..13, 1000, Forward);
        }
        assert!((11_400..=12_000).contains(&usual.bytes()), "{}", usual.bytes());
        let usually = told(&usual, 20..23, 1000, Forward);
        let [(20, Range { start: 80_000, end: end @ 95_400..=96_000 })] = usually[..] else {
            panic!("{usually:?}")
        };
        let further = told(&usual, 20..26, 1000, Forward);
        assert!(further[0] == (20, 80_000..end) && further.len() == 2, "{further:?}");
        let (23 | 24, Range { start, end: next_end }) = further[1].clone() else { panic!() };
        assert!(start <= end && next_end - start >= 2 * (end - 80_000), "twice as much");
        assert_eq!(told(&usual, 999..1000, 1000, Forward), [(999, 3_996_000..4_000_000)]);
        for _ in 0..6 {
            told(&usual, 10..11, 1000, Forward);
        }
        assert_eq!(told(&usual, 20..21, 1000, Forward), [], "seeks have made it forget the scans");
    }

    #[test]
    fn steps_backward_are_told_backward_and_change_no_mean() {
        let usual = UsualScan::default();
        let back = told(&usual, (0..100).rev(), 1000, Backward);
        assert_eq!(back[0], (98, 98 * 4000 + 4000 - (16 << 10)..98 * 4000 + 4000));
        assert!(back.windows(2).all(|pair| pair[1].1.end >= pair[0].1.start), "{back:?}");
        assert_eq!(back.last().unwrap().1.start, 0);
        assert_eq!(usual.bytes(), 0);
        let turned = told(&usual, [50, 51, 52, 51, 50, 49].into_iter(), 1000, Forward);
        assert_eq!(turned.len(), 2, "a turn begins anew: {turned:?}");
    }

    #[test]
    fn forged_offsets_do_no_harm() {
        let (usual, mut ahead) = (UsualScan::default(), ReadAhead::new());
        usual.note(u64::MAX);
        let forged = [
            BlockHandle { offset: u64::MAX, len: u32::MAX },
            BlockHandle { offset: 0, len: u32::MAX },
            BlockHandle { offset: u64::MAX - 5, len: 1 },
        ];
        for direction in [Forward, Backward, Forward] {
            for block in forged {
                ahead.pass(block);
                if let Some(told) = ahead.wanted(block, &usual, 100..1000) {
                    assert!(told.start < told.end && told.end - told.start <= u64::from(u32::MAX));
                }
                ahead.step(direction);
            }
        }
        ahead.seek(Forward);
    }
}
