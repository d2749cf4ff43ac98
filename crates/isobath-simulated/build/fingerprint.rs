//! A hash of all that determines what the engine does: its sources without comments, documentation
//! and tests, its manifest, and the versions of what it is built with. A run counts for every
//! engine with the same hash.
//!
//! Places that a simulation must reach (`host/reach.rs`) do not count either: they are counters of
//! harnesses, and more of them make no other engine. This holds where the call is a statement; one
//! within an expression counts.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, ExprBlock, ImplItem, Item, Meta, Stmt, Token, UseTree};

/// The module that lists the places to reach, and what counts that one was.
const PLACES: &str = "reach";
const OF_PLACES: [&str; 3] = ["Reach", "reached", "reached_if"];

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The number for the workspace at `root`.
pub(crate) fn of(root: &Path) -> Result<u64> {
    let mut hash = Hash::default();
    let engine = root.join("crates/isobath");
    add_module(&engine.join("src/lib.rs"), &engine.join("src"), &mut hash)?;
    let manifest: toml::Table = fs::read_to_string(engine.join("Cargo.toml"))?.parse()?;
    for key in ["features", "dependencies", "target"] {
        hash.add(&format!("{key} {:?}", manifest.get(key)));
    }
    let workspace: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    hash.add(&format!("{:?}", workspace.get("profile")));
    hash.add(&locked(&fs::read_to_string(root.join("Cargo.lock"))?)?);
    Ok(hash.0)
}

/// Adds a file and the modules that it declares, which lie in `folder`.
fn add_module(file: &Path, folder: &Path, hash: &mut Hash) -> Result<()> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let (tokens, modules) =
        essence(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    hash.add(&tokens);
    for name in modules.into_iter().filter(|name| name != PLACES) {
        hash.add(&name);
        let own = folder.join(&name);
        let flat = folder.join(format!("{name}.rs"));
        let file = if flat.is_file() { flat } else { own.join("mod.rs") };
        add_module(&file, &own, hash)?;
    }
    Ok(())
}

/// The tokens of a file that end up in the engine, and the names of the modules that have files of
/// their own.
pub(crate) fn essence(text: &str) -> Result<(String, Vec<String>)> {
    let mut file = syn::parse_file(text)?;
    Strip.visit_file_mut(&mut file);
    let declared = file.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
        _ => None,
    });
    let modules = declared.collect();
    Ok((file.to_token_stream().to_string(), modules))
}

/// Takes out what no build of the engine has or no run of it can tell: tests, documentation, and
/// places to reach.
struct Strip;

impl VisitMut for Strip {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !attributes(item).is_some_and(is_for_tests));
        visit_mut::visit_file_mut(self, file);
        file.items.retain(|item| !matches!(item, Item::Use(used) if is_empty(&used.tree)));
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !attributes(item).is_some_and(is_for_tests));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| match item {
            ImplItem::Fn(function) => !is_for_tests(&function.attrs),
            _ => true,
        });
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| match statement {
            Stmt::Item(item) => !attributes(item).is_some_and(is_for_tests),
            Stmt::Expr(Expr::Call(call), Some(_)) => !counts_a_place(call),
            _ => true,
        });
        visit_mut::visit_block_mut(self, block);
    }

    /// A block of one expression is written as the expression, as without the place in it.
    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        visit_mut::visit_arm_mut(self, arm);
        if let Expr::Block(ExprBlock { attrs, label: None, block }) = &mut *arm.body
            && let ([], [Stmt::Expr(_, None)]) = (&attrs[..], &block.stmts[..])
            && let Some(Stmt::Expr(only, None)) = block.stmts.pop()
        {
            *arm.body = only;
        }
        arm.comma = Some(Token![,](Span::call_site()));
    }

    /// As without the names of what counts places.
    fn visit_use_tree_mut(&mut self, tree: &mut UseTree) {
        visit_mut::visit_use_tree_mut(self, tree);
        let UseTree::Group(group) = tree else { return };
        let names = std::mem::take(&mut group.items).into_iter();
        let is_of_places = |tree: &UseTree| matches!(tree, UseTree::Name(name) if OF_PLACES.iter().any(|of| name.ident == of));
        let kept: Vec<UseTree> = names.filter(|tree| !is_of_places(tree)).collect();
        match <[UseTree; 1]>::try_from(kept) {
            Ok([only]) => *tree = only,
            Err(kept) => group.items = kept.into_iter().collect(),
        }
    }

    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        attributes.retain(|attribute| !attribute.path().is_ident("doc"));
    }

    fn visit_macro_mut(&mut self, called: &mut syn::Macro) {
        called.tokens = undocumented(called.tokens.clone());
    }
}

fn counts_a_place(call: &syn::ExprCall) -> bool {
    matches!(&*call.func, Expr::Path(named) if OF_PLACES.iter().any(|of| named.path.is_ident(of)))
}

/// True if nothing is left that is used.
fn is_empty(tree: &UseTree) -> bool {
    match tree {
        UseTree::Path(path) => is_empty(&path.tree),
        UseTree::Group(group) => group.items.is_empty(),
        _ => false,
    }
}

/// The tokens given to a macro, without the documentation among them.
fn undocumented(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let TokenTree::Group(group) = token else {
            kept.push(token);
            continue;
        };
        let is_sharp = |last: &TokenTree| matches!(last, TokenTree::Punct(p) if p.as_char() == '#');
        let is_doc = matches!(group.stream().into_iter().next(),
            Some(TokenTree::Ident(name)) if name == "doc");
        if is_doc && kept.last().is_some_and(is_sharp) {
            kept.pop();
        } else {
            let inner = undocumented(group.stream());
            kept.push(Group::new(group.delimiter(), inner).into());
        }
    }
    kept.into_iter().collect()
}

fn attributes(item: &Item) -> Option<&[Attribute]> {
    Some(match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return None,
    })
}

/// True for `cfg(test)` and `cfg(all(.., test, ..))`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let Ok(condition) = attribute.parse_args::<Meta>() else { return false };
        condition.path().is_ident("test") || is_all_with_test(&condition)
    })
}

fn is_all_with_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return false };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    list.path.is_ident("all")
        && parts.is_ok_and(|parts| parts.iter().any(|part| part.path().is_ident("test")))
}

/// The packages of a lock file that the engine is built with, with their versions.
pub(crate) fn locked(lock: &str) -> Result<String> {
    let lock: toml::Table = lock.parse()?;
    let mut packages = BTreeMap::<&str, Vec<&toml::Value>>::new();
    for package in lock.get("package").and_then(toml::Value::as_array).into_iter().flatten() {
        packages.entry(text(package, "name")).or_default().push(package);
    }
    let (mut seen, mut ahead) = (BTreeSet::new(), vec!["isobath"]);
    while let Some(name) = ahead.pop() {
        // A dependency is named with its version where several are locked.
        let (name, version) = name.split_once(' ').unwrap_or((name, ""));
        for package in packages.get(name).into_iter().flatten() {
            if (version.is_empty() || version == text(package, "version"))
                && seen.insert((name, text(package, "version"), text(package, "checksum")))
            {
                let needs = package.get("dependencies").and_then(toml::Value::as_array);
                ahead.extend(needs.into_iter().flatten().filter_map(toml::Value::as_str));
            }
        }
    }
    Ok(format!("{seen:?}"))
}

fn text<'a>(package: &'a toml::Value, key: &str) -> &'a str {
    package.get(key).and_then(toml::Value::as_str).unwrap_or_default()
}

/// FNV-1a: nothing is forged against it.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, text: &str) {
        for byte in text.as_bytes().iter().chain(&[0]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "pub fn least(a: u8, b: u8) -> bool { a < b }\nmod part;\n";

    #[test]
    fn comments_documentation_and_tests_do_not_count() {
        let dressed = "//! A file.\n/// Documented.\npub fn least(a: u8, b: u8) -> bool {\n    // Why.\n    a < b\n}\n\
            mod part;\n#[cfg(test)]\nmod tests;\n#[cfg(all(test, not(loom)))]\nmod more { fn of() {} }\n\
            #[cfg(test)]\nimpl Wide { fn help() {} }\n";
        assert_eq!(essence(CODE).unwrap(), essence(dressed).unwrap());
        assert_eq!(essence(CODE).unwrap().1, ["part"]);
    }

    #[test]
    fn documentation_given_to_a_macro_does_not_count() {
        let list =
            |doc: &str| format!("options! {{ struct O {{ {doc} #[serde(skip)] a: u8 = 1 }} }}");
        let bare = essence(&list("")).unwrap();
        assert_eq!(essence(&list("/// The first.\n/// Default 1.\n")).unwrap(), bare);
        assert_ne!(essence(&list("").replace("= 1", "= 2")).unwrap(), bare);
        assert_ne!(essence(&list("").replace("skip", "rename")).unwrap(), bare);
    }

    #[test]
    fn code_counts_and_so_does_code_for_builds_without_tests() {
        let is_same = |other: &str| essence(CODE).unwrap() == essence(other).unwrap();
        assert!(!is_same(&CODE.replace('<', "<=")));
        assert!(!is_same(&CODE.replace("a:", "c:")));
        assert!(!is_same(&format!("{CODE}#[cfg(not(test))] fn more() {{}}")));
        assert!(!is_same(&format!("{CODE}#[cfg(feature = \"test\")] fn more() {{}}")));
    }

    #[test]
    fn places_to_reach_do_not_count() {
        let bare = "use crate::env::preempt;\nuse crate::wal::Log;\n\
            fn of(a: u8) -> u8 { match a { 0 => 1, 1 => { preempt(); 2 } _ => a } }\n";
        let counted = "use crate::env::{Reach, preempt, reached};\nuse crate::env::{Reach, reached_if};\n\
            use crate::wal::Log;\n\
            fn of(a: u8) -> u8 { reached_if(Reach::Of, || a > 1);\n\
            match a { 0 => { reached(Reach::Zero); 1 } 1 => { preempt(); 2 } _ => a } }\n";
        let is_same = |a: &str, b: &str| essence(a).unwrap() == essence(b).unwrap();
        assert!(is_same(bare, counted));
        assert!(!is_same(bare, &counted.replace("Zero); 1", "Zero); 2")));
        assert!(!is_same(bare, &counted.replace("reached_if(Reach::Of, || a > 1)", "reach(a)")));
        assert!(!is_same(bare, &counted.replace("preempt(); ", "")));
    }

    #[test]
    fn only_what_the_engine_is_built_with_counts_of_the_lock_file() {
        let lock = |isobath: &str, other: &str| {
            locked(&format!(
                "[[package]]\nname = \"isobath\"\nversion = \"1\"\ndependencies = [\"near 2\"]\n\
                 [[package]]\nname = \"near\"\nversion = \"{isobath}\"\n\
                 [[package]]\nname = \"far\"\nversion = \"{other}\"\n"
            ))
            .unwrap()
        };
        assert_eq!(lock("2", "3"), lock("2", "4"));
        assert_ne!(lock("2", "3"), lock("5", "3"));
    }

    #[test]
    fn the_workspace_at_hand_has_a_fingerprint() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(format!("{:016x}", of(&root).unwrap()), env!("ISOBATH_ENGINE"));
    }
}
