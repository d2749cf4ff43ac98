//! The end of a table file: the directory of its slices, and the footer that leads to it.
//!
//! With them a table can be read without a manifest. The directory is the payload of a stored
//! block: the varint number of slices, then three varints for each slice, in order of family.
//! First, the family minus the previous family. Second, the offset of the root minus the end of the
//! previous root (or of the file header). Third, the length of the root. The footer is the last 64
//! bytes:
//!
//! ```text
//! offset len  field                    all integers little-endian
//!      0   8  offset of the directory
//!      8   4  length of the directory, trailer included
//!     12   2  format version
//!     14   2  zero
//!     16   8  compatible feature bits: unknown ones may be ignored
//!     24   8  incompatible feature bits: unknown ones make the file unreadable
//!     32   8  length of the file
//!     40   8  file number, as in the header
//!     48   8  magic "ISOTABLE"
//!     56   8  XXH3-64 of bytes 0..56
//! ```

use super::BlockHandle;
use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, FILE_HEADER_LEN, FamilyId, checksum64, put_varint};

pub(crate) const FOOTER_LEN: usize = 64;

const MAGIC: [u8; 8] = *b"ISOTABLE";
const FORMAT_VERSION: u16 = 1;

/// The decoded footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) directory: BlockHandle,
    pub(crate) file_len: u64,
    pub(crate) number: u64,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut out = [0; FOOTER_LEN];
        out[0..8].copy_from_slice(&self.directory.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.directory.len.to_le_bytes());
        out[12..14].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[32..40].copy_from_slice(&self.file_len.to_le_bytes());
        out[40..48].copy_from_slice(&self.number.to_le_bytes());
        out[48..56].copy_from_slice(&MAGIC);
        let checksum = checksum64(&out[..56]);
        out[56..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes the last bytes of a file that is `file_len` bytes long.
    pub(crate) fn decode(bytes: &[u8; FOOTER_LEN], file_len: u64) -> Decoded<Footer> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[48..56] != MAGIC || word(56) != checksum64(&bytes[..56]) {
            return Err(DecodeError::damaged(
                "there is no table footer at the end of the file: it was cut short or damaged",
            ));
        }
        let version = u16::from_le_bytes([bytes[12], bytes[13]]);
        if version > FORMAT_VERSION || word(24) != 0 {
            return Err(DecodeError::newer_format(format!(
                "table format version {version}, incompatible features {:#x}",
                word(24)
            )));
        }
        let len = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
        let footer = Footer {
            directory: BlockHandle { offset: word(0), len },
            file_len: word(32),
            number: word(40),
        };
        let directory_end = footer.directory.offset.checked_add(u64::from(len));
        if footer.file_len != file_len || directory_end != file_len.checked_sub(FOOTER_LEN as u64) {
            return Err(DecodeError::damaged(format!(
                "the footer states a length of {} bytes, the file has {file_len}",
                footer.file_len
            )));
        }
        Ok(footer)
    }
}

/// Appends the directory of slices with these roots.
pub(crate) fn put_directory(out: &mut Vec<u8>, slices: &[(FamilyId, BlockHandle)]) {
    put_varint(out, slices.len() as u64);
    let (mut family_before, mut end_before) = (0, FILE_HEADER_LEN as u64);
    for &(family, root) in slices {
        put_varint(out, u64::from(family - family_before));
        put_varint(out, root.offset - end_before);
        put_varint(out, u64::from(root.len));
        family_before = family;
        end_before = root.offset + u64::from(root.len);
    }
}

/// Decodes a directory. The roots come in ascending order of family and offset.
pub(crate) fn decode_directory(payload: &[u8]) -> Decoded<Vec<(FamilyId, BlockHandle)>> {
    let mut decoder = Decoder::new(payload);
    let count = decoder.varint()?;
    if count > (decoder.remaining() / 3) as u64 {
        return Err(decoder.malformed("a directory of more slices than fit it"));
    }
    let mut slices = Vec::with_capacity(count as usize);
    let (mut family, mut end) = (0u32, FILE_HEADER_LEN as u64);
    for i in 0..count {
        let step = decoder.varint32()?;
        let gap = decoder.varint()?;
        let len = decoder.varint32()?;
        let next_family = family.checked_add(step).filter(|_| i == 0 || step > 0);
        let offset = end.checked_add(gap);
        let (Some(next_family), Some(offset)) = (next_family, offset) else {
            return Err(decoder.malformed("a directory out of order"));
        };
        family = next_family;
        end = match offset.checked_add(u64::from(len)) {
            Some(end) => end,
            None => return Err(decoder.malformed("a slice past the end")),
        };
        slices.push((family, BlockHandle { offset, len }));
    }
    if !decoder.is_done() {
        return Err(decoder.malformed("a directory is followed by something"));
    }
    Ok(slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Footer {
        Footer { directory: BlockHandle { offset: 900, len: 36 }, file_len: 1000, number: 42 }
    }

    #[test]
    fn golden_bytes_hold() {
        let bytes = sample().encode();
        assert_eq!(&bytes[..16], b"\x84\x03\0\0\0\0\0\0\x24\0\0\0\x01\0\0\0");
        assert_eq!(&bytes[16..32], &[0; 16]);
        assert_eq!(&bytes[32..48], b"\xe8\x03\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0");
        assert_eq!(&bytes[48..56], b"ISOTABLE");
        assert_eq!(Footer::decode(&bytes, 1000).unwrap(), sample());
        let mut directory = Vec::new();
        let roots = [
            (0, BlockHandle { offset: 128, len: 200 }),
            (300, BlockHandle { offset: 828, len: 72 }),
        ];
        put_directory(&mut directory, &roots);
        assert_eq!(directory, b"\x02\0\0\xc8\x01\xac\x02\xf4\x03\x48");
        assert_eq!(decode_directory(&directory).unwrap(), roots);
    }

    #[test]
    fn every_flipped_bit_and_another_length_is_noticed() {
        let good = sample().encode();
        for bit in 0..FOOTER_LEN * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&bad, 1000).is_err(), "bit {bit}");
        }
        assert!(Footer::decode(&good, 1001).is_err());
    }

    #[test]
    fn a_newer_format_is_told_apart_from_damage() {
        for (at, value) in [(12, 2), (24, 1)] {
            let mut bytes = sample().encode();
            bytes[at] = value;
            let checksum = checksum64(&bytes[..56]);
            bytes[56..].copy_from_slice(&checksum.to_le_bytes());
            let error = Footer::decode(&bytes, 1000).unwrap_err();
            assert!(error.is_newer_format(), "{error}");
        }
    }

    #[test]
    fn malformed_directories_are_errors() {
        for bad in
            [&b"\x02\0\0\x10"[..], b"\xff\xff\xff\xff\x0f", b"\x02\x01\0\x10\0\0\x10", b"\x00\x00"]
        {
            assert!(decode_directory(bad).is_err(), "{bad:?}");
        }
    }
}
