//! Merges in a simulation: an operator whose results the oracle knows, and chains of operands.
//!
//! An operand begins with a letter. `R` replaces the value with the rest, `A` appends the rest. So
//! a put can be written as a merge, and the oracle need not tell them apart. What an operand finds
//! beneath it matters for `A` alone: each writer has a key of its own, its *chain*, to which it
//! appends with nearly every commit, and sometimes puts, replaces or deletes. As no other task
//! writes there, the writer knows the value after each of its commits. A task of transactions does
//! the same in every second one that writes.

use super::oracle::marker;
use super::values::{Place, Value};
use isobath::{Batch, BoxError, FamilyOptions, MergeOperator, Options, Transaction};
use std::time::{Duration, SystemTime};

/// The name under which families know the operator.
const NAME: &str = "isobath-sim.edit";

/// Replaces or appends.
struct Edit;

fn parts(operand: &[u8]) -> Result<(bool, &[u8]), BoxError> {
    match operand.split_first() {
        Some((b'R', rest)) => Ok((true, rest)),
        Some((b'A', rest)) => Ok((false, rest)),
        _ => Err(format!("{:?} is no operand", operand.escape_ascii().to_string()).into()),
    }
}

impl MergeOperator for Edit {
    fn name(&self) -> &str {
        NAME
    }

    fn merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        out.extend_from_slice(existing.unwrap_or_default());
        for operand in operands {
            let (replaces, rest) = parts(operand)?;
            if replaces {
                out.clear();
            }
            out.extend_from_slice(rest);
        }
        Ok(())
    }

    /// Joins three out of four, so that lists of operands occur as well.
    fn merge_partial(&self, _key: &[u8], left: &[u8], right: &[u8], out: &mut Vec<u8>) -> bool {
        let (Ok((left_replaces, _)), Ok((replaces, rest))) = (parts(left), parts(right)) else {
            return false;
        };
        if (left.len() + right.len()).is_multiple_of(4) {
            return false;
        }
        match (replaces, left_replaces) {
            (true, _) => out.extend_from_slice(right),
            (false, _) => {
                out.extend_from_slice(left);
                out.extend_from_slice(rest);
            }
        }
        true
    }
}

/// The options with the operator of the simulation.
pub(crate) fn editing(options: Options) -> Options {
    options.merge_operator(Edit)
}

/// The same for a family.
pub(crate) fn edited(options: FamilyOptions) -> FamilyOptions {
    FamilyOptions::merge_operator(options, NAME)
}

/// The operand that a put is written as; `None` if it is written as a put.
pub(crate) fn as_operand(nth: usize, value: &[u8]) -> Option<Vec<u8>> {
    (value.len() + nth).is_multiple_of(4).then(|| [b"R", value].concat())
}

/// What a put that is written so is given for an end: one that never comes.
pub(crate) fn far_end() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1 << 52)
}

/// True if a put is written with an end that never comes, and a delete as a put whose end has
/// passed. To the oracle they are what they stand for.
pub(crate) fn has_end(nth: usize, key: &[u8]) -> bool {
    (key.len() + nth).is_multiple_of(7)
}

/// Where a writer has its chain.
fn place(writer: usize) -> Place {
    let (family, key) = marker(writer);
    (family, [&key[..], b"+"].concat().into())
}

/// The chain of a writer in one life.
pub(crate) struct Chain {
    /// The value; `None` until it is known.
    known: Option<Option<Vec<u8>>>,
    /// From so many bytes on it begins anew.
    len_max: usize,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain { known: None, len_max: CHAIN_LEN_MAX }
    }
}

/// What a commit does to the chain of its writer.
pub(crate) struct Step {
    key: Place,
    does: Does,
    link: Vec<u8>,
    after: Option<Vec<u8>>,
}

enum Does {
    Append,
    Replace,
    Put,
    Delete,
    /// Deletes a range that has this key alone, then appends.
    Sweep,
}

/// The bytes of a chain from which on it begins anew. A transaction may have to put all of it, and
/// some may hold very little.
const CHAIN_LEN_MAX: usize = 4000;
const CHAIN_LEN_MAX_IN_TRANSACTIONS: usize = 120;

impl Chain {
    /// One that transactions write.
    pub(crate) fn of_transactions() -> Chain {
        Chain { len_max: CHAIN_LEN_MAX_IN_TRANSACTIONS, ..Chain::default() }
    }

    /// The step of the commit with this number. It follows from the number, and draws nothing.
    pub(crate) fn step(&self, writer: usize, number: u64) -> Step {
        let drawn = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(writer as u64) >> 32;
        let link = format!("{writer}.{number};").into_bytes();
        let known = self.known.as_ref().map(|value| value.as_deref().unwrap_or_default());
        let does = match (known, drawn % 32) {
            (Some(known), 0..26) if known.len() < self.len_max => Does::Append,
            (_, 26) => Does::Delete,
            (_, 27) => Does::Put,
            (_, 28..30) => Does::Sweep,
            _ => Does::Replace,
        };
        let after = match does {
            Does::Append => Some([known.unwrap_or_default(), &link].concat()),
            Does::Replace | Does::Put | Does::Sweep => Some(link.clone()),
            Does::Delete => None,
        };
        Step { key: place(writer), does, link, after }
    }

    /// The commit has happened.
    pub(crate) fn done(&mut self, step: Step) {
        self.known = Some(step.after);
    }
}

impl Step {
    /// What the commit leaves there.
    pub(crate) fn outcome(&self) -> (Place, Option<Value>) {
        (self.key.clone(), self.after.as_deref().map(Value::of))
    }

    /// True if it deletes a range.
    pub(crate) fn sweeps(&self) -> bool {
        matches!(self.does, Does::Sweep)
    }

    /// Takes the step in a transaction. What is appended comes in two pieces, which the transaction
    /// has to make one operation of.
    pub(crate) fn take(&self, tx: &Transaction) -> isobath::Result<()> {
        let (key, (first, second)) = (&self.key.1, self.link.split_at(self.link.len() / 2));
        let append = |link: &[u8]| tx.merge(key, [b"A", link].concat());
        match self.does {
            Does::Append => append(first).and_then(|()| append(second)),
            Does::Replace => tx.merge(key, [b"R", &self.link[..]].concat()),
            Does::Put => tx.put(key, &self.link),
            Does::Delete => tx.delete(key),
            Does::Sweep => {
                tx.delete_range(&key[..]..=&key[..])?;
                append(&self.link)
            }
        }
    }

    /// Adds the step to its commit.
    pub(crate) fn add_to(&self, batch: &mut Batch) {
        let key = &self.key.1;
        match self.does {
            Does::Append => batch.merge(key, [b"A", &self.link[..]].concat()),
            Does::Replace => batch.merge(key, [b"R", &self.link[..]].concat()),
            Does::Put => batch.put(key, &self.link),
            Does::Delete => batch.delete(key),
            Does::Sweep => {
                batch.delete_range(&key[..]..=&key[..]).merge(key, [b"A", &self.link[..]].concat())
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_of_transactions_ends_as_its_steps_say() {
        let family = edited(FamilyOptions::new());
        let db = editing(Options::in_memory().family(family)).open("/db").unwrap();
        let mut chain = Chain::of_transactions();
        for number in 0..500 {
            let step = chain.step(1, number);
            let tx = db.begin();
            step.take(&tx).unwrap();
            let found = tx.get(&step.key.1).unwrap();
            assert_eq!(found.as_deref().map(Value::of), step.outcome().1, "{number}");
            tx.commit().unwrap();
            let found = db.get(&step.key.1).unwrap();
            assert_eq!(found.as_deref().map(Value::of), step.outcome().1, "{number}");
            chain.done(step);
            if number % 50 == 49 {
                db.flush().unwrap();
            }
        }
    }

    #[test]
    fn every_chain_ends_as_its_steps_say() {
        let family = edited(FamilyOptions::new());
        let db = editing(Options::in_memory().family(family)).open("/db").unwrap();
        let mut chain = Chain::default();
        for number in 0..500 {
            let step = chain.step(1, number);
            let mut batch = Batch::new();
            step.add_to(&mut batch);
            db.write(batch).unwrap();
            let found = db.get(&step.key.1).unwrap();
            assert_eq!(found.as_deref().map(Value::of), step.outcome().1, "{number}");
            chain.done(step);
            if number % 50 == 49 {
                db.flush().unwrap();
            }
        }
    }
}
