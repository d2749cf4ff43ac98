//! The start of every read: check that the database is open and that the family exists at the read
//! point.

use crate::engine::{Engine, Keyspace, Registered, View};
use crate::env::{Reach, reached_if};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::mvcc::Moment;
use crate::options::ReadOptions;
use arc_swap::Guard;
use std::sync::Arc;

/// A family at a read point: the subject of every read.
#[derive(Clone, Copy)]
pub(crate) struct ReadAt<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) family: &'a Arc<Keyspace>,
    /// A registered point; `None` reads at the newest point.
    pub(crate) point: Option<Registered>,
    pub(crate) options: ReadOptions,
}

impl<'a> ReadAt<'a> {
    /// The newest state of the family.
    #[inline]
    pub(crate) fn newest(engine: &'a Arc<Engine>, family: &'a Arc<Keyspace>) -> ReadAt<'a> {
        ReadAt { engine, family, point: None, options: ReadOptions::default() }
    }

    /// Pins a view and a read point that the view can serve.
    #[inline]
    pub(super) fn begin(&self) -> Result<(Guard<Arc<View>>, Lsn)> {
        self.engine.check_open()?;
        if let Some(shown) = &self.engine.shown {
            return shown.pin(self.family.id, self.point).ok_or_else(|| self.refuse());
        }
        let (view, point) = self.family.pin_for(self.point, || self.engine.log.visible());
        match view.exists_at(point) {
            true if view.is_seen_from(point) => Ok((view, point)),
            true => {
                reached_if(Reach::CloneUnseen, || !view.tree.is_empty());
                Ok((Guard::from_inner(view.before_creation()), point))
            }
            false => Err(self.refuse()),
        }
    }

    /// The same with the time at the point. A read at the newest point makes that the time of the
    /// clock first, if values may end.
    pub(super) fn begin_at_moment(&self) -> Result<(Guard<Arc<View>>, Moment)> {
        if self.point.is_none() {
            self.engine.tick_if_values_end();
        }
        loop {
            let (view, point) = self.begin()?;
            if let Some(unix_ms) = self.time_at(point) {
                return Ok((view, Moment { point, unix_ms }));
            }
            // Flushes have raised the oldest point since this one was taken.
            debug_assert!(self.point.is_none(), "a registered point lost its time");
        }
    }

    /// The time at a point where this reads; `None` if it is forgotten. For a database that is open
    /// for reading only no tick may be written, so its reads at the newest point go by its own
    /// clock.
    pub(super) fn time_at(&self, point: Lsn) -> Option<u64> {
        let (engine, unix_ms) = (self.engine, self.engine.ticks.time_at(point)?);
        match self.point.is_none() && engine.shown.is_some() {
            true => Some(unix_ms.max(engine.ticks.reach(engine.clock_ms()))),
            false => Some(unix_ms),
        }
    }

    /// The reason why the family has no view at the point: the database is closed, or the family
    /// does not exist there.
    #[cold]
    fn refuse(&self) -> Error {
        match self.engine.check_open() {
            Ok(()) => Error::unknown_family(&self.family.name()),
            Err(error) => error,
        }
    }
}
