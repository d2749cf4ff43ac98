//! Embeds which code is built: the commit, whether the tree had changes, and the hash of the
//! engine's sources that the build of `isobath-simulated` made.
//!
//! By that hash the ledger counts the runs of today's code, whatever commit they name.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a tree is looked at for changes of: the code of all that adds rows to the ledger.
pub(crate) const TREE: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "crates/isobath",
    "crates/isobath-bank",
    "crates/isobath-cli",
    "crates/isobath-sim",
    "crates/isobath-simulated",
    "fuzz",
    "rust-toolchain.toml",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let engine = std::env::var("DEP_ISOBATH_SIMULATED_ENGINE")?;
    println!("cargo::rustc-env=ISOBATH_ENGINE={engine}");
    println!("cargo::rustc-env=ISOBATH_COMMIT={}", commit(&root));
    for path in TREE {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    Ok(())
}

/// The commit, with `+` if what is built differs from it; `unknown` where there is no history.
fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    // A commit that changes none of the files above changes the log of the head.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(file) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={}", root.join(file).display());
        }
    }
    let changes = git(&[&["status", "--porcelain", "--"][..], &TREE].concat());
    let mark = if changes.is_some_and(|changes| changes.is_empty()) { "" } else { "+" };
    format!("{head}{mark}")
}
