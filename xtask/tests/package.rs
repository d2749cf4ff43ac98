//! What the packages for the registry hold.

use std::process::Command;
use xtask::tidy::workspace_root;

/// What cargo prints.
fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    let output = command.args(arguments).current_dir(workspace_root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_package_holds_its_readme_and_both_licences() {
    for package in ["isobath", "isobath-cli"] {
        let listed = cargo(&["package", "--list", "--allow-dirty", "--offline", "-p", package]);
        let files: Vec<&str> = listed.lines().collect();
        for needed in ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(files.contains(&needed), "{package} lacks {needed}");
        }
        assert!(files.iter().any(|file| file.starts_with("src/")));
    }
}
