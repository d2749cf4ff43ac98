//! A `BTreeMap` behind a lock: slow under threads, and right by construction, so it is the oracle
//! that other engines' answers are compared with.
//!
//! It is also the control of the checks: with the knob `lie` it answers wrongly in one way, now and
//! then, and a run on it must fail.

use super::registry::EngineKind;
use super::{
    Access, Body, Durability, Engine, EngineConfig, Operation, RowVisitor, Session, Transactor,
    rerun,
};
use anyhow::{Result, bail};
use parking_lot::{ArcMutexGuard, Mutex, RawMutex, RwLock};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const KIND: EngineKind = EngineKind {
    name: "memory",
    version: || env!("CARGO_PKG_VERSION").to_owned(),
    durabilities: &[Durability::Buffered, Durability::Process, Durability::Sync],
    answers: true,
    transactions: Some("one writer at a time"),
    persistent: false,
    open,
};

/// One in this many calls gives a wrong answer.
const LIE_EVERY: u64 = 97;

/// A way to be wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lie {
    /// A put is forgotten.
    Lost,
    /// A put stores another value.
    Changed,
    /// A delete is forgotten.
    Undead,
    /// A scan leaves a row out.
    Skipped,
    /// A scan ends early.
    Short,
    /// A scan shows a row twice.
    Twice,
    /// A transaction that reads sees what others have written since it began.
    Moving,
}

const LIES: [(&str, Lie); 7] = [
    ("lost", Lie::Lost),
    ("changed", Lie::Changed),
    ("undead", Lie::Undead),
    ("skipped", Lie::Skipped),
    ("short", Lie::Short),
    ("twice", Lie::Twice),
    ("moving", Lie::Moving),
];

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.check_knobs("memory", &["lie"])?;
    let lie = match config.knobs.get("lie") {
        None => None,
        Some(name) => match LIES.iter().find(|(known, _)| known == name) {
            Some((_, lie)) => Some(*lie),
            None => {
                bail!("knob `lie` can't be `{name}` ({})", LIES.map(|(name, _)| name).join(", "))
            }
        },
    };
    Ok(Box::new(Memory { shared: Arc::new(Shared { lie, ..Shared::default() }) }))
}

type Map = BTreeMap<Box<[u8]>, Box<[u8]>>;

#[derive(Default)]
struct Shared {
    map: RwLock<Map>,
    lie: Option<Lie>,
    calls: AtomicU64,
    /// Held by the transaction that writes: they come one after the other.
    writer: Arc<Mutex<()>>,
}

impl Shared {
    /// Whether this call is to be wrong in that way.
    fn lies(&self, how: Lie) -> bool {
        self.lie == Some(how)
            && self.calls.fetch_add(1, Ordering::Relaxed) % LIE_EVERY == LIE_EVERY - 1
    }

    fn apply(&self, map: &mut Map, operation: Operation<'_>) {
        match operation {
            Operation::Put(_, _) if self.lies(Lie::Lost) => {}
            Operation::Delete(_) if self.lies(Lie::Undead) => {}
            Operation::Put(key, value) => {
                let mut value: Box<[u8]> = value.into();
                if self.lies(Lie::Changed)
                    && let Some(first) = value.first_mut()
                {
                    *first ^= 1;
                }
                map.insert(key.into(), value);
            }
            Operation::Delete(key) => {
                map.remove(key);
            }
        }
    }
}

struct Memory {
    shared: Arc<Shared>,
}

impl Engine for Memory {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(MemorySession { shared: Arc::clone(&self.shared) }))
    }

    fn transactor(&self) -> Result<Box<dyn Transactor>> {
        let session = MemorySession { shared: Arc::clone(&self.shared) };
        Ok(Box::new(MemoryTransactor { session, writer: None, undo: Vec::new(), seen: None }))
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        BTreeMap::from([("memory.keys".to_owned(), self.shared.map.read().len() as f64)])
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct MemorySession {
    shared: Arc<Shared>,
}

impl Session for MemorySession {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let mut map = self.shared.map.write();
        operations.iter().for_each(|operation| self.shared.apply(&mut map, *operation));
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let map = self.shared.map.read();
        let value = map.get(key);
        if let Some(value) = value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
        let map = self.shared.map.read();
        for (key, value) in map.range::<[u8], _>((Bound::Included(from), upper)) {
            if self.shared.lies(Lie::Skipped) {
                continue;
            }
            let ends = self.shared.lies(Lie::Twice) && visit(key, value);
            if ends || visit(key, value) || self.shared.lies(Lie::Short) {
                break;
            }
        }
        Ok(())
    }
}

/// The value that a key had, if it had one.
type Before = Option<Box<[u8]>>;

/// One writer at a time, which takes back what it wrote if it fails; a reader has a copy of all.
struct MemoryTransactor {
    session: MemorySession,
    writer: Option<ArcMutexGuard<RawMutex, ()>>,
    /// What each key held that was written, in order.
    undo: Vec<(Box<[u8]>, Before)>,
    seen: Option<MemorySession>,
}

impl MemoryTransactor {
    fn reading(&mut self) -> &mut MemorySession {
        self.seen.as_mut().unwrap_or(&mut self.session)
    }
}

impl Session for MemoryTransactor {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let mut map = self.session.shared.map.write();
        for operation in operations {
            let (Operation::Put(key, _) | Operation::Delete(key)) = *operation;
            self.undo.push((key.into(), map.get(key).cloned()));
            self.session.shared.apply(&mut map, *operation);
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reading().get(key, visit)
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        self.reading().rows(from, to, visit)
    }
}

impl Transactor for MemoryTransactor {
    fn begin(&mut self, access: Access) -> Result<()> {
        let writer = self.session.shared.writer.lock_arc();
        if access == Access::Read && self.session.shared.lie == Some(Lie::Moving) {
            self.seen = None;
        } else if access == Access::Read {
            let map = RwLock::new(self.session.shared.map.read().clone());
            let shared = Arc::new(Shared { map, ..Shared::default() });
            self.seen = Some(MemorySession { shared });
        } else {
            self.writer = Some(writer);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        self.undo.clear();
        self.rollback();
        Ok(true)
    }

    fn rollback(&mut self) {
        let mut map = self.session.shared.map.write();
        for (key, value) in self.undo.drain(..).rev() {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        drop(map);
        (self.seen, self.writer) = (None, None);
    }

    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64> {
        rerun(self, access, body)
    }
}
