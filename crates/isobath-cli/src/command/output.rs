//! Standard output, buffered, with errors told apart from those of the engine.

use super::Outcome;
use crate::failure::{Failure, Result};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;

pub(super) struct Output {
    out: BufWriter<Box<dyn Write>>,
}

impl Output {
    pub(super) fn new() -> Output {
        Output::to(std::io::stdout().lock())
    }

    /// The same to whatever a test gives it.
    pub(super) fn to(out: impl Write + 'static) -> Output {
        Output { out: BufWriter::with_capacity(64 << 10, Box::new(out)) }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(Failure::Output)
    }

    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")
    }

    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer_pretty(&mut self.out, value)
            .map_err(|error| Failure::Output(error.into()))?;
        self.bytes(b"\n")
    }

    /// The outcome of a command whose answer is known, once this has printed it. A reader that ends
    /// early does not change the answer.
    pub(super) fn answer(
        outcome: Outcome,
        print: impl FnOnce(&mut Output) -> Result<()>,
    ) -> Result<Outcome> {
        let mut output = Output::new();
        match print(&mut output).and_then(|()| output.finish()) {
            Err(failure) if !failure.is_closed_output() => Err(failure),
            _ => Ok(outcome),
        }
    }

    /// Hands everything over; what is not finished may be lost.
    pub(super) fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(Failure::Output)
    }

    /// The same of standard output. What went to a regular file survives a power cut then, if the
    /// file's name does, which the shell has made.
    pub(super) fn finish_durably(self) -> Result<()> {
        self.finish()?;
        let sync = || {
            let file = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
            if file.metadata()?.is_file() { file.sync_all() } else { Ok(()) }
        };
        sync().map_err(Failure::Output)
    }
}
