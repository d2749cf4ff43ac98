//! Hashes the engine's sources, and hands the hash to the build of the simulator, whose ledger
//! counts the runs of one engine by it.
//!
//! The hash is set for the compiler too, so cargo compiles the engine anew whenever the hash
//! changes. The watched paths are relative: a target folder that is copied to another checkout
//! watches the sources there. Otherwise the copy would hold an older engine under a newer hash.

mod fingerprint;

use std::path::PathBuf;

/// What the hash depends on, and a little more.
const WATCHED: [&str; 5] =
    ["build", "../isobath/Cargo.toml", "../isobath/src", "../../Cargo.lock", "../../Cargo.toml"];

fn main() -> fingerprint::Result<()> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let engine = format!("{:016x}", fingerprint::of(&root)?);
    println!("cargo::rustc-env=ISOBATH_ENGINE={engine}");
    println!("cargo::metadata=engine={engine}");
    for path in WATCHED {
        println!("cargo::rerun-if-changed={path}");
    }
    Ok(())
}
