//! Puts of values that end: what they are in the log, once the clock is asked.
//!
//! A put that states no end has that of its family ([`Keyspace::ttl_ms`]). A batch keeps what the
//! program said; its record is made anew here if a value in it ends.

use super::apply::family_of;
use super::commit::commit_op;
use super::parts::{Changed, OpAt, Parts, push_op};
use crate::engine::{Engine, Keyspace, Mention};
use crate::error::{Error, Result};
use crate::format::{OpKind, put_batch_prefix};
use crate::limits::{MAX_BATCH_LEN, MAX_VALUE_LEN, check_value};
use crate::mvcc::Expiring;
use crate::mvcc::expiry::EXPIRY_LEN;
use crate::options::Expiry;
use crate::options::WriteOptions;
use crate::wal::RECORD_HEADER_LEN;
use crate::write::Commit;
use std::sync::Arc;
use std::time::Duration;

/// What is stored of a value that ends; an error if both together are too long for a value.
pub(crate) fn stored(expires_ms: u64, value: &[u8]) -> Result<Vec<u8>> {
    if value.len() > MAX_VALUE_LEN - EXPIRY_LEN {
        return Err(Error::invalid_argument(format!(
            "a value that ends may have at most {} bytes, this one has {}",
            MAX_VALUE_LEN - EXPIRY_LEN,
            value.len()
        )));
    }
    let mut stored = Vec::with_capacity(EXPIRY_LEN + value.len());
    Expiring { expires_ms, value }.put(&mut stored);
    Ok(stored)
}

/// The end that the family gives to puts that state none.
pub(crate) fn default_expiry(family: &Keyspace) -> Expiry {
    match family.ttl_ms() {
        0 => Expiry::Never,
        ttl_ms => Expiry::After(Duration::from_millis(ttl_ms)),
    }
}

/// Commits a put of a value that ends so.
#[cold]
pub(crate) fn commit_expiring(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    (key, value): (&[u8], &[u8]),
    expiry: Expiry,
    options: WriteOptions,
) -> Result<Commit> {
    check_value(value)?;
    match engine.note_expiry(expiry)? {
        None => commit_op(engine, family, (OpKind::Put, key, value), options, |_| ()),
        Some(expires_ms) => {
            let stored = stored(expires_ms, value)?;
            commit_op(engine, family, (OpKind::PutExpiring, key, &stored), options, |_| ())
        }
    }
}

/// The record of a batch with the ends of its values, and where its operations lie there.
#[cold]
pub(super) fn with_ends(
    engine: &Engine,
    default: &Arc<Keyspace>,
    Parts { record, ops, named, ends, .. }: &Parts<'_>,
) -> Result<Changed> {
    let mut changed = Changed { record: vec![0; RECORD_HEADER_LEN], ops: Vec::new() };
    put_batch_prefix(&mut changed.record, ops.len() as u32);
    let mut ends = ends.iter().peekable();
    for (ordinal, op) in ops.iter().enumerate() {
        let stated = ends.next_if(|(of, _)| *of as usize == ordinal).map(|(_, expiry)| *expiry);
        let ending = match op.kind.expiring() {
            Some(kind) => expires_ms(engine, (default, named), op, stated)?.map(|end| (kind, end)),
            None => None,
        };
        let (key, value) = (op.key(record), op.value(record));
        let op = match ending {
            None => push_op(&mut changed.record, op.family, op.kind, key, value),
            Some((kind, expires_ms)) => {
                let stored = stored(expires_ms, value)?;
                push_op(&mut changed.record, op.family, kind, key, &stored)
            }
        };
        changed.ops.push(op);
    }
    debug_assert!(ends.next().is_none(), "a batch states the end of no put");
    if changed.record.len() > MAX_BATCH_LEN {
        return Err(Error::invalid_argument(format!(
            "a batch may have at most {MAX_BATCH_LEN} bytes, with eight for the end of each value; commit it in parts"
        )));
    }
    Ok(changed)
}

fn expires_ms(
    engine: &Engine,
    (default, named): (&Arc<Keyspace>, &[Mention]),
    op: &OpAt,
    stated: Option<Expiry>,
) -> Result<Option<u64>> {
    let family = || family_of(engine, default, named, op.family);
    engine.note_expiry(stated.unwrap_or_else(|| default_expiry(family())))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Batch, FamilyOptions, Options};

    #[test]
    fn a_batch_ends_what_it_puts_without_an_end_as_the_family_of_each_says() {
        let ttl = Duration::from_secs(1 << 20);
        for (own, others) in [(None, None), (None, Some(ttl)), (Some(ttl), None)] {
            let of = |ttl: Option<Duration>| match ttl {
                Some(ttl) => FamilyOptions::new().ttl(ttl),
                None => FamilyOptions::new(),
            };
            let db = Options::in_memory().family(of(own)).open("/db").unwrap();
            let other = db.family(("other", of(others))).unwrap();
            let mut alone = Batch::new();
            alone.put("alone", "v");
            db.write(alone).unwrap();
            let mut batch = Batch::new();
            batch.put("k", "v");
            batch.of(&other).put("k", "v");
            db.write(batch).unwrap();
            let ends = |found: Option<(crate::Value, Expiry)>| found.unwrap().1 != Expiry::Never;
            for key in ["alone", "k"] {
                assert_eq!(ends(db.get_expiry(key).unwrap()), own.is_some(), "{key}");
            }
            assert_eq!(ends(other.get_expiry("k").unwrap()), others.is_some());
        }
    }
}
