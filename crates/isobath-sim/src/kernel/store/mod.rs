//! The databases that can be written to: Isobath, or a peer to compare it with. The trait has the
//! few calls that a writer makes.
//!
//! The peers have other adapters in the benchmark (`crates/isobath-bench/src/engine`), which do not
//! serve here: they hold one family, and do not distinguish a full disk and an I/O error from other
//! failures.

#[cfg(feature = "fjall")]
mod fjall;
mod isobath;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use super::check::Found;
use super::history::{Plan, Write};
use clap::ValueEnum;
use std::fmt;
use std::path::Path;

/// The engines there are in this build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// The engine under test
    #[default]
    Isobath,
    /// RocksDB, every write synced
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    /// fjall, every write synced
    #[cfg(feature = "fjall")]
    Fjall,
}

impl Engine {
    pub(crate) fn open(self, dir: &Path, plan: &Plan) -> Result<Box<dyn Store>, Failure> {
        match self {
            Engine::Isobath => isobath::open(dir, plan),
            #[cfg(feature = "rocksdb")]
            Engine::Rocksdb => rocksdb::open(dir, plan),
            #[cfg(feature = "fjall")]
            Engine::Fjall => fjall::open(dir, plan),
        }
    }

    /// For peers only synced writes are compared.
    pub(crate) fn plan(self, seed: u64) -> Plan {
        match self {
            Engine::Isobath => Plan::new(seed),
            #[cfg(any(feature = "rocksdb", feature = "fjall"))]
            _ => Plan::new(seed).for_peer(),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value();
        f.write_str(name.as_ref().map_or("", |name| name.get_name()))
    }
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// No room. The call must work again once there is room.
    NoRoom(String),
    /// Writes are refused because of an earlier failure, or the outcome of this one is unknown.
    Refused(String),
    /// The system failed an operation on a file.
    Io(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, message) = match self {
            Failure::NoRoom(message) => ("no room", message),
            Failure::Refused(message) => ("refused", message),
            Failure::Io(message) => ("input or output", message),
            Failure::Other(message) => ("other", message),
        };
        write!(f, "{kind}: {message}")
    }
}

/// An open database with its families. The bodies here suit the peers: their families exist from
/// the open on, and they do not report a place in history.
pub(crate) trait Store: Send + Sync {
    /// Everything there is, before [`Store::create_families`].
    fn read_all(&self) -> Result<Found, Failure>;
    /// Creates the families that are not there yet.
    fn create_families(&self) -> Result<(), Failure> {
        Ok(())
    }
    /// Writes a batch, and returns its place in history, 0 if the engine does not tell.
    fn write(&self, writes: &[Write], is_synced: bool) -> Result<u64, Failure>;
    /// Returns once everything up to a place in history survives power loss.
    fn sync_to(&self, _point: u64) -> Result<(), Failure> {
        self.sync().map(drop)
    }
    /// Returns once everything written so far survives power loss, with the place in history up to
    /// which it does; 0 if the engine does not tell.
    fn sync(&self) -> Result<u64, Failure>;
    fn flush(&self) -> Result<(), Failure>;
    fn compact(&self) -> Result<(), Failure>;
    /// Creates (odd steps) or drops (even steps) the passing family. False if the engine does not
    /// take part.
    fn step_family(&self, _step: u64) -> Result<bool, Failure> {
        Ok(false)
    }
    fn close(self: Box<Self>) -> Result<(), Failure>;
}
