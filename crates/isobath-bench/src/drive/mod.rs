//! Driving threads over an engine: starting together, keeping a rate, stopping early, showing
//! progress.

mod pace;
mod progress;
mod stop;
mod team;

pub(crate) use pace::Pace;
pub(crate) use progress::Progress;
pub(crate) use stop::Stop;
pub(crate) use team::{Limits, Share, TeamResult, Ticket, run_team};
