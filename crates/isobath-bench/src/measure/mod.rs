//! What is measured: latencies, the process and the machine, and what may be concluded.

mod clock;
mod disk;
mod machine;
mod probe;
mod recorder;
mod sampler;
mod statistics;

pub(crate) use clock::Stopwatch;
pub(crate) use disk::{dir_bytes, ensure_room, is_ram_file_system, sync_files};
pub(crate) use machine::Machine;
pub(crate) use probe::{Probe, Usage, reset_peak_memory, thread_cpu};
pub(crate) use recorder::{KindLatency, Latency, OpKind, Recorder};
pub(crate) use sampler::{Sample, Sampler};
pub(crate) use statistics::{Comparison, Verdict, compare_samples, median, median_known};
