//! The file of a prepared transaction that is still in doubt when its epoch is flushed.
//!
//! ```text
//! offset len  field                    all integers little-endian
//!      0 128  file header, kind 5
//!    128   8  LSN of the prepare
//!    136   8  length of the payload
//!    144   *  payload of the prepare's record in the log
//!      *   8  XXH3-64 of everything from 128 on
//! ```
//!
//! It has a number and a name like a table, so it lives and dies as tables do (`files.rs`). The
//! header keeps every reader of tables from taking it for one.

use super::names::table_path;
use crate::error::{Error, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind, Lsn, checksum64};
use crate::vfs::{FileAccess, FileSystem, len_in_memory};
use std::path::Path;

/// The bytes between the header and the payload.
const PREFIX_LEN: usize = 16;
const CHECKSUM_LEN: usize = 8;

/// What such a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EntryFile {
    pub(crate) header: FileHeader,
    /// The LSN of the prepare.
    pub(crate) lsn: Lsn,
    /// The payload of its record.
    pub(crate) payload: Vec<u8>,
    /// The length of the file.
    pub(crate) len: u64,
}

/// Writes the file of the transaction that was prepared at `lsn` and syncs it, but not its name.
/// Returns its length.
pub(crate) fn write_entry(
    fs: &dyn FileSystem,
    db: &Path,
    uuid: [u8; 16],
    number: u64,
    (lsn, payload): (Lsn, &[u8]),
) -> Result<u64> {
    let path = table_path(db, number);
    let mut file = fs.create(&path)?;
    let bytes = encode(uuid, number, lsn, payload);
    debug_assert!(
        decode(&bytes, &path).is_ok_and(|read| (read.lsn, &*read.payload) == (lsn, payload)),
        "a prepared transaction reads back otherwise than it was written"
    );
    file.append(&bytes)?;
    file.sync()?;
    Ok(bytes.len() as u64)
}

fn encode(uuid: [u8; 16], number: u64, lsn: Lsn, payload: &[u8]) -> Vec<u8> {
    let header = FileHeader::new(FileKind::Prepared, uuid, number);
    let mut bytes = header.encode().to_vec();
    bytes.reserve(PREFIX_LEN + payload.len() + CHECKSUM_LEN);
    bytes.extend_from_slice(&lsn.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(payload);
    let sum = checksum64(&bytes[FILE_HEADER_LEN..]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads such a file.
pub(crate) fn read_entry(fs: &dyn FileSystem, path: &Path) -> Result<EntryFile> {
    let file = fs.open_read(path, FileAccess::Positional)?;
    let len = len_in_memory(file.len(), path)?;
    let mut bytes = vec![0; len.min(FILE_HEADER_LEN)];
    file.read_at(0, &mut bytes)?;
    // A file of another kind may be longer than memory.
    header_of(&bytes, path)?;
    let head = bytes.len();
    bytes.resize(len, 0);
    file.read_at(head as u64, &mut bytes[head..])?;
    decode(&bytes, path)
}

/// Reads the file of this number, which must hold the transaction that was prepared at `lsn`, and
/// returns the payload.
pub(crate) fn read_own_entry(
    fs: &dyn FileSystem,
    db: &Path,
    uuid: [u8; 16],
    number: u64,
    lsn: Lsn,
) -> Result<Vec<u8>> {
    let path = table_path(db, number);
    let entry = read_entry(fs, &path)?;
    if (entry.header.uuid, entry.header.number, entry.lsn) != (uuid, number, lsn) {
        let detail = "it is a file of another database, or of another prepared transaction";
        return Err(Error::corruption(&path, 0, detail));
    }
    Ok(entry.payload)
}

fn header_of(bytes: &[u8], path: &Path) -> Result<FileHeader> {
    FileHeader::decode(bytes, FileKind::Prepared).map_err(|error| error.in_file(path, 0))
}

fn decode(bytes: &[u8], path: &Path) -> Result<EntryFile> {
    let header = header_of(bytes, path)?;
    let damaged = |detail: &str| Error::corruption(path, FILE_HEADER_LEN as u64, detail);
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let start = FILE_HEADER_LEN + PREFIX_LEN;
    let (Some(lsn), Some(len)) = (word(FILE_HEADER_LEN), word(FILE_HEADER_LEN + 8)) else {
        return Err(damaged("a prepared transaction is cut short"));
    };
    if bytes.len().checked_sub(start + CHECKSUM_LEN).map(|len| len as u64) != Some(len) {
        return Err(damaged("a prepared transaction is not as long as it says"));
    }
    let end = bytes.len() - CHECKSUM_LEN;
    if word(end) != Some(checksum64(&bytes[FILE_HEADER_LEN..end])) {
        return Err(damaged("the checksum of a prepared transaction does not match"));
    }
    Ok(EntryFile { header, lsn, payload: bytes[start..end].to_vec(), len: bytes.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::MemoryFs;

    #[test]
    fn golden_bytes_hold() {
        let bytes = encode([7; 16], 42, 4096, b"payload");
        assert_eq!(bytes[..FILE_HEADER_LEN], {
            let header = FileHeader::new(FileKind::Prepared, [7; 16], 42);
            header.encode()
        });
        assert_eq!(bytes[8], 5, "its kind");
        let golden = b"\0\x10\0\0\0\0\0\0\x07\0\0\0\0\0\0\0payload";
        assert_eq!(bytes[FILE_HEADER_LEN..bytes.len() - 8], *golden);
        assert_eq!(bytes[bytes.len() - 8..], checksum64(golden).to_le_bytes());
    }

    #[test]
    fn what_was_written_comes_back_and_any_other_bytes_are_an_error() {
        let (fs, db) = (MemoryFs::new(), Path::new("/db"));
        fs.create_dir_all(&db.join("table")).unwrap();
        write_entry(&fs, db, [7; 16], 42, (4096, b"payload")).unwrap();
        assert_eq!(read_own_entry(&fs, db, [7; 16], 42, 4096).unwrap(), b"payload");
        write_entry(&fs, db, [7; 16], 43, (4096, &[1; 100])).unwrap();
        assert_eq!(read_own_entry(&fs, db, [7; 16], 43, 4096).unwrap(), [1; 100]);
        for (uuid, lsn) in [([8; 16], 4096), ([7; 16], 4104)] {
            assert!(read_own_entry(&fs, db, uuid, 42, lsn).unwrap_err().is_corruption());
        }
        let bytes = encode([7; 16], 42, 4096, b"payload");
        let path = Path::new("/entry");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, path).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], path).unwrap_err().is_corruption(), "{len}");
        }
        assert!(decode(&[&bytes[..], b"\0"].concat(), path).unwrap_err().is_corruption());
    }
}
