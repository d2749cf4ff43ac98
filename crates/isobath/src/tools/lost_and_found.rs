//! The folder for what a repair moves out of the way.

/// Its name, in the database's directory.
pub(super) const LOST_AND_FOUND: &str = "lost+found";
