//! The header at the start of every file.
//!
//! ```text
//! offset len  field                    all integers little-endian
//!      0   8  magic "ISOBATH\0"
//!      8   1  kind: 1 log segment, 2 table, 3 blob file, 4 manifest, 5 prepared transaction
//!      9   1  checksum kind: 1 = XXH3-64
//!     10   2  format version of that kind of file
//!     12   4  header length (128; a later version may append)
//!     16   8  compatible feature bits: unknown ones may be ignored
//!     24   8  incompatible feature bits: unknown ones make the file unreadable
//!     32  16  UUID of the database
//!     48   8  file number, or base LSN of a log segment
//!     56   8  generation of a log segment, 0 elsewhere
//!     64  56  room for an encryption header, zero
//!    120   8  XXH3-64 of bytes 0..120
//! ```

use crate::error::{DecodeError, Decoded};
use crate::format::checksum64;

/// The length of the header in bytes.
pub(crate) const FILE_HEADER_LEN: usize = 128;

const MAGIC: [u8; 8] = *b"ISOBATH\0";
const CHECKSUM_XXH3: u8 = 1;
const FORMAT_VERSION: u16 = 1;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FileKind {
    Log = 1,
    Table = 2,
    Blob = 3,
    Manifest = 4,
    Prepared = 5,
}

/// The decoded header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) kind: FileKind,
    pub(crate) uuid: [u8; 16],
    pub(crate) number: u64,
    pub(crate) generation: u64,
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; FILE_HEADER_LEN] {
        let mut out = [0; FILE_HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8] = self.kind as u8;
        out[9] = CHECKSUM_XXH3;
        out[10..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(FILE_HEADER_LEN as u32).to_le_bytes());
        out[32..48].copy_from_slice(&self.uuid);
        out[48..56].copy_from_slice(&self.number.to_le_bytes());
        out[56..64].copy_from_slice(&self.generation.to_le_bytes());
        let sum = checksum64(&out[..120]);
        out[120..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes and checks a header that must be of `kind`. The error says whether the bytes are
    /// damaged, belong to a file of another kind, or have a newer format. The caller adds the file.
    pub(crate) fn decode(bytes: &[u8], kind: FileKind) -> Decoded<FileHeader> {
        if bytes.len() < FILE_HEADER_LEN {
            return Err(DecodeError::damaged("the file is shorter than its header"));
        }
        if bytes[0..8] != MAGIC {
            return Err(DecodeError::damaged("the file does not begin with Isobath's magic bytes"));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if word(120) != checksum64(&bytes[..120]) {
            return Err(DecodeError::damaged("the file header's checksum does not match"));
        }
        let version = u16::from_le_bytes([bytes[10], bytes[11]]);
        if version > FORMAT_VERSION || bytes[9] != CHECKSUM_XXH3 || word(24) != 0 {
            return Err(DecodeError::newer_format(format!(
                "format version {version}, checksum kind {}, incompatible features {:#x}; this build reads version {FORMAT_VERSION}",
                bytes[9],
                word(24)
            )));
        }
        if bytes[8] != kind as u8 {
            return Err(DecodeError::damaged(format!(
                "expected a {kind:?} file, found kind {}",
                bytes[8]
            )));
        }
        let uuid = bytes[32..48].try_into().expect("16 bytes");
        Ok(FileHeader { kind, uuid, number: word(48), generation: word(56) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FileHeader {
        FileHeader { kind: FileKind::Table, uuid: [7; 16], number: 42, generation: 0 }
    }

    #[test]
    fn golden_bytes_hold() {
        let bytes = sample().encode();
        assert_eq!(&bytes[..16], b"ISOBATH\0\x02\x01\x01\x00\x80\x00\x00\x00");
        assert_eq!(&bytes[48..56], &42u64.to_le_bytes());
        assert_eq!(FileHeader::decode(&bytes, FileKind::Table).unwrap(), sample());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = sample().encode();
        for bit in 0..FILE_HEADER_LEN * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FileHeader::decode(&bad, FileKind::Table).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_told_apart_from_damage() {
        let mut bytes = sample().encode();
        bytes[10] = 9;
        let sum = checksum64(&bytes[..120]);
        bytes[120..].copy_from_slice(&sum.to_le_bytes());
        let error = FileHeader::decode(&bytes, FileKind::Table).unwrap_err();
        assert!(error.is_newer_format(), "{error}");
    }
}
