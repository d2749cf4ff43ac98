//! The target `family_options`: its body is in the engine, see `isobath::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| isobath::fuzzing::run("family_options", data));
