//! Where the tests of the engine stand: a file that only tests compile says so by its name or its
//! folder.

use super::imports::{ENGINE, module_of};
use super::{Source, Violation, Workspace};

/// What such a file, or a folder around it, is called; a model may have a word in front, as in
/// `order_model`.
const NAMES: [&str; 3] = ["tests", "fixtures", "model"];

/// Checks every file of the engine.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let engine = workspace.rust().filter(|source| source.path.starts_with(ENGINE));
    let lost = engine.filter(|source| workspace.is_test_only(&source.path) && !is_named(source));
    let what = "only tests compile it: call it `tests`, `fixtures` (what tests of several rooms share) or `model` \
                (of concurrency), or put it into a folder of that name";
    lost.map(|source| source.violation(0, what)).collect()
}

fn is_named(source: &Source) -> bool {
    let names = module_of(&source.path);
    names.iter().any(|name| NAMES.contains(&name.as_str()) || name.ends_with("_model"))
}
