//! Why a command could not be done, and what to do about it where the engine's own message is
//! written for programmers.

use isobath::{Error, ErrorKind, NotADatabaseCause};
use std::fmt;
use std::io::{self, Write};

/// Anything that ends a command with exit code 2.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine refused or failed.
    Engine(Error),
    /// What was asked makes no sense.
    Request(String),
    /// Standard input could not be read.
    Input(io::Error),
    /// Standard output could not be written.
    Output(io::Error),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
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
            Failure::Input(error) => write!(f, "could not read standard input: {error}"),
            Failure::Output(error) => write!(f, "could not write the output: {error}"),
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
        _ => write!(f, "{error}"),
    }
}
