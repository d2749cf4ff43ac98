//! What to do with each slice: it stays, what can be read of it goes into a new table, it is merged
//! with others, or others replace it.

use super::blobs::Blobs;
use super::facts::Facts;
use super::lineage::{Cause, Doubt, Kin, judge};
use super::log::FoundLog;
use super::place::{Piece, place};
use super::prepared::Entries;
use super::report::Loss;
use super::tables::{FoundSlice, FoundTable};
use super::{Repair, write};
use crate::error::Result;
use crate::format::FamilyId;
use crate::table::{Origin, SliceMeta};
use crate::version::table_path;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The level for a slice that shares keys with no other, if its level is not known: the last level
/// of a default tree.
const LAST_LEVEL: usize = 6;

/// A slice with its level, and the family that has it.
pub(super) type Placed = (usize, FamilyId, SliceMeta);

/// What to do with the tables.
pub(super) struct Plan {
    /// Slices that stay as they are.
    pub(super) kept: Vec<Placed>,
    /// Slices to save from damaged tables: level, family, file.
    pub(super) saved: Vec<(usize, FamilyId, u64)>,
    /// Slices to merge: the level of the outputs, with the families and files of the inputs.
    pub(super) merged: Vec<(usize, Vec<(FamilyId, u64)>)>,
    /// Slices that others replace.
    pub(super) superseded: BTreeSet<(FamilyId, u64)>,
    /// What was decided and may be wrong.
    pub(super) guesses: Vec<String>,
    /// Values of slices that are in others, too.
    moved: BTreeMap<(FamilyId, u64), Vec<Moved>>,
}

/// The values that a slice had in a blob file that is gone, between the first and the last key of
/// one output that has them.
struct Moved {
    blob: u64,
    from: Box<[u8]>,
    to: Box<[u8]>,
}

impl Plan {
    /// Slices whose entries are all `in_log` are left to it.
    pub(super) fn new(
        facts: &Facts,
        tables: &[FoundTable],
        in_log: BTreeSet<(FamilyId, u64)>,
    ) -> Plan {
        let mut plan = Plan {
            kept: Vec::new(),
            saved: Vec::new(),
            merged: Vec::new(),
            superseded: BTreeSet::new(),
            guesses: Vec::new(),
            moved: BTreeMap::new(),
        };
        let all =
            tables.iter().flat_map(|table| table.slices.iter().map(move |slice| (table, slice)));
        let mut all: Vec<(&FoundTable, &FoundSlice)> = all.collect();
        if !facts.is_exact {
            plan.judge_lineage(facts, tables);
            plan.superseded.extend(&facts.removed);
            plan.superseded.extend(in_log);
            all.retain(|(_, slice)| {
                let key = (slice.holder, slice.meta.file);
                !plan.superseded.contains(&key) && facts.families.contains_key(&key.0)
            });
        }
        for &family in facts.families.keys() {
            let own: Vec<_> = all.iter().filter(|(_, slice)| slice.holder == family).collect();
            let pieces: Vec<Piece> = own.iter().map(|(_, slice)| piece_of(facts, slice)).collect();
            for placed in place(&pieces, LAST_LEVEL) {
                let members = || placed.members.iter().map(|at| own[*at]);
                if placed.members.len() > 1 {
                    let files = members().map(|(_, slice)| (family, slice.meta.file));
                    plan.merged.push((placed.level, files.collect()));
                    continue;
                }
                for (table, slice) in members() {
                    match table.is_sound {
                        true => plan.kept.push((placed.level, family, slice.meta.clone())),
                        false => plan.saved.push((placed.level, family, slice.meta.file)),
                    }
                }
            }
        }
        plan
    }

    /// Decides without a manifest which slices others replace, and which values of the rest.
    fn judge_lineage(&mut self, facts: &Facts, tables: &[FoundTable]) {
        let mut kin = Vec::new();
        for table in tables {
            kin.extend(table.slices.iter().map(|slice| {
                let key = (slice.holder, table.number);
                let (state, left) = ((&slice.origin, slice.is_whole), Some(&slice.meta));
                kin_of(facts, key, state, &slice.blobs_missing, left)
            }));
            kin.extend(table.emptied.iter().map(|slice| {
                let key = (slice.holder, table.number);
                kin_of(facts, key, (&slice.origin, false), &slice.blobs_missing, None)
            }));
        }
        let unclear = tables.iter().filter(|table| !table.is_finished).map(|table| table.number);
        let lineage = judge(&kin, &unclear.collect());
        self.superseded = lineage.superseded;
        self.guesses.extend(lineage.doubts.iter().map(|doubt| told(facts, doubt)));
        let slices = tables.iter().flat_map(|table| &table.slices).filter(|slice| slice.is_whole);
        let metas: BTreeMap<_, _> =
            slices.map(|slice| ((slice.holder, slice.meta.file), &slice.meta)).collect();
        for moved in lineage.moved {
            for input in moved.inputs {
                let of_slice = self.moved.entry((moved.family, input)).or_default();
                let metas =
                    moved.outputs.iter().filter_map(|file| metas.get(&(moved.family, *file)));
                for meta in metas {
                    let of_blob = |blob: &u64| Moved {
                        blob: *blob,
                        from: meta.smallest.clone(),
                        to: meta.largest.clone(),
                    };
                    of_slice.extend(moved.blobs.iter().map(of_blob));
                }
            }
        }
    }

    /// True if other slices replace this one for certain. A compaction that may not have been
    /// installed does not, though its outputs are taken.
    pub(super) fn is_replaced(&self, slice: (FamilyId, u64)) -> bool {
        self.superseded.contains(&slice) && !self.moved.contains_key(&slice)
    }

    /// True if a compaction has moved the values that the slice has lost with a blob file, and one
    /// of its outputs reaches over all of them: between two outputs a third may be missing.
    pub(super) fn has_moved(&self, slice: (FamilyId, u64), loss: &Loss, db: &Path) -> bool {
        let (Some(moved), Some((from, to))) = (self.moved.get(&slice), &loss.keys) else {
            return false;
        };
        let holds = |moved: &Moved| {
            *moved.from <= **from && **to <= *moved.to && loss.path == table_path(db, moved.blob)
        };
        moved.iter().any(holds)
    }

    /// An estimate of the number of tables to write.
    pub(super) fn made(&self) -> u64 {
        let saved: BTreeSet<u64> = self.saved.iter().map(|(_, _, file)| *file).collect();
        (saved.len() + self.merged.len()) as u64
    }

    pub(super) fn uses(&self, file: u64) -> bool {
        self.kept.iter().any(|(_, _, meta)| meta.file == file)
    }

    /// Writes the new tables. Returns all slices of the repaired database with their levels.
    pub(super) fn carry_out(
        &self,
        repair: &mut Repair<'_>,
        facts: &mut Facts,
        (tables, blobs): (&[FoundTable], &mut Blobs),
        (log, entries): (&mut FoundLog, &mut Entries),
    ) -> Result<Vec<Placed>> {
        // The losses are told, and what counts is decided.
        repair.unreadable.set_complete(true);
        let mut slices = self.kept.clone();
        // The slices to merge, by the file that held them.
        let mut whole: BTreeMap<(FamilyId, u64), SliceMeta> = BTreeMap::new();
        for table in tables {
            let merged = self.merged.iter().flat_map(|(_, members)| members.iter().copied());
            let saved = self.saved.iter().map(|(_, family, file)| (*family, *file));
            let wanted: Vec<FamilyId> = merged
                .chain(saved)
                .filter(|(_, file)| *file == table.number)
                .map(|(family, _)| family)
                .collect();
            if wanted.is_empty() {
                continue;
            }
            if table.is_sound {
                let slices = table.slices.iter();
                whole.extend(slices.map(|of| ((of.holder, table.number), of.meta.clone())));
                continue;
            }
            for made in write::save_table(repair, facts, blobs, table, &wanted)? {
                repair.report.entries_saved += made.entries;
                let saved = self
                    .saved
                    .iter()
                    .find(|(_, family, file)| *family == made.family && *file == table.number);
                match saved {
                    Some((level, _, _)) => slices.push((*level, made.family, made)),
                    None => {
                        whole.insert((made.family, table.number), made);
                    }
                }
            }
        }
        for (level, members) in &self.merged {
            let inputs: Vec<SliceMeta> =
                members.iter().filter_map(|member| whole.get(member).cloned()).collect();
            let Some((family, _)) = members.first() else { continue };
            let made = write::merge(repair, facts, (*family, &inputs), *level)?;
            slices.extend(made.into_iter().map(|meta| (*level, *family, meta)));
        }
        if log.must_replay {
            let made = write::replay(repair, facts, (log, entries))?;
            slices.extend(made.into_iter().map(|meta| (0, meta.family, meta)));
        }
        slices.retain(|(_, family, _)| facts.families.contains_key(family));
        Ok(slices)
    }
}

/// A doubt in words.
fn told(facts: &Facts, doubt: &Doubt) -> String {
    let name = facts.families.get(&doubt.family).map_or("", |known| &known.name);
    let names = |files: &[u64]| {
        let name = |file: &u64| table_path(Path::new(""), *file).display().to_string();
        files.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let (unreadable, readable) = (names(&doubt.unreadable), names(&doubt.readable));
    let said = match doubt.cause {
        Cause::OutputsStandIn => format!(
            "what a compaction has written counts, and what it had read does not (readable: {readable}; lost: \
             {unreadable}): if it was not complete, keys are missing that only these tables had"
        ),
        Cause::NothingLeft => format!(
            "what a compaction has written cannot be read ({unreadable}), and what it had read does not count \
             ({readable}), as keys that were deleted since would be there again"
        ),
        Cause::DeletesLost => format!(
            "nothing can be read of {unreadable}, which a compaction had read: keys that were deleted in it may be \
             there again"
        ),
    };
    format!("column family {name:?}: {said}")
}

fn kin_of(
    facts: &Facts,
    key: (FamilyId, u64),
    (origin, is_sound): (&Origin, bool),
    blobs_missing: &BTreeSet<u64>,
    left: Option<&SliceMeta>,
) -> Kin {
    let keys_of = |meta: &SliceMeta| (meta.smallest.clone(), meta.largest.clone());
    Kin {
        family: key.0,
        file: key.1,
        is_sound,
        is_emptied: left.is_none(),
        keys: left.filter(|meta| meta.spans.is_none()).map(keys_of),
        merges: facts.merges(key.0, origin.label.as_deref()),
        is_installed: facts.slices.contains_key(&key),
        is_of_repair: origin.is_of_repair(),
        blobs_missing: blobs_missing.clone(),
        inputs: origin.inputs.to_vec(),
        ancestors: origin.ancestors.to_vec(),
    }
}

fn piece_of(facts: &Facts, slice: &FoundSlice) -> Piece {
    let meta = &slice.meta;
    let key = (slice.holder, meta.file);
    Piece {
        extent: meta.extent().owned(),
        min_seq: meta.min_seq,
        max_seq: meta.max_seq,
        level: facts.slices.get(&key).map(|(level, _)| *level),
        learned: facts.learned.get(&key).copied().unwrap_or_default(),
    }
}
