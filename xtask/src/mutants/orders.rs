//! Weaker orders of atomics. What x86 does hardly changes, so these mutants are for loom's models.
//!
//! Each order becomes `Relaxed`, and a fence is left out. Loom takes a sequentially consistent
//! access for acquire and release, so in the engine a fence that only loom has follows each store
//! whose place in the order of all threads matters. That fence would hide the weaker order, so it
//! goes with it, if it is the next one in the function and no other such store comes between.

use super::finder::{Finder, range};
use super::site::{Access, Kind};
use std::collections::BTreeMap;
use syn::{Expr, ExprCall, ExprMethodCall, ExprPath};

const ORDERS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

/// What is known of accesses while a function is walked.
#[derive(Default)]
pub(super) struct Orders {
    /// What the orders are of, by their first bytes.
    accesses: BTreeMap<usize, Access>,
    /// The mutant of the last sequentially consistent store, while no fence has followed.
    unfenced: Option<usize>,
}

/// The order that a path names, and whether it names the type of orders, too.
fn order(path: &ExprPath) -> Option<(&'static str, bool)> {
    let mut names = path.path.segments.iter().rev().map(|segment| &segment.ident);
    let last = names.next()?;
    let order = ORDERS.into_iter().find(|order| last == order)?;
    match names.next() {
        None => Some((order, false)),
        Some(before) => (before == "Ordering").then_some((order, true)),
    }
}

/// Notes what the orders among a call's arguments are of.
pub(super) fn note_access(finder: &mut Finder<'_>, call: &ExprMethodCall) {
    let mut is_first = true;
    for argument in &call.args {
        let Expr::Path(path) = argument else { continue };
        let text = finder.text(range(path));
        let is_relaxed = text == "Relaxed" || text.ends_with("Ordering::Relaxed");
        let Some((order, _)) = order(path).or(is_relaxed.then_some(("Relaxed", false))) else {
            continue;
        };
        let access = match &*call.method.to_string() {
            _ if order != "SeqCst" => Access::Weak,
            "store" => Access::Store,
            "load" => Access::Load,
            // The second order is that of a failure, which stores nothing.
            _ if is_first => Access::Update,
            _ => Access::Load,
        };
        is_first = false;
        finder.orders.accesses.insert(range(path).start, access);
    }
}

/// The weaker order in the place of one that a path names.
pub(super) fn of_path(finder: &mut Finder<'_>, path: &ExprPath) {
    let Some((order, has_type)) = order(path) else { return };
    let place = range(path);
    let whole = finder.text(place.clone()).to_owned();
    let weaker = match has_type {
        true => whole.replace(order, "Relaxed"),
        // `Relaxed` alone may not be imported.
        false => "std::sync::atomic::Ordering::Relaxed".to_owned(),
    };
    let access = finder.orders.accesses.get(&place.start).copied();
    finder.replace(place, Kind::Expression, "ordering", &weaker);
    note(finder, access.unwrap_or(Access::Weak));
}

/// A fence left out; true if the call is one, of either sort.
pub(super) fn of_fence(finder: &mut Finder<'_>, call: &ExprCall) -> bool {
    let Expr::Path(function) = &*call.func else { return false };
    let name = function.path.segments.last().map(|last| last.ident.to_string());
    let has_order = |path: &Expr| matches!(path, Expr::Path(path) if order(path).is_some());
    match name.as_deref() {
        Some("fence") if call.args.first().is_some_and(has_order) => {
            finder.replace(range(call), Kind::Expression, "ordering", "()");
            note(finder, Access::Weak);
            true
        }
        Some("fence_for_loom") => {
            if let Some(mutant) = finder.orders.unfenced.take() {
                finder.sites.add(range(call), Kind::Fence, mutant, "()".to_owned());
            }
            true
        }
        _ => false,
    }
}

/// Notes the access that the last mutant is of.
fn note(finder: &mut Finder<'_>, access: Access) {
    let mutant = finder.mutants.len() - 1;
    finder.mutants[mutant].access = Some(access);
    if access.stores() {
        finder.orders.unfenced = Some(mutant);
    }
}
