//! Tests of the table as a whole. Tests of a single part are beside that part.

mod ahead;
mod block;
mod cached;
mod damage;
mod endless;
mod files;
pub(super) mod fixtures;
mod forged;
mod round_trip;
mod size;
mod slotted;
mod steady;
