//! The machine on which a command measures, and what a reader of the figures has to know about it.

use crate::engine::{self, FAST_CHECKSUMS};
use crate::measure::{Machine, is_ram_file_system};
use crate::report::{Measured, Report};
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

/// If the rows show that an engine was built in a way that makes it slower, adds a note that says
/// so.
pub(super) fn warn_of_builds(report: &mut Report) {
    let slow = |row: &Measured| row.counters.get(FAST_CHECKSUMS) == Some(&0.0);
    if report.rows.iter().any(slow) {
        report.warnings.push(
            "RocksDB was compiled without the processor's instructions for checksums: build with \
             CXXFLAGS=\"-msse4.2 -mpclmul\""
                .to_owned(),
        );
    }
}

/// Prints and returns the reasons why figures of this machine mean little, if there are any.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::sample_report;

    #[test]
    fn a_peer_built_without_its_checksum_instructions_is_told_of_once() {
        let warnings = |value: Option<f64>| {
            let mut report = sample_report();
            let known = report.warnings.len();
            for row in &mut report.rows {
                row.counters.extend(value.map(|value| (FAST_CHECKSUMS.to_owned(), value)));
            }
            warn_of_builds(&mut report);
            report.warnings[known..].to_vec()
        };
        assert_eq!((warnings(None).len(), warnings(Some(1.0)).len()), (0, 0));
        let told = warnings(Some(0.0));
        assert!(told.len() == 1 && told[0].contains("CXXFLAGS"), "{told:?}");
    }
}
