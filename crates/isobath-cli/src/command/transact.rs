//! `transact`: a script of operations that happen all together or not at all.
//!
//! The whole script is read before the database is opened, so that a mistake in its last line
//! changes nothing either. A script that was cut short is a mistake: its last line has a newline,
//! one that comes from a pipe ends with the line `commit`, and a file is not empty.

use super::Outcome;
use super::input::Input;
use super::open::{Existing, with_database};
use super::operator::Operator;
use super::output::Output;
use crate::cli::Transact;
use crate::failure::{Failure, Result, say};
use crate::text::Form;
use isobath::{Family, MAX_BATCH_LEN, Transaction, TransactionOptions, WriteOptions};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One line of a script.
#[derive(Debug, PartialEq, Eq)]
enum Operation {
    /// The lines from here on mean this family.
    Family(String),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Delete from a key on, and below another.
    DeleteRange(Vec<u8>, Vec<u8>),
    /// Delete from a key on.
    DeleteFrom(Vec<u8>),
    /// Delete every key.
    DeleteAll,
    /// Delete what begins with this.
    DeletePrefix(Vec<u8>),
    /// Print what the key has, if it is there.
    Get(Vec<u8>),
    /// Go on only if the key has this value.
    Expect(Vec<u8>, Vec<u8>),
    /// Go on only if the key is not there.
    ExpectAbsent(Vec<u8>),
}

/// No transaction holds what is longer: a byte takes four at most, `\xNN`.
const SCRIPT_LEN_MAX: usize = MAX_BATCH_LEN.saturating_mul(5);

pub(super) fn transact(asked: &Transact) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    let script = read(&asked.file, form)?;
    let write = if asked.sync.sync { WriteOptions::sync() } else { WriteOptions::default() };
    let options = TransactionOptions::new().write(write);
    let mut said = String::new();
    let done = with_database(&asked.database.path, |db| {
        let with_operator = |family| (Operator::of(&family), family);
        let mut families = BTreeMap::from([("default", with_operator(db.default_family()))]);
        for (line, operation) in &script {
            if let Operation::Family(name) = operation {
                let family = db.existing(name).map_err(|error| at(*line, error.into()))?;
                families.insert(name.as_str(), with_operator(family));
            }
        }
        // An attempt before may have read something.
        said.clear();
        let tx = db.with(options).begin();
        let mut family = &families["default"];
        for (line, operation) in &script {
            let part = match operation {
                Operation::Family(name) => {
                    family = &families[name.as_str()];
                    continue;
                }
                operation => run(&tx, family, operation, form, &mut said),
            };
            if let Some(unmet) = part.map_err(|failure| at(*line, failure))? {
                say(&format!("isobath: line {line}: {unmet}; nothing was written"));
                return Ok(Outcome::No);
            }
        }
        tx.commit()?;
        Ok(Outcome::Yes)
    });
    // What was read is told also where the database could not be closed.
    let is_done = matches!(done, Ok(Outcome::Yes) | Err(Failure::Unclosed(_)));
    let told = match is_done {
        true => Output::answer(Outcome::Yes, |output| output.bytes(said.as_bytes())),
        false => Ok(Outcome::No),
    };
    done.and_then(|_| told.map_err(Failure::once_done))
}

/// Runs one operation. Returns the expectation that was not met, if there is one.
fn run(
    tx: &Transaction,
    (operator, family): &(Operator, Family),
    operation: &Operation,
    form: Form,
    said: &mut String,
) -> Result<Option<String>> {
    let part = tx.of(family);
    match operation {
        Operation::Family(_) => {}
        Operation::Put(key, value) => {
            operator.takes_value(key, value)?;
            part.put(key, value)?;
        }
        Operation::Delete(key) => part.delete(key)?,
        Operation::DeleteRange(from, to) => part.delete_range(from..to)?,
        Operation::DeleteFrom(from) => part.delete_range(from..)?,
        Operation::DeleteAll => part.delete_range(..)?,
        Operation::DeletePrefix(prefix) => part.delete_prefix(prefix)?,
        Operation::Get(key) => {
            if let Some(value) = part.get(key)? {
                form.put(said, key);
                said.push('\t');
                form.put(said, &value);
                said.push('\n');
            }
        }
        Operation::Expect(key, value) => {
            let found = part.get(key)?;
            if found.as_deref() != Some(value) {
                let found = found.map_or("is not there".to_owned(), |found| {
                    format!("has the value \"{}\"", form.show(&found))
                });
                return Ok(Some(format!("the key \"{}\" {found}", form.show(key))));
            }
        }
        Operation::ExpectAbsent(key) => {
            if part.contains(key)? {
                return Ok(Some(format!("the key \"{}\" is there", form.show(key))));
            }
        }
    }
    Ok(None)
}

/// The operations of a script that is whole, with the numbers of their lines.
fn read(file: &Path, form: Form) -> Result<Vec<(usize, Operation)>> {
    let mut input = Input::open(file)?;
    let script = input.rest(SCRIPT_LEN_MAX)?;
    if script.is_empty() && !input.is_stream() {
        return Err(Failure::Request(format!(
            "{} is empty, as it is if its writer has failed; nothing was written\nhint: a script that \
             does nothing is the line `commit` alone",
            input.name()
        )));
    }
    let (operations, is_ended) = parse(&script, form)?;
    match input.is_stream() && !is_ended {
        true => Err(Failure::Request(format!(
            "{} does not end with the line `commit`, so the script may have been cut short; nothing was written",
            input.name()
        ))),
        false => Ok(operations),
    }
}

fn at(line: usize, failure: Failure) -> Failure {
    Failure::Line(line, Box::new(failure))
}

/// The operations of a script, with the numbers of their lines, and whether it says where it ends.
fn parse(script: &[u8], form: Form) -> Result<(Vec<(usize, Operation)>, bool)> {
    let (mut operations, mut is_ended) = (Vec::new(), false);
    for (nth, whole_line) in script.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = whole_line.strip_suffix(b"\n").unwrap_or(whole_line);
        let is_cut = line.len() == whole_line.len();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let wrong = |what: &str| Err(at(nth + 1, Failure::Request(what.to_owned())));
        if line == b"commit" && !is_ended {
            is_ended = true;
        } else if is_cut && !is_ended {
            return wrong("it has no newline, so the script may have been cut short");
        } else if !line.is_empty() && !line.starts_with(b"#") {
            if is_ended {
                return wrong("nothing may follow `commit`");
            }
            let operation = parse_line(line, form).map_err(|failure| at(nth + 1, failure))?;
            operations.push((nth + 1, operation));
        }
    }
    Ok((operations, is_ended))
}

const SEPARATION: &str = "with a tab in the line, tabs separate the words, otherwise spaces do";

/// The words of a line are separated by tabs if there is one, otherwise by spaces. What a shell
/// makes of a variable that is not set, no word or an empty one, must not delete more than is
/// meant: so what deletes several keys has a verb for each number of bounds, and none is empty.
fn parse_line(line: &[u8], form: Form) -> Result<Operation> {
    let words: Vec<&[u8]> = match line.contains(&b'\t') {
        true => line.split(|byte| *byte == b'\t').collect(),
        false => line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect(),
    };
    let bytes = |word: &[u8]| form.read(OsStr::from_bytes(word));
    let [verb, rest @ ..] = &words[..] else {
        return Err(Failure::Request("there is no operation".to_owned()));
    };
    match (*verb, rest) {
        (b"family", [name]) => Ok(Operation::Family(String::from_utf8_lossy(name).into_owned())),
        (b"put", [key, value]) => Ok(Operation::Put(bytes(key)?, bytes(value)?)),
        (b"delete", [key]) => Ok(Operation::Delete(bytes(key)?)),
        (b"delete_range", [b"", _] | [_, b""]) => Err(is_empty("a bound")),
        (b"delete_range", [from, to]) => delete_range(bytes(from)?, bytes(to)?),
        (b"delete_from", [b""]) => Err(is_empty("the key")),
        (b"delete_from", [from]) => Ok(Operation::DeleteFrom(bytes(from)?)),
        (b"delete_all", []) => Ok(Operation::DeleteAll),
        (b"delete_prefix", [b""]) => Err(is_empty("the prefix")),
        (b"delete_prefix", [prefix]) => Ok(Operation::DeletePrefix(bytes(prefix)?)),
        (b"get", [key]) => Ok(Operation::Get(bytes(key)?)),
        (b"expect", [key, value]) => Ok(Operation::Expect(bytes(key)?, bytes(value)?)),
        (b"expect-absent", [key]) => Ok(Operation::ExpectAbsent(bytes(key)?)),
        (b"put" | b"expect", words) => Err(takes(verb, "a key and a value", words.len())),
        (b"delete" | b"delete_from" | b"get" | b"expect-absent", words) => {
            Err(takes(verb, "a key", words.len()))
        }
        (b"delete_range", words) => {
            let what = "two keys, where the range begins and where it ends (`delete_from KEY` \
                        removes all keys from there on)";
            Err(takes(verb, what, words.len()))
        }
        (b"delete_prefix", words) => Err(takes(verb, "a prefix", words.len())),
        (b"family", words) => Err(takes(verb, "a name", words.len())),
        (b"commit" | b"delete_all", words) => Err(takes(verb, "nothing", words.len())),
        _ => Err(Failure::Request(format!(
            "{:?} is no operation; there are put, delete, delete_range, delete_from, delete_prefix, \
             delete_all, get, expect, expect-absent, family and commit; {SEPARATION}",
            String::from_utf8_lossy(verb)
        ))),
    }
}

fn delete_range(from: Vec<u8>, to: Vec<u8>) -> Result<Operation> {
    match from < to {
        true => Ok(Operation::DeleteRange(from, to)),
        false => Err(Failure::Request(
            "the range ends where it begins or before, so it holds no key: exchange the two bounds"
                .to_owned(),
        )),
    }
}

fn is_empty(what: &str) -> Failure {
    Failure::Request(format!(
        "{what} is empty, as a variable is that is not set; `delete_all` removes all keys"
    ))
}

fn takes(verb: &[u8], what: &str, given: usize) -> Failure {
    Failure::Request(format!(
        "`{}` takes {what}, and {given} are given; {SEPARATION} (a space in a word is \\x20)",
        String::from_utf8_lossy(verb)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(script: &str) -> Vec<(usize, Operation)> {
        parse(format!("{script}\n").as_bytes(), Form::Text).unwrap().0
    }

    #[test]
    fn words_are_separated_by_tabs_if_there_is_one_and_by_spaces_otherwise() {
        let put = |key: &str, value: &str| Operation::Put(key.into(), value.into());
        assert_eq!(parsed("put  a   b"), [(1, put("a", "b"))]);
        assert_eq!(parsed("put\ta b\tc d\r\n"), [(1, put("a b", "c d"))]);
        assert_eq!(parsed("put\tkey\t"), [(1, put("key", ""))]);
        assert_eq!(parsed("# put a b\n\nput a\\x20b c\\n"), [(3, put("a b", "c\n"))]);
        assert_eq!(parsed(""), []);
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for (script, line, word) in [
            ("get a\nput a", 2, "a key and a value"),
            ("put a b c", 1, "3 are given"),
            ("\n\nfetch a", 3, "is no operation"),
            ("expect apple\tred", 1, "tabs separate the words"),
            ("delete \\q", 1, "backslash"),
            ("family", 1, "a name"),
            ("delete_range", 1, "where the range begins"),
            ("delete_range a", 1, "delete_from"),
            ("delete_from", 1, "a key"),
            ("delete_range a b c", 1, "3 are given"),
            ("delete_range m c", 1, "exchange"),
            ("delete_range a \\x61", 1, "exchange"),
            ("delete_prefix", 1, "a prefix"),
            (" ", 1, "no operation"),
            ("put a b\ncommit\nget a", 3, "nothing may follow"),
        ] {
            let script = format!("{script}\n");
            let told = parse(script.as_bytes(), Form::Text).unwrap_err().to_string();
            assert!(told.starts_with(&format!("line {line}: ")), "{told}");
            assert!(told.contains(word) && told.ends_with("nothing was written"), "{told}");
        }
    }
}
