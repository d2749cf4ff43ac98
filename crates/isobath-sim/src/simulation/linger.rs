//! Checks an idle database. If it ran out of room, it must work again once there is room. If it had
//! no trouble, it must have no unneeded and no damaged file.

use super::oracle::marker;
use super::runtime;
use super::trouble::Trouble;
use super::values::Draft;
use super::workload::Stage;
use isobath::WriteOptions;
use isobath::env::Env;
use isobath::tools::{self, RepairOptions};
use isobath::vfs::FileSystem as _;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tries until a database must work again, and the pause between them.
const TRIES_MAX: u32 = 60;
const PAUSE_NS: u64 = 50_000_000;
/// Longer than two rounds of the engine's maintenance.
const QUIET_NS: u64 = 2_500_000_000;

/// A compaction of old deletes or of ended values begins when it is time, and has files that
/// nothing needs until it is done. So a file is a leak if it is there at two looks in a row,
/// between which compactions have ended. If each look finds another one, there are no more of them.
const LOOKS_MAX: u32 = 8;

/// What is wrong with the files of an idle database.
enum Wrong {
    /// A file is there that nothing needs.
    Leak(PathBuf),
    Other(String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Leak(path) => {
                write!(f, "nothing needs {}, and it is still there", path.display())
            }
            Wrong::Other(wrong) => f.write_str(wrong),
        }
    }
}

fn told(error: isobath::Error) -> Wrong {
    Wrong::Other(format!("a look at the files: {error}"))
}

/// Nothing is damaged.
fn verify(db: &Path, env: &Env) -> Result<(), Wrong> {
    let report = tools::verify(db, env, &mut |_, _| ()).map_err(told)?;
    match report.is_clean() {
        true => Ok(()),
        false => {
            let found = report.findings;
            Err(Wrong::Other(format!("verify finds in a sound database: {found:?}")))
        }
    }
}

/// There is nothing to repair, be it only asked or to be done.
fn repair(db: &Path, env: &Env) -> Result<(), Wrong> {
    let options = RepairOptions::new().env(env.clone()).lose_unknown(true);
    for options in [options.clone().dry_run(true), options.dry_run(false)] {
        let go_on = &mut |_, _| ControlFlow::Continue(());
        let repaired = tools::repair(db, &options, go_on).map_err(told)?;
        let said = repaired.lines(|key| key.escape_ascii().to_string());
        if !repaired.is_sound() || !said.is_empty() {
            let found = repaired.findings;
            return Err(Wrong::Other(format!(
                "repair finds in a sound database: {found:?} {said:?}"
            )));
        }
    }
    Ok(())
}

impl Stage {
    /// No other task uses the database any more.
    pub(crate) fn linger(&self, db: &Path) {
        match self.life.trouble() {
            trouble if trouble.is_want_of_room() => {
                self.life.end_trouble();
                self.work_again();
            }
            Trouble::None if !self.is_damaged => {
                self.life.end_trouble();
                let mut before = None;
                for _ in 0..LOOKS_MAX {
                    if let Err(error) = self.db.wait_for_compactions(None) {
                        return self.judge_write("settling", &error);
                    }
                    runtime::sleep_ns(QUIET_NS);
                    if self.life.is_over() {
                        return;
                    }
                    match self.check_files(db) {
                        Err(Wrong::Leak(path)) if before.as_ref() != Some(&path) => {
                            before = Some(path);
                        }
                        checked => {
                            return checked.unwrap_or_else(|wrong| self.fail(wrong.to_string()));
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn work_again(&self) {
        let mut last = None;
        for _ in 0..TRIES_MAX {
            let number = self.history.borrow().next_number(0);
            let writes = [(marker(0), Some(Draft::text(number.to_string())))];
            let is_written = self.write_once(0, &writes, WriteOptions::sync());
            match self.db.flush() {
                Ok(()) if is_written => return,
                Ok(()) => {}
                Err(error) => last = Some(error),
            }
            if self.life.is_over() || self.failure.borrow().is_some() {
                return;
            }
            runtime::sleep_ns(PAUSE_NS);
        }
        self.fail(format!("there is room, and yet nothing can be written: {last:?}"));
    }

    /// Looks at a copy of the disk with the tools.
    fn check_files(&self, db: &Path) -> Result<(), Wrong> {
        let fs = self.life.disk().killed();
        let env = Env { fs: Arc::new(fs.clone()), ..self.life.env() };
        let named = tools::inspect(db, &env).map_err(told)?;
        let entries = named.prepared.into_iter().map(|entry| entry.path);
        let tables = named.tables.into_iter().map(|table| table.path);
        let blobs = named.blobs.into_iter().map(|blob| blob.path);
        let named: BTreeSet<PathBuf> = tables.chain(blobs).chain(entries).collect();
        let Some(dir) = named.first().and_then(|table| table.parent()) else { return Ok(()) };
        // No transaction is under way that could have spill files.
        let spill = db.join("spill");
        let mut there = Vec::new();
        for dir in [dir, &spill] {
            let is_there = fs.exists(dir).map_err(told)?;
            let entries = if is_there { fs.list(dir).map_err(told)? } else { Vec::new() };
            there.extend(entries.iter().map(|entry| dir.join(&entry.name)));
        }
        if let Some(missing) = named.iter().find(|path| !there.contains(path)) {
            let missing = missing.display();
            return Err(Wrong::Other(format!("{missing} is needed, and it is not there")));
        }
        let leaked = there.into_iter().find(|path| !named.contains(path));
        if let Some(leaked) = leaked {
            return Err(Wrong::Leak(leaked));
        }
        for path in &named {
            let damaged = tools::dump(path, &env, &mut |_| Ok(())).map_err(told)?;
            if damaged > 0 {
                let path = path.display();
                return Err(Wrong::Other(format!(
                    "a dump of {path} finds {damaged} damaged parts"
                )));
            }
        }
        verify(db, &env)?;
        repair(db, &env)?;
        verify(db, &env)
    }
}
