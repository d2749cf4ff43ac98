//! Weaker orders of atomics: what is changed, which fences go with it, and what becomes of such a
//! mutant in models. The models are scripts of the shell.

use super::super::models::Models;
use super::super::nets::{Net as _, Verdict};
use super::super::site::{Access, Mutant};
use super::super::weave::Woven;
use super::campaign::{folder, script};
use super::{changes, found};
use std::fs;
use std::time::Duration;

#[test]
fn orders_are_weakened_with_or_without_their_type_and_fences_left_out() {
    let of = |body: &str| changes(&format!("fn f() -> u64 {{ {body} }}"));
    let bare = "ordering: `Acquire` -> `std::sync::atomic::Ordering::Relaxed`";
    assert_eq!(of("a.load(Acquire)"), [bare]);
    assert_eq!(of("g(fence(Release))"), ["ordering: `fence(Release)` -> `()`"]);
    assert_eq!(of("g(a.load(Relaxed), b.load(Ordering::Relaxed))"), [""; 0]);
    assert_eq!(of("g(self.fence(), fence(key))"), [""; 0]);
}

#[test]
fn an_order_is_that_of_a_load_a_store_or_both() {
    let accesses = |body: &str| {
        let (_, mutants) = found(&format!("fn f() {{ {body} }}"));
        mutants.iter().filter_map(|mutant| mutant.access).collect::<Vec<_>>()
    };
    assert_eq!(accesses("a.load(Ordering::SeqCst)"), [Access::Load]);
    assert_eq!(accesses("a.load(Ordering::Acquire)"), [Access::Weak]);
    assert_eq!(accesses("a.store(1, SeqCst)"), [Access::Store]);
    assert_eq!(accesses("a.swap(1, Ordering::SeqCst)"), [Access::Update]);
    let exchange = "a.compare_exchange(b, c, Ordering::SeqCst, Ordering::SeqCst)";
    assert_eq!(accesses(exchange), [Access::Update, Access::Load]);
    assert_eq!(accesses("a.fetch_update(Relaxed, SeqCst, g)"), [Access::Load]);
    assert_eq!(accesses("g(fence(SeqCst))"), [Access::Weak]);
}

/// The woven text with the weaker orders only.
fn woven(text: &str) -> String {
    let (sites, mutants) = found(text);
    let numbers: Vec<usize> = (1..=mutants.len()).collect();
    let is_left_out = |mutant: usize| mutants[mutant].access.is_none();
    Woven::weave(text, &sites.sorted(is_left_out), &numbers).text
}

#[test]
fn the_fence_for_loom_behind_a_store_goes_with_its_order() {
    let without = "(if crate::mutant_switch::drops_fence(N) { () } else { fence_for_loom() })";
    for (text, number) in [
        ("fn f() { a.store(1, SeqCst); fence_for_loom(); b.load(SeqCst) }", "1"),
        ("fn f() { a.swap(1, SeqCst); fence_for_loom(); b.load(SeqCst) }", "1"),
        (
            "fn f() { match a.compare_exchange(b, c, SeqCst, SeqCst) { _ => fence_for_loom() } }",
            "1",
        ),
    ] {
        let (_, mutants) = found(text);
        let first = mutants.iter().position(|mutant| mutant.access.is_some()).unwrap();
        let number = (number.parse::<usize>().unwrap() + first).to_string();
        assert!(woven(text).contains(&without.replace('N', &number)), "{}", woven(text));
    }
}

#[test]
fn a_fence_that_another_store_needs_stays_and_so_does_one_of_another_function() {
    let text = "fn f() { a.store(1, SeqCst); b.store(1, SeqCst); fence_for_loom(); }
                fn g() { fence_for_loom(); }";
    let text = woven(text);
    assert_eq!(text.matches("{ () } else { fence_for_loom() }").count(), 1, "{text}");
    assert!(text.contains("fn g() { fence_for_loom(); }"), "{text}");
    let loads = woven("fn f() { a.load(SeqCst); fence_for_loom(); }");
    assert!(loads.contains("; fence_for_loom(); }"), "{loads}");
}

/// A program with three models: `a` comes to the places 1 and 2, `b` to 2 and 3, and `c` to 3.
const PROGRAM: &str = "
[ \"$*\" = 'model:: --list' ] && { printf 'a::model::a: test\nb: test\nc: test\n'; exit 0; }
echo \"$1 $ISOBATH_MUTANT $ISOBATH_MUTANT_FENCES\" >> $(dirname $0)/asked
case $1 in
a::model::a) printf '1\n2\n' > $ISOBATH_MUTANT_REACHED;;
b) sleep 0.2; printf '2\n3\n' > $ISOBATH_MUTANT_REACHED;;
c) sleep 0.4; printf '3\n' > $ISOBATH_MUTANT_REACHED;;
esac
";

/// What becomes of a mutant, and what the models were asked that were thrown into it.
fn thrown(name: &str, access: Access, number: usize, rest: &str) -> (Verdict, Vec<String>) {
    let folder = folder(name);
    let program = script(&folder, "models", &format!("{PROGRAM}{rest}"));
    let mut models = Models::explore(&program, &folder, &folder, 1).unwrap();
    if rest.contains("exec sleep") {
        models.slack = Duration::ZERO;
    }
    let asked = folder.join("asked");
    assert_eq!(fs::read_to_string(&asked).unwrap().lines().count(), 6, "each model, both ways");
    fs::remove_file(&asked).unwrap();
    let mutant = Mutant { access: Some(access), ..found("fn f() { a.load(Acquire) }").1.remove(0) };
    let verdict = models.throw(0, &mutant, number, 0).unwrap();
    let asked = fs::read_to_string(asked).unwrap_or_default();
    fs::remove_dir_all(&folder).unwrap();
    (verdict, asked.lines().map(str::to_owned).collect())
}

#[test]
fn a_weaker_order_is_thrown_into_the_models_that_come_to_it() {
    let (verdict, mut asked) = thrown("weak", Access::Weak, 2, "true");
    // The faster one comes first: on a busy machine either may be.
    asked.sort();
    assert_eq!((verdict.caught, verdict.is_reached, verdict.unsure), (None, true, None));
    assert_eq!(asked, ["a::model::a 2 follow", "b 2 follow"]);

    let (verdict, asked) = thrown("nowhere", Access::Weak, 4, "true");
    assert_eq!((verdict.caught, verdict.is_reached), (None, false));
    assert_eq!(asked, [""; 0]);
}

#[test]
fn a_sequentially_consistent_access_is_tried_with_fences_on_either_side() {
    let (_, mut asked) = thrown("strong", Access::Load, 1, "true");
    asked.sort();
    assert_eq!(asked, ["a::model::a 1 follow", "a::model::a 1 lead"]);
}

#[test]
fn the_first_model_that_fails_kills_and_one_that_takes_long_decides_nothing() {
    let rest = "[ $1$ISOBATH_MUTANT = b2 ] && { echo 'test b ... FAILED'; exit 101; }; true";
    let (verdict, asked) = thrown("caught", Access::Weak, 2, rest);
    let seen = "fences Follow: test b ... FAILED".to_owned();
    assert_eq!(verdict.caught, Some(("model b".to_owned(), seen)));
    assert_eq!(asked.last().map(String::as_str), Some("b 2 follow"), "nothing comes after it");

    let rest = "[ $ISOBATH_MUTANT = 1 ] && exec sleep 60; true";
    let verdict = thrown("long", Access::Weak, 1, rest).0;
    assert_eq!((verdict.caught, verdict.is_reached), (None, true));
    assert!(verdict.unsure.unwrap().starts_with("a::model::a, fences Follow: not within "));
}

#[test]
fn models_that_fail_without_a_mutant_try_none() {
    let folder = folder("models-fail");
    let program = script(&folder, "models", &format!("{PROGRAM}[ $1 != c ]"));
    let failed = Models::explore(&program, &folder, &folder, 1).err().unwrap();
    assert!(failed.to_string().starts_with("c: without a mutant: Failed"), "{failed}");
    fs::remove_dir_all(&folder).unwrap();
}
