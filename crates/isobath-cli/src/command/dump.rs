//! `dump`: what one file of a database says, with offsets.

use super::Outcome;
use super::output::Output;
use crate::cli::Dump;
use crate::failure::{Failure, Result};
use crate::text::Form;
use isobath::Env;
use isobath::tools::{self, DumpItem, Field};
use isobath::{Error, ErrorKind};
use std::fmt::Write;

pub(super) fn dump(asked: &Dump) -> Result<Outcome> {
    if asked.file.is_dir() {
        return Err(Failure::Request(format!(
            "{} is a directory; give one of the files in it: CURRENT, MANIFEST-*, table/*.tbl or wal/*.wal",
            asked.file.display()
        )));
    }
    let mut printer = Printer {
        output: Output::new(),
        form: Form::of(asked.form.hex),
        left: asked.limit.unwrap_or(usize::MAX),
        line: String::new(),
        failure: None,
        has_damage: false,
    };
    let dumped = tools::dump(&asked.file, &Env::system(), &mut |item| printer.item(item));
    let outcome = if printer.has_damage { Outcome::No } else { Outcome::Yes };
    let printed = match printer.failure {
        None => printer.output.finish(),
        Some(failure) => Err(failure),
    };
    match (printed, dumped) {
        (Err(failure), _) if !failure.is_closed_output() => Err(failure),
        // The printer cancels once the limit is reached.
        (_, Err(error)) if !matches!(error.kind(), ErrorKind::Cancelled { .. }) => {
            Err(error.into())
        }
        _ => Ok(outcome),
    }
}

struct Printer {
    output: Output,
    form: Form,
    /// Entries, records or edits that may still be printed.
    left: usize,
    line: String,
    /// Why nothing more is printed.
    failure: Option<Failure>,
    has_damage: bool,
}

impl Printer {
    /// Prints an item on a line of its own: offset, name, fields.
    fn item(&mut self, item: &DumpItem<'_>) -> isobath::Result<()> {
        if matches!(item.name, "edit" | "record" | "entry") {
            self.left = self.left.checked_sub(1).ok_or_else(Error::cancelled)?;
        }
        self.has_damage |= item.name == "damage";
        if self.failure.is_some() {
            // The reader has ended early; what is left is still asked for damage.
            return Ok(());
        }
        self.line.clear();
        let indent = item.depth * 2;
        write!(self.line, "{:>10}  {:indent$}{}", item.offset, "", item.name)
            .expect("a string takes everything");
        for (name, value) in item.fields {
            self.field(name, *value);
        }
        let Err(failure) = self.output.line(&self.line) else { return Ok(()) };
        let goes_on = failure.is_closed_output();
        self.failure = Some(failure);
        if goes_on { Ok(()) } else { Err(Error::cancelled()) }
    }

    fn field(&mut self, name: &str, value: Field<'_>) {
        self.line.push(' ');
        // A field without a name is a sentence, and stands alone.
        if !name.is_empty() {
            self.line.push_str(name);
            self.line.push('=');
        }
        match value {
            Field::Number(number) => self.line.push_str(&number.to_string()),
            Field::Lsn(lsn) => {
                write!(self.line, "{lsn:#x}").expect("a string takes everything");
            }
            Field::Bytes(bytes) => self.form.put(&mut self.line, bytes),
            Field::Text(text) => Form::Text.put(&mut self.line, text.as_bytes()),
            _ => self.line.push('?'),
        }
    }
}
