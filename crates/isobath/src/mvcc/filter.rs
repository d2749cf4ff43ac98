//! What a compaction filter is, and the only place that calls one.
//!
//! A filter is the program's code: it may panic, or return more than a value can hold. Each call
//! here ends in a verdict; after a failure that verdict is to keep the value. Which values a filter
//! may judge is decided by [`ReaderPoints::leave_to_filter`](super::ReaderPoints), and what becomes
//! of them by `rewrite.rs`.

#![allow(clippy::disallowed_types)] // What programs have.

use super::expiry::{EXPIRY_LEN, Expiring, value_of};
use super::{Entry, Lsn};
use crate::env::{Plant, Reach, SystemTime, planted, reached};
use crate::limits::MAX_VALUE_LEN;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Judges values while compactions rewrite them: keeps, removes or replaces each, as compaction
/// filters of RocksDB do. [`Options::compaction_filter`](crate::Options::compaction_filter) brings
/// one to the engine under a name, and
/// [`FamilyOptions::compaction_filter`](crate::FamilyOptions::compaction_filter) names the one that
/// a family uses. A closure is a filter.
///
/// Compactions ask about the newest value of a key, and only if no snapshot or transaction that is
/// there sees it, and if it is older than the history; with a history also about a value that was
/// newest when the history begins. Readers who begin while the compaction runs go on reading what
/// was there before. Flushes ask about nothing, nor do moves of whole tables:
/// when a value is judged, and how often, is not known. A replaced value is judged again.
/// [`Db::compact`](crate::Db::compact) has every value judged that may be.
///
/// In a family with a merge operator operands are not judged, and a value may be while newer
/// operands, which the compaction does not see, are still to be added to it.
///
/// A filter is not asked about values that have files of their own
/// ([`put_reader`](crate::Db::put_reader), [`ValueWriter`](crate::ValueWriter)), since it sees
/// values in memory. They stay, also where the key alone would tell that they may go.
///
/// A filter is called by several threads at once. It must not use the database. What it decides by
/// should be durable: after a power cut a removal may be left over while an unsynced write is lost
/// that was the reason. A panic in it keeps the value.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// use isobath::{FamilyOptions, FilterEntry, FilterVerdict, Options};
///
/// let no_drafts = |entry: FilterEntry<'_>| match entry.key.starts_with(b"draft/") {
///     true => FilterVerdict::Remove,
///     false => FilterVerdict::Keep,
/// };
/// let db = Options::in_memory().compaction_filter("no drafts", no_drafts).open("filter")?;
/// let pages = db.family(("pages", FamilyOptions::new().compaction_filter("no drafts")))?;
/// pages.put("draft/1", "…")?;
/// pages.put("page/1", "…")?;
/// db.compact()?;
/// assert!(pages.get("draft/1")?.is_none() && pages.get("page/1")?.is_some());
/// # Ok(())
/// # }
/// ```
pub trait CompactionFilter: Send + Sync + 'static {
    /// What is to become of a value.
    fn filter(&self, entry: FilterEntry<'_>) -> FilterVerdict;
}

impl<F> CompactionFilter for F
where
    F: Fn(FilterEntry<'_>) -> FilterVerdict + Send + Sync + 'static,
{
    fn filter(&self, entry: FilterEntry<'_>) -> FilterVerdict {
        self(entry)
    }
}

/// What a [`CompactionFilter`] judges: a key and a value of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FilterEntry<'a> {
    /// The name of the family when the compaction began.
    pub family: &'a str,
    /// The level that the compaction writes to. Level 0 has the newest data.
    pub level: usize,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// When the value ends; `None` if it does not.
    pub expires_at: Option<SystemTime>,
}

/// What a [`CompactionFilter`] decides about a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterVerdict {
    /// It stays.
    Keep,
    /// The key has no value any more, as after a delete. What is older does not come back.
    Remove,
    /// The key has this value from now on, of at most [`MAX_VALUE_LEN`](crate::MAX_VALUE_LEN)
    /// bytes, or below a ceiling for memory of what a program may write there
    /// ([`Options::memory`](crate::Options::memory)). It ends when the old one would have ended.
    Replace(Vec<u8>),
}

/// Why a compaction filter gave no verdict. The value was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterFailure {
    /// It panicked.
    Panicked,
    /// The value in place of the old one would have this many bytes, more than a value may have
    /// ([`MAX_VALUE_LEN`](crate::MAX_VALUE_LEN), or less below a ceiling for memory:
    /// [`Options::memory`](crate::Options::memory)).
    TooLong(u64),
}

impl fmt::Display for FilterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterFailure::Panicked => f.write_str("it panicked"),
            FilterFailure::TooLong(len) => {
                write!(f, "it made a value of {len} bytes, more than a value may have")
            }
        }
    }
}

/// The filters that a program has brought, by name.
#[derive(Clone, Default)]
pub(crate) struct Filters(Vec<(Box<str>, Arc<dyn CompactionFilter>)>);

impl Filters {
    pub(crate) fn add(&mut self, name: &str, filter: Arc<dyn CompactionFilter>) {
        self.0.push((name.into(), filter));
    }

    /// The filter of this name: the last one that was brought.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn CompactionFilter>> {
        let brought = self.0.iter().rev().find(|(known, _)| **known == *name);
        brought.map(|(_, filter)| filter.clone())
    }

    /// The names under which filters were brought.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }
}

/// A family's filter at work in one compaction.
pub(crate) struct Filtering {
    pub(crate) filter: Arc<dyn CompactionFilter>,
    /// The name of the family.
    pub(crate) family: Arc<str>,
    /// The level that the compaction writes to.
    pub(crate) level: usize,
}

/// What a filter has decided in a compaction, or in a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) kept: u64,
    pub(crate) removed: u64,
    pub(crate) replaced: u64,
    /// How often it gave no verdict. These values were kept, and are not counted as such.
    pub(crate) failed: u64,
    /// A key of which it gave no verdict, and why.
    pub(crate) failure: Option<(Box<[u8]>, FilterFailure)>,
    /// The least sequence number of a value that was removed or replaced. Readers at this point or
    /// below see none of these values.
    pub(crate) changed_from: Option<Lsn>,
}

impl Tally {
    /// Adds what was decided in another part.
    pub(crate) fn add(&mut self, other: Tally) {
        self.kept += other.kept;
        self.removed += other.removed;
        self.replaced += other.replaced;
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
        self.changed_from = self.changed_from.into_iter().chain(other.changed_from).min();
    }

    fn note_changed(&mut self, seq: Lsn) {
        self.changed_from = self.changed_from.into_iter().chain([seq]).min();
    }
}

impl Filtering {
    /// Asks the filter about a put. What replaces its value is returned as it is stored, with what
    /// comes before the value; with the key it has at most `made_max` bytes.
    pub(crate) fn judge(
        &self,
        entry: &Entry<'_>,
        made_max: u64,
        tally: &mut Tally,
    ) -> FilterVerdict {
        self.judge_within(entry, tally, longest_value(entry.key, made_max))
    }

    fn judge_within(&self, entry: &Entry<'_>, tally: &mut Tally, longest: usize) -> FilterVerdict {
        debug_assert!(entry.kind.is_put(), "a filter is asked about {:?}", entry.kind);
        let ends = entry.kind.is_expiring().then(|| Expiring::split(entry.value)).flatten();
        let asked = FilterEntry {
            family: &self.family,
            level: self.level,
            key: entry.key,
            value: value_of(entry.kind, entry.value),
            expires_at: ends.and_then(|ends| moment(ends.expires_ms)),
        };
        let before = if ends.is_some() { EXPIRY_LEN } else { 0 };
        let failure = match catch_unwind(AssertUnwindSafe(|| self.filter.filter(asked))) {
            Ok(FilterVerdict::Keep) => {
                tally.kept += 1;
                return FilterVerdict::Keep;
            }
            Ok(FilterVerdict::Remove) => {
                reached(Reach::FilterRemoved);
                tally.removed += 1;
                tally.note_changed(entry.seq);
                return FilterVerdict::Remove;
            }
            Ok(FilterVerdict::Replace(value)) if value.len() + before <= longest => {
                reached(Reach::FilterReplaced);
                tally.replaced += 1;
                tally.note_changed(entry.seq);
                return FilterVerdict::Replace(stored(value, ends));
            }
            Ok(FilterVerdict::Replace(value)) => FilterFailure::TooLong(value.len() as u64),
            Err(_) => FilterFailure::Panicked,
        };
        tally.failed += 1;
        tally.failure.get_or_insert_with(|| (entry.key.into(), failure));
        FilterVerdict::Keep
    }
}

/// The longest value of a key that is made, if key and value have at most so many bytes together.
pub(super) fn longest_value(key: &[u8], made_max: u64) -> usize {
    let longest = usize::try_from(made_max).unwrap_or(usize::MAX);
    longest.saturating_sub(key.len()).min(MAX_VALUE_LEN)
}

/// The moment that lies so many milliseconds after the beginning of 1970.
fn moment(unix_ms: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms))
}

/// What is stored for a value in place of one that ends, or does not.
fn stored(value: Vec<u8>, ends: Option<Expiring<'_>>) -> Vec<u8> {
    let Some(Expiring { expires_ms, .. }) = ends else { return value };
    let expires_ms = if planted(Plant::FilterLosesExpiry) { u64::MAX } else { expires_ms };
    let mut stored = Vec::with_capacity(EXPIRY_LEN + value.len());
    Expiring { expires_ms, value: &value }.put(&mut stored);
    stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mvcc::OpKind;

    fn obeys(entry: FilterEntry<'_>) -> FilterVerdict {
        assert_eq!((entry.family, entry.level), ("f", 3));
        match entry.value {
            b"keep" => FilterVerdict::Keep,
            b"remove" => FilterVerdict::Remove,
            b"panic" => panic!("as it was told"),
            _ => FilterVerdict::Replace(b"a new value".to_vec()),
        }
    }

    fn judged(tally: &mut Tally, (seq, kind, value): (Lsn, OpKind, &[u8])) -> FilterVerdict {
        let filtering = Filtering { filter: Arc::new(obeys), family: "f".into(), level: 3 };
        filtering.judge_within(&Entry { key: b"k", seq, kind, value }, tally, 19)
    }

    #[test]
    fn verdicts_are_counted_and_what_is_changed_has_a_least_sequence_number() {
        let mut tally = Tally::default();
        assert_eq!(judged(&mut tally, (9, OpKind::Put, b"keep")), FilterVerdict::Keep);
        assert_eq!(tally, Tally { kept: 1, ..Tally::default() });
        assert_eq!(judged(&mut tally, (7, OpKind::Put, b"remove")), FilterVerdict::Remove);
        assert_eq!(tally.changed_from, Some(7));
        let replaced = FilterVerdict::Replace(b"a new value".to_vec());
        assert_eq!(judged(&mut tally, (8, OpKind::Put, b"other")), replaced);
        assert_eq!(judged(&mut tally, (3, OpKind::Put, b"keep")), FilterVerdict::Keep);
        assert_eq!((tally.kept, tally.removed, tally.replaced, tally.failed), (2, 1, 1, 0));
        assert_eq!(tally.changed_from, Some(7));
        let mut all = Tally { failed: 4, changed_from: Some(6), ..tally.clone() };
        all.add(tally);
        assert_eq!((all.kept, all.removed, all.replaced, all.failed), (4, 2, 2, 4));
        assert_eq!(all.changed_from, Some(6));
    }

    #[test]
    fn a_filter_that_panics_or_says_too_much_keeps_the_value() {
        let mut tally = Tally::default();
        let mut ends = 5u64.to_le_bytes().to_vec();
        ends.extend_from_slice(b"other");
        // With its end a value of 11 bytes is one of 19.
        let replaced = judged(&mut tally, (5, OpKind::PutExpiring, &ends));
        assert_eq!(replaced, FilterVerdict::Replace(b"\x05\0\0\0\0\0\0\0a new value".to_vec()));
        assert_eq!(judged(&mut tally, (4, OpKind::Put, b"panic")), FilterVerdict::Keep);
        let long = |_: FilterEntry<'_>| FilterVerdict::Replace(vec![0; 12]);
        let filtering = Filtering { filter: Arc::new(long), family: "f".into(), level: 0 };
        let entry = |kind| Entry { key: b"k", seq: 3, kind, value: &ends };
        let longest = 12 + EXPIRY_LEN - 1;
        let of_ending = filtering.judge_within(&entry(OpKind::PutExpiring), &mut tally, longest);
        assert_eq!(of_ending, FilterVerdict::Keep);
        assert_eq!((tally.failed, tally.kept, tally.changed_from), (2, 0, Some(5)));
        assert_eq!(tally.failure, Some((b"k"[..].into(), FilterFailure::Panicked)));
        let of_put = filtering.judge_within(&entry(OpKind::Put), &mut tally, longest);
        assert_eq!(of_put, FilterVerdict::Replace(vec![0; 12]));
        assert!(FilterFailure::TooLong(12).to_string().contains("12 bytes"));
    }

    #[test]
    fn an_entry_says_when_its_value_ends() {
        let asked = |entry: FilterEntry<'_>| {
            let expected = moment(5000).filter(|_| entry.value == b"ends");
            assert_eq!((entry.expires_at, entry.key), (expected, &b"k"[..]));
            FilterVerdict::Remove
        };
        let filtering = Filtering { filter: Arc::new(asked), family: "f".into(), level: 0 };
        let mut ends = 5000u64.to_le_bytes().to_vec();
        ends.extend_from_slice(b"ends");
        for (kind, value) in [(OpKind::PutExpiring, &ends[..]), (OpKind::Put, b"value")] {
            let entry = Entry { key: b"k", seq: 3, kind, value };
            let verdict = filtering.judge(&entry, u64::MAX, &mut Tally::default());
            assert_eq!(verdict, FilterVerdict::Remove);
        }
    }
}
