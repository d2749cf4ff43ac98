//! Makes a database with damaged manifest, tables or log usable again, with everything that can be
//! read.
//!
//! - `facts.rs`: what the manifests say
//! - `identity.rs`: which database it is, and which files are in the place of others
//! - `tables.rs`: what can be read of the tables; `lineage.rs`: which tables others replace;
//!   `place.rs`: the levels of the remaining ones. Both decisions are pure, and needed only if the
//!   manifest is lost. `plan.rs`: what follows for each table.
//! - `blobs.rs`: which values in blob files can be read
//! - `prepared.rs`: transactions that are in doubt
//! - `log.rs`: what can be read of the log; `floors.rs`: what of it is in tables;
//!   `changes.rs`: which families it tells of
//! - `terms.rs`: for which commits the result vouches
//! - `write.rs`: writes new tables from it, with `by_sequence.rs`; `install.rs`: a new manifest,
//!   which becomes the current one in the last step
//! - `foretell.rs`: what a dry run knows of that
//! - `report.rs`: what was found, kept and lost
//!
//! Nothing that is damaged is deleted. `docs/internals/repair.md` gives the reasons, and says what
//! a repair cannot know.

mod blobs;
mod by_sequence;
mod changes;
mod facts;
mod floors;
mod foretell;
mod identity;
mod install;
mod lineage;
mod log;
mod place;
mod plan;
mod prepared;
mod report;
mod stale;
mod tables;
mod terms;
#[cfg(test)]
mod tests;
mod write;

pub use report::{Loss, MovedFile, RepairReport};

use super::lock::hold;
use super::report::{Finding, is_loss};
use super::unreadable::Unreadable;
use super::verify;
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{DEFAULT_FAMILY, FamilyId, Lsn};
use crate::version::{
    CURRENT, Change, Edit, FileNumbers, LOCK, Layout, ObsoleteFiles, State, Term, manifest_number,
};
use crate::vfs::{FileAccess, FileSystem, len_in_memory};
use facts::Facts;
use floors::Floors;
use log::FoundLog;
use plan::{Placed, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tables::FoundTable;

/// The number of LSNs to skip if the manifest is lost. It is larger than the number of LSNs that
/// may have been given out after the last one seen.
const LSN_MARGIN: Lsn = 1 << 32;

/// Options of a repair.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairOptions {
    /// The environment. Default: the operating system's.
    pub env: Env,
    /// Only report what would be done. Default: false.
    pub dry_run: bool,
    /// Count log records that are whole, and that this version cannot read, as lost. Without it
    /// they end the repair with [`ErrorKind::NewerFormat`]: a newer version may have written them,
    /// and can read them. Only for a database that no newer version has ever opened for writing.
    /// Default: false.
    pub lose_unknown: bool,
}

impl RepairOptions {
    /// The defaults.
    pub fn new() -> Self {
        RepairOptions::default()
    }

    /// Sets [`RepairOptions::env`].
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Sets [`RepairOptions::dry_run`].
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets [`RepairOptions::lose_unknown`].
    pub fn lose_unknown(mut self, lose_unknown: bool) -> Self {
        self.lose_unknown = lose_unknown;
        self
    }
}

/// Makes the database in `db`, which must be closed, usable again with everything that can be read
/// of it, and reports what was lost. An intact database is left as it is. Damaged and superseded
/// files are moved to the folder `lost+found` in the database's directory. You can delete that
/// folder when you do not need it any more.
///
/// If a newer version or a delete of a key was lost, the key may show an older value. The losses in
/// the report say where. After a loss, [`Db::is_durable`](crate::Db::is_durable) and
/// [`Db::sync_to`](crate::Db::sync_to) vouch for no commit at or behind the first LSN that may be
/// lost, and for none of the last opening if its log was whole. Without a whole manifest they vouch
/// for none from before the repair.
///
/// A repair that was interrupted at any point can be run again. `progress` gets the bytes read and
/// the bytes in total, and returns whether to continue.
///
/// # Errors
/// [`ErrorKind::NotADatabase`] if no file shows that there is a database, [`ErrorKind::Locked`],
/// [`ErrorKind::NewerFormat`], [`ErrorKind::MissingCodec`], [`ErrorKind::Cancelled`] if `progress`
/// stopped the repair, or an I/O error.
pub fn repair(
    db: &Path,
    options: &RepairOptions,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<RepairReport> {
    let fs = &options.env.fs;
    let layout = Layout::examine(&**fs, db)?;
    if !matches!(layout, Layout::Database | Layout::Lost { .. }) {
        layout.demand_database(db)?;
    }
    // A dry run writes nothing, not even a lock.
    let _lock = match options.dry_run {
        true => hold(&**fs, db)?,
        false => Some(fs.lock(&db.join(LOCK))?),
    };
    let obsolete = ObsoleteFiles::new();
    obsolete.shut();
    let mut repair = Repair::new(db, options, progress, &obsolete);
    let mut facts = known_facts(&mut repair)?;
    let mut entries = prepared::examine(&mut repair, &facts)?;
    let mut blobs = blobs::examine(&mut repair, &facts, &entries.files)?;
    let tables = tables::examine(&mut repair, &facts, &mut blobs, &entries.files)?;
    repair.numbers = FileNumbers::new(repair.next_file, obsolete);
    let floors = Floors::of(&tables);
    let mut log = log::find(&mut repair, &facts, (floors, entries.end()))?;
    log.note_drops(&repair, &mut facts)?;
    name_families(&mut repair, &mut facts, &tables);
    log.examine(&mut repair, &mut facts, &mut entries)?;
    let in_log = log.judge(&facts, &tables);
    entries.say_losses(&mut repair, &facts);
    facts.check_options(db)?;
    repair.tell_of_all_values(&facts, &tables, &in_log);
    if repair.report.is_sound() {
        return Ok(repair.report);
    }
    let plan = Plan::new(&facts, &tables, in_log);
    repair.say_losses(&facts, &tables, &plan);
    repair.report.tables_kept = plan.kept.len() as u64;
    repair.report.guesses.append(&mut facts.unseated);
    if options.dry_run {
        repair.report.tables_made = plan.made();
        let slices = foretell::foretold(&plan, &tables);
        state_of(&repair, &state_edit(&repair, &facts, &log, (slices, Vec::new())))?;
        return Ok(repair.report);
    }
    install::make_dirs(&repair)?;
    let found = (&tables[..], &mut blobs);
    let slices = plan.carry_out(&mut repair, &mut facts, found, (&mut log, &mut entries))?;
    let unused = blobs.unused(&slices, &log.streams);
    repair.report.guesses.append(&mut facts.unseated);
    entries.leave_out_decided(&mut repair);
    let in_doubt = entries.file(&mut repair, &facts)?;
    let edit = state_edit(&repair, &facts, &log, (slices, in_doubt));
    let mut replaced = replaced(&repair, &facts, &tables, &plan, &log)?;
    replaced.extend(present(&repair, &entries.lost)?);
    replaced.extend(unused);
    replaced.extend(repair.aside.iter().cloned());
    // What looked like a table may have turned out to be a blob file.
    replaced.sort_unstable();
    replaced.dedup();
    let state = state_of(&repair, &edit)?;
    install::install(&mut repair, &state, &replaced)?;
    Ok(repair.report)
}

/// What the manifests say.
fn known_facts(repair: &mut Repair<'_>) -> Result<Facts> {
    let mut facts = facts::gather(repair)?;
    if facts.uuid.is_none() {
        facts.uuid = identity::of_most_files(repair)?;
    }
    repair.look_closely()?;
    if facts.is_exact && stale::is_stale(repair, &facts)? {
        facts.is_exact = false;
        let detail =
            "the manifest is older than the rest: its end was cut off, or it is an old copy";
        repair.damage(&facts.manifest, None, detail);
    }
    Ok(facts)
}

/// A repair in progress.
struct Repair<'a> {
    fs: Arc<dyn FileSystem>,
    db: &'a Path,
    report: RepairReport,
    told: Told,
    progress: &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    done_bytes: u64,
    total_bytes: u64,
    entries_written: u64,
    /// Random bits for a term of which nothing is to be known.
    seed: u64,
    /// Above the number of every existing table.
    next_file: u64,
    numbers: Arc<FileNumbers>,
    /// Tables that nothing needs, and that may have what is lost.
    aside: Vec<PathBuf>,
    /// Whole records of the log that this version does not know are lost.
    loses_unknown: bool,
    /// What the device cannot read. Once the losses are known, what else fails is an error.
    unreadable: Unreadable,
}

/// Where findings and losses are. There may be very many.
#[derive(Default)]
struct Told {
    findings: BTreeSet<(PathBuf, Option<u64>)>,
    /// With which of all losses are there.
    losses: BTreeMap<(PathBuf, Option<u64>), Vec<usize>>,
}

impl<'a> Repair<'a> {
    fn new(
        db: &'a Path,
        options: &RepairOptions,
        progress: &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>,
        obsolete: &Arc<ObsoleteFiles>,
    ) -> Repair<'a> {
        Repair {
            fs: options.env.fs.clone(),
            db,
            report: RepairReport { is_dry_run: options.dry_run, ..RepairReport::default() },
            told: Told::default(),
            progress,
            done_bytes: 0,
            total_bytes: 0,
            entries_written: 0,
            seed: options.env.random.next_u64().max(1),
            next_file: 1,
            numbers: FileNumbers::new(1, obsolete.clone()),
            aside: Vec::new(),
            loses_unknown: options.lose_unknown,
            unreadable: Unreadable::default(),
        }
    }
}

impl Repair<'_> {
    fn damage(&mut self, path: &Path, offset: Option<u64>, detail: &str) {
        if self.told.findings.insert((path.to_owned(), offset)) {
            let finding = Finding { path: path.to_owned(), offset, detail: detail.to_owned() };
            self.report.findings.push(finding);
        }
    }

    /// Finds damage in `CURRENT`, manifest and log even if it need not cost any data.
    fn look_closely(&mut self) -> Result<()> {
        for finding in verify::all_but_tables(&self.fs, self.db, self.loses_unknown)? {
            self.damage(&finding.path, finding.offset, &finding.detail);
        }
        Ok(())
    }

    /// Records an error that is damage, and returns any other error.
    fn absorb<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Corruption { path, offset, detail } => {
                self.damage(path, Some(*offset), detail);
            }
            ErrorKind::Io { action, path, source, .. } if is_loss(source) => {
                self.damage(path, None, &format!("could not {action} it: {source}"));
            }
            _ => return Err(error),
        }
        Ok(None)
    }

    /// Reports what is lost of the tables, unless other slices replace it.
    fn say_losses(&mut self, facts: &Facts, tables: &[FoundTable], plan: &Plan) {
        self.report.guesses.extend_from_slice(&plan.guesses);
        for table in tables {
            let file = table.number;
            let counts = |loss: &Loss| {
                let replaces = |family| {
                    facts.is_dropped(family)
                        || plan.is_replaced((family, file))
                        || plan.has_moved((family, file), loss, self.db)
                };
                !loss.family.is_some_and(replaces)
            };
            self.tell_of_values(table, &counts);
            let counted = table.losses.iter().filter(|loss| counts(loss));
            counted.for_each(|loss| self.lose(facts, loss.clone()));
        }
    }

    fn lose(&mut self, facts: &Facts, mut loss: Loss) {
        let known = loss.family.and_then(|family| facts.families.get(&family));
        loss.family_name = known.map(|known| known.name.clone());
        // Inputs and outputs of a compaction may have lost the same values in a blob file.
        let there = self.told.losses.entry((loss.path.clone(), loss.offset)).or_default();
        if !there.iter().any(|nth| self.report.losses[*nth] == loss) {
            there.push(self.report.losses.len());
            self.report.losses.push(loss);
        }
    }

    /// Records the damage to blob files, as far as it is known which slices count: all that the
    /// manifest names, and those that the log stands for.
    fn tell_of_all_values(
        &mut self,
        facts: &Facts,
        tables: &[FoundTable],
        in_log: &BTreeSet<(FamilyId, u64)>,
    ) {
        for table in tables {
            let of_log = |family| in_log.contains(&(family, table.number));
            self.tell_of_values(table, &|loss| facts.is_exact || loss.family.is_some_and(of_log));
        }
    }

    /// Records the damage to blob files that has cost a table's slices values.
    fn tell_of_values(&mut self, table: &FoundTable, counts: &dyn Fn(&Loss) -> bool) {
        let of_values = table.losses.iter().filter(|loss| loss.path != table.path);
        for loss in of_values.filter(|loss| counts(loss)) {
            self.damage(&loss.path, loss.offset, &loss.detail);
        }
    }

    fn allocate(&self) -> u64 {
        self.numbers.allocate().number()
    }

    /// Reports that everything up to `end` of the bytes to read has been read.
    fn advance_to(&mut self, end: u64) -> Result<()> {
        self.done_bytes = end.min(self.total_bytes);
        self.look()
    }

    /// Asks `progress` whether to continue.
    fn look(&mut self) -> Result<()> {
        match (self.progress)(self.done_bytes, self.total_bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::cancelled()),
        }
    }

    /// The bytes of a file, with zeros for parts that the device cannot read.
    fn read_leniently(&self, path: &Path) -> Result<Vec<u8>> {
        let file = self.fs.open_read(path, FileAccess::Positional)?;
        let mut bytes = vec![0; len_in_memory(file.len(), path)?];
        self.unreadable.read_around(&*file, 0, &mut bytes)?;
        Ok(bytes)
    }
}

/// Names the families that appear only in tables.
fn name_families(repair: &mut Repair<'_>, facts: &mut Facts, tables: &[FoundTable]) {
    if facts.is_exact {
        return;
    }
    for slice in tables.iter().rev().flat_map(|table| &table.slices) {
        if !facts.is_dropped(slice.holder) {
            let label = slice.origin.label.as_deref();
            facts.name_family(slice.holder, label, &mut repair.report.guesses);
        }
    }
    facts.name_family(DEFAULT_FAMILY, None, &mut repair.report.guesses);
    for (id, known) in facts.families.iter().filter(|(id, _)| facts.clones.contains(id)) {
        let source = match known.root {
            root if root == *id => String::new(),
            root => format!(" of family {root} or of a clone of it"),
        };
        repair.report.guesses.push(format!(
            "column family {id} is a clone{source}: of what a lost record of the manifest told before, it is not known \
             whether the two share it"
        ));
    }
}

/// The edit that creates the repaired state from nothing.
fn state_edit(
    repair: &Repair<'_>,
    facts: &Facts,
    log: &FoundLog,
    (slices, in_doubt): (Vec<Placed>, Vec<Change>),
) -> Edit {
    let seq_end = slices.iter().map(|(_, _, meta)| meta.max_seq + 1).max().unwrap_or(0);
    let mut terms = facts.terms.clone();
    // No reader may have a point below a family.
    let created = facts.families.values().map(|known| known.created + 1).max().unwrap_or(0);
    let (mut ceiling, mut durable, mut replay_from) =
        (facts.ceiling.max(seq_end).max(created), facts.durable, facts.replay_from);
    if log.must_replay {
        // The whole log is in tables now. The next open begins above it.
        let margin = if facts.is_exact { 0 } else { LSN_MARGIN };
        let end = log.end.max(ceiling) + margin;
        let last = terms.last().map_or(0, |term| term.term).max(u64::from(log.generation));
        let begun_at = terms.last().map_or(0, |term| term.resumes_at);
        let ended_at = log.whole_until.max(begun_at);
        terms.push(Term { term: last + 1, ended_at, resumes_at: end, seed: 0 });
        (ceiling, durable, replay_from) = (end, end, end);
    }
    let kept_until = terms::kept_until(facts, &repair.report.losses);
    terms::vouch_until(&mut terms, kept_until, repair.seed, log.must_replay);
    let mut changes = vec![Change::Database { uuid: facts.uuid.unwrap_or_default() }];
    changes.extend(terms.into_iter().map(Change::Term));
    changes.extend([
        Change::LsnCeiling { lsn: ceiling },
        Change::DurableLsn { lsn: durable },
        Change::ReplayFrom { lsn: replay_from },
        Change::NextFile { number: repair.allocate() + 1 },
    ]);
    for (&family, known) in &facts.families {
        changes.push(Change::CreateFamily {
            family,
            name: known.name.clone(),
            options: known.options.clone(),
            lsn: known.created,
        });
        if known.root != family {
            changes.push(Change::Lineage { family, root: known.root });
        }
        let own = slices.iter().filter(|(_, holder, _)| *holder == family);
        changes.extend(own.map(|(level, _, meta)| Change::add_slice(family, *level, meta.clone())));
    }
    changes.extend(in_doubt);
    changes.push(Change::NextFamily { family: facts.next_family });
    changes.push(Change::FamiliesChanged { lsn: facts.families_changed });
    if facts.history_ms > 0 {
        changes.push(Change::History { span_ms: facts.history_ms });
    }
    changes.extend(facts.last_tick.map(|tick| Change::Ticks { ticks: vec![tick] }));
    Edit::new(changes)
}

/// The repaired state.
fn state_of(repair: &Repair<'_>, edit: &Edit) -> Result<State> {
    State::of(edit).map_err(|error| error.in_file(repair.db, 0))
}

/// Those of the files that exist.
fn present(repair: &Repair<'_>, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut present = Vec::new();
    for path in paths {
        if repair.fs.exists(path)? {
            present.push(path.clone());
        }
    }
    Ok(present)
}

/// The files that the repaired database does not need, but that a person may want to examine.
fn replaced(
    repair: &Repair<'_>,
    facts: &Facts,
    tables: &[FoundTable],
    plan: &Plan,
    log: &FoundLog,
) -> Result<Vec<PathBuf>> {
    let unused = tables.iter().filter(|table| !plan.uses(table.number));
    let mut paths: Vec<PathBuf> = unused.map(|table| table.path.clone()).collect();
    if log.must_replay {
        paths.extend(log.replaced.iter().cloned());
    }
    let damaged = |path: &Path| repair.report.findings.iter().any(|finding| finding.path == path);
    for entry in repair.fs.list(repair.db)? {
        let path = repair.db.join(&entry.name);
        let is_manifest = manifest_number(&entry.name).is_some();
        if (is_manifest && (!facts.is_exact || path != facts.manifest || damaged(&path)))
            || (entry.name == CURRENT && damaged(&path))
        {
            paths.push(path);
        }
    }
    Ok(paths)
}
