//! `create`, `get`, `put`, `expire`, `merge`, `delete`.

use super::Outcome;
use super::input::Input;
use super::open::{changing, family_options, options, reading_family, with_family};
use super::operator::{Operator, nothing_written};
use super::output::Output;
use super::scan::bounds;
use crate::cli::{Create, Delete, Expire, Get, Merge, Put, SyncFlag};
use crate::failure::{Failure, Result};
use crate::text::Form;
use crate::when::{read_end, show_end};
use isobath::{MAX_BATCH_LEN, MAX_VALUE_LEN, WriteOptions};
use std::ffi::OsString;
use std::path::Path;

pub(super) fn create(asked: &Create) -> Result<Outcome> {
    let path = &asked.database.path;
    let options = options()
        .create_if_missing(true)
        .error_if_exists(true)
        .family(family_options(&asked.family)?);
    changing(options, path, |_| Ok(Outcome::Yes))
}

pub(super) fn get(asked: &Get) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    let key = form.read(&asked.key)?;
    reading_family(&asked.keyspace, &asked.when, |family| {
        let mut output = Output::new();
        if asked.expiry {
            // A long value is not read for that.
            let Some(value) = family.get_reader(&key)? else { return Ok(Outcome::No) };
            output.line(&show_end(value.expiry()))?;
            output.finish()?;
            return Ok(Outcome::Yes);
        }
        let Some(value) = family.get(&key)? else { return Ok(Outcome::No) };
        if asked.raw {
            output.bytes(&value)?;
        } else {
            output.line(&form.show(&value))?;
        }
        output.finish()?;
        Ok(Outcome::Yes)
    })
}

pub(super) fn put(asked: &Put) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    let key = form.read(&asked.key)?;
    let value = match (&asked.value.value, &asked.value.from_file) {
        (_, Some(file)) => value_of(file)?,
        (Some(value), None) => form.read(value)?,
        (None, None) => unreachable!("the command line has one of the two"),
    };
    let end = asked.ttl.as_deref().map(read_end).transpose()?;
    with_family(&asked.keyspace, |family| {
        Operator::of(family).takes_value(&key, &value).map_err(nothing_written)?;
        let writes = family.with(write_options(&asked.sync));
        match end {
            None => writes.put(&key, &value)?,
            Some(end) => writes.put_ttl(&key, &value, end)?,
        };
        Ok(Outcome::Yes)
    })
}

/// The value that a file holds. From a writer that has failed there comes nothing.
fn value_of(file: &Path) -> Result<Vec<u8>> {
    let mut input = Input::open(file)?;
    let value = input.rest(MAX_VALUE_LEN.min(MAX_BATCH_LEN))?;
    if value.is_empty() && input.is_stream() {
        return Err(Failure::Request(format!(
            "{} is empty, as it is if its writer has failed; nothing was written\nhint: give the \
             empty value as ''",
            input.name()
        )));
    }
    Ok(value)
}

pub(super) fn expire(asked: &Expire) -> Result<Outcome> {
    let key = Form::of(asked.form.hex).read(&asked.key)?;
    let end = read_end(&asked.end)?;
    with_family(&asked.keyspace, |family| {
        match family.with(write_options(&asked.sync)).set_expiry(&key, end)? {
            true => Ok(Outcome::Yes),
            false => Ok(Outcome::No),
        }
    })
}

pub(super) fn merge(asked: &Merge) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    let (key, operand) = (form.read(&asked.key)?, form.read(&asked.operand)?);
    with_family(&asked.keyspace, |family| {
        let operator = Operator::of(family);
        operator.takes_operand(&key, &operand).map_err(nothing_written)?;
        operator.takes_present_value(family, &key)?;
        family.with(write_options(&asked.sync)).merge(&key, &operand)?;
        Ok(Outcome::Yes)
    })
}

pub(super) fn delete(asked: &Delete) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    let key = asked.key.as_ref().map(|key| form.read(key)).transpose()?;
    let prefix = asked.prefix.as_ref().map(|prefix| form.read(prefix)).transpose()?;
    let given = [("prefix", &asked.prefix), ("from", &asked.bounds.from), ("to", &asked.bounds.to)];
    let is_empty = |key: &Option<OsString>| key.as_ref().is_some_and(|key| key.is_empty());
    if let Some((name, _)) = given.iter().find(|(_, key)| is_empty(key)) {
        // What a shell makes of a variable that is not set must not delete everything.
        return Err(Failure::Request(format!(
            "--{name} is empty; nothing was deleted\nhint: leave it out, or say --all for all keys"
        )));
    }
    let range = bounds(&asked.bounds, form)?;
    with_family(&asked.keyspace, |family| {
        let writes = family.with(write_options(&asked.sync));
        match (&key, &prefix) {
            (Some(key), _) => writes.delete(key)?,
            (None, Some(prefix)) => writes.delete_prefix(prefix)?,
            (None, None) => writes.delete_range(range.clone())?,
        };
        Ok(Outcome::Yes)
    })
}

fn write_options(flag: &SyncFlag) -> WriteOptions {
    if flag.sync { WriteOptions::sync() } else { WriteOptions::default() }
}
