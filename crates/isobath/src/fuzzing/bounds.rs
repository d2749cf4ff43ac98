//! The bounds of ranges: those of a prefix, of two keys, or of a scan on the command line.

use crate::key_range::{Prefix, bounds_of};
use crate::options::Options;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds as _};

/// The bounds of a prefix hold exactly the keys that begin with it. A range of any two bounds, even
/// crossed ones, holds the same keys as in a map.
pub(super) fn bounds(data: &[u8]) {
    let mut parts = data.splitn(4, |byte| *byte == b'/');
    let mut part = || parts.next().unwrap_or_default();
    let (how, lower, upper, prefix) = (part(), part(), part(), part());
    let of_prefix = bounds_of(Prefix(prefix));
    let mut map = BTreeMap::new();
    for key in [lower, upper, prefix, b"\0", b"k", b"\xff", b"\xff\xff\xff"] {
        for key in [key.to_vec(), [key, b"\0"].concat(), [key, b"\xff"].concat()] {
            let is_within = (of_prefix.lower.clone(), of_prefix.upper.clone()).contains(&key);
            assert_eq!(is_within, key.starts_with(prefix), "{}", key.escape_ascii());
            map.insert(key, vec![map.len() as u8]);
        }
    }
    let bound = |which: u8, key: &[u8]| match which % 3 {
        0 => Bound::Unbounded,
        1 => Bound::Included(key.to_vec()),
        _ => Bound::Excluded(key.to_vec()),
    };
    let how = how.first().copied().unwrap_or(4);
    let asked = (bound(how, lower), bound(how / 3, upper));
    let db = Options::in_memory().write_buffer(64 << 10).open("/db").expect("memory");
    for (nth, (key, value)) in map.iter().enumerate() {
        db.put(key, value).expect("memory");
        if nth == usize::from(how) / 9 {
            db.flush().expect("memory");
        }
    }
    let expected: Vec<_> = map.iter().filter(|(key, _)| asked.contains(*key)).collect();
    let found: Vec<_> = db.range(asked.clone()).map(|item| item.expect("memory")).collect();
    assert!(found.iter().map(|(k, _)| &**k).eq(expected.iter().map(|(k, _)| k.as_slice())));
    let back: Vec<_> = db.range(asked).rev().map(|item| item.expect("memory")).collect();
    assert!(back.iter().rev().map(|(k, _)| &**k).eq(expected.iter().map(|(k, _)| k.as_slice())));
    let found = db.prefix(prefix).map(|item| item.expect("memory").0);
    let expected = map.keys().filter(|key| key.starts_with(prefix));
    assert!(found.map(|key| key.to_vec()).eq(expected.cloned()));
}

/// Initial inputs for the fuzzer.
pub(super) fn seeds(_: &str) -> Vec<Vec<u8>> {
    vec![
        b"\x04/a/b/a".to_vec(),
        b"\x05/b/a/\xff".to_vec(),
        b"\x08/same/same/".to_vec(),
        b"\x11//\xff/k".to_vec(),
    ]
}
