//! What the packages for the registry hold and need.

use std::fs;
use std::path::Path;
use std::process::Command;
use xtask::tidy::workspace_root;

/// What a program prints that ends well.
fn run(command: &mut Command) -> String {
    let output = command.current_dir(workspace_root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn cargo(arguments: &[&str]) -> String {
    run(Command::new(env!("CARGO")).args(arguments))
}

fn manifest(package: &str) -> toml::Table {
    let path = workspace_root().join("crates").join(package).join("Cargo.toml");
    fs::read_to_string(path).unwrap().parse().unwrap()
}

/// Those that are for the registry. Cargo packages them in one command, and finds the library that
/// the command line needs among them: it is not in the registry yet.
const PUBLISHED: [&str; 2] = ["isobath", "isobath-cli"];

#[test]
fn both_packages_are_made_and_hold_their_readme_and_licences() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    // `.ci/run` builds what is in them, too.
    let how = ["--allow-dirty", "--offline", "--no-verify", "--target-dir"];
    let which = PUBLISHED.map(|package| ["-p", package]).concat();
    cargo(&[&["package"], &how[..], &[target.to_str().unwrap()], &which].concat());
    for package in PUBLISHED {
        let made = target.join("package").join(format!("{package}-0.1.0.crate"));
        let listed = run(Command::new("tar").arg("-tzf").arg(made));
        let root = format!("{package}-0.1.0/");
        let files: Vec<&str> = listed.lines().filter_map(|line| line.strip_prefix(&root)).collect();
        for needed in ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(files.contains(&needed), "{package} lacks {needed}");
        }
        assert!(files.iter().any(|file| file.starts_with("src/")));
        assert_eq!(files.contains(&"guide/README.md"), package == "isobath");
    }
}

#[test]
fn a_package_says_what_the_registry_and_its_readers_ask_for() {
    for package in PUBLISHED {
        let manifest = &manifest(package)["package"];
        for told in ["description", "license", "repository", "readme", "keywords", "categories"] {
            assert!(manifest.get(told).is_some(), "{package} does not tell its {told}");
        }
        let keywords = manifest["keywords"].as_array().unwrap();
        assert!(keywords.len() <= 5, "the registry takes five");
        assert!(manifest["metadata"]["docs"]["rs"].get("targets").is_some());
    }
}

#[test]
fn the_simulated_engine_is_the_engine_with_one_more_feature() {
    let (engine, mut simulated) = (manifest("isobath"), manifest("isobath-simulated"));
    let defaults = simulated["features"]["default"].as_array_mut().unwrap();
    assert_eq!(defaults.pop().unwrap().as_str(), Some("simulation"));
    for part in ["features", "dependencies", "target"] {
        assert_eq!(engine[part], simulated[part], "{part}");
    }
}

#[test]
fn no_build_of_the_workspace_has_test_doubles_or_the_hooks_of_a_simulator() {
    let tree = ["tree", "--offline", "--prefix", "none", "--workspace", "--format", "{p} {f}"];
    let listed = cargo(&[&tree[..], &["--edges", "normal,build"]].concat());
    let of = |package: &str| {
        let mut lines = listed.lines().filter(|line| line.split(' ').next() == Some(package));
        let features = lines.next().unwrap_or_else(|| panic!("{package} is built"));
        assert!(lines.all(|line| line.trim_end_matches(" (*)") == features), "one {package}");
        ["simulation", "testing"].map(|feature| features.contains(feature))
    };
    assert_eq!(of("isobath-simulated"), [true, true]);
    assert_eq!(of("isobath"), [false, false]);
}

/// The packages that the engine is built with, with these features beside none by default.
fn needs(features: &str) -> Vec<String> {
    let tree = ["tree", "--offline", "--prefix", "none", "--edges", "normal,build"];
    let engine = ["-p", "isobath", "--no-default-features", "--features", features];
    let listed = cargo(&[&tree[..], &engine].concat());
    listed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn without_its_codecs_the_engine_needs_no_c_compiler() {
    let is_c = |name: &String| name == "cc" || name.ends_with("-sys");
    let without = needs("snappy,tracing,metrics");
    assert!(without.contains(&"snap".to_owned()), "{without:?}");
    assert_eq!(without.iter().find(|name| is_c(name)), None);
    assert_eq!(without.iter().find(|name| name.starts_with("serde")), None);
    for codec in ["lz4", "zstd"] {
        assert!(needs(codec).iter().any(is_c), "{codec}");
    }
}
