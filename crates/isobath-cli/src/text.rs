//! Bytes as text that a person can read and the tool can read back.
//!
//! Printable characters stand for themselves, a backslash is `\\`; `\t`, `\n` and `\r` are the
//! usual ones, and every other byte is `\xNN`. So a line of output is one entry, a tab in it
//! separates, and text made of printable characters is shown as it is. Hexadecimal form is two
//! digits a byte, lower case, without anything between.

use crate::failure::{Failure, Result};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// How bytes are written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Hex,
}

impl Form {
    pub(crate) fn of(hex: bool) -> Form {
        if hex { Form::Hex } else { Form::Text }
    }

    /// Appends `bytes` in this form.
    pub(crate) fn put(self, out: &mut String, bytes: &[u8]) {
        match self {
            Form::Text => escape(out, bytes),
            Form::Hex => bytes.iter().for_each(|byte| put_hex(out, *byte)),
        }
    }

    pub(crate) fn show(self, bytes: &[u8]) -> String {
        let mut out = String::with_capacity(bytes.len());
        self.put(&mut out, bytes);
        out
    }

    /// The bytes that an argument stands for.
    pub(crate) fn read(self, argument: &OsStr) -> Result<Vec<u8>> {
        let bytes = argument.as_bytes();
        let read = match self {
            Form::Text => unescape(bytes),
            Form::Hex => unhex(bytes),
        };
        read.map_err(|why| {
            Failure::Request(format!("cannot read {:?}: {why}", argument.to_string_lossy()))
        })
    }
}

fn put_hex(out: &mut String, byte: u8) {
    write!(out, "{byte:02x}").expect("a string takes everything");
}

fn escape(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                _ if is_printable(c) => out.push(c),
                _ => put_escaped(out, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        put_escaped(out, chunk.invalid());
    }
}

/// `escape_debug` knows which characters have a shape of their own; quotes it escapes for another
/// reason.
fn is_printable(c: char) -> bool {
    matches!(c, '\'' | '"') || c.escape_debug().len() == 1
}

fn put_escaped(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push_str("\\x");
        put_hex(out, *byte);
    }
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (escaped, len) = match rest {
            [quoted @ (b'\\' | b'\'' | b'"'), ..] => (*quoted, 1),
            [b't', ..] => (b'\t', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b'0', ..] => (0, 1),
            [b'x', high, low, ..] => (hex_byte(*high, *low)?, 3),
            _ => {
                return Err(
                    "after a backslash comes one of \\ ' \" t n r 0 or xNN; write a backslash \
                            itself as \\\\, or use --hex"
                        .to_owned(),
                );
            }
        };
        out.push(escaped);
        rest = &rest[len..];
    }
    Ok(out)
}

fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    let (pairs, odd) = text.as_chunks::<2>();
    if !odd.is_empty() {
        return Err("hexadecimal form has two digits a byte".to_owned());
    }
    pairs.iter().map(|[high, low]| hex_byte(*high, *low)).collect()
}

fn hex_byte(high: u8, low: u8) -> Result<u8, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match (digit(high), digit(low)) {
        (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
        _ => Err(format!(
            "{:?} is no pair of hexadecimal digits",
            [high, low].escape_ascii().to_string()
        )),
    }
}

/// A count of bytes as people read it.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_comes_back_from_both_forms() {
        let all: Vec<u8> = (0..=255).collect();
        let pairs = all.iter().flat_map(|a| all.iter().map(|b| vec![*a, *b]));
        let others = [&all[..], "été \u{202e}\u{300}\\x41\\".as_bytes(), b"", b"\xe2\x82"];
        for bytes in pairs.chain(others.map(<[u8]>::to_vec)) {
            for form in [Form::Text, Form::Hex] {
                let shown = form.show(&bytes);
                assert!(!shown.contains(['\n', '\t', '\0', '\u{202e}']), "{shown:?}");
                assert_eq!(form.read(OsStr::new(&shown)).unwrap(), bytes, "{shown:?}");
            }
        }
    }

    #[test]
    fn printable_text_is_shown_as_it_is() {
        assert_eq!(Form::Text.show("it's \"été\" 日本".as_bytes()), "it's \"été\" 日本");
        assert_eq!(Form::Text.show(b"a\0\t\\\xff"), "a\\x00\\t\\\\\\xff");
        assert_eq!(Form::Hex.show(b"\x00\xff"), "00ff");
        let quotes = b"o'brien \"x\"";
        let listed = quotes.escape_ascii().to_string();
        assert_eq!(Form::Text.read(OsStr::new(&listed)).unwrap(), quotes, "as JSON lists a name");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_way_out() {
        for bad in ["\\", "\\q", "\\x", "\\x4", "\\xgg", "a\\u{41}"] {
            assert!(Form::Text.read(OsStr::new(bad)).is_err(), "{bad}");
        }
        for bad in ["0", "0g", "é", "0x41"] {
            assert!(Form::Hex.read(OsStr::new(bad)).is_err(), "{bad}");
        }
        let error = Form::Text.read(OsStr::new("C:\\dir")).unwrap_err().to_string();
        assert!(error.contains("--hex"), "{error}");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [size(0), size(1023), size(1536), size(5 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
        );
    }
}
