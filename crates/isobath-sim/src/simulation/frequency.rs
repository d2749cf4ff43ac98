//! How often seeds come to each place, as a long run has measured it for each profile, and so which
//! places a shorter run must come to.
//!
//! A row of `frequencies.tsv` is a profile, a place, how many seeds came there, and of how many.
//! `isobath-sim run --profile PROFILE --seeds 0..1000 --measure
//! crates/isobath-sim/src/simulation/frequencies.tsv` measures a profile anew. It is time to when a
//! run says that it never came to a place which has only become rarer.

use super::settings::Profile;
use super::tally::Tally;
use isobath::env::reach::Reach;
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// What was measured.
const MEASURED: &str = include_str!("frequencies.tsv");

/// From so many seeds on a run must come to every place, also to one that was never measured, or is
/// so rare that the measured run missed it. Only what drawn scenes of the planner come to it may
/// miss ([`Reach::OF_SCENES`]).
pub(crate) const SEEDS_COMPLETE: u64 = 10_000;

/// A shorter run must come to a place unless that fails by chance in more runs than this. There are
/// few places near the bound, so hardly one run in ten thousand fails without a cause.
const MISSED_BY_CHANCE_MAX: f64 = 1e-5;

/// How probable it is that so many seeds miss a place to which `came` of `run` others came. The
/// seeds are independent, but the frequency is only known as well as these tell: it is taken to
/// have the distribution that they leave it (gamma).
fn missed_by_chance(seeds: u64, (came, run): (u64, u64)) -> f64 {
    (1.0 + seeds as f64 / run as f64).powf(-(came as f64))
}

/// By profile and place: how many seeds came there, and of how many.
#[derive(Debug, Default)]
pub(crate) struct Frequencies(BTreeMap<(String, String), (u64, u64)>);

impl Frequencies {
    pub(crate) fn measured() -> Frequencies {
        Frequencies::decode(MEASURED)
    }

    fn decode(text: &str) -> Frequencies {
        let row = |line: &str| {
            let mut fields = line.split('\t');
            let mut text = || fields.next().map(str::to_owned);
            let of = (text()?, text()?);
            Some((of, (text()?.parse().ok()?, text()?.parse().ok()?)))
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Frequencies(lines.filter_map(row).collect())
    }

    /// True if so many seeds of a profile must come to a place.
    pub(crate) fn is_due(&self, place: Reach, profile: Profile, seeds: u64) -> bool {
        let of = (profile.to_string(), place.name().to_owned());
        let is_sure = |known| missed_by_chance(seeds, known) <= MISSED_BY_CHANCE_MAX;
        let is_of_lives = !Reach::OF_SCENES.contains(&place);
        (seeds >= SEEDS_COMPLETE && is_of_lives) || self.0.get(&of).copied().is_some_and(is_sure)
    }

    /// Replaces what a file says of a profile, if there is the file.
    pub(crate) fn measure(profile: Profile, run: &Tally, file: &Path) -> io::Result<()> {
        let text = if file.exists() { fs::read_to_string(file)? } else { String::new() };
        let Frequencies(mut known) = Frequencies::decode(&text);
        let name = profile.to_string();
        known.retain(|(of, _), _| *of != name);
        let came = run.reached.in_seeds();
        known.extend(
            came.map(|(place, came)| ((name.clone(), place.name().into()), (came, run.seeds))),
        );
        let rows = known.iter();
        let rows =
            rows.map(|((name, place), (came, run))| format!("{name}\t{place}\t{came}\t{run}\n"));
        let heading = "# profile\tplace\tseeds that came there\tof\n".to_owned();
        fs::write(file, std::iter::once(heading).chain(rows).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_of_one_profile_leaves_the_others_in_the_file() {
        let file = std::env::temp_dir().join(format!("frequencies-{}.tsv", std::process::id()));
        let run = |seeds| Tally { seeds, ..Tally::default() };
        let place = (Profile::Mixed.to_string(), Reach::LevelsTwo.name().to_owned());
        for (profile, seeds) in [(Profile::Mixed, 5), (Profile::Tree, 9), (Profile::Mixed, 7)] {
            Frequencies::measure(profile, &run(seeds), &file).unwrap();
        }
        let Frequencies(known) = Frequencies::decode(&fs::read_to_string(&file).unwrap());
        fs::remove_file(&file).unwrap();
        assert_eq!(known.len(), 2 * Reach::ALL.len());
        assert_eq!(known[&place], (0, 7));
    }

    #[test]
    fn a_place_is_due_once_so_many_seeds_do_not_miss_it_by_chance() {
        let known = "# profile\nmixed\tlevels-two\t100\t1000\nmixed\tlevels-four\t0\t1000\n";
        let known = Frequencies::decode(known);
        let is_due = |place, profile, seeds| known.is_due(place, profile, seeds);
        assert!(is_due(Reach::LevelsTwo, Profile::Mixed, 125));
        assert!(!is_due(Reach::LevelsTwo, Profile::Mixed, 120));
        for (place, profile) in [
            (Reach::LevelsTwo, Profile::Tree),
            (Reach::LevelsFour, Profile::Mixed),
            (Reach::LevelsThree, Profile::Mixed),
        ] {
            assert!(!is_due(place, profile, SEEDS_COMPLETE - 1));
            assert!(is_due(place, profile, SEEDS_COMPLETE));
        }
    }

    #[test]
    fn every_place_is_of_drawn_scenes_or_was_come_to_by_a_measured_run() {
        let Frequencies(known) = Frequencies::measured();
        let was_come_to = |place: &Reach| {
            known.iter().any(|((_, name), (came, _))| name == place.name() && *came > 0)
        };
        for place in Reach::ALL {
            assert!(Reach::OF_SCENES.contains(place) || was_come_to(place), "{}", place.name());
        }
    }

    #[test]
    fn what_scenes_come_to_is_never_due_for_being_rare() {
        let known = Frequencies::default();
        for place in Reach::ALL {
            let is_of_lives = !Reach::OF_SCENES.contains(place);
            assert_eq!(known.is_due(*place, Profile::Mixed, SEEDS_COMPLETE), is_of_lives);
        }
    }

    #[test]
    fn most_places_are_due_in_the_runs_of_two_minutes_that_every_change_has_to_pass() {
        let known = Frequencies::measured();
        let is_due = |place: &&Reach| known.is_due(**place, Profile::Mixed, 500);
        let due = Reach::ALL.iter().filter(is_due).count();
        assert!(due * 10 > Reach::ALL.len() * 8, "{due} of {} places", Reach::ALL.len());
    }
}
