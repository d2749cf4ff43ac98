//! Damage that checksums do not notice, for tests of code that reads tables.

use super::block::{Block, RawEntry};
use super::frame::{find_frame, open_frame};
use super::output::Output;
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind};
use crate::vfs::{FileAccess, FileSystem, MemoryFs};
use std::path::Path;

/// Fills what the table stores as the value of its first entry with zeros.
pub(crate) fn forge_value(fs: &MemoryFs, path: &Path) {
    let zero = |block: &mut [u8], first: RawEntry| {
        block[first.value_at as usize..first.end as usize].fill(0);
    };
    forge(fs, path, 0, zero);
}

/// Makes the last byte of the table's first key as great as a byte may be.
pub(crate) fn forge_key(fs: &MemoryFs, path: &Path) {
    forge(fs, path, 0, |block, first| block[first.value_at as usize - 1] = 0xff);
}

/// Makes the first byte that the table's `nth` key does not share with the key before it as great
/// as a byte may be.
pub(crate) fn forge_nth_key(fs: &MemoryFs, path: &Path, nth: u32) {
    forge(fs, path, nth, |block, entry| block[entry.unshared_at as usize] = 0xff);
}

/// Changes an entry of the table's first block, which is as sound as before. The block must be
/// stored raw.
fn forge(fs: &MemoryFs, path: &Path, nth: u32, change: impl FnOnce(&mut [u8], RawEntry)) {
    let table = fs.open_read(path, FileAccess::Positional).unwrap();
    let mut bytes = vec![0; table.len() as usize];
    table.read_at(0, &mut bytes).unwrap();
    let at = FILE_HEADER_LEN;
    let salt = FileHeader::decode(&bytes[..at], FileKind::Table).unwrap().salt;
    let len = find_frame(&bytes, salt, at, usize::MAX).unwrap();
    let (codec, payload) = open_frame(&bytes[at..at + len], salt.mark(at as u64)).unwrap();
    let mut payload = payload.to_vec();
    let block = Block::parse(payload.clone()).unwrap();
    let first = block.entry_of(0, 0).unwrap();
    let entry = (1..=nth).fold(first, |before, n| block.entry_of(n, before.end).unwrap());
    change(&mut payload, entry);
    let mut forged = Output::new(fs.create(Path::new("/forged")).unwrap(), salt);
    forged.put_raw(&vec![0; at]).unwrap();
    forged.put_block(codec, &payload).unwrap();
    forged.finish().unwrap();
    let forged = fs.open_read(Path::new("/forged"), FileAccess::Positional).unwrap();
    let mut framed = vec![0; len];
    forged.read_at(at as u64, &mut framed).unwrap();
    for (nth, (new, old)) in framed.into_iter().zip(&bytes[at..]).enumerate() {
        fs.corrupt(path, (at + nth) as u64, new ^ old).unwrap();
    }
}
