//! A child process with limits: little memory, small files, a deadline. It is ended at its first
//! line that reports a failure. A test that fails or hangs once and then passes alone has seen how
//! busy the machine is, not a mutant.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Address space at most, in KiB, and file size, in blocks of 512 bytes: the units of POSIX and of
/// all shells.
const MEMORY: u64 = 8 << 20;
const FILE: u64 = 8 << 20;

/// The longest time for one test alone, while others are tried on the same processors.
const ALONE_MAX: Duration = Duration::from_secs(300);

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Passed,
    /// What it said.
    Failed(String),
    /// It did not end in time; the tests that it said have run for long.
    Hung(Vec<String>),
}

/// A child to be run.
#[derive(Clone)]
pub(super) struct Leash<'a> {
    pub(super) program: &'a Path,
    pub(super) arguments: Vec<String>,
    pub(super) folder: &'a Path,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) deadline: Duration,
    /// One that says nothing for so long has not ended in time either: where each thread of a test
    /// program hangs in a test, no test tells of its end any more.
    pub(super) quiet: Duration,
}

impl Leash<'_> {
    /// Runs the child, and each test that fails or hangs once more by itself. One that passes then
    /// is left out, and all others run again. A child that hangs in no test that it names runs
    /// once more as a whole.
    pub(super) fn run_to_a_failure_that_repeats(&self) -> io::Result<End> {
        let mut whole = self.clone();
        // Then names to be left out are whole names, too.
        let exact = || "--exact".to_owned();
        if self.arguments.is_empty() {
            whole.arguments.push(exact());
        }
        let mut has_hung = false;
        loop {
            let end = whole.run()?;
            let tests: Vec<&str> = match &end {
                End::Passed => return Ok(end),
                End::Failed(said) => failed_test(said).into_iter().collect(),
                End::Hung(tests) => tests.iter().map(String::as_str).collect(),
            };
            if tests.is_empty() {
                if matches!(end, End::Failed(_)) || has_hung {
                    return Ok(end);
                }
                println!("has not ended in time, and runs once more: {}", self.program.display());
                has_hung = true;
            }
            for test in tests {
                let arguments = vec![test.to_owned(), exact()];
                let deadline = self.deadline.min(ALONE_MAX);
                let alone = Leash { arguments, deadline, ..self.clone() };
                if alone.run()? != End::Passed {
                    return Ok(end);
                }
                println!("passes if it runs again, and is left out: {test}");
                whole.arguments.extend(["--skip".to_owned(), test.to_owned()]);
            }
        }
    }

    /// Runs the child until it ends, fails or is late.
    pub(super) fn run(&self) -> io::Result<End> {
        let limits =
            format!("ulimit -v {MEMORY}; ulimit -f {FILE}; ulimit -c 0; exec \"$0\" \"$@\" 2>&1");
        let mut child = Command::new("sh")
            .args(["-c", &limits])
            .arg(self.program)
            .args(&self.arguments)
            .current_dir(self.folder)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
                if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let end = self.listen(&lines, &mut child);
        stop(&mut child)?;
        end
    }

    fn listen(&self, lines: &mpsc::Receiver<String>, child: &mut Child) -> io::Result<End> {
        let until = Instant::now() + self.deadline;
        let (mut last, mut long) = (String::new(), Vec::new());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left.min(self.quiet)) {
                Ok(line) if is_failure(&line) => return Ok(End::Failed(line)),
                Ok(line) if !line.is_empty() => {
                    long.extend(long_test(&line).map(str::to_owned));
                    long.retain(|test| !line.starts_with(&format!("test {test} ... ")));
                    last = line;
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(End::Hung(long)),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(match (status.success(), status.signal()) {
                    (true, _) => End::Passed,
                    (false, Some(signal)) => End::Failed(format!("signal {signal}: {last}")),
                    (false, None) => End::Failed(last),
                });
            }
            if Instant::now() > until {
                return Ok(End::Hung(long));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Ends the child and what it started, if any of it is left.
fn stop(child: &mut Child) -> io::Result<()> {
    if child.try_wait()?.is_none() {
        let group = format!("-{}", child.id());
        Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status()?;
        child.wait()?;
    }
    Ok(())
}

/// The test that the harness says has failed.
fn failed_test(line: &str) -> Option<&str> {
    let test = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(test.strip_suffix(" - should panic").unwrap_or(test))
}

/// The test that the harness says has not come to its end for a minute.
fn long_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.split_once(" has been running for over ").map(|(test, _)| test)
}

/// True for what the test harness and the simulator say of a failure.
fn is_failure(line: &str) -> bool {
    failed_test(line).is_some() || (line.starts_with("seed ") && line.contains(" FAILED: "))
}
