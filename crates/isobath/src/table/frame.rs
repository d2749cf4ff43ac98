//! The form of a block on disk, and the only way to read blocks of a table file.
//!
//! ```text
//! payload   as the codec left it
//! codec     u8: 0 none, 1 LZ4, 2 Zstandard, 3 Snappy
//! checksum  u64: XXH3-64 of payload and codec, xor (offset of the payload in the file × an odd constant),
//!           xor the file's salt
//! ```
//!
//! The checksum is verified at every read from disk, before anything is decoded. The offset in it
//! detects a block that was written to, or read from, the wrong place. The salt is XXH3-64 of the
//! database's UUID and the file's number. It detects a block of another file. Files without the
//! feature bit in their headers have none.

use super::BlockHandle;
use super::block_file::BlockFile;
use super::codec::{Codec, Decompressor};
use crate::env::{Plant, planted, with_scratch};
use crate::error::{DecodeError, Decoded, Error, Result};
use crate::format::{Mark, RunningChecksum, Salt, checksum64};
use crate::vfs::{ReadFile, len_in_memory};

/// Stored blocks up to this length are read into a buffer that the thread keeps.
const SCRATCH_LEN_MAX: usize = 64 << 10;

/// So much of a file is in memory while a block is looked for there.
const FIND_PIECE_LEN: usize = 64 << 10;

/// The length of codec and checksum.
pub(crate) const TRAILER_LEN: usize = 9;

/// Appends a stored block to `out`. Its first byte will lie at `mark`.
pub(crate) fn put_frame(out: &mut Vec<u8>, codec: Codec, payload: &[u8], mark: Mark) {
    let start = out.len();
    out.reserve(payload.len() + TRAILER_LEN);
    out.extend_from_slice(payload);
    out.push(codec as u8);
    let checksum = mark.checksum(checksum64(&out[start..]));
    out.extend_from_slice(&checksum.to_le_bytes());
    debug_assert!(
        open_frame(&out[start..], mark).is_ok_and(|opened| opened == (codec, payload)),
        "a block's frame cannot be opened"
    );
}

/// Appends what follows the payload of a stored block, which lies elsewhere. Its first byte will
/// lie at `mark`.
pub(crate) fn put_trailer(out: &mut Vec<u8>, codec: Codec, payload: &[u8], mark: Mark) {
    out.push(codec as u8);
    out.extend_from_slice(&checksum_of(codec, payload, mark).to_le_bytes());
}

/// The checksum of a stored block whose first byte lies at `mark`.
pub(super) fn checksum_of(codec: Codec, payload: &[u8], mark: Mark) -> u64 {
    let mut running = RunningChecksum::new();
    running.add(payload);
    running.add(&[codec as u8]);
    mark.checksum(running.value())
}

/// True if these bytes end with the checksum of a block at `mark`.
pub(crate) fn has_checksum(stored: &[u8], mark: Mark) -> bool {
    let Some((body, checksum)) = stored.split_last_chunk::<8>() else { return false };
    !body.is_empty() && mark.checksum(checksum64(body)).to_le_bytes() == *checksum
}

/// The one salt with which these bytes are a whole block at `offset`.
pub(super) fn salt_of(stored: &[u8], offset: u64) -> Option<Salt> {
    let (body, checksum) = stored.split_last_chunk::<8>()?;
    Some(Salt::between(checksum64(body), u64::from_le_bytes(*checksum), offset))
}

/// Checks a stored block and splits it into codec and payload.
pub(crate) fn open_frame(stored: &[u8], mark: Mark) -> Decoded<(Codec, &[u8])> {
    let Some(checksum_at) = stored.len().checked_sub(8).filter(|&at| at > 0) else {
        return Err(DecodeError::damaged("a block is shorter than its trailer"));
    };
    let body = &stored[..checksum_at];
    if !has_checksum(stored, mark) && !planted(Plant::BlockChecksumSkipped) {
        return Err(DecodeError::damaged("a block's checksum does not match"));
    }
    let (codec, payload) = body.split_last().expect("checked to be there");
    Ok((Codec::from_byte(*codec)?, payload))
}

/// The length of the stored block that begins at `offset` of a file with these bytes, found by
/// trying: the smallest length, up to `len_max`, at which the checksum fits. `None` if no length
/// fits: the block is damaged, or no block begins there.
pub(crate) fn find_frame(bytes: &[u8], salt: Salt, offset: usize, len_max: usize) -> Option<usize> {
    let end = bytes.len().min(offset.saturating_add(len_max));
    let mark = salt.mark(offset as u64);
    let mut running = RunningChecksum::new();
    let mut added_to = offset;
    for codec_at in offset..end.saturating_sub(8) {
        if Codec::from_byte(bytes[codec_at]).is_err() {
            continue;
        }
        running.add(&bytes[added_to..=codec_at]);
        added_to = codec_at + 1;
        let stored = bytes[added_to..].first_chunk().expect("8 bytes follow");
        if mark.checksum(running.value()) == u64::from_le_bytes(*stored) {
            return Some(added_to + 8 - offset);
        }
    }
    None
}

/// Like [`find_frame`] in a file, of which a piece at a time is in memory.
pub(crate) fn find_frame_in(file: &BlockFile, offset: u64, len_max: u64) -> Result<Option<u64>> {
    let end = file.len().min(offset.saturating_add(len_max));
    let mark = file.mark(offset);
    let mut running = RunningChecksum::new();
    let (mut piece, mut at) = (Vec::new(), offset);
    // What follows a codec may be its checksum.
    while end.saturating_sub(at) > 8 {
        let codecs = (end - at - 8).min(FIND_PIECE_LEN as u64) as usize;
        piece.resize(codecs + 8, 0);
        file.read_at(at, &mut piece)?;
        let mut added_to = 0;
        for codec_at in 0..codecs {
            if Codec::from_byte(piece[codec_at]).is_err() {
                continue;
            }
            running.add(&piece[added_to..=codec_at]);
            added_to = codec_at + 1;
            let stored = piece[added_to..].first_chunk().expect("8 bytes follow");
            if mark.checksum(running.value()) == u64::from_le_bytes(*stored) {
                return Ok(Some(at + added_to as u64 + 8 - offset));
            }
        }
        running.add(&piece[added_to..codecs]);
        at += codecs as u64;
    }
    Ok(None)
}

/// Reads, checks and decodes the block at `handle` into `out`, whose capacity is reused. Errors
/// name the file and the offset. The bytes are copied out of the file once. So exactly the verified
/// bytes are decoded, even if another program writes to the file in the meantime.
pub(crate) fn read_block(
    file: &BlockFile,
    handle: BlockHandle,
    decompressor: &Decompressor,
    out: &mut Vec<u8>,
) -> Result<()> {
    check_within(&**file, handle)?;
    let (len, mark) = (handle.len as usize, file.mark(handle.offset));
    let placed = |error: DecodeError| error.in_file(file.path(), handle.offset);
    if len <= SCRATCH_LEN_MAX {
        return with_scratch(|stored| {
            stored.resize(len, 0);
            file.read_at(handle.offset, stored)?;
            decode_frame(stored, mark, decompressor, out).map_err(placed)
        });
    }
    out.clear();
    out.resize(len, 0);
    file.read_at(handle.offset, out)?;
    decode_owned(mark, decompressor, out).map_err(placed)
}

/// Checks and decodes stored bytes that are in another buffer.
pub(crate) fn decode_frame(
    stored: &[u8],
    mark: Mark,
    decompressor: &Decompressor,
    out: &mut Vec<u8>,
) -> Decoded<()> {
    let (codec, payload) = open_frame(stored, mark)?;
    decompressor.decompress(codec, payload, out)
}

/// Checks and decodes stored bytes in place, so that a large raw block is not copied again.
fn decode_owned(mark: Mark, decompressor: &Decompressor, out: &mut Vec<u8>) -> Decoded<()> {
    let (codec, payload) = open_frame(out, mark)?;
    if codec == Codec::None {
        let payload_len = payload.len();
        out.truncate(payload_len);
        return Ok(());
    }
    let mut decoded = Vec::new();
    decompressor.decompress(codec, payload, &mut decoded)?;
    *out = decoded;
    Ok(())
}

/// Refuses a handle that points outside the file, before memory is allocated for it.
pub(crate) fn check_within(file: &dyn ReadFile, handle: BlockHandle) -> Result<()> {
    match handle.offset.checked_add(u64::from(handle.len)) {
        Some(end) if end <= file.len() => {
            len_in_memory(u64::from(handle.len), file.path()).map(drop)
        }
        _ => Err(Error::corruption(
            file.path(),
            handle.offset,
            format!(
                "a block of {} bytes runs past the end of the file ({} bytes)",
                handle.len,
                file.len()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::sync::Mutex;
    use crate::table::codec::Compressor;
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn golden_bytes_hold() {
        let mut out = Vec::new();
        put_frame(&mut out, Codec::None, b"isobath", Salt::NONE.mark(128));
        assert_eq!(&out[..8], b"isobath\0");
        assert_eq!(&out[8..], 0x9a37_9f4f_21e1_4b39_u64.to_le_bytes());
    }

    #[test]
    fn a_block_is_found_by_where_it_begins() {
        let mut file = vec![7; 100];
        for payload in [&b"first"[..], &[0; 300], b""] {
            let at = file.len();
            put_frame(&mut file, Codec::None, payload, Salt::NONE.mark(at as u64));
            assert_eq!(
                find_frame(&file, Salt::NONE, at, usize::MAX),
                Some(payload.len() + TRAILER_LEN)
            );
            assert_eq!(find_frame(&file, Salt::NONE, at, payload.len() + TRAILER_LEN - 1), None);
            assert_eq!(find_frame(&file, Salt::NONE, at + 1, usize::MAX), None);
        }
    }

    /// A file, and the longest read of it.
    struct Watched(Vec<u8>, Mutex<usize>);

    impl ReadFile for Watched {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
            let mut longest = self.1.lock();
            *longest = buf.len().max(*longest);
            Ok(())
        }
        fn is_mapped(&self) -> bool {
            false
        }
        fn len(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_ahead(&self, _: u64, _: u64) {}
        fn path(&self) -> &Path {
            Path::new("watched")
        }
    }

    #[test]
    fn a_block_is_found_in_a_file_as_in_its_bytes_and_by_pieces() {
        let text: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 / 3) as u8).collect();
        let lens = [0, 1, 300, FIND_PIECE_LEN - 1, FIND_PIECE_LEN, FIND_PIECE_LEN + 1, text.len()];
        let (mut bytes, salt) = (vec![7; 100], Salt::of([3; 16], 5));
        let mut places = Vec::new();
        for payload in lens.iter().map(|len| &text[..*len]).chain([&[0; 100_000][..]]) {
            places.push((bytes.len(), payload.len() + TRAILER_LEN));
            let at = bytes.len() as u64;
            put_frame(&mut bytes, Codec::None, payload, salt.mark(at));
        }
        let watched = Arc::new(Watched(bytes, Mutex::unranked(0)));
        let file = BlockFile::new(watched.clone(), salt);
        for (at, len) in places {
            let find = |at: usize, max: usize| {
                let found = find_frame_in(&file, at as u64, max as u64).unwrap();
                assert_eq!(found, find_frame(&watched.0, salt, at, max).map(|len| len as u64));
                found
            };
            assert_eq!(find(at, len), Some(len as u64));
            assert_eq!(find(at, usize::MAX), Some(len as u64));
            assert_eq!((find(at, len - 1), find(at, 0)), (None, None));
            find(at + 1, usize::MAX);
        }
        assert!(*watched.1.lock() <= FIND_PIECE_LEN + 8);
    }

    /// A file to which another program writes between two reads.
    struct Changing(Mutex<Vec<u8>>);

    impl ReadFile for Changing {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            let mut bytes = self.0.lock();
            buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]);
            bytes.fill(7);
            Ok(())
        }
        fn is_mapped(&self) -> bool {
            true
        }
        fn len(&self) -> u64 {
            self.0.lock().len() as u64
        }
        fn read_ahead(&self, _: u64, _: u64) {}
        fn path(&self) -> &Path {
            Path::new("changing")
        }
    }

    #[test]
    fn what_is_decoded_is_the_copy_that_was_verified() {
        for (codec, len) in [(Codec::None, 100), (Codec::Lz4, 5000), (Codec::None, 100_000)] {
            let raw = vec![3; len];
            let mut compressor = Compressor::default();
            let (codec, payload) = compressor.compress(codec, &raw);
            let mut stored = Vec::new();
            put_frame(&mut stored, codec, payload, Salt::NONE.mark(0));
            let handle = BlockHandle { offset: 0, len: stored.len() as u32 };
            let changing = Arc::new(Changing(Mutex::unranked(stored)));
            let file = BlockFile::new(changing, Salt::NONE);
            let mut out = Vec::new();
            read_block(&file, handle, &Decompressor::default(), &mut out).unwrap();
            assert_eq!(out, raw);
            let again = read_block(&file, handle, &Decompressor::default(), &mut out).unwrap_err();
            assert!(again.is_corruption(), "{again}");
        }
    }

    /// A file of zeros that cannot be read.
    struct Unreadable;

    impl ReadFile for Unreadable {
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Err(Error::closed())
        }
        fn is_mapped(&self) -> bool {
            false
        }
        fn len(&self) -> u64 {
            u64::MAX
        }
        fn read_ahead(&self, _: u64, _: u64) {}
        fn path(&self) -> &Path {
            Path::new("unreadable")
        }
    }

    #[test]
    fn a_failed_read_is_no_damage() {
        for len in [100, SCRATCH_LEN_MAX as u32, SCRATCH_LEN_MAX as u32 + 1] {
            let handle = BlockHandle { offset: 4096, len };
            let file = BlockFile::new(Arc::new(Unreadable), Salt::NONE);
            let failed = read_block(&file, handle, &Decompressor::default(), &mut Vec::new());
            assert!(failed.as_ref().is_err_and(Error::is_closed), "{len}: {failed:?}");
        }
    }

    #[test]
    fn damage_and_misplacement_are_noticed() {
        let (mut good, salt) = (Vec::new(), Salt::of([3; 16], 5));
        let mark = |offset| salt.mark(offset);
        put_frame(&mut good, Codec::Lz4, b"some payload", mark(4096));
        assert_eq!(open_frame(&good, mark(4096)).unwrap(), (Codec::Lz4, &b"some payload"[..]));
        assert!(open_frame(&good, mark(4097)).unwrap_err().is_damage());
        for other in [Salt::of([3; 16], 6), Salt::of([4; 16], 5), Salt::NONE] {
            assert!(open_frame(&good, other.mark(4096)).unwrap_err().is_damage());
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open_frame(&bad, mark(4096)).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(open_frame(&good[..len], mark(4096)).is_err());
        }
    }
}
