//! A table that cannot be read holds up what lies over it, and nothing else.

use super::*;
#[cfg(not(feature = "paranoid"))]
use crate::table::fixtures::forge_key;

/// A last level of several slices, over `key000000` to `key005999`.
fn filled() -> Bench {
    let bench = Bench::new(|options| options.family(FamilyOptions::new().codec(Codec::None)));
    bench.flush(0, 1, 6000);
    bench.compact();
    assert!(bench.levels()[6] >= 4, "{:?}", bench.levels());
    bench
}

/// The tables of the last level, in key order.
fn last_level(bench: &Bench) -> Vec<Arc<Slice>> {
    bench.family().view().tree.slices(6).to_vec()
}

/// Opens the database again after a bit of the first block of a slice of the last level has
/// changed.
fn damaged(bench: Bench, at: usize) -> (Bench, u64) {
    let file = last_level(&bench)[at].meta.file;
    let path = bench.engine().tables.files.path(file);
    bench.db.close().unwrap();
    bench.fs.corrupt(&path, 200, 1).unwrap();
    let fs = bench.fs.clone();
    (Bench::on(fs, |options| options), file)
}

fn errors(bench: &Bench) -> Vec<Error> {
    bench.told(|event| match event {
        Event::BackgroundError { job: BackgroundJob::Compaction, error } => Some(error.clone()),
        _ => None,
    })
}

fn pressure(bench: &Bench) -> f64 {
    bench.wait();
    schedule(bench.engine(), &bench.family());
    bench.wait();
    bench.engine().backlog.lock().pressure().0
}

#[test]
fn a_damaged_block_in_the_last_level_stops_neither_compactions_nor_writers() {
    let (bench, file) = damaged(filled(), 1);
    // As after many short runs: there is a level between level 0 and the damage.
    bench.family().compactions.state.lock().run_bytes = 12 << 10;
    let (mut runs_max, mut flushed) = (0, 0);
    for round in 0..40 {
        bench.flush(round, 60, 100);
        bench.wait();
        flushed += bench.family().view().tree.runs.first().map_or(0, |run| run.meta.disk_bytes);
        runs_max = runs_max.max(bench.levels()[0]);
    }
    assert!(runs_max <= 12, "{runs_max} runs");
    let told = errors(&bench);
    assert_eq!(told.len(), 1, "{told:?}");
    let name = format!("{file:010}.tbl");
    assert!(told[0].is_corruption() && told[0].to_string().contains(&name), "{told:?}");
    // Each byte is merged once in a few levels of runs.
    let read = bench.db.metrics().compaction_read_bytes;
    assert!(read > flushed && read < 8 * flushed, "{read} of {flushed}");
    assert_eq!(pressure(&bench), 0.0);
    assert_eq!(bench.db.metrics().pending_compaction_bytes(), 0);
    // What was asked for says where the damage is, and does not suspend what is not asked for.
    for _ in 0..2 {
        let refused = bench.db.compact().unwrap_err();
        assert!(refused.is_corruption() && refused.to_string().contains(&name), "{refused}");
        assert!(!bench.family().compactions.state.lock().is_suspended());
    }
    assert!(bench.db.wait_for_compactions(None).unwrap(), "nothing is due");
    // The next open knows nothing of it.
    let fs = bench.fs.clone();
    bench.db.close().unwrap();
    let bench = Bench::on(fs, |options| options);
    let mut rounds = 0..200;
    while errors(&bench).is_empty() {
        bench.flush(rounds.next().expect("a job comes to the slice"), 60, 100);
        bench.wait();
    }
    assert_eq!((pressure(&bench), errors(&bench).len()), (0.0, 1));
}

// A paranoid build panics where a table refuses an entry.
#[cfg(not(feature = "paranoid"))]
#[test]
fn keys_out_of_order_under_a_right_checksum_are_damage_of_their_table() {
    let bench = filled();
    let file = last_level(&bench)[1].meta.file;
    let path = bench.engine().tables.files.path(file);
    bench.db.close().unwrap();
    forge_key(&bench.fs, &path);
    let fs = bench.fs.clone();
    let bench = Bench::on(fs, |options| options);
    for round in 0..40 {
        bench.flush(round, 60, 100);
        bench.wait();
    }
    let told = errors(&bench);
    assert_eq!((told.len(), pressure(&bench)), (1, 0.0), "{told:?}");
    let name = format!("{file:010}.tbl");
    assert!(told[0].is_corruption() && told[0].to_string().contains(&name), "{told:?}");
    let family = bench.family();
    let known: Vec<u64> = family.compactions.state.lock().busy.damaged().keys().copied().collect();
    assert_eq!(known, [file]);
    let refused = bench.db.compact().unwrap_err();
    assert!(refused.is_corruption() && refused.to_string().contains(&name), "{refused}");
}

#[test]
fn runs_that_lie_beside_a_damaged_slice_are_compacted_past_it() {
    let (bench, file) = damaged(filled(), 0);
    let first = last_level(&bench)[0].meta.largest.clone();
    let first: u32 = String::from_utf8_lossy(&first[3..]).parse().unwrap();
    (0..8).for_each(|round| bench.flush(round, 10, 600));
    bench.until(|| errors(&bench).len() == 1);
    bench.wait();
    let held_up = bench.levels()[0];
    assert!(held_up > 0);
    for round in 0..20 {
        bench.flush(first + 1 + round, 20, 200);
        bench.wait();
        bench.flush(round, 1, 1);
        bench.wait();
    }
    let tree = bench.family().view().tree.clone();
    assert_eq!((tree.slices(6)[0].meta.file, errors(&bench).len()), (file, 1));
    let over = tree.runs.iter().filter(|run| run.meta.may_hold(b"key000000")).count();
    assert!(over <= 10 && tree.runs.len() <= 12, "{over} of {} runs", tree.runs.len());
    assert_eq!(pressure(&bench), 0.0);
}

#[test]
fn a_run_that_cannot_be_read_stays_and_those_over_it_become_fewer() {
    let bench = Bench::new(|options| options);
    bench.flush(0, 1, 300);
    let file = bench.family().view().tree.runs[0].meta.file;
    let name = format!("{file:010}.tbl");
    bench.engine().tables.files.evict(file);
    bench.fs.inject(Fault::on(FileOp::Read).suffix(&name).errno(5).forever());
    for round in 0..30 {
        bench.flush(round, 5, 60);
        bench.wait();
    }
    assert!(bench.levels()[0] <= 12, "{:?}", bench.levels());
    let told = errors(&bench);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].to_string().contains(&name), "{told:?}");
    assert_eq!(pressure(&bench), 0.0);
    // The disk has recovered, and a compaction that is asked for finds out.
    bench.fs.clear_faults();
    bench.compact();
    assert_eq!(bench.levels()[0], 0);
    schedule(bench.engine(), &bench.family());
    assert!(bench.family().compactions.state.lock().busy.damaged().is_empty());
}

#[test]
fn what_a_delete_covers_leaves_though_it_cannot_be_read() {
    let (bench, _) = damaged(filled(), 1);
    (0..8).for_each(|round| bench.flush(round, 10, 600));
    bench.until(|| errors(&bench).len() == 1);
    bench.db.default_family().clear().unwrap();
    bench.db.flush().unwrap();
    bench.until(|| bench.db.metrics().slices_dropped > 0);
    bench.compact();
    assert_eq!(errors(&bench).len(), 1);
    assert!(bench.family().view().tree.is_empty());
}
