//! Commits what a large transaction has written to files: one small record that names them.
//!
//! The files are synced, names included, before the record exists, so a durable record has its
//! files. The caller has locked the hull of each file and flushed what was there. So the files can
//! be read where they are, between memtables and tree (`engine/layer.rs`), until the next flush.

use super::announce::Course;
use super::commit::{Commit, check_family, commit};
use super::seal::seal_if_room;
use crate::engine::{Engine, Keyspace, SpillFile};
use crate::env::{Plant, Point, planted, yield_point};
use crate::error::Result;
use crate::format::{FamilyId, Payload, put_payload};
use crate::options::WriteOptions;
use crate::wal::RECORD_HEADER_LEN;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Commits the files, oldest first. `families` are those that they name.
pub(crate) fn commit_spilled(
    engine: &Arc<Engine>,
    families: &[Arc<Keyspace>],
    files: &[Arc<SpillFile>],
    options: WriteOptions,
    course: &mut impl Course,
) -> Result<Commit> {
    families.iter().try_for_each(|family| check_family(family))?;
    if !planted(Plant::SpillNamesNotSynced) {
        engine.spills.sync_names()?;
    }
    // The files of each family: there may be many of both.
    let mut places: BTreeMap<FamilyId, Vec<usize>> = BTreeMap::new();
    for (nth, file) in files.iter().enumerate().rev() {
        file.slices().for_each(|meta| places.entry(meta.family).or_default().push(nth));
    }
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_payload(&mut record, &Payload::Spilled(files.iter().map(|file| file.named()).collect()));
    let committed = commit(engine, &mut record, options, course, |_, lsn| {
        // From here on the log needs them, whatever becomes of the commit.
        files.iter().for_each(|file| file.keep());
        let epoch = engine.epochs.owner(lsn);
        for family in families {
            let places = places.get(&family.id).into_iter().flatten();
            family.lay(places.map(|nth| (*nth, &files[*nth])), &epoch, lsn);
            yield_point(Point::Laid);
        }
    });
    if committed.is_ok() {
        // Readers of tables alone are faster. What a failed seal tells, the next write finds, too.
        let _ = seal_if_room(engine);
    }
    committed
}
