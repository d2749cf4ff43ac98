//! The range deletes of a slice: field 6 of its root.
//!
//! ```text
//! spans     := count:varint fragment*
//! fragment  := flags:u8 [start:bytes] [end:bytes] sequences
//!              flag 1: it begins where the one before ends, and `start` is left out
//!              flag 2: it has no end, and `end` is left out
//! sequences := count:varint, the greatest, then how much less each next one is; all varints
//! ```
//!
//! Fragments are ascending and disjoint. An open table keeps them in memory. A slice always has a
//! version of a key, too: one that would have none gets a delete of the first key of its spans,
//! which says nothing that the span does not say (`slice_writer.rs`). So a slice without any point
//! need not be told apart anywhere.

use super::KEY_LEN_MAX;
use crate::error::Decoded;
use crate::format::{Decoder, LSN_END, put_bytes, put_varint};
use crate::span::{Fragment, SpanKey, SpanSet};

const FLAG_JOINED: u8 = 1;
const FLAG_NO_END: u8 = 2;

pub(super) fn encode_spans(set: &SpanSet, out: &mut Vec<u8>) {
    put_varint(out, set.fragments().len() as u64);
    debug_assert!(set.is_sound() && !set.is_empty(), "no table could be read: {set:?}");
    let mut last: Option<&SpanKey> = None;
    for Fragment { start, end, seqs } in set.fragments() {
        let is_joined = last == Some(start);
        let flags = [(is_joined, FLAG_JOINED), (end.is_none(), FLAG_NO_END)];
        out.push(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
        if !is_joined {
            put_bytes(out, start);
        }
        if let Some(end) = end {
            put_bytes(out, end);
        }
        put_varint(out, seqs.len() as u64);
        let mut above = None;
        for seq in seqs {
            put_varint(out, above.map_or(*seq, |above| above - seq));
            above = Some(*seq);
        }
        last = end.as_ref();
    }
}

pub(super) fn decode_spans(bytes: &[u8]) -> Decoded<SpanSet> {
    let mut decoder = Decoder::new(bytes);
    let count = decoder.varint()?;
    let mut fragments: Vec<Fragment> = Vec::new();
    for _ in 0..count {
        let flags = decoder.u8()?;
        let last_end = fragments.last().and_then(|last| last.end.clone());
        let start = match last_end.filter(|_| flags & FLAG_JOINED != 0) {
            Some(end) => end,
            None if flags & FLAG_JOINED != 0 => {
                return Err(decoder.malformed("a range delete begins where none ends"));
            }
            None => key(&mut decoder)?,
        };
        let end = match flags & FLAG_NO_END != 0 {
            true => None,
            false => Some(key(&mut decoder)?),
        };
        fragments.push(Fragment { start, end, seqs: sequences(&mut decoder)? });
    }
    let is_whole = decoder.is_done() && !fragments.is_empty();
    match SpanSet::checked(fragments).filter(|_| is_whole) {
        Some(set) => Ok(set),
        None => Err(decoder.malformed("the range deletes of a slice are out of order")),
    }
}

fn key(decoder: &mut Decoder<'_>) -> Decoded<SpanKey> {
    let key = decoder.bytes()?;
    if key.len() > KEY_LEN_MAX {
        return Err(decoder.malformed("a range delete has a key of an impossible length"));
    }
    Ok(key.into())
}

fn sequences(decoder: &mut Decoder<'_>) -> Decoded<Box<[u64]>> {
    let count = decoder.varint()?;
    let mut seqs: Vec<u64> = Vec::new();
    for _ in 0..count {
        let number = decoder.varint()?;
        let seq = match seqs.last() {
            Some(above) => above.checked_sub(number),
            None => Some(number),
        };
        match seq.filter(|seq| *seq < LSN_END) {
            Some(seq) => seqs.push(seq),
            None => return Err(decoder.malformed("a range delete has an impossible sequence")),
        }
    }
    Ok(seqs.into())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::mvcc::ReaderPoints;
    use crate::span::tests::{self as model, all_fragments};
    use proptest::prelude::*;

    fn encoded(set: &SpanSet) -> Vec<u8> {
        let mut out = Vec::new();
        encode_spans(set, &mut out);
        out
    }

    fn fragment(start: &[u8], end: Option<&[u8]>, seqs: &[u64]) -> Fragment {
        Fragment { start: start.into(), end: end.map(Into::into), seqs: seqs.into() }
    }

    #[test]
    fn golden_bytes_hold() {
        let set = SpanSet::new(vec![
            fragment(b"", Some(b"b"), &[300]),
            fragment(b"b", Some(b"cd"), &[300, 298]),
            fragment(b"x", None, &[7]),
        ]);
        let golden = b"\x03\x00\x00\x01b\x01\xac\x02\x01\x02cd\x02\xac\x02\x02\x02\x01x\x01\x07";
        assert_eq!(encoded(&set), golden);
        assert_eq!(decode_spans(golden).unwrap(), set);
        for len in 0..golden.len() {
            assert!(decode_spans(&golden[..len]).unwrap_err().is_damage(), "{len}");
        }
    }

    #[test]
    fn fragments_that_contradict_each_other_are_damage() {
        for bad in [
            &b"\0"[..],
            b"\x01\x01\x01b\x01\x07",
            b"\x01\x00\x01b\x01b\x01\x07",
            b"\x01\x00\x01b\x01a\x01\x07",
            b"\x01\x00\x01b\x01c\x00",
            b"\x01\x00\x01b\x01c\x02\x07\x00",
            b"\x01\x00\x01b\x01c\x02\x07\x08",
            b"\x02\x00\x01b\x01d\x01\x07\x00\x01c\x01e\x01\x07",
            b"\x02\x02\x01b\x01\x07\x00\x01c\x01e\x01\x07",
            b"\x01\x00\x01b\x01c\x01\x07\x07",
        ] {
            assert!(decode_spans(bad).unwrap_err().is_damage(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_comes_back(spans in model::spans(20)) {
            let set = all_fragments(spans, &ReaderPoints::from(0));
            prop_assume!(!set.is_empty());
            prop_assert_eq!(decode_spans(&encoded(&set)).unwrap(), set);
        }
    }
}
