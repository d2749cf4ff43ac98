//! The one checksum of every format: XXH3, 64 bits, or its low half where space is dear.

/// XXH3-64 of `bytes`.
pub(crate) fn checksum64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The low 32 bits of [`checksum64`].
pub(crate) fn checksum32(bytes: &[u8]) -> u32 {
    checksum64(bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum is part of every on-disk format: it must never change.
    #[test]
    fn golden_values_hold() {
        assert_eq!(checksum64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(checksum32(b""), 0x38d3_94c2);
        assert_ne!(checksum64(b"isobath"), checksum64(b"isobati"));
    }
}
