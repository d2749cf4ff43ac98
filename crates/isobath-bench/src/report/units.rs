//! Numbers as people read them.

pub(super) fn count(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e4 => format!("{:.1} k", n / 1e3),
        n if n >= 100.0 || n.fract() == 0.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

pub(super) fn bytes(number: f64) -> String {
    match number {
        n if n >= 1024.0 * 1024.0 * 1024.0 => format!("{:.2} GiB", n / (1024.0 * 1024.0 * 1024.0)),
        n if n >= 1024.0 * 1024.0 => format!("{:.1} MiB", n / (1024.0 * 1024.0)),
        n if n >= 1024.0 => format!("{:.1} KiB", n / 1024.0),
        n => format!("{n:.0} B"),
    }
}

pub(crate) fn micros(us: f64) -> String {
    match us {
        n if n >= 1e6 => format!("{:.2} s", n / 1e6),
        n if n >= 1e3 => format!("{:.2} ms", n / 1e3),
        n if n >= 100.0 => format!("{n:.0} us"),
        n if n >= 1.0 => format!("{n:.2} us"),
        n => format!("{:.0} ns", n * 1e3),
    }
}

pub(super) fn seconds(s: f64) -> String {
    match s {
        n if n >= 120.0 => format!("{:.0} min {:.0} s", (n / 60.0).floor(), n % 60.0),
        n if n >= 0.1 || n == 0.0 => format!("{n:.2} s"),
        n => format!("{:.1} ms", n * 1e3),
    }
}

/// A number that may be unknown, which is never shown as zero.
pub(super) fn known(number: Option<f64>, show: impl Fn(f64) -> String) -> String {
    number.map_or_else(|| "–".to_owned(), show)
}

pub(super) fn amplification(factor: f64) -> String {
    format!("{factor:.2}")
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_or_so() {
        assert_eq!(
            [count(7.0), count(1234.0), count(45_678.0), count(2.5e6)],
            ["7", "1234", "45.7 k", "2.50 M"]
        );
        assert_eq!(
            [bytes(10.0), bytes(2048.0), bytes(5.5 * 1048576.0)],
            ["10 B", "2.0 KiB", "5.5 MiB"]
        );
        assert_eq!(
            [micros(0.25), micros(3.456), micros(1500.0), micros(2e6)],
            ["250 ns", "3.46 us", "1.50 ms", "2.00 s"]
        );
        assert_eq!(
            [seconds(0.05), seconds(3.0), seconds(150.0)],
            ["50.0 ms", "3.00 s", "2 min 30 s"]
        );
    }
}
