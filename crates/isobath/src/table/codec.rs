//! Compression of blocks, and decompression within bounds.
//!
//! A compressed payload is a varint of the decoded length, then the codec's own bytes. A block that
//! does not shrink by an eighth is stored uncompressed ([`Codec::None`]), without the varint.

#[cfg(feature = "zstd")]
use crate::env::sync::{Mutex, Rank};
use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, varint_len};

/// How blocks are compressed. Each codec except `None` is a feature of the crate, on by default. A
/// build without the feature refuses options that name the codec. For data that needs the codec it
/// returns [`ErrorKind::MissingCodec`](crate::ErrorKind::MissingCodec).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[repr(u8)]
#[non_exhaustive]
pub enum Codec {
    /// No compression: the fastest to read, and the largest.
    #[cfg_attr(not(feature = "lz4"), default)]
    None = 0,
    /// LZ4: decodes a 4 KiB block in about half a microsecond. The default of a build that has it.
    #[cfg_attr(feature = "lz4", default)]
    Lz4 = 1,
    /// Zstandard: smaller than LZ4, and takes two to three times as long to decode.
    Zstd = 2,
    /// Snappy: close to LZ4 in size, and slower to decode.
    Snappy = 3,
}

impl Codec {
    /// Every codec that this version knows.
    pub(crate) const ALL: [Codec; 4] = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Snappy];

    /// True if this build of the crate can compress and decompress with it.
    pub const fn is_available(self) -> bool {
        match self {
            Codec::None => true,
            Codec::Lz4 => cfg!(feature = "lz4"),
            Codec::Zstd => cfg!(feature = "zstd"),
            Codec::Snappy => cfg!(feature = "snappy"),
        }
    }

    /// The name in options, which is also the name of the crate's feature.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
            Codec::Snappy => "snappy",
        }
    }

    /// Returns an error if this build lacks the codec.
    pub(crate) fn demand(self) -> Decoded<()> {
        if self.is_available() { Ok(()) } else { Err(DecodeError::missing_codec(self.name())) }
    }

    /// Decodes a stored codec.
    pub(crate) fn from_byte(byte: u8) -> Decoded<Codec> {
        match byte {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Lz4),
            2 => Ok(Codec::Zstd),
            3 => Ok(Codec::Snappy),
            other => Err(DecodeError::newer_format(format!("block codec {other}"))),
        }
    }
}

#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

/// LZ4 and Snappy refuse inputs near 2 and 4 GiB. A block longer than this is stored uncompressed.
const COMPRESSIBLE_LEN_MAX: usize = 1 << 30;

/// The longest decoded block that `payload_len` stored bytes may claim. So what is on disk bounds
/// what a reader allocates. The writer keeps the same bound, so a reader never refuses a block of
/// ours for it.
fn decoded_len_max(payload_len: usize) -> usize {
    (16 << 20).max(payload_len.saturating_mul(256)).min(COMPRESSIBLE_LEN_MAX)
}

/// Compresses one block after another into one reused buffer, with reused contexts.
#[derive(Default)]
pub(crate) struct Compressor {
    buffer: Vec<u8>,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
    #[cfg(feature = "snappy")]
    snappy: Option<snap::raw::Encoder>,
}

impl Compressor {
    /// The payload to store for `raw`, and the codec with which it is stored. If the codec fails or
    /// saves too little, that is not an error: the block is stored uncompressed.
    pub(crate) fn compress<'a>(&'a mut self, codec: Codec, raw: &'a [u8]) -> (Codec, &'a [u8]) {
        if codec == Codec::None || raw.len() > COMPRESSIBLE_LEN_MAX {
            return (Codec::None, raw);
        }
        let prefix_len = varint_len(raw.len() as u64);
        // There is no room for output that would save less than an eighth, so the codec can stop
        // early.
        let room = raw.len() - raw.len() / 8;
        let buffer_len = match codec {
            #[cfg(feature = "snappy")]
            Codec::Snappy => prefix_len + snap::raw::max_compress_len(raw.len()),
            _ => room,
        };
        if self.buffer.len() < buffer_len {
            self.buffer.resize(buffer_len, 0);
        }
        if room <= prefix_len {
            return (Codec::None, raw);
        }
        let target = &mut self.buffer[prefix_len..buffer_len];
        let packed_len = match codec {
            Codec::None => None,
            #[cfg(feature = "lz4")]
            Codec::Lz4 => lz4::block::compress_to_buffer(raw, None, false, target).ok(),
            #[cfg(feature = "zstd")]
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                self.zstd.as_mut().and_then(|zstd| zstd.compress_to_buffer(raw, target).ok())
            }
            #[cfg(feature = "snappy")]
            Codec::Snappy => {
                self.snappy.get_or_insert_with(snap::raw::Encoder::new).compress(raw, target).ok()
            }
            #[cfg(not(all(feature = "lz4", feature = "zstd", feature = "snappy")))]
            _ => {
                let _ = target;
                None
            }
        };
        match packed_len {
            Some(len) if prefix_len + len <= room && raw.len() <= decoded_len_max(len) => {
                write_varint(&mut self.buffer, raw.len() as u64);
                (codec, &self.buffer[..prefix_len + len])
            }
            _ => (Codec::None, raw),
        }
    }

    #[cfg(test)]
    pub(crate) fn buffer_len(&self) -> usize {
        self.buffer.len()
    }

    /// Frees memory if one unusually large block made the buffer longer than `len_max`.
    pub(crate) fn trim(&mut self, len_max: usize) {
        if self.buffer.len() > len_max {
            self.buffer.truncate(len_max);
            self.buffer.shrink_to_fit();
        }
    }
}

fn write_varint(out: &mut [u8], mut value: u64) {
    let mut at = 0;
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
}

/// Decompresses blocks. Zstandard needs a context of some hundred KiB; idle contexts are kept here
/// for the next reader.
pub(crate) struct Decompressor {
    #[cfg(feature = "zstd")]
    zstd: Mutex<Vec<zstd::bulk::Decompressor<'static>>>,
}

#[allow(clippy::derivable_impls)] // With zstd it cannot be derived.
impl Default for Decompressor {
    fn default() -> Self {
        Decompressor {
            #[cfg(feature = "zstd")]
            zstd: Mutex::new(Rank::Zstd, Vec::new()),
        }
    }
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decompressor")
    }
}

impl Decompressor {
    /// Decodes `payload` into `out`, which is emptied first. The length is checked before memory is
    /// allocated.
    pub(crate) fn decompress(
        &self,
        codec: Codec,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Decoded<()> {
        out.clear();
        if codec == Codec::None {
            out.extend_from_slice(payload);
            return Ok(());
        }
        codec.demand()?;
        let mut decoder = Decoder::new(payload);
        let claimed = decoder.varint()?;
        let packed = decoder.take(decoder.remaining())?;
        let len = match usize::try_from(claimed) {
            Ok(len) if len <= decoded_len_max(packed.len()) && packed.len() <= len => len,
            _ => {
                return Err(DecodeError::damaged(format!(
                    "a block of {} bytes claims to decode to {claimed}",
                    packed.len()
                )));
            }
        };
        out.resize(len, 0);
        let decoded = match codec {
            Codec::None => unreachable!("handled above"),
            #[cfg(feature = "lz4")]
            Codec::Lz4 => lz4::block::decompress_to_buffer(packed, Some(len as i32), out).ok(),
            #[cfg(feature = "zstd")]
            Codec::Zstd => self.decompress_zstd(packed, out),
            #[cfg(feature = "snappy")]
            Codec::Snappy => snap::raw::Decoder::new().decompress(packed, out).ok(),
            #[cfg(not(all(feature = "lz4", feature = "zstd", feature = "snappy")))]
            _ => None, // Refused above.
        };
        if decoded != Some(len) {
            return Err(DecodeError::damaged(format!("a block does not decode as {codec:?}")));
        }
        Ok(())
    }

    #[cfg(feature = "zstd")]
    fn decompress_zstd(&self, packed: &[u8], out: &mut [u8]) -> Option<usize> {
        let idle = self.zstd.lock().pop();
        let mut context = match idle {
            Some(context) => context,
            None => zstd::bulk::Decompressor::new().ok()?,
        };
        let decoded = context.decompress_to_buffer(packed, out).ok();
        self.zstd.lock().push(context);
        decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::put_varint;

    const ALL: [Codec; 4] = Codec::ALL;

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| crate::format::checksum64(&i.to_le_bytes()) as u8).collect()
    }

    #[test]
    fn every_codec_brings_back_what_it_was_given() {
        let mut compressor = Compressor::default();
        let decompressor = Decompressor::default();
        let mut out = Vec::new();
        for codec in ALL {
            for raw in [vec![], vec![1], vec![7; 5000], noise(5000), vec![0; 300_000], noise(3)] {
                let (stored_as, payload) = compressor.compress(codec, &raw);
                assert!(payload.len() <= raw.len());
                decompressor.decompress(stored_as, payload, &mut out).unwrap();
                assert_eq!(out, raw, "{codec:?}");
            }
        }
    }

    #[test]
    fn a_block_that_gains_less_than_an_eighth_is_stored_raw() {
        let mut compressor = Compressor::default();
        for codec in ALL {
            assert_eq!(compressor.compress(codec, &noise(4096)).0, Codec::None);
        }
        for codec in &ALL[1..] {
            let raw = [vec![0; 1024], noise(3072)].concat();
            let (stored_as, payload) = compressor.compress(*codec, &raw);
            assert_eq!(stored_as, *codec);
            assert!(payload.len() <= 3584);
        }
    }

    #[test]
    fn a_claimed_length_is_checked_before_it_is_allocated() {
        let decompressor = Decompressor::default();
        for codec in &ALL[1..] {
            let mut payload = Vec::new();
            put_varint(&mut payload, 1 << 40);
            payload.extend_from_slice(&[0; 100]);
            let mut out = Vec::new();
            assert!(decompressor.decompress(*codec, &payload, &mut out).is_err());
            assert_eq!(out.capacity(), 0);
        }
    }

    #[test]
    fn what_a_block_may_decode_to_is_bounded_by_what_is_stored() {
        let mib = 1 << 20;
        assert_eq!(decoded_len_max(0), 16 * mib);
        assert_eq!(decoded_len_max(65_536), 16 * mib);
        assert_eq!(decoded_len_max(65_537), 16 * mib + 256);
        assert_eq!(decoded_len_max(4 * mib), 1 << 30);
        assert_eq!(decoded_len_max(usize::MAX), 1 << 30);
        // Zeros would shrink by more than the bound allows, so they are stored uncompressed.
        let zeros = vec![0; 20 << 20];
        assert_eq!(Compressor::default().compress(Codec::Zstd, &zeros).0, Codec::None);
        let zeros = &zeros[..16 << 20];
        let mut compressor = Compressor::default();
        let (stored_as, payload) = compressor.compress(Codec::Zstd, zeros);
        assert_eq!(stored_as, Codec::Zstd);
        let (decompressor, mut out) = (Decompressor::default(), Vec::new());
        for _ in 0..2 {
            decompressor.decompress(Codec::Zstd, payload, &mut out).unwrap();
            assert!(out == zeros);
        }
        assert_eq!(decompressor.zstd.lock().len(), 1, "the second took what the first put back");
    }

    #[test]
    fn a_buffer_that_grew_is_given_back() {
        let mut compressor = Compressor::default();
        compressor.compress(Codec::Lz4, &vec![1; 80_000]);
        assert_eq!(compressor.buffer.len(), 70_000);
        compressor.trim(70_000);
        assert_eq!(compressor.buffer.len(), 70_000);
        compressor.trim(5000);
        assert_eq!(compressor.buffer.len(), 5000);
        assert!(compressor.buffer.capacity() < 10_000);
        assert_eq!(compressor.compress(Codec::Lz4, &[1; 900]).0, Codec::Lz4);
        assert_eq!(compressor.buffer.len(), 5000);
    }

    #[test]
    fn damaged_payloads_are_errors_and_never_wrong_lengths() {
        let mut compressor = Compressor::default();
        let decompressor = Decompressor::default();
        let raw: Vec<u8> = (0..4096u32).map(|i| (i / 64) as u8).collect();
        for codec in &ALL[1..] {
            let payload = compressor.compress(*codec, &raw).1.to_vec();
            for bit in 0..payload.len() * 8 {
                let mut bad = payload.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let mut out = Vec::new();
                let _ = decompressor.decompress(*codec, &bad, &mut out);
            }
            for len in 0..payload.len() {
                let mut out = Vec::new();
                assert!(decompressor.decompress(*codec, &payload[..len], &mut out).is_err());
            }
        }
    }

    #[test]
    fn names_in_options_are_lower_case() {
        for (codec, name) in ALL.iter().zip(["none", "lz4", "zstd", "snappy"]) {
            assert_eq!(codec.name(), name);
            let text = format!("{name:?}");
            assert_eq!(serde_json::from_str::<Codec>(&text).unwrap(), *codec);
        }
        assert!(Codec::from_byte(9).unwrap_err().is_newer_format());
    }
}
