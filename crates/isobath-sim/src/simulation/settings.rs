//! Which parts of a seed run: the profile that it draws its lives from, the parts that are left
//! out, and a planted bug.

use isobath::env::planted::Plant;
use std::fmt;
use std::str::FromStr;

/// The kinds of lives that a seed draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// Long and short ones, with and without trouble
    #[default]
    Mixed,
    /// Short ones: many crashes for the time it takes
    Short,
    /// Long ones, all with deep trees of small tables
    Tree,
    /// Many transactions in all of them
    Transactions,
    /// Short transactions and little else, all levels evenly
    Levels,
    /// Commits in two phases, and a crash soon
    TwoPhase,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Profile::Mixed => "mixed",
            Profile::Short => "short",
            Profile::Tree => "tree",
            Profile::Transactions => "transactions",
            Profile::Levels => "levels",
            Profile::TwoPhase => "two-phase",
        })
    }
}

/// The parts of a seed that are left out. Everything else stays as it was drawn, as far as
/// possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trim {
    /// Leaves out all lives after the first so many.
    pub(crate) lives: u32,
    /// Leaves out all that a task does after its first so many operations.
    pub(crate) operations: u32,
    /// The writers that take part, a bit each.
    pub(crate) writers: u8,
    /// The readers that take part, a bit each.
    pub(crate) readers: u8,
    /// Whether the janitor takes part.
    pub(crate) janitor: bool,
    /// The lives that have trouble, a bit each.
    pub(crate) troubles: u32,
    /// The tasks of transactions that take part, a bit each.
    pub(crate) transactors: u8,
}

impl Default for Trim {
    fn default() -> Self {
        Trim {
            lives: u32::MAX,
            operations: u32::MAX,
            writers: u8::MAX,
            readers: u8::MAX,
            janitor: true,
            troubles: u32::MAX,
            transactors: u8::MAX,
        }
    }
}

impl fmt::Display for Trim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trim { lives, operations, writers, readers, janitor, troubles, transactors } = self;
        let janitor = u8::from(*janitor);
        write!(f, "{lives}/{operations}/{writers}/{readers}/{janitor}/{troubles}/{transactors}")
    }
}

impl FromStr for Trim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u32>> = text.split('/').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[lives, operations, writers, readers, janitor, troubles, transactors]) => {
                Ok(Trim {
                    lives,
                    operations,
                    writers: writers as u8,
                    readers: readers as u8,
                    janitor: janitor != 0,
                    troubles,
                    transactors: transactors as u8,
                })
            }
            _ => {
                Err("write lives/operations/writers/readers/janitor/troubles/transactors"
                    .to_owned())
            }
        }
    }
}

/// What is run of every seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) profile: Profile,
    pub(crate) trim: Trim,
    pub(crate) plant: Plant,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { profile: Profile::default(), trim: Trim::default(), plant: Plant::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trim_comes_back_from_what_it_prints() {
        let trim = Trim { lives: 3, writers: 2, janitor: false, transactors: 5, ..Trim::default() };
        assert_eq!(trim.to_string().parse(), Ok(trim));
        assert!("1/2/3".parse::<Trim>().is_err());
    }
}
