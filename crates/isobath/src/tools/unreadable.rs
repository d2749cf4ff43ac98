//! Reads around places that the device cannot read: they count as zeros, which no checksum takes
//! for anything. So a sector costs what lies in it, and not the rest of its file.

use super::report::is_loss_of;
use crate::error::Result;
use crate::vfs::ReadFile;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files are read in pieces of this length. Only a piece that fails is read again by sectors.
const PIECE_LEN: usize = 64 << 10;
/// The least that is given up at once. Systems cache files in pages of this length, or longer ones.
pub(super) const SECTOR_LEN: usize = 4096;

/// Sectors that could not be read, by their files. Each counts as zeros from then on and is not
/// tried again: a device may take seconds to give up, and who reads a file twice has to find the
/// same.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    sectors: RefCell<BTreeMap<PathBuf, BTreeSet<u64>>>,
    is_complete: Cell<bool>,
}

impl Unreadable {
    /// Fills `buf` from `offset`, with zeros for what cannot be read. Errors that say nothing of
    /// the bytes on disk are returned.
    pub(super) fn read_around(
        &self,
        file: &dyn ReadFile,
        mut offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        for piece in buf.chunks_mut(PIECE_LEN) {
            match self.touches(file.path(), offset, piece.len()) {
                true => self.read_sectors(file, offset, piece)?,
                false => match file.read_at(offset, piece) {
                    Err(error) if is_loss_of(&error) => self.read_sectors(file, offset, piece)?,
                    other => other?,
                },
            }
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// From here on a sector that was not met before is an error. Before that, all that is lost has
    /// to be known.
    pub(super) fn set_complete(&self, is_complete: bool) {
        self.is_complete.set(is_complete);
    }

    fn read_sectors(
        &self,
        file: &dyn ReadFile,
        mut offset: u64,
        mut rest: &mut [u8],
    ) -> Result<()> {
        while !rest.is_empty() {
            let in_sector = SECTOR_LEN - (offset % SECTOR_LEN as u64) as usize;
            let (sector, behind) = rest.split_at_mut(in_sector.min(rest.len()));
            if self.touches(file.path(), offset, sector.len()) {
                sector.fill(0);
            } else {
                match file.read_at(offset, sector) {
                    Err(error) if is_loss_of(&error) && !self.is_complete.get() => {
                        sector.fill(0);
                        let mut sectors = self.sectors.borrow_mut();
                        let of_file = sectors.entry(file.path().to_owned()).or_default();
                        of_file.insert(sector_of(offset));
                    }
                    other => other?,
                }
            }
            offset += sector.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// True if one of the sectors has some of these bytes.
    fn touches(&self, path: &Path, offset: u64, len: usize) -> bool {
        let sectors = self.sectors.borrow();
        let of_file = sectors.get(path);
        of_file.is_some_and(|of| of.range(sector_of(offset)..offset + len as u64).next().is_some())
    }

    /// True if a sector of the file could not be read.
    pub(super) fn has_file(&self, path: &Path) -> bool {
        self.sectors.borrow().contains_key(path)
    }

    /// The sectors met so far, each with its file and its offset there.
    pub(super) fn places(&self) -> BTreeSet<(PathBuf, u64)> {
        let sectors = self.sectors.borrow();
        let places = sectors.iter().flat_map(|(path, of)| of.iter().map(|at| (path.clone(), *at)));
        places.collect()
    }
}

/// Where the sector begins that has the byte at `offset`.
fn sector_of(offset: u64) -> u64 {
    offset - offset % SECTOR_LEN as u64
}
