//! Somebody who opens a database that is open already: refused as locked, with no harm done to anything.

use super::workload::Stage;
use isobath::{ErrorKind, Options};

impl Stage {
    /// Tries to open the database of this life a second time.
    pub(crate) fn intrude(&self, db: &str) {
        let opened = Options::new().components(self.life.components()).open(db);
        // Once a close has begun, or the machine is dead, anything may be the answer.
        if self.is_over() || self.is_closing() {
            return;
        }
        match opened {
            Err(error) if matches!(error.kind(), ErrorKind::Locked { .. }) => {}
            Err(error) => self.judge_write("a second open", &error),
            Ok(_) => self.fail("a second open let somebody in".to_owned()),
        }
    }
}
