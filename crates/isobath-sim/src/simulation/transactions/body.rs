//! What a transaction does between its begin and its end, drawn call by call: at random, or one of
//! the patterns by which anomalies show where a level permits them.

use super::super::runtime;
use super::super::values::Place;
use super::attempt::Attempt;
use super::keys::Arena;
use super::scans::{beside_markers, span};
use isobath::Error;

/// What a transaction is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plot {
    /// Anything.
    Random { calls: u8 },
    /// Reads a key and writes it: an update is lost if another comes in between.
    Update,
    /// Reads two keys and writes one of them: writes are skewed if another writes the other.
    Skew,
    /// Looks at a stretch and writes into it: a phantom, if another does alike.
    Count,
    /// Scans a stretch and writes one of its keys, or near it.
    Crowd,
    /// Reads only.
    Look { calls: u8 },
    /// Writes only.
    Blind { calls: u8 },
}

impl Plot {
    pub(super) fn draw(arena: &Arena, rng: &mut fastrand::Rng) -> Plot {
        if arena.is_crowded && rng.u8(..8) > 0 {
            return Plot::Crowd;
        }
        match rng.u8(..16) {
            0..5 => Plot::Random { calls: rng.u8(1..12) },
            5..8 => Plot::Update,
            8..11 => Plot::Skew,
            11..13 => Plot::Count,
            13..15 => Plot::Look { calls: rng.u8(1..6) },
            _ => Plot::Blind { calls: rng.u8(1..5) },
        }
    }
}

impl Attempt<'_> {
    /// All its calls. The error is the one that ended them, and has been judged.
    pub(super) fn play(
        &mut self,
        plot: Plot,
        arena: &Arena,
        rng: &mut fastrand::Rng,
    ) -> Result<(), Error> {
        let (one, other) = (arena.place(rng), arena.place(rng));
        match plot {
            Plot::Random { calls } => {
                for _ in 0..calls {
                    let done = self.call(arena, rng);
                    // Some go on after a conflict, as if nothing were.
                    if done.is_err() && !(self.is_doomed() && rng.bool()) {
                        return done;
                    }
                }
                Ok(())
            }
            Plot::Update if rng.u8(..3) == 0 => {
                self.get_locked(&one, rng)?;
                pause(rng);
                self.write(one, arena, rng)
            }
            Plot::Update => {
                self.get(&one, rng)?;
                pause(rng);
                self.write(one, arena, rng)
            }
            Plot::Skew => {
                self.get(&one, rng)?;
                pause(rng);
                self.get(&other, rng)?;
                pause(rng);
                self.write(one, arena, rng)
            }
            Plot::Count => {
                self.look_around(one.0, arena, rng)?;
                pause(rng);
                self.write((one.0, arena.key(rng)), arena, rng)
            }
            Plot::Crowd => {
                let span = span(one.0, arena, rng);
                self.scan(&span, rng)?;
                pause(rng);
                self.write((one.0, arena.key(rng)), arena, rng)
            }
            Plot::Look { calls } => (0..calls).try_for_each(|_| {
                pause(rng);
                self.read(arena, rng)
            }),
            Plot::Blind { calls } => {
                (0..calls).try_for_each(|_| self.write(arena.place(rng), arena, rng))
            }
        }
    }

    fn call(&mut self, arena: &Arena, rng: &mut fastrand::Rng) -> Result<(), Error> {
        pause(rng);
        match rng.u8(..16) {
            0..8 => self.read(arena, rng),
            8..13 => self.write(arena.place(rng), arena, rng),
            _ => self.savepoint(rng),
        }
    }

    fn read(&mut self, arena: &Arena, rng: &mut fastrand::Rng) -> Result<(), Error> {
        match rng.u8(..8) {
            0..3 => self.get(&arena.place(rng), rng),
            3 => self.get_locked(&arena.place(rng), rng),
            4 => {
                let keys: Vec<_> = (0..rng.usize(0..5)).map(|_| arena.key(rng)).collect();
                self.multi_get(rng.u8(..2), &keys)
            }
            _ => self.look_around(arena.place(rng).0, arena, rng),
        }
    }

    fn write(&mut self, place: Place, arena: &Arena, rng: &mut fastrand::Rng) -> Result<(), Error> {
        match rng.u8(..16) {
            0..3 => self.delete(place),
            3 if rng.bool() => self.set_expiry(place),
            3 => self.delete(place),
            4 => self.put_if(place, rng),
            5 => self.fetch_update(place, rng),
            6 => self.pop(&beside_markers(span(place.0, arena, rng)), rng),
            7 => self.delete_range(place, arena, rng),
            _ => self.put(place, rng),
        }
    }
}

/// Others may go on in between.
pub(super) fn pause(rng: &mut fastrand::Rng) {
    if rng.u8(..4) == 0 {
        (0..rng.u8(1..6)).for_each(|_| runtime::yield_now());
    }
}
