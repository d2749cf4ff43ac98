//! LEB128 integers, length-prefixed bytes, and a decoder that never reads past its end.

use crate::env::{Plant, planted};
use crate::error::{DecodeError, Decoded};

/// Appends `value` in 1 to 10 bytes, seven bits each, least significant first.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number of bytes [`put_varint`] appends for `value`.
pub(crate) const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends the length of `bytes` as a varint, then the bytes.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads the integers and byte strings of a structure in order. Every error names the offset in the
/// structure. The caller adds the file.
#[derive(Clone, Debug)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Decoder { bytes, offset: 0 }
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    pub(crate) fn is_done(&self) -> bool {
        self.remaining() == 0
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Decoded<&'a [u8]> {
        if len > self.remaining() && !planted(Plant::LengthBelieved) {
            return Err(self.malformed("a field runs past the end"));
        }
        let taken = &self.bytes[self.offset..self.offset + len];
        self.offset += len;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Decoded<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("4 bytes")))
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("8 bytes")))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Decoded<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed("a varint does not fit 64 bits"))
    }

    /// A varint that must fit 32 bits.
    #[inline]
    pub(crate) fn varint32(&mut self) -> Decoded<u32> {
        u32::try_from(self.varint()?).map_err(|_| self.malformed("a varint does not fit 32 bits"))
    }

    /// A length-prefixed byte string.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let len = self.varint()?;
        let len =
            usize::try_from(len).map_err(|_| self.malformed("a length does not fit memory"))?;
        self.take(len)
    }

    #[cold]
    pub(crate) fn malformed(&self, what: &'static str) -> DecodeError {
        DecodeError::damaged_at(self.offset, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_take_the_length_foretold() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let mut decoder = Decoder::new(&out);
                assert_eq!(decoder.varint().unwrap(), value);
                assert!(decoder.is_done());
            }
        }
    }

    #[test]
    fn truncated_and_overlong_input_is_an_error() {
        assert!(Decoder::new(&[0x80]).varint().is_err());
        assert!(Decoder::new(&[0xff; 11]).varint().is_err());
        assert!(Decoder::new(&[5, 1, 2]).bytes().is_err());
        assert!(Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0x7f]).varint32().is_err());
    }
}
