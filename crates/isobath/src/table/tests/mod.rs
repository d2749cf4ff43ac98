//! Tests of the table as a whole. What a part promises by itself is tested beside it.

mod block;
mod damage;
mod files;
mod fixtures;
mod forged;
mod round_trip;
mod size;
mod steady;
