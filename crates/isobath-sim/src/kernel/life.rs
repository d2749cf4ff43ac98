//! One life of a database, from outside: a process that is started, listened to, and killed.

use super::calls;
use super::notes::Notes;
use super::writer::Writer;
use clap::ValueEnum;
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What a life reports, or how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing yet.
    Nothing,
    /// It writes.
    Ready,
    /// It has done its work.
    Done,
    /// There was no room to open.
    NoRoom,
    /// Something is wrong.
    Wrong(String),
    /// A call failed. That is wrong too, unless the harness caused it.
    Failed(String),
}

/// A process that writes.
pub(crate) struct Life {
    child: Child,
    output: ChildStdout,
    heard: Vec<u8>,
}

impl Life {
    pub(crate) fn begin(writer: &Writer, notes: &Notes) -> io::Result<Life> {
        let mut dir = OsString::from("--dir=");
        dir.push(&writer.dir);
        let mut command = match &writer.outside.program {
            Some(program) => {
                let mut command = Command::new(program);
                command.args(outside_arguments(writer));
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("writer").args(arguments(writer));
                command
            }
        };
        command.arg(dir);
        let mut child = command.stdin(notes.share()?).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().expect("it was piped");
        Ok(Life { child, output, heard: Vec::new() })
    }

    /// Listens for at most this long, until the life reports something new.
    pub(crate) fn listen(&mut self, limit: Duration) -> io::Result<Said> {
        let until = Instant::now() + limit;
        let before = self.said();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !calls::wait_readable(&self.output, left)? {
                return Ok(self.said());
            }
            let mut piece = [0; 4096];
            let len = self.output.read(&mut piece)?;
            self.heard.extend(&piece[..len]);
            let said = self.said();
            if len == 0 || said != before {
                return Ok(if len == 0 && said == before { self.silent_end()? } else { said });
            }
        }
    }

    /// It closed its output without saying why.
    fn silent_end(&mut self) -> io::Result<Said> {
        let status = self.child.wait()?;
        Ok(Said::Wrong(format!("the writer ended by itself: {status}; it said {:?}", self.lines())))
    }

    /// Kills it, and returns everything that it reported.
    pub(crate) fn kill(mut self) -> io::Result<Said> {
        self.child.kill()?;
        self.child.wait()?;
        self.output.read_to_end(&mut self.heard)?;
        Ok(self.said())
    }

    fn lines(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }

    /// The most important of its reports.
    fn said(&self) -> Said {
        let lines = self.lines();
        let after =
            |word: &str| lines.lines().find_map(|line| line.strip_prefix(word)).map(str::to_owned);
        if let Some(what) = after("wrong: ") {
            Said::Wrong(what)
        } else if let Some(what) = after("failed: ") {
            Said::Failed(what)
        } else if after("refused").or(after("closed")).is_some() {
            Said::Done
        } else if after("ready").is_some() {
            Said::Ready
        } else if after("no room").is_some() {
            Said::NoRoom
        } else {
            Said::Nothing
        }
    }
}

fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn outside_arguments(writer: &Writer) -> Vec<String> {
    let mut arguments =
        vec![format!("--seed={}", writer.seed), format!("--after={}", name(&writer.after))];
    arguments.extend(writer.outside.mistake.as_ref().map(|name| format!("--mistake={name}")));
    arguments.extend(writer.only_check.then(|| "--only-check".to_owned()));
    arguments
}

fn arguments(writer: &Writer) -> Vec<String> {
    let mut arguments = vec![
        format!("--engine={}", writer.engine),
        format!("--seed={}", writer.seed),
        format!("--after={}", name(&writer.after)),
        format!("--trouble={}", name(&writer.trouble)),
    ];
    arguments.extend(writer.plant.map(|plant| format!("--plant={}", plant.name())));
    arguments.extend(writer.only_check.then(|| "--only-check".to_owned()));
    arguments
}
