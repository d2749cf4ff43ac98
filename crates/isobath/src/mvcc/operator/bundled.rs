//! The operators that come with the engine. Each is associative: operands may be joined in any
//! grouping before they meet a value, so a partial merge does what a full one does.
//!
//! Bytes that an operator cannot read are an error that says which they are, never a panic.
//! Every database knows them by their names, which begin with `isobath.`.

use super::MergeOperator;
use crate::error::BoxError;
use std::sync::Arc;

/// `isobath.counter`: adds numbers of 64 bits, little-endian, and wraps around. The bits are the
/// same for `i64` and `u64`. No value is zero.
pub struct Counter;

/// `isobath.append`: writes operands behind the value. No value is an empty one.
pub struct Append;

/// `isobath.max`: keeps the greatest of value and operands, bytewise.
pub struct Max;

/// `isobath.min`: keeps the least of value and operands, bytewise.
pub struct Min;

/// `isobath.set_union`: unites sets. A set is its elements in ascending order without repeats, each
/// behind its length in four bytes, little-endian. An operand may have elements in any order. No
/// value is the empty set.
pub struct SetUnion;

/// The bundled operator of this name.
pub(super) fn find(name: &str) -> Option<Arc<dyn MergeOperator>> {
    let all: [Arc<dyn MergeOperator>; 5] =
        [Arc::new(Counter), Arc::new(Append), Arc::new(Max), Arc::new(Min), Arc::new(SetUnion)];
    all.into_iter().find(|operator| operator.name() == name)
}

fn number(bytes: &[u8]) -> Result<u64, BoxError> {
    let bytes = bytes.try_into();
    bytes.map(u64::from_le_bytes).map_err(|_| "a counter has eight bytes, this has not".into())
}

impl MergeOperator for Counter {
    fn name(&self) -> &str {
        "isobath.counter"
    }

    fn merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        let mut sum = 0u64;
        for bytes in existing.iter().chain(operands) {
            sum = sum.wrapping_add(number(bytes)?);
        }
        out.extend_from_slice(&sum.to_le_bytes());
        Ok(())
    }

    fn merge_partial(&self, key: &[u8], left: &[u8], right: &[u8], out: &mut Vec<u8>) -> bool {
        self.merge(key, None, &[left, right], out).is_ok()
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "isobath.append"
    }

    fn merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        existing.iter().chain(operands).for_each(|bytes| out.extend_from_slice(bytes));
        Ok(())
    }

    fn merge_partial(&self, key: &[u8], left: &[u8], right: &[u8], out: &mut Vec<u8>) -> bool {
        self.merge(key, None, &[left, right], out).is_ok()
    }
}

/// An operator that picks one of its inputs.
macro_rules! picks {
    ($operator:ident, $name:literal, $pick:ident) => {
        impl MergeOperator for $operator {
            fn name(&self) -> &str {
                $name
            }

            fn merge(
                &self,
                _key: &[u8],
                existing: Option<&[u8]>,
                operands: &[&[u8]],
                out: &mut Vec<u8>,
            ) -> Result<(), BoxError> {
                let picked = existing.iter().chain(operands).$pick();
                out.extend_from_slice(picked.copied().unwrap_or_default());
                Ok(())
            }

            fn merge_partial(
                &self,
                key: &[u8],
                left: &[u8],
                right: &[u8],
                out: &mut Vec<u8>,
            ) -> bool {
                self.merge(key, None, &[left, right], out).is_ok()
            }
        }
    };
}

picks!(Max, "isobath.max", max);
picks!(Min, "isobath.min", min);

impl MergeOperator for SetUnion {
    fn name(&self) -> &str {
        "isobath.set_union"
    }

    fn merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        let mut elements = Vec::new();
        for set in existing.iter().chain(operands) {
            let mut rest = *set;
            while !rest.is_empty() {
                let split = rest.split_first_chunk::<4>().and_then(|(len, behind)| {
                    behind.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
                });
                let (element, behind) = split.ok_or("the bytes of a set end within an element")?;
                elements.push(element);
                rest = behind;
            }
        }
        elements.sort_unstable();
        elements.dedup();
        for element in elements {
            // It was read from behind a length of four bytes.
            out.extend_from_slice(&(element.len() as u32).to_le_bytes());
            out.extend_from_slice(element);
        }
        Ok(())
    }

    fn merge_partial(&self, key: &[u8], left: &[u8], right: &[u8], out: &mut Vec<u8>) -> bool {
        self.merge(key, None, &[left, right], out).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::MergeFailure;
    use proptest::prelude::*;

    fn apply(
        operator: &dyn MergeOperator,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeFailure> {
        super::super::apply(operator, key, existing, operands, usize::MAX)
    }

    fn join(operator: &dyn MergeOperator, key: &[u8], both: (&[u8], &[u8])) -> Option<Vec<u8>> {
        super::super::join(operator, key, both, usize::MAX)
    }

    fn set(elements: &[u8]) -> Vec<u8> {
        elements.iter().flat_map(|element| [1, 0, 0, 0, *element]).collect()
    }

    #[test]
    fn counters_add_signed_and_unsigned_numbers_and_wrap() {
        let add = |a: i64, b: i64| {
            let sum = apply(&Counter, b"k", Some(&a.to_le_bytes()), &[&b.to_le_bytes()]).unwrap();
            i64::from_le_bytes(sum.try_into().unwrap())
        };
        assert_eq!((add(5, -7), add(i64::MAX, 1)), (-2, i64::MIN));
        assert_eq!(apply(&Counter, b"k", None, &[&[7; 8]]).unwrap(), [7; 8]);
    }

    #[test]
    fn bytes_that_are_no_counter_or_no_set_are_errors() {
        assert!(apply(&Counter, b"k", Some(b"seven"), &[&[0; 8]]).is_err());
        assert!(join(&Counter, b"k", (b"seven", &[0; 8])).is_none());
        for bytes in [&[1][..], &[1, 0, 0, 0], &[255; 4], &[0, 0, 0, 0, 9]] {
            assert!(apply(&SetUnion, b"k", None, &[bytes]).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_union_is_in_order_and_without_repeats() {
        let united = apply(&SetUnion, b"k", Some(&set(b"ac")), &[&set(b"cb"), &set(b"a")]);
        assert_eq!(united.unwrap(), set(b"abc"));
    }

    #[test]
    fn the_greatest_and_the_least_count_the_value_too() {
        let operands: [&[u8]; 2] = [b"b", b"d"];
        assert_eq!(apply(&Max, b"k", Some(b"c"), &operands).unwrap(), b"d");
        assert_eq!(apply(&Min, b"k", Some(b"a"), &operands).unwrap(), b"a");
        assert_eq!(apply(&Min, b"k", None, &operands).unwrap(), b"b");
    }

    proptest! {
        #[test]
        fn a_joined_operand_means_what_both_mean(
            existing in prop::option::of(0u64..9),
            left in 0u64..9,
            right in 0u64..9,
        ) {
            let operators: [&dyn MergeOperator; 5] = [&Counter, &Append, &Max, &Min, &SetUnion];
            for operator in operators {
                let bytes = |number: u64| match operator.name() {
                    "isobath.set_union" => set(&[number as u8]),
                    _ => number.to_le_bytes().to_vec(),
                };
                let existing = existing.map(bytes);
                let (left, right) = (bytes(left), bytes(right));
                let both = apply(operator, b"k", existing.as_deref(), &[&left, &right]).unwrap();
                let joined = join(operator, b"k", (&left, &right)).unwrap();
                let one = apply(operator, b"k", existing.as_deref(), &[&joined]).unwrap();
                prop_assert_eq!(both, one, "{}", operator.name());
            }
        }
    }
}
