//! A point or a row in a process of its own: its peak memory, its processor time and its bytes
//! written are those of this row alone, and an engine that crashes fails only one row.

use super::memory_group::{self, MemoryGroup};
use crate::drive::Stop;
use crate::lua::{self, LuaPoint};
use crate::report::Measured;
use crate::suite::{SuiteJob, run_job};
use anyhow::{Context, Result, anyhow, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Job {
    Lua(Box<LuaPoint>),
    Suite(Box<SuiteJob>),
}

impl Job {
    pub(crate) fn run(&self, stop: &Stop) -> Result<Measured> {
        match self {
            Job::Lua(point) => lua::run_point(point, stop),
            Job::Suite(job) => run_job(job, stop),
        }
    }
}

/// What a child prints. After a panic or a crash it prints nothing, and the parent knows that it
/// failed.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Measured(Box<Measured>),
    Failed(String),
}

/// The hidden command `job`: the outcome goes to standard output, progress to standard error.
pub(super) fn execute(file: &Path, group: Option<&Path>) -> Result<ExitCode> {
    group.map_or(Ok(()), memory_group::join)?;
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let job: Job = serde_json::from_str(&text).context("reading a job")?;
    // If the parent is killed, or a second Ctrl-C ends it, the kernel ends this process too.
    set_pdeathsig(Signal::SIGKILL).context("tying this process to its parent")?;
    let stop = Stop::on_signal()?;
    let outcome = match job.run(&stop) {
        Ok(measured) => Outcome::Measured(Box::new(measured)),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    serde_json::to_writer(std::io::stdout().lock(), &outcome).context("writing an outcome")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the job in a child of this program. `scratch` holds its description meanwhile.
pub(crate) fn run_isolated(job: &Job, scratch: &Path, stop: &Stop) -> Result<Measured> {
    run_in_group(job, scratch, None, stop)
}

/// The same within a memory group.
pub(crate) fn run_in_group(
    job: &Job,
    scratch: &Path,
    group: Option<&MemoryGroup>,
    stop: &Stop,
) -> Result<Measured> {
    let file = scratch.join("job.json");
    std::fs::write(&file, serde_json::to_vec(job)?)
        .with_context(|| format!("writing {}", file.display()))?;
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    // The child has a process group of its own: Ctrl-C reaches the parent alone, which forwards it
    // once.
    command.arg("job").arg(&file).stdout(Stdio::piped()).process_group(0);
    if let Some(group) = group {
        command.arg("--group").arg(group.dir());
    }
    let mut child = command.spawn().context("starting a process for a row")?;
    let output = wait(&mut child, stop);
    let status = child.wait().context("waiting for a row")?;
    let _ = std::fs::remove_file(&file);
    match serde_json::from_slice(&output?) {
        Ok(Outcome::Measured(measured)) => Ok(*measured),
        Ok(Outcome::Failed(reason)) => bail!("{reason}"),
        Err(_) if group.is_some() => bail!(
            "its process ended without a record ({status}): its memory may have been too little"
        ),
        Err(_) => bail!("its process ended without a record ({status})"),
    }
}

/// Waits for the child's record, handing a request to stop on to it.
fn wait(child: &mut Child, stop: &Stop) -> Result<Vec<u8>> {
    let mut stdout = child.stdout.take().ok_or_else(|| anyhow!("a child without output"))?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut told = false;
    while child.try_wait().context("waiting for a row")?.is_none() {
        if stop.requested() && !told {
            told = true;
            // This fails only if the child has just ended.
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGINT);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    reader
        .join()
        .map_err(|_| anyhow!("reading a row's record panicked"))?
        .context("reading a row's record")
}
