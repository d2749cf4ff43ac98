//! What is changed in statements and bodies: calls and assignments left out, calls in another
//! order, errors ignored, and functions that return at once.

use super::finder::{Finder, range, shortened};
use super::site::Kind;
use std::ops::Range;
use syn::{Block, Expr, ReturnType, Signature, Stmt};

/// The lines of a body that still counts as small.
const SMALL: usize = 24;

/// Calls whose effect only listeners and metrics can see.
const TELEMETRY: [&str; 9] = [
    "metrics",
    "telemetry",
    "events",
    "gauge",
    "counter",
    "prefetch",
    "tracing",
    "planted(",
    ".record_",
];

/// Calls that have an effect in the simulator alone: they count which places are reached, or let
/// another thread go first.
const FOR_SIMULATOR: [&str; 4] = ["reached(", "reached_if(", "yield_point(", "preempt()"];

/// What is between a body's braces.
pub(super) fn inner(block: &Block) -> Range<usize> {
    block.brace_token.span.open().byte_range().end
        ..block.brace_token.span.close().byte_range().start
}

/// The mutants of a block's own statements.
pub(super) fn of_block(finder: &mut Finder<'_>, block: &Block) {
    for statement in &block.stmts {
        let Stmt::Expr(expression, Some(_)) = statement else { continue };
        let whole = range(statement);
        if is_idle(finder.text(whole.clone())) {
            continue;
        }
        let shown = shortened(finder.text(whole.clone()));
        match expression {
            Expr::Try(attempt) if is_call(&attempt.expr) => {
                finder.add(
                    whole.clone(),
                    Kind::Statement,
                    "statement dropped",
                    String::new(),
                    &format!("`{shown}` dropped"),
                );
                let ignored = format!("let _ = {};", finder.text(range(&attempt.expr)));
                finder.add(
                    whole,
                    Kind::Statement,
                    "error ignored",
                    ignored,
                    &format!("the error of `{shown}` ignored"),
                );
            }
            Expr::Assign(_) | Expr::Binary(_) | Expr::Call(_) | Expr::MethodCall(_) => {
                finder.add(
                    whole,
                    Kind::Statement,
                    "statement dropped",
                    String::new(),
                    &format!("`{shown}` dropped"),
                );
            }
            _ => {}
        }
    }
    for pair in block.stmts.windows(2) {
        if let [first, second] = pair
            && is_unit_like(first)
            && is_unit_like(second)
        {
            swap(finder, first, second);
        }
    }
}

/// Each of the two in the other's place, under one switch.
fn swap(finder: &mut Finder<'_>, first: &Stmt, second: &Stmt) {
    let (one, two) = (range(first), range(second));
    let texts = [finder.text(one.clone()).to_owned(), finder.text(two.clone()).to_owned()];
    if texts.iter().any(|text| is_idle(text)) {
        return;
    }
    let [before, after] = texts;
    let change = format!("`{}` after `{}`", shortened(&before), shortened(&after));
    let mutant = finder.add(one, Kind::Statement, "statements swapped", after, &change);
    finder.sites.add(two, Kind::Statement, mutant, before);
}

fn is_unit_like(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(Expr::Try(attempt), Some(_)) => is_call(&attempt.expr),
        Stmt::Expr(expression, Some(_)) => {
            is_call(expression) || matches!(expression, Expr::Assign(_))
        }
        _ => false,
    }
}

fn is_call(expression: &Expr) -> bool {
    matches!(expression, Expr::Call(_) | Expr::MethodCall(_))
}

/// True of a statement that changes nothing that a run could show.
fn is_idle(text: &str) -> bool {
    is_telemetry(text) || is_for_simulator(text)
}

/// True of a call that does something in the simulator only.
pub(super) fn is_for_simulator(text: &str) -> bool {
    FOR_SIMULATOR.iter().any(|call| text.starts_with(call))
}

fn is_telemetry(text: &str) -> bool {
    TELEMETRY.iter().any(|word| text.contains(word))
}

/// A small function that returns a neutral value at once.
pub(super) fn early_return(finder: &mut Finder<'_>, signature: &Signature, body: &Block) {
    let within = inner(body);
    let text = finder.text(within.clone()).to_owned();
    if body.stmts.is_empty() || text.matches('\n').count() > SMALL || is_telemetry(&text) {
        return;
    }
    let returned: String = match &signature.output {
        ReturnType::Default => "()".to_owned(),
        ReturnType::Type(_, kind) => finder.text(range(kind)).split_whitespace().collect(),
    };
    let inside = |wrapper: &str| {
        let at = returned.find(wrapper)? + wrapper.len();
        Some(&returned[at..])
    };
    let values: &[&str] = match (&*returned, inside("Result<")) {
        ("()", _) => &["()"],
        ("bool", _) => &["true", "false"],
        (_, Some(inside)) if inside.starts_with("()") => &["Ok(())"],
        (_, Some(inside)) if inside.starts_with("Option<") => &["Ok(None)"],
        (_, Some(inside)) if inside.starts_with("bool") => &["Ok(true)", "Ok(false)"],
        (option, _) if option.starts_with("Option<") => &["None"],
        _ => &[],
    };
    for value in values {
        if text.trim() != *value {
            let change = format!("`{}` returns `{value}` at once", signature.ident);
            let at = within.start..within.start;
            finder.add(at, Kind::Start, "early return", format!("return {value};"), &change);
        }
    }
}
