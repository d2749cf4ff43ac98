//! The log as a whole: written, damaged, recovered.

mod concurrency;
mod damage;
mod faults;
mod follow;
mod footprint;
mod headers;
mod lifecycle;
mod power;
mod preparer;
mod recycler;
mod rest;
mod support;
