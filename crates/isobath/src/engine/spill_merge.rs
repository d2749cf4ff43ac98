//! Makes one spill file of several, so that a transaction has few of them however much it writes.
//!
//! What a newer file says of a key replaces what an older one says, and its range deletes hide what
//! older ones have. Deletes stay: the database may have the key. The inputs stay as they are.

use super::spill::{KEY_SEQ, SPAN_SEQ, SpillFile, SpilledCursor, SpilledPart, Spills};
use crate::cursor::{Cursor, Entry, MergeCursor};
use crate::error::Result;
use crate::format::{FamilyId, Lsn, spilled_seq};
use crate::mvcc::{ReaderPoints, Rewrite, rewrite};
use crate::span::{Span, SpanSet, fragments};
use crate::table::{TableOptions, TableWriter};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Spills {
    /// Writes what these files, oldest first, say together. `options` has what the table of a
    /// family is written with.
    pub(crate) fn merge(
        self: &Arc<Spills>,
        files: &[Arc<SpillFile>],
        options: impl Fn(FamilyId) -> TableOptions,
    ) -> Result<Arc<SpillFile>> {
        let slices = files.iter().flat_map(|file| file.slices());
        let families: BTreeSet<FamilyId> = slices.map(|meta| meta.family).collect();
        let charge = files.iter().map(|file| file.charge).sum();
        self.write_file((charge, true), |writer| {
            families.into_iter().try_for_each(|family| {
                writer.begin_slice(family, &options(family))?;
                let slices = files.iter().flat_map(|file| file.slices());
                let of_family = slices.filter(|meta| meta.family == family);
                writer.expect_keys(of_family.map(|meta| meta.entries).sum());
                merge_family(writer, files, family)?;
                writer.finish_slice().map(drop)
            })
        })
    }
}

fn merge_family(
    writer: &mut TableWriter,
    files: &[Arc<SpillFile>],
    family: FamilyId,
) -> Result<()> {
    let part = |(nth, file)| SpilledPart::with_seq(file, family, spilled_seq(POINTS_FROM, nth));
    let parts: Vec<_> = files.iter().enumerate().rev().filter_map(part).collect();
    let newest = ReaderPoints::newest();
    let spans = fragments(parts.iter().flat_map(SpilledPart::spans).collect());
    let of_keys = parts.iter().filter(|part| part.has_keys());
    let mut cursor = MergeCursor::new(of_keys.map(SpilledPart::job_cursor).collect());
    cursor.seek_first()?;
    rewrite(&mut cursor, &newest, &mut Merged { writer, spans: &spans })?;
    let spans = spans.spans().map(|span| Span { seq: SPAN_SEQ, ..span });
    writer.set_spans(fragments(spans.collect()));
    Ok(())
}

/// The numbers of the inputs begin here; they only have to tell which is newer.
const POINTS_FROM: Lsn = 1;

struct Merged<'a> {
    writer: &'a mut TableWriter,
    spans: &'a SpanSet,
}

impl Rewrite<MergeCursor<SpilledCursor>> for Merged<'_> {
    /// The database lies beneath.
    fn is_alone(&mut self, _key: &[u8]) -> bool {
        false
    }

    fn cover_above(&mut self, key: &[u8], seq: Lsn) -> Option<Lsn> {
        self.spans.least_above(key, seq)
    }

    fn add(&mut self, entry: Entry<'_>, _enters: bool) -> Result<()> {
        self.writer.add(Entry { seq: KEY_SEQ, ..entry })
    }
}
