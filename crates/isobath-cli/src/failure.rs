//! Why a command could not be done, and what to do about it where the engine's own message is
//! written for programmers.

use isobath::{Error, ErrorKind, NotADatabaseCause};
use std::fmt;
use std::io::{self, Write};

/// Anything that ends a command with exit code 2 or 3.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine refused or failed.
    Engine(Error),
    /// What was asked makes no sense.
    Request(String),
    /// A line of a script, by its number, could not be done, and so nothing was.
    Line(usize, Box<Failure>),
    /// Standard output could not be written.
    Output(io::Error),
    /// It was done, and then the database could not be closed.
    Unclosed(Error),
    /// It was done, and then standard output could not be written.
    Untold(io::Error),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The same failure of a command that had done all but telling what it did.
    pub(crate) fn once_done(self) -> Failure {
        match self {
            Failure::Output(error) => Failure::Untold(error),
            other => other,
        }
    }

    /// What a transaction would have held in memory, if that was too much.
    pub(crate) fn needed_bytes(&self) -> Option<u64> {
        match self {
            Failure::Line(_, why) => why.needed_bytes(),
            Failure::Engine(error) => match error.kind() {
                ErrorKind::TransactionTooLarge { needed, .. } => Some(*needed),
                _ => None,
            },
            _ => None,
        }
    }

    /// The exit code: whether a script may repeat the command without a look.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Unclosed(_) | Failure::Untold(_) => 3,
            Failure::Engine(error) if error.is_outcome_unknown() => 3,
            _ => 2,
        }
    }
}

/// Says something on standard error. Where that takes nothing, the exit code has to do.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Engine(error) => explain(error, f),
            Failure::Request(what) => write!(f, "{what}"),
            Failure::Line(line, why) => write!(f, "line {line}: {why}; nothing was written"),
            Failure::Output(error) => write!(f, "could not write the output: {error}"),
            Failure::Unclosed(error) => {
                write!(f, "it was done, but the database could not be closed: ")?;
                explain(error, f)?;
                match error.is_retryable() {
                    true => write!(
                        f,
                        "\nhint: do not repeat it: the log holds it, and the next command that writes \
                         takes it from there"
                    ),
                    // That has the hint already.
                    false if error.is_outcome_unknown() => Ok(()),
                    false => {
                        write!(
                            f,
                            "\nhint: do not repeat it before you have looked whether it is there"
                        )
                    }
                }
            }
            Failure::Untold(error) => write!(
                f,
                "it was done, but the output could not be written: {error}\nhint: do not repeat it"
            ),
        }
    }
}

/// The engine's words, or better ones for a person at a shell.
fn explain(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error.kind() {
        ErrorKind::NotADatabase { path, cause, .. } => {
            let is_there = path.exists();
            let path = path.display();
            if !is_there {
                write!(f, "there is no directory {path}")?;
                return write!(
                    f,
                    "\nhint: check the path, or create a database with `isobath create {path}`"
                );
            }
            write!(f, "{path} is not an Isobath database: {cause}")?;
            match cause {
                NotADatabaseCause::Empty
                | NotADatabaseCause::InterruptedCreate
                | NotADatabaseCause::NotCreated => {
                    write!(f, "\nhint: check the path, or create one with `isobath create {path}`")
                }
                NotADatabaseCause::OtherFiles => write!(f, "\nhint: check the path"),
                _ => Ok(()),
            }
        }
        ErrorKind::AlreadyExists { path, .. } => {
            write!(f, "{} holds a database already", path.display())?;
            write!(f, "\nhint: use it as it is, or give another directory")
        }
        ErrorKind::PointTooOld { .. } => {
            write!(f, "{error}")?;
            write!(
                f,
                "\nhint: earlier states are kept only from the first open with `Options::history` on"
            )
        }
        ErrorKind::UnknownFamily { name, .. } => {
            write!(f, "there is no column family {name:?}")?;
            write!(f, "\nhint: `isobath families list` names those there are")
        }
        ErrorKind::OutcomeUnknown { .. } => {
            write!(f, "{error}")?;
            write!(f, "\nhint: do not repeat it before you have looked whether it is there")
        }
        _ => write!(f, "{error}"),
    }
}
