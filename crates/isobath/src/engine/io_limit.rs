//! How fast flushes and compactions may write: `Options::io_rate_limit`.
//!
//! The limit is a schedule. A job that wants to write a piece reserves the next stretch of time,
//! as long as the piece takes at the limit, and waits until that begins. Time that no job reserved
//! is lost, but for the last tenth of a second, so a burst is at most that long.
//!
//! Flushes go first. They have a schedule of their own, in which only flushes wait for each other,
//! and what they write is also entered in the schedule of compactions. A piece of a compaction
//! that waits already is not put off again, so a flush and the waiting pieces, one a thread, may
//! together exceed the limit for as long as these take.
//!
//! No job waits for ever: a piece has its time when it is reserved. A compaction that is cancelled
//! ends its wait, and a close ends the waits of flushes. Writers never wait here: a limited flush
//! is slow, its rate is what the pacer measures, and it paces writers to that (`pacer.rs`).

use crate::background::CancelToken;
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::{Clock, Threads};
use crate::error::Result;
use crate::vfs::WriteFile;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// For how long unused time can be used later.
const BURST_NS: u64 = 100_000_000;
/// A wait is cut into pieces of at most this length, after which it looks whether to go on.
const NAP_NS: u64 = 10_000_000;

/// Limits the writes of flushes and compactions.
pub(crate) struct IoLimit {
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Threads>,
    /// Bytes a second; 0 for no limit.
    rate: u64,
    /// The ends of the time that is reserved by flushes, and by flushes and compactions together.
    flushes_until: AtomicU64,
    all_until: AtomicU64,
    /// No job waits any more.
    is_lifted: AtomicBool,
    bytes: AtomicU64,
    waited_ns: AtomicU64,
}

impl IoLimit {
    pub(crate) fn new(
        rate: Option<u64>,
        clock: Arc<dyn Clock>,
        threads: Arc<dyn Threads>,
    ) -> IoLimit {
        IoLimit {
            clock,
            threads,
            rate: rate.unwrap_or(0),
            flushes_until: AtomicU64::new(0),
            all_until: AtomicU64::new(0),
            is_lifted: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
        }
    }

    /// Ends all waits, because the database closes.
    pub(crate) fn lift(&self) {
        self.is_lifted.store(true, Ordering::Relaxed);
    }

    /// The bytes that were written under the limit, and the time that was waited for it.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.waited_ns.load(Ordering::Relaxed))
    }

    /// A file whose writes obey the limit: those of a compaction, which `cancel` ends, or else
    /// those of a flush.
    pub(crate) fn limited(
        self: &Arc<Self>,
        file: Box<dyn WriteFile>,
        cancel: Option<&CancelToken>,
    ) -> Box<dyn WriteFile> {
        match self.rate {
            0 => file,
            _ => Box::new(Limited { file, limit: self.clone(), cancel: cancel.cloned() }),
        }
    }

    /// Waits for the time of `bytes`.
    fn admit(&self, bytes: u64, cancel: Option<&CancelToken>) -> Result<()> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = self.clock.now_ns();
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1));
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let in_all = reserve(&self.all_until, now, cost);
        let begin = match cancel {
            Some(_) => in_all,
            None => reserve(&self.flushes_until, now, cost),
        };
        let mut at = now;
        while at < begin && !self.is_lifted.load(Ordering::Relaxed) {
            cancel.map_or(Ok(()), CancelToken::check)?;
            self.threads.sleep(Duration::from_nanos((begin - at).min(NAP_NS)));
            at = self.clock.now_ns();
        }
        debug_assert!(now <= at, "the clock never goes back");
        self.waited_ns.fetch_add(at - now, Ordering::Relaxed);
        cancel.map_or(Ok(()), CancelToken::check)
    }
}

/// Reserves the next stretch of a schedule. Returns where it begins.
fn reserve(until: &AtomicU64, now: u64, cost: u64) -> u64 {
    let mut reserved = until.load(Ordering::Relaxed);
    loop {
        let begin = reserved.max(now.saturating_sub(BURST_NS));
        let end = begin.saturating_add(cost);
        debug_assert!(reserved <= end, "a schedule only grows");
        match until.compare_exchange_weak(reserved, end, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return begin,
            Err(changed) => reserved = changed,
        }
    }
}

/// A file whose writes obey the limit.
struct Limited {
    file: Box<dyn WriteFile>,
    limit: Arc<IoLimit>,
    cancel: Option<CancelToken>,
}

impl WriteFile for Limited {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.limit.admit(bytes.len() as u64, self.cancel.as_ref())?;
        self.file.append(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }

    fn write_back(&mut self) {
        self.file.write_back();
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::{Priority, ThreadHandle};
    use crate::vfs::{FileSystem, MemoryFs};
    use std::io;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    /// A clock that moves only while a thread sleeps, and may cancel at a time.
    #[derive(Default)]
    struct Stage {
        now: AtomicU64,
        cancels_at: AtomicU64,
        cancel: CancelToken,
    }

    impl Clock for Stage {
        fn now_ns(&self) -> u64 {
            self.now.load(Ordering::Relaxed)
        }

        fn unix_ms(&self) -> u64 {
            0
        }
    }

    impl Threads for Stage {
        fn spawn(
            &self,
            _name: String,
            _priority: Priority,
            _body: Box<dyn FnOnce() + Send>,
        ) -> io::Result<Box<dyn ThreadHandle>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn sleep(&self, duration: Duration) {
            let now = self.now.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
            let cancels_at = self.cancels_at.load(Ordering::Relaxed);
            if cancels_at > 0 && now >= cancels_at {
                self.cancel.cancel();
            }
        }

        fn parallelism(&self) -> usize {
            1
        }
    }

    fn stage(rate: u64) -> (IoLimit, Arc<Stage>) {
        let stage = Arc::new(Stage::default());
        stage.now.store(SECOND, Ordering::Relaxed);
        (IoLimit::new(Some(rate), stage.clone(), stage.clone()), stage)
    }

    #[test]
    fn pieces_take_the_time_that_they_take_at_the_limit() {
        let (limit, stage) = stage(MIB);
        for _ in 0..41 {
            limit.admit(MIB / 4, Some(&stage.cancel)).unwrap();
        }
        // The last piece begins when the forty before it have had their time, less the burst.
        assert_eq!(stage.now_ns() - SECOND, 10 * SECOND - BURST_NS);
        assert_eq!(limit.figures(), (41 * MIB / 4, 10 * SECOND - BURST_NS));
    }

    #[test]
    fn unused_time_is_lost_but_for_a_short_burst() {
        let (limit, stage) = stage(MIB);
        limit.admit(MIB, None).unwrap();
        stage.now.store(100 * SECOND, Ordering::Relaxed);
        limit.admit(MIB, None).unwrap();
        assert_eq!(stage.now_ns(), 100 * SECOND);
        limit.admit(1, None).unwrap();
        assert_eq!(stage.now_ns(), 101 * SECOND - BURST_NS);
    }

    #[test]
    fn a_wait_that_is_shorter_than_a_nap_is_as_long_as_it_has_to_be() {
        let (limit, stage) = stage(1_000_000);
        limit.admit(103_000, None).unwrap();
        limit.admit(1, None).unwrap();
        assert_eq!(stage.now_ns() - SECOND, 103 * SECOND / 1000 - BURST_NS);
    }

    #[test]
    fn flushes_do_not_wait_for_compactions_and_compactions_make_up_for_them() {
        let (limit, stage) = stage(MIB);
        let cancel = stage.cancel.clone();
        limit.admit(MIB, Some(&cancel)).unwrap();
        limit.admit(2 * MIB, None).unwrap();
        assert_eq!(stage.now_ns(), SECOND, "no flush was before it");
        limit.admit(1, Some(&cancel)).unwrap();
        assert_eq!(stage.now_ns(), 4 * SECOND - BURST_NS, "behind the compaction and the flush");
    }

    #[test]
    fn what_is_appended_to_a_limited_file_waits_and_is_not_written_once_it_is_cancelled() {
        let (limit, stage) = stage(MIB);
        let (limit, fs, piece) = (Arc::new(limit), MemoryFs::new(), vec![7; MIB as usize]);
        let create = |path| fs.create(Path::new(path)).unwrap();
        let mut flushed = limit.limited(create("/flushed"), None);
        let mut compacted = limit.limited(create("/compacted"), Some(&stage.cancel));
        flushed.append(&piece).unwrap();
        assert_eq!(stage.now_ns(), SECOND, "none came before it");
        flushed.append(&piece).unwrap();
        assert_eq!(stage.now_ns(), 2 * SECOND - BURST_NS);
        compacted.append(&piece).unwrap();
        assert_eq!(stage.now_ns(), 3 * SECOND - BURST_NS, "behind both pieces of the flush");
        stage.cancel.cancel();
        assert!(compacted.append(&piece).unwrap_err().is_cancelled());
        flushed.append(b"a flush goes on").unwrap();
        for (file, len) in [(&mut flushed, 2 * MIB + 15), (&mut compacted, MIB)] {
            file.sync().unwrap();
            assert_eq!(file.len(), len);
            let read = fs.open_read(file.path(), crate::vfs::FileAccess::Positional).unwrap();
            assert_eq!(read.len(), len);
        }
        assert_eq!(limit.figures().0, 4 * MIB + 15);
    }

    #[test]
    fn a_file_without_a_limit_is_passed_on_uncounted() {
        let stage = Arc::new(Stage::default());
        let limit = Arc::new(IoLimit::new(None, stage.clone(), stage));
        let file = MemoryFs::new().create(Path::new("/file")).unwrap();
        limit.limited(file, None).append(&[7; 1000]).unwrap();
        assert_eq!(limit.figures(), (0, 0));
    }

    #[test]
    fn a_cancelled_compaction_ends_its_wait_and_a_close_ends_that_of_a_flush() {
        let (limit, stage) = stage(1024);
        stage.cancels_at.store(2 * SECOND, Ordering::Relaxed);
        limit.admit(MIB, Some(&stage.cancel)).unwrap();
        let refused = limit.admit(MIB, Some(&stage.cancel)).unwrap_err();
        assert!(refused.is_cancelled() && stage.now_ns() < 2 * SECOND + 2 * NAP_NS);
        limit.admit(MIB, None).unwrap();
        let before = stage.now_ns();
        limit.lift();
        limit.admit(MIB, None).unwrap();
        assert_eq!(stage.now_ns(), before);
    }
}
