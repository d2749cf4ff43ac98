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
    /// How its transactions handle conflicts, if the harness can use its transactions.
    pub(crate) transactions: Option<&'static str>,
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
/// What a peer's name may end with, where it comes in several forms.
const FORMS: &[&str] = &["-tuned", "-universal", "-optimistic", "-single-writer", "-locking"];

static KINDS: &[EngineKind] = &[
    super::isobath::KIND,
    super::isobath::LOCKING,
    super::isobath::MAPPED,
    super::memory::KIND,
    super::null::KIND,
    #[cfg(feature = "rocksdb")]
    super::rocksdb::KIND,
    #[cfg(feature = "rocksdb")]
    super::rocksdb::TUNED,
    #[cfg(feature = "rocksdb")]
    super::rocksdb::UNIVERSAL,
    #[cfg(feature = "rocksdb")]
    super::rocksdb_transactions::OPTIMISTIC,
    #[cfg(feature = "rocksdb")]
    super::rocksdb_transactions::LOCKING,
    #[cfg(feature = "tidesdb")]
    super::tidesdb::KIND,
    #[cfg(feature = "lmdb")]
    super::lmdb::KIND,
    #[cfg(feature = "fjall")]
    super::fjall::KIND,
    #[cfg(feature = "fjall")]
    super::fjall_transactions::OPTIMISTIC,
    #[cfg(feature = "fjall")]
    super::fjall_transactions::SINGLE_WRITER,
    #[cfg(feature = "redb")]
    super::redb::KIND,
];

/// The engine of that name, or an error that says how to get it.
pub(crate) fn find(name: &str) -> Result<&'static EngineKind> {
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
        return Ok(kind);
    }
    let feature = FORMS.iter().find_map(|form| name.strip_suffix(form)).unwrap_or(name);
    if PEERS.contains(&feature) {
        bail!(
            "engine `{name}` isn't in this build: run crates/isobath-bench/install-peers.sh once, \
             then build with `--features {feature}` (or `--features peers` for all)"
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

/// The engines that differ outside transactions.
#[cfg(test)]
pub(crate) fn plain_names() -> Vec<&'static str> {
    let transactional = ["-optimistic", "-single-writer", "-locking"];
    let plain = |name: &&str| !transactional.iter().any(|form| name.ends_with(form));
    names().into_iter().filter(plain).collect()
}

#[cfg(all(test, not(feature = "rocksdb")))]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_not_built_in_says_which_feature_it_takes() {
        for name in ["rocksdb", "rocksdb-tuned", "rocksdb-universal"] {
            let text = find(name).map(|kind| kind.name).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains("`--features rocksdb`"), "{text}");
        }
        let text = find("bdb").map(|kind| kind.name).unwrap_err().to_string();
        assert!(text.contains("no engine `bdb`"), "{text}");
    }
}

#[cfg(test)]
mod tests_of_versions {
    use super::*;

    #[test]
    fn the_versions_that_reports_name_are_those_that_are_locked() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
        let lock = std::fs::read_to_string(path).unwrap();
        for (peer, package) in [("rocksdb", "librocksdb-sys"), ("fjall", "fjall"), ("redb", "redb")]
        {
            let entry = format!("name = \"{package}\"\nversion = \"");
            let locked = lock.split(&entry).nth(1).unwrap().split('"').next().unwrap();
            for kind in KINDS.iter().filter(|kind| kind.name.starts_with(peer)) {
                let told = (kind.version)();
                // RocksDB's own version follows that of its package.
                assert!(locked == told || locked.ends_with(&format!("+{told}")), "{}", kind.name);
            }
        }
    }
}
