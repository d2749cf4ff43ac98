//! The copy of the workspace that holds the woven sources: `target/mutants/tree`.

use super::built;
use super::explained::{self, Explained, Reasons};
use super::finder;
use super::known::{self, Known};
use super::site::{Mutant, Sites, module_of};
use super::sources::{self, SourceFile};
use super::weave::Woven;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The root of the engine's library.
const LIB: &str = "crates/isobath/src/lib.rs";

/// The modules whose files get mutants by operators, and what `--module` knows.
pub(super) const MODULES: [&str; 22] = [
    "wal",
    "write",
    "flush",
    "recover",
    "follow",
    "version",
    "compact",
    "blob",
    "cursor",
    "read",
    "conflict",
    "lock",
    "footprint",
    "transact",
    "engine",
    "snapshots",
    "memory",
    "memtable",
    "span",
    "gap",
    "mvcc",
    "table",
];

/// What the copy holds beside the woven files.
const COPIED: [&str; 7] = [
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    "crates/isobath",
    "crates/isobath-sim",
    "crates/isobath-simulated",
    // A unit test compares it with the code.
    "docs/internals/locks.md",
];

/// It would embed commit and sources, and so be built anew with each commit.
const SIMULATOR_BUILD: &str = "crates/isobath-sim/build/main.rs";

/// Where the fence stands that only loom has.
const FENCES: &str = "crates/isobath/src/host/sync.rs";

/// Files of the modules above that only produce figures for people.
const FOR_PEOPLE: [&str; 3] = ["gauges.rs", "inspect.rs", "prefetch.rs"];

/// The sources with everything that can be wrong in them.
pub(super) struct Tree {
    workspace: PathBuf,
    pub(super) root: PathBuf,
    pub(super) target: PathBuf,
    /// Of all that a build is made of.
    pub(super) digest: String,
    files: Vec<(SourceFile, Sites)>,
    pub(super) mutants: Vec<Mutant>,
    /// What switches each of them on.
    pub(super) numbers: Vec<usize>,
    /// What is wrong with listed mutants that do not fit the sources.
    pub(super) stale: Vec<String>,
    /// Mutants that do not compile.
    pub(super) refused: BTreeSet<usize>,
    /// The woven files as they were written last.
    pub(super) woven: BTreeMap<String, Woven>,
    /// Holds weaker orders only, in a copy of its own, which is built for loom.
    pub(super) is_for_models: bool,
}

impl Tree {
    /// Finds every mutant of the workspace at `workspace`, those with names first: `known`, as the
    /// file `list` has them. Takes those out that do not fit.
    pub(super) fn find(workspace: &Path, list: &Path, known: &mut Vec<Known>) -> io::Result<Tree> {
        let target = workspace.join("target/mutants");
        let files = sources::walk(workspace, LIB)?;
        let stale = known::take_stale(known, &files);
        let mut files: Vec<_> = files.into_iter().map(|file| (file, Sites::default())).collect();
        let mut mutants = Vec::new();
        for (file, sites) in &mut files {
            known::find(known, file, sites, &mut mutants);
        }
        for (file, sites) in &mut files {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            if MODULES.contains(&module_of(&file.path)) && !FOR_PEOPLE.contains(&name) {
                finder::find(file, sites, &mut mutants);
            }
        }
        let root = target.join("tree");
        let (refused, woven) = (BTreeSet::new(), BTreeMap::new());
        let numbers = numbers(&mutants);
        let digest = built::digest(workspace, &COPIED, list)?;
        let workspace = workspace.to_owned();
        let mut tree = Tree {
            workspace,
            root,
            target,
            digest,
            files,
            mutants,
            numbers,
            stale,
            refused,
            woven,
            is_for_models: false,
        };
        tree.remember_refused();
        Ok(tree)
    }

    /// The same for loom's models: other mutants than weaker orders are left out.
    pub(super) fn for_models(mut self) -> Tree {
        self.is_for_models = true;
        self.target.push("models");
        self.root = self.target.join("tree");
        self.refused.clear();
        self.remember_refused();
        self
    }

    /// Which mutants a list explains, and what is wrong with entries that explain none.
    pub(super) fn explain(&self, list: &[Explained]) -> (Reasons, Vec<String>) {
        explained::resolve(list, self.files.iter().map(|(file, _)| file), &self.mutants)
    }

    /// Weaves all mutants that are not refused, and writes the files that change by it.
    pub(super) fn write(&mut self) -> io::Result<()> {
        for (file, sites) in &self.files {
            let is_left_out = |mutant: usize| {
                let is_other = self.is_for_models && self.mutants[mutant].access.is_none();
                is_other || self.refused.contains(&mutant)
            };
            let mut woven = Woven::weave(&file.text, &sites.sorted(is_left_out), &self.numbers);
            if self.is_for_models && file.path == FENCES {
                woven.text = fences_that_may_lead(&woven.text)?;
            }
            if file.path == LIB {
                woven.text.push_str(
                    "\nmod mutant_switch;\npub(crate) use mutant_switch::mutant_is_on;\n",
                );
            }
            write_if_changed(&self.root.join(&file.path), woven.text.as_bytes())?;
            self.woven.insert(file.path.clone(), woven);
        }
        let switch = self.root.join("crates/isobath/src/mutant_switch.rs");
        write_if_changed(&switch, self.switch().as_bytes())?;
        let names = self.names();
        let refused = self.refused.iter().map(|mutant| names[*mutant].clone() + "\n");
        fs::write(self.target.join("refused.txt"), refused.collect::<String>())
    }

    /// What each mutant is called in the list of those that do not compile: lines above it may come
    /// and go.
    fn names(&self) -> Vec<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let name = |mutant: &Mutant| {
            let name = format!("{} {}: {}", mutant.file, mutant.operator, mutant.change);
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            format!("{name} ({count})")
        };
        self.mutants.iter().map(name).collect()
    }

    /// The module that says which mutant is on.
    fn switch(&self) -> String {
        if self.is_for_models {
            let strong = self
                .mutants
                .iter()
                .zip(&self.numbers)
                .filter(|(mutant, _)| mutant.access.is_some_and(super::site::Access::loads));
            let numbers: Vec<String> = strong.map(|(_, number)| number.to_string()).collect();
            return include_str!("model_switch.rs.in").replace("/* LOADS */", &numbers.join(", "));
        }
        let mut names = String::new();
        for (number, mutant) in self.mutants.iter().enumerate() {
            if let Some(name) = &mutant.name {
                let _ = writeln!(names, "    ({name:?}, {}),", self.numbers[number]);
            }
        }
        include_str!("switch.rs.in").replace("// NAMES", &names)
    }

    /// Refuses what did not compile the last time, if it is still the same.
    fn remember_refused(&mut self) {
        let list = fs::read_to_string(self.target.join("refused.txt")).unwrap_or_default();
        let list: BTreeSet<&str> = list.lines().collect();
        for (number, name) in self.names().iter().enumerate() {
            if self.mutants[number].name.is_none() && list.contains(&**name) {
                self.refused.insert(number);
            }
        }
    }

    /// Copies the rest of the workspace, and removes what is no longer there.
    pub(super) fn copy(&self) -> io::Result<()> {
        let workspace = &self.workspace;
        let mut there = BTreeSet::new();
        for top in COPIED {
            self.copy_below(workspace, Path::new(top), &mut there)?;
        }
        there.insert(PathBuf::from("crates/isobath/src/mutant_switch.rs"));
        remove_others(&self.root, Path::new("crates"), &there)?;
        let manifest = fs::read_to_string(workspace.join("Cargo.toml"))?;
        let members = manifest.lines().map(|line| match line.starts_with("members = ") {
            true => "members = [\"crates/*\"]\n".to_owned(),
            false => format!("{line}\n"),
        });
        write_if_changed(&self.root.join(SIMULATOR_BUILD), include_bytes!("build_script.rs.in"))?;
        write_if_changed(&self.root.join("Cargo.toml"), members.collect::<String>().as_bytes())
    }

    fn copy_below(
        &self,
        workspace: &Path,
        path: &Path,
        there: &mut BTreeSet<PathBuf>,
    ) -> io::Result<()> {
        let source = workspace.join(path);
        if source.is_dir() {
            for entry in fs::read_dir(source)? {
                self.copy_below(workspace, &path.join(entry?.file_name()), there)?;
            }
            return Ok(());
        }
        there.insert(path.to_owned());
        let is_woven = self.files.iter().any(|(file, _)| Path::new(&file.path) == path);
        let is_replaced = path == Path::new("Cargo.toml") || path == Path::new(SIMULATOR_BUILD);
        match is_woven || is_replaced {
            true => Ok(()),
            false => write_if_changed(&self.root.join(path), &fs::read(source)?),
        }
    }
}

/// The fence that only loom has, left out while the switch puts fences before loads instead.
fn fences_that_may_lead(text: &str) -> io::Result<String> {
    let head = "pub(crate) fn fence_for_loom() {\n";
    let (before, body) = text
        .split_once(head)
        .ok_or_else(|| io::Error::other(format!("{FENCES}: there is no `fence_for_loom`")))?;
    let leave = "    if crate::mutant_switch::fences_lead() {\n        return;\n    }\n";
    Ok(format!("{before}{head}{leave}{body}"))
}

/// The number of each mutant. Each file has a block of ten thousand numbers, and named mutants have
/// the first block. So a change of one file leaves the numbers in all others as they are, and they
/// need not be compiled again.
fn numbers(mutants: &[Mutant]) -> Vec<usize> {
    let (mut block, mut file, mut next) = (0, "", 1);
    let mut numbers = Vec::new();
    for mutant in mutants {
        if mutant.name.is_none() && mutant.file != file {
            block += 1;
            (file, next) = (&mutant.file, block * 10_000);
        }
        numbers.push(next);
        next += 1;
    }
    numbers
}

/// Keeps the time of a file that stays as it is, so that cargo builds nothing anew for it.
fn write_if_changed(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().expect("a file lies in a folder"))?;
    fs::write(path, bytes)
}

fn remove_others(root: &Path, path: &Path, there: &BTreeSet<PathBuf>) -> io::Result<()> {
    let full = root.join(path);
    if full.is_dir() {
        for entry in fs::read_dir(full)? {
            remove_others(root, &path.join(entry?.file_name()), there)?;
        }
    } else if full.exists() && !there.contains(path) {
        fs::remove_file(full)?;
    }
    Ok(())
}
