//! The audit: reads all books at one moment, and reports an error if they do not agree with each
//! other or with the notes.

use crate::Trouble;
use crate::ledger::{
    ACCOUNTS, ARCHIVE, Existing, FAMILIES, OPENING_BALANCE, TELLERS, Transfer, day_name, decode,
    done_key, of_entry_key, statement_key,
};
use crate::notes::{Counts, DAYS, LINES, Noted, Notes};
use crate::{doubt, letters};
use isobath::{Db, ErrorKind, Family, Range, Snapshot};
use std::collections::BTreeMap;

/// What ended the previous life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It closed its database.
    Close,
    /// The process was killed.
    Process,
    /// The power was cut.
    Power,
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// The sums of all entries.
#[derive(Default)]
struct Sums {
    last: [u64; TELLERS],
    balances: BTreeMap<u64, i64>,
    statements: Pairs,
    /// By day and account.
    turnovers: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// By teller: the last transfer with a letter, and the letter's length.
    letters: [Option<(u64, u64)>; TELLERS],
}

impl Sums {
    /// Adds up the journal, and checks that it has no holes.
    fn of(entries: Range) -> Result<Sums, Trouble> {
        let mut sums = Sums::default();
        for item in entries {
            let (key, value) = item?;
            let (teller, number) = of_entry_key(&key)?;
            if number != sums.last[teller] + 1 {
                let last = sums.last[teller];
                return Err(Trouble::wrong(format!(
                    "teller {teller}: entry {number} after {last}"
                )));
            }
            sums.last[teller] = number;
            let Transfer { from, to, amount, day, letter_len, .. } = Transfer::decode(&value)?;
            if letter_len > 0 {
                sums.letters[teller] = Some((number, letter_len));
            }
            for (account, change) in [(from, -amount), (to, amount)] {
                *sums.balances.entry(account).or_insert(OPENING_BALANCE) += change;
                *sums.turnovers.entry(day).or_default().entry(account).or_insert(0) += 1;
                let change = change.to_be_bytes().to_vec();
                sums.statements.insert(statement_key(account, teller, number), change);
            }
        }
        Ok(sums)
    }

    fn turnover_of(&self, day: u64) -> Pairs {
        let turnover = self.turnovers.get(&day).into_iter().flatten();
        turnover.map(|(account, count)| (key(*account), key(*count))).collect()
    }
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Audits the books of a snapshot, and returns the length of each line of commits. The day's family
/// may have been archived since.
pub(crate) fn books(
    db: &Db,
    moment: &Snapshot,
    day: &Family,
) -> Result<(Counts, BTreeMap<u64, Pairs>), Trouble> {
    let [accounts, entries, statements, queue, letters] = FAMILIES;
    let entries = db.existing(entries)?;
    let sums = Sums::of(moment.of(&entries).range(..))?;
    let balances = (0..ACCOUNTS)
        .map(|account| (account, sums.balances.get(&account).copied().unwrap_or(OPENING_BALANCE)));
    let balances = balances.map(|(account, sum)| (key(account), key(sum as u64))).collect();
    agree("accounts", moment, &db.existing(accounts)?, &balances)?;
    agree("statements", moment, &db.existing(statements)?, &sums.statements)?;
    let mut counts = Counts::default();
    let mut jobs = Pairs::new();
    for teller in 0..TELLERS {
        let done = moment.get(done_key(teller))?.map_or(Ok(0), |value| decode(&value))?;
        (counts[teller], counts[TELLERS + teller]) = (sums.last[teller], done);
        for number in done + 1..=sums.last[teller] {
            jobs.insert(crate::ledger::entry_key(teller, number), Vec::new());
        }
    }
    agree("queue", moment, &db.existing(queue)?, &jobs)?;
    read_letters(moment, &db.existing(letters)?, &sums)?;
    counts[DAYS] = decode(&moment.get("day")?.ok_or_else(|| Trouble::wrong("no day"))?)?;
    agree("the day", moment, day, &sums.turnover_of(counts[DAYS]))?;
    let days = [counts[DAYS].wrapping_sub(1), counts[DAYS] + 1];
    Ok((counts, days.into_iter().map(|day| (day, sums.turnover_of(day))).collect()))
}

/// Checks that of each teller's letters the last one is there, perhaps one for a transfer that is
/// not made yet, and no other. Each must be whole.
fn read_letters(moment: &Snapshot, family: &Family, sums: &Sums) -> Result<(), Trouble> {
    for teller in 0..TELLERS {
        let (mut due, last) = (sums.letters[teller], sums.last[teller]);
        for key in moment.of(family).prefix([teller as u8]).keys() {
            let key = key?;
            let number = of_entry_key(&key)?.1;
            let reader = moment.of(family).get_reader(&key)?;
            let reader = reader.ok_or_else(|| Trouble::wrong(format!("no letter at {key:?}")))?;
            if due == Some((number, reader.len())) {
                due = None;
            } else if number != last + 1 {
                let len = reader.len();
                return Err(Trouble::wrong(format!(
                    "teller {teller}: letter {number} of {len} bytes after {last}; due is {due:?}"
                )));
            }
            letters::check(reader, teller, number)?;
        }
        if let Some((number, _)) = due {
            return Err(Trouble::wrong(format!("teller {teller}: letter {number} is gone")));
        }
    }
    Ok(())
}

/// Checks that a family holds exactly these entries, read in both directions.
fn agree(what: &str, moment: &Snapshot, family: &Family, expected: &Pairs) -> Result<(), Trouble> {
    let compare =
        |items: &mut dyn Iterator<Item = isobath::Result<(isobath::Value, isobath::Value)>>,
         expected: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>,
         way: &str| {
            loop {
                match (items.next().transpose()?, expected.next()) {
                    (None, None) => return Ok(()),
                    (Some((key, value)), Some((k, v))) if key == *k && value == *v => {}
                    (found, expected) => {
                        let tell = format!("{what}, {way}: found {found:?}, expected {expected:?}");
                        return Err(Trouble::wrong(tell));
                    }
                }
            }
        };
    compare(&mut moment.of(family).range(..), &mut expected.iter(), "forward")?;
    let backward = &mut moment.of(family).range(..).rev();
    compare(backward, &mut expected.iter().rev(), "backward")
}

/// Audits a database that was just opened, against what was noted. `None` if no bank was founded
/// yet.
pub(crate) fn reopened(db: &Db, notes: &Notes, after: After) -> Result<Option<Counts>, Trouble> {
    let moment = db.snapshot();
    let noted = notes.read()?;
    if moment.get("founded")?.is_none() {
        if noted.is_founded || !is_empty(db)? {
            return Err(Trouble::wrong(format!("no bank was found, but {noted:?}")));
        }
        doubt::check(db, notes, &Counts::default())?;
        return Ok(None);
    }
    let today = decode(&moment.get("day")?.ok_or_else(|| Trouble::wrong("no day"))?)?;
    let name = day_name(today);
    let day = match db.existing(&name) {
        Err(error) if matches!(error.kind(), ErrorKind::UnknownFamily { .. }) => {
            let there = db.list_families();
            return Err(Trouble::wrong(format!("today is {today}, {name} is not among {there:?}")));
        }
        other => other?,
    };
    let (found, turnovers) = books(db, &moment, &day)?;
    families(db, &moment, found[DAYS], &turnovers)?;
    keeps_promises(&found, &noted, after)?;
    keeps_order(&found, &noted, notes)?;
    doubt::check(db, notes, &found)?;
    Ok(Some(found))
}

fn is_empty(db: &Db) -> Result<bool, Trouble> {
    for name in db.list_families() {
        if let Some(item) = db.existing(&name)?.range(..).next() {
            item?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks which families exist: those that always do, today's, perhaps tomorrow's, which is empty,
/// and yesterday's, archived or not.
fn families(
    db: &Db,
    moment: &Snapshot,
    today: u64,
    turnovers: &BTreeMap<u64, Pairs>,
) -> Result<(), Trouble> {
    let yesterday = today.wrapping_sub(1);
    for name in db.list_families() {
        let family = db.existing(&name)?;
        if name == day_name(today + 1) {
            agree("tomorrow", moment, &family, &Pairs::new())?;
        } else if name == ARCHIVE || name == day_name(yesterday) {
            let nothing = Pairs::new();
            let turnover = turnovers.get(&yesterday).unwrap_or(&nothing);
            agree("yesterday", moment, &family, turnover)?;
        } else if !FAMILIES.contains(&&*name) && name != "default" && name != day_name(today) {
            return Err(Trouble::wrong(format!("today is {today}, and there is a family {name}")));
        }
    }
    Ok(())
}

/// Checks that everything is there that must be, and at most one commit more than was acknowledged.
fn keeps_promises(found: &Counts, noted: &Noted, after: After) -> Result<(), Trouble> {
    for line in 0..LINES {
        let acknowledged = noted.acknowledged[line];
        let (least, most) = match after {
            After::Close => (acknowledged, acknowledged),
            After::Process => (acknowledged, acknowledged + jobs_at_once(line)),
            After::Power => (noted.synced[line], acknowledged + jobs_at_once(line)),
        };
        if !(least..=most).contains(&found[line]) {
            let found = found[line];
            let tell = format!("line {line}: {found} are there, not {least} to {most}; {noted:?}");
            return Err(Trouble::wrong(tell));
        }
    }
    Ok(())
}

/// One commit may finish several jobs.
fn jobs_at_once(line: usize) -> u64 {
    if (TELLERS..TELLERS * 2).contains(&line) { crate::staff::JOBS_MAX } else { 1 }
}

/// Checks that what is there is a prefix of history: no commit that is there has a later read point
/// than one that is lost.
fn keeps_order(found: &Counts, noted: &Noted, notes: &Notes) -> Result<(), Trouble> {
    let (mut newest_kept, mut oldest_lost) = (0, u64::MAX);
    let reaches_back = (0..TELLERS).any(|teller| found[teller] < noted.started[teller]);
    for teller in 0..TELLERS {
        let (started, acknowledged) = (noted.started[teller], noted.acknowledged[teller]);
        if reaches_back && found[teller] > started {
            let tell = format!(
                "{found:?} are there: some of the last life, but not all from before; {noted:?}"
            );
            return Err(Trouble::wrong(tell));
        }
        if started < found[teller].min(acknowledged) {
            newest_kept = newest_kept.max(notes.point(teller, found[teller].min(acknowledged))?);
        }
        if found[teller].max(started) < acknowledged {
            oldest_lost = oldest_lost.min(notes.point(teller, found[teller].max(started) + 1)?);
        }
    }
    if newest_kept >= oldest_lost {
        let tell = format!(
            "the commit at {oldest_lost} is lost, the one at {newest_kept} is there: {found:?}, {noted:?}"
        );
        return Err(Trouble::wrong(tell));
    }
    Ok(())
}
