//! `ingest`: sorted keys with their values, from lines or from sorted files, all or nothing.
//!
//! An input that was cut short is no input: its last line has a newline, and one that begins with
//! [`BEGIN`], comes from a pipe or has no entries ends with [`END`].
//!
//! What a family holds comes in again as it is: values of an export are not looked into, while
//! those of other lines are refused if the family's operator could not read them.

use super::Outcome;
use super::input::Input;
use super::open::{Existing, with_database};
use super::operator::{Operator, nothing_written};
use crate::cli::Ingest;
use crate::failure::{Failure, Result};
use crate::text::Form;
use crate::when::read_end;
use isobath::IngestFamily;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How every file of the engine begins; no line does.
const MAGIC: &[u8] = b"ISOBATH\0";

/// The first line of an input that has [`END`]. Entries have a tab, these have none.
const BEGIN: &str = "# begin";
/// The first line of what `scan --export` prints: it says in which form, too.
const BEGIN_TEXT: &str = "# begin text";
const BEGIN_HEX: &str = "# begin hex";
/// The last line.
pub(super) const END: &str = "# end";

/// The first line of an export in this form.
pub(super) fn begin(form: Form) -> &'static str {
    match form {
        Form::Text => BEGIN_TEXT,
        Form::Hex => BEGIN_HEX,
    }
}

pub(super) fn ingest(asked: &Ingest) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    with_database(&asked.keyspace.database.path, |db| {
        let family = db.existing(&asked.keyspace.family)?;
        let operator = Operator::of(&family);
        let mut ingest = db.ingest()?;
        for file in &asked.files {
            add(&mut ingest.of(&family), &operator, file, form)?;
        }
        ingest.commit()?;
        if asked.sync.sync {
            db.sync()?;
        }
        Ok(Outcome::Yes)
    })
}

/// Adds a file: lines, or what a `SortedFileWriter` has made.
fn add(part: &mut IngestFamily<'_>, operator: &Operator, file: &Path, form: Form) -> Result<()> {
    let mut input = Input::open(file)?;
    let is_sorted = !input.is_stream() && input.starts_with(MAGIC)?;
    match is_sorted {
        true if file == Path::new("-") => {
            Err(wrong("standard input is a sorted file; name the file"))
        }
        true => Ok(part.add_file(file).map(drop)?),
        false => add_lines(part, operator, &mut input, form),
    }
}

/// Adds lines as `scan` prints them.
fn add_lines(
    part: &mut IngestFamily<'_>,
    operator: &Operator,
    input: &mut Input,
    form: Form,
) -> Result<()> {
    let (mut line, mut begun, mut ended) = (Vec::new(), false, false);
    let mut asked = Some(operator);
    for nth in 1u64.. {
        if !input.line(&mut line)? {
            if nth == 1 && !input.is_stream() {
                return Err(is_empty(input.name()));
            }
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let is_whole = text.len() < line.len();
        let is = |mark: &str| text == mark.as_bytes();
        let added = if ended {
            Err(wrong("nothing may follow `# end`"))
        } else if !is_whole {
            Err(wrong("it has no newline, so the input may have been cut short"))
        } else if text.ends_with(b"\r") {
            Err(Failure::Request(format!(
                "it ends with a carriage return, as lines do of a file with CRLF ends; one that \
                 belongs to a value is written {}",
                form.show(b"\r")
            )))
        } else if is(END) {
            ended = true;
            Ok(())
        } else if nth == 1 && [BEGIN, BEGIN_TEXT, BEGIN_HEX].into_iter().any(is) {
            begun = true;
            if !is(BEGIN) {
                asked = None;
            }
            match form {
                Form::Text if is(BEGIN_HEX) => {
                    Err(wrong("the lines are hexadecimal digits; say --hex"))
                }
                Form::Hex if is(BEGIN_TEXT) => Err(wrong("the lines are text; leave out --hex")),
                _ => Ok(()),
            }
        } else {
            add_line(part, asked, text, form)
        };
        added.map_err(|failure| {
            nothing_written(Failure::Request(format!("{}, line {nth}: {failure}", input.name())))
        })?;
    }
    match !ended && (begun || input.is_stream()) {
        true => Err(Failure::Request(format!(
            "{}: the last line is not `# end`, so the input may have been cut short; nothing was written\n\
             hint: `isobath scan --export` ends so; other programs do by `{{ program && echo '# end'; }} | isobath \
             ingest DB -`",
            input.name()
        ))),
        false => Ok(()),
    }
}

/// Adds the entry of a line: a key, a tab and a value, and perhaps a tab and its end. An operator
/// that is given has to be able to read the value.
fn add_line(
    part: &mut IngestFamily<'_>,
    operator: Option<&Operator>,
    line: &[u8],
    form: Form,
) -> Result<()> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
    let read = |word: &[u8]| form.read(OsStr::from_bytes(word));
    let (key, value, end) = match words[..] {
        [key, value] => (key, value, None),
        [key, value, end] => (key, value, Some(read_end(&String::from_utf8_lossy(end))?)),
        _ => {
            let what = "a key, a tab and a value are wanted, and perhaps a tab and the value's end";
            return Err(wrong(what));
        }
    };
    let (key, value) = (read(key)?, read(value)?);
    operator.map_or(Ok(()), |operator| operator.takes_value(&key, &value))?;
    match end {
        None => part.put(key, value)?,
        Some(end) => part.put_ttl(key, value, end)?,
    }
    Ok(())
}

/// A redirected scan that has failed at once leaves an empty file, as does a killed program that
/// was to make a sorted file.
fn is_empty(name: &str) -> Failure {
    Failure::Request(format!(
        "{name} is empty, as it is if its writer has failed; nothing was written\nhint: no entries \
         are the line `# end` alone"
    ))
}

fn wrong(what: &str) -> Failure {
    Failure::Request(what.to_owned())
}
