//! Opens a damaged database, reads all of it in every way, verifies it, and judges the results.

use super::damage::Damage;
use super::image::{Contents, DB, Image, ImageFile, Rows, State, Truth, options};
use super::memory::peak_of;
use crate::existing::Existing;
use crate::simulation::{self, Life};
use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{Db, Error, ErrorKind, Event, Family, Value, Xid, tools};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// How the engine handled the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    /// The answers are those of the sound database.
    Exact,
    /// The open fails.
    Refused,
    /// It opens; some reads fail, the others are right.
    SomeErrors,
    /// It opens at an earlier moment, and says so.
    Earlier,
}

/// The outcome of one damage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examined {
    pub(super) answer: Answer,
    /// True if `verify` named the file.
    pub(super) is_found: bool,
    /// The most bytes of memory that were held at once.
    pub(super) peak_bytes: u64,
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Counts panics from now on, those that the engine catches too.
pub(super) fn watch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        before(info);
    }));
}

/// Damages a copy of the database and reads it. The error says what the engine did wrong.
pub(super) fn examine(image: &Image, file: &ImageFile, damage: Damage) -> Result<Examined, String> {
    let fs = image.fs.killed();
    damage.apply(&fs, &file.path).map_err(|error| error.to_string())?;
    judge(image, Some(Damaged { file: file.clone(), damage }), fs)
}

/// The same for the sound database, which must give every answer.
pub(super) fn examine_sound(image: &Image) -> Result<Examined, String> {
    let examined = judge(image, None, image.fs.killed())?;
    if examined.answer != Answer::Exact || examined.is_found {
        return Err(format!("the sound database is not: {examined:?}"));
    }
    Ok(examined)
}

fn judge(image: &Image, damaged: Option<Damaged>, fs: MemoryFs) -> Result<Examined, String> {
    let panics = PANICS.get();
    let reading: Rc<RefCell<Option<Result<Examined, String>>>> = Rc::default();
    let (result, truth) = (reading.clone(), image.truth.clone());
    let body = move || {
        let life = Life::alone(fs);
        let examination = Examination { truth, damaged, env: life.env() };
        let (outcome, peak_bytes) = peak_of(|| examination.run());
        *result.borrow_mut() =
            Some(outcome.map(|(answer, is_found)| Examined { answer, is_found, peak_bytes }));
    };
    let ended = simulation::run(1, Box::new(body));
    if let Some(failure) = ended.failure {
        return Err(failure);
    }
    if PANICS.get() > panics {
        return Err("a job panicked".to_owned());
    }
    reading.take().unwrap_or_else(|| Err("it ended without a trace".to_owned()))
}

/// The names of what is in doubt, in their order.
fn names_in_doubt(db: &Db) -> Vec<Vec<u8>> {
    db.in_doubt().iter().map(|doubt| doubt.xid.as_bytes().to_vec()).collect()
}

struct Examination {
    truth: Arc<Truth>,
    /// `None` if all is sound.
    damaged: Option<Damaged>,
    env: Env,
}

/// What was damaged.
struct Damaged {
    file: ImageFile,
    damage: Damage,
}

impl Damaged {
    /// True if an error or a finding at `path` tells of this damage.
    fn is_named_by(&self, path: &Path) -> bool {
        let dir = self.file.path.parent();
        // An error may name another path: for a missing file its directory; for a manifest that
        // ends too early a table that it no longer names; for a log segment that was cut to the
        // length of a shorter one, and so looks whole, the next segment, which seems to be missing,
        // or the directory where no file tells that segment's name; for a flip in a record that
        // goes over from the segment before, the segment in which the record begins.
        let is_told_otherwise = match self.damage {
            Damage::Flip { .. } => {
                self.is_log() && path.parent() == dir && path < self.file.path.as_path()
            }
            Damage::Cut { .. } if self.is_log() => [path.parent(), Some(path)].contains(&dir),
            Damage::Cut { .. } | Damage::Gone => self.is_manifest(),
        };
        path == self.file.path || is_told_otherwise || self.is_gone() && dir == Some(path)
    }

    fn is_gone(&self) -> bool {
        matches!(self.damage, Damage::Gone)
    }

    fn is_manifest(&self) -> bool {
        let name = self.file.path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"MANIFEST")
    }

    fn is_log(&self) -> bool {
        self.file.path.extension().is_some_and(|extension| extension == "wal")
    }
}

/// What the engine reported while the database was open.
#[derive(Default)]
struct Heard {
    discarded: bool,
    errors: Vec<Error>,
}

impl Examination {
    fn run(&self) -> Result<(Answer, bool), String> {
        let is_found = self.verify()?;
        let heard: Arc<Mutex<Heard>> = Arc::default();
        let ears = heard.clone();
        let listener = move |event: &Event| {
            let mut heard = ears.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::LogTailDiscarded { .. } => heard.discarded = true,
                Event::BackgroundError { error, .. } => heard.errors.push(error.clone()),
                _ => {}
            }
        };
        let options = options().env(self.env.clone()).on_event(listener);
        let answer = match options.create_if_missing(false).open(DB) {
            Err(error) => {
                self.check_error("open", &error)?;
                Answer::Refused
            }
            Ok(db) => {
                let answer = self.read(&db, &heard)?;
                drop(db);
                answer
            }
        };
        for error in &heard.lock().unwrap_or_else(PoisonError::into_inner).errors {
            self.check_error("a job", error)?;
        }
        Ok((answer, is_found))
    }

    /// True if the verification names the damaged file. It may name no other.
    fn verify(&self) -> Result<bool, String> {
        let report = match tools::verify(Path::new(DB), &self.env, &mut |_, _| ()) {
            Ok(report) => report,
            Err(error) => {
                self.check_error("verify", &error)?;
                return Ok(true);
            }
        };
        let Some(damaged) = &self.damaged else {
            return match report.findings.first() {
                Some(finding) => Err(format!("verify finds {finding:?}")),
                None => Ok(false),
            };
        };
        let tells = |finding: &&tools::Finding| damaged.is_named_by(&finding.path);
        let is_found = report.findings.iter().chain(&report.notes).any(|finding| tells(&finding));
        match report.findings.iter().find(|finding| !tells(finding)) {
            Some(other) if !is_found => Err(format!("verify names another file only: {other:?}")),
            _ => Ok(is_found),
        }
    }

    /// An error must be of one of the kinds that name a file, and must name the damaged one.
    fn check_error(&self, doing: &str, error: &Error) -> Result<(), String> {
        let path = match error.kind() {
            ErrorKind::Corruption { path, .. }
            | ErrorKind::NewerFormat { path, .. }
            | ErrorKind::NotADatabase { path, .. }
            | ErrorKind::Io { path, .. } => path,
            _ => return Err(format!("{doing}: an error of another kind: {error:?}")),
        };
        let is_named = self.damaged.as_ref().is_some_and(|damaged| {
            damaged.is_named_by(path) || matches!(error.kind(), ErrorKind::NotADatabase { .. })
        });
        if is_named { Ok(()) } else { Err(format!("{doing}: not the damaged file: {error:?}")) }
    }

    /// Reads everything and compares.
    fn read(&self, db: &Db, heard: &Mutex<Heard>) -> Result<Answer, String> {
        let mut errors = 0;
        let last = self.truth.states.len() - 1;
        let moment = if self.damaged.as_ref().is_some_and(Damaged::is_log) {
            self.moment(db)?
        } else {
            last
        };
        let discarded = heard.lock().unwrap_or_else(PoisonError::into_inner).discarded;
        if moment < last && !discarded {
            return Err(format!("{} records of the log are gone, unreported", last - moment));
        }
        if moment < self.truth.durable {
            return Err(format!("record {moment} of the log is gone though known durable"));
        }
        let expected = &self.truth.states[moment];
        if db.list_families().len() != expected.contents.len() {
            return Err(format!("there are families {:?}", db.list_families()));
        }
        for (name, contents) in &expected.contents {
            let family = db.existing(name).map_err(|error| format!("family {name}: {error}"))?;
            errors += self.points(&family, contents)?;
            errors += self.scans(&family, contents)?;
        }
        errors += self.decide(db, expected)?;
        Ok(match (errors, moment == last) {
            (0, true) => Answer::Exact,
            (0, false) => Answer::Earlier,
            _ => Answer::SomeErrors,
        })
    }

    /// Commits what is in doubt, which must be all that should be, and reads what that has put.
    fn decide(&self, db: &Db, expected: &State) -> Result<u64, String> {
        let in_doubt = names_in_doubt(db);
        if !in_doubt.iter().eq(expected.in_doubt.keys()) {
            return Err(format!("there are {} transactions in doubt", in_doubt.len()));
        }
        let mut errors = 0;
        for (xid, writes) in &expected.in_doubt {
            if let Err(error) = db.commit_prepared(&Xid::new(&xid[..])) {
                self.check_error("a decision", &error)?;
                errors += 1;
                continue;
            }
            for (name, key, value) in writes {
                let family =
                    db.existing(name).map_err(|error| format!("family {name}: {error}"))?;
                errors += self.get(&family, key, Some(value))?;
            }
        }
        Ok(errors)
    }

    /// The state that the database is in, according to its scans.
    fn moment(&self, db: &Db) -> Result<usize, String> {
        let mut found = Contents::new();
        for name in db.list_families() {
            let items = db.existing(&name).and_then(|family| {
                let range = family.range(..);
                range.map(|item| item.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
            });
            found.insert(name, items.map_err(|error| format!("a scan: {error}"))?);
        }
        let in_doubt = names_in_doubt(db);
        let is_found =
            |state: &State| state.contents == found && in_doubt.iter().eq(state.in_doubt.keys());
        let states = &self.truth.states;
        states
            .iter()
            .rposition(is_found)
            .ok_or_else(|| "what is left was never there at any moment".to_owned())
    }

    /// Gets a key; one error is allowed.
    fn get(&self, family: &Family, key: &[u8], expected: Option<&Vec<u8>>) -> Result<u64, String> {
        match family.get(key) {
            Ok(found) if found.as_deref() == expected.map(Vec::as_slice) => Ok(0),
            Ok(found) => Err(format!(
                "{} of {}: found {:?}",
                key.escape_ascii(),
                family.name(),
                found.map(|value| value.escape_ascii().to_string())
            )),
            Err(error) => self.check_error("get", &error).map(|()| 1),
        }
    }

    /// Gets every key, and keys between them.
    fn points(&self, family: &Family, contents: &Rows) -> Result<u64, String> {
        let mut errors = 0;
        let mut ask = |key: &[u8], expected: Option<&Vec<u8>>| {
            errors += self.get(family, key, expected)?;
            Ok::<_, String>(())
        };
        for (key, value) in contents {
            ask(key, Some(value))?;
            let absent = [key, &b"!"[..]].concat();
            ask(&absent, None)?;
        }
        // A key that only another moment has was deleted before this one or written after it.
        for state in [&self.truth.states[0], &self.truth.states[self.truth.states.len() - 1]] {
            let other = state.contents.get(&family.name()).into_iter().flatten();
            for (key, _) in other.filter(|(key, _)| !contents.contains_key(*key)) {
                ask(key, None)?;
            }
        }
        Ok(errors)
    }

    /// Walks the family both ways. What comes before an error must be right, and so must what comes
    /// behind one, which stands in the place of a key.
    fn scans(&self, family: &Family, contents: &Rows) -> Result<u64, String> {
        let range = || family.range(..);
        let forward = self.walk(&mut range(), &mut contents.iter());
        let backward = self.walk(&mut range().rev(), &mut contents.iter().rev());
        match (forward, backward) {
            (Ok(forward), Ok(backward)) => Ok(forward + backward),
            (Err(wrong), _) => Err(format!("a scan of {}: {wrong}", family.name())),
            (_, Err(wrong)) => Err(format!("a scan back of {}: {wrong}", family.name())),
        }
    }

    fn walk<'a>(
        &self,
        found: &mut dyn Iterator<Item = isobath::Result<(Value, Value)>>,
        expected: &mut dyn Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    ) -> Result<u64, String> {
        let (mut errors, mut may_end) = (0, false);
        loop {
            match (found.next(), expected.next()) {
                (None, None) => return Ok(errors),
                (None, Some(_)) if may_end => return Ok(errors),
                (Some(Err(error)), wanted) => {
                    self.check_error("scan", &error)?;
                    errors += 1;
                    // Behind a value that cannot be read the other keys follow.
                    may_end = !wanted.is_some_and(|(key, _)| {
                        let of_value = format!("the value of key \"{}\"", key.escape_ascii());
                        error.to_string().contains(&of_value)
                    });
                }
                (Some(Ok((key, value))), Some((wanted_key, wanted_value)))
                    if *key == **wanted_key && *value == **wanted_value =>
                {
                    may_end = false;
                }
                (found, wanted) => {
                    let found = found.and_then(Result::ok);
                    let found = found.map(|(key, _)| key.escape_ascii().to_string());
                    let wanted = wanted.map(|(key, _)| key.escape_ascii().to_string());
                    return Err(format!("found {found:?} where {wanted:?} should be"));
                }
            }
        }
    }
}
