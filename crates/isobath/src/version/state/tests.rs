//! Edits that states accept, and edits that they refuse.

mod prepared;

use super::super::files::{LiveFile, ObsoleteFiles};
use super::super::fixtures::{self, first_edit};
use super::*;
use crate::table::SliceMeta;
use proptest::prelude::*;

fn apply(state: &mut State, changes: Vec<Change>) -> Decoded<Vec<FamilyId>> {
    let obsolete = ObsoleteFiles::new();
    let outputs: Vec<_> = (1..100).map(|number| LiveFile::new(number, &obsolete)).collect();
    state.apply(&Edit::new(changes), FileSource::outputs(&outputs))
}

/// A database with families 0 "default" and 1 "users", room for files below 100 and LSNs below
/// 1000.
fn sample() -> State {
    let mut state = State::default();
    apply(&mut state, first_edit().changes).unwrap();
    let users = Change::CreateFamily {
        family: 1,
        name: "users".to_owned(),
        options: b"{}".to_vec(),
        lsn: 10,
    };
    let room = [Change::LsnCeiling { lsn: 1000 }, Change::NextFile { number: 100 }];
    apply(&mut state, [vec![users], room.to_vec()].concat()).unwrap();
    state
}

fn add(family: FamilyId, level: usize, file: u64, seqs: (Lsn, Lsn)) -> Change {
    Change::AddSlice { level, meta: fixtures::meta(family, file, "a", "m", seqs) }
}

fn refused(changes: Vec<Change>) {
    let mut state = sample();
    apply(&mut state, vec![add(0, 1, 1, (1, 5))]).unwrap();
    let before = format!("{state:?}");
    // A valid change comes first: no part of the edit may take effect.
    let mut edit = vec![Change::DurableLsn { lsn: 77 }, add(1, 0, 50, (6, 7))];
    edit.extend(changes.iter().cloned());
    let error = apply(&mut state, edit).expect_err(&format!("{changes:?}"));
    assert!(error.is_damage(), "{error}");
    assert_eq!(format!("{state:?}"), before, "{changes:?}");
}

#[test]
fn the_first_edit_makes_a_database_with_the_default_family() {
    let mut state = State::default();
    apply(&mut state, first_edit().changes).unwrap();
    assert_eq!(state.uuid(), [7; 16]);
    assert_eq!(state.family_id("default"), Some(0));
    assert_eq!((state.next_family(), state.next_file()), (1, 1));
    assert_eq!(state.clean_close(), None);
}

#[test]
fn anything_before_the_identity_is_refused() {
    for changes in [vec![], vec![Change::NextFile { number: 3 }]] {
        assert!(State::of(&Edit::new(changes.clone())).is_err());
        assert!(apply(&mut State::default(), changes).is_err());
    }
    let twice = Change::Database { uuid: [8; 16] };
    refused(vec![twice]);
}

#[test]
fn families_are_created_renamed_and_dropped() {
    let mut state = sample();
    assert_eq!(state.family_id("users"), Some(1));
    let rename = |name: &str| Change::RenameFamily { family: 1, name: name.to_owned(), lsn: 11 };
    assert_eq!(apply(&mut state, vec![rename("people")]).unwrap(), [1]);
    assert_eq!((state.family_id("users"), state.family_id("people")), (None, Some(1)));
    apply(&mut state, vec![Change::SetFamilyOptions { family: 1, options: b"[1]".to_vec() }])
        .unwrap();
    assert_eq!(&*state.family(1).unwrap().options, b"[1]");
    assert_eq!(state.family(1).unwrap().created, 10);
    apply(&mut state, vec![Change::DropFamily { family: 1, lsn: 12 }]).unwrap();
    assert!(state.family(1).is_none() && state.family_id("people").is_none());
    assert_eq!(state.next_family(), 2);
    let again =
        Change::CreateFamily { family: 1, name: "users".to_owned(), options: Vec::new(), lsn: 13 };
    assert!(apply(&mut state, vec![again]).is_err(), "a family's id is never reused");
}

#[test]
fn names_may_change_hands_within_one_edit() {
    let mut state = sample();
    let rename =
        |family, name: &str| Change::RenameFamily { family, name: name.to_owned(), lsn: 11 };
    let swap = vec![rename(1, "x"), rename(0, "users"), rename(1, "default"), rename(1, "default")];
    apply(&mut state, swap).unwrap();
    assert_eq!((state.family_id("users"), state.family_id("default")), (Some(0), Some(1)));
    assert_eq!(state.family_id("x"), None);
}

#[test]
fn slices_come_move_and_go() {
    let mut state = sample();
    apply(&mut state, vec![add(0, 0, 1, (1, 5)), add(1, 0, 1, (1, 5))]).unwrap();
    let moved = Arc::clone(&state.family(0).unwrap().tree.runs[0]);
    let untouched = Arc::clone(&state.family(1).unwrap().tree);
    let gone = |level| Change::RemoveSlice { family: 0, level, file: 1 };
    assert_eq!(apply(&mut state, vec![add(0, 2, 1, (1, 5)), gone(0)]).unwrap(), [0]);
    let tree = &state.family(0).unwrap().tree;
    assert!(Arc::ptr_eq(&tree.slices(2)[0], &moved), "a moved slice stays opened");
    assert!(tree.is_sound());
    apply(&mut state, vec![gone(2)]).unwrap();
    assert!(state.family(0).unwrap().tree.is_empty());
    assert!(Arc::ptr_eq(&state.family(1).unwrap().tree, &untouched));
}

#[test]
fn a_file_two_families_share_dies_with_the_last_slice() {
    let mut state = sample();
    let obsolete = ObsoleteFiles::new();
    let output = LiveFile::new(1, &obsolete);
    let edit = Edit::new(vec![add(0, 0, 1, (1, 5)), add(1, 0, 1, (1, 5))]);
    state.apply(&edit, FileSource::outputs(&[output])).unwrap();
    apply(&mut state, vec![Change::DropFamily { family: 1, lsn: 12 }]).unwrap();
    assert!(obsolete.take().is_empty());
    let tree = Arc::clone(&state.family(0).unwrap().tree);
    apply(&mut state, vec![Change::RemoveSlice { family: 0, level: 0, file: 1 }]).unwrap();
    assert!(obsolete.take().is_empty(), "a reader still has the tree");
    drop(tree);
    assert_eq!(obsolete.take(), [1]);
}

fn clone_of(source: FamilyId, family: FamilyId, name: &str) -> Change {
    let (name, options) = (name.to_owned(), b"[7]".to_vec());
    Change::CloneFamily { family, source, name, options, lsn: 20 }
}

#[test]
fn a_clone_shares_the_tree_and_its_files_and_goes_its_own_way() {
    let mut state = sample();
    let obsolete = ObsoleteFiles::new();
    let output = LiveFile::new(1, &obsolete);
    let edit = Edit::new(vec![add(1, 1, 1, (1, 5)), add(1, 0, 2, (6, 9))]);
    state.apply(&edit, FileSource::outputs(&[output, LiveFile::new(2, &obsolete)])).unwrap();
    assert_eq!(apply(&mut state, vec![clone_of(1, 2, "clone")]).unwrap(), [2]);
    let tree = |state: &State, family| Arc::clone(&state.family(family).unwrap().tree);
    assert!(Arc::ptr_eq(&tree(&state, 1), &tree(&state, 2)));
    let clone = state.family(2).unwrap().clone();
    assert_eq!((&*clone.name, &*clone.options), ("clone", &b"[7]"[..]));
    assert_eq!((clone.created, clone.root, state.family(1).unwrap().root), (20, 1, 1));
    assert_eq!(state.families_changed(), 20);
    drop(clone);
    // One of a clone has the same root.
    apply(&mut state, vec![clone_of(2, 3, "another")]).unwrap();
    assert_eq!(state.family(3).unwrap().root, 1);
    // What moves in one stays where it was in the other, and stays opened.
    let run = Arc::clone(&tree(&state, 2).runs[0]);
    let gone = |family, level, file| Change::RemoveSlice { family, level, file };
    let moved = Change::add_slice(2, 3, run.meta.clone());
    assert!(matches!(moved, Change::AddShared { family: 2, .. }));
    apply(&mut state, vec![gone(2, 0, 2), moved]).unwrap();
    assert!(Arc::ptr_eq(&tree(&state, 2).slices(3)[0], &run));
    assert!(Arc::ptr_eq(&tree(&state, 1).runs[0], &run));
    drop(run);
    apply(&mut state, vec![Change::DropFamily { family: 1, lsn: 30 }]).unwrap();
    apply(&mut state, vec![gone(3, 0, 2), gone(3, 1, 1), gone(2, 3, 2)]).unwrap();
    assert_eq!(obsolete.take(), [2]);
    apply(&mut state, vec![Change::DropFamily { family: 2, lsn: 31 }]).unwrap();
    assert_eq!(obsolete.take(), [1]);
}

#[test]
fn what_families_share_is_one_slice_again_when_a_snapshot_is_read() {
    let mut state = sample();
    let slices = vec![add(1, 0, 1, (20, 25)), add(1, 2, 2, (1, 5)), add(0, 1, 2, (1, 5))];
    apply(&mut state, slices).unwrap();
    apply(&mut state, vec![clone_of(1, 2, "clone")]).unwrap();
    apply(&mut state, vec![clone_of(2, 3, "another"), add(2, 0, 3, (30, 31))]).unwrap();
    let snapshot = Edit::decode(&state.snapshot().encode()).unwrap();
    let (obsolete, mut known) = (ObsoleteFiles::new(), BTreeMap::new());
    let mut copy = State::default();
    let source = FileSource::Replay { known: &mut known, obsolete: &obsolete };
    copy.replay(&snapshot, source).unwrap();
    assert_eq!(copy.snapshot(), state.snapshot());
    let slices = |family| -> Vec<Arc<crate::version::Slice>> {
        copy.family(family).unwrap().tree.iter().map(|(_, slice)| slice.clone()).collect()
    };
    let (source, clone, another) = (slices(1), slices(2), slices(3));
    let is_same = |one: &[Arc<_>], other: &[Arc<_>]| {
        std::iter::zip(one, other).all(|(one, other)| Arc::ptr_eq(one, other))
    };
    assert!(is_same(&source, &clone[1..]) && is_same(&source, &another));
    assert_eq!((source.len(), clone.len(), another.len()), (2, 3, 2));
    let of_default = slices(0);
    assert!(!Arc::ptr_eq(&of_default[0], &source[1]), "a slice of its own in the same file");
}

#[test]
fn a_shared_slice_of_a_snapshot_is_looked_for_once_however_many_clones_there_are() {
    use crate::version::draft::LOOKS;
    const CLONES: u32 = 30;
    let mut state = sample();
    // Each has a slice of its own, and those of all before it.
    for family in 1..=CLONES {
        let [from, to] = [2 * family, 2 * family + 1].map(|key| format!("{key:03}"));
        let meta = fixtures::meta(family, u64::from(family), &from, &to, (1, 5));
        apply(&mut state, vec![Change::AddSlice { level: 2, meta }]).unwrap();
        apply(&mut state, vec![clone_of(family, family + 1, &format!("clone {family}"))]).unwrap();
    }
    let mut copy = State::default();
    let (obsolete, mut known) = (ObsoleteFiles::new(), BTreeMap::new());
    LOOKS.set(0);
    copy.replay(&state.snapshot(), FileSource::Replay { known: &mut known, obsolete: &obsolete })
        .unwrap();
    let shared = (CLONES * (CLONES + 1) / 2) as usize;
    assert_eq!(LOOKS.get(), shared, "looks for {shared} shared slices");
    for family in 2..=CLONES + 1 {
        let source = copy.family(family - 1).unwrap().tree.slices(2).to_vec();
        let clone = copy.family(family).unwrap().tree.slices(2).to_vec();
        assert!(source.len() as u32 == family - 1 && clone.len() >= source.len());
        assert!(std::iter::zip(&source, &clone).all(|(one, other)| Arc::ptr_eq(one, other)));
    }
}

#[test]
fn clones_that_cannot_be_are_refused_whole() {
    let shared = |family, file| {
        let meta = fixtures::meta(0, file, "a", "m", (6, 7));
        Change::AddShared { family, level: 0, meta }
    };
    refused(vec![clone_of(9, 2, "clone")]);
    refused(vec![clone_of(0, 2, "users")]);
    refused(vec![clone_of(0, 1, "clone")]);
    refused(vec![clone_of(0, FamilyId::MAX, "clone")]);
    refused(vec![Change::RemoveSlice { family: 0, level: 1, file: 1 }, clone_of(0, 2, "clone")]);
    refused(vec![Change::DropFamily { family: 1, lsn: 12 }, clone_of(1, 2, "clone")]);
    refused(vec![clone_of(0, 2, "clone"), shared(2, 1)]);
    refused(vec![shared(9, 5)]);
    refused(vec![shared(0, 1)]);
    refused(vec![Change::Lineage { family: 9, root: 0 }]);
}

#[test]
fn edits_about_families_that_cannot_be_are_refused_whole() {
    let create = |family, name: &str| Change::CreateFamily {
        family,
        name: name.to_owned(),
        options: Vec::new(),
        lsn: 9,
    };
    let rename =
        |family, name: &str| Change::RenameFamily { family, name: name.to_owned(), lsn: 9 };
    refused(vec![create(1, "new")]);
    refused(vec![create(5, "users")]);
    refused(vec![create(FamilyId::MAX, "new")]);
    refused(vec![create(5, "new"), create(6, "new")]);
    refused(vec![rename(1, "default")]);
    refused(vec![rename(2, "new")]);
    refused(vec![Change::DropFamily { family: 0, lsn: 9 }]);
    refused(vec![Change::DropFamily { family: 2, lsn: 9 }]);
    refused(vec![Change::DropFamily { family: 1, lsn: 9 }, add(1, 0, 2, (6, 7))]);
    refused(vec![Change::SetFamilyOptions { family: 2, options: Vec::new() }]);
    refused(vec![Change::NextFamily { family: 1 }]);
}

#[test]
fn lsns_beyond_what_a_table_can_hold_are_refused() {
    let lsn = 1 << 60;
    let (name, options) = ("new".to_owned(), Vec::new());
    refused(vec![Change::LsnCeiling { lsn }]);
    refused(vec![Change::FamiliesChanged { lsn }]);
    refused(vec![Change::CreateFamily { family: 5, name: name.clone(), options, lsn }]);
    refused(vec![Change::RenameFamily { family: 1, name, lsn }]);
    refused(vec![Change::DropFamily { family: 1, lsn }]);
    apply(&mut sample(), vec![Change::LsnCeiling { lsn: lsn - 1 }]).unwrap();
}

#[test]
fn edits_about_slices_that_cannot_be_are_refused_whole() {
    refused(vec![add(2, 0, 2, (6, 7))]);
    refused(vec![add(0, 0, 100, (6, 7))]);
    refused(vec![add(0, 0, 0, (6, 7))]);
    refused(vec![add(0, 1, 2, (6, 7))]);
    refused(vec![add(0, 0, 1, (6, 7))]);
    refused(vec![add(0, 0, 2, (7, 6))]);
    refused(vec![add(0, 0, 2, (999, 1000))]);
    refused(vec![add(0, 0, 2, (6, Lsn::MAX))]);
    refused(vec![Change::RemoveSlice { family: 0, level: 0, file: 1 }]);
    refused(vec![Change::RemoveSlice { family: 0, level: 1, file: 2 }]);
    let no_entries = SliceMeta { entries: 0, ..fixtures::meta(0, 2, "a", "b", (6, 7)) };
    refused(vec![Change::AddSlice { level: 0, meta: no_entries }]);
    let more_deletes = SliceMeta { deletes: 11, ..fixtures::meta(0, 2, "a", "b", (6, 7)) };
    refused(vec![Change::AddSlice { level: 0, meta: more_deletes }]);
    let huge = SliceMeta { disk_bytes: u64::MAX, ..fixtures::meta(0, 2, "a", "b", (6, 7)) };
    refused(vec![Change::AddSlice { level: 0, meta: huge }]);
    refused(vec![Change::AddSlice { level: 0, meta: fixtures::meta(0, 2, "b", "a", (6, 7)) }]);
}

/// Files are in no order of their numbers, neither those of the tree nor those of the edit.
#[test]
fn none_of_many_files_is_added_a_second_time() {
    let at = |level, file, key: &str, seq| Change::AddSlice {
        level,
        meta: fixtures::meta(0, file, key, key, (seq, seq)),
    };
    let mut state = sample();
    let here = [(7, "a"), (3, "b"), (5, "c"), (1, "d"), (2, "e")];
    apply(&mut state, here.map(|(file, key)| at(1, file, key, 1)).to_vec()).unwrap();
    for twice in [1, 2, 3, 5, 7, 30] {
        let others = (20..40).rev().map(|file| at(0, file, "f", 100 - file));
        let edit = others.chain([at(0, twice, "g", 90)]).collect();
        let error = apply(&mut state, edit).unwrap_err().to_string();
        assert!(error.contains(&format!("file {twice} to the tree a second time")), "{error}");
    }
}

#[test]
fn a_file_that_no_job_holds_cannot_be_added() {
    let mut state = sample();
    let edit = Edit::new(vec![add(0, 0, 1, (1, 5))]);
    assert!(state.apply(&edit, FileSource::outputs(&[])).is_err());
}

#[test]
fn numbers_that_move_back_or_pass_the_ceiling_are_refused() {
    refused(vec![Change::DurableLsn { lsn: 76 }]);
    refused(vec![Change::DurableLsn { lsn: 1001 }]);
    refused(vec![Change::ReplayFrom { lsn: 1001 }]);
    refused(vec![Change::ReplayFrom { lsn: 20 }, Change::ReplayFrom { lsn: 19 }]);
    refused(vec![Change::LsnCeiling { lsn: 999 }]);
    refused(vec![Change::NextFile { number: 99 }]);
    refused(vec![Change::NextFile { number: u64::MAX }]);
    refused(vec![Change::LsnCeiling { lsn: u64::MAX }]);
    refused(vec![Change::CleanClose { end: 76 }]);
    refused(vec![Change::CleanClose { end: 1001 }]);
    refused(vec![add(0, 0, 2, (200, 300)), Change::CleanClose { end: 300 }]);
    let term =
        |term, ended_at, resumes_at| Change::Term(Term { term, ended_at, resumes_at, seed: term });
    refused(vec![term(1, 500, 1000), Change::LsnCeiling { lsn: 2000 }]);
    refused(vec![term(2, 500, 999), Change::LsnCeiling { lsn: 2000 }]);
    refused(vec![term(2, 76, 1000), Change::LsnCeiling { lsn: 2000 }]);
    refused(vec![term(2, 500, 2001), Change::LsnCeiling { lsn: 2000 }]);
    refused(vec![term(2, 1500, 1400), Change::LsnCeiling { lsn: 2000 }]);
}

#[test]
fn numbers_are_taken_up_to_their_very_limits() {
    let taken = |changes: Vec<Change>| {
        let mut state = sample();
        apply(&mut state, changes.clone()).unwrap_or_else(|error| panic!("{changes:?}: {error}"));
        state
    };
    let term =
        |term, ended_at, resumes_at| Change::Term(Term { term, ended_at, resumes_at, seed: term });
    let (ceiling, durable) = (Change::LsnCeiling { lsn: 2000 }, Change::DurableLsn { lsn: 1000 });
    taken(vec![durable.clone(), durable.clone(), Change::ReplayFrom { lsn: 1000 }]);
    taken(vec![
        durable.clone(),
        Change::ReplayFrom { lsn: 1000 },
        Change::CleanClose { end: 1000 },
    ]);
    taken(vec![durable, term(9, 1000, 1000), ceiling.clone(), term((1 << 60) - 1, 1000, 2000)]);
    refused(vec![term(1 << 60, 500, 1000), ceiling.clone()]);
    refused(vec![term(2, 500, 1000), ceiling, term(3, 999, 2000)]);
    refused(vec![Change::ReplayFrom { lsn: 900 }, Change::CleanClose { end: 899 }]);
    taken(vec![add(0, 0, 99, (998, 999)), add(0, 31, 98, (1, 1))]);
    refused(vec![add(0, 32, 98, (6, 7))]);
    let state = taken(vec![Change::NextFamily { family: 2 }, Change::NextFamily { family: 300 }]);
    assert_eq!(state.next_family(), 300);
    let last = FamilyId::MAX - 1;
    let (name, options) = ("last".to_owned(), Vec::new());
    let state = taken(vec![Change::CreateFamily { family: last, name, options, lsn: 9 }]);
    assert_eq!(state.next_family(), FamilyId::MAX);
}

#[test]
fn a_family_may_be_renamed_to_its_name_and_changed_at_an_earlier_lsn() {
    let mut state = sample();
    let name = "users".to_owned();
    let rename = Change::RenameFamily { family: 1, name, lsn: 20 };
    apply(&mut state, vec![Change::FamiliesChanged { lsn: 50 }, rename]).unwrap();
    assert_eq!(&*state.family(1).unwrap().name, "users");
    assert_eq!(state.snapshot().changes.last(), Some(&Change::FamiliesChanged { lsn: 50 }));
    let name = "people".to_owned();
    apply(&mut state, vec![Change::RenameFamily { family: 1, name, lsn: 60 }]).unwrap();
    assert_eq!(state.snapshot().changes.last(), Some(&Change::FamiliesChanged { lsn: 60 }));
}

#[test]
fn a_clean_close_gives_the_unused_lsns_back_and_ends_with_any_edit() {
    let mut state = sample();
    apply(&mut state, vec![Change::CleanClose { end: 500 }]).unwrap();
    assert_eq!((state.clean_close(), state.ceiling()), (Some(500), 500));
    apply(&mut state, vec![Change::LsnCeiling { lsn: 700 }]).unwrap();
    assert_eq!((state.clean_close(), state.ceiling()), (None, 700));
}

#[test]
fn a_recovery_is_one_edit() {
    let mut state = sample();
    let recovery = vec![
        add(0, 0, 1, (20, 700)),
        Change::Term(Term { term: 2, ended_at: 701, resumes_at: 1000, seed: 2 }),
        Change::LsnCeiling { lsn: 2000 },
        Change::ReplayFrom { lsn: 1000 },
    ];
    apply(&mut state, recovery).unwrap();
    assert_eq!((state.term().term, state.replay_from()), (2, 1000));
    assert_eq!(state.terms().len(), 2);
}

fn moment(unix_ms: u64, point: Lsn) -> Change {
    Change::Moments { moments: vec![Moment { unix_ms, point }] }
}

#[test]
fn moments_ascend_and_those_below_the_oldest_readable_point_are_forgotten() {
    let mut state = sample();
    let points =
        |state: &State| -> Vec<Lsn> { state.moments().iter().map(|of| of.point).collect() };
    apply(&mut state, vec![moment(5, 100), moment(6, 200), moment(7, 300)]).unwrap();
    for wrong in [moment(7, 400), moment(8, 300), moment(8, 1001)] {
        apply(&mut state, vec![wrong]).unwrap_err();
    }
    apply(&mut state, vec![Change::OldestReadable { lsn: 200 }]).unwrap();
    assert_eq!((points(&state), state.oldest_readable()), (vec![200, 300], Some(200)));
    for wrong in [199, 1001] {
        apply(&mut state, vec![Change::OldestReadable { lsn: wrong }]).unwrap_err();
    }
    let both = vec![moment(8, 400), Change::OldestReadable { lsn: 500 }];
    apply(&mut state, both).unwrap();
    assert_eq!(points(&state), [0; 0]);
    apply(&mut state, vec![moment(1, 500)]).unwrap();
    assert_eq!(points(&state), [500]);
}

#[test]
fn of_any_number_of_moments_the_oldest_and_the_newest_stay() {
    for (count, left) in [(0, vec![]), (1, vec![0]), (2, vec![0, 1]), (5, vec![0, 2, 4])] {
        let mut moments: Vec<_> = (0..count).map(|at| Moment { unix_ms: at, point: at }).collect();
        thin_out(&mut moments);
        assert!(moments.iter().map(|moment| moment.point).eq(left), "{count}: {moments:?}");
    }
}

#[test]
fn many_opens_leave_a_bounded_number_of_moments() {
    let mut state = sample();
    let end = 3 * MOMENTS_KEPT as u64;
    apply(&mut state, vec![Change::LsnCeiling { lsn: 100 + end }]).unwrap();
    for at in 0..end {
        apply(&mut state, vec![moment(at, 100 + at)]).unwrap();
        assert!(state.moments().len() <= MOMENTS_KEPT);
    }
    let known = state.moments();
    let newest = Moment { unix_ms: end - 1, point: 99 + end };
    assert_eq!((known[0], known.last()), (Moment { unix_ms: 0, point: 100 }, Some(&newest)));
    let apart = known.windows(2).map(|pair| pair[1].unix_ms - pair[0].unix_ms).max();
    assert!(apart <= Some(end / 1000), "{apart:?}");
}

/// Versions that do not know a change refuse a manifest that has it.
#[test]
fn a_snapshot_has_no_change_that_says_nothing() {
    let changes = sample().snapshot().changes;
    let says_nothing = |change: &Change| {
        matches!(change, Change::Moments { .. } | Change::Ticks { .. } | Change::History { .. })
    };
    assert!(!changes.iter().any(says_nothing), "{changes:?}");
}

#[test]
fn a_prepared_transaction_is_in_a_file_or_replayed_and_never_both() {
    let filed = |lsn| Change::AddPrepared { lsn, xid: b"id".to_vec(), file: 60, len: 300 };
    for lsn in [500, 501] {
        refused(vec![Change::ReplayFrom { lsn: 500 }, filed(lsn)]);
    }
    let mut state = sample();
    apply(&mut state, vec![Change::ReplayFrom { lsn: 500 }, filed(499)]).unwrap();
}

#[test]
fn a_snapshot_makes_the_same_state_again() {
    let mut state = sample();
    apply(&mut state, vec![add(0, 0, 1, (1, 5)), add(1, 0, 1, (1, 5)), add(1, 3, 2, (1, 1))])
        .unwrap();
    apply(&mut state, vec![Change::DropFamily { family: 1, lsn: 12 }]).unwrap();
    for term in 2..100 {
        let begin = term * 1000;
        let changes = vec![
            Change::Term(Term { term, ended_at: begin - 10, resumes_at: begin, seed: 0 }),
            Change::LsnCeiling { lsn: begin + 5 },
            Change::ReplayFrom { lsn: begin },
        ];
        apply(&mut state, changes).unwrap();
    }
    apply(&mut state, vec![Change::History { span_ms: 9 }, moment(4, 500), moment(5, 600)])
        .unwrap();
    apply(&mut state, vec![Change::OldestReadable { lsn: 550 }]).unwrap();
    let snapshot = state.snapshot();
    let mut copy = State::default();
    let obsolete = ObsoleteFiles::new();
    let mut known = BTreeMap::new();
    let source = FileSource::Replay { known: &mut known, obsolete: &obsolete };
    copy.replay(&Edit::decode(&snapshot.encode()).unwrap(), source).unwrap();
    assert_eq!(copy.snapshot(), snapshot);
    assert_eq!(copy.terms().len(), TERMS_KEPT);
    assert_eq!((copy.history_ms(), copy.moments()[0].point), (9, 600));
    assert_eq!(copy.next_family(), 2);
}

#[test]
fn replaying_in_place_gives_what_applying_gives() {
    let edits = [
        vec![add(0, 0, 1, (1, 5)), add(1, 0, 1, (1, 5))],
        vec![Change::RemoveSlice { family: 0, level: 0, file: 1 }, add(0, 1, 2, (1, 5))],
        vec![Change::RemoveSlice { family: 0, level: 1, file: 2 }, add(0, 4, 2, (1, 5))],
    ];
    let (mut applied, mut replayed) = (sample(), sample());
    let obsolete = ObsoleteFiles::new();
    let mut known = BTreeMap::new();
    for edit in edits {
        apply(&mut applied, edit.clone()).unwrap();
        let source = FileSource::Replay { known: &mut known, obsolete: &obsolete };
        replayed.replay(&Edit::new(edit), source).unwrap();
    }
    assert_eq!(applied.snapshot(), replayed.snapshot());
    drop(known);
    assert!(obsolete.take().is_empty(), "files 1 and 2 are still in use");
}

/// Changes that are often valid together, and often are not.
fn any_change() -> impl Strategy<Value = Change> {
    let family = 0u32..4;
    let name = prop_oneof![Just("default"), Just("users"), Just("x"), Just("y")];
    let key = prop_oneof![Just("a"), Just("f"), Just("m"), Just("t")];
    let slice = (family.clone(), 0usize..3, 1u64..8, key.clone(), key, 1u64..60, 0u64..9);
    prop_oneof![
        8 => slice.prop_map(|(family, level, file, smallest, largest, seq, seqs)| {
            let meta = fixtures::meta(family, file, smallest, largest, (seq, seq + seqs));
            Change::AddSlice { level, meta }
        }),
        2 => (family.clone(), family.clone(), 0usize..3, 1u64..8).prop_map(
            |(family, of, level, file)| {
                let meta = fixtures::meta(of, file, "a", "m", (file, file));
                Change::add_slice(family, level, meta)
            },
        ),
        2 => (family.clone(), family.clone(), name.clone()).prop_map(|(family, source, name)| {
            let (name, options) = (name.to_owned(), Vec::new());
            Change::CloneFamily { family, source, name, options, lsn: 1 }
        }),
        4 => (family.clone(), 0usize..3, 1u64..8)
            .prop_map(|(family, level, file)| Change::RemoveSlice { family, level, file }),
        1 => (family.clone(), name.clone()).prop_map(|(family, name)| {
            Change::CreateFamily { family, name: name.to_owned(), options: Vec::new(), lsn: 1 }
        }),
        1 => (family.clone(), name)
            .prop_map(|(family, name)| Change::RenameFamily { family, name: name.to_owned(), lsn: 1 }),
        1 => family.prop_map(|family| Change::DropFamily { family, lsn: 1 }),
        1 => (0u64..2000).prop_map(|lsn| Change::ReplayFrom { lsn }),
        1 => (0u64..2000).prop_map(|lsn| Change::DurableLsn { lsn }),
        1 => (900u64..2000).prop_map(|lsn| Change::LsnCeiling { lsn }),
        1 => (0u64..2000).prop_map(|end| Change::CleanClose { end }),
        1 => (1u64..5, 0u64..2000, 900u64..2000).prop_map(|(term, ended_at, resumes_at)| {
            Change::Term(Term { term, ended_at, resumes_at, seed: term })
        }),
    ]
}

proptest! {
    #[test]
    fn any_edits_leave_a_sound_state_that_its_snapshot_and_a_replay_make_again(
        edits in proptest::collection::vec(proptest::collection::vec(any_change(), 1..4), 1..40),
    ) {
        let mut state = sample();
        let mut replayed = sample();
        let (obsolete, mut known) = (ObsoleteFiles::new(), BTreeMap::new());
        for changes in edits {
            let before = format!("{state:?}");
            if apply(&mut state, changes.clone()).is_err() {
                prop_assert_eq!(format!("{state:?}"), before);
                continue;
            }
            let source = FileSource::Replay { known: &mut known, obsolete: &obsolete };
            let decoded = Edit::decode(&Edit::new(changes).encode()).unwrap();
            replayed.replay(&decoded, source).unwrap();
        }
        prop_assert!(state.families().all(|(_, family)| family.tree.is_sound()));
        prop_assert_eq!(replayed.snapshot(), state.snapshot());
        let mut copy = State::default();
        let source = FileSource::Replay { known: &mut known, obsolete: &obsolete };
        copy.replay(&state.snapshot(), source).unwrap();
        prop_assert_eq!(copy.snapshot(), state.snapshot());
    }
}
