//! Weaves all mutants into one text behind a switch: `if crate::mutant_is_on(17) { a <= b } else {
//! a < b }`.
//!
//! At most one mutant is on, so the text of a mutant's branch is the original with that one change,
//! whatever mutants lie within it. Every region of the result is remembered, so that an error of
//! the compiler leads back to the mutants that caused it.

use super::site::{Kind, Site};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

/// What a stretch of a woven file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// What runs when this mutant is on.
    Branch(usize),
    /// All that stands in place of an original text, with the mutants that chose it.
    Site(Vec<usize>),
    /// A function and the mutants in it.
    Function(Vec<usize>),
}

/// A woven file.
#[derive(Debug, Default)]
pub(super) struct Woven {
    pub(super) text: String,
    /// What switches each mutant on, never 0.
    numbers: Vec<usize>,
    pub(super) regions: Vec<(Range<usize>, Region)>,
}

impl Woven {
    /// Weaves `sites` (sorted, outer ones first) into `text`.
    pub(super) fn weave(text: &str, sites: &[Site], numbers: &[usize]) -> Woven {
        let mut woven = Woven { numbers: numbers.to_vec(), ..Woven::default() };
        woven.stretch(text, 0..text.len(), sites);
        woven
    }

    /// Writes a range of the original in which `sites` lie.
    fn stretch(&mut self, text: &str, range: Range<usize>, mut sites: &[Site]) {
        let mut at = range.start;
        while let Some((site, rest)) = sites.split_first() {
            let within = rest.iter().take_while(|inner| inner.range.end <= site.range.end);
            let count = within.filter(|inner| inner.range.start < site.range.end).count();
            let (inner, after) = rest.split_at(count);
            self.text.push_str(&text[at..site.range.start]);
            self.site(text, site, inner);
            at = site.range.end;
            sites = after;
        }
        self.text.push_str(&text[at..range.end]);
    }

    fn site(&mut self, text: &str, site: &Site, inner: &[Site]) {
        let begin = self.text.len();
        if site.kind == Kind::Function {
            self.stretch(text, site.range.clone(), inner);
            let within =
                inner.iter().flat_map(|site| &site.alternatives).map(|(mutant, _)| *mutant);
            let within: BTreeSet<usize> = within.collect();
            let within = within.into_iter().collect();
            self.regions.push((begin..self.text.len(), Region::Function(within)));
            return;
        }
        let is_expression = matches!(site.kind, Kind::Expression | Kind::Fence);
        if is_expression {
            self.text.push('(');
        }
        let switch = match site.kind {
            Kind::Fence => "mutant_switch::drops_fence",
            _ => "mutant_is_on",
        };
        for (mutant, alternative) in &site.alternatives {
            let _ = write!(self.text, "if crate::{switch}({}) {{ ", self.numbers[*mutant]);
            let from = self.text.len();
            self.text.push_str(alternative);
            self.regions.push((from..self.text.len(), Region::Branch(*mutant)));
            self.text.push_str(" } else ");
        }
        self.text.push_str("{ ");
        self.stretch(text, site.range.clone(), inner);
        self.text.push_str(" }");
        if is_expression {
            self.text.push(')');
        }
        let mutants = site.alternatives.iter().map(|(mutant, _)| *mutant).collect();
        self.regions.push((begin..self.text.len(), Region::Site(mutants)));
    }

    /// The smallest region of a sort around a range of the result.
    pub(super) fn around(
        &self,
        range: &Range<usize>,
        is_wanted: impl Fn(&Region) -> bool,
    ) -> Option<&Region> {
        let regions = self.regions.iter().filter(|(outer, region)| {
            outer.start <= range.start && range.end <= outer.end && is_wanted(region)
        });
        regions.min_by_key(|(outer, _)| outer.len()).map(|(_, region)| region)
    }
}
