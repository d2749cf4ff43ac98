//! The value of a key whose newest visible version is an operand.
//!
//! Operands are collected over all sources, newest first, down to the first put, delete or range
//! delete. The family's merge operator makes the value of them. One walk serves gets and scans, and
//! it is off the way of keys without operands.

use super::begin::ReadAt;
use super::expiry::Read;
use super::pin::Pin;
use super::scan::ScanBounds;
use crate::cursor::{Cursor, Entry, Folds, MergeCursor};
use crate::engine::View;
use crate::env::{Plant, Reach, planted, reached_if};
use crate::error::{Error, MergeFailure, Result};
use crate::mvcc::{Effect, Expiring, Moment};
use crate::pinned::Value;
use std::ops::Bound;
use std::sync::Arc;

/// The value of a key at which a get has met an operand.
#[cold]
#[inline(never)]
pub(super) fn get_folded(
    at: &ReadAt<'_>,
    view: &View,
    key: &[u8],
    Moment { point, unix_ms }: Moment,
) -> Result<Read> {
    let pin = Pin::of_view(at, Arc::new(view.clone()), point, unix_ms, true);
    let (value, holds_until) = pin.fold(key)?;
    Ok(Read { value: Value::copied(&value), expires_ms: None, holds_until })
}

impl Pin {
    fn fetch(&self, entry: &Entry<'_>) -> Result<Vec<u8>> {
        if planted(Plant::AddressFolded) {
            return Ok(entry.value_part().to_vec());
        }
        Ok(self.engine.fetcher(self.fill_cache).fetch(entry)?.to_vec())
    }
}

impl Folds for Pin {
    fn fold(&self, key: &[u8]) -> Result<(Vec<u8>, u64)> {
        let bounds = ScanBounds {
            lower: Bound::Included(key.to_vec()),
            upper: Bound::Included(key.to_vec()),
        };
        let sources = self.sources(&bounds)?;
        let covers = self.covers(&bounds, sources.len())?;
        let cover = covers.map_or(Ok(None), |covers| covers.cover(key, self.point))?;
        let cover = cover.map_or(0, |(cover, _)| cover.seq);
        let (mut operands, mut existing, mut holds_until) = (Vec::new(), None, u64::MAX);
        let mut merge = MergeCursor::new(sources);
        merge.seek(key)?;
        while let Some(entry) = merge.entry().filter(|entry| entry.key == key) {
            if entry.seq >= self.point {
                merge.next_below(self.point)?;
                continue;
            }
            if entry.seq < cover && !planted(Plant::OperandOverSpan) {
                break;
            }
            match entry.kind.effect() {
                Effect::Operand => operands.push(entry.value.to_vec()),
                Effect::Value => existing = Some(entry.value.to_vec()),
                Effect::Expiring => {
                    let ends = Expiring::split(entry.value);
                    let living = ends.filter(|ends| ends.lives_at(self.unix_ms));
                    holds_until = living.map_or(u64::MAX, |ends| ends.expires_ms);
                    existing = match living {
                        Some(_) if entry.kind.is_apart() => Some(self.fetch(&entry)?),
                        living => living.map(|ends| ends.value.to_vec()),
                    };
                }
                Effect::Separated => existing = Some(self.fetch(&entry)?),
                Effect::Absent => {}
            }
            if !entry.kind.is_operand() {
                break;
            }
            merge.next()?;
        }
        debug_assert!(!operands.is_empty(), "a key without operands is folded");
        reached_if(Reach::OperandsFolded, || operands.len() > 1);
        reached_if(Reach::OperandOverSpan, || cover > 0);
        operands.reverse();
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let Some(family) = &self.merges else {
            return Err(Error::merge_failed("", "", key, MergeFailure::NoOperator));
        };
        let name = family.name();
        match family.merging(&self.engine.options.operators) {
            Some(merging) => {
                let value = merging.apply((&name, key), existing.as_deref(), &operands)?;
                Ok((value, holds_until))
            }
            None => Err(Error::merge_failed("", &name, key, MergeFailure::NoOperator)),
        }
    }
}
