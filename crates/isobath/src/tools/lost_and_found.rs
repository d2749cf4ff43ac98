//! The folder to which a repair moves files.

/// Its name in the database's directory.
pub(super) const LOST_AND_FOUND: &str = "lost+found";
