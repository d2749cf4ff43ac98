//! Examines the tables: which are intact, and what can be read of the others.

use super::Repair;
use super::facts::Facts;
use super::report::Loss;
use crate::cursor::Entry;
use crate::error::{Error, Result};
use crate::format::{FamilyId, Lsn, OpKind};
use crate::span::SpanSet;
use crate::table::{
    BlockHandle, Origin, Part, Salvage, SalvagedSlice, SliceMeta, SpanMeta, TableFile, salvage,
};
use crate::version::{COUNTED_END, TABLE_DIR, table_number, table_path};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A table file that exists.
pub(super) struct FoundTable {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    /// The file can stay as it is.
    pub(super) is_sound: bool,
    pub(super) slices: Vec<FoundSlice>,
    /// What is lost of its slices, unless other slices replace them.
    pub(super) losses: Vec<Loss>,
}

/// A slice, or the readable part of it.
#[derive(Clone, Debug)]
pub(super) struct FoundSlice {
    pub(super) meta: SliceMeta,
    pub(super) origin: Origin,
    /// The whole slice can be read, even if the file is damaged elsewhere.
    pub(super) is_whole: bool,
}

/// Examines the tables that the manifest names. If the manifest is not completely known, examines
/// all tables that exist. The files in `others` are no tables.
pub(super) fn examine(
    repair: &mut Repair<'_>,
    facts: &mut Facts,
    others: &BTreeSet<u64>,
) -> Result<Vec<FoundTable>> {
    let dir = repair.db.join(TABLE_DIR);
    let entries = if repair.fs.exists(&dir)? { repair.fs.list(&dir)? } else { Vec::new() };
    let present: BTreeMap<u64, u64> =
        entries.iter().filter_map(|entry| Some((table_number(&entry.name)?, entry.len))).collect();
    let counted = present.keys().rfind(|number| **number < COUNTED_END);
    repair.next_file = counted.map_or(1, |last| last + 1).max(facts.next_file);
    let is_present: BTreeSet<u64> = present.keys().copied().collect();
    let named: BTreeSet<u64> = facts.slices.keys().map(|(_, file)| *file).collect();
    let wanted =
        present.into_iter().filter(|(number, _)| !facts.is_exact || named.contains(number));
    let wanted: Vec<_> = wanted.filter(|(number, _)| !others.contains(number)).collect();
    repair.total_bytes += wanted.iter().map(|(_, len)| len).sum::<u64>();
    let mut found = Vec::new();
    for (number, len) in wanted {
        let before = repair.done_bytes;
        found.push(examine_table(repair, facts, number)?);
        repair.advance_to(before + len)?;
    }
    for number in named.into_iter().filter(|number| !is_present.contains(number)) {
        missing(repair, facts, number, &found);
    }
    Ok(found)
}

/// Reports what is lost with a missing table. If the manifest is not completely known, a lost edit
/// may have removed the table from the tree; then another table replaces it.
fn missing(repair: &mut Repair<'_>, facts: &Facts, number: u64, found: &[FoundTable]) {
    let path = table_path(repair.db, number);
    let slices = found.iter().flat_map(|table| &table.slices);
    let stand_ins: BTreeSet<FamilyId> = slices
        .filter(|slice| {
            slice.origin.inputs.contains(&number) || slice.origin.ancestors.contains(&number)
        })
        .map(|slice| slice.meta.family)
        .collect();
    for (_, meta) in facts.slices.values().filter(|(_, meta)| meta.file == number) {
        if facts.is_exact || !stand_ins.contains(&meta.family) {
            repair.damage(&path, None, "it is missing, yet the manifest names it");
            let loss = whole_slice(&path, meta, "the table is missing");
            repair.lose(facts, loss);
        }
    }
}

fn whole_slice(path: &Path, meta: &SliceMeta, detail: &str) -> Loss {
    Loss {
        path: path.to_owned(),
        offset: None,
        family: Some(meta.family),
        keys: Some((meta.smallest.to_vec(), meta.largest.to_vec())),
        lsns: Some((meta.min_seq, meta.max_seq + 1)),
        entries: Some(meta.entries),
        detail: detail.to_owned(),
        ..Loss::default()
    }
}

fn examine_table(repair: &mut Repair<'_>, facts: &mut Facts, number: u64) -> Result<FoundTable> {
    let path = table_path(repair.db, number);
    if number >= repair.next_file {
        repair.damage(&path, None, "no database has made so many tables: it is none of this one");
        let (slices, losses) = (Vec::new(), Vec::new());
        return Ok(FoundTable { number, path, is_sound: false, slices, losses });
    }
    let is_wanted = |facts: &Facts, family: FamilyId| {
        !facts.is_exact || facts.slices.contains_key(&(family, number))
    };
    let opened = TableFile::open(&repair.fs, &path);
    if let Some(table) = repair.absorb(opened)? {
        let mut wrong = identity(&table, facts, number);
        wrong.extend(table.check(&mut |_| ()));
        wrong.extend(strangers(&table, facts, &path, number));
        if wrong.is_empty() {
            facts.uuid.get_or_insert(table.header().uuid);
            let mut slices = Vec::new();
            for meta in table.slices().iter().filter(|meta| is_wanted(facts, meta.family)) {
                let (meta, origin) = (meta.clone(), table.origin(meta)?);
                slices.push(FoundSlice { meta, origin, is_whole: true });
            }
            return Ok(FoundTable { number, path, is_sound: true, slices, losses: Vec::new() });
        }
        for error in wrong {
            repair.absorb::<()>(Err(error))?;
        }
    }
    let known: Vec<SliceMeta> = facts.slices.values().map(|(_, meta)| meta.clone()).collect();
    let known: Vec<_> = known.into_iter().filter(|meta| meta.file == number).collect();
    let salvage = salvage(repair.read_leniently(&path)?, number, &known)
        .map_err(|error| error.in_file(&path, 0))?;
    let (mut slices, mut losses) = (Vec::new(), Vec::new());
    for slice in &salvage.slices {
        let Some(family) = slice.family.filter(|family| is_wanted(facts, *family)) else {
            continue;
        };
        let salvaged = survey(&salvage, slice, family, number, &path)?;
        losses.extend(salvaged.losses);
        slices.extend(salvaged.slice);
    }
    if salvage.homeless_bytes > 0 {
        let detail = format!(
            "{} bytes of blocks are sound, but nothing says whose they are",
            salvage.homeless_bytes
        );
        losses.push(Loss { path: path.clone(), detail, ..Loss::default() });
    }
    let found_of = |family| salvage.slices.iter().any(|slice| slice.family == Some(family));
    for meta in known.iter().filter(|meta| !found_of(meta.family)) {
        losses.push(whole_slice(&path, meta, "nothing of the slice can be read"));
    }
    if known.is_empty() && !salvage.has_directory {
        let detail = "its directory cannot be read: what else was in it is not known".to_owned();
        losses.push(Loss { path: path.clone(), detail, ..Loss::default() });
    }
    Ok(FoundTable { number, path, is_sound: false, slices, losses })
}

/// Checks that the file is the one that its name and the manifest say.
fn identity(table: &TableFile, facts: &Facts, number: u64) -> Vec<Error> {
    let header = table.header();
    let mut wrong = Vec::new();
    if header.number != number {
        let detail = format!("the header says that this is table {}", header.number);
        wrong.push(Error::corruption(table.path(), 48, detail));
    }
    if facts.uuid.is_some_and(|uuid| uuid != header.uuid) {
        let detail = "the table belongs to another database";
        wrong.push(Error::corruption(table.path(), 32, detail));
    }
    wrong
}

/// The slices that the manifest has in the file, but that the file lacks or has in another form.
fn strangers(table: &TableFile, facts: &Facts, path: &Path, number: u64) -> Vec<Error> {
    let named = facts.slices.values().map(|(_, meta)| meta).filter(|meta| meta.file == number);
    named
        .filter(|meta| facts.is_exact && !table.slices().contains(meta))
        .map(|meta| {
            let detail = format!("the slice of family {} is not as the manifest says", meta.family);
            Error::corruption(path, meta.root.offset, detail)
        })
        .collect()
}

struct Salvaged {
    /// `None` if nothing can be read.
    slice: Option<FoundSlice>,
    losses: Vec<Loss>,
}

/// A range of data blocks that cannot be read, with the keys around it.
struct Hole {
    offset: u64,
    len: u64,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

/// Reports what can be read of a slice and what cannot.
fn survey(
    salvage: &Salvage,
    slice: &SalvagedSlice,
    family: FamilyId,
    number: u64,
    path: &Path,
) -> Result<Salvaged> {
    let mut left: Option<SliceMeta> = None;
    let mut holes: Vec<Hole> = Vec::new();
    let said = slice.meta.as_ref();
    visit_readable(salvage, slice, path, &mut |part| {
        match part {
            Part::Gap { offset, len } => {
                let from = left.as_ref().map(|left| left.largest.to_vec());
                let from = from.or(said.map(|meta| meta.smallest.to_vec()));
                holes.push(Hole { offset, len, from, to: None });
            }
            Part::Entry(entry) => {
                if let Some(hole) = holes.last_mut().filter(|hole| hole.to.is_none()) {
                    hole.to = Some(entry.key.to_vec());
                }
                count(left.get_or_insert_with(|| nothing(family, number, &entry)), &entry);
            }
        }
        Ok(())
    })?;
    let entries_left = left.as_ref().map_or(0, |left| left.entries);
    if let Some(meta) = said.filter(|meta| holes.is_empty() && meta.entries > entries_left) {
        // A small slice lies in its root.
        let (from, to) = (meta.smallest.to_vec(), meta.largest.to_vec());
        let (offset, len) = (meta.root.offset, u64::from(meta.root.len));
        holes.push(Hole { offset, len, from: Some(from), to: Some(to) });
    }
    let is_one = holes.len() == 1;
    let losses = holes.into_iter().map(|hole| Loss {
        path: path.to_owned(),
        offset: Some(hole.offset),
        family: Some(family),
        keys: hole.from.zip(hole.to.or(said.map(|meta| meta.largest.to_vec()))),
        lsns: said.map(|meta| (meta.min_seq, meta.max_seq + 1)),
        entries: said.filter(|_| is_one).map(|meta| meta.entries.saturating_sub(entries_left)),
        detail: format!("data blocks in {} bytes cannot be read", hole.len),
        ..Loss::default()
    });
    let mut losses: Vec<_> = losses.collect();
    if slice.root.is_none() && said.is_none() {
        losses.push(Loss {
            path: path.to_owned(),
            family: Some(family),
            detail: "the slice's root cannot be read: what else was in it is not known".to_owned(),
            ..Loss::default()
        });
    }
    losses.extend(lost_spans(slice, family, path));
    if let Some(spans) = slice.root.as_ref().map(|root| &root.spans) {
        keep_spans(&mut left, family, number, spans);
    }
    let is_whole = losses.is_empty() && said.is_none_or(|meta| meta.entries == entries_left);
    let origin = slice.root.as_ref().map(|root| root.origin.clone()).unwrap_or_default();
    let slice = left.map(|meta| FoundSlice { meta, origin, is_whole });
    Ok(Salvaged { slice, losses })
}

fn nothing(family: FamilyId, file: u64, first: &Entry<'_>) -> SliceMeta {
    SliceMeta {
        file,
        family,
        root: BlockHandle { offset: 0, len: 0 },
        disk_bytes: 0,
        raw_bytes: 0,
        entries: 0,
        deletes: 0,
        smallest: first.key.into(),
        largest: first.key.into(),
        min_seq: Lsn::MAX,
        max_seq: 0,
        spans: None,
        ends: None,
    }
}

/// What is lost with the range deletes of a slice whose root cannot be read.
fn lost_spans(slice: &SalvagedSlice, family: FamilyId, path: &Path) -> Option<Loss> {
    let said = slice.meta.as_ref().filter(|_| slice.root.is_none());
    let spans = said?.spans.as_ref()?;
    Some(Loss {
        path: path.to_owned(),
        family: Some(family),
        keys: spans.end.as_ref().map(|end| (spans.start.to_vec(), end.to_vec())),
        detail: format!(
            "{} range deletes in the slice's root cannot be read: keys that they had deleted may \
             be there again",
            spans.fragments
        ),
        ..Loss::default()
    })
}

/// Adds the range deletes to the readable part of a slice.
fn keep_spans(left: &mut Option<SliceMeta>, family: FamilyId, number: u64, spans: &SpanSet) {
    let (Some(first), Some((least, greatest))) = (spans.fragments().first(), spans.seqs()) else {
        return;
    };
    let stand_in = Entry { key: &first.start, seq: greatest, kind: OpKind::Delete, value: &[] };
    let left = left.get_or_insert_with(|| nothing(family, number, &stand_in));
    left.spans = SpanMeta::of(spans);
    left.min_seq = left.min_seq.min(least);
    left.max_seq = left.max_seq.max(greatest);
}

fn count(meta: &mut SliceMeta, entry: &Entry<'_>) {
    meta.entries += 1;
    meta.raw_bytes += (entry.key.len() + entry.value.len()) as u64;
    meta.largest = entry.key.into();
    meta.min_seq = meta.min_seq.min(entry.seq);
    meta.max_seq = meta.max_seq.max(entry.seq);
}

/// Visits what can be read of a slice. Entries out of order do not belong there and are left out.
pub(super) fn visit_readable(
    salvage: &Salvage,
    slice: &SalvagedSlice,
    path: &Path,
    visit: &mut dyn FnMut(Part<'_>) -> Result<()>,
) -> Result<()> {
    let mut last: Option<(Vec<u8>, Lsn)> = None;
    let visited = salvage.visit(slice, &mut |part| {
        if let Part::Entry(entry) = &part {
            let is_next = last.as_ref().is_none_or(|(key, seq)| {
                key.as_slice() < entry.key || (key == entry.key && entry.seq < *seq)
            });
            if !is_next {
                return Ok(());
            }
            last = Some((entry.key.to_vec(), entry.seq));
        }
        visit(part)
    });
    visited.map_err(|error| error.in_file(path, 0))
}
