//! A progress bar for a phase; silent when standard error is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

const BAR: &str = "{prefix:<28} {wide_bar:.cyan/blue} {human_pos}/{human_len} {per_sec} {eta}";
const SPINNER: &str = "{prefix:<28} {spinner} {human_pos} {per_sec} {elapsed} {msg}";
const CLOCK: &str = "{prefix:<28} {wide_bar:.green/blue} {msg} {elapsed}/{len}s";

pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A phase of `total` operations.
    pub(crate) fn count(title: &str, total: u64) -> Progress {
        Progress::new(title, ProgressBar::new(total), BAR)
    }

    /// A phase whose length isn't known.
    pub(crate) fn spinner(title: &str) -> Progress {
        let progress = Progress::new(title, ProgressBar::no_length(), SPINNER);
        progress.bar.enable_steady_tick(Duration::from_millis(120));
        progress
    }

    /// A phase of `seconds`.
    pub(crate) fn clock(title: &str, seconds: f64) -> Progress {
        Progress::new(title, ProgressBar::new(seconds.ceil() as u64), CLOCK)
    }

    fn new(title: &str, bar: ProgressBar, template: &str) -> Progress {
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_prefix(title.to_owned());
        Progress { bar }
    }

    pub(crate) fn set(&self, position: u64) {
        self.bar.set_position(position);
    }

    pub(crate) fn message(&self, message: String) {
        self.bar.set_message(message);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
