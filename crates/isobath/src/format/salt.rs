//! What distinguishes the blocks of one file from those of another: a part of each block's
//! checksum. A device that loses a write leaves what was there before, and that may be a whole
//! block of an older file, at the same offset and of the same length. RocksDB has the same since
//! its format version 6, and calls it a context checksum.

use super::checksum64;

const OFFSET_MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Part of the checksum of each block of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt(u64);

/// The place of a block, as its checksum knows it: in which file, and at which offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Salt {
    /// That of files which were written before files had salts.
    pub(crate) const NONE: Salt = Salt(0);

    /// The salt of a file of this database. What it is made of is known without the file, so that
    /// a damaged header does not take all blocks with it. An open may give a number again that
    /// another file had: one that was removed before any edit named it.
    pub(crate) fn of(uuid: [u8; 16], number: u64) -> Salt {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&uuid);
        bytes[16..].copy_from_slice(&number.to_le_bytes());
        Salt(checksum64(&bytes))
    }

    /// The salt of a file in which a block at this offset, whose bytes have one of these checksums,
    /// is stored with the other.
    pub(crate) fn between(bytes: u64, stored: u64, offset: u64) -> Salt {
        Salt(bytes ^ Salt::NONE.mark(offset).checksum(stored))
    }

    /// The mark of a block at this offset.
    #[inline]
    pub(crate) fn mark(self, offset: u64) -> Mark {
        Mark(self.0 ^ offset.wrapping_mul(OFFSET_MIX))
    }
}

impl Mark {
    /// The checksum of a block at this place. `bytes` is that of its payload and codec.
    #[inline]
    pub(crate) fn checksum(self, bytes: u64) -> u64 {
        bytes ^ self.0
    }
}
