//! An engine that does nothing: a run on it costs what the harness itself costs.

use super::registry::EngineKind;
use super::{
    Access, Body, Durability, Engine, EngineConfig, Operation, RowVisitor, Session, Transactor,
    rerun,
};
use anyhow::Result;
use std::hint::black_box;

pub(super) const KIND: EngineKind = EngineKind {
    name: "null",
    version: || env!("CARGO_PKG_VERSION").to_owned(),
    durabilities: &[Durability::Buffered, Durability::Process, Durability::Sync],
    answers: false,
    transactions: Some("that do nothing"),
    persistent: false,
    open,
};

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.check_knobs("null", &[])?;
    Ok(Box::new(Null))
}

struct Null;

impl Engine for Null {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(NullSession))
    }

    fn transactor(&self) -> Result<Box<dyn Transactor>> {
        Ok(Box::new(NullSession))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct NullSession;

impl Session for NullSession {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        black_box((key, value));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        black_box(key);
        Ok(())
    }

    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        black_box(operations);
        Ok(())
    }

    fn get(&mut self, key: &[u8], _visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        black_box(key);
        Ok(false)
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, _visit: RowVisitor<'_>) -> Result<()> {
        black_box((from, to));
        Ok(())
    }
}

impl Transactor for NullSession {
    fn begin(&mut self, access: Access) -> Result<()> {
        black_box(access);
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn rollback(&mut self) {}

    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64> {
        rerun(self, access, body)
    }
}
