//! The `isobath` command-line tool.
fn main() {}
