//! Reads the file of one stream: as a whole, or from any place on.

use super::{Identity, Index, TAIL_LEN, Trailer};
use crate::error::{DecodeError, Decoded, Error, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind, Mark, StreamAddress};
use crate::table::{BlockFile, BlockHandle, Decompressor, check_within, decode_frame, open_frame};
use crate::vfs::ReadFile;
use std::sync::Arc;

/// Takes where a frame lies and what it has of the value.
type VisitFrame<'a> = &'a mut dyn FnMut(BlockHandle, Result<&[u8]>) -> Result<()>;

/// An open stream, and the frame that was read last. It holds two frames in memory, and eight bytes
/// for each frame of the value.
pub(crate) struct OpenStream {
    file: BlockFile,
    decompressor: Arc<Decompressor>,
    index: Index,
    value_len: u64,
    /// Which frame was read last, and where it lies; what it holds of the value.
    last: Option<(usize, BlockHandle)>,
    frame: Vec<u8>,
    stored: Vec<u8>,
}

impl OpenStream {
    /// Opens the stream at an address, in its file: reads the end of the file and its index.
    pub(crate) fn open(
        file: Arc<dyn ReadFile>,
        decompressor: Arc<Decompressor>,
        address: &StreamAddress,
    ) -> Result<OpenStream> {
        let (header, trailer) = check_end(&*file, address)?;
        let (mut stored, file) = (Vec::new(), BlockFile::new(file, header.salt));
        read_stored(&*file, trailer.index, &mut stored)?;
        let index = decode_index(&stored, file.mark(trailer.index.offset), &trailer)
            .map_err(|error| error.in_file(file.path(), trailer.index.offset))?;
        // That of the index may be much longer than a frame.
        let (value_len, frame, stored) = (trailer.value_len, Vec::new(), Vec::new());
        Ok(OpenStream { file, decompressor, index, value_len, last: None, frame, stored })
    }

    /// The length of the value.
    pub(crate) fn len(&self) -> u64 {
        self.value_len
    }

    /// What the value has from `at` on: not nothing, unless it ends there, and no more than a
    /// frame.
    pub(crate) fn read_from(&mut self, at: u64) -> Result<&[u8]> {
        if at >= self.value_len {
            return Ok(&[]);
        }
        let frame_len = self.index.frame_len as u64;
        self.load((at / frame_len) as usize)?;
        Ok(&self.frame[(at % frame_len) as usize..])
    }

    /// Visits all frames in their order: where each lies, and what it has of the value.
    pub(crate) fn each_frame(&mut self, visit: VisitFrame<'_>) -> Result<()> {
        let mut handle = self.index.handle(0);
        for nth in 0..self.index.lens.len() {
            handle.len = self.index.lens[nth];
            let loaded = self.load(nth);
            visit(handle, loaded.map(|()| &*self.frame))?;
            handle.offset += u64::from(handle.len);
        }
        Ok(())
    }

    /// Appends the whole value to `out`.
    pub(crate) fn read_all(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.each_frame(&mut |_, frame| {
            out.extend_from_slice(frame?);
            Ok(())
        })
    }

    /// Reads all frames, and tells of each how long it is in the file.
    pub(crate) fn check(&mut self, advance: &mut dyn FnMut(u64)) -> Result<()> {
        self.each_frame(&mut |handle, frame| {
            advance(u64::from(handle.len));
            frame.map(drop)
        })
    }

    /// Reads a frame, unless it is the one that was read last.
    fn load(&mut self, nth: usize) -> Result<()> {
        let handle = match self.last.take() {
            Some((last, handle)) if last == nth => {
                self.last = Some((nth, handle));
                return Ok(());
            }
            Some((last, handle)) if last + 1 == nth => {
                let offset = handle.offset + u64::from(handle.len);
                BlockHandle { offset, len: self.index.lens[nth] }
            }
            _ => self.index.handle(nth),
        };
        debug_assert_eq!(handle, self.index.handle(nth));
        read_stored(&*self.file, handle, &mut self.stored)?;
        self.decode(nth, handle).map_err(|error| error.in_file(self.file.path(), handle.offset))?;
        self.last = Some((nth, handle));
        Ok(())
    }

    fn decode(&mut self, nth: usize, handle: BlockHandle) -> Decoded<()> {
        let mark = self.file.mark(handle.offset);
        decode_frame(&self.stored, mark, &self.decompressor, &mut self.frame)?;
        if low_check(&self.stored) != Some(self.index.checks[nth]) {
            return Err(DecodeError::damaged("a frame is of another stream"));
        }
        let frame_len = self.index.frame_len as u64;
        let len = frame_len.min(self.value_len - nth as u64 * frame_len);
        match self.frame.len() as u64 == len {
            true => Ok(()),
            false => Err(DecodeError::damaged("a frame of a stream has another length")),
        }
    }
}

/// The low half of the checksum of a stored frame.
fn low_check(stored: &[u8]) -> Option<u32> {
    let at = stored.len().checked_sub(8)?;
    Some(u32::from_le_bytes(*stored[at..].first_chunk()?))
}

fn decode_index(stored: &[u8], mark: Mark, trailer: &Trailer) -> Decoded<Index> {
    let (_, payload) = open_frame(stored, mark)?;
    Index::decode(payload, trailer.value_len, trailer.index.offset)
}

fn read_stored(file: &dyn ReadFile, handle: BlockHandle, out: &mut Vec<u8>) -> Result<()> {
    check_within(file, handle)?;
    out.resize(handle.len as usize, 0);
    file.read_at(handle.offset, out).map_err(|error| error.at_offset(handle.offset))
}

/// Checks that the file is the one of the address, and whole. Frames are not read.
pub(crate) fn check_stream(file: &dyn ReadFile, address: &StreamAddress) -> Result<()> {
    check_end(file, address).map(drop)
}

/// What a file ends with, if it is a stream: its address, and where its index begins.
pub(crate) fn end_of_stream(file: &dyn ReadFile) -> Option<(StreamAddress, u64)> {
    let mut header = [0; FILE_HEADER_LEN];
    file.read_at(0, &mut header).ok()?;
    let header = FileHeader::decode(&header, FileKind::Blob).ok()?;
    let (tail_at, mut tail) = (file.len().checked_sub(TAIL_LEN as u64)?, [0; TAIL_LEN]);
    file.read_at(tail_at, &mut tail).ok()?;
    let trailer = Trailer::decode(&tail, file.len(), (header.uuid, header.number)).ok()?;
    let Trailer { index, value_len, checksum } = trailer;
    let (file, file_len) = (header.number, file.len());
    Some((StreamAddress { file, value_len, file_len, checksum }, index.offset))
}

/// True if the file ends as a stream of this identity does, whatever it begins with.
pub(crate) fn ends_as_stream(file: &dyn ReadFile, of: Identity) -> Result<bool> {
    let Some(tail_at) = file.len().checked_sub(TAIL_LEN as u64) else { return Ok(false) };
    let mut tail = [0; TAIL_LEN];
    file.read_at(tail_at, &mut tail)?;
    Ok(Trailer::decode(&tail, file.len(), of).is_ok())
}

fn check_end(file: &dyn ReadFile, address: &StreamAddress) -> Result<(FileHeader, Trailer)> {
    let path = file.path();
    let wrong = |offset, detail: &str| Err(Error::corruption(path, offset, detail));
    if file.len() != address.file_len {
        let detail =
            format!("the file of a stream has {} bytes, not {}", file.len(), address.file_len);
        return wrong(file.len().min(address.file_len), &detail);
    }
    let Some(tail_at) = file.len().checked_sub((TAIL_LEN + FILE_HEADER_LEN) as u64) else {
        return wrong(0, "the file of a stream is too short for one");
    };
    let mut header = [0; FILE_HEADER_LEN];
    file.read_at(0, &mut header)?;
    let header =
        FileHeader::decode(&header, FileKind::Blob).map_err(|error| error.in_file(path, 0))?;
    if header.number != address.file {
        return wrong(0, "the file of a stream is another one");
    }
    let (tail_at, mut tail) = (tail_at + FILE_HEADER_LEN as u64, [0; TAIL_LEN]);
    file.read_at(tail_at, &mut tail)?;
    let of: Identity = (header.uuid, header.number);
    let trailer =
        Trailer::decode(&tail, file.len(), of).map_err(|error| error.in_file(path, tail_at))?;
    match trailer.checksum == address.checksum && trailer.value_len == address.value_len {
        true => Ok((header, trailer)),
        false => wrong(tail_at, "the file holds another stream than its address says"),
    }
}
