//! Reads around places that the device cannot read: they count as zeros, which no checksum takes
//! for anything. So a sector costs what lies in it, and not the rest of its file.

use super::report::is_loss_of;
use crate::error::Result;
use crate::vfs::ReadFile;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Files are read in pieces of this length. Only a piece that fails is read again by sectors.
const PIECE_LEN: usize = 64 << 10;
/// The least that is given up at once. Systems cache files in pages of this length, or longer ones.
pub(super) const SECTOR_LEN: usize = 4096;

/// Places that could not be read: their files and offsets, each [`SECTOR_LEN`] long at most.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    places: RefCell<BTreeSet<(PathBuf, u64)>>,
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
            match file.read_at(offset, piece) {
                Err(error) if is_loss_of(&error) => self.read_sectors(file, offset, piece)?,
                other => other?,
            }
            offset += piece.len() as u64;
        }
        Ok(())
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
            match file.read_at(offset, sector) {
                Err(error) if is_loss_of(&error) => {
                    sector.fill(0);
                    self.places.borrow_mut().insert((file.path().to_owned(), offset));
                }
                other => other?,
            }
            offset += sector.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// The places met so far, each once.
    pub(super) fn places(&self) -> BTreeSet<(PathBuf, u64)> {
        self.places.borrow().clone()
    }
}
