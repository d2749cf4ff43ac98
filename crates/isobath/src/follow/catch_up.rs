//! Catching up with the process that writes.

use super::replay::{Place, check_history, look_until_steady, may_pass};
use crate::engine::{Engine, Line, Shown};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Lsn;
use crate::version::{LOG_DIR, Stamp, State, Trail};
use std::sync::Arc;

/// The most looks of one call. If the manifest still changes then, the reader keeps what it has: a
/// prefix of the commits.
const ROUNDS_MAX: u32 = 8;

/// How often one call may try to begin anew because tables are gone: beside a writer that removes
/// more of them meanwhile it would do nothing else.
const RENEWALS_MAX: u32 = 3;

/// Shows what the writer has committed, and returns the point reached.
pub(crate) fn catch_up(engine: &Arc<Engine>) -> Result<Lsn> {
    catch_up_within(engine, RENEWALS_MAX)
}

/// The same, with so many tries to begin anew because tables are gone.
pub(super) fn catch_up_within(engine: &Arc<Engine>, renewals: u32) -> Result<Lsn> {
    engine.check_open()?;
    let Some(shown) = &engine.shown else { return Ok(engine.log.visible()) };
    let mut line = shown.line.lock();
    let line = line.as_mut().ok_or(Error::closed())?;
    line.renewals = renewals;
    for _ in 0..ROUNDS_MAX {
        let look = &mut |stamp| Look::of(engine, shown, stamp).go_on(line);
        look_until_steady(&engine.options.env, &engine.dir, look)?;
        // Segments leave the log only after an edit. So if the manifest has not changed, the log
        // ended where the line does. If it has changed, a segment may have been removed during the
        // read, which looks like the end of the log.
        if Stamp::read(&*engine.options.env.fs, &engine.dir).is_ok_and(|stamp| stamp == line.stamp)
        {
            break;
        }
    }
    Ok(engine.log.visible())
}

/// One look, at a manifest with this stamp.
struct Look<'a> {
    engine: &'a Arc<Engine>,
    shown: &'a Shown,
    place: Place<'a>,
    stamp: Stamp,
}

impl<'a> Look<'a> {
    /// It reports no progress: a listener may close the database or catch up, and both wait for the
    /// line, which the caller holds.
    fn of(engine: &'a Arc<Engine>, shown: &'a Shown, stamp: Stamp) -> Look<'a> {
        let (options, db, pool) = (&engine.options, &*engine.dir, engine.epochs.pool());
        Look { engine, shown, place: Place { options, db, pool, tells: false }, stamp }
    }

    /// Continues along the log, or begins anew from the manifest.
    fn go_on(&self, line: &mut Line) -> Result<()> {
        let mut trail = std::mem::take(&mut line.trail);
        let gone_on = self.go_on_by(&mut trail, line);
        if gone_on.as_ref().is_err_and(is_forgotten) {
            trail = self.forget(line);
        }
        line.trail = trail;
        gone_on
    }

    /// The same, with what was read of the manifest.
    fn go_on_by(&self, trail: &mut Trail, line: &mut Line) -> Result<()> {
        let Look { engine, stamp, .. } = *self;
        let (fs, db) = (&*engine.options.env.fs, &engine.dir);
        let has_news = stamp != line.stamp || line.is_outdated;
        if has_news {
            trail.follow(fs, db)?;
            check_history(db, engine.uuid, line, trail.state())?;
            line.note_ids(trail.state());
        }
        match if has_news { begins_anew(engine, line, trail.state()) } else { Anew::No } {
            Anew::No => {}
            Anew::Must => return self.begin_anew(trail, line),
            Anew::Should => match self.begin_anew(trail, line) {
                // The line can go on: it lacks some tables until a later call begins anew.
                Err(error) if !may_pass(&error) => {
                    *trail = self.forget(line);
                    trail.follow(fs, db)?;
                }
                begun => return begun,
            },
        }
        self.place.follow(line, (engine.uuid, &engine.tables), 0)?;
        if !tell_options(trail, engine, line, (stamp, has_news))? {
            // The manifest has changed since, so there is another look.
            return Ok(());
        }
        line.stamp = stamp;
        self.show(trail, line, false);
        Ok(())
    }

    /// Begins with the tables and the log that the manifest names now, and shows what that gives.
    fn begin_anew(&self, trail: &mut Trail, line: &mut Line) -> Result<()> {
        let Look { engine, stamp, .. } = *self;
        trail.demand_tables(&*engine.options.env.fs, &engine.dir)?;
        let (state, known) = (trail.state().clone(), Some(&engine.families));
        let mut anew = self.place.build(stamp, &state, known, &engine.tables)?;
        demand_progress(engine, line, &anew)?;
        if !tell_options(trail, engine, &anew, (stamp, true))? {
            return Ok(());
        }
        anew.renewals = line.renewals;
        *line = anew;
        let tables = state.file_numbers();
        // First the terms: a point above the moment before may lie in a new one.
        engine.versions.lock().adopt(state);
        self.show(trail, line, true);
        engine.tables.files.keep_only(&tables);
        // The trail may have been read further since.
        trail.keep_only(&(&tables | &trail.state().file_numbers()));
        Ok(())
    }

    fn show(&self, trail: &Trail, line: &mut Line, is_anew: bool) {
        let Look { engine, shown, .. } = *self;
        // Without news it may be forgotten.
        if trail.manifest() > 0 {
            engine.history.follow(trail.state().moments());
        }
        let now = engine.ticks.follow(line, engine.clock_ms());
        let is_still = line.next == engine.newest_point();
        if !is_still {
            engine.ticks.come_to(now);
        }
        shown.show(line, is_anew, &engine.points, &engine.log);
        // Where nothing was written, time goes on all the same.
        if is_still && engine.ticks.newest() < now.unix_ms {
            shown.change_unread(&engine.points, || engine.ticks.come_to(now));
        }
        engine.forget_ticks();
        line.tell_families(&engine.families);
    }

    /// A trail that has read nothing. The files are closed that the one before has opened.
    fn forget(&self, line: &Line) -> Trail {
        self.engine.tables.files.keep_only(&line.file_numbers());
        Trail::default()
    }
}

/// True if what was read of the manifest is forgotten for this error: it may be of another file
/// than the one that continues, or hold files open of which there can be no more.
fn is_forgotten(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption { .. }) || !may_pass(error)
}

/// Gives the families of `line`, which has followed the log and is not shown yet, the options that
/// its records need. A writer commits what needs an option once the manifest has it, so a manifest
/// that is read after the log says enough. `read` is the stamp from before, and whether it is new.
/// False if the line lacks a clone, whose commits it has passed over: it must not be shown.
fn tell_options(
    trail: &mut Trail,
    engine: &Engine,
    line: &Line,
    read: (Stamp, bool),
) -> Result<bool> {
    let (fs, (before, has_news)) = (&*engine.options.env.fs, read);
    let stamp = Stamp::read(fs, &engine.dir)?;
    if stamp != before {
        trail.follow(fs, &engine.dir)?;
        check_history(&engine.dir, engine.uuid, line, trail.state())?;
    } else if !has_news {
        return Ok(true);
    }
    let state = trail.state();
    let told = line.tell_options(state);
    told.map_err(|error| error.in_file(&stamp.manifest_path(&engine.dir), 0))?;
    Ok(!line.lacks_clone(state))
}

/// Refuses a line that ends before the moment already shown, or before a change of families that it
/// began with. A segment was overwritten during the read, which looks like the end of the log.
fn demand_progress(engine: &Engine, line: &Line, anew: &Line) -> Result<()> {
    let least = line.next.max(anew.families_changed);
    if anew.next >= least {
        return Ok(());
    }
    let detail = format!("the log ends at {:#x}, and was seen to reach {least:#x}", anew.next);
    Err(Error::corruption(&engine.dir.join(LOG_DIR), 0, detail))
}

/// Whether a line gives way to one that begins anew.
enum Anew {
    No,
    /// It lacks a table. If another line can't be made, it goes on.
    Should,
    /// It can't go on.
    Must,
}

/// A line must begin anew if the log ahead of it is gone or will not be continued, if it does not
/// tell of a clone, or if the line takes much memory or holds many streams and one that begins now
/// would not. It should if a table that it does not hold open may be gone.
fn begins_anew(engine: &Engine, line: &mut Line, state: &State) -> Anew {
    let heavy = engine.options.buffer_len();
    let is_heavy =
        line.bytes() >= heavy || line.is_full_of_streams(engine.options.open_files() / 2);
    let has_gone = line.gone_bytes() >= heavy;
    if state.terms().last() != line.terms.last()
        || state.replay_from() > line.next
        || line.lacks_clone(state)
        || (is_heavy && state.replay_from() > line.replay_from)
        || (has_gone && state.families_changed() > line.families_changed)
    {
        return Anew::Must;
    }
    // Until another line is in its place, whatever the attempt to make one meets.
    line.is_outdated = line.lacks_files(state);
    let may_renew = line.renewals > 0;
    line.renewals = line.renewals.saturating_sub(line.is_outdated.into());
    if line.is_outdated && may_renew { Anew::Should } else { Anew::No }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::vfs::{Fault, FileOp, MemoryFs};
    use crate::{FamilyOptions, Options};
    use std::io;

    /// Whether the writer makes one family or two after the reader has looked at the manifest.
    #[test]
    fn a_line_that_has_passed_over_a_clone_is_not_shown() {
        for makes_another in [false, true] {
            let fs = MemoryFs::new();
            let options = || Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
            let writer = options().open("/db").unwrap();
            let source = writer.family("source").unwrap();
            source.put("n", "1").unwrap();
            let reader = options().read_only(true).open("/db").unwrap();
            let engine = reader.engine();
            let stamp = Stamp::read(&fs, &engine.dir).unwrap();
            let clone = writer.clone_family(&source, "clone").unwrap();
            if makes_another {
                writer.family("another").unwrap();
            }
            let mut batch = crate::Batch::new();
            batch.of(&source).put("n", "2");
            batch.of(&clone).put("n", "2");
            writer.write(batch).unwrap();
            let shown = engine.shown.as_ref().unwrap();
            let mut line = shown.line.lock();
            let looked = Look::of(engine, shown, stamp).go_on(line.as_mut().unwrap());
            drop(line);
            // Without another family, the log seems to name one that was never created.
            assert_eq!(looked.is_ok(), makes_another, "{looked:?}");
            let seen = |name: &str| {
                let family = reader.family_if_exists(name).unwrap()?;
                Some(family.get("n").unwrap().unwrap().to_vec())
            };
            assert_eq!((seen("source").unwrap(), seen("clone")), (b"1".to_vec(), None));
            reader.catch_up().unwrap();
            assert_eq!(
                (seen("source").unwrap(), seen("clone").unwrap()),
                (b"2".to_vec(), b"2".to_vec())
            );
        }
    }

    /// Else a call could return with tables that are gone, because it has begun anew for another
    /// reason before.
    #[test]
    fn a_line_that_begins_anew_may_do_so_as_often_as_the_one_before() {
        let fs = MemoryFs::new();
        let options = || Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
        let writer = options().open("/db").unwrap();
        let reader = options().read_only(true).open("/db").unwrap();
        writer.close().unwrap();
        // Its term is another one.
        let writer = options().open("/db").unwrap();
        writer.put("k", "v").unwrap();
        let engine = reader.engine();
        let stamp = Stamp::read(&fs, &engine.dir).unwrap();
        let shown = engine.shown.as_ref().unwrap();
        let look = Look::of(engine, shown, stamp);
        let mut line = shown.line.lock();
        let line_now = line.as_mut().unwrap();
        (line_now.renewals, line_now.is_outdated) = (2, false);
        let term = line_now.term();
        look.go_on(line_now).unwrap();
        assert_eq!((line_now.term(), line_now.renewals), (term + 1, 2));
    }

    #[test]
    fn a_line_that_lacks_tables_says_so_until_another_one_is_made() {
        let fs = MemoryFs::new();
        let mut options = Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
        options.sizes.l0_trigger_runs = 100;
        let writer = options.clone().open("/db").unwrap();
        writer.engine().maintenance.close();
        for round in 0..12u32 {
            writer.put(round.to_be_bytes(), "value").unwrap();
            writer.flush().unwrap();
        }
        let reader = options.read_only(true).max_open_files(8).open("/db").unwrap();
        writer.compact().unwrap();
        let engine = reader.engine();
        let stamp = Stamp::read(&fs, &engine.dir).unwrap();
        let shown = engine.shown.as_ref().unwrap();
        let look = Look::of(engine, shown, stamp);
        let mut line = shown.line.lock();
        let line_now = line.as_mut().unwrap();
        line_now.renewals = 2;
        fs.inject(Fault::on(FileOp::OpenRead).suffix(".tbl").kind(io::ErrorKind::NotFound));
        assert!(may_pass(&look.go_on(line_now).unwrap_err()));
        assert!(line_now.is_outdated && line_now.renewals == 1);
        look.go_on(line_now).unwrap();
        assert!(!line_now.is_outdated && line_now.renewals == 0);
    }

    #[test]
    fn what_was_read_of_a_manifest_is_forgotten_once_a_look_finds_damage() {
        let fs = MemoryFs::new();
        let options = || Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
        let writer = options().open("/db").unwrap();
        let reader = options().read_only(true).open("/db").unwrap();
        let engine = reader.engine();
        writer.put("k", "v").unwrap();
        writer.flush().unwrap();
        let stamp = Stamp::read(&fs, &engine.dir).unwrap();
        let current = std::path::Path::new("/db/CURRENT");
        fs.corrupt(current, 9, 1).unwrap();
        let shown = engine.shown.as_ref().unwrap();
        let look = Look::of(engine, shown, stamp);
        let mut line = shown.line.lock();
        let line_now = line.as_mut().unwrap();
        assert!(line_now.trail.manifest() > 0 && line_now.stamp != stamp);
        let damaged = look.go_on(line_now).unwrap_err();
        assert!(matches!(damaged.kind(), ErrorKind::Corruption { .. }), "{damaged}");
        assert_eq!(line_now.trail.manifest(), 0);
        drop(line);
        fs.corrupt(current, 9, 1).unwrap();
        reader.catch_up().unwrap();
        assert_eq!(reader.get("k").unwrap().unwrap(), "v");
    }

    /// The writer goes on after the reader has looked at the manifest, and before it reads the log.
    #[test]
    fn operands_are_not_shown_before_their_operator_is_known() {
        let fs = MemoryFs::new();
        let options = || Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
        let writer = options().open("/db").unwrap();
        let family = writer.family("log").unwrap();
        family.put("k", "a").unwrap();
        let reader = options().read_only(true).open("/db").unwrap();
        let seen = reader.family("log").unwrap();
        let engine = reader.engine();
        let stamp = Stamp::read(&fs, &engine.dir).unwrap();
        family.set_options(FamilyOptions::new().merge_operator("isobath.append")).unwrap();
        family.merge("k", "b").unwrap();
        let shown = engine.shown.as_ref().unwrap();
        let look = Look::of(engine, shown, stamp);
        let mut line = shown.line.lock();
        let line_now = line.as_mut().unwrap();
        assert!(line_now.stamp == stamp);
        look.go_on(line_now).unwrap();
        drop(line);
        assert_eq!(seen.get("k").unwrap().unwrap(), "ab");
    }
}
