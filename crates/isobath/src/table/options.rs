//! How to write a slice. Readers need none of this: a table describes itself.

use super::FlushTimes;
use super::codec::Codec;
use super::origin::Origin;
use super::staging::BlockForm;

/// The layout and encoding of one slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableOptions {
    /// The length of a data block before compression, in bytes. Longer blocks compress better, but
    /// reading one key from them costs more.
    pub(crate) block_len: u32,
    /// The form of data blocks.
    pub(crate) form: BlockForm,
    /// In a chained block, the number of entries from one key stored in full to the next, 1 to
    /// 255. A larger number saves bytes; a smaller one saves time.
    pub(crate) restart_interval: u32,
    pub(crate) codec: Codec,
    /// Bloom filter bits per distinct key; 0 writes no filter. With 10 bits, about 1% of absent
    /// keys pass the filter.
    pub(crate) filter_bits_per_key: u32,
    /// The length of an index block before compression, in bytes.
    pub(crate) index_block_len: u32,
    /// The index is one block, however long, that stays in memory while the table is open, if it
    /// takes no more than this part of the slice's keys and values: 1/n. With 0 it never is, beyond
    /// `index_block_len`. Two levels cost a read of a leaf, which may not be cached, for each get.
    pub(crate) flat_index_part: u32,
    /// Values of at least this many bytes go to blob files; `u32::MAX` for none.
    pub(crate) separate_from: u32,
    /// How they are compressed there.
    pub(crate) blob_codec: Codec,
    /// The longest key and value together that a merge operator or a filter makes.
    pub(crate) made_max: u64,
    /// When deletes were flushed that go into the slice.
    pub(crate) flushed: FlushTimes,
    /// The origin that the slice states.
    pub(crate) origin: Origin,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_len: 4096,
            form: BlockForm::Either,
            restart_interval: 8,
            codec: Codec::default(),
            filter_bits_per_key: 10,
            index_block_len: 4096,
            flat_index_part: 32,
            separate_from: u32::MAX,
            blob_codec: Codec::default(),
            made_max: u64::MAX,
            flushed: FlushTimes::default(),
            origin: Origin::default(),
        }
    }
}
