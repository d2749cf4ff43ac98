//! What a merge operator is, and the only place that calls one.
//!
//! An operator turns the value of a key and the operands written after it into a value. It is the
//! program's code: it may fail, panic, or return more than a value can hold. Each call here ends in
//! a value or in a [`MergeFailure`], and a caller that gets one keeps every operand as it was.
//!
//! No call changes its inputs, and operands go in oldest first.

use crate::error::{BoxError, Error, MergeFailure, Result};
use crate::limits::MAX_VALUE_LEN;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) mod bundled;

/// Turns the value of a key and the operands written after it into a value, as merge operators of
/// RocksDB do. [`Options::merge_operator`](crate::Options::merge_operator) brings it to the engine,
/// and [`FamilyOptions::merge_operator`](crate::FamilyOptions::merge_operator) names the one that a
/// family uses. [`operators`](crate::operators) has those that are always there.
///
/// A write adds an operand and reads nothing. The value is made by reads, and by flushes and
/// compactions, which replace operands by what they make. How often and with which operands at once
/// the operator is called is therefore not known. It must give the same result for the same
/// input in every process, also if it is called for some of the operands first, and then for that
/// result and the others; and it must not read or write the database. A panic in it is an error
/// of the read that called it. Flushes and compactions that get an error keep the operands. So do
/// those below a ceiling for memory ([`Options::memory`](crate::Options::memory)) where the value
/// would be longer than one that a program may write there.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// use isobath::{BoxError, FamilyOptions, MergeOperator, Options};
///
/// /// Keeps the longest of the values.
/// struct Longest;
///
/// impl MergeOperator for Longest {
///     fn name(&self) -> &str {
///         "example.longest"
///     }
///
///     fn merge(
///         &self,
///         _key: &[u8],
///         existing: Option<&[u8]>,
///         operands: &[&[u8]],
///         out: &mut Vec<u8>,
///     ) -> Result<(), BoxError> {
///         let all = existing.iter().chain(operands);
///         out.extend_from_slice(all.max_by_key(|value| value.len()).unwrap_or(&&b""[..]));
///         Ok(())
///     }
/// }
///
/// let db = Options::in_memory().merge_operator(Longest).open("longest")?;
/// let words = db.family(("words", FamilyOptions::new().merge_operator("example.longest")))?;
/// words.merge("w", "word")?;
/// words.merge("w", "longer")?;
/// words.merge("w", "a")?;
/// assert_eq!(words.get("w")?.unwrap(), "longer");
/// # Ok(())
/// # }
/// ```
pub trait MergeOperator: Send + Sync + 'static {
    /// The name under which families know it. Families store it, so it stays the same for good, as
    /// does what the operator makes of the same bytes.
    fn name(&self) -> &str;

    /// Writes to `out`, which is empty, the value that `operands`, oldest first, make of
    /// `existing`. There is at least one operand.
    ///
    /// # Errors
    ///
    /// The read that needs the value fails with
    /// [`ErrorKind::MergeFailed`](crate::ErrorKind::MergeFailed).
    fn merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError>;

    /// Writes to `out`, which is empty, one operand that means what `left` and then `right` mean
    /// over whatever value. False if there is none; `out` is not looked at then. With it,
    /// compactions can join operands whose value lies in a deeper level.
    fn merge_partial(&self, key: &[u8], left: &[u8], right: &[u8], out: &mut Vec<u8>) -> bool {
        let _ = (key, left, right, out);
        false
    }
}

/// The operators that a program has brought.
#[derive(Clone, Default)]
pub(crate) struct Operators(Vec<Arc<dyn MergeOperator>>);

impl Operators {
    pub(crate) fn add(&mut self, operator: Arc<dyn MergeOperator>) {
        self.0.push(operator);
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|operator| operator.name())
    }

    /// The operator of this name: the last one that was brought, or a bundled one.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn MergeOperator>> {
        let brought = self.0.iter().rev().find(|operator| operator.name() == name);
        brought.cloned().or_else(|| bundled::find(name))
    }
}

/// How a family merges.
pub(crate) struct Merging {
    /// The name that the family's options have.
    name: Box<str>,
    /// `None` if the program did not bring the operator.
    operator: Option<Arc<dyn MergeOperator>>,
}

impl Merging {
    pub(crate) fn new(name: &str, operators: &Operators) -> Merging {
        Merging { name: name.into(), operator: operators.find(name) }
    }

    pub(crate) fn operator(&self) -> Option<&dyn MergeOperator> {
        self.operator.as_deref()
    }

    /// The value that `operands`, oldest first, make of `existing`. `family` is named by errors.
    pub(crate) fn apply(
        &self,
        (family, key): (&str, &[u8]),
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>> {
        let failed = |failure| Error::merge_failed(&self.name, family, key, failure);
        match &self.operator {
            Some(operator) => {
                apply(&**operator, key, existing, operands, MAX_VALUE_LEN).map_err(failed)
            }
            None => Err(failed(MergeFailure::NoOperator)),
        }
    }

    /// One operand for two, if the operator can say it.
    pub(crate) fn join(&self, key: &[u8], (left, right): (&[u8], &[u8])) -> Option<Vec<u8>> {
        self.operator().and_then(|operator| join(operator, key, (left, right), MAX_VALUE_LEN))
    }

    /// An error if the program did not bring the operator.
    pub(crate) fn demand(&self, family: &str, key: &[u8]) -> Result<()> {
        match self.operator {
            Some(_) => Ok(()),
            None => Err(Error::merge_failed(&self.name, family, key, MergeFailure::NoOperator)),
        }
    }
}

/// The value that `operands`, oldest first, make of `existing`.
pub(super) fn apply(
    operator: &dyn MergeOperator,
    key: &[u8],
    existing: Option<&[u8]>,
    operands: &[&[u8]],
    longest: usize,
) -> Result<Vec<u8>, MergeFailure> {
    debug_assert!(!operands.is_empty(), "without operands the value is known");
    let mut out = Vec::new();
    // What an error says is the program's code, too.
    let called = || {
        let merged = operator.merge(key, existing, operands, &mut out);
        merged.map_err(|error| error.to_string())
    };
    match catch_unwind(AssertUnwindSafe(called)) {
        Ok(Ok(())) if out.len() > longest => Err(MergeFailure::TooLong(out.len() as u64)),
        Ok(Ok(())) => Ok(out),
        Ok(Err(why)) => Err(MergeFailure::Refused(why)),
        Err(_) => Err(MergeFailure::Panicked),
    }
}

/// One operand for two. `None` if the operator cannot say it, panics, or says too much.
pub(super) fn join(
    operator: &dyn MergeOperator,
    key: &[u8],
    (left, right): (&[u8], &[u8]),
    longest: usize,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let called = || operator.merge_partial(key, left, right, &mut out);
    let is_joined = catch_unwind(AssertUnwindSafe(called)).unwrap_or(false);
    (is_joined && out.len() <= longest).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that says nothing.
    #[derive(Debug)]
    struct Mute;

    impl std::fmt::Display for Mute {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("as it was told")
        }
    }

    impl std::error::Error for Mute {}

    /// Does what the first operand says.
    struct Obeys;

    impl MergeOperator for Obeys {
        fn name(&self) -> &str {
            "obeys"
        }

        fn merge(
            &self,
            _key: &[u8],
            _existing: Option<&[u8]>,
            operands: &[&[u8]],
            out: &mut Vec<u8>,
        ) -> Result<(), BoxError> {
            out.extend_from_slice(b"some bytes");
            match operands[0] {
                b"fail" => Err("as it was told".into()),
                b"panic" => panic!("as it was told"),
                b"mute" => Err(Box::new(Mute)),
                _ => Ok(()),
            }
        }

        fn merge_partial(&self, _: &[u8], left: &[u8], _: &[u8], out: &mut Vec<u8>) -> bool {
            out.extend_from_slice(b"half");
            assert!(left != b"panic", "as it was told");
            left != b"fail"
        }
    }

    #[test]
    fn errors_panics_and_results_beyond_the_limit_are_failures_and_nothing_more() {
        let told = |operand: &[u8], longest| apply(&Obeys, b"k", None, &[operand], longest);
        assert_eq!(told(b"", 10), Ok(b"some bytes".to_vec()));
        assert_eq!(told(b"", 9), Err(MergeFailure::TooLong(10)));
        assert_eq!(told(b"fail", 10), Err(MergeFailure::Refused("as it was told".into())));
        assert_eq!(told(b"panic", 10), Err(MergeFailure::Panicked));
        assert_eq!(told(b"mute", 10), Err(MergeFailure::Panicked));
    }

    #[test]
    fn a_partial_merge_that_fails_or_panics_or_says_too_much_joins_nothing() {
        assert_eq!(join(&Obeys, b"k", (b"fail", b""), 4), None);
        assert_eq!(join(&Obeys, b"k", (b"panic", b""), 4), None);
        let within = |longest| join(&Obeys, b"k", (b"", b""), longest);
        assert_eq!((within(4), within(3)), (Some(b"half".to_vec()), None));
    }
}
