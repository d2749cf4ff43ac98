//! Why a command could not be done, with what to do about it where the engine's own words speak to programmers.

use isobath::Error;
use std::fmt;
use std::io;

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

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Engine(Error::NotADatabase { path, detail }) => {
                let is_there = path.exists();
                let path = path.display();
                if !is_there {
                    write!(f, "there is no {path}")?;
                    return write!(
                        f,
                        "\nhint: check the path, or create a database with `isobath create {path}`"
                    );
                }
                write!(f, "{path} is not an Isobath database: {detail}")?;
                if detail.contains("isobath repair") {
                    return Ok(());
                }
                write!(f, "\nhint: check the path, or create one with `isobath create {path}`")
            }
            Failure::Engine(Error::UnknownFamily(name)) => {
                write!(f, "there is no column family {name:?}")?;
                write!(f, "\nhint: `isobath families list` names those there are")
            }
            Failure::Engine(error) => write!(f, "{error}"),
            Failure::Request(what) => write!(f, "{what}"),
            Failure::Input(error) => write!(f, "could not read standard input: {error}"),
            Failure::Output(error) => write!(f, "could not write the output: {error}"),
        }
    }
}
