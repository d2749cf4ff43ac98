//! Tells whether older versions of a key can lie below a compaction. If none can, a delete can be
//! dropped.

use crate::table::ExtentRef;
use crate::version::Slice;
use std::sync::Arc;

/// Follows the slices beneath a compaction while its keys pass in ascending order.
#[derive(Debug)]
pub(crate) struct Beneath<'a> {
    levels: Vec<&'a [Arc<Slice>]>,
}

impl<'a> Beneath<'a> {
    /// Each of `levels` must be in key order.
    pub(crate) fn new(levels: &'a [Vec<Arc<Slice>>]) -> Self {
        Beneath { levels: levels.iter().map(Vec::as_slice).collect() }
    }

    /// True if no slice can hold `key`. Keys must come ascending.
    pub(crate) fn is_clear_of(&mut self, key: &[u8]) -> bool {
        self.levels.iter_mut().all(|slices| {
            let passed = slices.iter().take_while(|slice| slice.extent().ends_before(key)).count();
            *slices = &slices[passed..];
            slices.first().is_none_or(|slice| slice.extent().starts_after(key))
        })
    }

    /// True if no slice overlaps the extent.
    pub(crate) fn is_clear_of_all(&self, extent: &ExtentRef<'_>) -> bool {
        let overlaps = |slice: &Arc<Slice>| slice.extent().overlaps(extent);
        !self.levels.iter().any(|slices| slices.iter().any(overlaps))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::Model;
    use super::*;

    #[test]
    fn only_keys_between_slices_are_clear() {
        let mut model = Model::new();
        let mut level = |ends: &[(u64, u64)]| {
            ends.iter().map(|ends| model.slice(*ends, 1, 0, (1, 1))).collect::<Vec<_>>()
        };
        let levels = vec![level(&[(10, 20), (30, 40)]), level(&[(33, 50)]), level(&[])];
        let mut beneath = Beneath::new(&levels);
        let clear: Vec<u64> =
            (0..60).filter(|key: &u64| beneath.is_clear_of(&key.to_be_bytes())).collect();
        let expected: Vec<u64> = (0..10).chain(21..30).chain(51..60).collect();
        assert_eq!(clear, expected);
    }
}
