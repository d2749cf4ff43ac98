//! How a slice is written. Readers need none of it: a table says all about itself.

use super::codec::Codec;
use super::origin::Origin;

/// The layout and encoding of one slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableOptions {
    /// The length of a data block before compression, in bytes. Longer blocks compress better and
    /// cost more to read a key from.
    pub(crate) block_len: u32,
    /// Every how many entries a key is stored whole, 1 to 255. More save bytes, fewer save time.
    pub(crate) restart_interval: u32,
    pub(crate) codec: Codec,
    /// Bits of Bloom filter per distinct key; 0 writes no filter. 10 let about 1% of absent keys
    /// through.
    pub(crate) filter_bits_per_key: u32,
    /// The length of an index block before compression, in bytes.
    pub(crate) index_block_len: u32,
    /// What the slice says of where it comes from.
    pub(crate) origin: Origin,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_len: 4096,
            restart_interval: 16,
            codec: Codec::default(),
            filter_bits_per_key: 10,
            index_block_len: 4096,
            origin: Origin::default(),
        }
    }
}
