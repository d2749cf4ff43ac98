//! Values in blob files: what is stored of them in a table.
//!
//! ```text
//! expiry  u64, as in `mvcc/expiry.rs`; only of a value that ends
//! file    varint: the number of the blob file
//! offset  varint: where the stored value begins in it
//! stored  varint: how long it is there
//! len     varint: the length of the value
//! ```

use super::{Decoder, OpKind, put_varint};
use crate::error::Decoded;
use crate::mvcc::expiry::{EXPIRY_LEN, value_of};

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    /// The number of the blob file.
    pub(crate) file: u64,
    /// Where the stored value begins.
    pub(crate) offset: u64,
    /// Its length as it is stored, with its checksum.
    pub(crate) stored_len: u32,
    /// The length of the value.
    pub(crate) value_len: u32,
}

impl Address {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file);
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.stored_len));
        put_varint(out, u64::from(self.value_len));
    }

    fn decode(bytes: &[u8]) -> Decoded<Address> {
        let mut decoder = Decoder::new(bytes);
        let address = Address {
            file: decoder.varint()?,
            offset: decoder.varint()?,
            stored_len: decoder.varint32()?,
            value_len: decoder.varint32()?,
        };
        match decoder.is_done() && address.file > 0 {
            true => Ok(address),
            false => Err(decoder.malformed("the address of a value is none")),
        }
    }

    /// The address that is stored with an operation whose value is separated.
    pub(crate) fn of(kind: OpKind, stored: &[u8]) -> Decoded<Address> {
        debug_assert!(kind.is_separated(), "{kind:?} has no address");
        Address::decode(value_of(kind, stored))
    }

    /// What is stored of an entry whose value lies here: the entry's kind becomes
    /// [`OpKind::separated`]. `stored` is what was stored before, of which an expiry stays.
    pub(crate) fn put_in(&self, kind: OpKind, stored: &[u8], out: &mut Vec<u8>) {
        out.clear();
        if kind.is_expiring() {
            out.extend_from_slice(&stored[..EXPIRY_LEN.min(stored.len())]);
        }
        self.put(out);
        debug_assert!(Address::decode(value_of(kind, out)).is_ok_and(|read| read == *self));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Address = Address { file: 300, offset: 128, stored_len: 70, value_len: 5000 };

    #[test]
    fn golden_bytes_of_an_address_and_of_one_that_ends() {
        let mut stored = Vec::new();
        ADDRESS.put_in(OpKind::Put, b"whatever it was", &mut stored);
        assert_eq!(stored, b"\xac\x02\x80\x01\x46\x88\x27");
        assert_eq!(Address::of(OpKind::PutSeparated, &stored).unwrap(), ADDRESS);
        ADDRESS.put_in(OpKind::PutExpiring, b"\x05\0\0\0\0\0\0\0value", &mut stored);
        assert_eq!(stored, b"\x05\0\0\0\0\0\0\0\xac\x02\x80\x01\x46\x88\x27");
        assert_eq!(Address::of(OpKind::PutExpiringSeparated, &stored).unwrap(), ADDRESS);
    }

    #[test]
    fn an_address_comes_back_and_other_bytes_are_an_error() {
        let most =
            Address { file: u64::MAX, offset: u64::MAX, stored_len: u32::MAX, value_len: u32::MAX };
        let mut stored = Vec::new();
        most.put_in(OpKind::Put, b"", &mut stored);
        assert_eq!(stored.len(), 10 + 10 + 5 + 5, "no address is longer");
        assert_eq!(Address::of(OpKind::PutSeparated, &stored).unwrap(), most);
        for len in 0..stored.len() {
            assert!(Address::of(OpKind::PutSeparated, &stored[..len]).is_err(), "{len}");
        }
        stored.push(0);
        assert!(Address::of(OpKind::PutSeparated, &stored).unwrap_err().is_damage());
        assert!(Address::of(OpKind::PutSeparated, &[0, 0, 0, 0]).is_err(), "no file has number 0");
        assert!(Address::of(OpKind::PutExpiringSeparated, &[0; 7]).is_err());
    }
}
