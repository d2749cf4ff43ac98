//! Runs of another size than those before.

use super::*;
use crate::env::fixtures::Draw;

/// How far behind compactions would be, in batches, if runs were of this size.
fn batches(bench: &Bench, run_bytes: u64) -> f64 {
    let (engine, family) = (bench.engine(), bench.family());
    let state = family.compactions.state.lock();
    let hints = Hints { run_bytes, ..Hints::default() };
    let (tree, policy) = (family.view().tree.clone(), policy_of(engine, &family));
    let debts = debts(&tree, &policy, &state.busy, &hints, state.garbage);
    debts.total() as f64 / debts.batch_debt as f64
}

/// Levels that long runs have filled are far too full for short ones.
#[test]
fn a_short_run_after_an_open_slows_no_writer() {
    let change = |options: Options| {
        options.write_buffer(64 << 10).family(FamilyOptions::new().codec(Codec::None))
    };
    let bench = Bench::new(change);
    let mut draw = Draw::new(7);
    for round in 1.. {
        for _ in 0..400 {
            let key = format!("key{:09}", draw.below(1 << 30));
            bench.db.put(key, [b'v'; 100]).unwrap();
        }
        bench.db.flush().unwrap();
        if round % 20 == 0 {
            bench.wait_for_compactions();
            if batches(&bench, 1) > 4.0 {
                break;
            }
        }
        assert!(round < 400, "{:?}", bench.levels());
    }
    let fs = bench.fs.clone();
    bench.db.close().unwrap();
    let bench = Bench::on(fs, change);
    // No thread is free for compactions, which would soon be done here.
    bench.family().compactions.state.lock().running = 1;
    for round in 0..8 {
        bench.flush(round, 1, 1);
        let lag = bench.engine().backlog.lock().pressure().0;
        assert!(lag < 0.5, "{lag} after {round} short runs on {:?}", bench.levels());
    }
    bench.family().compactions.state.lock().running = 0;
}
