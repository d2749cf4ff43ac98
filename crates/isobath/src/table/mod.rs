//! Immutable sorted tables on disk: a file of *slices*, one per column family, each self-contained.
//!
//! ```text
//! file header     128 bytes, see format/file_header.rs
//! per slice, in ascending order of family:
//!   data blocks   sorted entries                       block.rs, slotted.rs
//!   filter        Bloom filter over the user keys      filter.rs    (in the root, if small)
//!   index blocks  separators and block handles         index.rs     (only if there are many)
//!   root          properties, sketch and index top     root.rs, sketch.rs
//! directory       the slices' roots                    footer.rs
//! footer          64 bytes                             footer.rs
//! ```
//!
//! Every block and root is framed: codec and checksum follow it (`frame.rs`). Writing uses
//! `writer.rs`, then `slice_writer.rs`, `block_builder.rs`, `staging.rs` and `output.rs`. Reading
//! uses `reader.rs` for gets and `cursor.rs` for walks (with `walk.rs`, `loader.rs`, `backward.rs`,
//! `rows.rs` and `key_buffer.rs`). Both read through `cache/`; `context.rs` has what they charge,
//! and `recent.rs` the tables that do not stay open. `inspect.rs` opens a whole file by its name,
//! for verification and dumps; `verify.rs` checks a slice. A reader finds a slice by its
//! [`SliceMeta`], which the manifest keeps. A tool without a manifest finds all slices through the
//! footer.

mod backward;
mod block;
mod block_builder;
mod block_file;
pub(crate) mod cache;
mod codec;
mod context;
mod cursor;
mod extent;
mod filter;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod fixtures;
mod flush_times;
mod footer;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod index;
mod inspect;
mod key_buffer;
mod loader;
mod meta;
mod options;
mod origin;
mod output;
mod rank;
mod read_ahead;
mod reader;
mod recent;
mod root;
mod rows;
mod salvage;
mod sketch;
mod slice_writer;
mod slotted;
mod spans;
mod staging;
#[cfg(test)]
mod tests;
mod verify;
mod walk;
mod writer;

pub(crate) use block::Block;
pub(crate) use block_file::BlockFile;
pub use cache::BlockCache;
pub use codec::Codec;
pub(crate) use codec::{Compressor, Decompressor};
pub(crate) use context::{MemoryBelow, TableContext};
pub(crate) use cursor::TableCursor;
pub(crate) use extent::{End, Extent, ExtentRef};
pub(crate) use flush_times::{FlushTimes, OldestDelete};
pub(crate) use footer::FOOTER_LEN;
pub(crate) use frame::{
    TRAILER_LEN as FRAME_TRAILER_LEN, check_within, decode_frame, find_frame_in, open_frame,
    read_block,
};
pub(crate) use inspect::{BlockKind, DumpItem, TableFile};
pub(crate) use loader::READER_CHUNK_LEN;
pub(crate) use meta::{
    BlobShare, BlobShares, BlockHandle, Ends, SliceMeta, SpanMeta, StreamShare, StreamShares,
};
pub(crate) use options::TableOptions;
pub(crate) use origin::{Label, Origin, origin_of};
pub(crate) use output::Output;
pub(crate) use read_ahead::{Direction, ReadAhead, UsualScan};
pub(crate) use reader::{Found, PinnedValue, Place, Table};
pub(crate) use root::Root;
pub(crate) use rows::{RowLimits, Rows};
pub(crate) use salvage::{Part, Salvage, SalvagedSlice, may_be_table, salvage};
pub(crate) use sketch::{STANDARD_ERROR, Sketch};
#[cfg(feature = "bench-internals")]
pub(crate) use staging::BlockForm;
pub(crate) use writer::{Finished, TableWriter};

use crate::format::{chunk, common_prefix_len};
use crate::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};

/// The maximum length of a user key.
pub(crate) const KEY_LEN_MAX: usize = 64 << 10;

/// The maximum length of a value that lies in the table itself. With its key and headers it must
/// fit a block.
pub(crate) const VALUE_LEN_MAX: usize = block::BLOCK_LEN_MAX - (1 << 20);

// The engine must not accept longer keys and values than a block can hold.
const _: () = assert!(MAX_VALUE_LEN <= VALUE_LEN_MAX && MAX_KEY_LEN <= KEY_LEN_MAX);

/// A block whose buffer has this length, for tests of code that holds blocks.
#[cfg(test)]
pub(crate) fn block_of_len(len: usize) -> Block {
    let value = vec![7; len - 40];
    let mut builder = block_builder::BlockBuilder::new(16);
    builder.add(b"key", 0, 1, crate::format::OpKind::Put, &value);
    Block::parse(builder.finish(b"key").to_vec()).expect("a block just built")
}
