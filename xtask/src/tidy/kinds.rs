//! Code distinguishes kinds of operations only in `mvcc/`, or by a match that names every kind.
//!
//! "Not a put, so a delete" is right until there is a third kind, and then no compiler says where.
//! So code that ships compares no kind (`==`, `!=`), matches none with `matches!` or `let`, and
//! leaves none to an arm that names no kind, nor gives kinds other names (`OpKind::*`). It asks a
//! predicate of `mvcc/kind.rs`, or names all kinds, one arm each. What is watched: `OpKind`, and
//! `Effect`, which says what a kind means to a reader.

use super::{Source, Violation, Workspace};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

const ENGINE: &str = "crates/isobath/src/";
const HOME: &str = "crates/isobath/src/mvcc/";
const WATCHED: [&str; 2] = ["OpKind", "Effect"];

/// Checks every file of the engine that ships.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let of_engine = |s: &&Source| s.path.starts_with(ENGINE) && !s.path.starts_with(HOME);
    let files = workspace.rust().filter(of_engine).filter(|s| !workspace.is_test_only(&s.path));
    let what = "a kind is told apart here: ask a predicate of mvcc/kind.rs, or match every kind";
    files
        .flat_map(|s| s.code.loose_kinds.iter().map(move |line| s.violation(*line, what)))
        .collect()
}

/// The lines of this stream, not of the groups in it, that distinguish kinds without naming all of
/// them.
pub(super) fn loose(stream: &TokenStream) -> Vec<usize> {
    let tokens: Vec<TokenTree> = stream.clone().into_iter().collect();
    let mut lines = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        let found = match token {
            TokenTree::Ident(name) if name == "matches" => is_loose_macro(rest),
            TokenTree::Ident(name) if name == "let" => is_loose_let(rest),
            TokenTree::Ident(name) if is_watched(name) => is_renamed(rest),
            TokenTree::Ident(name) if name == "match" => {
                lines.extend(loose_arms(rest));
                false
            }
            TokenTree::Punct(_) if is_comparison(&tokens[at..]) => {
                names_last(&tokens[..at]) || names_first(&tokens[at + 2..])
            }
            _ => false,
        };
        if found {
            lines.push(line_of(token));
        }
    }
    lines
}

fn line_of(token: &TokenTree) -> usize {
    token.span().start().line
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == wanted)
}

fn is_comparison(tokens: &[TokenTree]) -> bool {
    let is_joint =
        matches!(&tokens[0], TokenTree::Punct(p) if p.spacing() == proc_macro2::Spacing::Joint);
    let is_first = is_punct(tokens.first(), '=') || is_punct(tokens.first(), '!');
    is_joint && is_first && is_punct(tokens.get(1), '=')
}

fn is_watched(name: &Ident) -> bool {
    WATCHED.iter().any(|watched| name == watched)
}

/// For what follows a watched name: true if kinds get other names here, by `as`, `::*` or `::{`.
/// The other checks would not know them.
fn is_renamed(rest: &[TokenTree]) -> bool {
    let is_group = |token: Option<&TokenTree>| {
        token.and_then(group_of).is_some_and(|g| g.delimiter() == Delimiter::Brace)
    };
    let is_path = is_punct(rest.first(), ':') && is_punct(rest.get(1), ':');
    matches!(rest.first(), Some(TokenTree::Ident(name)) if name == "as")
        || (is_path && (is_punct(rest.get(2), '*') || is_group(rest.get(2))))
}

fn is_variant(path: &[TokenTree]) -> bool {
    let [TokenTree::Ident(kind), TokenTree::Punct(a), TokenTree::Punct(b), TokenTree::Ident(of)] =
        path
    else {
        return false;
    };
    let is_upper = of.to_string().starts_with(char::is_uppercase);
    is_watched(kind) && [a, b].iter().all(|p| p.as_char() == ':') && is_upper
}

/// True if a kind is named in these tokens, in groups too.
fn names(tokens: &[TokenTree]) -> bool {
    tokens.windows(4).any(is_variant)
        || tokens.iter().any(|token| group_of(token).is_some_and(names_in))
}

fn group_of(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(group) => Some(group),
        _ => None,
    }
}

fn names_in(group: &Group) -> bool {
    names(&group.stream().into_iter().collect::<Vec<_>>())
}

/// True if what stands last is a kind, or a tuple with one.
fn names_last(tokens: &[TokenTree]) -> bool {
    let is_tuple = |at: usize| {
        let is_call = at > 0 && matches!(&tokens[at - 1], TokenTree::Ident(_));
        !is_call && group_of(&tokens[at]).is_some_and(names_in)
    };
    tokens.last_chunk::<4>().is_some_and(|path| is_variant(path))
        || tokens.len().checked_sub(1).is_some_and(is_tuple)
}

/// True if what stands first is a kind, or a tuple with one.
fn names_first(tokens: &[TokenTree]) -> bool {
    let is_sign = |token: &&TokenTree| is_punct(Some(token), '&') || is_punct(Some(token), '*');
    let rest = &tokens[tokens.iter().take_while(is_sign).count()..];
    let is_of_path = |token: &&TokenTree| match token {
        TokenTree::Ident(_) => true,
        token => is_punct(Some(token), ':'),
    };
    let path = &rest[..rest.iter().take_while(is_of_path).count()];
    match path {
        [] => rest.first().and_then(group_of).is_some_and(names_in),
        path => path.last_chunk::<4>().is_some_and(|path| is_variant(path)),
    }
}

/// For what follows `matches`.
fn is_loose_macro(rest: &[TokenTree]) -> bool {
    is_punct(rest.first(), '!') && rest.get(1).and_then(group_of).is_some_and(names_in)
}

/// For what follows `let`.
fn is_loose_let(rest: &[TokenTree]) -> bool {
    let pattern = rest.iter().take_while(|token| !is_punct(Some(token), '=')).count();
    names(&rest[..pattern])
}

/// The lines of arms that name no kind beside arms that do, for what follows `match`.
fn loose_arms(rest: &[TokenTree]) -> Vec<usize> {
    let is_body = |group: &&Group| group.delimiter() == Delimiter::Brace;
    let Some(body) = rest.iter().filter_map(group_of).find(is_body) else { return Vec::new() };
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let arms: Vec<&[TokenTree]> = patterns(&tokens);
    let (naming, others): (Vec<_>, Vec<_>) = arms.into_iter().partition(|arm| names(arm));
    if naming.is_empty() { Vec::new() } else { others.iter().map(|arm| line_of(&arm[0])).collect() }
}

/// The pattern of each arm of a match, without its guard.
fn patterns(mut tokens: &[TokenTree]) -> Vec<&[TokenTree]> {
    let mut found = Vec::new();
    let is_arrow = |pair: &[TokenTree]| is_punct(pair.first(), '=') && is_punct(pair.get(1), '>');
    while let Some(arrow) = tokens.windows(2).position(is_arrow) {
        let is_guard = |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name == "if");
        let pattern = tokens[..arrow].iter().position(is_guard).unwrap_or(arrow);
        if pattern > 0 {
            found.push(&tokens[..pattern]);
        }
        tokens = &tokens[arrow + 2..];
        let is_block =
            tokens.first().and_then(group_of).is_some_and(|g| g.delimiter() == Delimiter::Brace);
        let end = match is_block {
            true => 1 + usize::from(is_punct(tokens.get(1), ',')),
            false => tokens
                .iter()
                .position(|token| is_punct(Some(token), ','))
                .map_or(tokens.len(), |at| at + 1),
        };
        tokens = &tokens[end..];
    }
    found
}
