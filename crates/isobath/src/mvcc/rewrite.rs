//! The loop over versions that flushes, compactions and repairs share. It drops the versions that
//! no reader needs.

use super::expiry::lives_at;
use super::filter::longest_value;
use super::fold::{Beneath, Does, Folded, Folder, asks_for_base, fold};
use super::{Cursor, Entry, FilterVerdict, Lsn, Merging, OpKind, ReaderPoints, Retain, Verdict};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::Result;

/// The input of a rewrite: versions by key ascending, then newest first. Every [`Cursor`] is one. A
/// source that only moves forward needs only these methods.
pub(crate) trait Versions {
    /// The entry at the current position.
    fn entry(&self) -> Option<Entry<'_>>;
    /// Like [`Cursor::next`].
    fn next(&mut self) -> Result<()>;
    /// Like [`Cursor::next_key`].
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()>;
}

impl<C: Cursor> Versions for C {
    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        Cursor::entry(self)
    }

    #[inline(always)]
    fn next(&mut self) -> Result<()> {
        Cursor::next(self)
    }

    #[inline(always)]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        Cursor::next_key(self, scratch)
    }
}

/// The output of a rewrite. It takes the versions that stay, and answers questions that the
/// versions do not. `C` is the input.
pub(crate) trait Rewrite<C> {
    /// Called before each version. If it returns false, the walk ends there. `enters` is false if
    /// the version may have the same key as the one before.
    #[inline(always)]
    fn goes_on(&mut self, _walked: &C, _entry: &Entry<'_>, _enters: bool) -> Result<bool> {
        Ok(true)
    }

    /// True if no version of the key lies beneath the input. It is called only for tombstones that
    /// nothing else keeps. Keys come in ascending order.
    fn is_alone(&mut self, key: &[u8]) -> bool;

    /// The least sequence number above `seq` of a range delete that covers `key`. Keys come in
    /// ascending order.
    #[inline(always)]
    fn cover_above(&mut self, _key: &[u8], _seq: Lsn) -> Option<Lsn> {
        None
    }

    /// How the family merges; `None` if it does not.
    #[inline(always)]
    fn merging(&self) -> Option<&Merging> {
        None
    }

    /// The longest key and value together that an operator or a filter makes.
    #[inline(always)]
    fn made_max(&self) -> u64 {
        u64::MAX
    }

    /// True if the family has a filter that is asked.
    #[inline(always)]
    fn filters(&self) -> bool {
        false
    }

    /// What the family's filter says about a put. It is called only if `filters` says so, for puts
    /// that no reader who is there sees.
    fn judge(&mut self, _put: &Entry<'_>) -> FilterVerdict {
        FilterVerdict::Keep
    }

    /// The value of a version that lies in a blob file. What is written the first time has none
    /// there.
    fn fetch(&mut self, separated: &Entry<'_>) -> Result<Vec<u8>> {
        unreachable!("the value of {:?} lies elsewhere", separated.key.escape_ascii().to_string())
    }

    /// Called with the verdict for each version, before the verdict is carried out.
    #[inline(always)]
    fn note(&mut self, _verdict: Verdict, _entry: &Entry<'_>, _enters: bool) {}

    /// Takes a version that stays. `enters` is true for the first that stays of its key; newer ones
    /// may have been dropped.
    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()>;
}

/// Walks on from the position of `cursor`, and passes on the versions that `readers` need.
#[inline]
pub(crate) fn rewrite<C: Versions>(
    cursor: &mut C,
    readers: &ReaderPoints,
    to: &mut impl Rewrite<C>,
) -> Result<()> {
    let mut retain = Retain::new(readers);
    let mut scratch = Vec::new();
    let mut is_entered = false;
    while let Some(entry) = cursor.entry() {
        debug_assert!(!entry.kind.is_span(), "a range delete stands among the versions of keys");
        let enters = retain.enters(entry.key);
        if !to.goes_on(cursor, &entry, enters)? {
            break;
        }
        is_entered &= !enters;
        let has_ended = readers.see_ended(&entry);
        if has_ended && planted(Plant::ExpiredHidesNothing) {
            cursor.next_key(&mut scratch)?;
            continue;
        }
        let entry = if has_ended { ended(entry) } else { entry };
        if entry.kind.is_operand() {
            fold_key(cursor, &mut retain, to, (&mut scratch, is_entered))?;
            continue;
        }
        let cover = to.cover_above(entry.key, entry.seq);
        let mut replaced = Vec::new();
        let entry = if to.filters() {
            let newer = retain.newer_of(entry.key).into_iter().chain(cover).min();
            filtered(to, readers, (entry, newer), &mut replaced)?
        } else {
            entry
        };
        let verdict = retain.judge(&entry, cover, || to.is_alone(entry.key));
        to.note(verdict, &entry, enters);
        if verdict.keeps() {
            to.add(entry, !std::mem::replace(&mut is_entered, true))?;
        }
        match verdict {
            Verdict::Keep | Verdict::Drop => cursor.next()?,
            Verdict::KeepLast | Verdict::DropRest => cursor.next_key(&mut scratch)?,
        }
    }
    Ok(())
}

/// What the family's filter makes of a version, whose next newer version or cover is at `newer`.
/// `replaced` takes the value in place of the old one.
#[inline(never)]
fn filtered<'a, C>(
    to: &mut impl Rewrite<C>,
    readers: &ReaderPoints,
    (entry, newer): (Entry<'a>, Option<Lsn>),
    replaced: &'a mut Vec<u8>,
) -> Result<Entry<'a>> {
    // Filters see values in memory, and a stream may have any length.
    let is_judged = entry.kind.is_put() && !entry.kind.is_streamed();
    if !is_judged || !readers.leave_to_filter(entry.seq, newer) {
        return Ok(entry);
    }
    // It has ended for all who could see it. It only waits to be dropped.
    if entry.kind.is_expiring() && !lives_at(entry.value, readers.unix_ms()) {
        return Ok(entry);
    }
    let kind = entry.kind.joined();
    let verdict = match entry.kind.is_separated() {
        true => match joined(to, &entry)? {
            Some(value) => to.judge(&Entry { kind, value: &value, ..entry }),
            None => FilterVerdict::Keep,
        },
        false => to.judge(&entry),
    };
    Ok(match verdict {
        FilterVerdict::Keep => entry,
        FilterVerdict::Remove => Entry { kind: OpKind::Delete, value: &[], ..entry },
        FilterVerdict::Replace(stored) => {
            *replaced = stored;
            Entry { kind, value: replaced, ..entry }
        }
    })
}

/// What is stored with an entry whose value lies in a blob file, once the value is back in its
/// place. `None` if the value cannot be read: readers are told so, and all others go on.
fn joined<C>(to: &mut impl Rewrite<C>, entry: &Entry<'_>) -> Result<Option<Vec<u8>>> {
    let value = match planted(Plant::AddressJoined) {
        true => entry.value_part().to_vec(),
        false => match to.fetch(entry) {
            Ok(value) => value,
            Err(error) if !error.is_retryable() => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    Ok(Some(entry.joined_with(&value)))
}

/// What stays of a version whose value has ended for every reader: it hides what is older.
#[cold]
fn ended(entry: Entry<'_>) -> Entry<'_> {
    reached(Reach::ExpiredRewritten);
    Entry { kind: OpKind::Delete, value: &[], ..entry }
}

/// Judges the versions of a key from the first operand on together, and moves on to the next key.
/// The key is entered if a newer version of it stays.
#[cold]
fn fold_key<C: Versions>(
    cursor: &mut C,
    retain: &mut Retain<'_>,
    to: &mut impl Rewrite<C>,
    (scratch, is_entered): (&mut Vec<u8>, bool),
) -> Result<()> {
    let Some(first) = cursor.entry() else { return Ok(()) };
    let key = first.key.to_vec();
    let newer = retain.newer_of(&key);
    let (versions, beneath) = versions_of(cursor, &key, retain.readers(), to)?;
    if cursor.entry().is_some_and(|entry| entry.key == key) {
        cursor.next_key(scratch)?;
    }
    reached(Reach::OperandsRewritten);
    let operator = to.merging().and_then(Merging::operator);
    let folder = Folder { operator, key: &key, longest: longest_value(&key, to.made_max()) };
    let none_yet = ReaderPoints::newest();
    let readers = if planted(Plant::OperandOverPoint) { &none_yet } else { retain.readers() };
    let mut kept = fold(folder, readers, (newer, versions), beneath);
    if to.filters() {
        filter_folded(to, retain.readers(), (&key, newer), &mut kept)?;
    }
    for (nth, Folded { seq, does, .. }) in kept.iter().enumerate() {
        let (kind, value) = does.stored();
        let (entry, enters) =
            (Entry { key: &key, seq: *seq, kind, value }, nth == 0 && !is_entered);
        to.note(Verdict::Keep, &entry, enters);
        to.add(entry, enters)?;
    }
    Ok(())
}

/// Lets the family's filter judge what was made of operands, and what stays beside it. Operands are
/// no values, and what lies beneath one that stays is not judged alone.
fn filter_folded<C>(
    to: &mut impl Rewrite<C>,
    readers: &ReaderPoints,
    (key, newer): (&[u8], Option<Lsn>),
    kept: &mut Vec<Folded>,
) -> Result<()> {
    let (mut newer, mut is_needed) = (newer, false);
    for version in kept.iter_mut() {
        let (kind, value) = version.does.stored();
        let entry = Entry { key, seq: version.seq, kind, value };
        let event = newer.into_iter().chain(version.cover).min();
        newer = Some(version.seq);
        if std::mem::replace(&mut is_needed, kind.is_operand()) {
            continue;
        }
        let mut replaced = Vec::new();
        version.does = Does::of(&filtered(to, readers, (entry, event), &mut replaced)?);
    }
    // As in `retain`: a delete below every reader serves only to hide what lies beneath.
    let is_idle = |oldest: &mut Folded| {
        oldest.does == Does::Delete && oldest.seq < readers.oldest() && to.is_alone(key)
    };
    kept.pop_if(is_idle);
    Ok(())
}

/// The versions of `key` from the cursor's position on, as far down as a reader's answer may depend
/// on them, and what is known of what lies beneath.
fn versions_of<C: Versions>(
    cursor: &mut C,
    key: &[u8],
    readers: &ReaderPoints,
    to: &mut impl Rewrite<C>,
) -> Result<(Vec<Folded>, Beneath)> {
    let has_operator = to.merging().and_then(Merging::operator).is_some();
    let mut versions: Vec<Folded> = Vec::new();
    let mut is_first = true;
    while let Some(entry) = cursor.entry().filter(|entry| entry.key == key) {
        if !std::mem::replace(&mut is_first, false) {
            let goes_on = to.goes_on(cursor, &entry, false)?;
            debug_assert!(goes_on, "a walk ends within a key");
        }
        let entry = if readers.see_ended(&entry) { ended(entry) } else { entry };
        let cover = to.cover_above(key, entry.seq);
        let is_old = entry.seq < readers.oldest();
        if is_old && cover.is_some_and(|cover| cover < readers.oldest()) {
            return Ok((versions, Beneath { is_alone: false, cover }));
        }
        let mut does = Does::of(&entry);
        // Nothing is folded onto a value that ends, and no job holds a stream in memory.
        if let Does::Separated(kind, _, value) = &mut does
            && !kind.is_expiring()
            && kind.is_separated()
            && has_operator
            && versions.last().is_some_and(|newer| asks_for_base(newer, readers))
        {
            *value = joined(to, &entry)?;
        }
        let is_base = is_old && !entry.kind.is_operand();
        versions.push(Folded { seq: entry.seq, does, cover });
        if is_base {
            let is_alone = entry.kind.is_tombstone() && to.is_alone(key);
            return Ok((versions, Beneath { is_alone, cover: None }));
        }
        cursor.next()?;
    }
    let is_alone = to.is_alone(key) || planted(Plant::OperandsBaseDropped);
    let cover = to.cover_above(key, 0);
    Ok((versions, Beneath { is_alone, cover }))
}

#[cfg(test)]
mod tests;
