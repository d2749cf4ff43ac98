//! The longest keys, values, batches and names. A write beyond a limit fails with
//! [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) and changes nothing. A read of
//! a key that is too long finds nothing.

use crate::env::{Reach, reached_if};
use crate::error::{Error, Result};

/// The longest key, in bytes (64 KiB). The shortest key is empty and sorts before all others.
pub const MAX_KEY_LEN: usize = 64 << 10;

/// The longest value, in bytes: 4 GiB less 2 MiB, so that the value and its key fit into one block
/// of a table. On a 32-bit machine it is less, so that the value fits into a batch.
pub const MAX_VALUE_LEN: usize =
    least(u32::MAX as u64 - (2 << 20), MAX_BATCH_LEN as u64 - (1 << 20));

/// The longest value that is written piece by piece, in bytes: 256 GiB. See
/// [`Db::value_writer`](crate::Db::value_writer).
pub const MAX_STREAM_LEN: u64 = 256 << 30;

/// The largest encoded batch, in bytes: 8 GiB, or 512 MiB on a 32-bit machine. A batch is one
/// record of the log. The engine builds it in one buffer, which may double as it grows.
pub const MAX_BATCH_LEN: usize = least(8 << 30, isize::MAX as u64 / 4 + 1);

/// The longest name of a column family, in bytes.
pub const MAX_FAMILY_NAME_LEN: usize = 255;

/// The longest name of a prepared transaction, in bytes.
pub const MAX_XID_LEN: usize = 140;

/// The most spill files of a transaction. A reader gives each two of the numbers below its point
/// that no operation of the log has, because a record has a header; the write set in memory has
/// two, too.
pub(crate) const SPILL_FILES_MAX: usize = 14;

/// How many numbers below its point a transaction's reader gives to what it has written itself.
pub(crate) const OWN_SEQS: u64 = 2 * (SPILL_FILES_MAX as u64 + 1);

const _: () = assert!(MAX_KEY_LEN + MAX_VALUE_LEN < MAX_BATCH_LEN);
// A buffer of one batch can double.
const _: () = assert!(MAX_BATCH_LEN as u64 * 2 <= isize::MAX as u64);

const fn least(a: u64, b: u64) -> usize {
    if a < b { a as usize } else { b as usize }
}

/// Counts unusual lengths of written keys and values, so that a simulation can tell whether it
/// produced them.
#[inline(always)]
pub(crate) fn note_written(key: &[u8], value: &[u8]) {
    reached_if(Reach::KeyEmpty, || key.is_empty());
    reached_if(Reach::KeyLong, || key.len() > 1 << 10);
    reached_if(Reach::KeyLongest, || key.len() == MAX_KEY_LEN);
    reached_if(Reach::ValueLarge, || value.len() > 64 << 10);
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_LEN {
        return Err(Error::invalid_argument(format!(
            "a key may have at most {MAX_KEY_LEN} bytes, this one has {}",
            key.len()
        )));
    }
    Ok(())
}

pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE_LEN {
        return Err(Error::invalid_argument(format!(
            "a value may have at most {MAX_VALUE_LEN} bytes, this one has {}",
            value.len()
        )));
    }
    Ok(())
}

pub(crate) fn check_family_name(name: &str) -> Result<()> {
    let bad =
        name.is_empty() || name.len() > MAX_FAMILY_NAME_LEN || name.chars().any(char::is_control);
    if bad {
        return Err(Error::invalid_argument(format!(
            "a column family's name has 1 to {MAX_FAMILY_NAME_LEN} bytes and no control characters: {name:?}"
        )));
    }
    Ok(())
}
