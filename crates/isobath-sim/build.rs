//! Embeds which code is built: the commit, whether the tree had changes, and a hash of the engine's sources.
//!
//! The ledger counts what stands for today's code by that hash. It covers `crates/isobath/src`, the manifests and the lock
//! file: every byte that decides what the engine does, whatever the commit is called.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What decides what the engine does, from the root of the workspace.
const ENGINE: [&str; 4] =
    ["Cargo.lock", "Cargo.toml", "crates/isobath/Cargo.toml", "crates/isobath/src"];

/// What a tree is looked at for changes of.
const TREE: [&str; 5] =
    ["Cargo.lock", "Cargo.toml", "crates/isobath", "crates/isobath-sim", "rust-toolchain.toml"];

fn main() -> io::Result<()> {
    let root =
        PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("../..");
    let mut hash = Hash::default();
    for top in ENGINE {
        add(&root, Path::new(top), &mut hash)?;
    }
    println!("cargo::rustc-env=ISOBATH_ENGINE={:016x}", hash.0);
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

/// Adds a file, or those of a folder in the order of their names.
fn add(root: &Path, path: &Path, hash: &mut Hash) -> io::Result<()> {
    let full = root.join(path);
    if full.is_dir() {
        let mut names = fs::read_dir(full)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        return names.iter().try_for_each(|name| add(root, &path.join(name), hash));
    }
    let bytes = fs::read(full)?;
    hash.add(path.to_string_lossy().replace('\\', "/").as_bytes());
    hash.add(&(bytes.len() as u64).to_le_bytes());
    hash.add(&bytes);
    Ok(())
}

/// FNV-1a: nobody forges these files against it.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
