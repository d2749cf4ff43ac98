//! The fuzz target for the bounds of a scan. Compiled for the fuzzer
//! (`fuzz/fuzz_targets/scan_bounds.rs`) and for tests.

use crate::text::Form;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Reads bytes as a bound in both forms: refused, or understood as what is shown for it again. And
/// whatever bytes a key has, what is shown for it leads back to it, on one line without anything
/// that a terminal would obey.
pub(crate) fn scan_bounds(data: &[u8]) {
    for form in [Form::Text, Form::Hex] {
        if let Ok(key) = form.read(OsStr::from_bytes(data)) {
            assert!(key.len() <= data.len());
            let shown = form.show(&key);
            assert_eq!(form.read(OsStr::new(&shown)).ok(), Some(key));
        }
        let shown = form.show(data);
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert_eq!(form.read(OsStr::new(&shown)).ok().as_deref(), Some(data), "{shown:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_refused_or_understood_whatever_they_are() {
        let pieces: [&[u8]; 14] = [
            b"\\",
            b"x",
            b"\\x",
            b"4",
            b"f",
            b"g",
            b"\\x41",
            b"\xff",
            b"\xc3",
            b"\xa9",
            b"\\t",
            b"\\0",
            b"\xe2\x80\xae",
            b"\x1b[",
        ];
        scan_bounds(b"");
        for a in pieces {
            for b in pieces {
                for c in pieces {
                    scan_bounds(&[a, b, c].concat());
                }
            }
        }
    }
}
