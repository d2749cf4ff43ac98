//! What a family's merge operator can read. A key with an operand that its operator cannot read is
//! not readable any more, nor is one with such a value once anything is merged into it. So the
//! commands that write refuse what a bundled operator would refuse. What an operator of a program
//! takes is known to that program alone.

use crate::failure::{Failure, Result};
use isobath::operators::{Counter, SetUnion};
use isobath::{Family, MergeOperator};

/// The operator of a family, if it is a bundled one that does not take all bytes.
pub(super) struct Operator {
    family: String,
    bundled: Option<Box<dyn MergeOperator>>,
}

impl Operator {
    pub(super) fn of(family: &Family) -> Operator {
        let name = family.options().merge_operator;
        let all: [Box<dyn MergeOperator>; 2] = [Box::new(Counter), Box::new(SetUnion)];
        let bundled = all.into_iter().find(|one| name.as_deref() == Some(one.name()));
        Operator { family: family.name(), bundled }
    }

    /// Refuses a value that later operands could not be merged with.
    pub(super) fn takes_value(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.takes(key, value, "value")
    }

    pub(super) fn takes_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.takes(key, operand, "operand")
    }

    /// Refuses a key with a value that operands could not be merged with: a program puts what it
    /// wants to, and that is readable until the first merge.
    pub(super) fn takes_present_value(&self, family: &Family, key: &[u8]) -> Result<()> {
        if self.bundled.is_none() {
            return Ok(());
        }
        let Some(value) = family.get(key)? else { return Ok(()) };
        self.takes(key, &value, "value that the key has").map_err(|why| {
            Failure::Request(format!(
                "{why}; nothing was written\nhint: put another value, or delete the key, and then merge"
            ))
        })
    }

    /// To a bundled operator a value is what an operand over none is.
    fn takes(&self, key: &[u8], bytes: &[u8], what: &str) -> Result<()> {
        let Some(operator) = &self.bundled else { return Ok(()) };
        operator.merge(key, None, &[bytes], &mut Vec::new()).map_err(|why| {
            Failure::Request(format!(
                "the merge operator {} of the column family {:?} cannot read the {what}: {why}",
                operator.name(),
                self.family
            ))
        })
    }
}

/// The failure of a command that ends with it.
pub(super) fn nothing_written(why: Failure) -> Failure {
    Failure::Request(format!("{why}; nothing was written"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isobath::{FamilyOptions, Options};

    #[test]
    fn only_operators_that_can_refuse_bytes_are_asked() {
        let db = Options::in_memory().open("operators").unwrap();
        for (name, is_asked) in [
            ("isobath.append", false),
            ("isobath.counter", true),
            ("isobath.max", false),
            ("isobath.min", false),
            ("isobath.set_union", true),
        ] {
            let family = db.family((name, FamilyOptions::new().merge_operator(name))).unwrap();
            assert_eq!(Operator::of(&family).bundled.is_some(), is_asked, "{name}");
        }
    }
}
