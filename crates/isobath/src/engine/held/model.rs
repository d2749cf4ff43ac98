//! Exhaustive models of readers beside installations of what a compaction filter has changed: what
//! a registered reader has seen once it sees until it ends, and who begins later sees no less than
//! was shown before. The visible frontier is one word; all steps are the engine's own:
//! `ReadPoints::install_filtered`, `register_at` and `release`, and `Keyspace::pin_for`, by which
//! every read begins.
//!
//! These bugs were planted and found: a release that gives up views of an era which began after it
//! had loaded the era; a relaxed raise of the era without a fence; points that are listed, or the
//! visible frontier loaded, before the era is odd; an era that ends before the view is published; a
//! reader who loads the era before its point is in a slot, or takes an odd one; a read that ignores
//! what is held for it.

use super::*;
use crate::env::model::check;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::options::FamilyOptions;
use loom::thread;

const CHANGED_FROM: Lsn = 32;
const BEFORE: Lsn = 64;
const AFTER: Lsn = 96;

struct Bench {
    points: ReadPoints,
    family: Arc<Keyspace>,
    visible: AtomicU64,
}

impl Bench {
    fn new() -> Arc<Bench> {
        let options = FamilyOptions::default();
        let family = Arc::new(Keyspace::new(0, "default", options, 1, Arc::default()));
        let (points, visible) = (ReadPoints::default(), AtomicU64::new(BEFORE));
        Arc::new(Bench { points, family, visible })
    }

    fn visible(&self) -> Lsn {
        self.visible.load(Ordering::Acquire)
    }

    fn register(&self) -> Hold {
        self.points.register_at(|| self.visible())
    }

    /// What a reader finds. One that has not registered sees what is newest.
    fn seen(&self, reader: Option<&Hold>) -> Arc<Tree> {
        // Loom does not know that views are replaced, but it knows the lock under which they are.
        let _right = self.family.lock_view();
        let (view, _) = self.family.pin_for(reader.map(Hold::registered), || self.visible());
        view.tree.clone()
    }

    fn install(&self, tree: &Arc<Tree>) {
        self.points.install_filtered(&self.family, tree.clone(), CHANGED_FROM, || self.visible());
    }
}

#[test]
fn a_reader_goes_on_seeing_what_it_saw_and_a_later_one_what_was_shown() {
    check(3, || {
        let bench = Bench::new();
        let changed = Arc::new(Tree::default());
        let reader = {
            let (bench, changed) = (bench.clone(), changed.clone());
            thread::spawn(move || {
                bench.visible.store(AFTER, Ordering::Release);
                let shown = bench.seen(None);
                let hold = bench.register();
                let first = bench.seen(Some(&hold));
                assert!(!Arc::ptr_eq(&shown, &changed) || Arc::ptr_eq(&first, &changed));
                assert!(Arc::ptr_eq(&first, &bench.seen(Some(&hold))));
                bench.points.release(&hold);
            })
        };
        bench.install(&changed);
        reader.join().unwrap();
        assert_eq!((bench.points.held(), bench.family.held_views()), ((0, None), 0));
    });
}

/// The first reader gives up what is held for it while the second begins, and another installation
/// holds a view for the second.
#[test]
fn what_is_held_for_a_reader_stays_though_an_earlier_one_ends() {
    check(3, || {
        let bench = Bench::new();
        let first = bench.register();
        bench.install(&Arc::default());
        let releasing = {
            let bench = bench.clone();
            thread::spawn(move || bench.points.release(&first))
        };
        let second = bench.register();
        let seen = bench.seen(Some(&second));
        bench.install(&Arc::default());
        assert!(Arc::ptr_eq(&seen, &bench.seen(Some(&second))));
        releasing.join().unwrap();
        assert!(Arc::ptr_eq(&seen, &bench.seen(Some(&second))));
        bench.points.release(&second);
        assert_eq!((bench.points.held(), bench.family.held_views()), ((0, None), 0));
    });
}
