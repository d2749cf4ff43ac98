//! Moments as people write them: those of the past, as `--as-of` takes them, and ends of values.

use crate::failure::{Failure, Result};
use isobath::{Expiry, ReadPoint};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment to read at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Time(SystemTime),
    Point(ReadPoint),
}

impl When {
    /// What `text` means at the time `now`.
    pub(crate) fn read(text: &str, now: SystemTime) -> Result<When> {
        let time = || ago(text, now).or_else(|| clock(text)).map(When::Time);
        point(text).map(When::Point).or_else(time).ok_or_else(|| {
            Failure::Request(format!(
                "cannot read {text:?}: a time such as 2026-11-22T15:04:05Z, a time ago such as 90s, 15m, 2h or 3d, \
                 or a read point of 32 hexadecimal digits is wanted"
            ))
        })
    }
}

fn point(text: &str) -> Option<ReadPoint> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
    Some(ReadPoint::from_bytes(number.to_be_bytes()))
}

/// When a value is to end.
pub(crate) fn read_end(text: &str) -> Result<Expiry> {
    let end = match text {
        "never" => Some(Expiry::Never),
        _ => span(text).map(Expiry::After).or_else(|| clock(text).map(Expiry::At)),
    };
    end.ok_or_else(|| {
        Failure::Request(format!(
            "cannot read {text:?}: a duration such as 90s, 15m, 2h or 3d, a time such as 2026-11-22T15:04:05Z, or \
             `never` is wanted"
        ))
    })
}

/// A length of time, as values are to live or deletes may stay.
pub(crate) fn read_duration(text: &str) -> Result<Duration> {
    span(text).ok_or_else(|| {
        Failure::Request(format!(
            "cannot read {text:?}: a duration such as 90s, 15m, 2h or 3d is wanted"
        ))
    })
}

/// When a value ends, in UTC.
pub(crate) fn show_end(expiry: Expiry) -> String {
    let Expiry::At(moment) = expiry else { return "never".to_owned() };
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (mut days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Dates come back every 400 years.
    let mut year = 1970 + days / DAYS_OF_400_YEARS * 400;
    days %= DAYS_OF_400_YEARS;
    let mut month = 1;
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (day, millis) = (days + 1, since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

const DAYS_OF_400_YEARS: u64 = 146_097;

fn ago(text: &str, now: SystemTime) -> Option<SystemTime> {
    now.checked_sub(span(text)?)
}

fn span(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    let count = number(text.strip_suffix(unit)?)?;
    Some(Duration::from_secs(count.checked_mul(seconds)?))
}

/// A number without a sign.
fn number(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// A time in UTC, as RFC 3339 has it, with fractions of a second or without.
fn clock(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    // Years beyond 9999 have more digits, as `show_end` prints them.
    let year_len = date.find('-').filter(|len| (4..=9).contains(len))?;
    let [year, month, day] = three(date, '-', [year_len, 2, 2])?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = three(time, ':', [2, 2, 2])?;
    let is_time = hour < 24 && minute < 60 && second < 60;
    let is_date =
        year >= 1970 && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if !is_time || !is_date || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let nanos = number(fraction)? * 10u64.pow(9 - fraction.len() as u32);
    // Dates come back every 400 years.
    let (cycles, years) = ((year - 1970) / 400, (year - 1970) % 400);
    let years: u64 = (1970..1970 + years).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let years = years + cycles * DAYS_OF_400_YEARS;
    let months: u64 = (1..month).map(|month| days_of(year, month)).sum();
    let seconds = (years + months + day - 1) * 86_400 + hour * 3600 + minute * 60 + second;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos as u32))
}

/// Three numbers of these lengths between separators.
fn three(text: &str, separator: char, lens: [usize; 3]) -> Option<[u64; 3]> {
    let mut numbers = [0; 3];
    let mut parts = text.split(separator);
    for (place, len) in numbers.iter_mut().zip(lens) {
        *place = number(parts.next().filter(|part| part.len() == len)?)?;
    }
    parts.next().is_none().then_some(numbers)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, nanos: u32) -> When {
        When::Time(UNIX_EPOCH + Duration::new(seconds, nanos))
    }

    #[test]
    fn ends_are_shown_as_they_are_read() {
        for text in [
            "1970-01-01T00:00:00.000Z",
            "2000-02-29T23:59:59.250Z",
            "2100-03-01T00:00:00.001Z",
            "2400-12-31T12:00:00.999Z",
            "2401-01-01T00:00:00.000Z",
            "9999-12-31T23:59:59.999Z",
            "10000-02-29T00:00:00.000Z",
            "292278994-08-17T07:12:55.807Z",
        ] {
            assert_eq!(show_end(read_end(text).unwrap()), text);
        }
        assert_eq!(read_end("2h").unwrap(), Expiry::After(Duration::from_secs(7200)));
        assert_eq!(show_end(read_end("never").unwrap()), "never");
        assert!(read_end("soon").is_err() && read_duration("never").is_err());
        let late = UNIX_EPOCH + Duration::from_millis(i64::MAX as u64);
        assert_eq!(show_end(Expiry::At(late)), "292278994-08-17T07:12:55.807Z");
    }

    #[test]
    fn times_and_points_are_read_as_people_write_them() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let point = "000000000001234500000000000abcde";
        for (text, when) in [
            ("1970-01-01T00:00:00Z", at(0, 0)),
            ("2000-02-29T23:59:59Z", at(951_868_799, 0)),
            ("2100-03-01T00:00:00.25Z", at(4_107_542_400, 250_000_000)),
            ("2026-11-22T15:04:05.000000001Z", at(1_795_359_845, 1)),
            ("90s", at(999_910, 0)),
            ("15m", at(999_100, 0)),
            ("2h", at(992_800, 0)),
            ("3d", at(740_800, 0)),
            ("0s", at(1_000_000, 0)),
            (
                point,
                When::Point(ReadPoint::from_bytes(
                    0x0001_2345_0000_0000_000a_bcde_u128.to_be_bytes(),
                )),
            ),
        ] {
            assert_eq!(When::read(text, now).unwrap(), when, "{text}");
        }
        for text in [
            "",
            "s",
            "5",
            "+5s",
            "-5s",
            "18446744073709551615d",
            "2026-11-22",
            "2026-11-22T15:04:05",
            "2026-11-22 15:04:05Z",
            "2025-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "1969-12-31T23:59:59Z",
            "26-01-01T00:00:00Z",
            "2922789940-01-01T00:00:00Z",
            "-2026-01-01T00:00:00Z",
            "2026-1-1T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567890Z",
            "2026-01-01T00:00:00:00Z",
            &point[1..],
            "0000000000012345g0000000000abcde",
        ] {
            assert!(When::read(text, now).is_err(), "{text}");
        }
    }
}
