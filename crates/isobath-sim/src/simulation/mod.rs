//! The real engine under a seeded scheduler that owns disk, clock, randomness and who runs next.
//!
//! A seed is a disk and several lives of the database on it (`simulate.rs`), each ended by a death
//! or a close (`past.rs`) and begun with the check of what the one before must have left. In a
//! life, writers, readers and a janitor (`workload.rs`, `readers.rs`, `keepsakes.rs`,
//! `memories.rs`, `leases.rs`) are
//! coroutines that one scheduler switches (`runtime.rs`), on a machine that can
//! die at any operation (`world.rs`, `disk.rs`, `weather.rs`) and may have trouble before
//! (`trouble.rs`).
//! `terrain.rs` and `keyspace.rs` choose the shape of a seed's database. The oracle (`oracle.rs`,
//! `families.rs`) checks what must be true; it keeps digests of values (`values.rs`) and finds the
//! moment that explains a read (`observe.rs`). `transactions/` runs transactions of all levels
//! beside the others. `questions.rs` asks whatever can be read. `careless.rs` misuses the API, and
//! `twin.rs` adds a second database.
//! `linger.rs` checks an idle database. `profiles.rs` says what lives are like, `settings.rs` which
//! parts of a seed run, `levels.rs` counts transactions, and
//! `shrink.rs` finds the smallest run that still fails. `threads/` runs the same tasks on threads
//! of the system.

#[cfg(test)]
mod api;
mod awaited;
mod careless;
mod clones;
mod controls;
mod disk;
mod edits;
mod excuses;
mod families;
mod figures;
mod filters;
mod frequency;
mod hook;
mod intruder;
mod keepsakes;
mod keyspace;
mod leases;
mod levels;
mod linger;
mod memories;
mod observe;
mod oracle;
mod past;
mod preload;
mod profiles;
mod questions;
mod readers;
mod runtime;
mod settings;
mod shrink;
mod simulate;
mod streams;
mod tally;
mod terrain;
pub(crate) mod threads;
pub(crate) mod transactions;
mod trouble;
mod twin;
mod values;
mod wall;
mod weather;
mod workload;
mod world;

pub(crate) use controls::{Caught, FOUND_BY_TESTS, control, hunt, plants};
pub(crate) use frequency::Frequencies;
#[cfg(test)]
pub(crate) use frequency::SEEDS_COMPLETE;
pub(crate) use levels::{LEVELS, What};
pub(crate) use runtime::{hook, run, sleep_ns};
pub(crate) use settings::{Profile, Settings, Trim};
pub(crate) use shrink::shrink;
pub(crate) use simulate::simulate;
#[cfg(test)]
pub(crate) use tally::Reached;
pub(crate) use tally::Tally;
#[cfg(test)]
pub(crate) use wall::set_ahead;
pub(crate) use world::Life;
