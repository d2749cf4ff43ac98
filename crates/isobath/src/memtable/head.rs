//! Key arithmetic: heads, common prefixes, and comparisons that skip bytes known to be equal.
//!
//! The *head* of a key at an offset is the eight bytes from there, big-endian, padded with zeros
//! after the end of the key. So unequal heads order as the keys do. Equal heads decide nothing (`a`
//! and `a\0` have equal heads): then the rest of the keys is compared, then the lengths.

use std::cmp::Ordering;

pub(super) const HEAD_LEN: usize = 8;

/// The head of `key` at `offset`. The offset may lie past the key's end.
#[inline]
pub(super) fn head_at(key: &[u8], offset: usize) -> u64 {
    match key.get(offset..).and_then(|rest| rest.first_chunk::<HEAD_LEN>()) {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => short_head(key, offset),
    }
}

#[inline]
fn short_head(key: &[u8], offset: usize) -> u64 {
    let rest = key.get(offset..).unwrap_or(&[]);
    if rest.is_empty() {
        return 0;
    }
    if let Some(last) = key.last_chunk::<HEAD_LEN>() {
        return u64::from_be_bytes(*last) << (8 * (HEAD_LEN - rest.len()));
    }
    let mut bytes = [0; HEAD_LEN];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

/// The length of the keys' common prefix.
#[inline]
pub(super) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let (chunks_a, _) = a.as_chunks::<8>();
    let (chunks_b, _) = b.as_chunks::<8>();
    for (i, (x, y)) in chunks_a.iter().zip(chunks_b).enumerate() {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return i * 8 + differing.trailing_zeros() as usize / 8;
        }
    }
    let whole = chunks_a.len() * 8;
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(x, y)| x == y).count()
}

/// Compares two keys whose first `offset` bytes are equal, and whose heads at `offset` are equal.
#[inline]
pub(super) fn compare_behind_head(a: &[u8], b: &[u8], offset: usize) -> Ordering {
    let from = offset + HEAD_LEN;
    if a.len() == b.len() && a.len() <= from + HEAD_LEN {
        // The bytes not yet compared lie within the last eight. Some of these may be known to be
        // equal, which does no harm.
        return match (a.last_chunk(), b.last_chunk()) {
            (Some(last_a), Some(last_b)) if a.len() > from => {
                u64::from_be_bytes(*last_a).cmp(&u64::from_be_bytes(*last_b))
            }
            _ => Ordering::Equal,
        };
    }
    let (rest_a, rest_b) = (a.get(from..).unwrap_or(&[]), b.get(from..).unwrap_or(&[]));
    rest_a.cmp(rest_b).then(a.len().cmp(&b.len()))
}

/// True if the keys agree from `from` to before `to`. The bytes before `from` must be equal.
#[inline]
pub(super) fn equal_between(a: &[u8], b: &[u8], from: usize, to: usize) -> bool {
    let (Some(a), Some(b)) = (a.get(..to), b.get(..to)) else { return false };
    let word = |bytes: &[u8], end: usize| {
        bytes[..end].last_chunk::<HEAD_LEN>().map(|bytes| u64::from_ne_bytes(*bytes))
    };
    let mut end = to;
    while end > from {
        match (word(a, end), word(b, end)) {
            (Some(a), Some(b)) if a == b => end = end.saturating_sub(HEAD_LEN),
            (Some(_), Some(_)) => return false,
            _ => return a[..end] == b[..end],
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_pad_with_zeros_behind_the_end() {
        assert_eq!(head_at(b"abcdefghi", 0), 0x6162_6364_6566_6768);
        assert_eq!(head_at(b"abcdefghi", 1), 0x6263_6465_6667_6869);
        assert_eq!(head_at(b"abcdefghi", 7), 0x6869_0000_0000_0000);
        assert_eq!(head_at(b"ab", 1), 0x6200_0000_0000_0000);
        assert_eq!(head_at(b"ab", 2), 0);
        assert_eq!(head_at(b"ab", 9), 0);
        assert_eq!(head_at(b"", 0), 0);
    }

    #[test]
    fn common_prefixes_are_found_at_every_length() {
        for len in 0..40 {
            let a = vec![7; 40];
            let mut b = a.clone();
            assert_eq!(common_prefix_len(&a, &b[..len]), len);
            b[len] = 8;
            assert_eq!(common_prefix_len(&a, &b), len);
        }
    }

    #[test]
    fn keys_are_equal_between_bounds_or_not() {
        let a: Vec<u8> = (0..40).collect();
        for to in 0..=40 {
            for from in 0..to {
                assert!(equal_between(&a, &a, from, to));
                assert!(!equal_between(&a[..to - 1], &a, from, to));
                for at in from..to {
                    let mut b = a.clone();
                    b[at] ^= 1;
                    assert!(!equal_between(&a, &b, from, to), "{at} in {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn head_then_rest_then_length_orders_as_bytes_do() {
        let keys: [&[u8]; 10] = [
            b"",
            b"\0",
            b"a",
            b"a\0",
            b"a\0\0\0\0\0\0\0\0",
            b"a\0\0\0\0\0\0\0\0\0",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefghi",
            &[0xff; 12],
        ];
        for a in keys {
            for b in keys {
                let common = common_prefix_len(a, b);
                for offset in 0..=common {
                    let order = head_at(a, offset)
                        .cmp(&head_at(b, offset))
                        .then_with(|| compare_behind_head(a, b, offset));
                    assert_eq!(order, a.cmp(b), "{a:?} {b:?} at {offset}");
                }
            }
        }
    }
}
