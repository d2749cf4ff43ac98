//! The target `scan_bounds`: what the command line takes for the bounds of a scan. Its body is
//! in the tool: `crates/isobath-cli/src/fuzzing.rs`.
#![no_main]
#![allow(dead_code)] // Of the tool's modules only what reads bounds is used.

#[path = "../../crates/isobath-cli/src/failure.rs"]
mod failure;
#[path = "../../crates/isobath-cli/src/fuzzing.rs"]
mod fuzzing;
#[path = "../../crates/isobath-cli/src/text.rs"]
mod text;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::scan_bounds(data));
