//! What readers do: gets, scans from both ends, walks of a cursor, and snapshots. All that each
//! found, presence and absence alike, is reported to the oracle as of one moment (`observe.rs`).

use super::observe::Sight;
use super::oracle::Look;
use super::questions::Question;
use super::runtime;
use super::streams::{read_back, read_whole};
use super::values::{Key, Value, Values};
use super::workload::Stage;
use crate::position::position;
use isobath::{Cursor, Entry, Range, ReadOptions, Readable, Snapshot, ValueReader};
use std::ops::Bound;

/// A stretch of the keys of a family.
pub(crate) struct Span {
    pub(crate) family: u8,
    pub(crate) lower: Bound<Key>,
    pub(crate) upper: Bound<Key>,
}

/// What is read: the database as it is, or as it was.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Live,
    Frozen(&'a Snapshot),
}

impl Span {
    fn all(family: u8) -> Span {
        Span { family, lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    pub(crate) fn bounds(&self) -> (Bound<Key>, Bound<Key>) {
        (self.lower.clone(), self.upper.clone())
    }

    pub(crate) fn sight(&self) -> Sight {
        let (lower, upper) = self.bounds();
        Sight { family: self.family, lower, upper, found: Default::default() }
    }

    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        let key = &Key::from(key);
        !leaves_out(&self.lower, key, Key::lt) && !leaves_out(&self.upper, key, Key::gt)
    }
}

/// Sights, and the error that ended the read if one did.
pub(crate) type Seen = (Vec<Sight>, isobath::Result<()>);

impl Stage {
    /// One reader's life.
    pub(crate) fn read(&self, count: u32, mut rng: fastrand::Rng) {
        // Values that are kept, with the bytes that they must still have at the end.
        let mut held: Vec<(isobath::Value, Value)> = Vec::new();
        let mut open: Vec<(ValueReader, Value)> = Vec::new();
        for _ in 0..count {
            if self.is_over() {
                break;
            }
            let result = match rng.u8(..22) {
                0..2 => self.contains(&mut rng),
                2..8 => self.get(&mut held, &mut rng),
                8 => self.open_value(&mut open, &mut rng),
                9..12 => self.scan(&mut rng),
                12..15 => self.multi_get(&mut rng),
                15 => self.move_about(&mut rng),
                16..19 => self.snapshot(&mut rng),
                19 => self.keep(&mut rng),
                20 => self.count(&mut rng),
                _ => self.ask(&mut rng),
            };
            if let Err(error) = result {
                self.judge_read("a read", &error);
            }
        }
        if held.iter().any(|(slice, value)| Value::of(slice) != *value) {
            self.fail("a value changed while it was held".to_owned());
        }
        for (mut reader, value) in open {
            match read_whole(&mut reader) {
                Ok(bytes) if Value::of(&bytes) != value => {
                    self.fail("a value changed while its reader was open".to_owned());
                }
                read => _ = read.inspect_err(|error| self.judge_read("a reader", error)),
            }
        }
    }

    /// Tells the oracle what a read found, also if it ended with an error.
    pub(crate) fn saw(
        &self,
        how: &'static str,
        look: Look,
        (sights, end): Seen,
    ) -> isobath::Result<()> {
        self.history.borrow_mut().saw(how, look, sights);
        end
    }

    pub(crate) fn look(&self) -> Look {
        self.history.borrow_mut().look()
    }

    fn get(
        &self,
        held: &mut Vec<(isobath::Value, Value)>,
        rng: &mut fastrand::Rng,
    ) -> isobath::Result<()> {
        let (family, key) = self.drawn_place(rng);
        let look = self.look();
        let slice = if family == 0 { self.db.get(&key)? } else { self.side.get(&key)? };
        let value = slice.as_deref().map(Value::of);
        let seen = vec![Sight::of_key(family, key, value.map(Some))];
        if rng.u8(..8) == 0 && held.len() < 30 {
            let kept = slice.map(|slice| match held.len() % 3 {
                0 => slice.slice(..),
                1 => slice.detach(),
                _ => slice,
            });
            held.extend(kept.zip(value));
        }
        self.saw("a get", look, (seen, Ok(())))
    }

    /// Reads a value piece by piece, and keeps some readers to the end.
    fn open_value(
        &self,
        open: &mut Vec<(ValueReader, Value)>,
        rng: &mut fastrand::Rng,
    ) -> isobath::Result<()> {
        let (family, key) = self.drawn_place(rng);
        let look = self.look();
        let reader =
            if family == 0 { self.db.get_reader(&key)? } else { self.side.get_reader(&key)? };
        let Some(mut reader) = reader else {
            return self.saw("a reader", look, (vec![Sight::of_key(family, key, None)], Ok(())));
        };
        let value = Value::of(&read_whole(&mut reader)?);
        if open.len() < 10 && rng.bool() {
            open.push((reader, value));
        }
        let seen = vec![Sight::of_key(family, key, Some(Some(value)))];
        self.saw("a reader", look, (seen, Ok(())))
    }

    /// A key that may exist, or one that no life ever writes.
    fn drawn_place(&self, rng: &mut fastrand::Rng) -> (u8, Key) {
        let (family, key) = self.keys.place(rng);
        match rng.u8(..16) {
            0 => (family, [&key, &b"-"[..]].concat().into()),
            1 => super::oracle::marker(rng.usize(..super::workload::WRITERS)),
            _ => (family, key),
        }
    }

    fn contains(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let (family, key) = self.drawn_place(rng);
        let look = self.look();
        let is_there = match family {
            0 => self.db.contains(&key)?,
            _ => self.side.contains(&key)?,
        };
        let seen = vec![Sight::of_key(family, key, is_there.then_some(None))];
        self.saw("a contains", look, (seen, Ok(())))
    }

    fn multi_get(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let family = rng.u8(..2);
        let keys: Vec<Key> = (0..rng.usize(0..8)).map(|_| self.drawn_place(rng).1).collect();
        let look = self.look();
        let values = match family {
            0 => self.db.multi_get(&keys)?,
            _ => self.side.multi_get(&keys)?,
        };
        if values.len() != keys.len() {
            self.fail("a multi_get answers more or fewer keys than it was asked for".to_owned());
        }
        let sight = |(key, value): (Key, Option<isobath::Value>)| {
            Sight::of_key(family, key, value.map(|value| Some(Value::of(&value))))
        };
        let seen = keys.into_iter().zip(values).map(sight).collect();
        self.saw("a multi_get", look, (seen, Ok(())))
    }

    fn span(&self, rng: &mut fastrand::Rng) -> Span {
        let (lower, upper) = self.keys.range(rng);
        let bound = |key: Key, rng: &mut fastrand::Rng| match rng.u8(..8) {
            0 => Bound::Unbounded,
            1..3 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        // Sometimes the range is reversed, and must read as empty.
        let (lower, upper) = if rng.u8(..32) == 0 { (upper, lower) } else { (lower, upper) };
        Span { family: rng.u8(..2), lower: bound(lower, rng), upper: bound(upper, rng) }
    }

    /// The keys that begin as a drawn one does.
    fn prefix(&self, rng: &mut fastrand::Rng) -> (Key, Span) {
        let (family, key) = self.keys.place(rng);
        let prefix: Key = key[..rng.usize(..=key.len())].into();
        let mut after = prefix.to_vec();
        while after.pop_if(|last| *last == 0xff).is_some() {}
        if let Some(last) = after.last_mut() {
            *last += 1;
        }
        let upper = if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after.into()) };
        (prefix.clone(), Span { family, lower: Bound::Included(prefix), upper })
    }

    /// A scan without a snapshot, held across the writes of others.
    fn scan(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let mut look = self.look();
        let (range, span) = if rng.u8(..4) == 0 {
            let (prefix, span) = self.prefix(rng);
            let range = match span.family {
                0 => self.db.prefix(&prefix),
                _ => self.side.prefix(&prefix),
            };
            (range, span)
        } else {
            let span = self.span(rng);
            (self.range(Source::Live, &span), span)
        };
        self.history.borrow_mut().pinned(&mut look);
        let seen = self.walk(range, &span, rng);
        self.saw("a scan", look, seen)
    }

    pub(crate) fn range(&self, source: Source<'_>, span: &Span) -> Range<'static> {
        match (source, span.family) {
            (Source::Live, 0) => self.db.range(span.bounds()),
            (Source::Live, _) => self.side.range(span.bounds()),
            (Source::Frozen(snapshot), 0) => snapshot.range(span.bounds()),
            (Source::Frozen(snapshot), _) => snapshot.of(&self.side).range(span.bounds()),
        }
    }

    fn cursor(&self, source: Source<'_>, span: &Span) -> isobath::Result<Cursor<'static>> {
        match (source, span.family) {
            (Source::Live, 0) => self.db.cursor(span.bounds()),
            (Source::Live, _) => self.side.cursor(span.bounds()),
            (Source::Frozen(snapshot), 0) => snapshot.cursor(span.bounds()),
            (Source::Frozen(snapshot), _) => snapshot.of(&self.side).cursor(span.bounds()),
        }
    }

    /// Walks a range from one end or from both, until the ends meet or only part of the way. Only
    /// the stretches that were walked are reported.
    pub(crate) fn walk(&self, range: Range<'_>, span: &Span, rng: &mut fastrand::Rng) -> Seen {
        let steps_max = if rng.bool() { usize::MAX } else { rng.usize(0..20) };
        let back_percent = [0, 0, 100, 50][rng.usize(..4)];
        let pause_percent = [0, 0, 10, 60][rng.usize(..4)];
        let has_values = rng.u8(..8) > 0;
        let without =
            |key: isobath::Result<isobath::Value>| key.map(|key| (key, isobath::Value::default()));
        let mut range: Box<dyn DoubleEndedIterator<Item = _> + '_> = match has_values {
            true => Box::new(range),
            false => Box::new(range.keys().map(without)),
        };
        let (mut front, mut back) = (span.sight(), span.sight());
        for _ in 0..steps_max {
            let is_back = rng.u8(..100) < back_percent;
            let item = if is_back { range.next_back() } else { range.next() };
            match item {
                Some(Ok((key, value))) => {
                    let key: Key = key[..].into();
                    let last = front.found.last_key_value().map(|(last, _)| last);
                    let first = back.found.first_key_value().map(|(first, _)| first);
                    let is_between = last.is_none_or(|last| *last < key)
                        && first.is_none_or(|first| key < *first);
                    if !is_between || !span.holds(&key) {
                        self.fail(format!("a scan yields {} out of order", key.escape_ascii()));
                    }
                    let value = has_values.then(|| Value::of(&value));
                    let end = Bound::Included(key.clone());
                    let sight = if is_back { &mut back } else { &mut front };
                    sight.found.insert(key, value);
                    *(if is_back { &mut sight.lower } else { &mut sight.upper }) = end;
                }
                Some(Err(error)) => return (walked(front, back), Err(error)),
                None => {
                    front.upper = span.upper.clone();
                    front.found.append(&mut back.found);
                    return (vec![front], Ok(()));
                }
            }
            if rng.u8(..100) < pause_percent {
                runtime::yield_now();
            }
        }
        (walked(front, back), Ok(()))
    }

    /// Any call on the database or a family.
    fn ask(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let question = Question::draw(self, self.drawn_place(rng), self.keys.range(rng), rng);
        let look = self.look();
        let sights = match (question.family(), rng.bool()) {
            (1, true) => question.ask_family(&self.side)?,
            _ => question.ask(&self.db, &self.side)?,
        };
        self.saw("an answer", look, (sights, Ok(())))
    }

    /// A count without a snapshot. If nothing was written meanwhile, it is known what it must be.
    fn count(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let (span, snapshot) = (self.span(rng), self.db.snapshot());
        let counted = match span.family {
            0 => self.db.count(span.bounds())?,
            _ => self.side.count(span.bounds())?,
        };
        if self.db.snapshot().read_point() != snapshot.read_point() {
            return Ok(());
        }
        let there = self.range(Source::Frozen(&snapshot), &span).keys();
        let there = there.collect::<Result<Vec<_>, _>>()?.len() as u64;
        if counted != there {
            self.fail(format!("a count of {counted}, where a snapshot has {there} keys"));
        }
        Ok(())
    }

    /// A cursor without a snapshot, held across the writes of others.
    fn move_about(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let span = self.span(rng);
        let mut look = self.look();
        let cursor = self.cursor(Source::Live, &span)?;
        self.history.borrow_mut().pinned(&mut look);
        let mut sights = Vec::new();
        let end = self.step(cursor, &span, &mut sights, rng);
        self.saw("a cursor", look, (sights, end))
    }

    /// Seeks and steps of a cursor. What it passed over is not there.
    pub(crate) fn step(
        &self,
        mut cursor: Cursor<'_>,
        span: &Span,
        sights: &mut Vec<Sight>,
        rng: &mut fastrand::Rng,
    ) -> isobath::Result<()> {
        let mut at = Stand::Outside { goes_up: true, goes_down: true };
        for _ in 0..rng.u8(..16) {
            let target = self.keys.key(rng);
            let mut sight = span.sight();
            let is_up = match (rng.u8(..6), &at) {
                (0, _) => {
                    self.agrees(cursor.seek(&target)?, span)?;
                    if !leaves_out(&span.lower, &target, Key::lt) {
                        sight.lower = Bound::Included(target);
                    }
                    true
                }
                (1, _) => {
                    self.agrees(cursor.seek_for_prev(&target)?, span)?;
                    if !leaves_out(&span.upper, &target, Key::gt) {
                        sight.upper = Bound::Included(target);
                    }
                    false
                }
                (2, _) => {
                    self.agrees(cursor.first()?, span)?;
                    true
                }
                (3, _) => {
                    self.agrees(cursor.last()?, span)?;
                    false
                }
                (nth, at) => {
                    let is_up = nth == 4;
                    let entry = if is_up { cursor.next()? } else { cursor.prev()? };
                    let entry = self.agrees(entry, span)?;
                    let begin = if is_up { &mut sight.lower } else { &mut sight.upper };
                    match at {
                        Stand::On(from) => *begin = Bound::Excluded(from.clone()),
                        Stand::Outside { goes_up: true, .. } if is_up => {}
                        Stand::Outside { goes_down: true, .. } if !is_up => {}
                        Stand::Outside { .. } => {
                            self.stays_outside(entry);
                            continue;
                        }
                    }
                    is_up
                }
            };
            at = match self.agrees(cursor.entry(), span)? {
                Some((key, value)) => {
                    *(if is_up { &mut sight.upper } else { &mut sight.lower }) =
                        Bound::Included(key.clone());
                    sight.found.insert(key.clone(), Some(value));
                    Stand::On(key)
                }
                None => Stand::Outside { goes_up: !is_up, goes_down: is_up },
            };
            sights.push(sight);
            if rng.u8(..8) == 0 {
                runtime::yield_now();
            }
        }
        Ok(())
    }

    /// What a cursor lends.
    fn agrees(
        &self,
        entry: Option<Entry<'_>>,
        span: &Span,
    ) -> isobath::Result<Option<(Key, Value)>> {
        let Some(entry) = entry else { return Ok(None) };
        let len = entry.value_len();
        let (value, pinned) = (entry.value()?, entry.pin()?);
        let agrees = value == &*pinned && len == value.len() as u64;
        if !agrees || !span.holds(entry.key()) {
            self.fail(format!("a cursor contradicts itself: {entry:?}"));
        }
        Ok(Some((entry.key().into(), Value::of(value))))
    }

    fn stays_outside(&self, entry: Option<(Key, Value)>) {
        if let Some((key, _)) = entry {
            self.fail(format!("a cursor beyond its end went on to {}", key.escape_ascii()));
        }
    }

    /// A snapshot, kept for a while.
    fn snapshot(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let (look, snapshot) = self.take_snapshot();
        for _ in 0..rng.u8(0..20) {
            runtime::yield_now();
        }
        let mut sights = Vec::new();
        let end = self.read_snapshot(&snapshot, &mut sights, rng);
        self.saw("a snapshot", look, (sights, end))
    }

    pub(crate) fn take_snapshot(&self) -> (Look, Snapshot) {
        let mut look = self.look();
        let acknowledged = self.history.borrow().newest_acknowledged();
        let snapshot = self.db.snapshot();
        let point = position(snapshot.read_point());
        self.history.borrow_mut().pinned_at(&mut look, point);
        if point < acknowledged {
            self.fail(format!("a snapshot at {point} misses commit {acknowledged}"));
        }
        (look, snapshot)
    }

    fn read_snapshot(
        &self,
        snapshot: &Snapshot,
        sights: &mut Vec<Sight>,
        rng: &mut fastrand::Rng,
    ) -> isobath::Result<()> {
        for _ in 0..rng.u8(1..4) {
            let span = if rng.bool() { Span::all(rng.u8(..2)) } else { self.span(rng) };
            let (seen, end) = self.walk(self.range(Source::Frozen(snapshot), &span), &span, rng);
            sights.extend(seen);
            end?;
        }
        let span = self.span(rng);
        let cursor = self.cursor(Source::Frozen(snapshot), &span)?;
        self.step(cursor, &span, sights, rng)?;
        let options = ReadOptions::new().fill_cache(rng.bool());
        match (span.family, rng.u8(..4)) {
            (0, 0) => self.sum_up(snapshot, &span)?,
            (0, _) => self.sum_up(&snapshot.with(options), &span)?,
            _ => self.sum_up(&snapshot.with(options).of(&self.side), &span)?,
        }
        let question = Question::draw(self, self.drawn_place(rng), self.keys.range(rng), rng);
        sights.extend(match rng.bool() {
            true => question.ask(snapshot, &self.side)?,
            false => question.ask(&snapshot.with(options), &self.side)?,
        });
        for _ in 0..4 {
            let (family, key) = self.drawn_place(rng);
            let value = match family {
                0 => read_back(snapshot.get_reader(&key)?)?,
                _ => snapshot.of(&self.side).get(&key)?.map(Vec::from),
            };
            let value = value.map(|value| Some(Value::of(&value)));
            sights.push(Sight::of_key(family, key, value));
        }
        Ok(())
    }

    /// Compares the first key, the last key and the number of keys with what a range shows, for the
    /// whole family and for a part of it.
    pub(crate) fn sum_up(&self, part: &impl Readable, span: &Span) -> isobath::Result<()> {
        let mut all = part.iter();
        let (first, last) = (all.next().transpose()?, all.next_back().transpose()?);
        let last = last.or_else(|| first.clone());
        let items = part.range(span.bounds()).collect::<Result<Vec<_>, _>>()?;
        let values = part.range(span.bounds()).values().collect::<Result<Vec<_>, _>>()?;
        let is_right = part.count(span.bounds())? == items.len() as u64
            && values.iter().eq(items.iter().map(|(_, value)| value))
            && part.first()? == first
            && part.last()? == last;
        if !is_right {
            self.fail(format!(
                "a snapshot or transaction contradicts itself, from {first:?} to {last:?}"
            ));
        }
        Ok(())
    }

    /// Both families that stay, as a snapshot sees them.
    pub(crate) fn all_of(&self, snapshot: &Snapshot) -> isobath::Result<Values> {
        let mut values = Values::new();
        for family in 0..2 {
            for item in self.range(Source::Frozen(snapshot), &Span::all(family)) {
                let (key, value) = item?;
                values.insert((family, key[..].into()), Value::of(&value));
            }
        }
        Ok(values)
    }
}

/// Where a cursor stands.
enum Stand {
    On(Key),
    /// On no key, with the key that a step in this direction finds.
    Outside {
        goes_up: bool,
        goes_down: bool,
    },
}

/// The stretches that were walked of a range whose ends have not met.
fn walked(front: Sight, back: Sight) -> Vec<Sight> {
    [front, back].into_iter().filter(|sight| !sight.found.is_empty()).collect()
}

/// True if a key is on the outer side of a bound, as `is_outer` tells.
fn leaves_out(bound: &Bound<Key>, key: &Key, is_outer: impl Fn(&Key, &Key) -> bool) -> bool {
    match bound {
        Bound::Included(bound) => is_outer(key, bound),
        Bound::Excluded(bound) => is_outer(key, bound) || key == bound,
        Bound::Unbounded => false,
    }
}
