//! The outside world as the engine sees it: [`Env`], which holds file system, clock, randomness and
//! threads, and everything that [`crate::host`] exports.

mod bundle;
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) mod model;

pub use crate::host::*;
pub use bundle::Env;
