//! Values that a scan asks for one after the other.
//!
//! The first value of a scan in a file is read alone. If the next one lies near it, in either
//! direction, the scan reads values, and what lies beyond is read with them: by the rules of blocks
//! (`table/read_ahead.rs`), in the same windows, and with the same bounds for what a scan keeps.
//! Where the next values lie in other files, each file is followed by itself. Once most of what
//! lies between values is of no use, because it is garbage or not in the scan's order, the scan
//! begins anew in that file.

use super::reader::{Fetcher, address_of, end_of, handle_of, told};
use crate::env::{Reach, reached};
use crate::error::Result;
use crate::format::{Address, FILE_HEADER_LEN};
use crate::memory::Charge;
use crate::mvcc::Entry;
use crate::table::{
    BlockHandle, Direction, PinnedValue, READER_CHUNK_LEN, ReadAhead, UsualScan, check_within,
};
use crate::vfs::ReadFile;
use std::ops::Range;

/// So many files are followed at once, so a scan keeps at most so many chunks.
const FILES_MAX: usize = 8;
/// A value is near the one before it if no more than this lies between them.
const NEAR_MAX: u64 = 16 << 10;
/// Reading ahead is of use if at least one byte in so many is asked for.
const USE_SHARE: u64 = 3;

/// What one scan has read ahead.
#[derive(Default)]
pub(crate) struct ScanAhead {
    /// The file that was read last comes last.
    tracks: Vec<Track>,
}

/// How a scan goes through one file.
struct Track {
    file: u64,
    ahead: ReadAhead,
    /// Where the value that was asked for last lies.
    last: Range<u64>,
    /// Bytes that were asked for since the scan began in this file or began anew, and bytes that it
    /// has passed.
    used: u64,
    passed: u64,
    chunk: Vec<u8>,
    chunk_offset: u64,
    /// For the chunk.
    charge: Option<Charge>,
}

impl ScanAhead {
    /// The value of the entry to which the scan has come.
    pub(crate) fn fetch(
        &mut self,
        fetcher: &Fetcher<'_>,
        entry: &Entry<'_>,
    ) -> Result<PinnedValue> {
        if entry.kind.is_streamed() {
            return fetcher.fetch(entry);
        }
        let address = address_of(fetcher.tables, entry)?;
        let track = self.track_to(&address);
        match fetcher.ask(&address) {
            Some(value) => Ok(value),
            None => track.read(fetcher, &address).map_err(|error| told(error, &address, entry.key)),
        }
    }

    /// The track of the address's file, which goes on to the address.
    fn track_to(&mut self, address: &Address) -> &mut Track {
        let known = self.tracks.iter().position(|track| track.file == address.file);
        let track = match known {
            Some(at) => {
                let mut track = self.tracks.remove(at);
                track.go_to(address);
                track
            }
            None => {
                if self.tracks.len() >= FILES_MAX {
                    self.tracks.remove(0);
                }
                Track::at(address)
            }
        };
        self.tracks.push(track);
        debug_assert!(self.tracks.len() <= FILES_MAX, "a scan keeps more than it may");
        let last = self.tracks.len() - 1;
        &mut self.tracks[last]
    }
}

impl Track {
    fn at(address: &Address) -> Track {
        let last = address.offset..end_of(address);
        let len = last.end - last.start;
        let (ahead, chunk) = (ReadAhead::new(), Vec::new());
        let (file, used, passed) = (address.file, len, len);
        Track { file, ahead, last, used, passed, chunk, chunk_offset: 0, charge: None }
    }

    fn go_to(&mut self, address: &Address) {
        let own = address.offset..end_of(address);
        let len = own.end - own.start;
        let (direction, gap) = match own.start >= self.last.end {
            true => (Direction::Forward, own.start - self.last.end),
            false => (Direction::Backward, self.last.start.saturating_sub(own.end)),
        };
        self.used = self.used.saturating_add(len);
        self.passed = self.passed.saturating_add(len).saturating_add(gap);
        if gap <= NEAR_MAX && self.used.saturating_mul(USE_SHARE) >= self.passed {
            self.ahead.step(direction);
        } else {
            self.ahead.seek(direction);
            (self.used, self.passed) = (len, len);
        }
        self.last = own;
    }

    /// Reads the value to which the track has gone.
    fn read(&mut self, fetcher: &Fetcher<'_>, address: &Address) -> Result<PinnedValue> {
        let file = fetcher.tables.files.get_blob(address.file)?;
        let handle = handle_of(address);
        check_within(&*file, handle)?;
        if self.stored(handle).is_none() {
            self.read_ahead(fetcher, &*file, address);
        }
        if let Some(stored) = self.stored(handle)
            && let Ok(value) = fetcher.decode(stored, (file.mark(handle.offset), address))
        {
            reached(Reach::BlobValueAhead);
            return Ok(value);
        }
        // What lies beside the value may be unreadable, and not be asked for.
        fetcher.read(address)
    }

    /// Tells the file what the scan will come to, and reads a chunk with this value in it, if that
    /// is worth it.
    fn read_ahead(&mut self, fetcher: &Fetcher<'_>, file: &dyn ReadFile, address: &Address) {
        let handle = handle_of(address);
        let values = FILE_HEADER_LEN as u64..file.len();
        let window = self.ahead.wanted(handle, &UsualScan::default(), values);
        if let Some(window) = window
            && (file.is_mapped() || window.end - window.start > READER_CHUNK_LEN)
        {
            file.read_ahead(window.start, window.end - window.start);
        }
        if file.is_mapped() {
            return;
        }
        let Some(chunk) = self.ahead.chunk(handle, READER_CHUNK_LEN) else { return };
        let mut bytes = std::mem::take(&mut self.chunk);
        let len = chunk.end - chunk.start;
        if len > bytes.capacity() as u64 {
            (bytes, self.charge) = (Vec::new(), None);
            // Without memory to read ahead, values are read one by one.
            let Ok(charge) = fetcher.tables.charge_read(len) else { return };
            self.charge = charge;
            bytes.reserve_exact(len as usize);
        }
        bytes.resize(len as usize, 0);
        fetcher.note_read(address, chunk.end - chunk.start);
        if file.read_at(chunk.start, &mut bytes).is_ok() {
            (self.chunk, self.chunk_offset) = (bytes, chunk.start);
        }
    }

    /// The stored bytes of the value, if the chunk has them.
    fn stored(&self, handle: BlockHandle) -> Option<&[u8]> {
        let at = usize::try_from(handle.offset.checked_sub(self.chunk_offset)?).ok()?;
        self.chunk.get(at..at.checked_add(handle.len as usize)?)
    }
}
