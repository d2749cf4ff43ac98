//! The outside world, as the engine sees it: [`Env`], which holds the file system beside clock,
//! randomness and threads, and all that [`crate::host`] has.

mod bundle;
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) mod model;

pub use crate::host::*;
pub use bundle::Env;
