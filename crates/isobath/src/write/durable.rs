//! What survives power loss: waiting for it, being told of it, and asking.

use crate::engine::{Engine, Notice, end_of_term};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::read_point::ReadPoint;
use std::sync::Arc;

/// Waits until every commit up to `point` survives power loss.
pub(crate) fn sync_to(engine: &Engine, point: ReadPoint) -> Result<()> {
    engine.check_open()?;
    engine.check_not_read_only()?;
    engine.log.sync_to(wanted_durable(engine, point)?)
}

/// Runs `notice` once every commit up to `point` survives power loss, or once it is known that they
/// never will. If this returns an error, `notice` does not run.
pub(crate) fn on_durable(engine: &Arc<Engine>, point: ReadPoint, notice: Notice) -> Result<()> {
    engine.check_open()?;
    engine.check_not_read_only()?;
    engine.notices.add(engine, wanted_durable(engine, point)?, notice)
}

/// True if every commit up to `point` is known to survive power loss.
pub(crate) fn is_durable(engine: &Engine, point: ReadPoint) -> bool {
    // A reader does not know what the writing process has synced: neither of the log, nor of the
    // edit that ends a term.
    engine.shown.is_none()
        && wanted_durable(engine, point).is_ok_and(|lsn| lsn <= engine.log.durable())
}

/// The LSN below which this term's log must be durable so that every commit up to `point` survives
/// power loss: 0 if they survive already, as commits of an earlier term do. Fails if the point does
/// not belong to this database, or if its commits may be lost.
fn wanted_durable(engine: &Engine, point: ReadPoint) -> Result<Lsn> {
    let refuse =
        |why: String| Err(Error::invalid_argument(format!("the point {:#x} {why}", point.lsn)));
    if point.tag == engine.point_tag {
        let tail = engine.log.tail();
        return match point.lsn <= tail {
            true => Ok(point.lsn),
            false => refuse(format!(
                "is none of this database, whose log ends at {tail:#x}: it was made after this copy of it"
            )),
        };
    }
    // What recovery took from the log of an earlier term is in tables, and synced. A repair that
    // has lost any of it has moved the end, or made the term unknown (`tools/repair/terms.rs`).
    let versions = engine.versions.lock();
    match end_of_term(&engine.uuid, versions.state().terms(), point.tag) {
        Some(ended_at) if point.lsn <= ended_at => Ok(0),
        Some(ended_at) => refuse(format!(
            "may be lost: when the database was opened again or repaired, all commits were there up to {ended_at:#x} only"
        )),
        None => refuse(
            "was made in another database or in a later life of a copy, before a repair that lost something, or too long \
             ago: nothing tells whether it survived"
                .to_owned(),
        ),
    }
}

/// Waits until everything below `point`, an LSN of this term, survives power loss.
pub(crate) fn sync_to_lsn(engine: &Engine, point: Lsn) -> Result<()> {
    engine.check_open()?;
    engine.check_not_read_only()?;
    engine.log.sync_to(point)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Commit;
    use crate::engine::point_tag;
    use crate::error::ErrorKind;
    use crate::version::Term;
    use crate::vfs::{Fault, FileOp};

    #[track_caller]
    fn assert_refused(engine: &Engine, commit: Commit, why: &str) {
        let told = sync_to(engine, commit.into());
        let is_refused = matches!(
            told.as_ref().map_err(Error::kind),
            Err(ErrorKind::InvalidArgument { detail: what, .. }) if what.contains(why)
        );
        assert!(is_refused, "{told:?}");
    }

    fn options(fs: &crate::vfs::MemoryFs) -> crate::Options {
        let env = crate::env::Env { fs: Arc::new(fs.clone()), ..crate::env::Env::system() };
        crate::Options::new().env(env)
    }

    fn open(fs: &crate::vfs::MemoryFs) -> crate::Db {
        options(fs).open("/db").unwrap()
    }

    #[test]
    fn a_commit_is_judged_by_where_its_log_and_its_term_end() {
        let fs = crate::vfs::MemoryFs::new();
        let db = open(&fs);
        let commit = db.put("key", "value").unwrap();
        let engine = db.engine();
        let tail = engine.log.tail();
        let term_of = |engine: &Engine| engine.versions.lock().state().term();
        let (uuid, term) = (engine.uuid, term_of(engine));
        assert_eq!((commit.point, commit.tag), (tail, point_tag(&uuid, term)));
        sync_to(engine, commit.into()).unwrap();
        assert_eq!(engine.log.durable(), tail);
        assert_refused(engine, Commit { point: tail + 8, ..commit }, "none of this database");
        let seed = term.seed ^ 1;
        for (point, number, seed) in [
            (tail, term.term, seed),
            (tail, term.term, 0),
            (tail, term.term + 1, 0),
            (0, u64::MAX, 0),
        ] {
            let tag = point_tag(&uuid, Term { term: number, seed, ..term });
            assert_refused(engine, Commit { point, tag }, "a later life of a copy");
        }
        for bit in 0..64 {
            let foreign = Commit { tag: commit.tag ^ 1 << bit, ..commit };
            assert_refused(engine, foreign, "another database");
        }
        for bit in 0..128 {
            let mut other = uuid;
            other[bit / 8] ^= 1 << (bit % 8);
            let foreign = Commit { tag: point_tag(&other, term), ..commit };
            assert_refused(engine, foreign, "another database");
        }
        // The last point of its term lies beyond the end of the next term's log, which is short.
        let db = open(&fs.killed());
        let engine = db.engine();
        let ended_at = engine.versions.lock().state().term().ended_at;
        assert_eq!((term_of(engine).term, ended_at), (term.term + 1, tail));
        sync_to(engine, commit.into()).unwrap();
        assert_refused(engine, Commit { point: tail + 8, ..commit }, "may be lost");
        assert_refused(engine, Commit { point: u64::MAX, ..commit }, "may be lost");
        let own = Commit { point: engine.log.tail() + 8, ..db.put("key", "value").unwrap() };
        sync_to(engine, Commit { point: engine.log.tail(), ..own }.into()).unwrap();
        let beyond = Commit { point: engine.log.tail() + 8, ..own };
        assert_refused(engine, beyond, "none of this database");
    }

    /// Both are opened as often, so the numbers of their terms are the same.
    #[test]
    fn a_copy_of_a_database_takes_no_commit_of_the_other_for_its_own() {
        let fs = crate::vfs::MemoryFs::new();
        let db = open(&fs);
        let common = db.put("key", "common").unwrap();
        db.close().unwrap();
        let copied = fs.killed();
        let (one, other) = (open(&fs), open(&copied));
        let commits = [&one, &other].map(|db| db.put("key", "value").unwrap());
        assert_eq!(commits[0].point, commits[1].point);
        assert_refused(one.engine(), commits[1], "a later life of a copy");
        assert!(!one.is_durable(commits[1]) && one.snapshot_at(commits[1]).is_err());
        one.close().unwrap();
        let one = open(&fs);
        assert_refused(one.engine(), commits[1], "a later life of a copy");
        [common, commits[0]].iter().for_each(|own| one.sync_to(*own).unwrap());
        assert!(one.is_durable(commits[0]));
    }

    /// A reader may learn that a term has ended from an edit that only the page cache has: the open
    /// that made it has not synced it. Then the power goes.
    #[test]
    fn a_reader_calls_no_commit_durable_of_a_term_that_may_not_have_ended() {
        let fs = crate::vfs::MemoryFs::new();
        let db = open(&fs);
        let commit = db.put("key", "value").unwrap();
        let fs = fs.killed();
        // Of the new manifest the second sync is that of the edit.
        fs.inject(Fault::on(FileOp::Sync).suffix("MANIFEST-000002").nth(2));
        assert!(options(&fs).open("/db").is_err() && fs.struck() == 1);
        let fs = fs.killed();
        let reader = options(&fs).read_only(true).open("/db").unwrap();
        let ended = reader.engine().versions.lock().state().term().ended_at;
        assert_eq!((ended, reader.get("key").unwrap().is_some()), (commit.point, true));
        assert!(!reader.is_durable(commit));
        let fs = fs.crashed(|_| 0);
        assert!(open(&fs).get("key").unwrap().is_none());
    }
}
