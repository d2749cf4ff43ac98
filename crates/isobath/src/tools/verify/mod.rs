//! Checks a database on disk: `CURRENT`, the manifest, every table it names, every value that these
//! tables have in blob files, every segment of the log. A part that cannot be read is a finding,
//! and the check goes on with the rest. Without a manifest, all tables and the whole log are
//! checked, each by itself. Beside a process that writes, `beside.rs` checks what a reader of the
//! database needs.

mod beside;
mod blobs;
mod directory;
mod log;
mod manifest;
mod tables;

use super::lock;
use super::report::{Finding, Report};
use crate::env::Env;
use crate::error::{ErrorKind, Result};
use crate::version::{CURRENT, Layout};
use crate::vfs::FileSystem;
use std::path::Path;
use std::sync::Arc;

/// The state of a verification.
struct Verification<'a> {
    fs: &'a Arc<dyn FileSystem>,
    db: &'a Path,
    report: Report,
    progress: &'a mut dyn FnMut(u64, u64),
    done_bytes: u64,
    total_bytes: u64,
    /// Whole records of the log that this version does not know count as damage.
    counts_unknown: bool,
}

impl<'a> Verification<'a> {
    fn new(
        fs: &'a Arc<dyn FileSystem>,
        db: &'a Path,
        report: Report,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Self {
        let (done_bytes, total_bytes, counts_unknown) = (0, 0, false);
        Verification { fs, db, report, progress, done_bytes, total_bytes, counts_unknown }
    }

    /// Counts a file that is about to be checked.
    fn expect(&mut self, len: u64) {
        self.report.files += 1;
        self.report.bytes += len;
        self.total_bytes += len;
    }

    /// Reports that this many more bytes were checked.
    fn advance(&mut self, len: u64) {
        self.done_bytes = (self.done_bytes + len).min(self.total_bytes);
        (self.progress)(self.done_bytes, self.total_bytes);
    }

    /// Reports that everything up to `end` of all expected bytes was checked.
    fn advance_to(&mut self, end: u64) {
        self.advance(end.saturating_sub(self.done_bytes));
    }

    fn done_bytes(&self) -> u64 {
        self.done_bytes
    }
}

/// Checks every checksum of every file of the database in `db`, which stays locked against writers
/// during the check. Changes nothing. `progress` gets the bytes checked and the bytes in total.
///
/// If a process, which may be this one, has the database open for writing, the check sees it as an
/// open with [`Options::read_only`](crate::Options::read_only) does: it checks the manifest, the
/// tables of one moment, and the log that is not in tables yet. A note says so. Close the database
/// to have everything checked.
///
/// Damage is not an error but a [`super::Finding`]. Data that no read uses is not checked: the rest
/// of a log segment after the last record, the old content of segments that wait to be reused,
/// tables that the manifest does not name, and bytes of blob files that no table points to.
///
/// # Errors
/// [`ErrorKind::NotADatabase`](crate::ErrorKind::NotADatabase),
/// [`ErrorKind::Outrun`](crate::ErrorKind::Outrun),
/// [`ErrorKind::NewerFormat`](crate::ErrorKind::NewerFormat),
/// [`ErrorKind::MissingCodec`](crate::ErrorKind::MissingCodec), or an I/O error that says nothing
/// about the bytes on disk, such as a missing permission.
pub fn verify(db: &Path, env: &Env, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
    let fs = &env.fs;
    let layout = Layout::examine(&**fs, db)?;
    if !matches!(layout, Layout::Database | Layout::Lost { .. }) {
        layout.clone().demand_database(db)?;
    }
    let mut verification = Verification::new(fs, db, Report::default(), progress);
    let held = lock::hold(&**fs, db);
    if let (Err(error), Layout::Database) = (&held, &layout)
        && matches!(error.kind(), ErrorKind::Locked { .. })
    {
        beside::verify(&mut verification, env)?;
        return Ok(verification.report);
    }
    let _lock = held?;
    if let Layout::Lost { evidence } = layout {
        let detail = format!("it is missing, yet there are {evidence}");
        verification.report.damage(&db.join(CURRENT), None, detail);
    }
    directory::verify(&mut verification)?;
    let state = manifest::verify(&mut verification)?;
    let (tables, mut blobs) = tables::gather(&mut verification, state.as_ref())?;
    let segments = log::gather(&mut verification)?;
    let unreadable = blobs.check_headers(&mut verification);
    unreadable.into_iter().try_for_each(|(_, error)| Err(error))?;
    tables::verify(&mut verification, state.as_ref(), &tables, &mut blobs)?;
    let unreadable = blobs.finish(&mut verification);
    unreadable.into_iter().try_for_each(|(_, error)| Err(error))?;
    log::verify(&mut verification, state.as_ref(), &segments)?;
    if let Some(state) = &state {
        manifest::demand_codecs(&verification, state)?;
    }
    Ok(verification.report)
}

/// The damage in `CURRENT`, the manifest and the log of a database. The caller holds the database's
/// lock.
pub(super) fn all_but_tables(
    fs: &Arc<dyn FileSystem>,
    db: &Path,
    counts_unknown: bool,
) -> Result<Vec<Finding>> {
    let mut untold = |_: u64, _: u64| ();
    let new = Verification::new(fs, db, Report::default(), &mut untold);
    let mut verification = Verification { counts_unknown, ..new };
    let state = manifest::verify(&mut verification)?;
    let segments = log::gather(&mut verification)?;
    log::verify(&mut verification, state.as_ref(), &segments)?;
    Ok(verification.report.findings)
}
