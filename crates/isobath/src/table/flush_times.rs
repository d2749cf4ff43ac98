//! When the deletes of slices were flushed, and what a compaction makes of it.

use super::meta::SliceMeta;
use crate::error::Decoded;
use crate::format::{Decoder, Lsn, put_varint};

/// How far the clock may have been set back since a flush for its time to be believed.
const AHEAD_MAX_MS: u64 = 60_000;

/// The oldest delete of a slice, of a key or of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldestDelete {
    pub(crate) seq: Lsn,
    /// It was flushed to a table at this time or later, in milliseconds since 1970.
    pub(crate) flushed_ms: u64,
}

impl OldestDelete {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.seq);
        put_varint(out, self.flushed_ms);
    }

    pub(crate) fn take(field: &[u8]) -> Decoded<OldestDelete> {
        let mut field = Decoder::new(field);
        let oldest = OldestDelete { seq: field.varint()?, flushed_ms: field.varint()? };
        match field.is_done() {
            true => Ok(oldest),
            false => Err(field.malformed("the oldest delete of a slice is followed by something")),
        }
    }

    /// How long ago it was flushed, or less, but for deletes that compactions make
    /// (`docs/internals/deletes.md`). `None` if that was at a time to come: the clock was
    /// ahead then, which says nothing of the age.
    pub(crate) fn age_ms(&self, now_ms: u64) -> Option<u64> {
        let is_believed = self.flushed_ms <= now_ms.saturating_add(AHEAD_MAX_MS);
        is_believed.then(|| now_ms.saturating_sub(self.flushed_ms))
    }
}

/// When deletes were flushed: a list of deletes by ascending sequence, of which each, and every
/// later one, was flushed at its time or later. Sequences rise with the time of their flush, so the
/// oldest delete of one slice tells something of the later ones in another.
///
/// A delete that a compaction makes, of a value that has ended or that a filter removes, is as
/// young as the compaction, however low its sequence. Its slice may have older ones with higher
/// sequences. So no delete counts as younger than a later one in the list. That may be too old: a
/// time is the least that is known, and not always of that delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushTimes(Box<[OldestDelete]>);

impl FlushTimes {
    /// All are flushed now.
    pub(crate) fn now(unix_ms: u64) -> FlushTimes {
        FlushTimes([OldestDelete { seq: 0, flushed_ms: unix_ms }].into())
    }

    /// What slices know of their oldest deletes, for a compaction of them that begins now. Deletes
    /// below the known ones are made by it, unless a slice has some of which it knows no age.
    pub(crate) fn of<'a>(slices: impl Iterator<Item = &'a SliceMeta>, unix_ms: u64) -> FlushTimes {
        let (mut known, mut are_all_known) = (Vec::new(), true);
        for meta in slices {
            known.extend(meta.oldest_delete);
            let has_any = meta.deletes > 0 || meta.spans.is_some();
            are_all_known &= meta.oldest_delete.is_some() || !has_any;
        }
        known.extend(are_all_known.then_some(OldestDelete { seq: 0, flushed_ms: unix_ms }));
        known.sort_unstable_by_key(|oldest| oldest.seq);
        let mut least = u64::MAX;
        for oldest in known.iter_mut().rev() {
            least = oldest.flushed_ms.min(least);
            oldest.flushed_ms = least;
        }
        debug_assert!(known.is_sorted_by_key(|oldest| oldest.flushed_ms), "a later one is older");
        FlushTimes(known.into())
    }

    /// What is known of the delete with this sequence; `None` if nothing is.
    pub(crate) fn oldest_delete(&self, seq: Lsn) -> Option<OldestDelete> {
        let later = self.0.partition_point(|known| known.seq <= seq);
        let known = self.0[..later].last()?;
        Some(OldestDelete { seq, flushed_ms: known.flushed_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::fixtures::meta;

    const NOW: u64 = 9000;

    /// The time of a delete once slices with such oldest deletes are compacted. Of one with
    /// sequence 0 the age is not known.
    fn of(known: &[(Lsn, u64)]) -> impl Fn(Lsn) -> Option<u64> {
        let slice = |&(seq, flushed_ms): &(Lsn, u64)| {
            let oldest_delete = (seq > 0).then_some(OldestDelete { seq, flushed_ms });
            SliceMeta { oldest_delete, ..meta(0, 1, "b", "d", (5, 90)) }
        };
        let slices: Vec<_> = known.iter().map(slice).collect();
        let times = FlushTimes::of(slices.iter(), NOW);
        move |seq| times.oldest_delete(seq).map(|oldest| oldest.flushed_ms)
    }

    #[test]
    fn a_delete_was_flushed_no_earlier_than_the_newest_known_one_before_it() {
        let at = of(&[(30, 700), (10, 500), (0, 0), (20, 600)]);
        assert_eq!([9, 10, 19, 20, 35].map(at), [None, Some(500), Some(500), Some(600), Some(700)]);
        // The clock was set back between two flushes, or the least that is known is too little.
        assert_eq!([10, 20, 99].map(of(&[(10, 500), (20, 400)])), [Some(400); 3]);
        assert_eq!(of(&[(0, 0)])(50), None);
        let now = FlushTimes::now(80);
        assert_eq!(now.oldest_delete(5), Some(OldestDelete { seq: 5, flushed_ms: 80 }));
    }

    #[test]
    fn a_delete_that_a_compaction_makes_is_as_old_as_the_compaction_or_as_what_it_reads() {
        assert_eq!(of(&[])(5), Some(NOW));
        let plain = SliceMeta { deletes: 0, ..meta(0, 1, "b", "d", (5, 90)) };
        let times = FlushTimes::of([&plain, &plain].into_iter(), NOW);
        assert_eq!(times.oldest_delete(5), Some(OldestDelete { seq: 5, flushed_ms: NOW }));
        // Beside it there may be one that is older and has a higher sequence.
        let at = of(&[(10, 500), (20, 600)]);
        assert_eq!([5, 10, 20].map(at), [Some(500), Some(500), Some(600)]);
        // It may be one that was there before, and whose age is not known.
        assert_eq!(of(&[(0, 0)])(5), None);
        assert_eq!([5, 10].map(of(&[(0, 0), (10, 500)])), [None, Some(500)]);
        let spans = crate::table::SpanMeta { fragments: 1, start: (*b"b").into(), end: None };
        let spans = Some(Box::new(spans));
        let of_a_range = SliceMeta { spans, ..plain };
        assert_eq!(FlushTimes::of([&of_a_range].into_iter(), NOW).oldest_delete(5), None);
    }

    #[test]
    fn a_time_to_come_says_nothing_of_an_age() {
        let flushed = |flushed_ms| OldestDelete { seq: 1, flushed_ms };
        let now_ms = 100_000;
        assert_eq!(flushed(40_000).age_ms(now_ms), Some(60_000));
        assert_eq!(flushed(160_000).age_ms(now_ms), Some(0), "the clock was set back a little");
        assert_eq!(flushed(160_001).age_ms(now_ms), None);
        assert_eq!(flushed(u64::MAX).age_ms(u64::MAX), Some(0));
    }
}
