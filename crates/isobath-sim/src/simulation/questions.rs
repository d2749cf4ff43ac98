//! One call on anything that can be read, whatever it is: the answer is a sight for the oracle.

use super::edits::far_end;
use super::observe::Sight;
use super::readers::Span;
use super::streams::read_back;
use super::values::{Key, Value};
use super::workload::Stage;
use isobath::{Expiry, Family, Range, Readable};
use std::ops::Bound;

/// Ways to ask about a key, and about a stretch.
const OF_KEYS: u8 = 5;
const WAYS: u8 = OF_KEYS + 6;

/// So many keys are asked for from the first on.
const FIRST: usize = 5;

/// A call that reads.
pub(crate) struct Question<'a> {
    stage: &'a Stage,
    /// The stretch, which has room for a key.
    span: Span,
    key: Key,
    other: Key,
    way: u8,
}

impl Question<'_> {
    /// Draws a question about a key, or about the stretch between two.
    pub(crate) fn draw<'a>(
        stage: &'a Stage,
        (family, key): (u8, Key),
        (lower, upper): (Key, Key),
        rng: &mut fastrand::Rng,
    ) -> Question<'a> {
        let (other, way) = (lower.clone(), rng.u8(..WAYS));
        let (lower, upper) = (Bound::Included(lower), Bound::Included(upper));
        Question { stage, span: Span { family, lower, upper }, key, other, way }
    }

    pub(crate) fn is_of_keys(&self) -> bool {
        self.way < OF_KEYS
    }

    pub(crate) fn family(&self) -> u8 {
        self.span.family
    }

    /// Asks the family that it is about. `part` is, or is of, the default one.
    pub(crate) fn ask(&self, part: &impl Readable, side: &Family) -> isobath::Result<Vec<Sight>> {
        match self.span.family {
            0 => self.ask_family(part),
            _ => self.ask_family(&part.of(side)),
        }
    }

    pub(crate) fn ask_family(&self, part: &impl Readable) -> isobath::Result<Vec<Sight>> {
        match self.is_of_keys() {
            true => self.ask_keys(part),
            false => Ok(vec![self.ask_stretch(part)?]),
        }
    }

    fn ask_keys(&self, part: &impl Readable) -> isobath::Result<Vec<Sight>> {
        let (family, key) = (self.span.family, &self.key);
        let known = |value: isobath::Value| Some(Value::of(&value));
        let value = match self.way {
            0 => part.get(key)?.map(known),
            1 => read_back(part.get_reader(key)?)?.map(|value| Some(Value::of(&value))),
            2 => part.get_expiry(key)?.map(|(value, expiry)| {
                if ![Expiry::Never, Expiry::At(far_end())].contains(&expiry) {
                    self.stage.fail(format!("a value ends at {expiry:?}, which it was not given"));
                }
                known(value)
            }),
            3 => part.contains(key)?.then_some(None),
            _ => {
                let keys = [key.clone(), self.other.clone()];
                let values = part.multi_get(&keys)?;
                if values.len() != keys.len() {
                    self.stage.fail(format!("a multi_get has {} answers", values.len()));
                }
                let sights = keys.into_iter().zip(values);
                let sights =
                    sights.map(|(key, value)| Sight::of_key(family, key, value.map(known)));
                return Ok(sights.collect());
            }
        };
        Ok(vec![Sight::of_key(family, key.clone(), value)])
    }

    fn ask_stretch(&self, part: &impl Readable) -> isobath::Result<Sight> {
        let span = &self.span;
        let all = Span { family: span.family, lower: Bound::Unbounded, upper: Bound::Unbounded };
        match self.way - OF_KEYS {
            0 => Ok(end_of(&all, true, &part.first()?)),
            1 => Ok(end_of(&all, false, &part.last()?)),
            2 => {
                let mut sight = all.sight();
                walk(part.iter(), FIRST, &mut sight)?;
                if let (FIRST, Some((last, _))) = (sight.found.len(), sight.found.last_key_value())
                {
                    sight.upper = Bound::Included(last.clone());
                }
                Ok(sight)
            }
            3 => {
                let mut sight = prefixed(span.family, &self.key).sight();
                walk(part.prefix(&self.key), usize::MAX, &mut sight)?;
                Ok(sight)
            }
            4 => {
                let mut sight = span.sight();
                walk(part.range(span.bounds()), usize::MAX, &mut sight)?;
                Ok(sight)
            }
            _ => {
                let (mut sight, mut cursor) = (span.sight(), part.cursor(span.bounds())?);
                while let Some(entry) = cursor.next()? {
                    let value = Value::of(entry.value()?);
                    sight.found.insert(entry.key().into(), Some(value));
                }
                Ok(sight)
            }
        }
    }
}

/// Adds so many items of a range.
fn walk(range: Range<'_>, count: usize, sight: &mut Sight) -> isobath::Result<()> {
    for item in range.take(count) {
        let (key, value) = item?;
        sight.found.insert(key[..].into(), Some(Value::of(&value)));
    }
    Ok(())
}

/// Keys that begin with a whole key: it, and what is longer.
pub(crate) fn prefixed(family: u8, key: &Key) -> Span {
    let mut after = key.to_vec();
    while after.pop_if(|last| *last == 0xff).is_some() {}
    let upper = match after.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(after.into())
        }
        None => Bound::Unbounded,
    };
    Span { family, lower: Bound::Included(key.clone()), upper }
}

/// What the first or last key of a stretch shows about the stretch; without such a key, the stretch
/// is empty.
pub(crate) fn end_of(
    span: &Span,
    is_first: bool,
    found: &Option<(isobath::Value, isobath::Value)>,
) -> Sight {
    let mut sight = span.sight();
    if let Some((key, value)) = found {
        let key = Key::from(&key[..]);
        let end = if is_first { &mut sight.upper } else { &mut sight.lower };
        *end = Bound::Included(key.clone());
        sight.found.insert(key, Some(Value::of(value)));
    }
    sight
}
