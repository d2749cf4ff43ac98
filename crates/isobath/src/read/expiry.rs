//! Reads of a key whose newest version does not say all: its value ends, or is made of operands.
//!
//! Such a value may depend on the time at the read point (`engine/ticks.rs`). A read at the newest
//! point that meets a value whose end has come by the clock, but not at its point, lets a tick be
//! written and reads again above it. So it is exact, and only such reads pay for ticks.

use super::begin::ReadAt;
use super::fold::get_folded;
use super::get::{Found, Wanted, find};
use crate::engine::View;
use crate::env::{Plant, Reach, planted, reached};
use crate::error::Result;
use crate::format::Lsn;
use crate::mvcc::expiry::EXPIRY_LEN;
use crate::mvcc::{Expiring, Moment, OpKind};
use crate::options::Expiry;
use crate::pinned::Value;
use arc_swap::Guard;
use std::sync::Arc;

/// A value, and how long what was read holds if nothing is written.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) value: Value,
    /// When the value ends, in milliseconds since 1970; `None` if it does not.
    pub(crate) expires_ms: Option<u64>,
    /// From when on the read has another answer; `u64::MAX` for never.
    pub(crate) holds_until: u64,
}

impl Read {
    /// What programs are told.
    pub(crate) fn told(self) -> (Value, Expiry) {
        (self.value, Expiry::of_stored(self.expires_ms))
    }

    /// Of a value that does not end.
    pub(crate) fn lasting(value: Value) -> Read {
        Read { value, expires_ms: None, holds_until: u64::MAX }
    }
}

/// What a read makes of what it has found, before it fetches anything.
pub(super) enum Settled {
    Read(Option<Read>),
    /// The key has a value, which lies where what is stored says.
    Apart {
        kind: OpKind,
        stored: Value,
        expires_ms: Option<u64>,
    },
}

impl ReadAt<'_> {
    /// The value of `key`, with its end.
    pub(crate) fn get_expiry(&self, key: &[u8]) -> Result<Option<Read>> {
        let (view, point) = self.begin()?;
        let found = find(self, &view, key, point, Wanted::Value)?;
        self.resolve_now(key, found, (view, point), Wanted::Value)
    }

    /// The same of a read to which only presence matters: the value is another one, or none, and
    /// nothing is fetched.
    pub(crate) fn get_presence(&self, key: &[u8]) -> Result<Option<Read>> {
        let (view, point) = self.begin()?;
        let wanted = Wanted::Presence;
        let found = find(self, &view, key, point, wanted)?.for_reader_of(wanted);
        self.resolve_now(key, found, (view, point), wanted)
    }

    /// What a read at its point, or at the newest one, makes of what it has found. If only presence
    /// is wanted, no value is fetched.
    #[cold]
    pub(super) fn resolve_now(
        &self,
        key: &[u8],
        found: Found,
        pinned: (Guard<Arc<View>>, Lsn),
        wanted: Wanted,
    ) -> Result<Option<Read>> {
        let (settled, _view) = self.settle_now(key, found, pinned, wanted)?;
        self.fetch_settled(key, settled)
    }

    /// The same for a read that fetches its value later, and keeps the view for that.
    #[cold]
    pub(super) fn settle_now(
        &self,
        key: &[u8],
        mut found: Found,
        (mut view, mut point): (Guard<Arc<View>>, Lsn),
        wanted: Wanted,
    ) -> Result<(Settled, Guard<Arc<View>>)> {
        let mut asked_ms = None;
        loop {
            let unix_ms = self.time_at(point);
            let has_ticked = match (&found, unix_ms) {
                (Found::Absent | Found::Value(_) | Found::Separated(..), _) => false,
                (_, None) => true,
                (found, Some(unix_ms)) => {
                    self.point.is_none() && self.ticks_for(found, unix_ms, &mut asked_ms)
                }
            };
            if !has_ticked {
                let at = Moment { point, unix_ms: unix_ms.unwrap_or(0) };
                return Ok((self.settle(key, found, &view, at)?, view));
            }
            (view, point) = self.begin()?;
            found = find(self, &view, key, point, wanted)?.for_reader_of(wanted);
        }
    }

    /// Lets the time be that of the clock if that may change what was found. False if it need not,
    /// or could not. `asked_ms` is the clock when the read first did so: a read whose time is that
    /// is exact, and one that followed the clock would never end beside commits that take longer
    /// than a millisecond.
    fn ticks_for(&self, found: &Found, unix_ms: u64, asked_ms: &mut Option<u64>) -> bool {
        let engine = self.engine;
        let may_change_by = |now_ms: u64| match found {
            Found::Absent | Found::Value(_) | Found::Separated(..) => false,
            Found::Operand => unix_ms < now_ms && unix_ms < engine.ticks.last_end(),
            Found::Expiring(_, stored) => Expiring::split(stored)
                .is_some_and(|ends| ends.lives_at(unix_ms) && !ends.lives_at(now_ms)),
        };
        // What is believed of the wall clock is never later than the clock itself, and takes a
        // second clock to tell.
        if asked_ms.is_none() && !may_change_by(engine.options.env.clock.unix_ms()) {
            return false;
        }
        let now_ms = *asked_ms.get_or_insert_with(|| engine.clock_ms());
        if !may_change_by(now_ms) {
            return false;
        }
        engine.tick(now_ms);
        // A tick that a broken log has taken is never seen.
        self.time_at(self.engine.newest_point()).is_none_or(|reached| reached > unix_ms)
    }

    /// The caller pins the view in which it has settled the read.
    fn fetch_settled(&self, key: &[u8], settled: Settled) -> Result<Option<Read>> {
        match settled {
            Settled::Read(read) => Ok(read),
            Settled::Apart { kind, stored, expires_ms } => {
                let value = self.fetch(key, (kind, &stored))?;
                Ok(Some(Read { value, expires_ms, holds_until: expires_ms.unwrap_or(u64::MAX) }))
            }
        }
    }

    /// What a read at a moment makes of what it has found, before it fetches anything.
    #[cold]
    pub(super) fn settle(
        &self,
        key: &[u8],
        found: Found,
        view: &View,
        at: Moment,
    ) -> Result<Settled> {
        Ok(Settled::Read(match found {
            Found::Absent => None,
            Found::Value(value) => Some(Read::lasting(value)),
            Found::Operand => Some(get_folded(self, view, key, at)?),
            Found::Separated(kind, stored) => {
                return Ok(Settled::Apart { kind, stored, expires_ms: None });
            }
            Found::Expiring(kind, stored) => {
                let Some(ends) = Expiring::split(&stored) else { return Ok(Settled::Read(None)) };
                if !ends.lives_at(at.unix_ms) && !planted(Plant::ExpiryIgnored) {
                    reached(Reach::ExpiredInGet);
                    return Ok(Settled::Read(None));
                }
                let (expires_ms, holds_until) = (Some(ends.expires_ms), ends.expires_ms);
                if kind.is_apart() {
                    return Ok(Settled::Apart { kind, stored, expires_ms });
                }
                let value = stored.slice(EXPIRY_LEN..);
                Some(Read { value, expires_ms, holds_until })
            }
        }))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{FamilyOptions, Options};
    use std::time::Duration;

    /// Later ticks, each of which may come behind a slow commit, are none of its business.
    #[test]
    fn a_read_is_exact_once_its_time_is_what_it_asked_for() {
        let db = Options::in_memory().open("/db").unwrap();
        db.put_ttl("far", "end", Duration::from_secs(1 << 30)).unwrap();
        let words = FamilyOptions::new().merge_operator("isobath.append");
        let words = db.family(("words", words)).unwrap();
        let (engine, now_ms) = (db.engine(), db.engine().clock_ms());
        engine.tick(now_ms + 100);
        let read = ReadAt::newest(engine, words.of(engine).unwrap());
        let ticks = |unix_ms, asked| read.ticks_for(&Found::Operand, unix_ms, &mut Some(asked));
        assert!(ticks(now_ms, now_ms + 50), "its time is not that yet");
        assert!(!ticks(now_ms + 50, now_ms + 50) && !ticks(now_ms + 60, now_ms + 50));
    }
}
