//! Blob files: long values apart from their keys, so that compactions do not write them again.
//!
//! ```text
//! file header   128 bytes, kind 3, see format/file_header.rs
//! per value     a frame, as blocks of tables have: the value as its codec left it, codec, checksum
//! ```
//!
//! A table holds addresses of values ([`Address`](crate::format::Address)). A slice says how much
//! it has in which blob file, and keeps those files ([`Slice`](crate::version::Slice)). So a blob
//! file lives exactly as long as a slice needs it that is in the tree or that a reader holds, and
//! is removed as tables are. Nothing else holds it, unless it is a stream.
//!
//! A stream is a value that has a blob file of its own (`stream/`). Its address is of another form
//! ([`StreamAddress`](crate::format::StreamAddress)), a slice names it apart from other blob files,
//! and it never moves. Until a flush names it in a slice, its writer, a batch or transaction, and
//! then the epoch of its commit hold it; a reader of it holds it alone.
//!
//! Flushes and compactions move values there ([`BlobSink`]); readers fetch them ([`Fetcher`]).
//! Compactions pass addresses on. Once most of a blob file is garbage, a compaction that meets its
//! values moves them to a new one. The design and its costs: `docs/internals/blob-files.md`.

mod ahead;
mod batch;
mod garbage;
mod reader;
mod scan;
mod sink;
mod stream;
mod writer;

#[cfg(test)]
pub(crate) use garbage::SUMS;
pub(crate) use garbage::{Garbage, GarbageDebt, Live, live_bytes};
pub(crate) use reader::{FetchCounts, Fetcher, apart_len, read_value};
pub(crate) use scan::ScanAhead;
pub(crate) use sink::{BlobSink, Collected, Create};
pub(crate) use stream::{
    OpenStream, StreamWriter, check_len, check_stream, end_of_stream, ends_as_stream,
};
