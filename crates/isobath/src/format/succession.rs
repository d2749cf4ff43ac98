//! Whether a record of the log can follow those before it: an operation is of a family that there
//! is or was, a family gets an id that none had and a name that none has, and what is committed was
//! prepared.
//!
//! A replay refuses a record that breaks this, though it decodes: only a bug makes one, or a
//! manifest that has lost the edit of a clone. Tools tell by the same judgement what a replay would
//! do.

use super::{DEFAULT_FAMILY, Decision, FamilyId, Lsn, Payload};
use crate::error::{DecodeError, Decoded};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known at one point of the log of the records before it.
#[derive(Debug, Default)]
pub(crate) struct Succession {
    /// Ids of families below this are spent.
    next_family: FamilyId,
    /// Changes of families up to this LSN were known at the start.
    families_changed: Lsn,
    /// The families that there are.
    names: BTreeMap<FamilyId, Arc<str>>,
    taken: BTreeSet<Arc<str>>,
    /// The names of the prepared transactions that are in doubt, by the LSN of the prepare.
    in_doubt: BTreeMap<Lsn, Arc<[u8]>>,
    xids: BTreeSet<Arc<[u8]>>,
    /// Records may be missing that explain what else could not be.
    has_gap: bool,
}

impl Succession {
    /// Begins with what a manifest has: the next id of a family, up to where it knows of changes of
    /// families, these with their names, and the transactions in doubt.
    pub(crate) fn new<'a>(
        (next_family, families_changed): (FamilyId, Lsn),
        families: impl Iterator<Item = (FamilyId, &'a str)>,
        in_doubt: impl Iterator<Item = (Lsn, &'a [u8])>,
    ) -> Succession {
        let mut succession = Succession { next_family, families_changed, ..Succession::default() };
        families.for_each(|(id, name)| succession.name(id, name));
        in_doubt.for_each(|(lsn, xid)| succession.note_in_doubt(lsn, xid));
        succession
    }

    /// Begins with nothing, where anything may have been before.
    pub(crate) fn unknown() -> Succession {
        Succession { has_gap: true, families_changed: Lsn::MAX, ..Succession::default() }
    }

    /// Records may be missing here: from now on only what contradicts the others is refused.
    pub(crate) fn note_gap(&mut self) {
        self.has_gap = true;
    }

    /// Takes in the record at `lsn`, or refuses it and stays as it is.
    pub(crate) fn follow(&mut self, lsn: Lsn, payload: &Payload<'_>) -> Decoded<()> {
        self.demand_families(lsn, payload)?;
        match payload {
            Payload::Prepare(prepare) => self.prepare(lsn, prepare.xid),
            Payload::Decide(decision) => self.decide(lsn, decision).map(drop),
            Payload::Batch(_)
            | Payload::EpochMarker
            | Payload::Tick { .. }
            | Payload::Spilled(_) => Ok(()),
            _ if lsn <= self.families_changed => Ok(()),
            Payload::FamilyCreate { id, name, .. } => self.create(*id, name),
            Payload::FamilyRename { id, name } => self.rename(*id, name),
            Payload::FamilyDrop { id } => {
                self.drop_family(*id);
                Ok(())
            }
        }
    }

    /// Refuses a record that writes to a family which never was. Of a prepared transaction a replay
    /// would refuse the commit.
    pub(crate) fn demand_families(&self, lsn: Lsn, payload: &Payload<'_>) -> Decoded<()> {
        let ops = match payload {
            Payload::Batch(ops) => ops,
            Payload::Prepare(prepare) => &prepare.ops,
            _ => return Ok(()),
        };
        ops.iter().try_for_each(|op| self.demand_family(lsn, op.family))
    }

    /// An id that is spent may be of a family that was dropped.
    pub(crate) fn demand_family(&self, lsn: Lsn, family: FamilyId) -> Decoded<()> {
        // No family has the greatest id.
        if family != FamilyId::MAX && (family < self.next_family || self.has_gap) {
            return Ok(());
        }
        Err(DecodeError::damaged(format!(
            "the log record at {lsn:#x} writes to column family {family}, which was never created"
        )))
    }

    /// No family has the greatest id, because no next id would be left.
    pub(crate) fn create(&mut self, id: FamilyId, name: &str) -> Decoded<()> {
        if id < self.next_family || id == FamilyId::MAX {
            return Err(DecodeError::damaged(format!(
                "it creates column family {id}, an id that is spent"
            )));
        }
        self.demand_free(name)?;
        self.next_family = id + 1;
        self.name(id, name);
        Ok(())
    }

    /// One of a family that there is not says nothing.
    pub(crate) fn rename(&mut self, id: FamilyId, name: &str) -> Decoded<()> {
        match self.names.get(&id).map(|known| **known == *name) {
            None | Some(true) => return Ok(()),
            Some(false) => self.demand_free(name)?,
        }
        self.name(id, name);
        Ok(())
    }

    pub(crate) fn drop_family(&mut self, id: FamilyId) {
        if id != DEFAULT_FAMILY
            && let Some(name) = self.names.remove(&id)
        {
            self.taken.remove(&name);
        }
    }

    /// A transaction is prepared by the record at `lsn`.
    pub(crate) fn prepare(&mut self, lsn: Lsn, xid: &[u8]) -> Decoded<()> {
        if self.xids.contains(xid) && !self.has_gap {
            return Err(DecodeError::damaged(format!(
                "the log record at {lsn:#x} prepares the transaction {}, which is in doubt",
                xid.escape_ascii()
            )));
        }
        self.note_in_doubt(lsn, xid);
        Ok(())
    }

    /// The record at `lsn` decides a transaction. False if that is not in doubt, which a rollback
    /// may find.
    pub(crate) fn decide(&mut self, lsn: Lsn, decision: &Decision<'_>) -> Decoded<bool> {
        let known = self.in_doubt.get(&decision.prepared);
        let is_known = known.is_some_and(|xid| **xid == *decision.xid);
        let is_explained = is_known || (known.is_none() && self.has_gap);
        if decision.is_commit && !is_explained {
            return Err(DecodeError::damaged(format!(
                "the log record at {lsn:#x} commits the transaction {}, which was never prepared",
                decision.xid.escape_ascii()
            )));
        }
        if is_known {
            self.in_doubt.remove(&decision.prepared);
            self.xids.remove(decision.xid);
        }
        Ok(is_known)
    }

    fn note_in_doubt(&mut self, lsn: Lsn, xid: &[u8]) {
        let xid: Arc<[u8]> = xid.into();
        self.xids.insert(xid.clone());
        self.in_doubt.insert(lsn, xid);
        debug_assert!(self.xids.len() <= self.in_doubt.len(), "each name is of one in doubt");
    }

    fn name(&mut self, id: FamilyId, name: &str) {
        let name: Arc<str> = name.into();
        self.taken.insert(name.clone());
        if let Some(former) = self.names.insert(id, name) {
            self.taken.remove(&former);
        }
        debug_assert!(self.taken.len() <= self.names.len(), "each name is of one family");
    }

    fn demand_free(&self, name: &str) -> Decoded<()> {
        match self.taken.contains(name) && !self.has_gap {
            true => Err(DecodeError::damaged(format!("two column families are called {name:?}"))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Op, OpKind, Prepare};
    use super::*;
    use crate::env::fixtures::thread_time;

    /// Families 0 and 3 and those dropped before, and one transaction in doubt.
    fn begun() -> Succession {
        let families = [(0, "default"), (3, "three")].into_iter();
        Succession::new((5, 100), families, [(40, &b"old"[..])].into_iter())
    }

    fn batch(family: FamilyId) -> Payload<'static> {
        Payload::Batch(vec![Op { kind: OpKind::Put, family, key: b"k", value: b"v" }])
    }

    fn create(id: FamilyId, name: &str) -> Payload<'_> {
        Payload::FamilyCreate { id, name, options: b"{}" }
    }

    fn prepare(xid: &[u8], family: FamilyId) -> Payload<'_> {
        let ops = vec![Op { kind: OpKind::Put, family, key: b"k", value: b"v" }];
        Payload::Prepare(Prepare { xid, isolation: 0, ops, keys: Vec::new(), ranges: Vec::new() })
    }

    fn decide(is_commit: bool, xid: &[u8], prepared: Lsn) -> Payload<'_> {
        Payload::Decide(Decision { is_commit, xid, prepared })
    }

    /// Which of the records, each 8 behind the one before, are refused.
    fn refused(mut succession: Succession, records: &[Payload<'_>]) -> Vec<usize> {
        let mut judge = |at: usize| succession.follow(104 + 8 * at as u64, &records[at]).is_err();
        (0..records.len()).filter(|at| judge(*at)).collect()
    }

    fn both(records: &[Payload<'_>]) -> [Vec<usize>; 2] {
        let mut with_gap = begun();
        with_gap.note_gap();
        [refused(begun(), records), refused(with_gap, records)]
    }

    #[test]
    fn families_are_there_before_they_are_written_and_get_new_ids_and_names() {
        let records = [batch(4), batch(5), create(5, "five"), batch(5), create(4, "four")];
        assert_eq!(both(&records), [vec![1, 4], vec![4]]);
        let rename = |id, name| Payload::FamilyRename { id, name };
        let drop = |id| Payload::FamilyDrop { id };
        let records = [
            create(7, "three"),
            rename(3, "default"),
            rename(3, "three"),
            rename(4, "default"),
            drop(0),
            create(7, "default"),
            drop(3),
            create(7, "three"),
            create(FamilyId::MAX, "last"),
        ];
        assert_eq!(both(&records)[0], [0, 1, 5, 8]);
        assert!(begun().follow(100, &create(2, "default")).is_ok(), "the manifest has that");
    }

    #[test]
    fn what_is_committed_was_prepared_and_no_name_is_in_doubt_twice() {
        let records = [
            prepare(b"old", 0),
            decide(true, b"old", 48),
            decide(true, b"other", 40),
            decide(false, b"other", 40),
            decide(false, b"other", 48),
            decide(true, b"old", 40),
            prepare(b"old", 0),
            decide(true, b"old", 40),
            decide(true, b"old", 152),
            prepare(b"never", 5),
        ];
        assert_eq!(both(&records), [vec![0, 1, 2, 7, 9], vec![2]]);
    }

    /// Comparing the name of each with all others takes minutes.
    #[test]
    fn very_many_transactions_in_doubt_are_taken_in_one_by_one() {
        let mut succession = Succession::default();
        let xid = |nth: u64| format!("{nth:08}").into_bytes();
        let began = thread_time();
        for nth in 1..100_000 {
            succession.prepare(64 * nth, &xid(nth)).unwrap();
        }
        let took = thread_time() - began;
        assert!(took.as_secs() < 20, "{took:?}");
        let again = succession.prepare(64 * 100_000, &xid(7)).unwrap_err();
        assert!(again.to_string().contains("00000007, which is in doubt"), "{again}");
        let decision = Decision { is_commit: false, prepared: 64 * 7, xid: &xid(7) };
        assert!(succession.decide(64 * 100_000, &decision).unwrap());
        succession.prepare(64 * 100_001, &xid(7)).unwrap();
    }
}
