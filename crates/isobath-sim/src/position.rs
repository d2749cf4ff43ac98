//! Read points as numbers, to count and print them.

use isobath::ReadPoint;

/// The LSN of a read point.
pub(crate) fn position(point: impl Into<ReadPoint>) -> u64 {
    let bytes = point.into().to_bytes();
    u64::from_be_bytes(*bytes.first_chunk().expect("16 bytes"))
}
