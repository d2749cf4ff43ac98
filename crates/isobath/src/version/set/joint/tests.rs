//! Edits that share a record: what each sees of the others, what a failure costs whom, and what a
//! power cut leaves.

use super::*;
use crate::env::sync::Mutex;
use crate::version::fixtures::{damage_last_edit, meta};
use crate::version::manifest_number;
use crate::version::names::table_path;
use crate::version::tests::{WAYS, cut};
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use std::io;
use std::path::Path;

const DB: &str = "/db";
const FAMILIES: FamilyId = 3;

/// What has settled: a family, and its runs then.
type Settled = Arc<Mutex<Vec<(FamilyId, Vec<u64>)>>>;

/// A database with families 0 to 2 and room for sequences.
fn create(fs: &MemoryFs) -> Result<VersionSet> {
    let mut set = VersionSet::create(Arc::new(fs.clone()), Path::new(DB), [9; 16], b"{}")?;
    let mut changes = vec![Change::LsnCeiling { lsn: 10_000 }];
    changes.extend((1..FAMILIES).map(|family| Change::CreateFamily {
        family,
        name: format!("family {family}"),
        options: b"{}".to_vec(),
        lsn: 10 + Lsn::from(family),
    }));
    set.install(Edit::new(changes), &[])?;
    Ok(set)
}

fn open(fs: &MemoryFs) -> VersionSet {
    VersionSet::open(Arc::new(fs.clone()), Path::new(DB)).unwrap().0
}

/// An edit that replaces all runs of a family by a new one.
fn rewriting(
    fs: &MemoryFs,
    set: &VersionSet,
    family: FamilyId,
    settled: &Settled,
) -> Result<Joint> {
    let output = set.files().allocate();
    let number = output.number();
    let mut file = fs.create(&table_path(Path::new(DB), number))?;
    file.append(&[1; 500])?;
    file.sync()?;
    fs.sync_dir(&Path::new(DB).join("table"))?;
    let runs = set.state().family(family).unwrap().tree.runs.clone();
    let mut changes: Vec<_> = runs
        .iter()
        .map(|run| Change::RemoveSlice { family, level: 0, file: run.meta.file })
        .collect();
    changes.push(Change::AddSlice { level: 0, meta: meta(family, number, "a", "z", (5000, 5009)) });
    let settled = settled.clone();
    let plan = Box::new(move |_: &Ahead<'_>| {
        Ok(Planned { edit: Edit::new(changes), outputs: vec![output] })
    });
    let settle =
        Box::new(move |state: &State| settled.lock().push((family, runs_of(state, family))));
    Ok(Joint { family, plan, settle })
}

/// An edit with these changes.
fn of(family: FamilyId, changes: Vec<Change>) -> Joint {
    let plan = Box::new(move |_: &Ahead<'_>| {
        Ok(Planned { edit: Edit::new(changes), outputs: Vec::new() })
    });
    Joint { family, plan, settle: Box::new(|_| ()) }
}

fn rewriting_all(fs: &MemoryFs, set: &VersionSet, settled: &Settled) -> Result<Vec<Joint>> {
    (0..FAMILIES).map(|family| rewriting(fs, set, family, settled)).collect()
}

fn runs_of(state: &State, family: FamilyId) -> Vec<u64> {
    state.family(family).unwrap().tree.runs.iter().map(|run| run.meta.file).collect()
}

fn settled() -> Settled {
    Arc::new(Mutex::unranked(Vec::new()))
}

fn all_of(outcomes: Vec<Result<()>>) -> Result<()> {
    outcomes.into_iter().collect()
}

#[test]
fn edits_that_share_a_record_share_a_sync_and_settle_in_order_with_what_each_has_left() {
    let fs = MemoryFs::new();
    let (mut set, settled) = (create(&fs).unwrap(), settled());
    for round in 0..2 {
        let joint = rewriting_all(&fs, &set, &settled).unwrap();
        let syncs = fs.tried(FileOp::Sync);
        all_of(set.install_joint(joint)).unwrap();
        assert_eq!(fs.tried(FileOp::Sync), syncs + 1);
        let files = |family: FamilyId| vec![1 + u64::from(family) + 3 * round];
        let expected: Vec<_> = (0..FAMILIES).map(|family| (family, files(family))).collect();
        assert_eq!(std::mem::take(&mut *settled.lock()), expected);
    }
    assert_eq!(set.take_obsolete().unwrap(), [1, 2, 3]);
    let expected = set.state().snapshot();
    drop(set);
    assert_eq!(open(&fs.crashed(|_| 0)).state().snapshot(), expected);
}

#[test]
fn an_edit_that_breaks_a_rule_fails_alone() {
    let missing = Change::RemoveSlice { family: 1, level: 0, file: 77 };
    let back = Change::LsnCeiling { lsn: 5 };
    let twice = meta(1, 50, "a", "z", (5000, 5009));
    let unheld = Change::AddSlice { level: 0, meta: twice };
    // After good changes of the same edit, in each of the steps of a draft.
    let raised = Change::OldestReadable { lsn: 5000 };
    for wrong in [missing, back, unheld, Change::NextFile { number: 0 }] {
        let fs = MemoryFs::new();
        let (mut set, settled) = (create(&fs).unwrap(), settled());
        let mut joint = rewriting_all(&fs, &set, &settled).unwrap();
        joint[1] = of(1, vec![raised.clone(), wrong.clone()]);
        let outcomes = set.install_joint(joint);
        let failed: Vec<bool> = outcomes.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, false], "{wrong:?}");
        assert_eq!(*settled.lock(), [(0, vec![1]), (2, vec![3])]);
        assert!(runs_of(set.state(), 1).is_empty() && set.state().oldest_readable() == Some(4096));
        let expected = set.state().snapshot();
        assert_eq!(open(&fs.crashed(|_| 0)).state().snapshot(), expected);
    }
}

#[test]
fn an_edit_is_made_with_what_those_before_it_leave() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    let seen = Arc::new(Mutex::unranked(Vec::new()));
    let looking = |family: FamilyId, changes: Vec<Change>| {
        let seen = seen.clone();
        let plan = Box::new(move |ahead: &Ahead<'_>| {
            let families: Vec<_> = (0..FAMILIES + 1).map(|id| ahead.has_family(id)).collect();
            let tick = ahead.last_tick().map(|tick| tick.lsn);
            seen.lock().push((ahead.oldest_readable(), tick, families));
            Ok(Planned { edit: Edit::new(changes), outputs: Vec::new() })
        });
        Joint { family, plan, settle: Box::new(|_| ()) }
    };
    let ceiling = Change::LsnCeiling { lsn: 20_000 };
    let oldest = Change::OldestReadable { lsn: 5000 };
    let ticks = Change::Ticks { ticks: vec![Tick { lsn: 300, unix_ms: 3 }] };
    let joint = vec![
        looking(0, vec![ceiling, oldest, ticks]),
        looking(2, vec![Change::DropFamily { family: 2, lsn: 40 }]),
        looking(1, Vec::new()),
    ];
    all_of(set.install_joint(joint)).unwrap();
    let before = (Some(4096), None, vec![true, true, true, false]);
    let (drop_sees, last_sees) = (
        (Some(5000), Some(300), vec![true, true, true, false]),
        (Some(5000), Some(300), vec![true, true, false, false]),
    );
    assert_eq!(*seen.lock(), [before, drop_sees, last_sees]);
}

#[test]
fn a_refused_edit_writes_nothing_and_all_refused_write_no_record() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    let refusing = |family| {
        let plan = Box::new(|_: &Ahead<'_>| Err(crate::error::Error::cancelled()));
        Joint { family, plan, settle: Box::new(|_| panic!("settled")) }
    };
    let writes = fs.tried(FileOp::Write);
    let outcomes = set.install_joint(vec![refusing(0), refusing(1)]);
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().unwrap_err().is_cancelled()));
    assert!(set.install_joint(Vec::new()).is_empty());
    assert_eq!(fs.tried(FileOp::Write), writes);
}

#[test]
fn a_failure_of_the_shared_write_fails_all_and_none_settles() {
    for (op, is_full) in [(FileOp::Write, true), (FileOp::Sync, true), (FileOp::Sync, false)] {
        let fs = MemoryFs::new();
        let (mut set, settled) = (create(&fs).unwrap(), settled());
        let joint = rewriting_all(&fs, &set, &settled).unwrap();
        // Numbers of an edit in doubt are spent.
        let state_of = |set: &VersionSet| {
            let mut edit = set.state().snapshot();
            edit.changes.retain(|change| !matches!(change, Change::NextFile { .. }));
            edit
        };
        let before = state_of(&set);
        let kind = if is_full { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        fs.inject(Fault::on(op).suffix("MANIFEST-000001").kind(kind));
        let outcomes = set.install_joint(joint);
        for outcome in outcomes {
            assert_eq!(outcome.unwrap_err().is_retryable(), is_full);
        }
        assert!(settled.lock().is_empty());
        assert_eq!(state_of(&set), before);
        let again = rewriting_all(&fs, &set, &settled).unwrap();
        let outcomes = set.install_joint(again);
        if is_full {
            all_of(outcomes).unwrap();
            assert_eq!(settled.lock().len(), 3);
            assert_eq!(open(&fs.crashed(|_| 0)).state().snapshot(), set.state().snapshot());
        } else {
            assert!(outcomes.iter().all(|one| one.as_ref().unwrap_err().name() == "POISONED"));
        }
    }
}

/// Joint edits, with a rollover and a confirmation in between. Records the acknowledged states.
fn life(fs: &MemoryFs, acked: &mut Vec<Edit>) -> Result<()> {
    let (mut set, settled) = (create(fs)?, settled());
    acked.push(set.state().snapshot());
    set.set_roll_len_min(450);
    for _ in 0..4 {
        let joint = rewriting_all(fs, &set, &settled)?;
        all_of(set.install_joint(joint))?;
        acked.push(set.state().snapshot());
        for number in set.take_obsolete()? {
            fs.remove(&table_path(Path::new(DB), number))?;
        }
    }
    Ok(())
}

#[test]
fn an_open_finds_all_edits_of_a_record_or_none_wherever_power_fails() {
    let (fs, mut states) = (MemoryFs::new(), Vec::new());
    life(&fs, &mut states).unwrap();
    let manifests = fs.list(Path::new(DB)).unwrap();
    let newest = manifests.iter().filter_map(|entry| manifest_number(&entry.name)).max();
    assert!(newest > Some(1), "the manifest was replaced");
    let (all, mut struck) = (fs.steps(), 0);
    for op in [FileOp::Write, FileOp::Sync, FileOp::SyncDir, FileOp::Rename, FileOp::Create] {
        for nth in 1..=fs.tried(op) {
            let fs = MemoryFs::new();
            fs.inject(Fault::on(op).nth(nth).forever());
            let mut acked = Vec::new();
            if life(&fs, &mut acked).is_ok() || acked.is_empty() {
                continue;
            }
            struck += 1;
            for way in 0..WAYS {
                let set = open(&cut(&fs, way));
                let found = set.state().snapshot();
                let may_be = &states[acked.len() - 1..(acked.len() + 1).min(states.len())];
                assert!(may_be.contains(&found), "{op:?} {nth}, way {way}, acked {}", acked.len());
            }
        }
    }
    assert!(struck > 20 && all > 50, "{struck} of {all}");
}

#[test]
fn damage_to_a_confirmed_record_of_several_edits_is_corruption() {
    let fs = MemoryFs::new();
    let (mut set, settled) = (create(&fs).unwrap(), settled());
    let joint = rewriting_all(&fs, &set, &settled).unwrap();
    all_of(set.install_joint(joint)).unwrap();
    set.confirm().unwrap();
    drop(set);
    damage_last_edit(&fs, Path::new(DB));
    assert!(VersionSet::open(Arc::new(fs), Path::new(DB)).unwrap_err().is_corruption());
}

/// A reader beside the writer has seen the record, and the files are removed then.
#[test]
fn numbers_in_a_joint_record_in_doubt_are_not_given_out_again() {
    let fs = MemoryFs::new();
    let (mut set, settled) = (create(&fs).unwrap(), settled());
    let joint = rewriting_all(&fs, &set, &settled).unwrap();
    let fault = Fault::on(FileOp::Sync).suffix("MANIFEST-000001");
    fs.inject(fault.kind(io::ErrorKind::StorageFull));
    let error = all_of(set.install_joint(joint)).unwrap_err();
    assert!(error.is_retryable() && set.manifest().is_in_doubt(), "{error}");
    let mut numbers = set.take_obsolete().unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    for number in numbers {
        fs.remove(&table_path(Path::new(DB), number)).unwrap();
    }
    // The next manifest, which is begun before anything else is appended, says so.
    set.confirm().unwrap();
    drop(set);
    let next = open(&fs.killed()).files().next();
    assert!(next > 3, "{next}");
}
