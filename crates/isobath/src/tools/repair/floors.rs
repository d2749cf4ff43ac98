//! Decides without a manifest which operations of the log are in tables already.
//!
//! Flushes are installed in order, so all that is below the newest table is in tables, as far as
//! these can be read. But a flush may not have finished its table, and of a finished one the slice
//! of one family may be lost while that of another is not. So each family is judged by its own
//! slices: above the newest entry of these all operations count that the log has.
//!
//! Of some families the log cannot give back what a slice has lost, though it has all sequence
//! numbers of the slice. In one that merges, what was folded has the number of its newest operand,
//! and the log may lack the older ones. What a clone shares is in the log as its source's. Of these
//! no slice is left out, and their operations count above the newest finished table only: an
//! operand below it may lack its base.
//!
//! For the others that is right only where the log has all of them. A compaction drops a delete
//! together with what it hides, and then the family's slices tell of neither. If the log had the
//! put and lacked the delete, the put would come back. So up to the newest finished table only
//! operations count behind which nothing of the log is missing; operations above it always do.

use super::facts::Facts;
use super::tables::FoundTable;
use crate::format::{FamilyId, Lsn};
use crate::options::FamilyOptions;
use crate::version::Term;
use std::collections::{BTreeMap, BTreeSet};

/// Below which sequence numbers operations of the log are in tables. The default: none are.
#[derive(Clone, Debug, Default)]
pub(super) struct Floors {
    /// Above every sequence number in a table.
    pub(super) all: Lsn,
    /// Above those in tables that were finished.
    pub(super) finished: Lsn,
    /// Above those in the slices of each family.
    of_families: BTreeMap<FamilyId, Lsn>,
    /// The greatest sequence number in the slices of each family.
    newest: BTreeMap<FamilyId, Lsn>,
    /// The families of which the log can give back what a slice has lost.
    replayable: BTreeSet<FamilyId>,
    /// Where something of the log is missing.
    gaps: Vec<(Lsn, Lsn)>,
    /// From here on up to `finished` nothing is.
    whole_from: Lsn,
}

impl Floors {
    pub(super) fn of(tables: &[FoundTable]) -> Floors {
        let above = |table: &FoundTable| {
            let slices = table.slices.iter();
            slices.map(|slice| slice.meta.max_seq + 1).max().unwrap_or(0)
        };
        let all = tables.iter().map(above).max().unwrap_or(0);
        let finished = tables.iter().filter(|table| table.is_finished).map(above);
        let mut floors = Floors { all, finished: finished.max().unwrap_or(0), ..Floors::default() };
        for slice in tables.iter().flat_map(|table| &table.slices) {
            let newest = floors.newest.entry(slice.holder).or_default();
            *newest = slice.meta.max_seq.max(*newest);
        }
        floors
    }

    /// True if a drop of the family that the log has at this LSN did not last. An open may have
    /// discarded it with the end of a term. (A repair may have kept it there, but the manifest that
    /// it has written knows that the id is spent.) If changes of families are known up to there, a
    /// later slice shows that, too; else it may be of a flush that met the drop.
    pub(super) fn refutes_drop(
        &self,
        facts: &Facts,
        changes_known: Lsn,
        (family, lsn): (FamilyId, Lsn),
    ) -> bool {
        let is_later = self.newest.get(&family).is_some_and(|newest| *newest > lsn);
        let is_discarded = |term: &Term| (term.ended_at..term.resumes_at).contains(&lsn);
        (lsn <= changes_known && is_later) || facts.terms.iter().any(is_discarded)
    }

    /// Between these LSNs something of the log is missing.
    pub(super) fn note_gap(&mut self, from: Lsn, to: Lsn) {
        self.gaps.push((from, to));
        if from < self.finished {
            self.whole_from = self.whole_from.max(to.min(self.finished));
        }
    }

    /// Judges the families. Returns the damaged slices, by family and file, whose entries the log,
    /// which ends at `log_end`, has all of: those that cannot be read, too.
    pub(super) fn judge(
        &mut self,
        tables: &[FoundTable],
        replayable: BTreeSet<FamilyId>,
        log_end: Lsn,
    ) -> BTreeSet<(FamilyId, u64)> {
        self.replayable = replayable;
        let is_in_log = |(least, greatest): &(Lsn, Lsn)| {
            let is_missing = |(from, to): &(Lsn, Lsn)| from <= greatest && least < to;
            *greatest < log_end && !self.gaps.iter().any(is_missing)
        };
        let mut in_log = Vec::new();
        for slice in tables.iter().flat_map(|table| &table.slices) {
            let is_hurt = !slice.is_whole && self.replayable.contains(&slice.holder);
            match slice.seqs.filter(|seqs| is_hurt && is_in_log(seqs)) {
                Some(seqs) => in_log.push((seqs, (slice.holder, slice.meta.file))),
                None => raise(&mut self.of_families, slice.holder, slice.meta.max_seq),
            }
        }
        in_log.sort_unstable();
        let mut left_out = BTreeSet::new();
        for ((least, greatest), slice) in in_log {
            // What is replayed is newer than all slices that stay.
            match least >= self.of_family(slice.0) {
                true => drop(left_out.insert(slice)),
                false => raise(&mut self.of_families, slice.0, greatest),
            }
        }
        for table in tables {
            for (family, lsns) in table.slices_lost() {
                let is_replayed = self.replayable.contains(&family)
                    && lsns.0 >= self.of_family(family)
                    && is_in_log(&(lsns.0, lsns.1 - 1));
                is_replayed.then(|| left_out.insert((family, table.number)));
            }
        }
        left_out
    }

    /// Operations of the family below this are in tables, or must not count.
    pub(super) fn of_family(&self, family: FamilyId) -> Lsn {
        let least = match self.replayable.contains(&family) {
            true => self.whole_from,
            false => self.finished,
        };
        self.of_families.get(&family).copied().unwrap_or(0).max(least)
    }
}

/// The families of which the log can give back what a slice has lost. One that nothing tells about
/// may merge.
pub(super) fn replayable(facts: &Facts, tables: &[FoundTable]) -> BTreeSet<FamilyId> {
    let known = facts.families.iter().map(|(id, known)| (*id, &known.options));
    let slices = tables.iter().flat_map(|table| &table.slices);
    let labels = slices.filter_map(|of| Some((of.holder, &of.origin.label.as_ref()?.options)));
    let is_plain = |stored: &[u8]| {
        let read = FamilyOptions::from_stored(stored);
        stored.is_empty()
            || read.is_ok_and(|it| it.merge_operator.is_none() && it.is_clone_of().is_none())
    };
    let mut families: BTreeSet<FamilyId> = facts.families.keys().copied().collect();
    families.retain(|id| !facts.clones.contains(id) && !facts.untold.contains(id));
    for (family, stored) in known.chain(labels) {
        if !is_plain(stored) {
            families.remove(&family);
        }
    }
    families
}

fn raise(floors: &mut BTreeMap<FamilyId, Lsn>, family: FamilyId, seq: Lsn) {
    let floor = floors.entry(family).or_default();
    *floor = (seq + 1).max(*floor);
}

#[cfg(test)]
mod tests {
    use super::super::tables::FoundSlice;
    use super::*;
    use crate::table::{Label, Origin};
    use crate::version::fixtures::meta;
    use std::path::PathBuf;

    /// A slice of family 1 or 2 with these sequence numbers, of which all or nothing is damaged.
    fn table(number: u64, family: FamilyId, seqs: (Lsn, Lsn), is_whole: bool) -> FoundTable {
        let meta = meta(family, number, "a", "z", seqs);
        let (holder, origin, seqs) = (family, Origin::default(), Some(seqs));
        let blobs_missing = BTreeSet::new();
        FoundTable {
            number,
            path: PathBuf::new(),
            is_sound: is_whole,
            is_finished: true,
            slices: vec![FoundSlice { holder, meta, origin, is_whole, seqs, blobs_missing }],
            emptied: Vec::new(),
            losses: Vec::new(),
        }
    }

    fn judged(tables: &[FoundTable], gaps: &[(Lsn, Lsn)]) -> ([Lsn; 3], Vec<u64>) {
        let mut floors = Floors::of(tables);
        gaps.iter().for_each(|(from, to)| floors.note_gap(*from, *to));
        let left_out = floors.judge(tables, BTreeSet::from([1, 2, 3]), 1000);
        let floors = [1, 2, 3].map(|family| floors.of_family(family));
        (floors, left_out.into_iter().map(|(_, file)| file).collect())
    }

    #[test]
    fn each_family_is_judged_by_its_own_slices_as_far_as_the_log_is_whole() {
        let tables = [table(1, 1, (10, 100), true), table(2, 2, (200, 300), true)];
        assert_eq!(judged(&tables, &[]).0, [101, 301, 0]);
        assert_eq!(judged(&tables, &[(0, 50)]).0, [101, 301, 50]);
        assert_eq!(judged(&tables, &[(150, 160)]).0, [160, 301, 160]);
        // What is above all tables counts, whatever is missing.
        assert_eq!(judged(&tables, &[(250, 400), (500, 600)]).0, [301, 301, 301]);
        let unfinished = FoundTable { is_finished: false, ..table(2, 2, (200, 300), true) };
        let tables = [table(1, 1, (10, 100), true), unfinished];
        assert_eq!(judged(&tables, &[(250, 260)]).0, [101, 301, 0]);
    }

    #[test]
    fn a_drop_that_an_open_has_discarded_does_not_count() {
        let floors = Floors::of(&[table(1, 1, (10, 100), true), table(2, 1, (5, 60), true)]);
        let mut facts = Facts::default();
        facts.terms.push(Term { term: 2, ended_at: 200, resumes_at: 300, seed: 0 });
        let refutes = |family, lsn| floors.refutes_drop(&facts, 250, (family, lsn));
        assert_eq!(
            [99, 100, 199, 200, 299, 300].map(|lsn| refutes(1, lsn)),
            [true, false, false, true, true, false]
        );
        assert_eq!([99, 200].map(|lsn| refutes(2, lsn)), [false, true]);
        assert!(!floors.refutes_drop(&facts, 98, (1, 99)), "a flush may have met it");
    }

    #[test]
    fn of_a_family_that_merges_nothing_is_left_out_and_what_is_in_finished_tables_counts_there() {
        let tables = [table(1, 1, (10, 100), true), table(2, 2, (200, 300), false)];
        let mut floors = Floors::of(&tables);
        assert!(floors.judge(&tables, BTreeSet::from([1]), 1000).is_empty());
        assert_eq!([1, 2, 3].map(|family| floors.of_family(family)), [101, 301, 301]);
    }

    #[test]
    fn the_log_stands_for_no_family_that_may_merge_or_be_a_clone() {
        let plain = FamilyOptions::new().to_stored();
        let merging = FamilyOptions::new().merge_operator("isobath.counter").to_stored();
        let mut facts = Facts::default();
        for (id, options) in [(1, &plain), (2, &merging), (3, &plain), (4, &plain), (5, &plain)] {
            facts.create(id, &format!("{id}"), options, 0);
        }
        facts.name_family(6, None, &mut Vec::new());
        facts.clones.insert(5);
        let mut tables = [table(1, 3, (1, 2), true), table(2, 4, (1, 2), true)];
        for (table, options) in tables.iter_mut().zip([merging, Vec::new()]) {
            let name = String::new();
            table.slices[0].origin.label = Some(Label { name, options }.into());
        }
        assert_eq!(replayable(&facts, &tables), BTreeSet::from([1, 4]));
    }

    #[test]
    fn a_damaged_slice_is_left_out_if_the_log_has_all_of_it() {
        let tables = [table(1, 1, (10, 100), true), table(2, 1, (200, 300), false)];
        assert_eq!(judged(&tables, &[(0, 200)]), ([200; 3], vec![2]));
        for gap in [(0, 201), (299, 300), (300, 301), (250, 260)] {
            assert_eq!(judged(&tables, &[gap]).1, [0; 0], "{gap:?}");
            assert_eq!(judged(&tables, &[gap]).0[0], 301);
        }
        assert_eq!(judged(&tables, &[(301, 302)]).1, [2]);
        // It must not lie beneath the newest entry of a slice that stays.
        let tables = [table(1, 1, (10, 200), true), table(2, 1, (200, 300), false)];
        assert_eq!(judged(&tables, &[]), ([301, 0, 0], vec![]));
        let tables = [table(1, 1, (10, 1000), false), table(2, 1, (200, 300), false)];
        assert_eq!(judged(&tables, &[]).1, [0; 0], "the log ends before");
    }
}
