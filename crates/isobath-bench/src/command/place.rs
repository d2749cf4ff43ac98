//! Where a command measures, and what about that its reader has to know.

use crate::engine;
use crate::measure::{Machine, is_ram_file_system};
use anyhow::Result;
use std::path::Path;

/// The machine, with the versions of these engines.
pub(super) fn describe(engines: &[String], base: &Path) -> Result<Machine> {
    let mut machine = Machine::read(base);
    for name in engines {
        machine.engines.insert(name.clone(), (engine::find(name)?.version)());
    }
    Ok(machine)
}

/// Says, and returns, why figures from here mean little, if they do.
pub(super) fn warn(base: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    if is_ram_file_system(base) {
        warnings.push(format!(
            "{} is a RAM file system: sizes, syncs and bytes written mean little",
            base.display()
        ));
    }
    if cfg!(debug_assertions) {
        warnings.push("this is a debug build: the figures mean little".to_owned());
    }
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    warnings
}
