//! Catching up with the process that writes.

use super::replay::{Place, check_history, look_until_steady};
use crate::engine::{Engine, Line, Shown};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::version::{LOG_DIR, Stamp, State};
use std::sync::Arc;

/// Looks after which a reader is content with what it has, though the manifest goes on changing: it
/// has a prefix.
const ROUNDS_MAX: u32 = 8;

/// Shows what the writer has committed, and answers the point reached.
pub(crate) fn catch_up(engine: &Arc<Engine>) -> Result<Lsn> {
    engine.check_open()?;
    let Some(shown) = &engine.shown else { return Ok(engine.log.visible()) };
    let mut line = shown.line.lock();
    let line = line.as_mut().ok_or(Error::closed())?;
    // A listener may close the database or catch up, and either waits for the line: so nothing is
    // told here.
    let pool = engine.epochs.pool();
    let place = Place { options: &engine.options, db: &engine.dir, pool, tells: false };
    for _ in 0..ROUNDS_MAX {
        let look = &mut |stamp| go_on(engine, shown, place, line, stamp);
        look_until_steady(&engine.options.env, &engine.dir, look)?;
        // Segments are taken out of the log after an edit only. So without one the log ended where
        // the line does; else the segment may have been taken away under the reader, which
        // looks like the end of the log.
        if Stamp::read(&*engine.options.env.fs, &engine.dir).is_ok_and(|stamp| stamp == line.stamp)
        {
            break;
        }
    }
    Ok(engine.log.visible())
}

/// One look: along the log, or anew from the manifest.
fn go_on(
    engine: &Arc<Engine>,
    shown: &Shown,
    place: Place<'_>,
    line: &mut Line,
    stamp: Stamp,
) -> Result<()> {
    let found = match stamp == line.stamp {
        true => None,
        false => Some(place.inspect()?),
    };
    if let Some(found) = found {
        check_history(&engine.dir, engine.uuid, line, &found.state)?;
        if begins_anew(engine, line, &found.state) {
            let known = Some(&engine.families);
            let anew = place.build(stamp, &found.state, known, &engine.tables)?;
            demand_progress(engine, line, &anew)?;
            *line = anew;
            shown.show(line, true, &engine.snapshots, &engine.log);
            line.tell_families(&engine.families);
            engine.tables.files.keep_only(&found.state.table_numbers());
            engine.versions.lock().adopt(found.state);
            return Ok(());
        }
    }
    place.follow(line, engine.uuid, 0)?;
    line.stamp = stamp;
    shown.show(line, false, &engine.snapshots, &engine.log);
    line.tell_families(&engine.families);
    Ok(())
}

/// Refuses a line that ends before what is shown, or before a change of families that it began
/// with: a segment was written again under the reader, which looks like the end of the log.
fn demand_progress(engine: &Engine, line: &Line, anew: &Line) -> Result<()> {
    let least = line.next.max(anew.families_changed);
    if anew.next >= least {
        return Ok(());
    }
    let detail = format!("the log ends at {:#x}, and was seen to reach {least:#x}", anew.next);
    Err(Error::corruption(&engine.dir.join(LOG_DIR), 0, detail))
}

/// True if the log in front of the line is gone, or will not be continued; or if tables hold what
/// takes much memory.
fn begins_anew(engine: &Engine, line: &Line, state: &State) -> bool {
    let is_heavy = line.bytes() >= engine.options.write_buffer;
    state.term().term != line.term
        || state.replay_from() > line.next
        || (is_heavy && state.replay_from() > line.replay_from)
}
