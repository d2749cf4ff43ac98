//! Checks a closed database from the disk up: `CURRENT`, the manifest, every table it names, every
//! segment of the log. What cannot be read is a finding, and the check goes on with what can:
//! without a manifest all tables and the whole log are checked by themselves.

mod directory;
mod log;
mod manifest;
mod tables;

use super::lock;
use super::report::{Finding, Report};
use crate::env::Env;
use crate::error::Result;
use crate::version::{CURRENT, Layout};
use crate::vfs::FileSystem;
use std::path::Path;
use std::sync::Arc;

/// What a verification works with.
struct Verification<'a> {
    fs: &'a Arc<dyn FileSystem>,
    db: &'a Path,
    report: Report,
    progress: &'a mut dyn FnMut(u64, u64),
    done_bytes: u64,
    total_bytes: u64,
}

impl<'a> Verification<'a> {
    fn new(
        fs: &'a Arc<dyn FileSystem>,
        db: &'a Path,
        report: Report,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Self {
        Verification { fs, db, report, progress, done_bytes: 0, total_bytes: 0 }
    }

    /// Counts a file that is about to be checked.
    fn expect(&mut self, len: u64) {
        self.report.files += 1;
        self.report.bytes += len;
        self.total_bytes += len;
    }

    /// Says that so many bytes more were checked.
    fn advance(&mut self, len: u64) {
        self.done_bytes = (self.done_bytes + len).min(self.total_bytes);
        (self.progress)(self.done_bytes, self.total_bytes);
    }

    /// Says that everything up to `end` (of all that is expected) was checked.
    fn advance_to(&mut self, end: u64) {
        self.advance(end.saturating_sub(self.done_bytes));
    }

    fn done_bytes(&self) -> u64 {
        self.done_bytes
    }
}

/// Checks every checksum of every file of the database in `db`, which must be closed and stays
/// locked meanwhile. Changes nothing. `progress` is told the bytes checked and the bytes there are.
///
/// Damage is no error but a [`super::Finding`]. What nothing reads is not looked at: the rest of a
/// log segment behind the last record, what segments that wait to be written again still hold,
/// tables that the manifest does not name.
///
/// # Errors
/// [`ErrorKind::NotADatabase`](crate::ErrorKind::NotADatabase),
/// [`ErrorKind::Locked`](crate::ErrorKind::Locked),
/// [`ErrorKind::NewerFormat`](crate::ErrorKind::NewerFormat),
/// [`ErrorKind::MissingCodec`](crate::ErrorKind::MissingCodec), or an I/O error that says nothing
/// of the bytes on disk, such as a missing permission.
pub fn verify(db: &Path, env: &Env, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
    let fs = &env.fs;
    let layout = Layout::examine(&**fs, db)?;
    if !matches!(layout, Layout::Database | Layout::Lost { .. }) {
        layout.clone().demand_database(db)?;
    }
    let _lock = lock::hold(&**fs, db)?;
    let report = Report::default();
    let mut verification = Verification::new(fs, db, report, progress);
    if let Layout::Lost { evidence } = layout {
        let detail = format!("it is missing, yet there are {evidence}");
        verification.report.damage(&db.join(CURRENT), None, detail);
    }
    directory::verify(&mut verification)?;
    let state = manifest::verify(&mut verification)?;
    let tables = tables::gather(&mut verification, state.as_ref())?;
    let segments = log::gather(&mut verification)?;
    tables::verify(&mut verification, state.as_ref(), &tables)?;
    log::verify(&mut verification, state.as_ref(), &segments)?;
    Ok(verification.report)
}

/// What is damaged in `CURRENT`, the manifest and the log of a database that the caller holds the
/// lock of.
pub(super) fn all_but_tables(fs: &Arc<dyn FileSystem>, db: &Path) -> Result<Vec<Finding>> {
    let mut untold = |_: u64, _: u64| ();
    let mut verification = Verification::new(fs, db, Report::default(), &mut untold);
    let state = manifest::verify(&mut verification)?;
    let segments = log::gather(&mut verification)?;
    log::verify(&mut verification, state.as_ref(), &segments)?;
    Ok(verification.report.findings)
}
