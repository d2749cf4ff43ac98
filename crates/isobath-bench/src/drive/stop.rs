//! A request to end early: from Ctrl-C, or from a thread that failed.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
}

impl Stop {
    /// One that Ctrl-C and SIGTERM set. A second signal ends the process at once.
    pub(crate) fn on_signal() -> Result<Stop> {
        let stop = Stop::default();
        let shared = stop.clone();
        ctrlc::set_handler(move || {
            if shared.flag.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            eprintln!("\nending: what was measured so far will be written (again to end at once)");
        })
        .context("listening for Ctrl-C")?;
        Ok(stop)
    }

    pub(crate) fn request(&self) {
        self.flag.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn requested(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}
