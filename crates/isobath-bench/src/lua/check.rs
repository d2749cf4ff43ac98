//! Checks the answers that a workload gets: a generated value names the key that it belongs to, and
//! the rows of a range ascend within its bounds.
//!
//! Values that a workload makes itself cannot be checked, and are accepted. If a workload has made
//! none, every value of eight bytes or more must be a generated one.

use crate::generate::{Origin, Values};
use mlua::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What all threads of a point know of the values in the database.
#[derive(Clone, Debug, Default)]
pub(super) struct Provenance {
    foreign: Arc<AtomicBool>,
}

impl Provenance {
    /// `known` says that all data comes from this process.
    pub(super) fn new(known: bool) -> Provenance {
        Provenance { foreign: Arc::new(AtomicBool::new(!known)) }
    }

    /// Called before a value of the workload's own is written.
    pub(super) fn note_foreign(&self) {
        if !self.foreign.load(Ordering::Relaxed) {
            self.foreign.store(true, Ordering::Relaxed);
        }
    }

    /// What is wrong with `value`, which was read under `key`.
    #[inline]
    pub(super) fn fault(&self, values: &Values, key: &[u8], value: &[u8]) -> Option<Fault> {
        match values.origin(key, value) {
            Origin::Generated => None,
            Origin::Short => None,
            Origin::Foreign if self.foreign.load(Ordering::Relaxed) => None,
            Origin::Foreign | Origin::Wrong => Some(Fault::Value),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    Value,
    Order,
    Bounds,
}

impl Fault {
    /// The error that ends the run.
    pub(super) fn error(self, key: &[u8]) -> Error {
        let what = match self {
            Fault::Value => "has a damaged value, or that of another key",
            Fault::Order => "comes out of order",
            Fault::Bounds => "is outside the range asked for",
        };
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Error::runtime(format!("wrong answer: key {hex} {what}"))
    }
}

/// Follows the rows of one range.
pub(super) struct RowCheck<'a> {
    pub(super) provenance: &'a Provenance,
    pub(super) values: &'a Values,
    pub(super) from: &'a [u8],
    pub(super) to: Option<&'a [u8]>,
    /// The key before, in a buffer that outlives the range.
    pub(super) last: &'a mut Vec<u8>,
    pub(super) fault: Option<Fault>,
}

impl RowCheck<'_> {
    /// Takes the next row; `true` when it is wrong, and then `last` is its key.
    #[inline]
    pub(super) fn wrong(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.fault = match () {
            () if key < self.from || self.to.is_some_and(|to| key >= to) => Some(Fault::Bounds),
            () if !self.last.is_empty() && key <= self.last.as_slice() => Some(Fault::Order),
            () => self.provenance.fault(self.values, key, value),
        };
        self.last.clear();
        self.last.extend_from_slice(key);
        self.fault.is_some()
    }

    pub(super) fn outcome(self) -> Result<()> {
        self.fault.map_or(Ok(()), |fault| Err(fault.error(self.last)))
    }
}
