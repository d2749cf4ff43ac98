//! Writes the file of one stream, as the bytes of the value come.

use super::{FRAME_LEN_MAX, Identity, Index, TRAILER_LEN, Trailer};
use crate::env::{Plant, planted};
use crate::error::{Error, Result};
use crate::format::{FileHeader, FileKind, StreamAddress};
use crate::limits::MAX_STREAM_LEN;
use crate::table::{Codec, Compressor, Output};
use crate::vfs::WriteFile;

/// It holds two frames in memory, and eight bytes for each frame that is written. After an error
/// the file is useless: drop the writer and remove the file.
pub(crate) struct StreamWriter {
    of: Identity,
    out: Output,
    codec: Codec,
    compressor: Compressor,
    index: Index,
    /// Bytes of the value that are in no frame yet.
    frame: Vec<u8>,
    value_len: u64,
}

impl StreamWriter {
    /// Begins a stream in a new, empty file, with frames of `frame_len` bytes of it.
    pub(crate) fn create(
        file: Box<dyn WriteFile>,
        (uuid, number): Identity,
        (codec, frame_len): (Codec, usize),
    ) -> Result<StreamWriter> {
        debug_assert!((1..=FRAME_LEN_MAX).contains(&(frame_len as u64)));
        let out = Output::begin(file, &FileHeader::new(FileKind::Blob, uuid, number))?;
        Ok(StreamWriter {
            of: (uuid, number),
            out,
            codec,
            compressor: Compressor::default(),
            index: Index { frame_len, ..Index::default() },
            frame: Vec::new(),
            value_len: 0,
        })
    }

    /// Appends bytes to the value. Nothing was written if they are too many.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        check_len(self.value_len, bytes.len())?;
        self.value_len += bytes.len() as u64;
        let (mut left, frame_len) = (bytes, self.index.frame_len);
        while !left.is_empty() {
            if self.frame.is_empty() && left.len() >= frame_len {
                let (frame, behind) = left.split_at(frame_len);
                self.put_frame(frame)?;
                left = behind;
                continue;
            }
            let room = frame_len - self.frame.len();
            let (taken, behind) = left.split_at(room.min(left.len()));
            self.frame.extend_from_slice(taken);
            left = behind;
            if self.frame.len() == frame_len {
                self.put_held()?;
            }
        }
        Ok(())
    }

    /// Writes what is held of the value as a frame.
    fn put_held(&mut self) -> Result<()> {
        let mut frame = std::mem::take(&mut self.frame);
        self.put_frame(&frame)?;
        frame.clear();
        self.frame = frame;
        Ok(())
    }

    fn put_frame(&mut self, raw: &[u8]) -> Result<()> {
        debug_assert!(raw.len() <= self.index.frame_len, "a frame is longer than others");
        let (codec, payload) = self.compressor.compress(self.codec, raw);
        let check = self.out.checksum_of(codec, payload);
        let handle = self.out.put_block(codec, payload)?;
        self.index.lens.push(handle.len);
        self.index.checks.push(check as u32);
        Ok(())
    }

    /// Ends the file and syncs it. Its name survives power loss only after a sync of its directory.
    pub(crate) fn finish(mut self) -> Result<StreamAddress> {
        if !self.frame.is_empty() {
            self.put_held()?;
        }
        let payload = self.index.encode();
        let check = self.out.checksum_of(Codec::None, &payload);
        let handle = self.out.put_block(Codec::None, &payload)?;
        let trailer = Trailer::new(handle, self.value_len, check, self.of);
        self.out.put_raw(&trailer.encode())?;
        let file_len = self.out.finish_unless(planted(Plant::StreamNotSynced))?;
        debug_assert_eq!(file_len, handle.offset + u64::from(handle.len) + TRAILER_LEN);
        let (file, value_len, checksum) = (self.of.1, self.value_len, trailer.checksum);
        Ok(StreamAddress { file, value_len, file_len, checksum })
    }
}

/// An error if a stream of so many bytes cannot take so many more.
pub(crate) fn check_len(held: u64, more: usize) -> Result<()> {
    if held.saturating_add(more as u64) > MAX_STREAM_LEN {
        return Err(Error::invalid_argument(format!(
            "a stream may have at most {MAX_STREAM_LEN} bytes, and this one has {held} and gets {more}"
        )));
    }
    Ok(())
}
