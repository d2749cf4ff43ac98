//! What a repair has lost, as text beside the files that it puts aside: once the repaired state is
//! the current one, nothing else in the directory tells of it, and the report may not have reached
//! anyone.

use super::report::{Loss, RepairReport};
use std::fmt::{self, Write};

/// The name of the file in `lost+found`.
pub(super) const NAME: &str = "losses.txt";

pub(super) fn text_of(report: &RepairReport) -> String {
    let mut text = String::new();
    let lines = write_lines(&mut text, report);
    debug_assert!(lines.is_ok(), "a string takes everything");
    text
}

fn write_lines(text: &mut String, report: &RepairReport) -> fmt::Result {
    for finding in &report.findings {
        write!(text, "damage: {}", finding.path.display())?;
        if let Some(offset) = finding.offset {
            write!(text, " at offset {offset}")?;
        }
        writeln!(text, ": {}", finding.detail)?;
    }
    report.losses.iter().try_for_each(|loss| write_loss(text, loss))?;
    report.guesses.iter().try_for_each(|guess| writeln!(text, "guess: {guess}"))
}

fn write_loss(text: &mut String, loss: &Loss) -> fmt::Result {
    write!(text, "lost: {}", loss.path.display())?;
    if let Some(offset) = loss.offset {
        write!(text, " at offset {offset}")?;
    }
    write!(text, ": {}", loss.detail)?;
    if let Some(name) = &loss.family_name {
        write!(text, "; family {name}")?;
    }
    if let Some((from, to)) = &loss.keys {
        write!(text, "; keys {} to {}", from.escape_ascii(), to.escape_ascii())?;
    }
    if let Some((from, to)) = loss.lsns {
        write!(text, "; LSNs {from:#x} to {to:#x}")?;
    }
    if let Some(entries) = loss.entries {
        write!(text, "; {entries} entries")?;
    }
    writeln!(text)
}
