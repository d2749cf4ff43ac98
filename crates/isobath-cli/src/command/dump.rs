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
    match (printer.failure.take(), dumped) {
        (Some(failure), _) => return Err(failure),
        (None, Ok(_)) => {}
        // The printer cancels once the limit is reached.
        (None, Err(error)) if matches!(error.kind(), ErrorKind::Cancelled { .. }) => {}
        (None, Err(error)) => {
            printer.output.finish()?;
            return Err(error.into());
        }
    }
    let has_damage = printer.has_damage;
    printer.output.finish()?;
    Ok(if has_damage { Outcome::No } else { Outcome::Yes })
}

struct Printer {
    output: Output,
    form: Form,
    /// Entries, records or edits that may still be printed.
    left: usize,
    line: String,
    /// Why nothing more can be printed.
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
        self.line.clear();
        let indent = item.depth * 2;
        write!(self.line, "{:>10}  {:indent$}{}", item.offset, "", item.name)
            .expect("a string takes everything");
        for (name, value) in item.fields {
            self.field(name, *value);
        }
        self.output.line(&self.line).map_err(|failure| {
            self.failure = Some(failure);
            Error::cancelled()
        })
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
