//! The rules that are not of single reads: what no other may write while a Snapshot transaction
//! runs, conflicts that need a cause, and the anomalies that a level permits, which must show up.

use super::super::observe::{Judge, Sight};
use super::super::oracle::show_place;
use super::super::values::Place;
use super::deal::{Deal, Refusal};
use isobath::env::reach::{Reach, reached};
use isobath::{ConflictKind, Isolation};

/// Checks what transactions were promised beyond their reads, and counts the anomalies that were
/// permitted.
pub(crate) fn check(judge: &Judge<'_>, deals: &[Deal], refusals: &[Refusal]) -> Result<(), String> {
    for deal in deals {
        first_committer_wins(judge, deal)?;
    }
    for refusal in refusals {
        has_cause(judge, refusal)?;
    }
    let known = judge.known_until();
    let deals: Vec<&Deal> = deals.iter().filter(|deal| deal.ended < known).collect();
    deals.iter().for_each(|deal| count_alone(judge, deal));
    count_skew(&deals);
    Ok(())
}

/// No other commit writes what a Snapshot transaction writes between its point and its commit.
fn first_committer_wins(judge: &Judge<'_>, deal: &Deal) -> Result<(), String> {
    let (Isolation::Snapshot, Some(point), Some(committed)) =
        (deal.level, deal.point, deal.committed)
    else {
        return Ok(());
    };
    match deal.writes.iter().find(|place| judge.is_written_between(place, point, committed)) {
        None => Ok(()),
        Some(place) => Err(format!(
            "a Snapshot transaction from {point} that committed at {committed} wrote {}, and so did another between both",
            show_place(place)
        )),
    }
}

/// No conflict without a newer version, unless a commit gave up looking at a range that is too
/// wide. A large commit looks at all between its keys: it may name the begin of a range delete,
/// where there never was a key.
fn has_cause(judge: &Judge<'_>, refusal: &Refusal) -> Result<(), String> {
    let Refusal { place, kind, point, told } = refusal;
    let is_of_range = match kind {
        ConflictKind::Range => true,
        ConflictKind::Write => !judge.was_ever_there(place),
        _ => false,
    };
    if is_of_range || judge.may_be_written_since(place, *point, *told) {
        return Ok(());
    }
    Err(format!(
        "a transaction from {point} was told of a conflict ({kind:?}) at {}, which no other wrote since",
        show_place(place)
    ))
}

/// Anomalies that one transaction shows.
fn count_alone(judge: &Judge<'_>, deal: &Deal) {
    let Some(committed) = deal.committed else { return };
    let holds = |sight: &Sight| judge.holds_before(sight, committed);
    match deal.level {
        Isolation::RepeatableRead if !deal.found.scans.iter().all(holds) => {
            reached(Reach::AnomalyPhantom);
        }
        Isolation::ReadUncommitted | Isolation::ReadCommitted => {
            let writes = |sight: &&Sight| deal.writes.iter().any(|place| sight.covers(place));
            let mut own = deal.found.items.iter().filter(writes);
            if !own.all(holds) {
                reached(Reach::AnomalyLostUpdate);
            }
            if !judge.is_one_moment(&deal.found.sights()) {
                reached(Reach::AnomalyReadSkew);
            }
        }
        _ => {}
    }
}

/// Two Snapshot transactions that did not see one another, each of which read what the other wrote.
fn count_skew(deals: &[&Deal]) {
    let skewed = |deal: &&&Deal| deal.level == Isolation::Snapshot && deal.committed.is_some();
    let mut deals: Vec<&&Deal> = deals.iter().filter(skewed).collect();
    deals.sort_by_key(|deal| deal.committed);
    let reads = |reader: &Deal, writer: &Deal| {
        let sights = reader.found.items.iter().chain(&reader.found.scans);
        let writes = |place: &&Place| sights.clone().any(|sight| sight.covers(place));
        writer.writes.iter().any(|place| writes(&place))
    };
    for (at, later) in deals.iter().enumerate() {
        let during = deals[..at].iter().rev().take_while(|earlier| earlier.committed > later.point);
        for earlier in during {
            if reads(earlier, later) && reads(later, earlier) {
                reached(Reach::AnomalyWriteSkew);
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::oracle::{CARELESS, History};
    use super::super::super::values::{Value, Values};
    use super::super::deal::{Found, Story};
    use super::*;

    fn key(text: &str) -> Place {
        (0, text.as_bytes().into())
    }

    /// A life in which `a` and `b` are put at 100 and 200, and a transaction from 100 on puts `c`
    /// at 300.
    fn life(level: Isolation, found: Found, writes: &[&str]) -> Result<bool, String> {
        let mut history = History::new(Values::new());
        for (place, point) in [("a", 100), ("b", 200), ("c", 300)] {
            let value = Value::of(place.as_bytes());
            history.begin(CARELESS, vec![(key(place), Some(value))]);
            history.acknowledge(CARELESS, point, false);
        }
        let writes = writes.iter().map(|text| key(text)).collect();
        let (point, committed) = (Some(100), Some(300));
        let story = Story::default();
        history.ended(Deal { level, point, committed, ended: 0, found, writes, story });
        history.check_reads()
    }

    fn item(text: &str, is_there: bool) -> Sight {
        let value = is_there.then(|| Some(Value::of(text.as_bytes())));
        Sight::of_key(0, key(text).1, value)
    }

    #[test]
    fn what_a_commit_validates_must_be_so_just_before_it() {
        let found = |sight: Sight| Found { items: vec![sight], ..Found::default() };
        for level in [Isolation::Serializable, Isolation::RepeatableRead] {
            life(level, found(item("b", true)), &["c"]).unwrap();
            life(level, found(item("b", false)), &["c"]).unwrap_err();
            life(level, found(item("c", false)), &["c"]).unwrap();
            life(level, found(item("c", true)), &["c"]).unwrap_err();
        }
        for level in [Isolation::Snapshot, Isolation::ReadCommitted] {
            life(level, found(item("b", false)), &["c"]).unwrap();
        }
    }

    #[test]
    fn stretches_count_at_serializable_alone_and_locked_keys_at_every_level() {
        let empty = Sight::of_family(0, &Values::new());
        let scanned = || Found { scans: vec![empty.clone()], ..Found::default() };
        life(Isolation::Serializable, scanned(), &["c"]).unwrap_err();
        life(Isolation::RepeatableRead, scanned(), &["c"]).unwrap();
        for level in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
            let found = Found { locked: vec![item("b", false)], ..Found::default() };
            life(level, found, &["c"]).unwrap_err();
        }
    }

    #[test]
    fn no_other_writes_what_a_snapshot_transaction_writes_while_it_runs() {
        life(Isolation::Snapshot, Found::default(), &["a", "c"]).unwrap();
        life(Isolation::Snapshot, Found::default(), &["b"]).unwrap_err();
        life(Isolation::Serializable, Found::default(), &["b"]).unwrap();
    }

    #[test]
    fn a_conflict_has_a_cause() {
        let judged = |place: &str, point: u64, kind: ConflictKind| {
            let mut history = History::new(Values::new());
            for (place, point) in [("a", 100), ("b", 200)] {
                history.begin(CARELESS, vec![(key(place), Some(Value::of(b"")))]);
                history.acknowledge(CARELESS, point, false);
            }
            history.refused(Refusal { place: key(place), kind, point, told: 0 });
            history.check_reads().is_ok()
        };
        for kind in [ConflictKind::Read, ConflictKind::Write] {
            for (place, point, is_right) in [("b", 100, true), ("b", 200, false), ("a", 100, false)]
            {
                assert_eq!(judged(place, point, kind), is_right, "{place} {point} {kind:?}");
            }
        }
        assert!(judged("a\0", 100, ConflictKind::Write), "where a range delete begins");
        assert!(!judged("a\0", 100, ConflictKind::Read));
    }
}
