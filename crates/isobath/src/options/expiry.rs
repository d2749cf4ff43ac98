//! [`Expiry`]: when a value ends, as programs say and learn it.

#![allow(clippy::disallowed_types)] // What programs have.

use crate::env::SystemTime;
use crate::error::{Error, Result};
use std::time::Duration;

/// The longest time to live, and the last moment at which a value may end, in milliseconds.
pub(crate) const TTL_MS_MAX: u64 = i64::MAX as u64;

/// When a value ends. From that moment on the key has no value, for reads that begin then or later.
/// Snapshots go on seeing what lived at their moment.
///
/// Moments are exact to the millisecond, by the clock of the process that writes; if it is set
/// back, what has ended stays so.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// use isobath::Expiry;
/// use std::time::Duration;
/// # let db = isobath::Options::in_memory().open("expiry")?;
/// db.put_ttl("/news", "html", Duration::from_secs(60))?;
/// let (value, expiry) = db.get_expiry("/news")?.unwrap();
/// assert_eq!(value, "html");
/// assert!(matches!(expiry, Expiry::At(_)));
/// assert!(db.set_expiry("/news", Expiry::Never)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expiry {
    /// It does not end, whatever the family's
    /// [`FamilyOptions::ttl`](crate::FamilyOptions::ttl) is.
    Never,
    /// It ends at this moment, which must not lie before 1970. A value that is written after its
    /// end is as good as deleted.
    At(SystemTime),
    /// It ends so long after it was written, a transaction's when it was put. Not zero. Reads never
    /// return this; they return [`Expiry::At`].
    After(Duration),
}

impl From<Duration> for Expiry {
    fn from(ttl: Duration) -> Expiry {
        Expiry::After(ttl)
    }
}

impl From<SystemTime> for Expiry {
    fn from(moment: SystemTime) -> Expiry {
        Expiry::At(moment)
    }
}

impl Expiry {
    /// What is stored as the end: `None` without one, and 0 for one that has passed.
    pub(crate) fn stored(self, now_ms: u64) -> Result<Option<u64>> {
        let expires_ms = match self {
            Expiry::Never => return Ok(None),
            Expiry::After(Duration::ZERO) => {
                return Err(Error::invalid_argument("a time to live of zero"));
            }
            Expiry::After(ttl) => now_ms.saturating_add(whole_ms(ttl)),
            Expiry::At(moment) => match moment.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(since) => whole_ms(since),
                Err(_) => {
                    return Err(Error::invalid_argument("a value that ends before 1970"));
                }
            },
        };
        if expires_ms > TTL_MS_MAX {
            return Err(Error::invalid_argument(format!(
                "a value ends at most {TTL_MS_MAX} milliseconds after 1970; {self:?} is beyond that"
            )));
        }
        Ok(Some(if expires_ms <= now_ms { 0 } else { expires_ms }))
    }

    /// What is told of a stored end.
    pub(crate) fn of_stored(expires_ms: Option<u64>) -> Expiry {
        let moment = |ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        expires_ms.and_then(moment).map_or(Expiry::Never, Expiry::At)
    }
}

/// A time in milliseconds; a part of one counts as a whole, so that nothing ends early.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn ends_are_stored_in_whole_milliseconds_and_those_that_have_passed_as_zero() {
        let stored = |expiry: Expiry| expiry.stored(1000).unwrap();
        let (ms, ns) = (Duration::from_millis, Duration::from_nanos);
        assert_eq!(stored(Expiry::Never), None);
        assert_eq!(stored(ms(5).into()), Some(1005));
        assert_eq!(stored(ns(1).into()), Some(1001));
        assert_eq!(stored((EPOCH + ms(1001)).into()), Some(1001));
        for passed in [ms(0), ms(1), ms(999), ms(1000)] {
            assert_eq!(stored(Expiry::At(EPOCH + passed)), Some(0), "{passed:?}");
        }
        assert_eq!(Expiry::of_stored(Some(7)), Expiry::At(EPOCH + ms(7)));
        assert_eq!(Expiry::of_stored(None), Expiry::Never);
    }

    #[test]
    fn ends_beyond_all_time_are_refused_and_never_wrap() {
        let last = Duration::from_millis(TTL_MS_MAX);
        let refused = |expiry: Expiry, now| expiry.stored(now).unwrap_err().to_string();
        assert_eq!(Expiry::After(last).stored(0).unwrap(), Some(TTL_MS_MAX));
        for (expiry, now) in [
            (Expiry::After(last), 1),
            (Expiry::After(Duration::MAX), 0),
            (Expiry::After(Duration::MAX), u64::MAX),
        ] {
            assert!(refused(expiry, now).contains("beyond"), "{expiry:?}");
        }
        if let Some(late) = EPOCH.checked_add(last + Duration::from_millis(1)) {
            assert!(refused(Expiry::At(late), 0).contains("beyond"));
        }
        assert!(refused(Expiry::After(Duration::ZERO), 0).contains("zero"));
        assert!(refused(Expiry::At(EPOCH - Duration::from_secs(1)), 0).contains("1970"));
    }
}
