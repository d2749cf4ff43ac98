//! Workloads as Lua files: the table a file returns, the verbs it calls, the threads that drive it.
//!
//! Each thread has a Lua state of its own and no lock is held around an engine call. Calls are
//! timed inside the verb, so Lua's own time is never part of a latency.

mod check;
mod context;
mod convert;
mod generator;
mod kv;
mod point;
mod state;
mod transact;
mod workload;

pub(crate) use point::{LuaPoint, run_point};
pub(crate) use workload::{Settings, Workload};
