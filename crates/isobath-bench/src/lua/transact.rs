//! `kv.transact(f)` and `kv.tally(name, amount)`.
//!
//! ```text
//! kv.transact(f) -> committed   does f in a transaction, again while others are in its way; the
//!                               verbs in f act in it; when f returns false it is rolled back
//! kv.tally(name, amount)        adds to a number that `check` sees as ctx.tally[name]; in a
//!                               transaction that is rolled back it adds nothing
//! ```

use super::convert::{engine_error, nested};
use super::state::ThreadState;
use crate::engine::{Access, Conflict, Operation, RowVisitor, Session, Transactor, back_off};
use crate::measure::OpKind;
use anyhow::Result as EngineResult;
use mlua::{Error, Function, Lua, Result, Table};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

/// A thread's plain way into an engine, and the transaction that has begun, if one has.
pub(super) struct Ways {
    pub(super) plain: Box<dyn Session>,
    /// Made when the first transaction begins.
    transactor: Option<Box<dyn Transactor>>,
    within: bool,
    /// Whether a verb of this transaction met a conflict.
    conflicted: bool,
}

impl Ways {
    pub(super) fn new(plain: Box<dyn Session>, transactor: Option<Box<dyn Transactor>>) -> Ways {
        Ways { plain, transactor, within: false, conflicted: false }
    }

    fn transactor(&mut self) -> Result<&mut Box<dyn Transactor>> {
        self.transactor.as_mut().ok_or_else(|| {
            Error::runtime("this engine has no transactions, which kv.transact needs")
        })
    }

    fn begin(&mut self) -> Result<()> {
        self.transactor()?.begin(Access::Write).map_err(engine_error)?;
        (self.within, self.conflicted) = (true, false);
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        self.within = false;
        self.transactor()?.commit().map_err(engine_error)
    }

    fn rollback(&mut self) -> Result<()> {
        self.within = false;
        self.transactor()?.rollback();
        Ok(())
    }

    fn active<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Session) -> EngineResult<T>,
    ) -> EngineResult<T> {
        let outcome = match self.transactor.as_mut().filter(|_| self.within) {
            Some(transactor) => call(transactor.as_mut()),
            None => call(self.plain.as_mut()),
        };
        self.conflicted |= outcome.as_ref().is_err_and(|error| error.is::<Conflict>());
        outcome
    }
}

impl Session for Ways {
    fn put(&mut self, key: &[u8], value: &[u8]) -> EngineResult<()> {
        self.active(|session| session.put(key, value))
    }

    fn delete(&mut self, key: &[u8]) -> EngineResult<()> {
        self.active(|session| session.delete(key))
    }

    fn write_batch(&mut self, operations: &[Operation<'_>]) -> EngineResult<()> {
        self.active(|session| session.write_batch(operations))
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> EngineResult<bool> {
        self.active(|session| session.get(key, visit))
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, &[u8]),
    ) -> EngineResult<()> {
        self.active(|session| session.multi_get(keys, visit))
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> EngineResult<()> {
        self.active(|session| session.rows(from, to, visit))
    }

    fn seek(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> EngineResult<bool> {
        self.active(|session| session.seek(key, visit))
    }
}

pub(super) fn install(lua: &Lua, kv: &Table, state: &Rc<RefCell<ThreadState>>) -> Result<()> {
    let shared = Rc::clone(state);
    let function = lua.create_function(move |_, body: Function| transact(&shared, &body))?;
    kv.set("transact", function)?;
    let shared = Rc::clone(state);
    let function = lua.create_function(move |_, (name, amount): (String, i64)| {
        let mut state = shared.try_borrow_mut().map_err(|_| nested())?;
        *state.tallies.entry(name).or_default() += amount;
        Ok(())
    })?;
    kv.set("tally", function)
}

fn transact(shared: &RefCell<ThreadState>, body: &Function) -> Result<bool> {
    let borrow = || shared.try_borrow_mut().map_err(|_| nested());
    let (tallies, written) = {
        let state = borrow()?;
        if state.session.within {
            return Err(Error::runtime("kv.transact can't be called within kv.transact"));
        }
        (state.tallies.clone(), state.share.user_bytes_written)
    };
    let start = Instant::now();
    let mut aborts = 0;
    loop {
        {
            let mut state = borrow()?;
            state.check_stop()?;
            state.session.begin()?;
        }
        let wanted = body.call::<Option<bool>>(());
        let mut state = borrow()?;
        let committed = match wanted {
            Ok(wanted) if wanted != Some(false) => state.session.commit()?,
            Ok(_) => {
                state.session.rollback()?;
                (state.tallies, state.share.user_bytes_written) = (tallies, written);
                return Ok(false);
            }
            Err(error) => {
                state.session.rollback()?;
                if !state.session.conflicted {
                    return Err(error);
                }
                false
            }
        };
        if committed {
            state.record(OpKind::Txn, start.elapsed(), 0);
            return Ok(true);
        }
        state.tallies.clone_from(&tallies);
        state.share.user_bytes_written = written;
        state.share.aborts += 1;
        aborts += 1;
        drop(state);
        back_off(aborts);
    }
}
