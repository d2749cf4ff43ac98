//! Which operands of a key a flush or a compaction may fold, and what becomes of its versions.
//!
//! An operand needs what stands beneath it, down to the first put, delete or range delete. So the
//! versions of a key that has operands are judged together, not one by one as in `retain`:
//!
//! 1. Oldest first. Neighbouring operands that no reader tells apart are a *group*. A group whose
//!    base is known (a put, a delete, a cover, or nothing beneath) becomes a put, unless the base
//!    stays for a reader and the put is long, and longer than the operands: else it would be
//!    there once for each reader. Of any other group those operands are joined that the operator
//!    can join. What is made has the sequence number of its newest operand.
//! 2. Newest first. A version stays if a reader sees it, or if an operand above it needs it.
//!
//! An operand at or above the horizon stays as it is, because a reader may come to any point there.
//! If the operator is missing or fails, all operands of the group stay, and so does their base. If
//! it makes more than an entry may have, those operands are joined that it can join to less.
//! Every reader finds the same before and after. Calls of the operator are linear in the versions,
//! and nothing recurses.

use super::operator::{MergeOperator, apply, join};
use super::{Effect, Entry, Lsn, OpKind, ReaderPoints};
use crate::error::MergeFailure;

/// What a version does to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Delete,
    Put(Vec<u8>),
    Operand(Vec<u8>),
    /// A put of a value that ends, as it is stored.
    PutExpiring(Vec<u8>),
    /// A put whose value lies in a blob file: its kind, what is stored of it, and the value if it
    /// could be read for the operands above. A stream is never read for them.
    Separated(OpKind, Vec<u8>, Option<Vec<u8>>),
}

impl Does {
    pub(super) fn of(entry: &Entry<'_>) -> Does {
        if entry.kind.is_apart() {
            return Does::Separated(entry.kind, entry.value.to_vec(), None);
        }
        match entry.kind.effect() {
            Effect::Absent => Does::Delete,
            Effect::Value | Effect::Separated => Does::Put(entry.value.to_vec()),
            Effect::Operand => Does::Operand(entry.value.to_vec()),
            Effect::Expiring => Does::PutExpiring(entry.value.to_vec()),
        }
    }

    /// The kind of the version and what is stored with it.
    pub(super) fn stored(&self) -> (OpKind, &[u8]) {
        match self {
            Does::Delete => (OpKind::Delete, &[]),
            Does::Put(value) => (OpKind::Put, value),
            Does::Operand(operand) => (OpKind::Merge, operand),
            Does::PutExpiring(stored) => (OpKind::PutExpiring, stored),
            Does::Separated(kind, stored, _) => (*kind, stored),
        }
    }
}

/// A version of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folded {
    pub(super) seq: Lsn,
    pub(super) does: Does,
    /// The least sequence number above `seq` of a range delete that covers the key.
    pub(super) cover: Option<Lsn>,
}

/// What lies beneath the oldest version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beneath {
    /// True if no version of the key does.
    pub(super) is_alone: bool,
    /// The least sequence number of a range delete that covers the key.
    pub(super) cover: Option<Lsn>,
}

/// What an operand is applied to.
enum Base {
    Unknown,
    Nothing,
    Value(Vec<u8>),
}

/// What folds the operands of a key.
#[derive(Clone, Copy)]
pub(super) struct Folder<'a> {
    /// `None` if the family has none or the program did not bring it.
    pub(super) operator: Option<&'a dyn MergeOperator>,
    pub(super) key: &'a [u8],
    /// Operands that would make more than this stay apart.
    pub(super) longest: usize,
}

/// The versions of a key, newest first, after folding and without those that no reader needs.
/// `newer` is the sequence number of the version above the first one, which is not an operand.
pub(super) fn fold(
    folder: Folder<'_>,
    readers: &ReaderPoints,
    (newer, versions): (Option<Lsn>, Vec<Folded>),
    beneath: Beneath,
) -> Vec<Folded> {
    debug_assert!(versions.is_sorted_by(|newer, older| newer.seq > older.seq));
    debug_assert!(versions.iter().all(|v| v.cover.is_none_or(|cover| cover > v.seq)));
    let folded = fold_groups(folder, readers, versions, beneath);
    drop_unseen(readers, newer, folded, beneath)
}

/// True if a range delete lies between two neighbouring versions.
fn is_cut(older_cover: Option<Lsn>, newer: Lsn) -> bool {
    older_cover.is_some_and(|cover| cover < newer)
}

/// The first pass. Takes and returns versions newest first.
fn fold_groups(
    folder: Folder<'_>,
    readers: &ReaderPoints,
    versions: Vec<Folded>,
    beneath: Beneath,
) -> Vec<Folded> {
    let mut oldest_first = versions.into_iter().rev().peekable();
    let mut folded: Vec<Folded> = Vec::with_capacity(oldest_first.len());
    let mut base = if beneath.is_alone { Base::Nothing } else { Base::Unknown };
    let mut older_cover = beneath.cover;
    while let Some(mut version) = oldest_first.next() {
        if is_cut(older_cover, version.seq) {
            base = Base::Nothing;
        }
        older_cover = version.cover;
        match &mut version.does {
            Does::Delete => base = Base::Nothing,
            Does::Separated(_, _, value) => base = value.take().map_or(Base::Unknown, Base::Value),
            // What operands make of it changes with its end.
            Does::PutExpiring(_) => base = Base::Unknown,
            Does::Put(value) => {
                // Only an operand asks for it.
                let is_asked = matches!(oldest_first.peek(), Some(n) if is_operand(n));
                base = if is_asked { Base::Value(value.clone()) } else { Base::Unknown };
            }
            Does::Operand(_) => {
                let mut group = vec![version];
                while let Some(newer) = oldest_first.next_if(|newer| {
                    let top = &group[group.len() - 1];
                    is_operand(newer)
                        && !is_cut(top.cover, newer.seq)
                        && !readers.see(top.seq, Some(newer.seq))
                }) {
                    group.push(newer);
                }
                older_cover = group[group.len() - 1].cover;
                let first = group[0].seq;
                let stays = folded.last().is_some_and(|base| readers.see(base.seq, Some(first)));
                base = fold_group(folder, readers, (base, stays), group, &mut folded);
                continue;
            }
        }
        folded.push(version);
    }
    folded.reverse();
    folded
}

/// True if `version` may be folded onto what lies beneath it.
pub(super) fn asks_for_base(version: &Folded, readers: &ReaderPoints) -> bool {
    is_operand(version) && version.seq < readers.horizon()
}

fn is_operand(version: &Folded) -> bool {
    matches!(version.does, Does::Operand(_))
}

fn operand(version: &Folded) -> &[u8] {
    match &version.does {
        Does::Operand(operand) => operand,
        Does::Delete | Does::Put(_) | Does::PutExpiring(_) | Does::Separated(..) => {
            unreachable!("a group has operands only")
        }
    }
}

/// A value that is no longer than this may be there once for each reader.
const TWICE_MAX: usize = 4096;

fn total_len(operands: &[&[u8]]) -> usize {
    operands.iter().map(|operand| operand.len()).sum()
}

/// Folds operands, oldest first, that no reader tells apart. Returns what stands there now.
fn fold_group(
    folder: Folder<'_>,
    readers: &ReaderPoints,
    (base, base_stays): (Base, bool),
    group: Vec<Folded>,
    folded: &mut Vec<Folded>,
) -> Base {
    let (seq, cover) = (group[group.len() - 1].seq, group[group.len() - 1].cover);
    let Some(operator) = folder.operator.filter(|_| seq < readers.horizon()) else {
        folded.extend(group);
        return Base::Unknown;
    };
    let existing = match &base {
        Base::Unknown => {
            join_group(operator, folder, group, folded);
            return Base::Unknown;
        }
        Base::Nothing => None,
        Base::Value(value) => Some(value.as_slice()),
    };
    let operands: Vec<_> = group.iter().map(operand).collect();
    match apply(operator, folder.key, existing, &operands, folder.longest) {
        Ok(value)
            if base_stays
                && existing.is_some()
                && value.len() > TWICE_MAX.max(total_len(&operands)) =>
        {
            join_group(operator, folder, group, folded);
            Base::Value(value)
        }
        Ok(value) => {
            debug_assert!(value.len() <= folder.longest, "a value is longer than any may be made");
            folded.push(Folded { seq, does: Does::Put(value.clone()), cover });
            Base::Value(value)
        }
        Err(MergeFailure::TooLong(_)) => {
            join_group(operator, folder, group, folded);
            Base::Unknown
        }
        Err(_) => {
            folded.extend(group);
            Base::Unknown
        }
    }
}

/// Joins neighbours of a group, oldest first, where the operator can. Operands of about equal
/// numbers are joined first, so that bytes are copied only a logarithmic number of times.
fn join_group(
    operator: &dyn MergeOperator,
    Folder { key, longest, .. }: Folder<'_>,
    group: Vec<Folded>,
    folded: &mut Vec<Folded>,
) {
    let joined = |older: &Folded, newer: &Folded| {
        let does = Does::Operand(join(operator, key, (operand(older), operand(newer)), longest)?);
        Some(Folded { seq: newer.seq, does, cover: newer.cover })
    };
    // Each with how often it was joined. Equals are joined at once.
    let mut stack: Vec<(u32, Folded)> = Vec::new();
    for mut newer in group {
        let mut times = 0;
        while let Some((_, older)) = stack.last().filter(|(older, _)| *older == times)
            && let Some(one) = joined(older, &newer)
        {
            stack.pop();
            (times, newer) = (times + 1, one);
        }
        stack.push((times, newer));
    }
    let first = folded.len();
    for (_, older) in stack.into_iter().rev() {
        match folded.get_mut(first..).and_then(<[Folded]>::last_mut) {
            Some(newer) => match joined(&older, newer) {
                Some(one) => *newer = one,
                None => folded.push(older),
            },
            None => folded.push(older),
        }
    }
    folded[first..].reverse();
}

/// The second pass: what a reader sees, and what operands that stay need.
fn drop_unseen(
    readers: &ReaderPoints,
    mut newer: Option<Lsn>,
    folded: Vec<Folded>,
    beneath: Beneath,
) -> Vec<Folded> {
    let mut kept: Vec<Folded> = Vec::with_capacity(folded.len());
    // True if the next newer version is an operand that stays.
    let mut is_needed = false;
    for version in folded {
        let event = newer.into_iter().chain(version.cover).min();
        let is_cut = newer.is_none_or(|newer| is_cut(version.cover, newer));
        let stays = readers.see(version.seq, event) || (is_needed && !is_cut);
        newer = Some(version.seq);
        is_needed = stays && is_operand(&version);
        if stays {
            kept.push(version);
        }
    }
    // As in `retain`: a delete below every reader serves only to hide what lies beneath.
    if beneath.is_alone {
        kept.pop_if(|oldest| oldest.does == Does::Delete && oldest.seq < readers.oldest());
    }
    kept
}

#[cfg(test)]
mod tests;
