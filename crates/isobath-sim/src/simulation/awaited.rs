//! Callbacks that wait until a moment survives power loss. Each runs exactly once, even if the
//! database is closed meanwhile. If it was told that the moment is durable, the moment must survive
//! a power cut right after.

use super::workload::Stage;
use crate::position::position;
use isobath::ReadPoint;
use std::sync::{Arc, Mutex};

/// A callback that was accepted.
pub(crate) struct Awaited {
    point: ReadPoint,
    told: Told,
}

/// What a callback was told, each time that it ran.
type Told = Arc<Mutex<Vec<isobath::Result<()>>>>;

fn take(told: &Told) -> Vec<isobath::Result<()>> {
    std::mem::take(&mut *told.lock().expect("nothing panics with it"))
}

impl Stage {
    /// Asks to be told once what is visible now is durable, and hears what earlier callbacks were
    /// told.
    pub(crate) fn await_durable(&self) -> isobath::Result<()> {
        self.hear();
        let point = self.db.snapshot().read_point();
        let told = Told::default();
        let own = told.clone();
        let tell = move |outcome| own.lock().expect("nothing panics with it").push(outcome);
        self.db.on_durable(point, tell)?;
        self.awaited.borrow_mut().push(Awaited { point, told });
        Ok(())
    }

    fn hear(&self) {
        // Results of callbacks that ran before the power failed but were not read until then are
        // left out.
        if self.is_over() {
            return;
        }
        let awaited = std::mem::take(&mut *self.awaited.borrow_mut());
        for Awaited { point, told } in awaited {
            match &take(&told)[..] {
                [] => self.awaited.borrow_mut().push(Awaited { point, told }),
                [Ok(())] if self.db.is_durable(point) => {
                    self.history.borrow_mut().synced(position(point));
                }
                [Err(error)] => self.judge_write("a callback", error),
                all => self.fail(format!("{point:?} is not durable, or was told again: {all:?}")),
            }
        }
    }
}

impl Awaited {
    /// After the close.
    pub(crate) fn check(&self) -> Result<(), String> {
        match take(&self.told).len() {
            1 => Ok(()),
            times => Err(format!("a callback for {:?} ran {times} times", self.point)),
        }
    }
}
