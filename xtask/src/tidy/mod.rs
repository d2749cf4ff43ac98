//! House rules that a compiler does not know, checked by a test.
//!
//! Sources are read once ([`Workspace::load`]), cut into tokens ([`scan`]), and handed to the
//! rules, each a pure function from sources to violations. A rule sees every Rust file of the
//! workspace; scripts, manifests, workflows and workloads too where it says so.

pub mod assertions;
pub mod caps;
pub mod citations;
pub mod comments;
pub mod imports;
pub mod kinds;
pub mod openings;
pub mod outside;
pub mod rooms;
pub mod scan;
pub mod testing;
pub mod unsafety;

use scan::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The file, from the root of the workspace.
    pub path: String,
    /// The line, from 1; 0 if the file as a whole is meant.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// A text file of the workspace.
#[derive(Clone, Debug)]
pub struct Source {
    /// From the root of the workspace, with `/` between names.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The code in it; empty unless it is Rust.
    pub code: Code,
}

impl Source {
    /// Scans `text` as the file of this path. Errors if it is Rust that cannot be cut into tokens.
    pub fn new(path: &str, text: &str) -> io::Result<Self> {
        let code = if path.ends_with(".rs") {
            Code::scan(text).map_err(|e| io::Error::other(format!("{path}: {e}")))?
        } else {
            Code::default()
        };
        Ok(Source { path: path.to_owned(), text: text.to_owned(), code })
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(crate) fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: self.path.clone(), line, what: what.into() }
    }
}

/// All that the rules look at.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// The files, by path.
    pub sources: Vec<Source>,
    /// Texts about the workspace.
    pub documents: Vec<Source>,
    /// The paths of all files.
    pub paths: BTreeSet<String>,
    /// Paths, without `.rs`, of the files and folders that are compiled for tests only.
    pub test_only: BTreeSet<String>,
    /// What a `path` attribute put elsewhere: the file, and where it would be by its module's
    /// name.
    pub moved: BTreeMap<String, String>,
    /// The text of `xtask/unsafe-files.txt`.
    pub unsafe_files: String,
    /// The text of `xtask/tidy-allow.txt`.
    pub allowed: String,
}

impl Workspace {
    /// Reads the workspace at `root`.
    pub fn load(root: &Path) -> io::Result<Self> {
        let mut sources = Vec::new();
        for top in ["crates", "xtask", "fuzz", "docs", "workloads", ".ci", ".github"] {
            read_below(root, &root.join(top), &mut sources)?;
        }
        for top in ["Cargo.toml", "rust-toolchain.toml", "rustfmt.toml"] {
            sources.push(Source::new(top, &fs::read_to_string(root.join(top))?)?);
        }
        let unsafe_files = fs::read_to_string(root.join(unsafety::LIST))?;
        let allowed = fs::read_to_string(root.join(caps::LIST))?;
        let mut workspace = Workspace::of(sources, unsafe_files, allowed);
        list_below(root, root, &mut workspace.paths)?;
        for path in workspace.paths.iter().filter(|path| path.ends_with(".md")) {
            let text = fs::read_to_string(root.join(path))?;
            workspace.documents.push(Source::new(path, &text)?);
        }
        Ok(workspace)
    }

    /// A workspace of these files.
    pub fn of(mut sources: Vec<Source>, unsafe_files: String, allowed: String) -> Self {
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        let mut workspace = Workspace { unsafe_files, allowed, ..Workspace::default() };
        for source in &sources {
            let folder = module_folder(&source.path);
            for module in &source.code.modules {
                let by_name = format!("{folder}/{}", module.name);
                let place = match &module.file {
                    Some(file) => {
                        let beside = source.path.rsplit_once('/').map_or("", |(dir, _)| dir);
                        let place = format!("{beside}/{file}");
                        workspace.moved.insert(place.clone(), format!("{by_name}.rs"));
                        place.trim_end_matches(".rs").to_owned()
                    }
                    None => by_name,
                };
                if module.in_test {
                    workspace.test_only.insert(place);
                }
            }
        }
        workspace.paths = sources.iter().map(|source| source.path.clone()).collect();
        workspace.sources = sources;
        workspace
    }

    /// True if a file is compiled for tests only.
    pub fn is_test_only(&self, path: &str) -> bool {
        self.test_only.iter().any(|test| {
            path.strip_prefix(test.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|s| s.is_rust())
    }
}

/// Every violation of every rule.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let rules = [
        imports::check,
        rooms::check,
        caps::check,
        unsafety::check,
        openings::check,
        outside::check,
        kinds::check,
        testing::check,
        citations::check,
        comments::check,
        assertions::check,
    ];
    rules.iter().flat_map(|rule| rule(workspace)).collect()
}

/// The files with comments, beside scripts that are called `run`.
const ENDINGS: [&str; 6] = [".rs", ".rs.in", ".toml", ".sh", ".yml", ".lua"];

/// The root of the workspace that this crate belongs to: as cargo says it now, since a program that
/// was built in another checkout with the same target folder counts as built.
pub fn workspace_root() -> PathBuf {
    let said = std::env::var_os("CARGO_MANIFEST_DIR");
    let crate_dir = said.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&crate_dir).join("..")
}

/// Where the modules that a file declares live.
fn module_folder(path: &str) -> &str {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    match stem.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => stem,
    }
}

/// Lists the files below `dir`, without those that builds make.
fn list_below(root: &Path, dir: &Path, paths: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type()?.is_dir() {
            if !matches!(name.to_str(), Some("target" | "node_modules" | ".git")) {
                list_below(root, &path, paths)?;
            }
        } else {
            let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            paths.insert(relative.replace('\\', "/"));
        }
    }
    Ok(())
}

fn read_below(root: &Path, dir: &Path, sources: &mut Vec<Source>) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "target" | "node_modules" | "corpus" | "artifacts") {
                read_below(root, &path, sources)?;
            }
        } else if name == "run" || ENDINGS.iter().any(|end| name.ends_with(end)) {
            let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            sources.push(Source::new(&relative.replace('\\', "/"), &fs::read_to_string(&path)?)?);
        }
    }
    Ok(())
}
