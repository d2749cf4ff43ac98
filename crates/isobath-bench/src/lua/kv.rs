//! The global `kv`: the verbs of a workload.
//!
//! ```text
//! kv.put(key [, value])        kv.get(key) -> string or nil     kv.del(key)
//! kv.touch(key) -> found       a get that doesn't make a Lua string of the value
//! kv.range(from, to, limit) -> {{key, value}, ...}
//! kv.walk(from, to, limit) -> rows, bytes       a range that makes no Lua strings
//! kv.scan(from, to, f)         f(key, value) for each row until it returns true
//! kv.seek(key) -> key, value of the first row at or after key
//! kv.mput(keys [, values])     kv.mget(keys) -> {value or false, ...}
//! kv.mtouch(keys) -> found     kv.mdel(keys)
//! kv.transact(f), kv.tally(name, amount)       see `transact`
//! ```
//!
//! Ranges are half-open, `nil` as `to` is the end. Keys are strings or integers, see `state`.

use super::check::RowCheck;
use super::convert::{engine_error, nested};
use super::state::{Arena, ThreadState, append_key, append_value, timed};
use crate::engine::{Operation, Session};
use crate::measure::OpKind;
use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, Result, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of rows that a scan gathers before it calls back.
const SCAN_CHUNK: usize = 1 << 18;

type Shared = Rc<RefCell<ThreadState>>;

pub(super) fn install(lua: &Lua, state: &Shared) -> Result<()> {
    let table = lua.create_table()?;
    add(lua, &table, state, "put", put)?;
    add(lua, &table, state, "del", delete)?;
    add(lua, &table, state, "get", get)?;
    add(lua, &table, state, "touch", touch)?;
    add(lua, &table, state, "seek", seek)?;
    add(lua, &table, state, "range", range)?;
    add(lua, &table, state, "walk", walk)?;
    add(lua, &table, state, "mput", put_many)?;
    add(lua, &table, state, "mdel", delete_many)?;
    add(lua, &table, state, "mget", get_many)?;
    add(lua, &table, state, "mtouch", touch_many)?;
    let shared = Rc::clone(state);
    table.set("scan", lua.create_function(move |lua, arguments| scan(lua, &shared, arguments))?)?;
    super::transact::install(lua, &table, state)?;
    lua.globals().set("kv", table)
}

fn add<A, R>(
    lua: &Lua,
    table: &Table,
    state: &Shared,
    name: &str,
    verb: fn(&Lua, &mut ThreadState, A) -> Result<R>,
) -> Result<()>
where
    A: FromLuaMulti + 'static,
    R: IntoLuaMulti + 'static,
{
    let shared = Rc::clone(state);
    let function = lua.create_function(move |lua, arguments: A| {
        let mut state = shared.try_borrow_mut().map_err(|_| nested())?;
        state.check_stop()?;
        verb(lua, &mut state, arguments)
    })?;
    table.set(name, function)
}

fn put(_: &Lua, state: &mut ThreadState, (key, value): (Value, Value)) -> Result<()> {
    state.set_key(&key)?;
    state.set_value(&value)?;
    let (result, elapsed) = timed(|| state.session.put(&state.key, &state.value));
    result.map_err(engine_error)?;
    state.share.user_bytes_written += (state.key.len() + state.value.len()) as u64;
    state.record(OpKind::Put, elapsed, 1);
    Ok(())
}

fn delete(_: &Lua, state: &mut ThreadState, key: Value) -> Result<()> {
    state.set_key(&key)?;
    let (result, elapsed) = timed(|| state.session.delete(&state.key));
    result.map_err(engine_error)?;
    state.share.user_bytes_written += state.key.len() as u64;
    state.record(OpKind::Del, elapsed, 1);
    Ok(())
}

fn get(lua: &Lua, state: &mut ThreadState, key: Value) -> Result<Option<mlua::LuaString>> {
    let found = look_up(state, &key)?;
    found.then(|| lua.create_string(&state.value)).transpose()
}

fn touch(_: &Lua, state: &mut ThreadState, key: Value) -> Result<bool> {
    look_up(state, &key)
}

/// Leaves the value in `state.value`.
fn look_up(state: &mut ThreadState, key: &Value) -> Result<bool> {
    state.set_key(key)?;
    let ThreadState { session, key, value, .. } = state;
    let (result, elapsed) = timed(|| {
        session.get(key, &mut |bytes| {
            value.clear();
            value.extend_from_slice(bytes);
        })
    });
    let found = result.map_err(engine_error)?;
    if found {
        state.share.user_bytes_read += state.value.len() as u64;
        if let Some(fault) = state.provenance.fault(&state.values, &state.key, &state.value) {
            return Err(fault.error(&state.key));
        }
    }
    state.count_lookups(u64::from(found), 1);
    state.record(OpKind::Get, elapsed, 1);
    Ok(found)
}

type MaybeRow = (Option<mlua::LuaString>, Option<mlua::LuaString>);

fn seek(lua: &Lua, state: &mut ThreadState, key: Value) -> Result<MaybeRow> {
    state.set_key(&key)?;
    state.arena.clear();
    let ThreadState { session, key, arena, .. } = state;
    let (result, elapsed) = timed(|| {
        session.seek(key, &mut |key, value| {
            arena.push(key);
            arena.push(value);
        })
    });
    let found = result.map_err(engine_error)?;
    state.record(OpKind::Seek, elapsed, 1);
    state.check_rows(false)?;
    if !found {
        return Ok((None, None));
    }
    Ok((Some(lua.create_string(state.arena.get(0))?), Some(lua.create_string(state.arena.get(1))?)))
}

type RangeArguments = (Value, Value, Option<u64>);

fn range(lua: &Lua, state: &mut ThreadState, (from, to, limit): RangeArguments) -> Result<Table> {
    let limit = limit.unwrap_or(u64::MAX);
    state.set_key(&from)?;
    let bounded = state.set_key_end(&to)?;
    state.arena.clear();
    let ThreadState { session, key, key_end, arena, .. } = state;
    let mut rows = 0;
    let (result, elapsed) = timed(|| {
        session.scan(key, bounded.then_some(key_end.as_slice()), &mut |key, value| {
            if rows == limit {
                return true;
            }
            arena.push(key);
            arena.push(value);
            rows += 1;
            rows == limit
        })
    });
    result.map_err(engine_error)?;
    state.share.user_bytes_read += state.arena.bytes.len() as u64;
    state.record(OpKind::Range, elapsed, rows.max(1));
    state.check_rows(bounded)?;
    let table = lua.create_table_with_capacity(rows as usize, 0)?;
    for row in 0..rows as usize {
        let pair = [
            lua.create_string(state.arena.get(2 * row))?,
            lua.create_string(state.arena.get(2 * row + 1))?,
        ];
        table.raw_set(row + 1, pair)?;
    }
    Ok(table)
}

fn walk(_: &Lua, state: &mut ThreadState, (from, to, limit): RangeArguments) -> Result<(u64, u64)> {
    let limit = limit.unwrap_or(u64::MAX);
    state.set_key(&from)?;
    let bounded = state.set_key_end(&to)?;
    state.last.clear();
    let ThreadState { session, key, key_end, values, provenance, last, .. } = state;
    let to = bounded.then_some(key_end.as_slice());
    let mut check = RowCheck { provenance, values, from: key, to, last, fault: None };
    let (mut rows, mut bytes) = (0, 0);
    let (result, elapsed) = timed(|| {
        session.scan(key, to, &mut |key, value| {
            if rows == limit {
                return true;
            }
            rows += 1;
            bytes += (key.len() + value.len()) as u64;
            check.wrong(key, value) || rows == limit
        })
    });
    result.map_err(engine_error)?;
    check.outcome()?;
    state.share.user_bytes_read += bytes;
    state.record(OpKind::Range, elapsed, rows.max(1));
    Ok((rows, bytes))
}

/// Where a scan goes on, what it has gathered, what it took: its own, so that its callback may use
/// every verb.
struct Scan {
    next: Vec<u8>,
    end: Option<Vec<u8>>,
    chunk: Arena,
    rows: u64,
    elapsed: Duration,
}

/// Gathers rows in chunks and calls back between them, so that Lua's time isn't the engine's. The
/// scan is resumed after the last key of a chunk, which costs it a seek for each quarter mebibyte.
fn scan(lua: &Lua, shared: &Shared, (from, to, callback): (Value, Value, Function)) -> Result<u64> {
    let mut scan = {
        let mut state = shared.try_borrow_mut().map_err(|_| nested())?;
        state.check_stop()?;
        state.set_key(&from)?;
        let end = state.set_key_end(&to)?.then(|| state.key_end.clone());
        let chunk = std::mem::take(&mut state.arena);
        Scan { next: state.key.clone(), end, chunk, rows: 0, elapsed: Duration::ZERO }
    };
    let outcome = loop {
        let full = match gather(&mut shared.borrow_mut(), &mut scan) {
            Ok(full) => full,
            Err(error) => break Err(error),
        };
        match call_back(lua, &scan.chunk, &callback) {
            Ok(stopped) if stopped || !full => break Ok(scan.rows),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    let mut state = shared.borrow_mut();
    state.record(OpKind::Scan, scan.elapsed, scan.rows.max(1));
    state.arena = scan.chunk;
    outcome
}

/// Fills the chunk; `true` when there may be more.
fn gather(state: &mut ThreadState, scan: &mut Scan) -> Result<bool> {
    let Scan { next, end, chunk, .. } = scan;
    chunk.clear();
    let (result, elapsed) = timed(|| {
        state.session.scan(next, end.as_deref(), &mut |key, value| {
            chunk.push(key);
            chunk.push(value);
            chunk.bytes.len() >= SCAN_CHUNK
        })
    });
    result.map_err(engine_error)?;
    state.last.clear();
    let mut check = RowCheck {
        provenance: &state.provenance,
        values: &state.values,
        from: next,
        to: end.as_deref(),
        last: &mut state.last,
        fault: None,
    };
    (0..chunk.len() / 2).any(|row| check.wrong(chunk.get(2 * row), chunk.get(2 * row + 1)));
    check.outcome()?;
    let full = chunk.bytes.len() >= SCAN_CHUNK;
    if full {
        // The least key after the last one.
        next.clear();
        next.extend_from_slice(chunk.get(chunk.len() - 2));
        next.push(0);
    }
    state.share.user_bytes_read += chunk.bytes.len() as u64;
    scan.rows += chunk.len() as u64 / 2;
    scan.elapsed += elapsed;
    Ok(full)
}

fn call_back(lua: &Lua, chunk: &Arena, callback: &Function) -> Result<bool> {
    for row in 0..chunk.len() / 2 {
        let (key, value) =
            (lua.create_string(chunk.get(2 * row))?, lua.create_string(chunk.get(2 * row + 1))?);
        if callback.call::<Option<bool>>((key, value))?.unwrap_or(false) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Puts the keys of a list into the arena; returns how many.
fn gather_keys(state: &mut ThreadState, keys: &Table) -> Result<usize> {
    state.arena.clear();
    for key in keys.sequence_values::<Value>() {
        append_key(&state.settings, &key?, &mut state.arena.bytes)?;
        state.arena.seal();
    }
    Ok(state.arena.len())
}

fn put_many(
    _: &Lua,
    state: &mut ThreadState,
    (keys, values): (Table, Option<Table>),
) -> Result<()> {
    let count = gather_keys(state, &keys)?;
    for place in 1..=count {
        let value =
            values.as_ref().map_or(Ok(Value::Nil), |values| values.raw_get::<Value>(place))?;
        let of = (state.arena.get(place - 1), state.rng.next() as u8);
        // The arena can't lend a key while it grows.
        state.value.clear();
        append_value(&state.values, &state.provenance, of, &value, &mut state.value)?;
        state.arena.push(&state.value);
    }
    let ThreadState { session, arena, .. } = state;
    let operations: Vec<Operation<'_>> = (0..count)
        .map(|index| Operation::Put(arena.get(index), arena.get(count + index)))
        .collect();
    let (result, elapsed) = timed(|| session.write_batch(&operations));
    result.map_err(engine_error)?;
    state.share.user_bytes_written += state.arena.bytes.len() as u64;
    state.record(OpKind::Mput, elapsed, count as u64);
    Ok(())
}

fn delete_many(_: &Lua, state: &mut ThreadState, keys: Table) -> Result<()> {
    let count = gather_keys(state, &keys)?;
    let ThreadState { session, arena, .. } = state;
    let operations: Vec<Operation<'_>> = arena.iter().map(Operation::Delete).collect();
    let (result, elapsed) = timed(|| session.write_batch(&operations));
    result.map_err(engine_error)?;
    state.share.user_bytes_written += state.arena.bytes.len() as u64;
    state.record(OpKind::Mdel, elapsed, count as u64);
    Ok(())
}

fn get_many(lua: &Lua, state: &mut ThreadState, keys: Table) -> Result<Table> {
    let count = gather_keys(state, &keys)?;
    // Values are copied while they are pinned, and made into Lua strings after the clock has
    // stopped.
    let mut values: Vec<Option<Vec<u8>>> = vec![None; count];
    look_up_many(state, &mut |index, value| values[index] = Some(value.to_vec()))?;
    let table = lua.create_table_with_capacity(count, 0)?;
    for (index, value) in values.into_iter().enumerate() {
        let value = match value {
            Some(bytes) => Value::String(lua.create_string(bytes)?),
            None => Value::Boolean(false),
        };
        table.raw_set(index + 1, value)?;
    }
    Ok(table)
}

fn touch_many(_: &Lua, state: &mut ThreadState, keys: Table) -> Result<u64> {
    gather_keys(state, &keys)?;
    // The check of each value touches it.
    look_up_many(state, &mut |_, _| ())
}

fn look_up_many(state: &mut ThreadState, visit: &mut dyn FnMut(usize, &[u8])) -> Result<u64> {
    let ThreadState { session, arena, provenance, values, .. } = state;
    let keys: Vec<&[u8]> = arena.iter().collect();
    let (mut found, mut bytes, mut wrong) = (0, 0, None);
    let (result, elapsed) = timed(|| {
        session.multi_get(&keys, &mut |index, value| {
            found += 1;
            bytes += value.len() as u64;
            if let Some(fault) = provenance.fault(values, keys[index], value) {
                wrong = Some((index, fault));
            }
            visit(index, value);
        })
    });
    result.map_err(engine_error)?;
    if let Some((index, fault)) = wrong {
        return Err(fault.error(keys[index]));
    }
    let count = keys.len() as u64;
    state.share.user_bytes_read += bytes;
    state.count_lookups(found, count);
    state.record(OpKind::Mget, elapsed, count);
    Ok(found)
}
