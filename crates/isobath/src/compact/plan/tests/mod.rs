//! What the planner decides, on trees without tables.

mod cleaning;
mod convergence;
mod decisions;
mod drawn;
mod inputs;
mod old_deletes;
#[cfg(not(any(loom, shuttle)))]
mod paced;
mod places;
mod run_sizes;
mod scripts;
mod short;
mod soundness;
