//! Builds the woven tree, and drops mutants that do not compile: an error of the compiler points to
//! the mutants at its place, and the tree is woven again without them, until it compiles.

use super::built;
use super::nets;
use super::tree::Tree;
use super::weave::Region;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The programs that a mutant is tried with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct Programs {
    /// The library's unit tests.
    pub(super) units: PathBuf,
    /// Integration tests by name.
    pub(super) tests: Vec<(String, PathBuf)>,
    pub(super) simulator: PathBuf,
}

const AS_USUAL: &str = "--cap-lints=allow";
const FOR_LOOM: &str = "--cap-lints=allow --cfg loom";

/// What a build said.
struct Said {
    is_built: bool,
    /// The spans of each error, the primary ones first.
    errors: Vec<Vec<(String, Range<usize>)>>,
    /// The text of each error.
    texts: Vec<String>,
    /// Names and files of what can be run.
    executables: Vec<(String, String, PathBuf)>,
}

/// The tests and the simulator, if they are wanted: those of the build at hand if it was made of
/// the same sources, else built, dropping mutants that do not compile.
pub(super) fn build(
    tree: &mut Tree,
    with_tests: bool,
    with_simulator: bool,
) -> io::Result<Programs> {
    let record = tree.target.join("built.json");
    let at_hand = built::programs(&record, &tree.digest);
    let mut programs = at_hand.unwrap_or_default();
    let with_tests = with_tests && programs.units.as_os_str().is_empty();
    let with_simulator = with_simulator && programs.simulator.as_os_str().is_empty();
    if !with_tests && !with_simulator {
        return Ok(programs);
    }
    built::forget(&record)?;
    tree.copy()?;
    tree.write()?;
    if tree.is_for_models {
        let units = ["test", "--no-run", "--package", "isobath", "--lib"];
        for (_, _, file) in until_it_builds(tree, &units)? {
            programs.units = file;
        }
        built::note(&record, &tree.digest, &programs)?;
        return Ok(programs);
    }
    let check = ["check", "--package", "isobath"];
    until_it_builds(tree, &[&check[..], &["--features", "simulation"]].concat())?;
    if with_tests {
        until_it_builds(tree, &check)?;
        let mut arguments = vec!["test", "--no-run", "--package", "isobath", "--lib"];
        arguments.extend(nets::integration_tests().iter().flat_map(|test| ["--test", test]));
        for (kind, name, file) in until_it_builds(tree, &arguments)? {
            match &*kind {
                "lib" => programs.units = file,
                _ => programs.tests.push((name, file)),
            }
        }
    }
    if with_simulator {
        let simulator = ["build", "--release", "--package", "isobath-sim"];
        let built = until_it_builds(tree, &simulator)?;
        let simulator = built.into_iter().find(|(_, name, _)| name == "isobath-sim");
        programs.simulator = simulator.ok_or_else(|| io::Error::other("no simulator was built"))?.2;
    }
    built::note(&record, &tree.digest, &programs)?;
    Ok(programs)
}

type Executables = Vec<(String, String, PathBuf)>;

fn until_it_builds(tree: &mut Tree, arguments: &[&str]) -> io::Result<Executables> {
    loop {
        let said = cargo(tree, arguments)?;
        if said.is_built {
            return Ok(said.executables);
        }
        let before = tree.refused.len();
        for (spans, text) in said.errors.iter().zip(&said.texts) {
            let causes = causes(tree, spans);
            for &mutant in &causes {
                if let Some(name) = &tree.mutants[mutant].name {
                    return Err(io::Error::other(format!(
                        "the mutant {name} does not compile: {text}"
                    )));
                }
            }
            if causes.len() > 3 {
                eprintln!("{} mutants refused for one error: {text}", causes.len());
            }
            tree.refused.extend(causes);
        }
        let refused = tree.refused.len() - before;
        eprintln!(
            "cargo {}: {} errors, {refused} mutants refused",
            arguments.join(" "),
            said.errors.len()
        );
        if refused == 0 {
            return Err(io::Error::other(format!(
                "nothing to refuse for: {}",
                said.texts.join("\n")
            )));
        }
        tree.write()?;
    }
}

/// The mutants that an error is due to.
fn causes(tree: &Tree, spans: &[(String, Range<usize>)]) -> BTreeSet<usize> {
    let is_branch = |region: &Region| matches!(region, Region::Branch(_));
    let is_site = |region: &Region| matches!(region, Region::Site(_));
    let is_function = |region: &Region| matches!(region, Region::Function(_));
    let wanted: [&dyn Fn(&Region) -> bool; 3] = [&is_branch, &is_site, &is_function];
    for is_wanted in wanted {
        for (file, range) in spans {
            let Some(woven) = tree.woven.get(file) else { continue };
            let mutants: Vec<usize> = match woven.around(range, is_wanted) {
                Some(Region::Branch(mutant)) => vec![*mutant],
                Some(Region::Site(mutants) | Region::Function(mutants)) => mutants.clone(),
                None => continue,
            };
            let is_known = |mutant: &usize| tree.mutants[*mutant].name.is_some();
            let is_sure = mutants.len() == 1;
            let fresh = mutants.iter().filter(|mutant| !tree.refused.contains(mutant));
            let fresh: BTreeSet<usize> =
                fresh.filter(|mutant| is_sure || !is_known(mutant)).copied().collect();
            if !fresh.is_empty() {
                return fresh;
            }
        }
    }
    BTreeSet::new()
}

fn cargo(tree: &Tree, arguments: &[&str]) -> io::Result<Said> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .args(["--message-format", "json"])
        .current_dir(&tree.root)
        .env("CARGO_TARGET_DIR", tree.target.join("build"))
        .env("RUSTFLAGS", if tree.is_for_models { FOR_LOOM } else { AS_USUAL })
        .envs([("CARGO_INCREMENTAL", "1"), ("CARGO_PROFILE_DEV_DEBUG", "0")])
        .envs([("CARGO_PROFILE_DEV_OPT_LEVEL", "1"), ("CARGO_PROFILE_TEST_OPT_LEVEL", "1")])
        .envs([("CARGO_PROFILE_TEST_DEBUG", "0"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")])
        .envs([("CARGO_PROFILE_RELEASE_LTO", "off"), ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2")])
        .envs([("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")])
        .env_remove("RUSTC_WRAPPER")
        .stderr(Stdio::inherit())
        .output()?;
    let mut said = Said {
        is_built: output.status.success(),
        errors: Vec::new(),
        texts: Vec::new(),
        executables: Vec::new(),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if message["reason"] == "compiler-artifact"
            && let Some(file) = message["executable"].as_str()
        {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let target = &message["target"];
            said.executables.push((text(&target["kind"][0]), text(&target["name"]), file.into()));
        }
        let message = &message["message"];
        if message["level"] == "error"
            && message["spans"].as_array().is_some_and(|all| !all.is_empty())
        {
            let mut spans = Vec::new();
            spans_of(message, true, &mut spans);
            spans_of(message, false, &mut spans);
            said.errors.push(spans);
            said.texts.push(message["rendered"].as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(said)
}

/// Adds the primary spans of a message, or the others and those of its notes.
fn spans_of(message: &Value, primary: bool, spans: &mut Vec<(String, Range<usize>)>) {
    for span in message["spans"].as_array().into_iter().flatten() {
        if span["is_primary"] == primary {
            let byte = |name: &str| span[name].as_u64().unwrap_or_default() as usize;
            let file = span["file_name"].as_str().unwrap_or_default().to_owned();
            spans.push((file, byte("byte_start")..byte("byte_end")));
        }
    }
    if !primary {
        for child in message["children"].as_array().into_iter().flatten() {
            spans_of(child, true, spans);
            spans_of(child, false, spans);
        }
    }
}
