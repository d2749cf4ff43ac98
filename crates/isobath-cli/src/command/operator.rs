//! What a family's merge operator can read. A key with a value or an operand that its operator
//! cannot read is not readable any more, so the commands that write refuse what a bundled operator
//! would refuse. What an operator of a program takes is known to that program alone.

use crate::failure::{Failure, Result};
use isobath::operators::{Append, Counter, Max, Min, SetUnion};
use isobath::{Family, MergeOperator};

/// The operator of a family, if it is a bundled one.
pub(super) struct Operator {
    family: String,
    bundled: Option<Box<dyn MergeOperator>>,
}

impl Operator {
    pub(super) fn of(family: &Family) -> Operator {
        let name = family.options().merge_operator;
        let all: [Box<dyn MergeOperator>; 5] =
            [Box::new(Append), Box::new(Counter), Box::new(Max), Box::new(Min), Box::new(SetUnion)];
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
