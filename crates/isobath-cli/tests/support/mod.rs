//! Running the binary, and databases to run it on.
#![allow(dead_code)] // Each test file uses its own part.

use isobath::{Options, WriteOptions};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The output of a run that must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    #[track_caller]
    pub(crate) fn fails_with(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        let said = if code == 2 { &self.stderr } else { &self.stdout };
        for word in words {
            assert!(said.contains(word), "{word:?} is not in {self:?}");
        }
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            code: output.status.code().expect("the binary was ended by a signal"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isobath"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `isobath` with these arguments and nothing on standard input.
pub(crate) fn isobath<S: AsRef<OsStr>>(arguments: &[S]) -> Run {
    command(arguments).output().unwrap().into()
}

/// The same, with this in a pipe on standard input.
pub(crate) fn isobath_piped<S: AsRef<OsStr>>(arguments: &[S], input: &[u8]) -> Run {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    // A command that refuses the input need not read all of it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap().into()
}

/// The same, with standard input from this file.
pub(crate) fn isobath_from<S: AsRef<OsStr>>(arguments: &[S], input: &Path) -> Run {
    command(arguments).stdin(File::open(input).unwrap()).output().unwrap().into()
}

/// The same, with a reader of standard output that is gone.
pub(crate) fn isobath_unread<S: AsRef<OsStr>>(arguments: &[S]) -> Run {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command(arguments).stdout(writer).output().unwrap().into()
}

/// The same, where there is no room for the standard output.
pub(crate) fn isobath_to_full<S: AsRef<OsStr>>(arguments: &[S]) -> Run {
    command(arguments).stdout(full()).output().unwrap().into()
}

/// The same, where there is no room for the standard error.
pub(crate) fn isobath_unheard<S: AsRef<OsStr>>(arguments: &[S]) -> Run {
    command(arguments).stderr(full()).output().unwrap().into()
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A database in a directory of its own.
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    /// An empty one.
    pub(crate) fn new() -> Home {
        let home = Home { dir: tempfile::tempdir().unwrap() };
        isobath(&["create", &home.db()]).ok();
        home
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    pub(crate) fn db(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }

    /// `isobath COMMAND DB REST`.
    pub(crate) fn run(&self, command: &str, rest: &[&str]) -> Run {
        let db = self.db();
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.push(&db);
        arguments.extend(rest);
        isobath(&arguments)
    }

    /// 2000 entries in a table below level 0, cleanly closed.
    pub(crate) fn compacted() -> Home {
        let home = Home { dir: tempfile::tempdir().unwrap() };
        let db = small().open(home.path()).unwrap();
        for i in 0..2000 {
            db.put(key(i), value(i)).unwrap();
        }
        db.compact().unwrap();
        db.close().unwrap();
        home
    }

    /// What a killed process leaves: 100 synced records in the log.
    pub(crate) fn killed() -> Home {
        Home::killed_after(100)
    }

    pub(crate) fn killed_after(count: u32) -> Home {
        let home = Home { dir: tempfile::tempdir().unwrap() };
        let live = tempfile::tempdir().unwrap();
        let db = small().open(live.path()).unwrap();
        for i in 0..count {
            db.with(WriteOptions::sync()).put(key(i), value(i)).unwrap();
        }
        copy(live.path(), &home.path());
        home
    }

    /// The files below `dir` of the database that end so, by name.
    pub(crate) fn files(&self, dir: &str, ending: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path().join(dir)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut found: Vec<_> =
            paths.filter(|path| path.to_str().unwrap().ends_with(ending)).collect();
        found.sort();
        found
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        let name = std::fs::read_to_string(self.path().join("CURRENT")).unwrap();
        self.path().join(name.split(' ').next().unwrap())
    }
}

pub(crate) fn small() -> Options {
    Options::new().write_buffer(256 << 10).block_cache(1 << 20)
}

pub(crate) fn key(i: u32) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

pub(crate) fn value(i: u32) -> Vec<u8> {
    format!("value{i}.").repeat(5).into_bytes()
}

/// Flips one bit.
pub(crate) fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Every file of the database with its bytes, except the lock file, whose text names the last
/// holder.
pub(crate) fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else if path.file_name() != Some(OsStr::new("LOCK")) {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}
