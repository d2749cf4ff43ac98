//! The ways in which a database's files can be damaged, numbered.

use super::image::Image;
use isobath::Result;
use isobath::vfs::{FileSystem, MemoryFs};
use std::path::Path;

/// What kind of damage is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Each bit of each file is flipped
    Flip,
    /// Each file is cut at each length
    Truncate,
    /// Each file is missing
    Missing,
}

/// One way to damage one file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Damage {
    Flip { byte: u64, bit: u8 },
    Cut { len: u64 },
    Gone,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Flip => "flip",
            Mode::Truncate => "truncate",
            Mode::Missing => "missing",
        })
    }
}

impl Mode {
    fn ways(self, file_len: u64) -> u64 {
        match self {
            Mode::Flip => file_len * 8,
            Mode::Truncate => file_len,
            Mode::Missing => 1,
        }
    }

    /// How many ways there are to damage a database.
    pub(super) fn count(self, image: &Image) -> u64 {
        image.files.iter().map(|file| self.ways(file.len)).sum()
    }

    /// The `nth` way: which file, and how.
    pub(super) fn nth(self, image: &Image, mut nth: u64) -> Option<(usize, Damage)> {
        for (at, file) in image.files.iter().enumerate() {
            let ways = self.ways(file.len);
            if nth < ways {
                let damage = match self {
                    Mode::Flip => Damage::Flip { byte: nth / 8, bit: (nth % 8) as u8 },
                    Mode::Truncate => Damage::Cut { len: nth },
                    Mode::Missing => Damage::Gone,
                };
                return Some((at, damage));
            }
            nth -= ways;
        }
        None
    }
}

impl Damage {
    pub(super) fn apply(self, fs: &MemoryFs, path: &Path) -> Result<()> {
        match self {
            Damage::Flip { byte, bit } => fs.corrupt(path, byte, 1 << bit),
            Damage::Cut { len } => fs.truncate(path, len),
            Damage::Gone => fs.remove(path),
        }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Flip { byte, bit } => write!(f, "bit {bit} of byte {byte} flipped"),
            Damage::Cut { len } => write!(f, "cut to {len} bytes"),
            Damage::Gone => f.write_str("missing"),
        }
    }
}
