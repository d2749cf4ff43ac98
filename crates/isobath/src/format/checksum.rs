//! The one checksum of every format: XXH3, 64 bits, or the low 32 bits of it where space is scarce.

/// XXH3-64 of `bytes`.
pub(crate) fn checksum64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// [`checksum64`] of bytes that are added piece by piece. The value can be read at any time.
pub(crate) struct RunningChecksum(xxhash_rust::xxh3::Xxh3);

impl RunningChecksum {
    pub(crate) fn new() -> RunningChecksum {
        RunningChecksum(xxhash_rust::xxh3::Xxh3::new())
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of everything added so far.
    pub(crate) fn value(&self) -> u64 {
        self.0.digest()
    }
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

    #[test]
    fn a_running_checksum_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i * 7) as u8).collect();
        let mut running = RunningChecksum::new();
        for (at, byte) in bytes.iter().enumerate() {
            assert_eq!(running.value(), checksum64(&bytes[..at]));
            running.add(&[*byte]);
        }
    }
}
