//! Does one damage after the other, on several threads at once, and adds up the outcomes.

use super::damage::{Damage, Mode};
use super::examine::{Answer, Examined, examine, examine_sound, watch_panics};
use super::image::{Image, ImageFile, SEGMENT_HEADER_LEN};
use crate::simulation;
use isobath::env::planted::{Plant, plant_here};
use std::collections::BTreeMap;
use std::fmt;

/// What a damaged database may hold in memory beyond what the sound one does. A scan of the log
/// reads by windows of 1 MiB.
const ALLOWANCE_BYTES: u64 = 2 << 20;
/// Failures shown; the others are counted.
const SHOWN_MAX: usize = 20;

/// Which damages to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) mode: Mode,
    /// The first, by number.
    pub(crate) from: u64,
    /// The number of the first damage that is not done, if there are that many.
    pub(crate) to: u64,
    /// Only each `step`th damage is done.
    pub(crate) step: u64,
    /// How many at once.
    pub(crate) threads: u64,
}

/// The outcomes for one kind of file.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    done: u64,
    answers: [u64; 4],
    /// Damages to bytes that mean something.
    live: u64,
    found: u64,
}

/// The outcomes of all damages.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    rows: BTreeMap<&'static str, Row>,
    /// Bytes of the database.
    pub(crate) image_bytes: u64,
    pub(crate) done: u64,
    /// The most bytes of memory that were held at once.
    pub(crate) peak_bytes: u64,
    pub(crate) failures: u64,
    /// By number: the first of them.
    shown: BTreeMap<u64, String>,
}

impl Tally {
    fn add(&mut self, file: &ImageFile, is_live: bool, examined: Examined) {
        let row = self.rows.entry(kind_of(file)).or_default();
        row.done += 1;
        row.answers[examined.answer as usize] += 1;
        row.live += u64::from(is_live);
        row.found += u64::from(examined.is_found);
        self.done += 1;
        self.peak_bytes = self.peak_bytes.max(examined.peak_bytes);
    }

    fn fail(&mut self, nth: u64, what: String) {
        self.done += 1;
        self.failures += 1;
        self.shown.insert(nth, what);
        if self.shown.len() > SHOWN_MAX {
            self.shown.pop_last();
        }
    }

    fn merge(&mut self, other: Tally) {
        for (kind, row) in other.rows {
            let sum = self.rows.entry(kind).or_default();
            sum.done += row.done;
            sum.live += row.live;
            sum.found += row.found;
            sum.answers.iter_mut().zip(row.answers).for_each(|(sum, count)| *sum += count);
        }
        self.done += other.done;
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.failures += other.failures;
        self.shown.extend(other.shown);
        while self.shown.len() > SHOWN_MAX {
            self.shown.pop_last();
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "file", "damages", "exact", "refused", "errors", "earlier", "live", "found"
        )?;
        for (kind, row) in &self.rows {
            let [exact, refused, errors, earlier] = row.answers;
            writeln!(
                f,
                "{kind:<10} {:>8} {exact:>8} {refused:>8} {errors:>8} {earlier:>8} {:>8} {:>8}",
                row.done, row.live, row.found
            )?;
        }
        for (nth, what) in &self.shown {
            writeln!(f, "damage {nth} FAILED: {what}")?;
        }
        Ok(())
    }
}

fn kind_of(file: &ImageFile) -> &'static str {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    match &*name {
        "CURRENT" => "CURRENT",
        "LOCK" => "LOCK",
        name if name.starts_with("MANIFEST") => "manifest",
        name if name.ends_with(".tbl") => "table",
        _ => "log",
    }
}

/// True if a log segment of so many bytes may be whole.
fn is_segment_len(len: u64) -> bool {
    len.checked_sub(SEGMENT_HEADER_LEN).is_some_and(u64::is_power_of_two)
}

/// Does all damages that were asked for. A planted bug stays planted for all of them.
pub(crate) fn examine_all(asked: &Asked, bug: Plant) -> Result<Tally, String> {
    simulation::hook();
    watch_panics();
    let image = Image::make()?;
    let peak_max = examine_sound(&image)?.peak_bytes + ALLOWANCE_BYTES;
    let to = asked.to.min(asked.mode.count(&image));
    let mut total = Tally { image_bytes: image.len(), ..Tally::default() };
    std::thread::scope(|scope| {
        let share = |nth: u64| {
            let image = &image;
            move || {
                plant_here(bug);
                let mut tally = Tally::default();
                let first = asked.from + nth * asked.step;
                for nth in (first..to).step_by((asked.step * asked.threads) as usize) {
                    one(image, asked.mode, nth, peak_max, &mut tally);
                }
                tally
            }
        };
        let workers: Vec<_> = (0..asked.threads).map(|nth| scope.spawn(share(nth))).collect();
        for worker in workers {
            match worker.join() {
                Ok(tally) => total.merge(tally),
                Err(_) => total.fail(u64::MAX, "a worker of the harness panicked".to_owned()),
            }
        }
    });
    Ok(total)
}

fn one(image: &Image, mode: Mode, nth: u64, peak_max: u64, tally: &mut Tally) {
    let Some((at, damage)) = mode.nth(image, nth) else { return };
    let file = &image.files[at];
    let is_live = match damage {
        Damage::Flip { byte, .. } => byte < file.live_len,
        // A manifest that is cut where a record ends is a whole manifest of an earlier moment, and
        // the log may hold the rest. Behind its last record a log segment may be cut to another
        // length that segments have. Any other file states its length, so every cut must be found.
        Damage::Cut { len } => match kind_of(file) {
            "manifest" => false,
            "log" => len < file.live_len || !is_segment_len(len),
            _ => true,
        },
        // A missing lock file is no damage.
        Damage::Gone => file.len > 0,
    };
    let wrong = match examine(image, file, damage) {
        Ok(examined) if is_live && !examined.is_found => {
            format!("verify does not find it; the answer was {:?}", examined.answer)
        }
        Ok(examined) if examined.peak_bytes > peak_max => {
            format!("{} bytes were held, {peak_max} are the most", examined.peak_bytes)
        }
        Ok(examined) if !is_live && !examined.is_found && examined.answer != Answer::Exact => {
            format!("verify finds nothing, yet the answer was {:?}", examined.answer)
        }
        Ok(examined) => return tally.add(file, is_live, examined),
        Err(wrong) => wrong,
    };
    tally.fail(nth, format!("{}, {damage}: {wrong}", file.path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(mode: Mode, step: u64, bug: Plant) -> Tally {
        let asked = Asked { mode, from: 0, to: u64::MAX, step, threads: 2 };
        let tally = examine_all(&asked, bug).unwrap();
        assert!(tally.done > 0);
        tally
    }

    #[test]
    fn a_slice_of_all_damages_gives_right_answers_or_errors() {
        for (mode, step) in [(Mode::Flip, 1511), (Mode::Truncate, 401), (Mode::Missing, 1)] {
            let tally = tally(mode, step, Plant::Nothing);
            assert_eq!(tally.failures, 0, "{tally}");
        }
    }

    /// Some 74,000 damages had moved the clock to where values of the image end.
    #[test]
    fn damages_before_this_one_leave_the_clock_alone() {
        simulation::hook();
        let image = Image::make().unwrap();
        simulation::set_ahead(2_000_000_000_000);
        examine_sound(&image).unwrap();
    }

    #[test]
    fn planted_bugs_are_found() {
        for bug in [Plant::BlockChecksumSkipped, Plant::DamageSkipped, Plant::TornTailAccepted] {
            assert!(tally(Mode::Flip, 4001, bug).failures > 0, "{bug:?}");
        }
    }
}
