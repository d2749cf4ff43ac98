//! Common prefixes of keys, compared eight bytes at a time, and fixed-size reads at a position.

/// The length of the common prefix of `a` and `b`.
#[inline]
pub(crate) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = 0;
    while let (Some(a), Some(b)) = (chunk::<8>(a, at), chunk::<8>(b, at)) {
        let difference = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if difference != 0 {
            return at + difference.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    if let (Some(a), Some(b)) = (chunk::<4>(a, at), chunk::<4>(b, at)) {
        let difference = u32::from_le_bytes(*a) ^ u32::from_le_bytes(*b);
        if difference != 0 {
            return at + difference.trailing_zeros() as usize / 8;
        }
        at += 4;
    }
    while at < len && a[at] == b[at] {
        at += 1;
    }
    at
}

/// The `N` bytes from `at` on, if there are that many.
#[inline(always)]
pub(crate) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.first_chunk()
}
