//! What counts as a failure of a child, and what runs once more first. The children are scripts of
//! the shell.

use super::super::process::{End, Leash};
use super::campaign::{folder, script};
use std::fs;
use std::time::{Duration, Instant};

/// How a child ends that has twelve seconds for each run, since any thread may stand still for ten,
/// and what it was asked.
fn ended(name: &str, text: &str) -> (End, Vec<String>) {
    ended_within(name, text, [12, 12])
}

/// The same with so many seconds for each run, and for each silence.
fn ended_within(name: &str, text: &str, limits: [u64; 2]) -> (End, Vec<String>) {
    let folder = folder(name);
    let asked = folder.join("asked");
    let program = script(&folder, "units", &format!("echo \"$*\" >> {}\n{text}", asked.display()));
    let arguments = vec!["wal::".to_owned()];
    let environment = vec![("FOLDER", folder.display().to_string())];
    let (program, folder) = (&*program, &*folder);
    let [deadline, quiet] = limits.map(Duration::from_secs);
    let leash = Leash { program, arguments, folder, environment, deadline, quiet };
    let end = leash.run_to_a_failure_that_repeats().unwrap();
    let asked = fs::read_to_string(asked).unwrap();
    fs::remove_dir_all(folder).unwrap();
    (end, asked.lines().map(str::to_owned).collect())
}

const LONG: &str = "echo 'test wal::slow has been running for over 60 seconds'";

#[test]
fn a_hang_that_repeats_counts() {
    let (end, asked) = ended("hangs", "exec sleep 600");
    assert_eq!((end, asked.len()), (End::Hung(Vec::new()), 2), "{asked:?}");
}

#[test]
fn a_test_that_hangs_again_counts() {
    let (end, asked) = ended("hangs-in-a-test", &format!("{LONG}; exec sleep 600"));
    assert_eq!(end, End::Hung(vec!["wal::slow".to_owned()]));
    assert_eq!(asked, ["wal::", "wal::slow --exact"]);
}

#[test]
fn a_hang_that_does_not_repeat_is_none() {
    let once = "[ -e $FOLDER/hung ] && exit 0; : > $FOLDER/hung; exec sleep 600";
    let (end, asked) = ended("hangs-once", once);
    assert_eq!((end, asked.len()), (End::Passed, 2), "{asked:?}");
}

#[test]
fn a_test_that_hangs_beside_others_alone_is_left_out() {
    let beside = format!("[ \"$*\" != 'wal::' ] && exit 0; {LONG}; exec sleep 600");
    let (end, asked) = ended("hangs-beside-others", &beside);
    assert_eq!(end, End::Passed);
    assert_eq!(asked, ["wal::", "wal::slow --exact", "wal:: --skip wal::slow"]);
}

#[test]
fn a_test_that_came_to_its_end_hangs_no_more() {
    let (end, asked) =
        ended("hangs-later", &format!("{LONG}; echo 'test wal::slow ... ok'; exec sleep 600"));
    assert_eq!((end, asked.len()), (End::Hung(Vec::new()), 2), "{asked:?}");
}

#[test]
fn one_that_tells_nothing_more_has_hung_before_its_time() {
    let began = Instant::now();
    let (end, _) = ended_within("is-silent", &format!("{LONG}; exec sleep 600"), [500, 12]);
    assert_eq!(end, End::Hung(vec!["wal::slow".to_owned()]));
    assert!(began.elapsed() < Duration::from_secs(250), "{:?}", began.elapsed());
    let speaks = "for n in 1 2 3 4 5 6; do echo test $n ... ok; sleep 3; done";
    assert_eq!(ended_within("speaks", speaks, [500, 12]).0, End::Passed);
}
