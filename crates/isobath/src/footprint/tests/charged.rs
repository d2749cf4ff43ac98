//! Footprints below a ceiling for memory: whatever is done, they take no more than they charge.

use super::*;
use crate::env::fixtures::Draw;
use crate::error::MemoryClass;
use crate::memory::Budget;

const CEILING: u64 = 24 << 20;

/// Leaves so many bytes to the footprint.
fn below(bytes: u64) -> (Arc<Budget>, crate::memory::Charge, Footprint) {
    let budget = Budget::new(CEILING, &[]);
    let others = budget.try_charge(MemoryClass::Blocks, CEILING - (1 << 20) - bytes).unwrap();
    let footprint = Footprint::charged(1 << 20, Allowance::below(&budget));
    (budget, others, footprint)
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation { family: 1, kind: OpKind::Put, key, value }
}

/// What takes more than is charged says so; of the log of a savepoint one step may be uncharged.
fn check(budget: &Budget, footprint: &Footprint) {
    let (charge, charged) = (footprint.charge(), footprint.allowance.bytes());
    assert!(charge <= charged + UNDO_CHARGE || footprint.check_reads().is_err(), "{charge}");
    assert_eq!(budget.held_by(MemoryClass::Transactions), charged);
}

#[test]
fn a_footprint_takes_no_more_than_it_has_charged() {
    let (mut spilled, mut refused, mut short) = (0, 0, 0);
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
        let mut draw = Draw::new(seed);
        let (budget, _others, mut footprint) = below(1 << (10 + draw.below(10)));
        for _ in 0..1500 {
            let key = format!("{:05}", draw.below(4000)).into_bytes();
            let len_max = if draw.below(20) == 0 { 30_000 } else { 100 };
            let value = vec![7; draw.index(len_max)];
            match draw.below(100) {
                0 => footprint.savepoint("here"),
                1 => _ = footprint.rollback_to("here"),
                2 => _ = footprint.release("here"),
                3 => footprint.settle_reads(),
                4..10 => {
                    let watch = footprint.watch(1, Interval::of_key(&key));
                    if draw.below(4) > 0 {
                        let passed = Intervals::default();
                        watch.narrow(Passed::Intervals(passed), Allowance::endless());
                    }
                }
                10..40 => {
                    footprint.track_read(ReadKey::new(1, &key));
                    short += u32::from(footprint.check_reads().is_err());
                }
                40..45 => {
                    let end = [&key[..], b"z"].concat();
                    refused += u32::from(footprint.delete_range(1, (&key, &end)).is_err());
                }
                _ => match footprint.write(put(&key, &value)) {
                    Err(_) if !footprint.has_savepoints() => {
                        footprint.drain_writes();
                        spilled += 1;
                    }
                    Err(NoRoom::Memory(_)) => refused += 1,
                    Err(told) => assert!(matches!(told, NoRoom::TooLarge { .. })),
                    Ok(()) => {}
                },
            }
            check(&budget, &footprint);
        }
        footprint.clear();
        footprint.settle_allowance();
        assert!(footprint.allowance.bytes() < 64 << 10);
        drop(footprint);
        assert_eq!(budget.held_by(MemoryClass::Transactions), 0);
    }
    assert!(spilled > 50 && refused > 50 && short > 50, "{spilled} {refused} {short}");
}

#[test]
fn a_write_that_is_refused_makes_reads_coarser_and_leaves_the_writes_as_they_are() {
    let (_budget, _others, mut footprint) = below(20 << 10);
    let number = |n: u32| n.to_be_bytes();
    for n in 0..100 {
        footprint.track_read(ReadKey::new(1, &number(n)));
        footprint.write(put(&number(n), b"value")).unwrap();
    }
    assert_eq!(footprint.read_ranges().count(), 0);
    let refused = loop {
        let n = footprint.len() as u32;
        match footprint.write(put(&number(n), b"value")) {
            Ok(()) => assert!(n < 1000),
            Err(refused) => break refused,
        }
    };
    let NoRoom::Memory(error) = refused else { panic!("{refused:?}") };
    assert!(error.is_retryable());
    let (len, ranges) = (footprint.len(), footprint.read_ranges().count());
    assert!((100..300).contains(&len) && (1..=7).contains(&ranges), "{len} {ranges}");
    assert_eq!(footprint.writes().count(), len);
}

#[test]
fn what_was_short_is_refused_no_more_once_it_is_charged() {
    let (budget, others, mut footprint) = below(0);
    footprint.track_read(ReadKey::new(1, b"key"));
    assert!(footprint.check_reads().is_err());
    drop(others);
    footprint.write(put(b"key", b"value")).unwrap();
    footprint.check_reads().expect("the write has charged the read, too");
    check(&budget, &footprint);
}

#[test]
fn what_scans_report_is_charged_once_it_is_taken_in() {
    let (budget, _others, mut footprint) = below(1 << 20);
    let watch = footprint.watch(1, Interval::default());
    let mut passed = Intervals::default();
    (0..200u32).for_each(|n| passed.add(Interval::of_key(&n.to_be_bytes())));
    watch.narrow(Passed::Intervals(passed), Allowance::endless());
    let before = footprint.charge();
    footprint.settle_reads();
    assert!(footprint.charge() > 4 * before, "{before}");
    assert!(footprint.charge() <= budget.held_by(MemoryClass::Transactions));
}

#[test]
fn another_attempt_begins_with_nothing_charged_and_charges_again() {
    let (budget, _others, mut footprint) = below(1 << 20);
    let held = || budget.held_by(MemoryClass::Transactions);
    for _ in 0..2 {
        footprint.write(put(b"key", &[7; 200_000])).unwrap();
        assert!(held() > 200_000);
        footprint.begin_again(1 << 20);
        assert_eq!((footprint.len(), held()), (0, 0));
    }
}
