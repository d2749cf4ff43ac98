//! `scan`: a range of keys, one entry a line.

use super::Outcome;
use super::ingest::{END, begin};
use super::open::reading_family;
use super::output::Output;
use crate::cli::{BoundFlags, Scan};
use crate::failure::{Failure, Result, say};
use crate::text::Form;
use crate::when::show_end;
use isobath::{Cursor, Key, Prefix, Value};
use std::ops::Bound;

pub(super) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The least key and the one to stop before. That is not empty: no key is below the empty one, so
/// it is a variable that is not set. An empty least key means what none does. A range that can hold
/// no key is a mistake: what is printed of it looks as if there were nothing.
pub(super) fn bounds(flags: &BoundFlags, form: Form) -> Result<KeyBounds> {
    if flags.to.as_ref().is_some_and(|key| key.is_empty()) {
        return Err(Failure::Request(
            "--to is empty, and no key is below the empty one\nhint: leave it out for all keys from \
             --from on"
                .to_owned(),
        ));
    }
    let from = flags.from.as_ref().map(|key| form.read(key)).transpose()?;
    let to = flags.to.as_ref().map(|key| form.read(key)).transpose()?;
    if let (Some(from), Some(to)) = (&from, &to)
        && to <= from
    {
        return Err(Failure::Request(
            "--to is not above --from, so no key lies between the two\nhint: exchange them, or leave \
             one out"
                .to_owned(),
        ));
    }
    Ok((
        from.map_or(Bound::Unbounded, Bound::Included),
        to.map_or(Bound::Unbounded, Bound::Excluded),
    ))
}

pub(super) fn scan(asked: &Scan) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    let bounds = bounds(&asked.bounds, form)?;
    let prefix = asked.prefix.as_ref().map(|key| form.read(key)).transpose()?;
    let limit = asked.limit.unwrap_or(usize::MAX);
    reading_family(&asked.keyspace, &asked.when, |family| {
        if asked.export {
            let cursor = match prefix {
                Some(prefix) => family.cursor(Prefix(prefix))?,
                None => family.cursor(bounds)?,
            };
            export(cursor, limit, form)?;
            return Ok(Outcome::Yes);
        }
        let range = match prefix {
            Some(prefix) => family.prefix(prefix),
            None => family.range(bounds),
        };
        let without = |key: isobath::Result<Key>| key.map(|key| (key, None));
        let with = |entry: isobath::Result<(Key, Value)>| entry.map(|(key, it)| (key, Some(it)));
        let entries: Box<dyn DoubleEndedIterator<Item = _>> = match asked.keys_only {
            true => Box::new(range.keys().map(without)),
            false => Box::new(range.map(with)),
        };
        if asked.reverse {
            print(Output::new(), entries.rev().take(limit), form, &mut say)?;
        } else {
            print(Output::new(), entries.take(limit), form, &mut say)?;
        }
        Ok(Outcome::Yes)
    })
}

fn print<B: AsRef<[u8]>, C: AsRef<[u8]>>(
    mut output: Output,
    entries: impl Iterator<Item = isobath::Result<(B, Option<C>)>>,
    form: Form,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let (mut line, mut failed, mut told) = (String::new(), None, Ok(()));
    for entry in entries {
        let (key, value) = match entry {
            Ok(entry) => entry,
            // What is read before damage, or behind a value that cannot be read, is right, so it
            // is printed. The last error is told when the command ends.
            Err(error) => {
                if let Some(earlier) = failed.replace(Failure::from(error)) {
                    say(&format!("error: {earlier}"));
                }
                continue;
            }
        };
        line.clear();
        form.put(&mut line, key.as_ref());
        if let Some(value) = value {
            line.push('\t');
            form.put(&mut line, value.as_ref());
        }
        told = output.line(&line);
        if told.is_err() {
            break;
        }
    }
    // An error of the database counts more than who reads the output.
    let told = told.and_then(|()| output.finish());
    failed.map_or(told, Err)
}

/// Prints entries for `ingest`, with the ends of their values.
fn export(cursor: Cursor<'_>, limit: usize, form: Form) -> Result<()> {
    let mut output = Output::new();
    let exported = export_to(&mut output, cursor, limit, form);
    // As for `print`: what was read before damage is right.
    let told = output.finish_durably();
    exported.and(told)
}

/// The last line says that all could be read; without it `ingest` takes nothing.
fn export_to(output: &mut Output, mut cursor: Cursor<'_>, limit: usize, form: Form) -> Result<()> {
    let mut line = String::new();
    output.line(begin(form))?;
    for _ in 0..limit {
        let Some(entry) = cursor.next()? else { break };
        line.clear();
        form.put(&mut line, entry.key());
        line.push('\t');
        form.put(&mut line, entry.value()?);
        line.push('\t');
        line.push_str(&show_end(entry.expiry()));
        output.line(&line)?;
    }
    output.line(END)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// A pipe whose reader is gone.
    struct Closed;

    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_ends_early_does_not_hide_that_a_value_could_not_be_read() {
        let long = vec![b'v'; 1 << 20];
        let entry = || Ok((b"k".as_slice(), Some(&long)));
        // What a scan goes on behind.
        let failed = || Err(isobath::Error::unknown_family("x"));
        let printed = |entries: Vec<_>| {
            print(Output::to(Closed), entries.into_iter(), Form::Text, &mut |_| ())
        };
        for entries in [vec![failed(), entry()], vec![failed()], vec![failed(), entry(), entry()]] {
            let told = printed(entries).unwrap_err();
            assert!(matches!(told, crate::failure::Failure::Engine(_)), "{told}");
        }
        for entries in [vec![entry(), failed()], vec![entry()]] {
            let told = printed(entries).unwrap_err();
            assert!(told.is_closed_output(), "{told}");
        }
    }

    #[test]
    fn each_value_that_cannot_be_read_is_told() {
        let failed = |name| Err::<(&[u8], Option<&[u8]>), _>(isobath::Error::unknown_family(name));
        let entries = ["one", "two", "three"].map(failed).into_iter();
        let mut said = Vec::new();
        let mut say = |line: &str| said.push(line.to_owned());
        let last = print(Output::to(io::sink()), entries, Form::Text, &mut say).unwrap_err();
        said.push(last.to_string());
        let names = ["one", "two", "three"].map(|name| format!("{name:?}"));
        assert!(said.len() == 3 && said.iter().zip(names).all(|(said, name)| said.contains(&name)));
    }
}
