//! Chores of the workspace, as a library so that tests can run them.

pub mod mutants;
pub mod tidy;
