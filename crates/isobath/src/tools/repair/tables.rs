//! Examines the tables: which are intact, and what can be read of the others.

use super::Repair;
use super::blobs::{Blobs, Surveyed};
use super::facts::Facts;
use super::identity;
use super::report::Loss;
use crate::cursor::Entry;
use crate::error::{Error, Result};
use crate::format::{FamilyId, Lsn, OpKind};
use crate::span::SpanSet;
use crate::table::{
    BlockHandle, FOOTER_LEN, Origin, Part, Salvage, SalvagedSlice, SliceMeta, SpanMeta, TableFile,
    may_be_table, salvage,
};
use crate::version::{COUNTED_END, TABLE_DIR, table_number, table_path};
use crate::vfs::FileAccess;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file is read as a whole if it is not longer, or if so much of it looks like a table.
const HEAD_LEN: u64 = 4 << 20;

/// A table file that exists.
pub(super) struct FoundTable {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    /// The file can stay as it is.
    pub(super) is_sound: bool,
    /// Its directory, which is written last, can be read, or the manifest names it.
    pub(super) is_finished: bool,
    pub(super) slices: Vec<FoundSlice>,
    /// The slices of which nothing is left.
    pub(super) emptied: Vec<Emptied>,
    /// What is lost of its slices, unless other slices replace them.
    pub(super) losses: Vec<Loss>,
}

/// A slice, or the readable part of it.
#[derive(Clone, Debug)]
pub(super) struct FoundSlice {
    /// The family that has it, or that it may belong to: another one than the table says if the
    /// family is a clone.
    pub(super) holder: FamilyId,
    pub(super) meta: SliceMeta,
    pub(super) origin: Origin,
    /// The whole slice can be read, even if the file is damaged elsewhere.
    pub(super) is_whole: bool,
    /// The least and the greatest sequence number, with those of what is lost, if they are known.
    pub(super) seqs: Option<(Lsn, Lsn)>,
    /// Blob files that do not exist any more, in which it had values.
    pub(super) blobs_missing: BTreeSet<u64>,
}

/// A slice of which nothing can be read but, perhaps, its root.
#[derive(Clone, Debug, Default)]
pub(super) struct Emptied {
    pub(super) holder: FamilyId,
    pub(super) origin: Origin,
    pub(super) blobs_missing: BTreeSet<u64>,
}

/// Examines the tables that the manifest names. If the manifest is not completely known, examines
/// all tables that exist. The files in `others` are no tables, and blob files are none.
pub(super) fn examine(
    repair: &mut Repair<'_>,
    facts: &Facts,
    blobs: &mut Blobs,
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
    let others: BTreeSet<u64> = blobs.numbers().chain(others.iter().copied()).collect();
    let wanted: Vec<_> = wanted.filter(|(number, _)| !others.contains(number)).collect();
    repair.total_bytes += wanted.iter().map(|(_, len)| len).sum::<u64>();
    let mut found = Vec::new();
    for (number, len) in wanted {
        let before = repair.done_bytes;
        found.push(examine_table(repair, facts, blobs, number)?);
        repair.advance_to(before + len)?;
    }
    repair.advance_to(repair.done_bytes + blobs.bytes)?;
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
        .map(|slice| slice.holder)
        .collect();
    let named = facts.slices.iter().filter(|((_, file), _)| *file == number);
    for ((holder, _), (_, meta)) in named {
        if facts.is_exact || !stand_ins.contains(holder) {
            repair.damage(&path, None, "it is missing, yet the manifest names it");
            let loss = whole_slice(&path, (*holder, meta), "the table is missing");
            repair.lose(facts, loss);
        }
    }
}

fn whole_slice(path: &Path, (holder, meta): (FamilyId, &SliceMeta), detail: &str) -> Loss {
    Loss {
        path: path.to_owned(),
        offset: None,
        family: Some(holder),
        keys: Some((meta.smallest.to_vec(), meta.largest.to_vec())),
        lsns: Some((meta.min_seq, meta.max_seq + 1)),
        entries: Some(meta.entries),
        detail: detail.to_owned(),
        ..Loss::default()
    }
}

/// What each family that has the slice loses with the whole of it.
fn whole_of_each(facts: &Facts, path: &Path, meta: &SliceMeta, detail: &str) -> Vec<Loss> {
    let holders = facts.holders(meta.family, meta.file).into_iter();
    holders.map(|holder| whole_slice(path, (holder, meta), detail)).collect()
}

/// What is lost with sound blocks that nothing claims.
fn homeless(bytes: u64, path: &Path) -> Option<Loss> {
    let detail = format!("{bytes} bytes of blocks are sound, but nothing says whose they are");
    (bytes > 0).then(|| Loss { path: path.to_owned(), detail, ..Loss::default() })
}

fn examine_table(
    repair: &mut Repair<'_>,
    facts: &Facts,
    blobs: &mut Blobs,
    number: u64,
) -> Result<FoundTable> {
    let path = table_path(repair.db, number);
    if number >= repair.next_file {
        repair.damage(&path, None, "no database has made so many tables: it is none of this one");
        return Ok(FoundTable::empty(number, path));
    }
    let opened = TableFile::open(&repair.fs, &path);
    if let Some(table) = repair.absorb(opened)? {
        let mistaken = identity::mistaken(&table, facts, number);
        if !mistaken.is_empty() {
            return mistaken_table(repair, facts, (number, path), mistaken);
        }
        let mut wrong = table.check(&mut |_| ());
        wrong.extend(strangers(&table, facts, &path, number));
        if wrong.is_empty() {
            return take_intact(repair, facts, blobs, &table, number);
        }
        for error in wrong {
            repair.absorb::<()>(Err(error))?;
        }
    }
    let known = facts.in_file(number);
    if known.is_empty() && !has_signs_of_table(repair, (facts.uuid, number), &path)? {
        return Ok(no_table(repair, number, path));
    }
    let salvage = match salvage_own(repair, facts, &known, (number, &path))? {
        Ok(salvage) => salvage,
        Err(mistaken) => return mistaken_table(repair, facts, (number, path), mistaken),
    };
    let (mut slices, mut emptied, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for slice in &salvage.slices {
        let Some(family) = slice.family else { continue };
        let holders = facts.holders(family, number);
        if holders.is_empty() {
            continue;
        }
        let mut seen = Surveyed::default();
        let mut see = |entry: &Entry<'_>| blobs.see(repair, (family, &path), entry, &mut seen);
        let (left, holes) = walk(&salvage, slice, (family, number, &path), &mut see)?;
        let salvaged = survey(slice, (family, number, &path), (left, holes), seen);
        losses.extend(for_each_holder(&holders, salvaged.losses));
        for &holder in &holders {
            match &salvaged.slice {
                Ok(found) => slices.push(FoundSlice { holder, ..found.clone() }),
                Err(none) => emptied.push(Emptied { holder, ..none.clone() }),
            }
        }
    }
    losses.extend(homeless(salvage.homeless_bytes, &path));
    let found_of = |family| salvage.slices.iter().any(|slice| slice.family == Some(family));
    for meta in known.iter().filter(|meta| !found_of(meta.family)) {
        let lost = whole_of_each(facts, &path, meta, "nothing of the slice can be read");
        emptied.extend(lost.iter().filter_map(Emptied::of));
        losses.extend(lost);
    }
    if known.is_empty() && !salvage.has_directory {
        let detail = "its directory cannot be read: what else was in it is not known".to_owned();
        losses.push(Loss { path: path.clone(), detail, ..Loss::default() });
    }
    let is_finished = salvage.has_directory || !known.is_empty();
    let found =
        FoundTable { is_finished, slices, emptied, losses, ..FoundTable::empty(number, path) };
    Ok(found)
}

/// What can be read of the table that the file's name stands for; or why the file is another one.
fn salvage_own(
    repair: &Repair<'_>,
    facts: &Facts,
    known: &[SliceMeta],
    (number, path): (u64, &Path),
) -> Result<std::result::Result<Salvage, Vec<Error>>> {
    let mut salvage = salvage(repair.read_leniently(path)?, (facts.uuid, number), known)
        .map_err(|error| error.in_file(path, 0))?;
    let mistaken = identity::mistaken_rest(&salvage, facts, (path, number));
    if !mistaken.is_empty() {
        return Ok(Err(mistaken));
    }
    if facts.is_exact {
        salvage.slices.retain(|slice| !is_stranger(slice, known));
    }
    Ok(Ok(salvage))
}

/// False if the file is long, and neither its beginning nor its end is of a table.
fn has_signs_of_table(
    repair: &Repair<'_>,
    of: (Option<[u8; 16]>, u64),
    path: &Path,
) -> Result<bool> {
    let file = repair.fs.open_read(path, FileAccess::Positional)?;
    if file.len() <= HEAD_LEN {
        return Ok(true);
    }
    let (mut head, mut end) = (vec![0; HEAD_LEN as usize], [0; FOOTER_LEN]);
    repair.unreadable.read_around(&*file, 0, &mut head)?;
    repair.unreadable.read_around(&*file, file.len() - FOOTER_LEN as u64, &mut end)?;
    Ok(may_be_table(head, of, &end, file.len()))
}

/// Gives up a file that is none, as far as it shows.
fn no_table(repair: &mut Repair<'_>, number: u64, path: PathBuf) -> FoundTable {
    let detail = "neither its beginning nor its end is of a table: what was in it is not known";
    repair.damage(&path, None, detail);
    let losses = vec![Loss { path: path.clone(), detail: detail.to_owned(), ..Loss::default() }];
    FoundTable { losses, ..FoundTable::empty(number, path) }
}

/// Gives up a file that is another one than its name says, or of another database. What was in the
/// one that the name stands for is lost.
fn mistaken_table(
    repair: &mut Repair<'_>,
    facts: &Facts,
    (number, path): (u64, PathBuf),
    mistaken: Vec<Error>,
) -> Result<FoundTable> {
    for error in mistaken {
        repair.absorb::<()>(Err(error))?;
    }
    let known = facts.in_file(number);
    let detail = "another table is in the place of this one";
    let each = known.iter().flat_map(|meta| whole_of_each(facts, &path, meta, detail));
    let mut losses: Vec<Loss> = each.collect();
    let emptied = losses.iter().filter_map(Emptied::of).collect();
    if known.is_empty() {
        let detail = format!("{detail}: what was in it is not known");
        losses.push(Loss { path: path.clone(), detail, ..Loss::default() });
    }
    let is_finished = !known.is_empty();
    Ok(FoundTable { is_finished, emptied, losses, ..FoundTable::empty(number, path) })
}

/// Takes in a table that is intact. Values of it in blob files need not be.
fn take_intact(
    repair: &mut Repair<'_>,
    facts: &Facts,
    blobs: &mut Blobs,
    table: &TableFile,
    number: u64,
) -> Result<FoundTable> {
    let empty = FoundTable::empty(number, table.path().to_owned());
    let mut found = FoundTable { is_sound: true, is_finished: true, ..empty };
    for meta in table.slices() {
        let holders = facts.holders(meta.family, number);
        if !holders.is_empty() {
            let seen = blobs.survey(repair, table, meta)?;
            found.take_whole(&holders, meta, table.origin(meta)?, seen);
        }
    }
    Ok(found)
}

impl Emptied {
    /// What is left of a slice that is lost as a whole.
    fn of(loss: &Loss) -> Option<Emptied> {
        loss.family.map(|holder| Emptied { holder, ..Emptied::default() })
    }
}

impl FoundTable {
    fn empty(number: u64, path: PathBuf) -> FoundTable {
        let (slices, emptied, losses) = (Vec::new(), Vec::new(), Vec::new());
        FoundTable { number, path, is_sound: false, is_finished: false, slices, emptied, losses }
    }

    /// The slices of which nothing is left, by family, with the LSNs that were in them: from the
    /// first to behind the last, if that is known.
    pub(super) fn slices_lost(&self) -> BTreeMap<FamilyId, (Lsn, Lsn)> {
        let mut lost: BTreeMap<FamilyId, Option<(Lsn, Lsn)>> = BTreeMap::new();
        for loss in &self.losses {
            let Some(family) = loss.family else { continue };
            let hull = lost.entry(family).or_insert(loss.lsns);
            let both = hull.zip(loss.lsns);
            *hull = both.map(|(one, other)| (one.0.min(other.0), one.1.max(other.1)));
        }
        lost.retain(|family, _| !self.slices.iter().any(|slice| slice.holder == *family));
        lost.into_iter().filter_map(|(family, lsns)| Some((family, lsns?))).collect()
    }

    /// Takes in a slice that is intact, but for values in blob files.
    fn take_whole(
        &mut self,
        holders: &[FamilyId],
        meta: &SliceMeta,
        origin: Origin,
        seen: Surveyed,
    ) {
        self.is_sound &= !seen.is_changed;
        for &holder in holders {
            let (origin, blobs_missing) = (origin.clone(), seen.blobs_missing.clone());
            if seen.lost >= meta.entries && meta.spans.is_none() {
                self.emptied.push(Emptied { holder, origin, blobs_missing });
                continue;
            }
            let (is_whole, seqs) = (seen.lost == 0, Some((meta.min_seq, meta.max_seq)));
            let meta = meta.clone();
            self.slices.push(FoundSlice { holder, meta, origin, is_whole, seqs, blobs_missing });
        }
        self.losses.extend(for_each_holder(holders, seen.losses().collect()));
    }
}

/// What each family loses that has the slice.
fn for_each_holder(holders: &[FamilyId], losses: Vec<Loss>) -> impl Iterator<Item = Loss> {
    let holders = holders.to_vec();
    losses.into_iter().flat_map(move |loss| {
        let of = |holder: &FamilyId| Loss { family: Some(*holder), ..loss.clone() };
        holders.iter().map(of).collect::<Vec<_>>()
    })
}

/// The slices that the manifest has in the file, but that the file lacks or has in another form.
fn strangers(table: &TableFile, facts: &Facts, path: &Path, number: u64) -> Vec<Error> {
    let named = facts.slices.values().map(|(_, meta)| meta).filter(|meta| meta.file == number);
    named
        .filter(|meta| facts.is_exact && !table.slices().iter().any(|it| it.is_same_as(meta)))
        .map(|meta| {
            let detail = format!("the slice of family {} is not as the manifest says", meta.family);
            Error::corruption(path, meta.root.offset, detail)
        })
        .collect()
}

/// True if the slice has a root, and that is not as the manifest says.
fn is_stranger(slice: &SalvagedSlice, known: &[SliceMeta]) -> bool {
    let said = known.iter().find(|meta| slice.family == Some(meta.family));
    let has = slice.meta.as_ref().filter(|_| slice.root.is_some());
    said.zip(has).is_some_and(|(said, has)| !has.is_same_as(said))
}

struct Salvaged {
    slice: std::result::Result<FoundSlice, Emptied>,
    losses: Vec<Loss>,
}

/// A range of data blocks that cannot be read, with the keys around it.
struct Hole {
    offset: u64,
    len: u64,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

/// Walks what can be read of a slice: what is left of it, and the holes. Entries that `see` refuses
/// are left out.
fn walk(
    salvage: &Salvage,
    slice: &SalvagedSlice,
    (family, number, path): (FamilyId, u64, &Path),
    see: &mut dyn FnMut(&Entry<'_>) -> Result<bool>,
) -> Result<(Option<SliceMeta>, Vec<Hole>)> {
    let mut left: Option<SliceMeta> = None;
    let mut holes: Vec<Hole> = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    let (mut seen, mut is_operand) = (0, false);
    let said = slice.meta.as_ref();
    visit_readable(salvage, slice, path, &mut |part| {
        match part {
            Part::Gap { offset, len } => {
                let from = last.clone().or(said.map(|meta| meta.smallest.to_vec()));
                holes.push(Hole { offset, len, from, to: None });
            }
            Part::Entry(entry) => {
                if let Some(hole) = holes.last_mut().filter(|hole| hole.to.is_none()) {
                    hole.to = Some(entry.key.to_vec());
                }
                last = Some(entry.key.to_vec());
                (seen, is_operand) = (seen + 1, entry.kind.is_operand());
                if see(&entry)? {
                    count(left.get_or_insert_with(|| nothing(family, number, &entry)), &entry);
                }
            }
        }
        Ok(())
    })?;
    // If not all entries are read, some may lie behind those that are. If the largest key is, then
    // only older versions of it, which nothing but operands needs.
    let has_all = |meta: &SliceMeta| {
        seen == meta.entries || (last.as_deref() == Some(&*meta.largest) && !is_operand)
    };
    if let Some((offset, len)) = slice.unknown_tail()
        && !said.is_some_and(has_all)
    {
        holes.push(Hole { offset, len, from: last, to: None });
    }
    Ok((left, holes))
}

/// Reports what can be read of a slice and what cannot.
fn survey(
    slice: &SalvagedSlice,
    (family, number, path): (FamilyId, u64, &Path),
    (mut left, mut holes): (Option<SliceMeta>, Vec<Hole>),
    seen: Surveyed,
) -> Salvaged {
    let said = slice.meta.as_ref();
    let entries_left = left.as_ref().map_or(0, |left| left.entries) + seen.lost;
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
    let blobs_missing = seen.blobs_missing.clone();
    losses.extend(seen.losses());
    if let Some(spans) = slice.root.as_ref().map(|root| &root.spans) {
        keep_spans(&mut left, family, number, spans);
    }
    let is_whole = losses.is_empty() && said.is_none_or(|meta| meta.entries == entries_left);
    let origin = slice.root.as_ref().map(|root| root.origin.clone()).unwrap_or_default();
    let seqs = said.map(|meta| (meta.min_seq, meta.max_seq));
    let holder = family;
    let slice = match left {
        Some(meta) => Ok(FoundSlice { holder, meta, origin, is_whole, seqs, blobs_missing }),
        None => Err(Emptied { holder, origin, blobs_missing }),
    };
    Salvaged { slice, losses }
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
        oldest_delete: None,
        blobs: Box::default(),
        streams: Box::default(),
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
