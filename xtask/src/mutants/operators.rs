//! What is changed in expressions: comparisons, arithmetic, conditions, ranges, calls that have a
//! counterpart. What becomes of orders of atomics is in `orders.rs`.

use super::finder::{Finder, range, shortened};
use super::orders;
use super::site::Kind;
use std::ops::Range;
use syn::{Arm, BinOp, Expr, ExprBinary, ExprMethodCall, ExprRange, RangeLimits, UnOp};

/// Calls and what is called instead; each stands for both directions where that makes sense.
const COUNTERPARTS: &[(&str, &[&str])] = &[
    ("min", &["max"]),
    ("max", &["min"]),
    ("min_by_key", &["max_by_key"]),
    ("max_by_key", &["min_by_key"]),
    ("saturating_sub", &["wrapping_sub", "saturating_add"]),
    ("saturating_add", &["wrapping_add", "saturating_sub"]),
    ("saturating_mul", &["wrapping_mul"]),
    ("wrapping_add", &["wrapping_sub"]),
    ("wrapping_sub", &["wrapping_add"]),
    ("checked_add", &["checked_sub"]),
    ("checked_sub", &["checked_add"]),
    ("fetch_add", &["fetch_sub"]),
    ("fetch_sub", &["fetch_add"]),
    ("fetch_max", &["fetch_min"]),
    ("fetch_min", &["fetch_max"]),
    ("any", &["all"]),
    ("all", &["any"]),
    ("is_some_and", &["is_none_or"]),
    ("is_none_or", &["is_some_and"]),
    ("first", &["last"]),
    ("last", &["first"]),
    ("pop_front", &["pop_back"]),
    ("pop_back", &["pop_front"]),
    ("push_front", &["push_back"]),
    ("push_back", &["push_front"]),
    ("first_key_value", &["last_key_value"]),
    ("last_key_value", &["first_key_value"]),
    ("starts_with", &["ends_with"]),
    ("is_lt", &["is_le"]),
    ("is_le", &["is_lt"]),
    ("is_gt", &["is_ge"]),
    ("is_ge", &["is_gt"]),
    ("next_multiple_of", &["saturating_sub"]),
    ("div_ceil", &["div_euclid"]),
];

/// The mutants of one expression, without those within it.
pub(super) fn of_expression(finder: &mut Finder<'_>, expression: &Expr) {
    match expression {
        Expr::Binary(binary) => of_binary(finder, binary),
        Expr::If(whole) => forced(finder, &whole.cond, &["true", "false"]),
        // A condition that is always true would make most loops endless.
        Expr::While(whole) => forced(finder, &whole.cond, &["false"]),
        Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
            let operand = finder.text(range(&unary.expr)).to_owned();
            if !is_planted(&operand) {
                finder.replace(range(unary), Kind::Expression, "not dropped", &operand);
            }
        }
        Expr::Range(bounds) => of_range(finder, bounds),
        Expr::MethodCall(call) => {
            orders::note_access(finder, call);
            of_call(finder, call);
        }
        Expr::Path(path) => orders::of_path(finder, path),
        _ => {}
    }
}

/// The condition behind an arm's pattern.
pub(super) fn of_guard(finder: &mut Finder<'_>, arm: &Arm) {
    if let Some((_, condition)) = &arm.guard {
        forced(finder, condition, &["true", "false"]);
    }
}

fn forced(finder: &mut Finder<'_>, condition: &Expr, to: &[&str]) {
    if has_let(condition) || is_planted(finder.text(range(condition))) {
        return;
    }
    for value in to {
        finder.replace(range(condition), Kind::Expression, "condition forced", value);
    }
}

/// True if a chain of `&&` binds names.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(paren) => has_let(&paren.expr),
        _ => false,
    }
}

/// True for an expression that asks whether a bug is planted. To force its value would plant the
/// bug or change nothing.
pub(super) fn is_planted(text: &str) -> bool {
    text.contains("planted(")
}

/// True of a condition that holds only where a bug is planted.
pub(super) fn is_for_planted(text: &str) -> bool {
    !text.contains("!planted(") && !text.contains("||")
}

fn of_binary(finder: &mut Finder<'_>, binary: &ExprBinary) {
    let (operator, others) = counterparts(&binary.op);
    if has_let(&binary.left) || has_let(&binary.right) || is_planted(finder.text(range(binary))) {
        return;
    }
    for other in others {
        let left = finder.text(range(&binary.left)).to_owned();
        let right = finder.text(range(&binary.right)).to_owned();
        let text = if operator == "assignment" {
            format!("{left} {other} {right}")
        } else {
            format!("({left}) {other} ({right})")
        };
        let op = range(&binary.op);
        let change = format!(
            "`{} {} {}` -> `{other}`",
            shortened(&left),
            finder.text(op),
            shortened(&right)
        );
        // An assignment (`+=`) needs no parentheses: it is a statement, or a block's last
        // expression.
        finder.add(range(binary), Kind::Expression, operator, text, &change);
    }
}

fn counterparts(op: &BinOp) -> (&'static str, &'static [&'static str]) {
    match op {
        BinOp::Lt(_) => ("comparison", &["<=", ">="]),
        BinOp::Le(_) => ("comparison", &["<", ">"]),
        BinOp::Gt(_) => ("comparison", &[">=", "<="]),
        BinOp::Ge(_) => ("comparison", &[">", "<"]),
        BinOp::Eq(_) => ("comparison", &["!="]),
        BinOp::Ne(_) => ("comparison", &["=="]),
        BinOp::Add(_) => ("arithmetic", &["-"]),
        BinOp::Sub(_) => ("arithmetic", &["+"]),
        BinOp::Mul(_) => ("arithmetic", &["/"]),
        BinOp::Div(_) => ("arithmetic", &["*"]),
        BinOp::Rem(_) => ("arithmetic", &["/"]),
        BinOp::Shl(_) => ("arithmetic", &[">>"]),
        BinOp::Shr(_) => ("arithmetic", &["<<"]),
        BinOp::BitAnd(_) => ("arithmetic", &["|"]),
        BinOp::BitOr(_) => ("arithmetic", &["&"]),
        BinOp::BitXor(_) => ("arithmetic", &["|"]),
        BinOp::And(_) => ("boolean", &["||"]),
        BinOp::Or(_) => ("boolean", &["&&"]),
        BinOp::AddAssign(_) => ("assignment", &["-="]),
        BinOp::SubAssign(_) => ("assignment", &["+="]),
        BinOp::MulAssign(_) => ("assignment", &["/="]),
        BinOp::DivAssign(_) => ("assignment", &["*="]),
        BinOp::BitAndAssign(_) => ("assignment", &["|="]),
        BinOp::BitOrAssign(_) => ("assignment", &["&=", "^="]),
        BinOp::BitXorAssign(_) => ("assignment", &["|="]),
        BinOp::ShlAssign(_) => ("assignment", &[">>="]),
        BinOp::ShrAssign(_) => ("assignment", &["<<="]),
        _ => ("", &[]),
    }
}

/// The bounds of a range, one up and one down. `..` in place of `..=` is an end one lower.
fn of_range(finder: &mut Finder<'_>, bounds: &ExprRange) {
    let mut shift = |bound: &Expr, by: &str| {
        let text = format!("({}) {by}", finder.text(range(bound)));
        let at = range(bound);
        let change = format!("`{}`: `{text}`", finder.text(range(bounds)));
        finder.add(at, Kind::Expression, "range", text, &change);
    };
    if let Some(start) = &bounds.start {
        shift(start, "+ 1");
    }
    if let Some(end) = &bounds.end {
        shift(end, "- 1");
        if matches!(bounds.limits, RangeLimits::HalfOpen(_)) {
            shift(end, "+ 1");
        }
    }
}

fn of_call(finder: &mut Finder<'_>, call: &ExprMethodCall) {
    let name = call.method.to_string();
    let Some((_, others)) = COUNTERPARTS.iter().find(|(from, _)| *from == name) else { return };
    let whole = range(call);
    let method: Range<usize> = call.method.span().byte_range();
    for other in *others {
        let head = finder.text(whole.start..method.start).to_owned();
        let tail = finder.text(method.end..whole.end).to_owned();
        let change = format!("`{}` -> `{other}`", shortened(finder.text(whole.clone())));
        finder.add(
            whole.clone(),
            Kind::Expression,
            "call",
            format!("{head}{other}{tail}"),
            &change,
        );
    }
}
