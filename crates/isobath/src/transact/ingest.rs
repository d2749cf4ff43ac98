//! An ingest: keys that come in ascending order and go to files, which one commit makes visible.
//!
//! ```text
//! put     the next key of a family goes to the family's file, a spill file (`engine/spill.rs`)
//! cut     a file that has grown long is complete and synced; the next key begins another one
//! commit  as that of a large transaction which has written these files (`large.rs`)
//! ```
//!
//! Nothing of it is in the log or in a memtable before it commits, nor in memory: only the last key
//! of each family is, and what each file keeps there. An ingest that is dropped removes its files.
//! A commit that fails leaves it as it was, unless a file could not be completed.
//! `docs/internals/ingest.md` has the protocol.

use super::begin::Life;
use super::sorted_file::SortedFile;
use crate::cursor::{Cursor, Entry};
use crate::engine::{Engine, Keyspace, SpillFile, SpillWriter};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FamilyId, OpKind};
use crate::limits::{check_key, check_value, note_written};
use crate::options::{Expiry, Isolation, TransactionOptions};
use crate::write::{self, Commit, KeyLocks, default_expiry};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a commit gives back what it has locked, for a deadlock, and tries again.
const DEADLOCKS_MAX: u32 = 16;

/// How long it leaves the others alone before the second try. It grows by as much each time.
const PAUSE: Duration = Duration::from_millis(2);

/// What was put so far.
pub(crate) struct Ingesting {
    /// By ascending family.
    parts: Vec<Part>,
    len: u64,
    /// True while a whole file is taken: a program could not go on from within it.
    is_within_file: bool,
    /// Why a file could not be written. Keys are lost then, so nothing can be committed.
    failed: Option<Error>,
}

/// What was put into one family.
struct Part {
    family: Arc<Keyspace>,
    last_key: Vec<u8>,
    open: Option<SpillWriter>,
    /// In the order of their keys.
    files: Vec<Arc<SpillFile>>,
}

impl Ingesting {
    /// Begins an ingest. A commit hook is told of all operations as slices of memory, so there is
    /// none with a hook.
    pub(crate) fn begin(engine: &Engine) -> Result<Ingesting> {
        engine.check_open()?;
        engine.check_not_read_only()?;
        engine.check_writable()?;
        match engine.options.commit_hook {
            None => {
                Ok(Ingesting { parts: Vec::new(), len: 0, is_within_file: false, failed: None })
            }
            Some(_) => Err(Error::invalid_argument(
                "a commit hook is told of each operation, and an ingest has its own in files; \
                 write batches, or open the database without the hook",
            )),
        }
    }

    /// Takes the next key of a family: a delete, or a put with the end that its family gives it.
    pub(crate) fn operate(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        kind: OpKind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        match kind.is_lasting_put() && family.ttl_ms() > 0 {
            false => self.add(engine, family, key, (kind, value)),
            true => self.put_expiring(engine, family, (key, value), default_expiry(family)),
        }
    }

    /// Puts the next key of a family, with a value that ends so.
    #[cold]
    pub(crate) fn put_expiring(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        (key, value): (&[u8], &[u8]),
        expiry: Expiry,
    ) -> Result<()> {
        check_value(value)?;
        match engine.note_expiry(expiry)? {
            None => self.add(engine, family, key, (OpKind::Put, value)),
            Some(expires_ms) => {
                let stored = write::stored(expires_ms, value)?;
                self.add(engine, family, key, (OpKind::PutExpiring, &stored))
            }
        }
    }

    /// Takes all keys of a file that was written without a database, and returns how many they are.
    /// Nothing of it is taken unless all of it is whole and lies behind what was taken before.
    pub(crate) fn add_file(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        path: &Path,
    ) -> Result<u64> {
        self.check_for(engine, family)?;
        engine.ceiling.check_table()?;
        let file = SortedFile::open(&engine.options.env.fs, path)?;
        let part = self.part_of(family);
        if let Some(first) = file.first_key().filter(|first| part.is_passed(first)) {
            return Err(Error::out_of_order(&family.name(), first, &part.last_key));
        }
        let Some(mut cursor) = file.cursor()? else { return Ok(0) };
        let before = self.len;
        self.is_within_file = true;
        while let Some(Entry { key, kind, value, .. }) = cursor.entry() {
            let taken = self.operate(engine, family, kind, key, value);
            if let Err(error) = taken.and_then(|()| Cursor::next(&mut cursor)) {
                // A part of the file is taken.
                return Err(self.fail(error));
            }
        }
        self.is_within_file = false;
        Ok(self.len - before)
    }

    fn add(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        (kind, value): (OpKind, &[u8]),
    ) -> Result<()> {
        self.check_for(engine, family)?;
        check_key(key)?;
        check_value(value)?;
        engine.ceiling.check_entry(key, value)?;
        let is_within_file = self.is_within_file;
        let part = self.part_of(family);
        if part.is_passed(key) {
            return Err(Error::out_of_order(&family.name(), key, &part.last_key));
        }
        let begins_file = part.begins_file(engine);
        if begins_file && !is_within_file {
            // Each file stays open: until there is room for one more, nothing is taken.
            engine.ceiling.check_table()?;
        }
        note_written(key, value);
        let cut = if begins_file { part.cut() } else { Ok(()) };
        let added = cut.and_then(|()| part.add(engine, key, kind, value));
        added.map_err(|error| self.fail(error))?;
        self.len += 1;
        Ok(())
    }

    /// Takes no more from now on. Its files go: others may wait for their room.
    fn fail(&mut self, error: Error) -> Error {
        if self.failed.is_none() {
            self.failed = Some(error.clone());
        }
        self.parts.clear();
        error
    }

    /// How many keys were taken.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |why| {
            let detail = format!("the ingest has failed before, so begin a new one: {why}");
            Err(Error::invalid_argument(detail))
        })
    }

    /// Fails if nothing can be taken for the family.
    fn check_for(&self, engine: &Engine, family: &Keyspace) -> Result<()> {
        self.check()?;
        engine.check_open()?;
        match family.is_dropped() {
            true => Err(Error::unknown_family(&family.name())),
            false => Ok(()),
        }
    }

    fn part_of(&mut self, family: &Arc<Keyspace>) -> &mut Part {
        let place = |parts: &[Part], id: FamilyId| parts.binary_search_by_key(&id, Part::id);
        let at = place(&self.parts, family.id).unwrap_or_else(|at| {
            let (open, files) = (None, Vec::new());
            let part = Part { family: family.clone(), last_key: Vec::new(), open, files };
            self.parts.insert(at, part);
            at
        });
        &mut self.parts[at]
    }

    /// Commits all that was put, and begins anew. If it fails, everything is as it was, unless the
    /// last file could not be completed: then the ingest has failed.
    pub(crate) fn commit(&mut self, engine: &Arc<Engine>) -> Result<Commit> {
        if let Some(doubt) = self.failed.as_ref().filter(|why| why.is_outcome_unknown()) {
            return Err(doubt.clone());
        }
        self.check()?;
        if let Err(error) = self.parts.iter_mut().try_for_each(Part::cut) {
            return Err(self.fail(error));
        }
        debug_assert!(
            self.parts.iter().all(|part| part.open.is_none()),
            "a file is committed that is not complete"
        );
        let options = TransactionOptions::new().isolation(Isolation::ReadCommitted);
        let mut life = Life::begin(engine, options);
        // As of a plain write. A transaction of its own would be the youngest in each deadlock,
        // however often the commit is repeated.
        life.locks = KeyLocks::of_write(engine);
        // A family that was given an empty file only may be dropped meanwhile.
        let parts = self.parts.iter().filter(|part| !part.files.is_empty());
        let parts = parts.map(|part| (part.family.clone(), part.files.clone())).collect();
        let committed = life.commit_files(engine, parts);
        life.end(engine);
        let doubt = committed.as_ref().err().filter(|error| error.is_outcome_unknown());
        self.failed = doubt.cloned();
        if committed.is_ok() || self.failed.is_some() {
            self.parts.clear();
            self.len = 0;
        }
        committed
    }
}

impl Part {
    fn id(&self) -> FamilyId {
        self.family.id
    }

    /// True if the key is not behind all that was taken.
    fn is_passed(&self, key: &[u8]) -> bool {
        let is_empty = self.open.is_none() && self.files.is_empty();
        !is_empty && key <= &*self.last_key
    }

    /// True if the next key is the first of a file.
    fn begins_file(&self, engine: &Engine) -> bool {
        let is_long = |open: &SpillWriter| open.writer.slice_disk_bytes() >= file_len(engine);
        self.open.as_ref().is_none_or(is_long)
    }

    fn add(&mut self, engine: &Engine, key: &[u8], kind: OpKind, value: &[u8]) -> Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let mut open = engine.spills.begin_file()?;
                let options = self.family.options();
                // It is written for the levels below the first.
                let options = options.table_options(self.family.id, &self.family.name(), 1);
                let options = engine.ceiling.fit(options);
                open.writer.begin_slice(self.family.id, &options)?;
                self.open.insert(open)
            }
        };
        open.add(key, kind, value)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Completes the open file.
    fn cut(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            // All that was taken so far would be lost for some hundred bytes.
            self.files.push(open.finish(0, false)?);
        }
        Ok(())
    }
}

/// About the length of a file, as of one that a compaction writes.
fn file_len(engine: &Engine) -> u64 {
    const FILE_LEN_MAX: u64 = 64 << 20;
    let min = engine.options.sizes.table_len_min.min(FILE_LEN_MAX);
    (engine.options.buffer_len() / 2).clamp(min, FILE_LEN_MAX)
}

impl Life {
    /// Commits files that hold all that it writes, by family.
    fn commit_files(
        &mut self,
        engine: &Arc<Engine>,
        parts: Vec<(Arc<Keyspace>, Vec<Arc<SpillFile>>)>,
    ) -> Result<Commit> {
        for (family, files) in parts {
            self.name_family(&family);
            self.spilled.extend(files);
        }
        if self.spilled.is_empty() {
            return self.commit(engine);
        }
        let mut deadlocks = 0;
        let committed = loop {
            let committed = engine.check_open().and_then(|()| self.commit_large(engine));
            // A cycle of one leads through its thread, and does not end.
            let is_among_others = committed.as_ref().is_err_and(
                |why| matches!(why.kind(), ErrorKind::Deadlock { cycle } if cycle.len() > 1),
            );
            if !is_among_others || deadlocks == DEADLOCKS_MAX {
                break committed;
            }
            deadlocks += 1;
            self.locks.end(engine);
            engine.options.env.threads.sleep(PAUSE * deadlocks);
        };
        self.note_commit(engine, committed)
    }
}
