//! Checks what a recovery has found.
//!
//! Each writer's marker says how many of its commits are there. The number is at least that of the
//! commits that must be there, and at most one more than were acknowledged. They must be a prefix
//! of history by the LSNs that commits were acknowledged with, and every value of every family must
//! be what these commits leave, no more and no less.

use super::history::{FAMILIES, Origin, Place, Plan, marker_number, marker_place};
use super::notes::{Counts, FamilySteps, Record, WRITERS_MAX};
use std::collections::BTreeMap;

/// Keys and values of a family.
pub(crate) type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a database holds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// By the order of [`FAMILIES`]; a family that is not there is empty.
    pub(crate) families: [Values; FAMILIES.len()],
    /// What the passing family holds, if it is there.
    pub(crate) passing: Option<Values>,
}

/// What ended the life before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Death {
    /// The process was killed: everything acknowledged is there.
    Process,
    /// The power was cut: a prefix is there, with everything acknowledged as synced.
    Power,
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// Commits of each writer.
    pub(crate) counts: Counts,
    pub(crate) family: FamilySteps,
}

/// Checks what was found.
pub(crate) fn check(
    plan: &Plan,
    record: &Record,
    found: &Found,
    death: Death,
) -> Result<Kept, String> {
    let mut counts = Counts::default();
    for (writer, count) in counts.iter_mut().enumerate() {
        let (family, key) = marker_place(writer);
        *count = marker_number(found.families[family].get(&key))?;
        check_count(record, writer, *count, death)?;
    }
    check_prefix(record, counts)?;
    check_values(plan, record, counts, found)?;
    let family = check_passing(record.family, found.passing.as_ref(), death)?;
    Ok(Kept { counts, family })
}

/// Checks that everything of one writer that had to survive is there, and nothing that it did not
/// write.
fn check_count(record: &Record, writer: usize, count: u64, death: Death) -> Result<(), String> {
    let acknowledged = record.last_acknowledged(writer);
    let start = record.last_start()[writer];
    if count > acknowledged.max(start) + 1 {
        return Err(format!(
            "writer {writer}: {count} commits are there, {acknowledged} were acknowledged"
        ));
    }
    if count < start {
        return Err(format!(
            "writer {writer}: {count} commits are left of {start} that an open had found"
        ));
    }
    for n in count + 1..=acknowledged {
        let Some(lost) = record.acknowledged(writer, n) else { continue };
        let below = lost.point != 0 && lost.point <= record.synced_below;
        if death == Death::Process || lost.is_synced || below {
            return Err(format!(
                "LOST: commit {n} of writer {writer}, acknowledged at {:#x}, synced {}; {count} are left of \
                 {acknowledged}; everything below {:#x} was synced",
                lost.point, lost.is_synced, record.synced_below
            ));
        }
    }
    Ok(())
}

/// Checks that no commit survived that came after a lost one.
fn check_prefix(record: &Record, counts: Counts) -> Result<(), String> {
    let point = |writer, n| {
        let acknowledged = (n > 0).then(|| record.acknowledged(writer, n)).flatten();
        acknowledged.map(|acknowledged| acknowledged.point).filter(|point| *point > 0)
    };
    let kept = (0..WRITERS_MAX).filter_map(|writer| {
        let count = counts[writer];
        point(writer, count).or_else(|| point(writer, count.saturating_sub(1)))
    });
    let last_kept = kept.max().unwrap_or(0);
    for (writer, count) in counts.into_iter().enumerate() {
        if let Some(lost) = point(writer, count + 1).filter(|lost| *lost < last_kept) {
            return Err(format!(
                "A HOLE: commit {} of writer {writer} at {lost:#x} is lost, a later one at {last_kept:#x} is there",
                count + 1
            ));
        }
    }
    Ok(())
}

fn check_values(plan: &Plan, record: &Record, counts: Counts, found: &Found) -> Result<(), String> {
    let mut own = BTreeMap::new();
    let mut shared: BTreeMap<Place, Vec<Origin>> = BTreeMap::new();
    for (writer, count) in counts.into_iter().enumerate() {
        let newest = plan.newest(record, writer, count);
        own.extend(newest.own);
        for (place, origin) in newest.shared {
            shared.entry(place).or_default().push(origin);
        }
    }
    let mut left = own.len() + shared.len();
    for (family, values) in found.families.iter().enumerate() {
        for (key, value) in values {
            let place = (family, key.clone());
            let is_right = match shared.get(&place) {
                Some(origins) => last_of(record, origins).any(|origin| origin.value() == *value),
                None => own.get(&place) == Some(value),
            };
            if !is_right {
                let wanted = match shared.get(&place) {
                    Some(origins) => format!("what one of {origins:?} wrote"),
                    None => show(own.get(&place)),
                };
                let shown = show(Some(value));
                return Err(format!(
                    "WRONG: {} holds {shown}, not {wanted}; {counts:?}",
                    show_place(&place)
                ));
            }
            left -= 1;
        }
    }
    if left == 0 {
        return Ok(());
    }
    let missing = own
        .keys()
        .chain(shared.keys())
        .find(|(family, key)| !found.families[*family].contains_key(key))
        .expect("more are expected than there are");
    Err(format!("MISSING: {}, of {counts:?} commits", show_place(missing)))
}

/// Of the last commits of each writer, those that may have been the last of all: in the newest
/// life, all whose place in history is unknown, and the last of those whose place is known.
fn last_of<'a>(record: &'a Record, origins: &'a [Origin]) -> impl Iterator<Item = &'a Origin> {
    let life = origins.iter().map(|origin| origin.life).max();
    let point = |origin: &Origin| {
        record.acknowledged(origin.writer, origin.n).map_or(0, |acknowledged| acknowledged.point)
    };
    let newest = origins.iter().filter(move |origin| Some(origin.life) == life);
    let last = newest.clone().map(point).max().unwrap_or(0);
    newest.filter(move |origin| [0, last].contains(&point(origin)))
}

/// The passing family is created by odd steps and dropped by even ones; one step may be in flight.
fn check_passing(
    noted: FamilySteps,
    found: Option<&Values>,
    death: Death,
) -> Result<FamilySteps, String> {
    let is_in_step = (noted.done % 2 == 1) == found.is_some();
    let done = if is_in_step { noted.done } else { noted.done + 1 };
    let Some(values) = found else { return Ok(FamilySteps { done, is_whole: true }) };
    if *values == passing_values(done) {
        return Ok(FamilySteps { done, is_whole: true });
    }
    let may_be_empty = death == Death::Power || !is_in_step || !noted.is_whole;
    if values.is_empty() && may_be_empty {
        return Ok(FamilySteps { done, is_whole: false });
    }
    Err(format!("WRONG: after step {done} the passing family holds {values:?}"))
}

/// What the passing family holds once a step has created it.
pub(crate) fn passing_values(step: u64) -> Values {
    BTreeMap::from([(b"step".to_vec(), step.to_string().into_bytes())])
}

fn show(value: Option<&Vec<u8>>) -> String {
    match value {
        Some(value) => format!("{} bytes {:02x?}", value.len(), &value[..value.len().min(8)]),
        None => "nothing".to_owned(),
    }
}

fn show_place((family, key): &Place) -> String {
    format!("{}/{}", FAMILIES[*family], String::from_utf8_lossy(key))
}

#[cfg(test)]
mod tests {
    use super::super::notes::{Acknowledged, Notes};
    use super::*;

    const DEATHS: [Death; 2] = [Death::Process, Death::Power];

    /// Three commits of writer 0 and two of writer 1, by turns; the second of writer 0 is synced.
    fn record() -> Record {
        let notes = Notes::new().unwrap();
        notes
            .begin_life(&notes.read().unwrap(), Counts::default(), FamilySteps::default())
            .unwrap();
        for (at, (writer, n)) in [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)].into_iter().enumerate() {
            let acknowledged =
                Acknowledged { point: 100 + at as u64, is_synced: (writer, n) == (0, 2) };
            notes.acknowledge(writer, n, acknowledged).unwrap();
        }
        notes.read().unwrap()
    }

    /// What these commits leave.
    fn found(plan: &Plan, record: &Record, counts: Counts) -> Found {
        let mut found = Found::default();
        for writer in [0, 1] {
            let newest = plan.newest(record, writer, counts[writer]);
            for ((family, key), value) in newest.own {
                found.families[family].insert(key, value);
            }
            for ((family, key), origin) in newest.shared {
                found.families[family].insert(key, origin.value());
            }
        }
        found
    }

    fn judge(counts: Counts, death: Death) -> Result<Counts, String> {
        let (plan, record) = (Plan::new(11), record());
        check(&plan, &record, &found(&plan, &record, counts), death).map(|kept| kept.counts)
    }

    #[test]
    fn a_kill_may_lose_nothing_acknowledged_and_a_cut_only_what_follows_the_last_sync() {
        for death in DEATHS {
            for whole in [[3, 2, 0, 0], [4, 2, 0, 0], [3, 3, 0, 0]] {
                assert_eq!(judge(whole, death), Ok(whole));
            }
            for too_many in [[5, 2, 0, 0], [3, 4, 0, 0]] {
                assert!(judge(too_many, death).is_err());
            }
        }
        for prefix in [[2, 1, 0, 0], [2, 2, 0, 0]] {
            assert_eq!(judge(prefix, Death::Power), Ok(prefix));
            assert!(judge(prefix, Death::Process).unwrap_err().contains("LOST"));
        }
        assert!(judge([1, 1, 0, 0], Death::Power).unwrap_err().contains("LOST"));
    }

    #[test]
    fn a_commit_behind_one_that_is_lost_is_a_hole() {
        assert!(judge([2, 0, 0, 0], Death::Power).unwrap_err().contains("HOLE"));
        assert!(judge([3, 1, 0, 0], Death::Power).unwrap_err().contains("HOLE"));
    }

    #[test]
    fn every_value_counts() {
        let (plan, record, counts) = (Plan::new(11), record(), [3, 2, 0, 0]);
        let whole = || found(&plan, &record, counts);
        for family in 0..FAMILIES.len() {
            for key in whole().families[family].keys().filter(|key| !key.starts_with(b"!")) {
                for death in DEATHS {
                    let (mut missing, mut wrong) = (whole(), whole());
                    missing.families[family].remove(key);
                    wrong.families[family].get_mut(key).unwrap().push(0);
                    assert!(check(&plan, &record, &missing, death).is_err());
                    assert!(check(&plan, &record, &wrong, death).is_err());
                }
            }
            let mut more = whole();
            more.families[family].insert(b"own 0.99".to_vec(), Vec::new());
            assert!(check(&plan, &record, &more, Death::Power).is_err());
        }
    }

    #[test]
    fn a_family_may_be_one_step_ahead_of_what_was_noted_and_whole_if_that_was() {
        let steps = |done, is_whole| FamilySteps { done, is_whole };
        let (whole, empty) = (passing_values(3), Values::new());
        for death in DEATHS {
            assert_eq!(check_passing(steps(2, true), None, death), Ok(steps(2, true)));
            assert_eq!(check_passing(steps(2, true), Some(&whole), death), Ok(steps(3, true)));
            assert_eq!(check_passing(steps(2, true), Some(&empty), death), Ok(steps(3, false)));
            assert_eq!(check_passing(steps(3, false), Some(&empty), death), Ok(steps(3, false)));
            assert_eq!(check_passing(steps(3, true), None, death), Ok(steps(4, true)));
            assert!(check_passing(steps(3, true), Some(&passing_values(1)), death).is_err());
        }
        assert!(check_passing(steps(3, true), Some(&empty), Death::Power).is_ok());
        assert!(check_passing(steps(3, true), Some(&empty), Death::Process).is_err());
    }
}
