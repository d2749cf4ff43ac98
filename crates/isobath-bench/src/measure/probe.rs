//! The kernel's figures of this process: memory (anonymous and file-backed apart), bytes to and
//! from the device, processor time.
//!
//! Bytes written are the bytes of file pages that the process made dirty. A file that is deleted
//! before the kernel writes it back counts too: whether it is depends on the kernel's timers, not
//! on the engine. A page that was dirty already counts no more, so everything is synced before a
//! clock starts, and the engines' own counts stand beside: a mapped log segment that is used again
//! before it was written back is in those only.

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;

/// A reading of the process.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Probe {
    pub(crate) rss_bytes: u64,
    pub(crate) rss_anon_bytes: u64,
    pub(crate) rss_file_bytes: u64,
    pub(crate) rss_peak_bytes: u64,
    pub(crate) vms_peak_bytes: u64,
    /// `None` where the kernel doesn't tell.
    pub(crate) device_read_bytes: Option<u64>,
    pub(crate) device_write_bytes: Option<u64>,
    pub(crate) cpu_user_seconds: f64,
    pub(crate) cpu_system_seconds: f64,
}

impl Probe {
    /// Memory that the kernel doesn't tell of stays zero: a process always has some.
    pub(crate) fn read() -> Probe {
        let mut probe = Probe::default();
        if let Ok(status) = fs::read_to_string("/proc/self/status") {
            let kib = |name| field(&status, name).unwrap_or(0) * 1024;
            probe.rss_bytes = kib("VmRSS:");
            probe.rss_anon_bytes = kib("RssAnon:");
            probe.rss_file_bytes = kib("RssFile:") + kib("RssShmem:");
            probe.rss_peak_bytes = kib("VmHWM:");
            probe.vms_peak_bytes = kib("VmPeak:");
        }
        if let Ok(io) = fs::read_to_string("/proc/self/io") {
            let bytes = |name| field(&io, name);
            probe.device_read_bytes = bytes("read_bytes:");
            probe.device_write_bytes = bytes("write_bytes:");
        }
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
            probe.cpu_user_seconds = seconds(usage.user_time());
            probe.cpu_system_seconds = seconds(usage.system_time());
        }
        probe
    }

    /// What was used from `earlier` to this reading.
    pub(crate) fn since(&self, earlier: &Probe) -> Usage {
        Usage {
            device_read_bytes: less(self.device_read_bytes, earlier.device_read_bytes),
            device_write_bytes: less(self.device_write_bytes, earlier.device_write_bytes),
            cpu_user_seconds: self.cpu_user_seconds - earlier.cpu_user_seconds,
            cpu_system_seconds: self.cpu_system_seconds - earlier.cpu_system_seconds,
        }
    }
}

/// The difference of two readings.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Usage {
    /// `None` where the kernel doesn't tell.
    pub(crate) device_read_bytes: Option<u64>,
    pub(crate) device_write_bytes: Option<u64>,
    pub(crate) cpu_user_seconds: f64,
    pub(crate) cpu_system_seconds: f64,
}

impl Usage {
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.cpu_user_seconds + self.cpu_system_seconds
    }
}

/// The processor time that the calling thread has used.
pub(crate) fn thread_cpu() -> Duration {
    let micros = |time: TimeVal| time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64;
    getrusage(UsageWho::RUSAGE_THREAD).map_or(Duration::ZERO, |usage| {
        Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
    })
}

fn less(now: Option<u64>, then: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(then?))
}

/// The first number after `name`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].split_whitespace().next()?.parse().ok()
}

/// Makes the kernel's peak resident size start over, so that a phase has a peak of its own.
pub(crate) fn reset_peak_memory() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("resetting the peak of resident memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_name() {
        let text = "VmRSSX:\t1 kB\nVmRSS:\t  42 kB\n";
        assert_eq!(field(text, "VmRSS:"), Some(42));
        assert_eq!(field(text, "Absent:"), None);
    }

    #[test]
    fn memory_that_is_touched_shows() {
        // Other tests may give memory back meanwhile.
        let shows = || {
            let before = Probe::read();
            let block = std::hint::black_box(vec![1u8; 64 << 20]);
            let after = Probe::read();
            assert!(after.rss_peak_bytes >= after.rss_bytes);
            drop(block);
            after.rss_anon_bytes >= before.rss_anon_bytes + (48 << 20)
        };
        assert!((0..100).any(|_| shows()));
    }

    #[test]
    fn processor_time_advances() {
        let before = Probe::read();
        let mut sum = 0u64;
        for number in 0..30_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
        assert!(Probe::read().since(&before).cpu_seconds() > 0.001, "{sum}");
    }
}
