//! Reads values as they are stored, ahead.
//!
//! A job asks for the values of a blob file by ascending keys, and that is how they lie there. So
//! what lies behind a value is read with it: as much more each time as was of use the last time.

use super::reader::{address_of, handle_of};
use crate::error::Result;
use crate::format::Address;
use crate::mvcc::Entry;
use crate::table::{Codec, TableContext, check_within, open_frame};
use crate::vfs::ReadFile;
use std::collections::BTreeMap;

/// Bytes that are read at once, at first and at most.
const WINDOW_FIRST: usize = 16 << 10;
const WINDOW_MAX: usize = 256 << 10;
/// The windows of all files together take no more, as long as a file has the least window.
const WINDOWS_BYTES: usize = 16 << 20;
const WINDOW_MIN: usize = 4 << 10;
/// A window was of use if at least one part in so many of it was asked for.
const USE_SHARE: usize = 3;

pub(super) struct ReadAhead {
    windows: BTreeMap<u64, Window>,
    window_max: usize,
}

/// What was read last of a file.
struct Window {
    offset: u64,
    bytes: Vec<u8>,
    used: usize,
    /// How much to read the next time.
    next_len: usize,
}

impl ReadAhead {
    /// For values of about so many files.
    pub(super) fn new(files: usize) -> ReadAhead {
        let window_max = (WINDOWS_BYTES / files.max(1)).clamp(WINDOW_MIN, WINDOW_MAX);
        ReadAhead { windows: BTreeMap::new(), window_max }
    }

    /// Reads the value of an entry and checks it: what its codec has left.
    pub(super) fn read(
        &mut self,
        tables: &TableContext,
        entry: &Entry<'_>,
    ) -> Result<(Address, Codec, &[u8])> {
        let address = address_of(tables, entry)?;
        let file = tables.files.get_blob(address.file).map_err(|error| error.for_key(entry.key))?;
        let next_len = WINDOW_FIRST.min(self.window_max);
        let first = || Window { offset: 0, bytes: Vec::new(), used: 0, next_len };
        let window = self.windows.entry(address.file).or_insert_with(first);
        let frame = window
            .frame(&*file, &address, self.window_max)
            .and_then(|frame| {
                open_frame(frame, address.offset)
                    .map_err(|error| error.in_file(file.path(), address.offset))
            })
            .map_err(|error| error.for_key(entry.key))?;
        Ok((address, frame.0, frame.1))
    }
}

impl Window {
    fn frame(&mut self, file: &dyn ReadFile, address: &Address, most: usize) -> Result<&[u8]> {
        let len = address.stored_len as usize;
        let at = match self.place_of(address) {
            Some(at) => at,
            None => {
                self.fill(file, address, most)?;
                0
            }
        };
        self.used += len;
        Ok(&self.bytes[at..at + len])
    }

    /// Where in the window the value lies, if it does as a whole.
    fn place_of(&self, address: &Address) -> Option<usize> {
        let at = usize::try_from(address.offset.checked_sub(self.offset)?).ok()?;
        let end = at.checked_add(address.stored_len as usize)?;
        (end <= self.bytes.len()).then_some(at)
    }

    fn fill(&mut self, file: &dyn ReadFile, address: &Address, most: usize) -> Result<()> {
        check_within(file, handle_of(address))?;
        self.next_len = match self.bytes.len() / USE_SHARE {
            0 => self.next_len,
            share if self.used >= share => (self.next_len * 2).min(most),
            _ => (self.next_len / 2).max(WINDOW_MIN),
        };
        let len = address.stored_len as usize;
        let behind = usize::try_from(file.len() - address.offset).unwrap_or(usize::MAX);
        let ahead = len.max(self.next_len).min(behind);
        (self.offset, self.used) = (address.offset, 0);
        self.bytes.resize(ahead, 0);
        if file.read_at(address.offset, &mut self.bytes).is_err() {
            // What lies behind the value is no reason to fail.
            self.bytes.resize(len, 0);
            let read = file.read_at(address.offset, &mut self.bytes);
            read.inspect_err(|_| self.bytes.clear())?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::vfs::{FileAccess, FileSystem, MemoryFs};
    use std::path::Path;

    #[test]
    fn a_window_is_longer_after_one_that_was_of_use_and_shorter_after_another() {
        let (fs, path) = (MemoryFs::new(), Path::new("/blob"));
        let mut out = fs.create(path).unwrap();
        out.append(&vec![7; 1 << 20]).unwrap();
        out.flush().unwrap();
        let file = fs.open_read(path, FileAccess::Positional).unwrap();
        let mut window = Window { offset: 0, bytes: Vec::new(), used: 0, next_len: WINDOW_FIRST };
        let mut len_at = |offset| {
            let address = Address { file: 1, offset, stored_len: 1000, value_len: 1000 };
            assert_eq!(window.frame(&*file, &address, WINDOW_MAX).unwrap(), [7; 1000]);
            window.bytes.len()
        };
        let of_all: Vec<_> = (0..100).map(|nth| len_at(nth * 1000)).collect();
        assert_eq!((of_all[0], of_all[99]), (WINDOW_FIRST, 4 * WINDOW_FIRST));
        let of_few = [300, 500, 700, 900].map(|nth| len_at(nth * 1000));
        assert_eq!(of_few, [8, 4, 2, 1].map(|share| share * WINDOW_FIRST));
    }
}
