//! Running the program, and its output.

#![allow(dead_code, reason = "each test program uses some of these")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_isobath-bench");

pub(crate) fn workloads() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads")
}

pub(crate) fn bench(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = bench(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

pub(crate) fn refuse(arguments: &[&str]) -> String {
    let output = bench(arguments);
    assert!(!output.status.success(), "{arguments:?} was accepted");
    text(&output)
}

pub(crate) fn str_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn lua(dir: &Path, source: &str) -> PathBuf {
    let path = dir.join("w.lua");
    fs::write(&path, source).unwrap();
    path
}
