//! The table `ctx` that `load` and `run` are given.

use super::Settings;
use mlua::{Lua, Result, Table, Value};
use std::collections::BTreeMap;

/// Builds the context of one thread. `params` holds the swept values as text; numbers and booleans
/// become what they look like.
pub(super) fn build(
    lua: &Lua,
    settings: &Settings,
    params: &BTreeMap<String, String>,
    thread: u64,
    threads: u64,
) -> Result<Table> {
    let ctx = lua.create_table()?;
    ctx.set("items", settings.items)?;
    ctx.set("users", settings.users)?;
    ctx.set("batch", settings.batch)?;
    ctx.set("value_size", settings.value_size)?;
    ctx.set("key_size", settings.key_size)?;
    ctx.set("seed", settings.seed)?;
    ctx.set("thread", thread)?;
    ctx.set("threads", threads)?;
    ctx.set("first", settings.items * thread / threads)?;
    ctx.set("last", settings.items * (thread + 1) / threads)?;
    ctx.set("iter", 0)?;
    ctx.set("ops", 0)?;
    for (name, text) in params {
        ctx.set(name.as_str(), parameter(lua, text)?)?;
    }
    Ok(ctx)
}

fn parameter(lua: &Lua, text: &str) -> Result<Value> {
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(Value::Integer(integer));
    }
    if let Ok(number) = text.parse::<f64>() {
        return Ok(Value::Number(number));
    }
    match text {
        "true" => Ok(Value::Boolean(true)),
        "false" => Ok(Value::Boolean(false)),
        _ => Ok(Value::String(lua.create_string(text)?)),
    }
}
