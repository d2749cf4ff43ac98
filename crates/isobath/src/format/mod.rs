//! The meaning of bytes, independent of where they are stored: numbers, kinds, checksums, and the
//! header at the start of every file.
//!
//! Nothing here does I/O or waits. A codec stands beside the structure it encodes (`wal/record.rs`,
//! `table/block.rs`, `version/edit.rs`). This folder holds only what several of them share.

mod address;
mod checksum;
mod file_header;
mod payload;
mod prefix;
mod prepared;
mod salt;
mod stream;
mod succession;
mod varint;

pub(crate) use crate::mvcc::Lsn;
pub(crate) use crate::mvcc::OpKind;
pub(crate) use address::Address;
pub(crate) use checksum::{RunningChecksum, checksum32, checksum64};
pub(crate) use file_header::{FILE_HEADER_LEN, FileHeader, FileKind};
pub(crate) use payload::{
    BATCH_PREFIX_LEN, Op, Payload, SpilledFile, batch_count, decode_payload, put_batch_prefix,
    put_op, put_payload, set_batch_count, spilled_seq,
};
pub(crate) use prefix::{chunk, common_prefix_len};
pub(crate) use prepared::{Decision, LockedKey, LockedRange, Prepare};
pub(crate) use salt::{Mark, Salt};
pub(crate) use stream::{StreamAddress, streams_of};
pub(crate) use succession::Succession;
pub(crate) use varint::{Decoder, put_bytes, put_varint, varint_len};

/// All LSNs, and the numbers of files and terms, are below this limit. So counting on from any of
/// them cannot wrap, and a table has room for the sequence number of every write.
pub(crate) const LSN_END: Lsn = 1 << 60;

/// The identity of a column family. Never reused within a database; 0 is the default family.
pub(crate) type FamilyId = u32;

/// The family that exists in every database.
pub(crate) const DEFAULT_FAMILY: FamilyId = 0;

/// The smallest LSN of a record. 0 means "nothing".
pub(crate) const FIRST_LSN: Lsn = 1 << 12;
