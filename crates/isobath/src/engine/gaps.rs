//! How a family comes to its gaps and loses them again: each change is a new view.
//!
//! The order of the steps is what makes a gap true (`docs/internals/gaps.md`). A scan announces the
//! gap in a view, then touches the log's tail. A writer loads the view once it has its LSN, and
//! cuts its keys out of the current view's gaps before its commit is visible. A reader loads the
//! view, then its point, then checks that the view is still current ([`Keyspace::pin`]).

use super::epochs::Epochs;
use super::family::{Keyspace, View};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::format::Lsn;
use crate::gap::{Gaps, Lesson, Stretch};
use crate::memtable::Memtable;
use std::sync::Arc;

impl Keyspace {
    /// A scan at `point` has found no value in this stretch. Makes it a gap if it is news, or an
    /// announced gap known that it holds. `touch` touches the log's tail. True if there is a gap
    /// since this call.
    pub(crate) fn learn_gap(
        &self,
        stretch: &Stretch,
        point: Lsn,
        touch: impl FnOnce() -> Lsn,
    ) -> bool {
        let lesson = |view: &View| match &view.gaps {
            Some(gaps) => gaps.lesson(stretch, point),
            None => Lesson::New,
        };
        if lesson(&self.view()) == Lesson::Nothing {
            return false;
        }
        let right = self.lock_view();
        let view = self.view();
        // What a reader below a clone finds says nothing of the clone.
        if view.is_let_go() || !view.is_seen_from(point) || self.has_filtered() {
            return false;
        }
        match lesson(&view) {
            Lesson::Nothing => false,
            Lesson::Confirms => {
                reached(Reach::GapConfirmed);
                self.replace_with(&right, |view| change(view, |gaps| gaps.confirm(stretch, point)));
                true
            }
            Lesson::New => {
                self.replace_with(&right, |view| change(view, |gaps| gaps.announce(stretch)));
                let tail = touch();
                reached_if(Reach::GapKnownAtOnce, || tail == point);
                reached_if(Reach::GapAnnounced, || tail > point);
                self.replace_with(&right, |view| change(view, |gaps| gaps.touched(point, tail)));
                tail == point
            }
        }
    }

    /// Runs `insert` on the memtable of the epoch that owns the reserved `lsn`, after it has cut
    /// `puts`, the keys that get a value, out of all gaps. Returns how many of them lay in gaps.
    #[inline]
    pub(crate) fn insert_at<'k>(
        &self,
        epochs: &Epochs,
        lsn: Lsn,
        puts: impl IntoIterator<Item = &'k [u8]>,
        insert: impl FnOnce(&Memtable),
    ) -> u64 {
        let view = self.view();
        let cut = |gaps| self.cut_gaps(gaps, puts.into_iter());
        let cut_count = view.gaps.as_deref().map_or(0, cut);
        if let Some(newest) = view.memtables.first()
            && newest.epoch.owns_while_open(lsn)
        {
            insert(&newest.memtable);
            return cut_count;
        }
        drop(view);
        let owner = epochs.owner(lsn);
        reached_if(Reach::SealRaced, || owner.end() != Lsn::MAX);
        insert(&self.memtable_in(&owner));
        cut_count
    }

    /// Cuts the keys out of all gaps, because a commit that has its LSN and is not visible yet puts
    /// them. `seen` are the gaps of a view that was loaded after the commit had its LSN. Returns
    /// how many of the keys lay in gaps.
    #[cold]
    #[inline(never)]
    pub(crate) fn cut_gaps<'k>(&self, seen: &Gaps, keys: impl Iterator<Item = &'k [u8]>) -> u64 {
        let held: Vec<_> = keys.filter(|key| seen.hold(key)).collect();
        if held.is_empty() || planted(Plant::GapKeptOverPut) {
            return 0;
        }
        reached(Reach::GapCut);
        let right = self.lock_view();
        self.replace_with(&right, |view| {
            change(view, |gaps| held.iter().for_each(|key| gaps.cut(key)));
        });
        held.len() as u64
    }
}

fn change(view: &mut View, change: impl FnOnce(&mut Gaps)) {
    let mut gaps = view.gaps.as_deref().cloned().unwrap_or_default();
    change(&mut gaps);
    view.gaps = (!gaps.is_empty()).then(|| Arc::new(gaps));
}

#[cfg(all(test, shuttle))]
mod model;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::memtable::ChunkPool;
    use crate::options::FamilyOptions;

    fn family() -> Keyspace {
        Keyspace::new(3, "f", FamilyOptions::default(), 1, Arc::default())
    }

    fn is_known(family: &Keyspace, key: &[u8], point: Lsn) -> bool {
        family.view().gaps.as_ref().is_some_and(|gaps| gaps.find(key, point).is_some())
    }

    #[test]
    fn a_gap_is_announced_before_the_tail_is_touched() {
        let family = family();
        let stretch = Stretch::of(b"b", b"f");
        let touch = || {
            assert!(
                family.view().gaps.as_ref().unwrap().hold(b"c"),
                "who reserves now must see it"
            );
            assert!(!is_known(&family, b"c", Lsn::MAX - 1));
            5000
        };
        assert!(!family.learn_gap(&stretch, 4096, touch));
        assert!(!family.learn_gap(&stretch, 4999, || unreachable!("it waits")));
        assert!(family.learn_gap(&stretch, 5000, || unreachable!("it was announced")));
        assert!(is_known(&family, b"c", 5000) && !is_known(&family, b"c", 4999));
        assert!(!family.learn_gap(&stretch, 6000, || unreachable!("it is known")));
        assert!(family.learn_gap(&Stretch::of(b"c", b"g"), 6000, || 6000));
        assert!(is_known(&family, b"f", 6000) && is_known(&family, b"b", 5000));
    }

    #[test]
    fn a_put_cuts_what_is_current_though_it_has_seen_an_older_view() {
        let family = family();
        family.learn_gap(&Stretch::of(b"b", b"f"), 4096, || 4096);
        let seen = family.view().gaps.clone().unwrap();
        family.learn_gap(&Stretch::of(b"a", b"h"), 4200, || 4200);
        let keys = |keys: &'static [&[u8]]| keys.iter().copied();
        assert_eq!(family.cut_gaps(&seen, keys(&[b"a", b"x"])), 0);
        assert_eq!(family.cut_gaps(&seen, keys(&[b"c", b"d", b"x"])), 2);
        let expected = [(b"a", true), (b"b", true), (b"c", false), (b"d", false), (b"e", true)];
        for (key, expected) in expected {
            assert_eq!(is_known(&family, key, 5000), expected, "{key:?}");
        }
    }

    #[test]
    fn gaps_outlive_flushes_and_not_the_family() {
        let epochs = Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), 4096);
        epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(5000)).unwrap();
        let family = family();
        family.learn_gap(&Stretch::of(b"b", b"f"), 4096, || 4096);
        let list = epochs.list();
        family.memtable_in(&list.open);
        family.memtable_in(&list.sealed[0]);
        family.install(Arc::default(), Some(&list.sealed[0]));
        assert!(is_known(&family, b"c", 4096));
        family.mark_dropped(6000);
        assert!(is_known(&family, b"c", 4096), "snapshots from before the drop use it");
        family.let_go();
        assert!(!is_known(&family, b"c", 4096));
        assert!(!family.learn_gap(&Stretch::of(b"b", b"f"), 7000, || unreachable!("it is gone")));
    }
}
