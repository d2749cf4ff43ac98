//! What a program can call of the engine, read from its sources: methods of the exported types,
//! those that macros expand included, of exported traits, and exported functions.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::{Attribute, File, Item, ItemMacro, TraitItem, Type, UseTree, Visibility};

/// The macro that makes setters of the fields of a list. Its methods are named after them.
const SETTERS: &str = "options";

/// What the simulator replaces by its own: no program calls that.
const WORLD: [&str; 3] = ["vfs", "host", "env"];

/// The public part of the engine.
#[derive(Default)]
pub(super) struct Engine {
    /// The names that a program can import.
    pub(super) exported: BTreeSet<String>,
    /// The methods of each type, also of those that are not exported.
    pub(super) methods: BTreeMap<String, BTreeSet<String>>,
    /// The methods of each public trait.
    pub(super) traits: BTreeMap<String, BTreeSet<String>>,
    pub(super) functions: BTreeSet<String>,
    /// The public methods in the body of each macro.
    pub(super) macros: BTreeMap<String, BTreeSet<String>>,
    /// The macros that expand to methods whose names stand in the call.
    pub(super) named_by_calls: BTreeSet<String>,
}

impl Engine {
    pub(super) fn read() -> Engine {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../isobath/src");
        let files: Vec<(PathBuf, File)> = sources(&root).into_iter().map(parsed).collect();
        let mut engine = Engine::default();
        let is_world = |path: &Path| WORLD.iter().any(|folder| path.starts_with(root.join(folder)));
        let files: Vec<_> = files.into_iter().filter(|(path, _)| !is_world(path)).collect();
        // All definitions come before the calls, wherever they stand.
        for (_, file) in &files {
            each_item(&file.items, &mut |item| engine.define(item));
        }
        for (_, file) in &files {
            each_item(&file.items, &mut |item| engine.add(item));
        }
        engine.export(&root, &files, "");
        engine
    }

    /// Notes which methods a macro expands to.
    fn define(&mut self, item: &Item) {
        let Item::Macro(ItemMacro { ident: Some(name), mac, .. }) = item else { return };
        let (mut methods, mut is_named_by_calls) = (BTreeSet::new(), false);
        methods_within(mac.tokens.clone(), &mut methods, &mut is_named_by_calls);
        self.macros.insert(name.to_string(), methods);
        if is_named_by_calls {
            self.named_by_calls.insert(name.to_string());
        }
    }

    /// Notes what an item adds to a type or a trait.
    fn add(&mut self, item: &Item) {
        match item {
            Item::Impl(of) if of.trait_.is_none() => {
                let Type::Path(path) = &*of.self_ty else { return };
                let name = path.path.segments.last().unwrap().ident.to_string();
                for item in &of.items {
                    if let syn::ImplItem::Fn(method) = item
                        && is_shown(&method.vis, &method.attrs)
                    {
                        self.method(&name, &method.sig.ident.to_string());
                    }
                }
            }
            Item::Trait(of) if is_shown(&of.vis, &of.attrs) => {
                let methods = of.items.iter().filter_map(|item| match item {
                    TraitItem::Fn(method) if !is_hidden(&method.attrs) => {
                        Some(method.sig.ident.to_string())
                    }
                    _ => None,
                });
                self.traits.entry(of.ident.to_string()).or_default().extend(methods);
            }
            Item::Fn(of) if is_shown(&of.vis, &of.attrs) => {
                self.functions.insert(of.sig.ident.to_string());
            }
            Item::Macro(ItemMacro { ident: None, mac, .. }) => {
                let called = mac.path.segments.last().unwrap().ident.to_string();
                let Some(methods) = self.macros.get(&called).cloned() else { return };
                let is_list = called == SETTERS;
                let Some(name) = subject(mac.tokens.clone(), is_list) else { return };
                methods.iter().for_each(|method| self.method(&name, method));
                if is_list {
                    let fields = fields(mac.tokens.clone());
                    fields.iter().for_each(|field| self.method(&name, field));
                }
            }
            _ => {}
        }
    }

    fn method(&mut self, of: &str, name: &str) {
        self.methods.entry(of.to_owned()).or_default().insert(name.to_owned());
    }

    /// Collects what a module exports, the public modules in it included. Modules of features are
    /// not for programs.
    fn export(&mut self, root: &Path, files: &[(PathBuf, File)], module: &str) {
        let places = match module {
            "" => vec![root.join("lib.rs")],
            _ => vec![root.join(module).with_extension("rs"), root.join(module).join("mod.rs")],
        };
        let (_, file) = files.iter().find(|(path, _)| places.contains(path)).unwrap();
        let is_for_all = |attrs: &[Attribute]| !attrs.iter().any(|one| one.path().is_ident("cfg"));
        for item in &file.items {
            match item {
                Item::Use(one) if is_public(&one.vis) && is_for_all(&one.attrs) => {
                    leaves(&one.tree, &mut |_, name| _ = self.exported.insert(name.to_owned()));
                }
                Item::Mod(one) if is_shown(&one.vis, &one.attrs) && is_for_all(&one.attrs) => {
                    self.export(root, files, &one.ident.to_string());
                }
                _ => {}
            }
        }
    }
}

/// The sources in a folder and in those within it.
pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

pub(super) fn parsed(path: PathBuf) -> (PathBuf, File) {
    let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap());
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, file)
}

/// True of what is compiled for tests alone.
pub(super) fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|one| match &one.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let mut is_test = false;
            has_word(list.tokens.clone(), &mut is_test);
            is_test
        }
        _ => false,
    })
}

/// Finds the word `test` outside of a `not`.
fn has_word(tokens: TokenStream, found: &mut bool) {
    let mut after_not = false;
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                *found |= word == "test";
                after_not = word == "not";
            }
            TokenTree::Group(group) if !after_not => has_word(group.stream(), found),
            _ => after_not = false,
        }
    }
}

/// Each item, also of the modules within.
fn each_item(items: &[Item], visit: &mut impl FnMut(&Item)) {
    for item in items {
        visit(item);
        if let Item::Mod(module) = item
            && !is_test(&module.attrs)
            && let Some((_, items)) = &module.content
        {
            each_item(items, visit);
        }
    }
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn is_hidden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|one| {
        let hidden = one.parse_args::<syn::Ident>();
        one.path().is_ident("doc") && hidden.is_ok_and(|word| word == "hidden")
    })
}

fn is_shown(vis: &Visibility, attrs: &[Attribute]) -> bool {
    is_public(vis) && !is_hidden(attrs) && !is_test(attrs)
}

/// The names that a `use` imports, each with the segments before it.
pub(super) fn leaves(tree: &UseTree, visit: &mut impl FnMut(&[String], &str)) {
    fn walk(tree: &UseTree, before: &[String], visit: &mut impl FnMut(&[String], &str)) {
        match tree {
            UseTree::Path(path) => {
                let before = [before, &[path.ident.to_string()]].concat();
                walk(&path.tree, &before, visit);
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let [before @ .., last] = before {
                    visit(before, last);
                }
            }
            UseTree::Name(name) => visit(before, &name.ident.to_string()),
            UseTree::Rename(name) => visit(before, &name.rename.to_string()),
            UseTree::Group(group) => group.items.iter().for_each(|one| walk(one, before, visit)),
            UseTree::Glob(_) => {}
        }
    }
    walk(tree, &[], visit);
}

/// Collects `pub fn name` in the tokens of a macro, and tells if there is a `pub fn $name`.
fn methods_within(tokens: TokenStream, found: &mut BTreeSet<String>, is_named_by_calls: &mut bool) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_word =
        |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(one) if one == word);
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            methods_within(group.stream(), found, is_named_by_calls);
        }
        if !is_word(token, "pub") {
            continue;
        }
        let modifiers = ["const", "unsafe", "async", "extern"];
        let rest = tokens[at + 1..].iter();
        let mut rest =
            rest.skip_while(|token| modifiers.iter().any(|modifier| is_word(token, modifier)));
        if rest.next().is_some_and(|token| is_word(token, "fn")) {
            match rest.next() {
                Some(TokenTree::Ident(name)) => _ = found.insert(name.to_string()),
                _ => *is_named_by_calls = true,
            }
        }
    }
}

/// The type to which the call of a macro adds methods: its first word, or, in a list of options,
/// the one behind `struct`.
fn subject(tokens: TokenStream, is_list: bool) -> Option<String> {
    let mut is_lifetime = false;
    let words = tokens.into_iter().filter_map(move |token| match token {
        TokenTree::Ident(word) if !std::mem::take(&mut is_lifetime) => Some(word.to_string()),
        token => {
            is_lifetime = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '\'');
            None
        }
    });
    let mut words = words.skip_while(|word| is_list && word != "struct").skip(is_list.into());
    words.next()
}

/// The public fields of a list of options.
fn fields(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let first = tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace => {
            Some(group)
        }
        _ => None,
    });
    let tokens: Vec<TokenTree> = first.unwrap().stream().into_iter().collect();
    for pair in tokens.windows(2) {
        if let [TokenTree::Ident(word), TokenTree::Ident(name)] = pair
            && word == "pub"
        {
            found.push(name.to_string());
        }
    }
    found
}

#[test]
fn methods_are_found_in_any_macro() {
    let source = r#"
        macro_rules! more {
            ($type:ty, $this:ident => $part:expr) => {
                impl $type {
                    /// Does.
                    pub fn does(&$this) { fn inner() {} }
                    pub const fn is(&$this) -> bool { true }
                    pub(crate) fn hides(&$this) {}
                }
            };
        }
        more!(['a] Db<'a>, self => self);
    "#;
    let mut engine = Engine::default();
    let file = syn::parse_file(source).unwrap();
    file.items.iter().for_each(|item| engine.define(item));
    file.items.iter().for_each(|item| engine.add(item));
    let methods: Vec<&str> = engine.methods["Db"].iter().map(String::as_str).collect();
    assert_eq!(methods, ["does", "is"]);
    assert!(engine.named_by_calls.is_empty());
}
