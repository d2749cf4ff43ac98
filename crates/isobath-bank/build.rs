//! Embeds a hash of the engine's sources. By it the drivers see which engine a bank was built with,
//! before they count its deaths for that engine.

#[path = "../isobath-simulated/build/fingerprint.rs"]
mod fingerprint;

use std::path::PathBuf;

/// What the hash depends on, and a little more.
const WATCHED: [&str; 6] = [
    "build.rs",
    "../isobath-simulated/build",
    "../isobath/Cargo.toml",
    "../isobath/src",
    "../../Cargo.lock",
    "../../Cargo.toml",
];

fn main() -> fingerprint::Result<()> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../..");
    println!("cargo::rustc-env=ISOBATH_ENGINE={:016x}", fingerprint::of(&root)?);
    for path in WATCHED {
        println!("cargo::rerun-if-changed={path}");
    }
    Ok(())
}
