//! Learns from the log which families there are, if the manifest does not completely say it.
//!
//! Changes of families count wherever their records are, those of earlier terms, too: a table
//! carries a family's name only as it was once. What counts for an open counts here, so the records
//! in the end of the log that an open would discard change nothing. A drop there has not happened,
//! and tables may be all that is left of the family.
//!
//! A drop is final, though the manifest may have lost it. So drops are noted before tables give
//! names to families, and everything else is learned behind that.

use super::Repair;
use super::facts::Facts;
use super::log::FoundLog;
use crate::error::Result;
use crate::format::{FamilyId, Lsn, Payload, decode_payload};
use crate::version::Tick;

impl FoundLog {
    /// Notes the families that the log drops, unless the manifest is completely known. So tables do
    /// not name such a family.
    pub(super) fn note_drops(&mut self, repair: &Repair<'_>, facts: &mut Facts) -> Result<()> {
        let changes_known = facts.families_changed;
        if facts.is_exact {
            return Ok(());
        }
        self.dump(repair, 0, &mut |log, dumped| {
            let lsn = dumped.header.lsn;
            if let Some(Ok(Payload::FamilyDrop { id })) = dumped.payload.map(decode_payload)
                && log.has_drop(facts, changes_known, dumped.header.generation, (id, lsn))
            {
                facts.drop_family(id, lsn);
            }
            Ok(())
        })?;
        // The other changes that the log has are yet to be learned.
        facts.families_changed = changes_known;
        Ok(())
    }

    /// Learns the changes of families, and the ticks, from all terms.
    pub(super) fn learn_changes(&mut self, repair: &Repair<'_>, facts: &mut Facts) -> Result<()> {
        let changes_known = facts.families_changed;
        self.dump(repair, 0, &mut |log, dumped| {
            let Some(payload) = dumped.payload else { return Ok(()) };
            let (lsn, generation) = (dumped.header.lsn, dumped.header.generation);
            let is_new = lsn > changes_known && !log.discards(generation, lsn);
            match decode_payload(payload) {
                Ok(Payload::FamilyCreate { id, name, options }) if is_new => {
                    facts.create(id, name, options, lsn);
                }
                Ok(Payload::FamilyRename { id, name }) if is_new => facts.rename(id, name, lsn),
                Ok(Payload::FamilyDrop { id })
                    if log.has_drop(facts, changes_known, generation, (id, lsn)) =>
                {
                    facts.drop_family(id, lsn);
                }
                // Time goes only on.
                Ok(Payload::Tick { unix_ms }) => facts.note_tick(Tick { lsn, unix_ms }),
                _ => {}
            }
            Ok(())
        })
    }

    fn has_drop(
        &self,
        facts: &Facts,
        changes_known: Lsn,
        generation: u16,
        drop: (FamilyId, Lsn),
    ) -> bool {
        !self.discards(generation, drop.1) && !self.floors.refutes_drop(facts, changes_known, drop)
    }
}
