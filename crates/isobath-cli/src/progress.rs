//! How far a long command is: a bar on standard error, nothing if that is not a terminal.

use crate::failure::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Once;

const TEMPLATE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";

/// A bar that counts bytes. It is there from the first of them on, and is wiped when it goes.
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Once,
}

impl Progress {
    pub(crate) fn new(title: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(TEMPLATE);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(title);
        Progress { bar, begun: Once::new() }
    }

    pub(crate) fn set(&self, done_bytes: u64, total_bytes: u64) {
        self.begun.call_once(|| {
            if std::io::stderr().is_terminal() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        });
        self.bar.set_length(total_bytes);
        self.bar.set_position(done_bytes);
    }

    /// Says something beside the bar.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| say(&format!("note: {text}")));
    }

    /// Wipes the bar for good: other output follows.
    pub(crate) fn wipe(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.wipe();
    }
}
