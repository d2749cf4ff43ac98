//! A `BTreeMap` behind a lock: slow under threads, and right by construction, so it is the oracle
//! that other engines' answers are compared with.

use super::{Engine, EngineConfig, Operation, RowVisitor, Session};
use anyhow::Result;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Map = BTreeMap<Box<[u8]>, Box<[u8]>>;

pub(super) fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.check_knobs("memory", &[])?;
    Ok(Box::new(Memory { map: Arc::default() }))
}

struct Memory {
    map: Arc<RwLock<Map>>,
}

impl Engine for Memory {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(MemorySession { map: Arc::clone(&self.map) }))
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        BTreeMap::from([("memory.keys".to_owned(), self.map.read().len() as f64)])
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct MemorySession {
    map: Arc<RwLock<Map>>,
}

impl Session for MemorySession {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.map.write().insert(key.into(), value.into());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.map.write().remove(key);
        Ok(())
    }

    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let mut map = self.map.write();
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => {
                    map.insert(key.into(), value.into());
                }
                Operation::Delete(key) => {
                    map.remove(key);
                }
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let map = self.map.read();
        let value = map.get(key);
        if let Some(value) = value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
        let map = self.map.read();
        for (key, value) in map.range::<[u8], _>((Bound::Included(from), upper)) {
            if visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
