//! Sizes in bytes, and sizes as text: `"64MiB"`.

/// 1024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1024 KiB.
pub const MIB: u64 = 1 << 20;
/// 1024 MiB.
pub const GIB: u64 = 1 << 30;

/// The units in text, in lower case. Units without an `i` are powers of ten.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1000),
    ("kb", 1000),
    ("kib", KIB),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("mib", MIB),
    ("g", 1_000_000_000),
    ("gb", 1_000_000_000),
    ("gib", GIB),
    ("t", 1_000_000_000_000),
    ("tb", 1_000_000_000_000),
    ("tib", 1 << 40),
];

/// Parses `"4096"`, `"64MiB"`, `"64 mib"` or `"1.5GiB"`. `None` if the text is no size, or if the
/// size does not fit 64 bits.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let number_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let unit = unit.trim_start().to_ascii_lowercase();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let bytes = whole.parse::<u64>().ok()?.checked_mul(*factor)?;
    // There are fewer than 16 digits, so their product with a unit fits 128 bits.
    let numerator: u128 = (fraction.len() < 16).then(|| fraction.parse().ok())??;
    let part = numerator * u128::from(*factor) / 10u128.pow(fraction.len() as u32);
    bytes.checked_add(part as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("64MiB", 64 * MIB),
            ("64 mib", 64 * MIB),
            ("4.0 KiB", 4096),
            ("1.5GiB", GIB + GIB / 2),
            ("2kB", 2000),
            ("3T", 3_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5.2KiB", "1,5KiB", "5 parsecs", "18446744073709551616"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("17179869184GiB"), None);
        assert_eq!(parse("1.00000000000000000000KiB"), None);
    }
}
