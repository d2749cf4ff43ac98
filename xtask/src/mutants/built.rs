//! The current build: the sources it was made from, and the places of its programs. While the
//! sources do not change, nothing is woven or compiled again.

use super::compile::Programs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

/// What the weaving itself is made of.
const WEAVER: &str = "xtask/src/mutants";

/// A digest of all that a build is made of: what is copied, the list of mutants with names, and the
/// code that weaves.
pub(super) fn digest(workspace: &Path, copied: &[&str], known: &Path) -> io::Result<String> {
    let mut files = BTreeSet::new();
    for top in copied.iter().chain(&[WEAVER]) {
        gather(&workspace.join(top), &mut files)?;
    }
    files.insert(workspace.join(known));
    let mut hasher = DefaultHasher::new();
    for file in files {
        let bytes = fs::read(&file)?;
        hasher.write(file.strip_prefix(workspace).unwrap_or(&file).as_os_str().as_encoded_bytes());
        hasher.write_usize(bytes.len());
        hasher.write(&bytes);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn gather(path: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.insert(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        gather(&entry?.path(), files)?;
    }
    Ok(())
}

/// What a finished build leaves behind.
#[derive(Deserialize, Serialize)]
struct Built {
    digest: String,
    programs: Programs,
}

/// The programs of the build at hand, if it was made of these sources and they are all there.
pub(super) fn programs(record: &Path, digest: &str) -> Option<Programs> {
    let built: Built = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
    let is_there = |program: &Path| program.as_os_str().is_empty() || program.exists();
    if built.digest != digest {
        return None;
    }
    let tests = built.programs.tests.iter().map(|(_, program)| program);
    let mut all = tests.chain([&built.programs.units, &built.programs.simulator]);
    let is_whole = all.all(|program| is_there(program));
    drop(all);
    is_whole.then_some(built.programs)
}

/// Notes a finished build.
pub(super) fn note(record: &Path, digest: &str, programs: &Programs) -> io::Result<()> {
    let built = Built { digest: digest.to_owned(), programs: programs.clone() };
    fs::write(record, serde_json::to_vec(&built)?)
}

/// Forgets the build at hand, before its programs are replaced one by one.
pub(super) fn forget(record: &Path) -> io::Result<()> {
    match fs::remove_file(record) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
