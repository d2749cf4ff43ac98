//! What a flush does about prepared transactions. It moves `replay from` to the end of its epoch.
//! What the log behind that needs of the log before it has to be in a file by then:
//!
//! - an entry that is in doubt, or whose commit lies at or behind the end, goes to a file
//! - an entry whose decision lies below the end needs no file any more
//!
//! The epoch is visible, so every entry that was prepared in it is known here, and so is every
//! decision below its end (`engine/prepared.rs`).

use crate::engine::{Engine, Epoch, Fate, PreparedEntry};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::error::Result;
use crate::format::Lsn;
use crate::version::{Change, FileNumbers, LiveFile, TABLE_DIR, write_entry};
use crate::vfs::FileSystem;
use std::path::Path;
use std::sync::Arc;

/// What one flush does.
#[derive(Default)]
pub(super) struct Entries {
    filed: Vec<(Arc<PreparedEntry>, FiledEntry)>,
    /// Those whose decision is flushed.
    decided: Vec<Arc<PreparedEntry>>,
}

/// A prepared transaction that was written to a file.
pub(crate) struct FiledEntry {
    pub(crate) lsn: Lsn,
    xid: Vec<u8>,
    pub(crate) file: Arc<LiveFile>,
    len: u64,
}

impl FiledEntry {
    pub(crate) fn change(&self) -> Change {
        let (lsn, xid) = (self.lsn, self.xid.clone());
        Change::AddPrepared { lsn, xid, file: self.file.number(), len: self.len }
    }
}

/// Writes a prepared transaction to a file of its own and syncs it. The caller syncs the names of
/// files before it names this one.
pub(crate) fn file_entry(
    fs: &dyn FileSystem,
    db: &Path,
    uuid: [u8; 16],
    numbers: &FileNumbers,
    (lsn, xid, payload): (Lsn, &[u8], &[u8]),
) -> Result<FiledEntry> {
    // If a later step fails, dropping `file` marks the file for removal.
    let file = numbers.allocate();
    let len = write_entry(fs, db, uuid, file.number(), (lsn, payload))?;
    Ok(FiledEntry { lsn, xid: xid.to_vec(), file, len })
}

impl Entries {
    /// Writes the files that the epoch needs.
    pub(super) fn file(engine: &Engine, epoch: &Epoch) -> Result<Entries> {
        let (end, fs, mut entries) = (epoch.end(), &*engine.options.env.fs, Entries::default());
        for entry in engine.prepared.below(end) {
            if planted(Plant::MutexHeldWhileAdmitting) {
                drop(entry.hold());
            }
            match entry.fate() {
                Fate::Committed(lsn) | Fate::RolledBack(lsn) if lsn < end => {
                    entries.decided.push(entry);
                    continue;
                }
                Fate::Committed(_) if planted(Plant::FiledOnlyUndecided) => continue,
                // That an unknown entry is rolled back means nothing.
                Fate::RolledBack(_) => continue,
                fate => reached_if(Reach::PreparedFiledCommitted, || fate != Fate::InDoubt),
            }
            let Some(payload) = entry.content().payload else { continue };
            if planted(Plant::PrepareNotFiled) {
                continue;
            }
            reached(Reach::PreparedFiled);
            let what = (entry.lsn(), entry.xid.as_bytes(), &*payload);
            let filed = file_entry(fs, &engine.dir, engine.uuid, &engine.files, what)?;
            entries.filed.push((entry, filed));
        }
        if !entries.filed.is_empty() {
            engine.files.sync_names(fs, &engine.dir.join(TABLE_DIR))?;
        }
        Ok(entries)
    }

    /// The changes for the edit of the flush. A name that becomes free may be taken again in the
    /// same epoch, so what is removed comes first.
    pub(super) fn changes(&self) -> Vec<Change> {
        let filed = |entry: &&Arc<PreparedEntry>| entry.content().file.is_some();
        let removed = self.decided.iter().filter(filed).map(|entry| {
            reached(Reach::PreparedUnfiled);
            Change::RemovePrepared { lsn: entry.lsn() }
        });
        removed.chain(self.filed.iter().map(|(_, filed)| filed.change())).collect()
    }

    /// The files that the edit names.
    pub(super) fn outputs(&self) -> impl Iterator<Item = Arc<LiveFile>> {
        self.filed.iter().map(|(_, filed)| filed.file.clone())
    }

    /// Takes note that the edit is installed.
    pub(super) fn settle(self, engine: &Engine) {
        for (entry, filed) in self.filed {
            debug_assert_eq!(entry.lsn(), filed.lsn, "the file is of another entry");
            entry.note_filed(filed.file);
        }
        engine.prepared.forget(&self.decided);
    }
}
