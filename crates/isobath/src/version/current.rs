//! `CURRENT`: one line that names the manifest in force.
//!
//! ```text
//! MANIFEST-000007 9b27af94d75fde38\n
//! ```
//!
//! The manifest's name, a space, the XXH3-64 of the name in 16 lower-case hexadecimal digits, a
//! newline.

use super::names::{CURRENT, CURRENT_TMP, manifest_name, manifest_number};
use crate::env::{Plant, planted};
use crate::error::{DecodeError, Decoded, Error, Result};
use crate::format::checksum64;
use crate::vfs::{Directory, FileAccess, FileSystem};
use std::path::Path;

/// A line with the longest number has 46 bytes.
const LEN_MAX: u64 = 64;

fn encode(number: u64) -> String {
    let name = manifest_name(number);
    format!("{name} {:016x}\n", checksum64(name.as_bytes()))
}

fn decode(bytes: &[u8]) -> Decoded<u64> {
    let line = std::str::from_utf8(bytes).ok();
    let name = line.and_then(|line| line.split_once(' ')).map(|(name, _)| name);
    name.and_then(manifest_number)
        .filter(|&number| encode(number).as_bytes() == bytes || planted(Plant::CurrentBelieved))
        .ok_or_else(|| DecodeError::damaged("it does not name a manifest with its checksum"))
}

/// The number of the manifest in force. `CURRENT` must exist.
pub(crate) fn read(fs: &dyn FileSystem, db: &Path) -> Result<u64> {
    let path = db.join(CURRENT);
    let file = fs.open_read(&path, FileAccess::Positional)?;
    if file.len() > LEN_MAX {
        return Err(Error::corruption(&path, 0, "it is longer than one line"));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    decode(&bytes).map_err(|error| error.in_file(&path, 0))
}

/// Writes the line to `CURRENT.tmp`, and syncs it and every name in the directory.
pub(super) fn prepare(
    fs: &dyn FileSystem,
    db: &Path,
    dir: &dyn Directory,
    number: u64,
) -> Result<()> {
    let path = db.join(CURRENT_TMP);
    if fs.exists(&path)? {
        fs.remove(&path)?;
    }
    let mut file = fs.create(&path)?;
    let line = encode(number);
    debug_assert!(
        decode(line.as_bytes()).is_ok_and(|read| read == number) && line.len() as u64 <= LEN_MAX,
        "a line is written that no open accepts: {line}"
    );
    file.append(line.as_bytes())?;
    if planted(Plant::RenamedBeforeSynced) {
        file.flush()?;
    } else {
        file.sync()?;
    }
    drop(file);
    dir.sync()
}

/// Puts the prepared line in force for processes that read it from now on.
pub(super) fn switch(fs: &dyn FileSystem, db: &Path) -> Result<()> {
    fs.replace(&db.join(CURRENT_TMP), &db.join(CURRENT))
}

/// Makes the line in force durable. After an error it is not known which line survives power loss.
pub(super) fn sync(dir: &dyn Directory) -> Result<()> {
    if planted(Plant::CurrentNotSynced) { Ok(()) } else { dir.sync() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_hold() {
        assert_eq!(encode(7), "MANIFEST-000007 9b27af94d75fde38\n");
        for number in [1, 7, 1_000_000, (1 << 60) - 1] {
            assert_eq!(decode(encode(number).as_bytes()).unwrap(), number);
            assert!(encode(number).len() as u64 <= LEN_MAX);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = encode(7).into_bytes();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).unwrap_err().is_damage(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len]).unwrap_err().is_damage(), "length {len}");
        }
    }
}
