//! The prepared transactions of an open database, from the moment that a prepare claims its xid up
//! to the flush of the decision.
//!
//! One list has those in doubt, by their xids: what programs see and decide. The other has all
//! whose record is in the log or in a file, and is what flushes go through. An entry is in it
//! before its record is published. So a flush, which waits until its epoch is visible, finds every
//! entry that was prepared in the epoch.
//!
//! The decision of an entry is one word, stored before the record of the decision is published.
//! A flush reads it and waits for no decider: a decider may wait for that flush.

use crate::conflict;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::sync::{Mutex, MutexGuard, Rank};
use crate::env::{Plant, planted};
use crate::error::{Error, Result};
use crate::format::{FamilyId, Lsn};
use crate::lock::Owner;
use crate::memory::Allowance;
use crate::options::Isolation;
use crate::version::LiveFile;
use crate::xid::Xid;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// A prepared transaction.
pub(crate) struct PreparedEntry {
    pub(crate) xid: Xid,
    pub(crate) isolation: Isolation,
    /// The families that it has read or written.
    families: Vec<FamilyId>,
    /// The LSN of its record; 0 while there is none.
    lsn: AtomicU64,
    /// The length of the record's payload.
    bytes: AtomicU64,
    /// 0 while it is in doubt; then the LSN of the decision, plus one for a commit.
    decided: AtomicU64,
    content: Mutex<Content>,
    held: Mutex<Option<EntryLocks>>,
    /// The number by which locks know what it holds; 0 before it is prepared.
    owner: AtomicU64,
}

/// Where the payload of an entry's record is, outside of the log.
#[derive(Clone, Default)]
pub(crate) struct Content {
    /// In memory, up to the flush that writes the file.
    pub(crate) payload: Option<Arc<[u8]>>,
    /// What is charged for the payload.
    pub(crate) allowance: Option<Arc<Allowance>>,
    pub(crate) file: Option<Arc<LiveFile>>,
}

/// What an entry in doubt holds.
pub(crate) struct EntryLocks {
    pub(crate) owner: Arc<Owner>,
    /// Keeps the gate of transactions open.
    pub(crate) gate: Option<conflict::Hold>,
}

/// What has become of a prepared transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    InDoubt,
    /// Its operations have the sequences from this LSN on.
    Committed(Lsn),
    RolledBack(Lsn),
}

impl PreparedEntry {
    fn new(xid: Xid, isolation: Isolation, families: Vec<FamilyId>) -> PreparedEntry {
        PreparedEntry {
            xid,
            isolation,
            families,
            lsn: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            decided: AtomicU64::new(0),
            content: Mutex::new(Rank::PreparedContent, Content::default()),
            held: Mutex::new(Rank::PreparedDecision, None),
            owner: AtomicU64::new(0),
        }
    }

    /// True once it holds its locks as an entry: it can be decided.
    fn is_prepared(&self) -> bool {
        self.owner.load(Ordering::Acquire) != 0
    }

    /// The LSN of its record; 0 while there is none.
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn.load(Ordering::Acquire)
    }

    /// The bytes of its record, without the header.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn fate(&self) -> Fate {
        match self.decided.load(Ordering::Acquire) {
            0 => Fate::InDoubt,
            decided if decided & 1 == 1 => Fate::Committed(decided - 1),
            decided => Fate::RolledBack(decided),
        }
    }

    /// Stores the decision, whose record has this LSN and is not published yet. The caller holds
    /// what [`PreparedEntry::hold`] returned.
    pub(crate) fn decide(&self, lsn: Lsn, is_commit: bool) {
        debug_assert!(lsn > self.lsn() && lsn & 1 == 0, "{lsn:#x} decides what is prepared later");
        let before = self.decided.swap(lsn | u64::from(is_commit), Ordering::AcqRel);
        debug_assert!(
            before == 0 || planted(Plant::DecidedTwice),
            "a prepared transaction is decided once"
        );
    }

    /// Takes the right to decide. It is `None` while the entry is being prepared, and again after
    /// the decision.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Option<EntryLocks>> {
        self.held.lock()
    }

    /// Moves into the entry what it holds from now on.
    pub(crate) fn give(&self, held: EntryLocks) {
        let owner = held.owner.id;
        debug_assert!(owner > 0 && !self.is_prepared(), "an entry gets its locks once");
        *self.held.lock() = Some(held);
        self.owner.store(owner, Ordering::Release);
    }

    pub(crate) fn content(&self) -> Content {
        self.content.lock().clone()
    }

    /// Notes that the entry is in a file now, and forgets what it had in memory.
    pub(crate) fn note_filed(&self, file: Arc<LiveFile>) {
        debug_assert!(self.content.lock().file.is_none(), "an entry is filed once");
        *self.content.lock() = Content { payload: None, allowance: None, file: Some(file) };
    }

    fn names(&self, family: FamilyId) -> bool {
        self.families.contains(&family)
    }
}

impl std::fmt::Debug for PreparedEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PreparedEntry({} {:?})", self.xid, self.fate())
    }
}

#[derive(Default)]
struct Lists {
    /// Those in doubt, and those whose prepare is under way.
    open: BTreeMap<Xid, Arc<PreparedEntry>>,
    /// Those that a flush has to look at.
    logged: Vec<Arc<PreparedEntry>>,
    /// Families that are being dropped.
    dropping: BTreeSet<FamilyId>,
}

/// The prepared transactions of a database.
pub(crate) struct PreparedSet {
    lists: Mutex<Lists>,
}

impl Default for PreparedSet {
    fn default() -> PreparedSet {
        PreparedSet { lists: Mutex::new(Rank::Prepared, Lists::default()) }
    }
}

impl PreparedSet {
    /// Claims an xid for a transaction that is about to be prepared. `check` says whether its
    /// families live.
    pub(crate) fn claim(
        &self,
        xid: &Xid,
        isolation: Isolation,
        families: Vec<FamilyId>,
        check: impl Fn(&dyn Fn(FamilyId) -> bool) -> Result<()>,
    ) -> Result<Arc<PreparedEntry>> {
        let mut lists = self.lists.lock();
        if lists.open.contains_key(xid) {
            return Err(Error::transaction_exists(xid));
        }
        check(&|family| lists.dropping.contains(&family))?;
        let entry = Arc::new(PreparedEntry::new(xid.clone(), isolation, families));
        lists.open.insert(xid.clone(), entry.clone());
        Ok(entry)
    }

    /// Forgets the claim of a transaction that was not prepared.
    pub(crate) fn give_up(&self, entry: &Arc<PreparedEntry>) {
        debug_assert_eq!(entry.lsn(), 0, "what is in the log is decided");
        self.lists.lock().open.remove(&entry.xid);
    }

    /// Enters an entry whose record has this LSN and is not published yet.
    pub(crate) fn enter(
        &self,
        entry: &Arc<PreparedEntry>,
        lsn: Lsn,
        (payload, allowance): (Arc<[u8]>, Allowance),
    ) {
        entry.bytes.store(payload.len() as u64, Ordering::Relaxed);
        debug_assert!(entry.content.lock().payload.is_none(), "an entry is prepared once");
        let allowance = Some(Arc::new(allowance));
        *entry.content.lock() = Content { payload: Some(payload), allowance, file: None };
        self.enter_filed(entry, lsn);
    }

    fn enter_filed(&self, entry: &Arc<PreparedEntry>, lsn: Lsn) {
        let before = entry.lsn.swap(lsn, Ordering::AcqRel);
        debug_assert_eq!(before, 0, "a transaction is prepared once");
        self.lists.lock().logged.push(entry.clone());
    }

    /// Enters an entry that an earlier opening has left in a file.
    pub(crate) fn restore(
        &self,
        (xid, isolation): (Xid, Isolation),
        families: Vec<FamilyId>,
        (lsn, bytes): (Lsn, u64),
        file: Arc<LiveFile>,
        held: EntryLocks,
    ) {
        let entry = Arc::new(PreparedEntry::new(xid.clone(), isolation, families));
        entry.bytes.store(bytes, Ordering::Relaxed);
        entry.note_filed(file);
        entry.give(held);
        self.enter_filed(&entry, lsn);
        let before = self.lists.lock().open.insert(xid, entry);
        debug_assert!(before.is_none(), "two transactions in doubt have one name");
    }

    /// The transaction in doubt of this name.
    pub(crate) fn find(&self, xid: &Xid) -> Option<Arc<PreparedEntry>> {
        self.lists.lock().open.get(xid).filter(|entry| entry.is_prepared()).cloned()
    }

    /// Those in doubt, by their names. One whose decision is stored and not durable yet is among
    /// them: a power cut may bring it back.
    pub(crate) fn in_doubt(&self) -> Vec<Arc<PreparedEntry>> {
        let lists = self.lists.lock();
        lists.open.values().filter(|entry| entry.is_prepared()).cloned().collect()
    }

    /// The name of the transaction in doubt that locks know by this number.
    pub(crate) fn xid_of(&self, owner: u64) -> Option<Xid> {
        let is_it = |entry: &&Arc<PreparedEntry>| entry.owner.load(Ordering::Relaxed) == owner;
        self.in_doubt().iter().find(is_it).map(|entry| entry.xid.clone())
    }

    /// Frees the name of an entry that is decided.
    pub(crate) fn close(&self, entry: &Arc<PreparedEntry>) {
        debug_assert_ne!(entry.fate(), Fate::InDoubt, "only a decision ends doubt");
        let mut lists = self.lists.lock();
        if lists.open.get(&entry.xid).is_some_and(|open| Arc::ptr_eq(open, entry)) {
            lists.open.remove(&entry.xid);
        }
    }

    /// All that were prepared below `end`, for the flush that ends there.
    pub(crate) fn below(&self, end: Lsn) -> Vec<Arc<PreparedEntry>> {
        let lists = self.lists.lock();
        lists.logged.iter().filter(|entry| entry.lsn() < end).cloned().collect()
    }

    /// Forgets entries whose decisions are flushed, and their files.
    pub(crate) fn forget(&self, entries: &[Arc<PreparedEntry>]) {
        debug_assert!(
            entries.iter().all(|entry| entry.fate() != Fate::InDoubt),
            "what is in doubt is never forgotten"
        );
        let lsns: HashSet<Lsn> = entries.iter().map(|entry| entry.lsn()).collect();
        // Every prepare takes this lock, so it is held for one walk, and memory is freed after it.
        self.lists.lock().logged.retain(|entry| !lsns.contains(&entry.lsn()));
        entries.iter().for_each(|entry| *entry.content.lock() = Content::default());
    }

    /// Begins the drop of a family: from now on no transaction that names it can be prepared, until
    /// [`PreparedSet::end_drop`]. Fails with the name of one that is.
    pub(crate) fn begin_drop(&self, family: FamilyId) -> Result<(), Xid> {
        let mut lists = self.lists.lock();
        if let Some(entry) = lists.open.values().find(|entry| entry.names(family)) {
            return Err(entry.xid.clone());
        }
        let is_first = lists.dropping.insert(family);
        debug_assert!(is_first, "a family is dropped by one thread at a time");
        Ok(())
    }

    pub(crate) fn end_drop(&self, family: FamilyId) {
        let was_dropping = self.lists.lock().dropping.remove(&family);
        debug_assert!(was_dropping, "a drop ends that has not begun");
    }
}

/// The level of this number.
pub(crate) fn isolation_of(number: u8) -> Isolation {
    const LEVELS: [Isolation; 5] = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Snapshot,
        Isolation::Serializable,
    ];
    LEVELS.get(usize::from(number)).copied().unwrap_or_default()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::fixtures::thread_time;
    use std::time::Duration;

    /// Comparing each of them with all others takes minutes.
    #[test]
    fn very_many_decided_entries_are_forgotten_in_one_walk() {
        let set = PreparedSet::default();
        let count = 200_000;
        for nth in 0..count {
            let xid = Xid::new(nth.to_string().as_bytes());
            let entry = Arc::new(PreparedEntry::new(xid, Isolation::Snapshot, Vec::new()));
            let payload = (Arc::from(&b"payload"[..]), Allowance::endless());
            set.enter(&entry, 64 * (nth + 1), payload);
        }
        let mut entries = set.below(Lsn::MAX);
        let kept = entries.split_off(entries.len() - 3);
        entries.iter().for_each(|entry| entry.decide(entry.lsn() + 8, false));
        entries.reverse();
        let began = thread_time();
        set.forget(&entries);
        let took = thread_time() - began;
        assert!(took < Duration::from_secs(20), "{took:?}");
        let lsns = |entries: &[Arc<PreparedEntry>]| {
            entries.iter().map(|entry| entry.lsn()).collect::<Vec<_>>()
        };
        assert_eq!(lsns(&set.below(Lsn::MAX)), lsns(&kept));
        assert!(entries.iter().all(|entry| entry.content().payload.is_none()));
        assert!(kept.iter().all(|entry| entry.content().payload.is_some()));
    }
}
