//! Reads values as they are stored, ahead.
//!
//! A job asks for the values of a blob file by ascending keys, and that is how they lie there. So
//! what lies behind a value is read with it: as much more each time as was of use the last time.
//!
//! The memory is bounded, whatever the number of files and the length of values: the windows of all
//! files together, and one value that is longer than a window. Below a ceiling for memory the job
//! has charged so much.

use super::reader::handle_of;
use crate::error::Result;
use crate::format::Address;
use crate::table::{Codec, TableContext, check_within, open_frame};
use crate::vfs::ReadFile;
use std::collections::BTreeMap;

/// Bytes that are read at once, at first and at most.
const WINDOW_FIRST: usize = 16 << 10;
const WINDOW_MAX: usize = 256 << 10;
/// The windows of all files together take no more, and below a ceiling less.
const WINDOWS_BYTES: usize = 16 << 20;
/// Room for a long value that is kept although the next one is shorter.
const LONG_KEPT: usize = 1 << 20;
const WINDOW_MIN: usize = 4 << 10;
/// A window was of use if at least one part in so many of it was asked for.
const USE_SHARE: usize = 3;

pub(super) struct ReadAhead {
    windows: BTreeMap<u64, Window>,
    window_max: usize,
    /// The most bytes of all windows.
    most: usize,
    /// Bytes of all windows.
    held: usize,
    /// Counts the values.
    turn: u64,
    /// The last value that was longer than a window.
    long: Vec<u8>,
}

/// What was read last of a file.
#[derive(Default)]
struct Window {
    offset: u64,
    bytes: Vec<u8>,
    used: usize,
    /// How much to read the next time.
    next_len: usize,
    /// When a value was last asked for.
    turn: u64,
}

impl ReadAhead {
    /// For values of about so many files.
    pub(super) fn new(files: usize) -> ReadAhead {
        ReadAhead::within(files, WINDOWS_BYTES)
    }

    /// The same for a job. Below a ceiling for memory it has charged what is read ahead.
    pub(super) fn below(files: usize, tables: &TableContext) -> ReadAhead {
        let most = tables.values_ahead().map_or(WINDOWS_BYTES, |most| most as usize);
        ReadAhead::within(files, most.min(WINDOWS_BYTES))
    }

    fn within(files: usize, most: usize) -> ReadAhead {
        // One that is being read may come beside all that may be kept.
        let window_max = (most / files.max(1)).clamp(WINDOW_MIN, WINDOW_MAX.min(most / 4));
        let windows = BTreeMap::new();
        ReadAhead { windows, window_max, most, held: 0, turn: 0, long: Vec::new() }
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    fn held_bytes(&self) -> usize {
        let windows = self.windows.values().map(|window| window.bytes.capacity());
        windows.sum::<usize>() + self.long.capacity()
    }

    /// Reads the value that lies at the address and checks it: what its codec has left.
    pub(super) fn read(
        &mut self,
        tables: &TableContext,
        address: &Address,
    ) -> Result<(Codec, &[u8])> {
        let file = tables.files.get_blob(address.file)?;
        let (mark, frame) = (file.mark(address.offset), self.frame(&*file, address)?);
        open_frame(frame, mark).map_err(|error| error.in_file(file.path(), address.offset))
    }

    fn frame(&mut self, file: &dyn ReadFile, address: &Address) -> Result<&[u8]> {
        let len = address.stored_len as usize;
        if len > self.window_max {
            check_within(file, handle_of(address))?;
            self.long.clear();
            self.long.shrink_to(len.max(LONG_KEPT));
            self.long.reserve_exact(len);
            self.long.resize(len, 0);
            file.read_at(address.offset, &mut self.long)?;
            return Ok(&self.long);
        }
        self.turn += 1;
        let next_len = WINDOW_FIRST.min(self.window_max);
        let first = || Window { next_len, ..Window::default() };
        let window = self.windows.entry(address.file).or_insert_with(first);
        window.turn = self.turn;
        if window.place_of(address).is_none() {
            self.held -= window.bytes.capacity();
            let filled = window.fill(file, address, self.window_max);
            self.held += window.bytes.capacity();
            filled?;
            self.make_room();
        }
        Ok(self.windows.get_mut(&address.file).map_or(&[], |window| window.take(address)))
    }

    /// Gives up the windows that were not used for longest, until the others take no more than they
    /// may.
    fn make_room(&mut self) {
        while self.held > self.most {
            let oldest = self.windows.iter().min_by_key(|(_, window)| window.turn);
            let Some(file) = oldest.map(|(file, _)| *file) else { return };
            self.held -= self.windows.remove(&file).map_or(0, |window| window.bytes.capacity());
        }
    }
}

impl Window {
    /// A value that lies in the window.
    fn take(&mut self, address: &Address) -> &[u8] {
        let (at, len) = (self.place_of(address).unwrap_or(0), address.stored_len as usize);
        self.used += len;
        &self.bytes[at..at + len]
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
    use super::super::writer::BlobWriter;
    use super::*;
    use crate::table::BlockCache;
    use crate::table::cache::{FileCache, table_path};
    use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};
    use std::path::Path;
    use std::sync::Arc;

    /// Writes so many blob files, each with values of so many bytes. Returns their addresses, file
    /// by file.
    fn written(fs: &MemoryFs, dir: &Path, files: u64, lens: &[usize]) -> Vec<Vec<Address>> {
        fs.create_dir_all(dir).unwrap();
        let write = |number: u64| {
            let file = fs.create(&table_path(dir, number)).unwrap();
            let mut writer = BlobWriter::create(file, [7; 16], number).unwrap();
            let add = |len: &usize| writer.add((Codec::None, &vec![9; *len]), *len).unwrap();
            let addresses = lens.iter().map(add).collect();
            writer.finish().unwrap();
            addresses
        };
        (1..=files).map(write).collect()
    }

    /// The memory that it takes at most to read the values of these files in turns.
    fn most_held(ahead: &mut ReadAhead, files: u64, lens: &[usize]) -> usize {
        let (fs, dir) = (MemoryFs::new(), Path::new("/blobs"));
        let addresses = written(&fs, dir, files, lens);
        let open = FileCache::new(Arc::new(fs), dir.into(), FileAccess::Positional, 512);
        let tables = TableContext::new(Arc::new(open), BlockCache::new(0));
        let mut most = 0;
        for nth in 0..lens.len() {
            for of_file in &addresses {
                let (_, payload) = ahead.read(&tables, &of_file[nth]).unwrap();
                assert!(*payload == vec![9; lens[nth]]);
                most = most.max(ahead.held_bytes());
            }
        }
        most
    }

    #[test]
    fn values_longer_than_a_window_take_the_memory_of_one() {
        let most = most_held(&mut ReadAhead::new(40), 40, &[1 << 20, 3 << 20, 5000, 1 << 20]);
        assert!(most < WINDOWS_BYTES / 2, "{most}");
    }

    #[test]
    fn files_that_were_not_expected_take_no_more_memory_than_all_may() {
        let most = most_held(&mut ReadAhead::new(1), 150, &[60 << 10; 8]);
        assert!((WINDOWS_BYTES / 2..=WINDOWS_BYTES).contains(&most), "{most}");
    }

    #[test]
    fn what_is_charged_bounds_all_windows() {
        for files in [1, 40] {
            let most = most_held(&mut ReadAhead::within(files, 200 << 10), 40, &[3 << 10; 60]);
            assert!((100 << 10..=200 << 10).contains(&most), "{most}");
        }
    }

    /// A file of a mebibyte.
    fn sevens() -> (MemoryFs, Arc<dyn ReadFile>) {
        let (fs, path) = (MemoryFs::new(), Path::new("/blob"));
        let mut out = fs.create(path).unwrap();
        out.append(&vec![7; 1 << 20]).unwrap();
        out.flush().unwrap();
        let file = fs.open_read(path, FileAccess::Positional).unwrap();
        (fs, file)
    }

    #[test]
    fn a_value_is_read_although_what_lies_behind_it_cannot_be() {
        let (fs, file) = sevens();
        fs.inject(Fault::on(FileOp::Read).suffix("/blob"));
        let mut ahead = ReadAhead::new(1);
        let address = Address { file: 1, offset: 0, stored_len: 1000, value_len: 1000 };
        assert_eq!(ahead.frame(&*file, &address).unwrap(), [7; 1000]);
        assert_eq!(ahead.windows[&1].bytes.len(), 1000);
    }

    #[test]
    fn a_window_is_longer_after_one_that_was_of_use_and_shorter_after_another() {
        let (_fs, file) = sevens();
        let mut ahead = ReadAhead::new(1);
        let mut len_at = |offset| {
            let address = Address { file: 1, offset, stored_len: 1000, value_len: 1000 };
            assert_eq!(ahead.frame(&*file, &address).unwrap(), [7; 1000]);
            ahead.windows[&1].bytes.len()
        };
        let of_all: Vec<_> = (0..100).map(|nth| len_at(nth * 1000)).collect();
        assert_eq!((of_all[0], of_all[99]), (WINDOW_FIRST, 4 * WINDOW_FIRST));
        let of_few = [300, 500, 700, 900].map(|nth| len_at(nth * 1000));
        assert_eq!(of_few, [8, 4, 2, 1].map(|share| share * WINDOW_FIRST));
    }
}
