//! Scenarios as scripts. Each file in `scripts/` is a list of commands, each followed by its
//! expected answer. With `ISOBATH_UPDATE=1` the test writes the answers again; review them as a
//! diff.
//!
//! ```text
//! # A comment.
//! > put key value          delete key          batch put a 1; delete b; put other/c 2
//! > merge other/a more     also in a batch, for a family with a merge operator
//! > delrange from to       delrange from *     delprefix other/a, also in a batch
//! > delrange other/from to: ends have no family
//! > get key                get@s key           names of families go before keys: other/key
//! > scan [from [to]]       scan@s              rscan, backwards; other/ scans a family
//! > snapshot s             release s
//! > flush                  compact [family]    levels [family]
//! > settle: waits until no compaction is due
//! > create other [operator]              drop other          rename other another
//! > clone other another    families
//! > sync                   close, open         kill: the process dies  crash: the power is cut
//! ```

use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{Batch, Db, Error, Family, FamilyOptions, Options, Range, Result, Snapshot};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

struct Session {
    fs: MemoryFs,
    db: Option<Db>,
    snapshots: BTreeMap<String, Snapshot>,
}

impl Session {
    fn new() -> Session {
        let mut session = Session { fs: MemoryFs::new(), db: None, snapshots: BTreeMap::new() };
        session.open().unwrap();
        session
    }

    fn open(&mut self) -> Result<()> {
        let env = Env { fs: Arc::new(self.fs.clone()), ..Env::system() };
        self.snapshots.clear();
        self.db = None;
        self.db = Some(Options::new().env(env).open("/db")?);
        Ok(())
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("closed")
    }

    fn existing(&self, name: &str) -> Result<Family> {
        self.db().family_if_exists(name)?.ok_or_else(|| Error::unknown_family(name))
    }

    /// `family/key`, or a key of the default family.
    fn place<'a>(&self, word: &'a str) -> Result<(Family, &'a str)> {
        match word.split_once('/') {
            Some((family, key)) => Ok((self.existing(family)?, key)),
            None => Ok((self.db().default_family(), word)),
        }
    }

    fn run(&mut self, line: &str) -> Result<String> {
        let words: Vec<_> = line.split_whitespace().collect();
        let (command, at) = words[0].split_once('@').unwrap_or((words[0], ""));
        match (command, &words[1..]) {
            ("put", [place, value]) => {
                let (family, key) = self.place(place)?;
                family.put(key, value)?;
            }
            ("merge", [place, operand]) => {
                let (family, key) = self.place(place)?;
                family.merge(key, operand)?;
            }
            ("delete", [place]) => {
                let (family, key) = self.place(place)?;
                family.delete(key)?;
            }
            ("delrange", [place, to]) => {
                let (family, from) = self.place(place)?;
                family.delete_range(range_of(from, to))?;
            }
            ("delprefix", [place]) => {
                let (family, prefix) = self.place(place)?;
                family.delete_prefix(prefix)?;
            }
            ("batch", _) => self.batch(line.trim_start_matches("batch"))?,
            ("get", [place]) => return self.get(at, place),
            ("scan" | "rscan", bounds) => return self.scan(command == "rscan", at, bounds),
            ("snapshot", [name]) => {
                let snapshot = self.db().snapshot();
                self.snapshots.insert((*name).to_owned(), snapshot);
            }
            ("release", [name]) => drop(self.snapshots.remove(*name)),
            ("flush", []) => self.db().flush()?,
            ("sync", []) => self.db().sync()?,
            ("settle", []) => assert!(self.db().wait_for_compactions(None)?),
            ("compact", []) => self.db().compact()?,
            ("compact", [family]) => {
                let family = self.existing(family)?;
                family.compact(..)?;
            }
            ("levels", family) => return Ok(self.levels(family.first().unwrap_or(&"default"))),
            _ => return self.manage(command, &words[1..]),
        }
        Ok(String::new())
    }

    fn manage(&mut self, command: &str, words: &[&str]) -> Result<String> {
        match (command, words) {
            ("create", [name]) => drop(self.db().family(*name)?),
            ("create", [name, operator]) => {
                drop(self.db().family((*name, FamilyOptions::new().merge_operator(*operator)))?)
            }
            ("drop", [name]) => self.db().drop_family(&self.existing(name)?)?,
            ("clone", [name, new]) => drop(self.db().clone_family(&self.existing(name)?, new)?),
            ("rename", [name, new]) => self.db().rename_family(&self.existing(name)?, new)?,
            ("families", []) => return Ok(self.db().list_families().join("\n") + "\n"),
            ("close", []) => self.db.take().expect("closed").close()?,
            ("open", []) => self.open()?,
            ("kill", []) => {
                self.fs = self.fs.killed();
                self.open()?;
            }
            ("crash", []) => {
                self.fs = self.fs.crashed(|_| 0);
                self.open()?;
            }
            _ => panic!("no such command: {command} {words:?}"),
        }
        Ok(String::new())
    }

    fn batch(&self, operations: &str) -> Result<()> {
        let mut batch = Batch::new();
        for operation in operations.split(';') {
            let words: Vec<_> = operation.split_whitespace().collect();
            let (family, key) = self.place(words[1])?;
            let mut part = batch.of(&family);
            match words[0] {
                "put" => part.put(key, words[2]),
                "merge" => part.merge(key, words[2]),
                "delete" => part.delete(key),
                "delrange" => part.delete_range(range_of(key, words[2])),
                "delprefix" => part.delete_prefix(key),
                other => panic!("no such operation: {other}"),
            };
        }
        self.db().write(batch).map(drop)
    }

    fn get(&self, at: &str, place: &str) -> Result<String> {
        let (family, key) = self.place(place)?;
        let found = match at {
            "" => family.get(key)?,
            name => self.snapshots[name].of(&family).get(key)?,
        };
        Ok(found.map_or("nothing\n".to_owned(), |value| format!("{}\n", value.escape_ascii())))
    }

    fn scan(&self, backwards: bool, at: &str, bounds: &[&str]) -> Result<String> {
        let (family, from) = self.place(bounds.first().unwrap_or(&""))?;
        let bounds = (from, bounds.get(1).copied().unwrap_or("\u{10ffff}"));
        let bounds = bounds.0.as_bytes()..bounds.1.as_bytes();
        let range: Range = match at {
            "" => family.range(bounds),
            name => self.snapshots[name].of(&family).range(bounds),
        };
        let mut text = String::new();
        let mut show = |item: Result<(isobath::Value, isobath::Value)>| {
            item.map(|(key, value)| {
                writeln!(text, "{} {}", key.escape_ascii(), value.escape_ascii()).unwrap();
            })
        };
        if backwards {
            range.rev().try_for_each(&mut show)?
        } else {
            range.into_iter().try_for_each(&mut show)?
        }
        Ok(if text.is_empty() { "nothing\n".to_owned() } else { text })
    }

    fn levels(&self, name: &str) -> String {
        let metrics = self.db().metrics();
        let family = metrics.families.iter().find(|family| family.name == name).expect("a family");
        let mut text = String::new();
        for (level, sum) in family.levels.iter().enumerate().filter(|(_, sum)| sum.slices > 0) {
            let (slices, entries, deletes) = (sum.slices, sum.entries, sum.deletes);
            write!(text, "L{level}: {slices} slices, {entries} entries, {deletes} deletes")
                .unwrap();
            match sum.range_deletes {
                0 => text.push('\n'),
                ranges => writeln!(text, ", {ranges} deleted ranges").unwrap(),
            }
        }
        if text.is_empty() { "empty\n".to_owned() } else { text }
    }
}

/// `*` is no end.
fn range_of<'a>(from: &'a str, to: &'a str) -> (Bound<&'a str>, Bound<&'a str>) {
    assert!(!to.contains('/'), "{to} names a family, as the range's start does");
    let end = if to == "*" { Bound::Unbounded } else { Bound::Excluded(to) };
    (Bound::Included(from), end)
}

/// The script with its present answers.
fn replay(script: &str) -> String {
    let (mut session, mut replayed) = (Session::new(), String::new());
    for line in script.lines() {
        let is_kept = line.is_empty() || line.starts_with('#') || line.starts_with("> ");
        if is_kept {
            replayed += line;
            replayed += "\n";
        }
        if let Some(command) = line.strip_prefix("> ") {
            replayed += &session.run(command).unwrap_or_else(|error| format!("error: {error}\n"));
        }
    }
    replayed
}

#[test]
fn every_script_is_answered_as_it_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut failed = Vec::new();
    let mut paths: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 5, "{paths:?}");
    for path in paths {
        let script = std::fs::read_to_string(&path).unwrap();
        let replayed = replay(&script);
        if replayed == script {
            continue;
        }
        if std::env::var_os("ISOBATH_UPDATE").is_some() {
            std::fs::write(&path, replayed).unwrap();
            continue;
        }
        let differs = script.lines().zip(replayed.lines()).position(|(old, new)| old != new);
        let line = differs.unwrap_or(script.lines().count().min(replayed.lines().count()));
        let of = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
        let (old, new) = (of(&script), of(&replayed));
        failed.push(format!("{}:{}: expected {old:?}, found {new:?}", path.display(), line + 1));
    }
    assert!(failed.is_empty(), "{}\nISOBATH_UPDATE=1 rewrites the answers", failed.join("\n"));
}
