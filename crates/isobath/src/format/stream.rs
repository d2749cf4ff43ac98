//! Streams: values that have a blob file of their own. What is stored of one in the log, in
//! memtables and in tables.
//!
//! ```text
//! expiry    u64, as in `mvcc/expiry.rs`; only of a value that ends
//! file      varint: the number of the blob file
//! len       varint: the length of the value
//! file len  varint: the length of the file
//! checksum  u64: that in the trailer of the file, which tells its content
//! ```

use super::{Decoder, Op, OpKind, put_varint};
use crate::error::Decoded;
use crate::limits::MAX_STREAM_LEN;
use crate::mvcc::expiry::value_of;

/// Where a stream lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamAddress {
    /// The number of the blob file.
    pub(crate) file: u64,
    /// The length of the value.
    pub(crate) value_len: u64,
    /// The length of the file.
    pub(crate) file_len: u64,
    /// The checksum in the file's trailer.
    pub(crate) checksum: u64,
}

impl StreamAddress {
    /// Appends what is stored of the stream.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_varint(out, self.file);
        put_varint(out, self.value_len);
        put_varint(out, self.file_len);
        out.extend_from_slice(&self.checksum.to_le_bytes());
        debug_assert!(StreamAddress::decode(&out[start..]).is_ok_and(|read| read == *self));
    }

    fn decode(bytes: &[u8]) -> Decoded<StreamAddress> {
        let mut decoder = Decoder::new(bytes);
        let address = StreamAddress {
            file: decoder.varint()?,
            value_len: decoder.varint()?,
            file_len: decoder.varint()?,
            checksum: decoder.u64()?,
        };
        let is_possible = address.file > 0 && address.value_len <= MAX_STREAM_LEN;
        match decoder.is_done() && is_possible {
            true => Ok(address),
            false => Err(decoder.malformed("the address of a stream is none")),
        }
    }

    /// The address that is stored with an operation whose value is a stream.
    pub(crate) fn of(kind: OpKind, stored: &[u8]) -> Decoded<StreamAddress> {
        StreamAddress::decode(value_of(kind, stored))
    }
}

/// The operations of a record that put streams, each with its place in the record and its address.
/// One without an address does not decode.
pub(crate) fn streams_of<'o>(
    ops: &'o [Op<'o>],
) -> impl Iterator<Item = (usize, &'o Op<'o>, StreamAddress)> {
    let streamed = ops.iter().enumerate().filter(|(_, op)| op.kind.is_streamed());
    streamed.filter_map(|(at, op)| Some((at, op, StreamAddress::of(op.kind, op.value).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_the_address_of_a_stream() {
        let (file, value_len, file_len) = (300, 5000, 128 + 70);
        let address = StreamAddress { file, value_len, file_len, checksum: 0x0102_0304 };
        let mut stored = Vec::new();
        address.put(&mut stored);
        assert_eq!(stored, b"\xac\x02\x88\x27\xc6\x01\x04\x03\x02\x01\0\0\0\0");
        assert_eq!(StreamAddress::of(OpKind::Put, &stored).unwrap(), address);
        let ends = [b"\x05\0\0\0\0\0\0\0", &*stored].concat();
        assert_eq!(StreamAddress::of(OpKind::PutExpiring, &ends).unwrap(), address);
    }

    #[test]
    fn the_streams_of_a_record_come_with_their_places() {
        let address = StreamAddress { file: 9, value_len: 5, file_len: 198, checksum: 7 };
        let mut stored = Vec::new();
        address.put(&mut stored);
        let op = |kind, value| Op { kind, family: 0, key: b"k", value };
        let ops =
            [op(OpKind::Put, &*stored), op(OpKind::PutStreamed, &*stored), op(OpKind::Delete, b"")];
        let found: Vec<_> = streams_of(&ops).map(|(at, _, address)| (at, address)).collect();
        assert_eq!(found, [(1, address)]);
    }

    #[test]
    fn the_address_of_a_stream_comes_back_and_other_bytes_are_an_error() {
        let most = StreamAddress {
            file: u64::MAX,
            value_len: MAX_STREAM_LEN,
            file_len: u64::MAX,
            checksum: u64::MAX,
        };
        let mut stored = Vec::new();
        most.put(&mut stored);
        assert_eq!(StreamAddress::decode(&stored).unwrap(), most);
        for len in 0..stored.len() {
            assert!(StreamAddress::decode(&stored[..len]).is_err(), "{len}");
        }
        stored.push(0);
        assert!(StreamAddress::decode(&stored).unwrap_err().is_damage());
        let mut forged = Vec::new();
        put_varint(&mut forged, 1);
        put_varint(&mut forged, MAX_STREAM_LEN + 1);
        put_varint(&mut forged, 1);
        forged.extend_from_slice(&[0; 8]);
        assert!(StreamAddress::decode(&forged).unwrap_err().is_damage(), "too long");
        assert!(StreamAddress::decode(&[0; 11]).unwrap_err().is_damage(), "no file is number 0");
    }
}
