//! What the operators make of a small file, how it is woven, what is left out, and that errors of a
//! compiler lead back to the mutants that caused them.

mod campaign;
mod orders;
mod process;

use super::finder;
use super::known::{self, Known};
use super::site::{Mutant, Sites};
use super::sources::SourceFile;
use super::weave::{Region, Woven};

fn file(text: &str) -> SourceFile {
    let path = "crates/isobath/src/wal/a.rs".to_owned();
    SourceFile { path, text: text.to_owned(), syntax: syn::parse_file(text).unwrap() }
}

fn found(text: &str) -> (Sites, Vec<Mutant>) {
    let (mut sites, mut mutants) = (Sites::default(), Vec::new());
    finder::find(&file(text), &mut sites, &mut mutants);
    (sites, mutants)
}

/// What the mutants of a text do.
fn changes(text: &str) -> Vec<String> {
    found(text)
        .1
        .into_iter()
        .map(|mutant| format!("{}: {}", mutant.operator, mutant.change))
        .collect()
}

#[test]
fn each_operator_makes_its_mutants() {
    let of = |body: &str| changes(&format!("fn f(a: u64, b: u64) -> u64 {{ {body} }}"));
    assert_eq!(of("g(a < b)"), ["comparison: `a < b` -> `<=`", "comparison: `a < b` -> `>=`"]);
    assert_eq!(of("a + b"), ["arithmetic: `a + b` -> `-`"]);
    assert_eq!(of("g(x && y)"), ["boolean: `x && y` -> `||`"]);
    assert_eq!(of("g(!x)"), ["not dropped: `!x` -> `x`"]);
    assert_eq!(of("a.min(b)"), ["call: `a.min(b)` -> `max`"]);
    let ranges = ["range: `..b`: `(b) - 1`", "range: `..b`: `(b) + 1`"];
    assert_eq!(of("g(..b)"), ranges);
    let forced = ["condition forced: `x` -> `true`", "condition forced: `x` -> `false`"];
    assert_eq!(of("if x { 1 } else { 2 }"), forced);
    assert_eq!(of("while x {} 1"), ["condition forced: `x` -> `false`"]);
    let swapped = "statements swapped: `g();` after `h();`";
    assert_eq!(
        of("g(); h(); 1"),
        ["statement dropped: `g();` dropped", "statement dropped: `h();` dropped", swapped]
    );
    let ignored =
        ["statement dropped: `g()?;` dropped", "error ignored: the error of `g()?;` ignored"];
    assert_eq!(of("g()?; 1"), ignored);
    assert_eq!(
        of("a.load(Ordering::Acquire)"),
        ["ordering: `Ordering::Acquire` -> `Ordering::Relaxed`"]
    );
    assert_eq!(
        changes("fn f() -> Result<()> { g() }"),
        ["early return: `f` returns `Ok(())` at once"]
    );
}

#[test]
fn what_no_run_can_tell_apart_is_left_out() {
    for text in [
        "const A: u64 = 1 + 2;",
        "const fn f() -> u64 { 1 + 2 }",
        "fn f() -> [u8; 1 + 2] { g::<{ 1 + 2 }>() }",
        "fn f() -> u64 { assert!(a < b); 1 }",
        "#[cfg(test)] mod tests { fn f() -> u64 { 1 + 2 } }",
        "#[cfg(loom)] fn f() -> u64 { 1 + 2 }",
        "#[cfg(not(unix))] fn f() -> u64 { 1 + 2 }",
        "impl fmt::Display for A { fn fmt(&self) -> u64 { 1 + 2 } }",
        "fn f() -> u64 { if planted(Plant::A) { 1 } else { 2 } }",
        "fn f() -> u64 { if planted(Plant::A) { g(a + b)?; h(); } 1 }",
        "fn f() -> u64 { self.metrics.add(1); 1 }",
        "fn f() -> u64 { reached(Reach::A); yield_point(Point::A); 1 }",
        "fn f() -> u64 { reached_if(Reach::A, || a < b && !c); 1 }",
        "fn f() -> u64 { match a { 1..3 => 1, _ => 2 } }",
    ] {
        assert_eq!(changes(text), [""; 0], "{text}");
    }
    let guarded = "#[cfg(feature = \"simulation\")] fn f() -> u64 { 1 + 2 }";
    assert_eq!(changes(guarded).len(), 1);
    let otherwise = changes("fn f() -> u64 { if planted(Plant::A) { 1 + 2 } else { a + b } }");
    assert_eq!(otherwise, ["arithmetic: `a + b` -> `-`"]);
    let real = ["arithmetic: `a + b` -> `-`"];
    assert_eq!(changes("fn f() -> u64 { if !planted(Plant::A) { a + b } else { 1 } }"), real);
    assert_eq!(
        changes("fn f() -> u64 { if !c && !planted(Plant::A) { a + b } else { 1 } }").len(),
        2
    );
    assert_eq!(changes("fn f() -> u64 { if c || planted(Plant::A) { a + b } else { 1 } }"), real);
    assert_eq!(
        changes("fn f() -> u64 { if c && planted(Plant::A) { a + b } else { 1 } }"),
        [""; 0]
    );
    let chain = changes("fn f() -> u64 { if let Some(a) = b && c < d { 1 } else { 2 } }");
    assert!(chain.iter().all(|change| change.starts_with("comparison")), "{chain:?}");
}

#[test]
fn a_mutant_within_another_is_woven_into_its_unchanged_side_only() {
    let text = "fn f() -> u64 { a + b * c }";
    let (sites, mutants) = found(text);
    let woven = Woven::weave(text, &sites.sorted(|_| false), &[1, 2, 3]);
    let inner = "(if crate::mutant_is_on(2) { (b) / (c) } else { b * c })";
    let whole = format!("(if crate::mutant_is_on(1) {{ (a) - (b * c) }} else {{ a + {inner} }})");
    assert_eq!(woven.text, format!("fn f() -> u64 {{ {whole} }}"));
    assert_eq!(mutants.len(), 2);
    syn::parse_file(&woven.text).unwrap();
    let without = Woven::weave(text, &sites.sorted(|mutant| mutant == 0), &[1, 2, 3]);
    assert_eq!(without.text, format!("fn f() -> u64 {{ a + {} }}", inner));
}

#[test]
fn swapped_statements_change_places_under_one_switch() {
    let text = "fn f() -> u64 { g(); h(); 1 }";
    let (sites, _) = found(text);
    let swapped = |mutant: usize| mutant != 2;
    let woven = Woven::weave(text, &sites.sorted(swapped), &[1, 2, 3]);
    let one = "if crate::mutant_is_on(3) { h(); } else { g(); }";
    let two = "if crate::mutant_is_on(3) { g(); } else { h(); }";
    assert_eq!(woven.text, format!("fn f() -> u64 {{ {one} {two} 1 }}"));
}

#[test]
fn an_error_of_the_compiler_leads_to_the_branch_it_points_into() {
    let text = "fn f() -> u64 { a + b * c }";
    let (sites, _) = found(text);
    let woven = Woven::weave(text, &sites.sorted(|_| false), &[1, 2, 3]);
    let at = |part: &str| {
        let start = woven.text.find(part).unwrap();
        start..start + part.len()
    };
    let around = |part: &str, is_wanted: fn(&Region) -> bool| woven.around(&at(part), is_wanted);
    let is_branch = |region: &Region| matches!(region, Region::Branch(_));
    assert_eq!(around("(b) / (c)", is_branch), Some(&Region::Branch(1)));
    assert_eq!(around("(a) - ", is_branch), Some(&Region::Branch(0)));
    assert_eq!(around("fn f", is_branch), None);
    assert_eq!(
        around("{ a + ", |region| matches!(region, Region::Site(_))),
        Some(&Region::Site(vec![0]))
    );
    let is_function = |region: &Region| matches!(region, Region::Function(_));
    assert_eq!(around("fn f", is_function), Some(&Region::Function(vec![0, 1])));
}

fn listed(edits: &str) -> Vec<Known> {
    let head = "[[mutant]]\nname = \"m\"\nwhy = \"w\"\n";
    let edit = "[[mutant.edit]]\nfile = \"crates/isobath/src/wal/a.rs\"\n";
    known::parse(&format!("{head}{}", edits.replace("EDIT", edit))).unwrap()
}

#[test]
fn a_mutant_with_a_name_replaces_the_body_of_its_function() {
    let file = file("fn f() -> u64 { a + b }\nfn g() -> u64 { a + c }");
    let mut known = listed("EDIT find = \"+ b\"\nreplace = \"- b\"");
    assert_eq!(known::take_stale(&mut known, std::slice::from_ref(&file)), [""; 0]);
    let (mut sites, mut mutants) = (Sites::default(), Vec::new());
    known::find(&known, &file, &mut sites, &mut mutants);
    let woven = Woven::weave(&file.text, &sites.sorted(|_| false), &[1, 2, 3]);
    let body = "if crate::mutant_is_on(1) {  a - b  } else {  a + b  }";
    assert_eq!(woven.text, format!("fn f() -> u64 {{{body}}}\nfn g() -> u64 {{ a + c }}"));
    assert_eq!((mutants.len(), mutants[0].name.as_deref()), (1, Some("m")));
}

#[test]
fn a_mutant_with_a_name_that_does_not_fit_is_told_and_left_out() {
    let file = file("const A: u64 = 1;\nfn f() -> u64 { a + b + b }");
    let told = |edits: &str| {
        let mut known = listed(edits);
        let told = known::take_stale(&mut known, std::slice::from_ref(&file));
        (told.len(), known.len())
    };
    assert_eq!(told("EDIT find = \"+ c\"\nreplace = \"- b\""), (1, 0));
    assert_eq!(told("EDIT find = \"+ b\"\nreplace = \"- b\""), (1, 0));
    assert_eq!(told("EDIT find = \"+ b\"\nreplace = \"- b\"\nnth = 2"), (0, 1));
    assert_eq!(told("EDIT find = \"= 1\"\nreplace = \"= 2\""), (1, 0));
}

#[test]
fn every_listed_mutant_and_every_explanation_fits_the_sources() {
    let workspace = crate::tidy::workspace_root().canonicalize().unwrap();
    let list = std::path::Path::new("xtask/mutants/known.toml");
    let mut known = known::read(&workspace.join(list)).unwrap();
    let tree = super::tree::Tree::find(&workspace, list, &mut known).unwrap();
    assert_eq!(tree.stale, [""; 0]);
    let explained =
        super::explained::read(&workspace.join("xtask/mutants/explained.toml")).unwrap();
    assert_eq!(tree.explain(&explained).1, [""; 0]);
}
