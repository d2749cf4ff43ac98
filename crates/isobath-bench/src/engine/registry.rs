//! Which engines this build carries, and what each can promise.

use super::{Durability, Engine, EngineConfig};
use anyhow::{Result, bail};

/// An engine that can be opened by name.
pub(crate) struct EngineKind {
    pub(crate) name: &'static str,
    pub(crate) version: fn() -> String,
    /// The levels it can serve exactly.
    pub(crate) durabilities: &'static [Durability],
    /// Whether it keeps what is written, so that its answers can be checked.
    pub(crate) answers: bool,
    /// Whether the data outlives the process.
    pub(crate) persistent: bool,
    pub(crate) open: fn(&EngineConfig) -> Result<Box<dyn Engine>>,
}

impl EngineKind {
    /// The level at which a request is served: the one asked for, else the nearest weaker one, else
    /// the weakest. Rows say what was served, and rows of unequal levels are never compared.
    pub(crate) fn serve(&self, wanted: Durability) -> Durability {
        let weaker = self.durabilities.iter().copied().filter(|level| *level <= wanted).max();
        weaker.or_else(|| self.durabilities.iter().copied().min()).unwrap_or(wanted)
    }
}

/// Engines that can be built in by a feature of the same name.
const PEERS: &[&str] = &["rocksdb", "tidesdb", "lmdb", "fjall", "redb"];

static KINDS: &[EngineKind] = &[
    super::isobath::KIND,
    super::memory::KIND,
    super::null::KIND,
    #[cfg(feature = "rocksdb")]
    super::rocksdb::KIND,
    #[cfg(feature = "tidesdb")]
    super::tidesdb::KIND,
    #[cfg(feature = "lmdb")]
    super::lmdb::KIND,
    #[cfg(feature = "fjall")]
    super::fjall::KIND,
    #[cfg(feature = "redb")]
    super::redb::KIND,
];

/// The engine of that name, or an error that says how to get it.
pub(crate) fn find(name: &str) -> Result<&'static EngineKind> {
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
        return Ok(kind);
    }
    if PEERS.contains(&name) {
        bail!(
            "engine `{name}` isn't in this build: run crates/isobath-bench/install-peers.sh once, \
             then build with `--features {name}` (or `--features peers` for all)"
        );
    }
    bail!(
        "there is no engine `{name}` (this build has {}; peers by feature: {})",
        names().join(", "),
        PEERS.join(", ")
    );
}

/// The engines of this build.
pub(crate) fn names() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}
