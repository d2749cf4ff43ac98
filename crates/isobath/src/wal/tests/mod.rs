//! The log as a whole: written, damaged, recovered.

mod concurrency;
mod damage;
mod faults;
mod footprint;
mod keeper;
mod lifecycle;
mod measure;
mod power;
mod shelf;
mod support;
