//! Streams: values of any length, each in a blob file of its own, which is written piece by piece
//! and read at any place.
//!
//! ```text
//! file header  128 bytes, kind 3, see format/file_header.rs
//! frames       of the value, each of `frame length` bytes of it (256 KiB), the last one of the rest: as blocks of
//!              tables have it, what the codec left, codec, checksum
//! index        one such frame, never compressed: frame length:varint, count:varint, and of each frame its
//!              stored length:varint and the low half of its checksum:u32
//! trailer      32 bytes: offset of the index:u64, its stored length:u64, length of the value:u64, checksum:u64
//! ```
//!
//! The checksum of the trailer is over what is before it there, the database's UUID, the file's
//! number and the checksum of the index. The address of a stream has it. So the address
//! vouches for the index, and the index for each frame: one that is moved within the file, or taken
//! from another, is noticed when it is read.
//!
//! Opening a stream reads trailer and index, and a read reads one frame at a time.

mod reader;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod writer;

pub(crate) use reader::{OpenStream, check_stream, end_of_stream, ends_as_stream};
pub(crate) use writer::{StreamWriter, check_len};

use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, FILE_HEADER_LEN, checksum64, put_varint};
use crate::table::{BlockHandle, FRAME_TRAILER_LEN};

/// The longest frame that this version reads.
const FRAME_LEN_MAX: u64 = 16 << 20;
/// The length of the trailer.
const TRAILER_LEN: u64 = 32;
/// The trailer, and before it the checksum of the index.
const TAIL_LEN: usize = TRAILER_LEN as usize + 8;

/// The frames of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Index {
    /// How much of the value is in each frame but the last.
    frame_len: usize,
    lens: Vec<u32>,
    checks: Vec<u32>,
}

impl Index {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + 8 * self.lens.len());
        put_varint(&mut out, self.frame_len as u64);
        put_varint(&mut out, self.lens.len() as u64);
        for (len, check) in self.lens.iter().zip(&self.checks) {
            put_varint(&mut out, u64::from(*len));
            out.extend_from_slice(&check.to_le_bytes());
        }
        out
    }

    /// Decodes the index of a value of `value_len` bytes, which lies at `end`, right behind the
    /// last frame.
    fn decode(payload: &[u8], value_len: u64, end: u64) -> Decoded<Index> {
        let mut decoder = Decoder::new(payload);
        let (frame_len, count) = (decoder.varint()?, decoder.varint()?);
        if !(1..=FRAME_LEN_MAX).contains(&frame_len) {
            let detail = format!("a stream has frames of {frame_len} bytes");
            return Err(DecodeError::newer_format(detail));
        }
        // An entry has five bytes, so a damaged count cannot ask for much memory.
        if count != value_len.div_ceil(frame_len) || count > (decoder.remaining() / 5) as u64 {
            return Err(decoder.malformed("a stream has another number of frames than its length"));
        }
        let mut index = Index { frame_len: frame_len as usize, ..Index::default() };
        let mut offset = FILE_HEADER_LEN as u64;
        for _ in 0..count {
            let len = decoder.varint32()?;
            if (len as usize) < FRAME_TRAILER_LEN {
                return Err(decoder.malformed("a frame of a stream is shorter than its trailer"));
            }
            offset += u64::from(len);
            index.lens.push(len);
            index.checks.push(decoder.u32()?);
        }
        match decoder.is_done() && offset == end {
            true => Ok(index),
            false => Err(decoder.malformed("the frames of a stream end elsewhere than its index")),
        }
    }

    /// Where the frame lies in the file.
    fn handle(&self, nth: usize) -> BlockHandle {
        let before: u64 = self.lens[..nth].iter().map(|len| u64::from(*len)).sum();
        let len = self.lens.get(nth).copied().unwrap_or(0);
        BlockHandle { offset: FILE_HEADER_LEN as u64 + before, len }
    }
}

/// The end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trailer {
    index: BlockHandle,
    value_len: u64,
    checksum: u64,
}

impl Trailer {
    /// The trailer of a file with this identity, whose index has this checksum.
    fn new(index: BlockHandle, value_len: u64, index_check: u64, of: Identity) -> Trailer {
        let mut trailer = Trailer { index, value_len, checksum: 0 };
        trailer.checksum = trailer.sum(index_check, of);
        trailer
    }

    fn sum(&self, index_check: u64, (uuid, number): Identity) -> u64 {
        let own = &self.encode()[..24];
        let others = [&uuid[..], &number.to_le_bytes(), &index_check.to_le_bytes()].concat();
        checksum64(&[own, &others].concat())
    }

    fn encode(&self) -> [u8; TRAILER_LEN as usize] {
        let mut out = [0; TRAILER_LEN as usize];
        out[..8].copy_from_slice(&self.index.offset.to_le_bytes());
        out[8..16].copy_from_slice(&u64::from(self.index.len).to_le_bytes());
        out[16..24].copy_from_slice(&self.value_len.to_le_bytes());
        out[24..].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// Decodes the last bytes of a file of this length.
    fn decode(tail: &[u8; TAIL_LEN], file_len: u64, of: Identity) -> Decoded<Trailer> {
        let mut decoder = Decoder::new(tail);
        let index_check = decoder.u64()?;
        let (offset, len, value_len) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let checksum = decoder.u64()?;
        let index_end = offset.checked_add(len).and_then(|end| end.checked_add(TRAILER_LEN));
        let Some(len) = u32::try_from(len).ok().filter(|_| index_end == Some(file_len)) else {
            return Err(DecodeError::damaged("the trailer of a stream points elsewhere"));
        };
        let trailer = Trailer { index: BlockHandle { offset, len }, value_len, checksum };
        match checksum == trailer.sum(index_check, of) {
            true => Ok(trailer),
            false => Err(DecodeError::damaged("the checksum of a stream's trailer does not match")),
        }
    }
}

/// The UUID of the database, and the number of the file.
type Identity = ([u8; 16], u64);
