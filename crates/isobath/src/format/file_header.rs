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
//!     24   8  incompatible feature bits: unknown ones make the file unreadable.
//!             1: the checksums of blocks are salted (tables and blob files)
//!     32  16  UUID of the database
//!     48   8  file number, or base LSN of a log segment
//!     56   8  generation of a log segment, 0 elsewhere
//!     64  56  room for an encryption header, zero
//!    120   8  XXH3-64 of bytes 0..120
//! ```

use crate::error::{DecodeError, Decoded};
use crate::format::{Salt, checksum64};

/// The length of the header in bytes.
pub(crate) const FILE_HEADER_LEN: usize = 128;

const MAGIC: [u8; 8] = *b"ISOBATH\0";
const CHECKSUM_XXH3: u8 = 1;
const FORMAT_VERSION: u16 = 1;
const SALTED: u64 = 1;

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
    /// Of the file's blocks, if it has any.
    pub(crate) salt: Salt,
}

impl FileKind {
    /// The kinds of files that consist of blocks.
    const OF_BLOCKS: [FileKind; 2] = [FileKind::Table, FileKind::Blob];
}

impl FileHeader {
    /// The header of a new file.
    pub(crate) fn new(kind: FileKind, uuid: [u8; 16], number: u64) -> FileHeader {
        let salt =
            if FileKind::OF_BLOCKS.contains(&kind) { Salt::of(uuid, number) } else { Salt::NONE };
        FileHeader { kind, uuid, number, generation: 0, salt }
    }

    pub(crate) fn encode(&self) -> [u8; FILE_HEADER_LEN] {
        let mut out = [0; FILE_HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8] = self.kind as u8;
        out[9] = CHECKSUM_XXH3;
        out[10..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(FILE_HEADER_LEN as u32).to_le_bytes());
        debug_assert!(
            [Salt::NONE, Salt::of(self.uuid, self.number)].contains(&self.salt),
            "a header says whether there is a salt, and not which"
        );
        let features = if self.salt == Salt::NONE { 0 } else { SALTED };
        out[24..32].copy_from_slice(&features.to_le_bytes());
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
        // A file of another kind than was asked for is not of a newer format.
        let has_blocks = FileKind::OF_BLOCKS.iter().any(|of| *of as u8 == bytes[8]);
        let unknown = if has_blocks { word(24) & !SALTED } else { word(24) };
        if version > FORMAT_VERSION || bytes[9] != CHECKSUM_XXH3 || unknown != 0 {
            return Err(DecodeError::newer_format(format!(
                "format version {version}, checksum kind {}, incompatible features {:#x}; this build reads version {FORMAT_VERSION}",
                bytes[9], unknown
            )));
        }
        if bytes[8] != kind as u8 {
            return Err(DecodeError::damaged(format!(
                "expected a {kind:?} file, found kind {}",
                bytes[8]
            )));
        }
        let uuid = bytes[32..48].try_into().expect("16 bytes");
        let (number, generation) = (word(48), word(56));
        let salt = if word(24) & SALTED == 0 { Salt::NONE } else { Salt::of(uuid, number) };
        Ok(FileHeader { kind, uuid, number, generation, salt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FileHeader {
        FileHeader::new(FileKind::Table, [7; 16], 42)
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

    #[test]
    fn what_only_files_of_blocks_may_have_is_a_newer_format_elsewhere() {
        let error = FileHeader::decode(&sample().encode(), FileKind::Log).unwrap_err();
        assert!(error.is_damage(), "it is of another kind: {error}");
        for (kind, bit) in [(FileKind::Log, 24), (FileKind::Table, 25), (FileKind::Blob, 31)] {
            let mut bytes = FileHeader::new(kind, [7; 16], 42).encode();
            bytes[bit] |= 1;
            let sum = checksum64(&bytes[..120]);
            bytes[120..].copy_from_slice(&sum.to_le_bytes());
            assert!(FileHeader::decode(&bytes, kind).unwrap_err().is_newer_format(), "{bit}");
        }
    }

    #[test]
    fn files_of_before_salts_have_none() {
        for kind in FileKind::OF_BLOCKS {
            let new = FileHeader::new(kind, [7; 16], 42);
            let old = FileHeader { salt: Salt::NONE, ..new.clone() };
            assert!(new.salt == Salt::of([7; 16], 42) && old.encode()[24..32] == [0; 8]);
            for header in [new, old] {
                assert_eq!(FileHeader::decode(&header.encode(), kind).unwrap(), header);
            }
        }
    }
}
