//! Prepared transactions in a repair: those whose files can be read, those that the log prepares,
//! and what the log decides about both.
//!
//! They are decided by their names, so what can be read stays in doubt. Without the manifest a
//! file may be of a transaction that is decided already; it counts as in doubt, and the report says
//! so. A file that cannot be read is a loss, and so is a commit whose prepare is lost: the log is
//! then not left to the next open, which would refuse it.
//!
//! No two transactions in doubt hold locks that exclude each other, and an open relies on that. So
//! if two do, the earlier one was decided before the later one was prepared, and what says so is
//! lost. If nothing is, an older build has let the later one in: it is put aside.

use super::Repair;
use super::facts::Facts;
use super::log::FoundLog;
use super::report::Loss;
use crate::error::{Error, Result};
use crate::flush::file_entry;
use crate::format::{Decision, FamilyId, Lsn, Payload, Prepare, decode_payload};
use crate::lock::Span;
use crate::version::{Change, TABLE_DIR, read_entry, read_own_entry, table_number, table_path};
use crate::xid::Xid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is known of the prepared transactions.
#[derive(Default)]
pub(super) struct Entries {
    /// By the LSN of the prepare.
    known: BTreeMap<Lsn, Entry>,
    /// The files that hold, or held, such transactions.
    pub(super) files: BTreeSet<u64>,
    /// Those that cannot be read.
    pub(super) lost: Vec<PathBuf>,
    /// Commits that the log has of transactions that are not known.
    unknown: Vec<(Lsn, Xid)>,
    /// The prepares that the log has.
    seen: BTreeSet<Lsn>,
    /// Those that do not count, as earlier ones have locked the same.
    aside: BTreeSet<Lsn>,
}

struct Entry {
    xid: Vec<u8>,
    payload: Vec<u8>,
    /// Its file, and the length of that; `None` if only the log has it.
    file: Option<(u64, u64)>,
}

/// Reads the files of prepared transactions: those that the manifest names or, if it is not
/// completely known, all that exist.
pub(super) fn examine(repair: &mut Repair<'_>, facts: &Facts) -> Result<Entries> {
    let mut entries = Entries::default();
    for (lsn, (xid, number, len)) in &facts.prepared {
        let uuid = facts.uuid.unwrap_or_default();
        let path = table_path(repair.db, *number);
        entries.files.insert(*number);
        let read = match repair.fs.exists(&path)? {
            true => read_own_entry(&*repair.fs, repair.db, uuid, *number, *lsn),
            false => Err(Error::corruption(&path, 0, "it is missing, yet the manifest names it")),
        };
        let read = read.and_then(|payload| demand_prepare(&path, &payload).map(|()| payload));
        if let Some(payload) = repair.absorb(read)? {
            let (xid, file) = (xid.clone(), Some((*number, *len)));
            entries.known.insert(*lsn, Entry { xid, payload, file });
            continue;
        }
        let detail = format!("the prepared transaction \"{}\" is lost", xid.escape_ascii());
        let lsns = Some((*lsn, lsn + 1));
        repair.lose(facts, Loss { path: path.clone(), lsns, detail, ..Loss::default() });
        entries.lost.push(path);
    }
    if !facts.is_exact {
        entries.find_others(repair, facts.uuid)?;
    }
    Ok(entries)
}

/// Fails unless the payload that the file holds is of a prepared transaction.
fn demand_prepare(path: &Path, payload: &[u8]) -> Result<()> {
    match decode_payload(payload).map_err(|error| error.in_file(path, 0))? {
        Payload::Prepare(_) => Ok(()),
        _ => Err(Error::corruption(path, 0, "it holds no prepared transaction")),
    }
}

impl Entries {
    /// Reads the files that no manifest names.
    fn find_others(&mut self, repair: &mut Repair<'_>, uuid: Option<[u8; 16]>) -> Result<()> {
        let dir = repair.db.join(TABLE_DIR);
        let found = if repair.fs.exists(&dir)? { repair.fs.list(&dir)? } else { Vec::new() };
        for number in found.iter().filter_map(|entry| table_number(&entry.name)) {
            let path = table_path(repair.db, number);
            let is_new = !self.files.contains(&number);
            let Ok(entry) = read_entry(&*repair.fs, &path) else { continue };
            let Ok(Payload::Prepare(prepare)) = decode_payload(&entry.payload) else { continue };
            // An open refuses a manifest that names a file of another number or database.
            let is_own = (Some(entry.header.uuid), entry.header.number) == (uuid, number);
            if !is_new || !is_own || !self.files.insert(number) {
                continue;
            }
            let name = prepare.xid.escape_ascii().to_string();
            repair.report.guesses.push(format!(
                "the prepared transaction \"{name}\" is in doubt, as {} says",
                path.display()
            ));
            let file = Some((number, entry.len));
            let xid = prepare.xid.to_vec();
            self.known.insert(entry.lsn, Entry { xid, payload: entry.payload, file });
        }
        Ok(())
    }

    /// Above the LSNs of all prepares that are known.
    pub(super) fn end(&self) -> Lsn {
        self.known.last_key_value().map_or(0, |(lsn, _)| lsn.saturating_add(1))
    }

    /// Notes what a record of the log is worth. False if it commits what is not known. Below
    /// `floor` that is no loss, because it was in tables.
    pub(super) fn look(&mut self, lsn: Lsn, payload: &Payload<'_>, floor: Lsn) -> bool {
        match payload {
            Payload::Prepare(_) => drop(self.seen.insert(lsn)),
            Payload::Decide(decision) if decision.is_commit => {
                let lsn_of = decision.prepared;
                let is_known = self.seen.contains(&lsn_of) || self.known.contains_key(&lsn_of);
                if !is_known && lsn >= floor {
                    self.unknown.push((lsn, Xid::new(decision.xid)));
                }
                return is_known;
            }
            _ => {}
        }
        true
    }

    /// The log prepares a transaction.
    pub(super) fn prepare(&mut self, lsn: Lsn, prepare: &Prepare<'_>, payload: Vec<u8>) {
        let fresh = || Entry { xid: prepare.xid.to_vec(), payload, file: None };
        self.known.entry(lsn).or_insert_with(fresh);
    }

    /// The log decides one. Returns the payload of its prepare if it is to be applied.
    pub(super) fn decide(&mut self, decision: &Decision<'_>) -> Option<Vec<u8>> {
        self.known.get(&decision.prepared).filter(|entry| *entry.xid == *decision.xid)?;
        let entry = self.known.remove(&decision.prepared)?;
        decision.is_commit.then_some(entry.payload)
    }

    /// Reports the commits whose prepares are lost.
    pub(super) fn say_losses(&self, repair: &mut Repair<'_>, facts: &Facts) {
        for (lsn, xid) in &self.unknown {
            let detail =
                format!("the commit of the prepared transaction \"{xid}\" has nothing to apply");
            let (path, lsns) = (repair.db.to_owned(), Some((*lsn, lsn + 1)));
            repair.lose(facts, Loss { path, lsns, detail, ..Loss::default() });
        }
    }

    /// The locks of those in files.
    pub(super) fn in_doubt(&self) -> InDoubt {
        let mut in_doubt = InDoubt::default();
        for (lsn, entry) in &self.known {
            if let Ok(payload) = decode_payload(&entry.payload) {
                in_doubt.note(*lsn, &payload);
            }
        }
        in_doubt
    }

    /// Puts those aside that an open would refuse because an earlier one has locked the same. Of
    /// the log nothing is missing, so the earlier one is in doubt indeed.
    pub(super) fn put_aside(
        &mut self,
        repair: &mut Repair<'_>,
        facts: &Facts,
        (log, in_doubt): (&FoundLog, &InDoubt),
    ) {
        for lsn in in_doubt.excluded(facts) {
            let Some((xid, _)) = in_doubt.of.get(&lsn) else { continue };
            let file = self.known.get(&lsn).and_then(|entry| entry.file);
            let (path, offset) = match file {
                Some((number, _)) => (table_path(repair.db, number), None),
                None => log.place(repair, lsn),
            };
            let detail = format!(
                "the prepared transaction \"{}\" is put aside: one that was prepared before it, and is in doubt, too, has \
                 locked the same keys",
                xid.escape_ascii()
            );
            repair.damage(&path, offset, &detail);
            let lsns = Some((lsn, lsn + 1));
            let loss = Loss { path: path.clone(), offset, lsns, detail, ..Loss::default() };
            repair.lose(facts, loss);
            self.lost.extend(file.map(|_| path));
            self.aside.insert(lsn);
        }
    }

    /// Leaves out those that are put aside, and those that must have been decided, because a later
    /// one has locked the same.
    pub(super) fn leave_out_decided(&mut self, repair: &mut Repair<'_>) {
        self.known.retain(|lsn, _| !self.aside.contains(lsn));
        let mut locked = Locked::default();
        let mut decided = Vec::new();
        for (lsn, entry) in self.known.iter().rev() {
            let Ok(Payload::Prepare(prepare)) = decode_payload(&entry.payload) else { continue };
            let locks = locks_of(&prepare);
            if locks.iter().any(|lock| locked.excludes(lock)) {
                decided.push(*lsn);
                let name = entry.xid.escape_ascii();
                repair.report.guesses.push(format!(
                    "the prepared transaction \"{name}\" was decided, because a later one has locked the same keys"
                ));
                continue;
            }
            locks.into_iter().for_each(|lock| locked.add(lock));
        }
        decided.iter().for_each(|lsn| drop(self.known.remove(lsn)));
    }

    /// Writes the files of those that only the log has, and returns what the manifest says of all.
    /// Of two of one name, which only a loss can leave, the later one stays.
    pub(super) fn file(&mut self, repair: &mut Repair<'_>, facts: &Facts) -> Result<Vec<Change>> {
        let mut by_name: BTreeMap<Vec<u8>, Lsn> = BTreeMap::new();
        for (lsn, entry) in &self.known {
            if by_name.insert(entry.xid.clone(), *lsn).is_some() {
                let name = entry.xid.escape_ascii();
                repair.report.guesses.push(format!(
                    "the prepared transaction \"{name}\" was decided, because a later one has its name"
                ));
            }
        }
        let uuid = facts.uuid.unwrap_or_default();
        let mut changes = Vec::new();
        for (xid, lsn) in by_name {
            let Some(entry) = self.known.get(&lsn) else { continue };
            changes.push(match entry.file {
                Some((file, len)) => Change::AddPrepared { lsn, xid, file, len },
                None => {
                    let what = (lsn, &*xid, &*entry.payload);
                    file_entry(&*repair.fs, repair.db, uuid, &repair.numbers, what)?.change()
                }
            });
        }
        Ok(changes)
    }
}

/// What the transactions in doubt at one point of the log have locked.
#[derive(Default)]
pub(super) struct InDoubt {
    /// By the LSN of the prepare: name and locks.
    of: BTreeMap<Lsn, (Vec<u8>, Vec<Lock>)>,
    dropped: BTreeSet<FamilyId>,
}

impl InDoubt {
    /// Takes in a record that a replay accepts.
    pub(super) fn note(&mut self, lsn: Lsn, payload: &Payload<'_>) {
        match payload {
            Payload::Prepare(prepare) => {
                self.of.insert(lsn, (prepare.xid.to_vec(), locks_of(prepare)));
            }
            Payload::Decide(decision) => {
                let of = decision.prepared;
                if self.of.get(&of).is_some_and(|(xid, _)| *xid == *decision.xid) {
                    self.of.remove(&of);
                }
            }
            Payload::FamilyDrop { id } => drop(self.dropped.insert(*id)),
            _ => {}
        }
    }

    /// Those that have locked what earlier ones have. What is locked in a family that was dropped
    /// is free.
    pub(super) fn excluded(&self, facts: &Facts) -> Vec<Lsn> {
        let mut locked = Locked::default();
        let mut excluded = Vec::new();
        for (lsn, (_, locks)) in &self.of {
            let is_free =
                |lock: &&Lock| self.dropped.contains(&lock.family) || facts.is_dropped(lock.family);
            let mut counted = locks.iter().filter(|lock| !is_free(lock));
            match counted.any(|lock| locked.excludes(lock)) {
                true => excluded.push(*lsn),
                false => locks.iter().for_each(|lock| locked.add(lock.clone())),
            }
        }
        debug_assert!(excluded.len() < self.of.len().max(1), "the first one is not in doubt");
        excluded
    }
}

/// A lock of a prepared transaction. One of a key has the span of that key.
#[derive(Clone)]
struct Lock {
    family: FamilyId,
    span: Span,
    is_exclusive: bool,
    is_key: bool,
}

/// What a prepared transaction has locked.
fn locks_of(prepare: &Prepare<'_>) -> Vec<Lock> {
    let written = prepare.ops.iter().map(|op| {
        let is_key = !op.kind.is_span();
        let span = if is_key { Span::of_key(op.key) } else { Span::of_delete(op.key, op.value) };
        Lock { family: op.family, span, is_exclusive: true, is_key }
    });
    let keys = prepare.keys.iter().map(|key| {
        let (family, span) = (key.family, Span::of_key(key.key));
        Lock { family, span, is_exclusive: key.is_exclusive, is_key: true }
    });
    let ranges = prepare.ranges.iter().map(|range| {
        let span = Span { lower: range.lower.into(), upper: range.upper.map(Into::into) };
        Lock { family: range.family, span, is_exclusive: range.is_exclusive, is_key: false }
    });
    // Older versions noted some between a key and its successor. An open skips them.
    let ranges = ranges.filter(|lock| lock.span.holds_keys());
    written.chain(keys).chain(ranges).collect()
}

/// What transactions in doubt have locked.
#[derive(Default)]
struct Locked {
    /// Keys, and whether one alone has locked them.
    keys: BTreeMap<(FamilyId, Arc<[u8]>), bool>,
    ranges: Vec<Lock>,
}

impl Locked {
    /// True if no other transaction can hold this lock, too.
    fn excludes(&self, lock: &Lock) -> bool {
        let counts = |is_exclusive: bool| is_exclusive || lock.is_exclusive;
        let from = (lock.family, lock.span.lower.clone());
        let keys = self.keys.range(from..);
        let mut keys =
            keys.take_while(|((of, key), _)| *of == lock.family && lock.span.contains(key));
        let mut ranges = self.ranges.iter().filter(|range| range.family == lock.family);
        keys.any(|(_, is_exclusive)| counts(*is_exclusive))
            || ranges.any(|range| counts(range.is_exclusive) && range.span.overlaps(&lock.span))
    }

    fn add(&mut self, lock: Lock) {
        match lock.is_key {
            true => {
                *self.keys.entry((lock.family, lock.span.lower)).or_default() |= lock.is_exclusive
            }
            false => self.ranges.push(lock),
        }
    }
}
