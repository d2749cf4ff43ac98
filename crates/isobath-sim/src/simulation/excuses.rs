//! Which errors a call may get: those that the machine's death, its trouble, damage or a close
//! explains. Any other is a failure.

use super::workload::Stage;
use isobath::{Error, ErrorKind};

impl Stage {
    /// Judges an error of a read: fine once the machine is dead, or where its trouble explains it.
    pub(crate) fn judge_read(&self, doing: &str, error: &Error) {
        self.judge(doing, error, true);
    }

    /// Judges any other error.
    pub(crate) fn judge_write(&self, doing: &str, error: &Error) {
        self.judge(doing, error, false);
    }

    fn judge(&self, doing: &str, error: &Error, is_read: bool) {
        self.life.note_error(error);
        let is_excused = self.life.is_over()
            || self.life.trouble().excuses(error, is_read)
            || (self.is_damaged
                && matches!(
                    error.kind(),
                    ErrorKind::Corruption { .. }
                        | ErrorKind::Poisoned { .. }
                        | ErrorKind::OutcomeUnknown { .. }
                ))
            || matches!(error.kind(), ErrorKind::WouldStall { .. })
            || (self.is_closing() && self.is_of_closing(error));
        if !is_excused || error.to_string().contains("panicked") {
            self.fail(format!("{doing}: {error}"));
        }
    }

    /// True if closing explains an error. On a full disk a change of families that waits for room
    /// is given up then.
    fn is_of_closing(&self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Closed { .. } | ErrorKind::Cancelled { .. } => true,
            ErrorKind::OutcomeUnknown { .. } | ErrorKind::Poisoned { .. } => {
                self.life.trouble().is_want_of_room()
            }
            _ => false,
        }
    }
}
