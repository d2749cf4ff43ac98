//! What the workload of the simulator calls, read from its sources.

use super::engine::{is_test, leaves, parsed, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, File, FnArg, Item, Member, Pat, Signature, Type};

/// A call of a method. The receiver is written without arguments: `self.db.with(options).put(key)`
/// is `put` on `db.with()`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    pub(super) receiver: String,
    pub(super) method: String,
}

/// A function that takes anything that has a trait, and what it calls of it.
#[derive(Debug, Default)]
struct Generic {
    /// The place of the argument, the receiver of a method not counted.
    place: usize,
    of: String,
    methods: BTreeSet<String>,
    /// The functions to which it passes the argument on.
    passes_to: BTreeSet<String>,
}

#[derive(Default)]
pub(super) struct Workload {
    pub(super) methods: BTreeSet<Call>,
    /// Functions of the engine and of its types, as `Db::open`.
    pub(super) paths: BTreeSet<String>,
    /// The methods by which the workload implements a trait.
    pub(super) implemented: BTreeSet<(String, String)>,
    generics: BTreeMap<String, Generic>,
    /// The arguments of calls, by the function that is called.
    arguments: BTreeSet<(String, usize, String)>,
}

impl Workload {
    pub(super) fn read() -> Workload {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation");
        let is_here = |path: &PathBuf| {
            path.starts_with(root.join("api")) || path.ends_with("simulation/api.rs")
        };
        let files = sources(&root).into_iter().filter(|path| !is_here(path)).map(parsed);
        let mut workload = Workload::default();
        files.for_each(|(_, file)| workload.add(file));
        workload
    }

    fn add(&mut self, mut file: File) {
        let mut imported = BTreeMap::new();
        for item in &file.items {
            let Item::Use(one) = item else { continue };
            leaves(&one.tree, &mut |before, name| {
                if before.first().is_some_and(|root| root == "isobath") {
                    imported.insert(name.to_owned(), before.to_vec());
                }
            });
        }
        Visitor { into: self, imported, within: None }.visit_file_mut(&mut file);
    }

    /// True if the method is called on one of these receivers, or by a function that takes any type
    /// with a trait and is called with one of them.
    ///
    /// `chained` are methods that return what they were called on.
    pub(super) fn calls(
        &self,
        receivers: &[&str],
        method: &str,
        chained: &BTreeSet<String>,
    ) -> bool {
        let is_one = |receiver: &str| {
            let receiver = unchained(receiver, chained);
            receivers.iter().any(|one| ends_with(receiver, one))
        };
        let is_call = |call: &&Call| call.method == method && is_one(&call.receiver);
        self.methods.iter().any(|call| is_call(&call))
            || self.generics.iter().any(|(name, generic)| {
                let is_given = |(called, place, argument): &(String, usize, String)| {
                    called == name && *place == generic.place && is_one(argument)
                };
                self.does(generic, method) && self.arguments.iter().any(is_given)
            })
    }

    /// True if a function calls the method of its argument, or passes it on to one that does.
    fn does(&self, generic: &Generic, method: &str) -> bool {
        let others = generic.passes_to.iter().filter_map(|name| self.generics.get(name));
        generic.methods.contains(method) || others.into_iter().any(|one| self.does(one, method))
    }

    /// True if a function calls the method of whatever has the trait.
    pub(super) fn calls_by_trait(&self, of: &str, method: &str) -> bool {
        self.generics.values().any(|one| one.of == of && one.methods.contains(method))
    }
}

/// True if a receiver is this one, or one that belongs to something: `self.db` ends with `db`.
fn ends_with(receiver: &str, end: &str) -> bool {
    receiver.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// A receiver without the calls at its end that return what they were called on.
fn unchained<'a>(mut receiver: &'a str, chained: &BTreeSet<String>) -> &'a str {
    while let Some((before, last)) = receiver.rsplit_once('.')
        && last.strip_suffix("()").is_some_and(|last| chained.contains(last))
    {
        receiver = before;
    }
    receiver
}

struct Visitor<'a> {
    into: &'a mut Workload,
    /// What the file imports of the engine, with the segments before.
    imported: BTreeMap<String, Vec<String>>,
    /// The function that it is in, if that takes anything that has a trait: with the name of the
    /// parameter.
    within: Option<(String, String)>,
}

impl Visitor<'_> {
    /// Enters a function, whose parameter may be anything that has a trait of the engine. Returns
    /// the function around it.
    fn enter(&mut self, signature: &Signature) -> Option<(String, String)> {
        let inputs = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => Some(input),
            FnArg::Receiver(_) => None,
        });
        let mut generic = inputs.enumerate().filter_map(|(place, input)| {
            let of = implemented(&input.ty)?;
            let Pat::Ident(name) = &*input.pat else { return None };
            self.imported.contains_key(&of).then(|| (place, of, name.ident.to_string()))
        });
        let name = signature.ident.to_string();
        let outer = self.within.take();
        if let Some((place, of, parameter)) = generic.next() {
            let generic = Generic { place, of, ..Generic::default() };
            let others = self.into.generics.insert(name.clone(), generic);
            assert!(others.is_none(), "two functions are called {name}");
            self.within = Some((name, parameter));
        }
        outer
    }

    fn arguments<'b>(&mut self, of: &str, arguments: impl Iterator<Item = &'b Expr>) {
        for (place, argument) in arguments.enumerate() {
            if let Some((function, parameter)) = &self.within
                && chain(argument) == *parameter
            {
                let generic = self.into.generics.get_mut(function).unwrap();
                generic.passes_to.insert(of.to_owned());
            }
            self.into.arguments.insert((of.to_owned(), place, chain(argument)));
        }
    }
}

impl VisitMut for Visitor<'_> {
    fn visit_item_mut(&mut self, item: &mut Item) {
        let attrs = match item {
            Item::Mod(one) => &one.attrs,
            Item::Fn(one) => &one.attrs,
            Item::Impl(one) => &one.attrs,
            _ => return visit_mut::visit_item_mut(self, item),
        };
        if !is_test(attrs) {
            visit_mut::visit_item_mut(self, item);
        }
    }

    fn visit_item_fn_mut(&mut self, one: &mut syn::ItemFn) {
        let outer = self.enter(&one.sig);
        visit_mut::visit_item_fn_mut(self, one);
        self.within = outer;
    }

    fn visit_impl_item_fn_mut(&mut self, one: &mut syn::ImplItemFn) {
        let outer = self.enter(&one.sig);
        visit_mut::visit_impl_item_fn_mut(self, one);
        self.within = outer;
    }

    fn visit_item_impl_mut(&mut self, one: &mut syn::ItemImpl) {
        if let Some((_, of, _)) = &one.trait_ {
            let of = of.segments.last().unwrap().ident.to_string();
            for item in &one.items {
                if let syn::ImplItem::Fn(method) = item {
                    let method = method.sig.ident.to_string();
                    self.into.implemented.insert((of.clone(), method));
                }
            }
        }
        visit_mut::visit_item_impl_mut(self, one);
    }

    fn visit_expr_method_call_mut(&mut self, call: &mut syn::ExprMethodCall) {
        let (receiver, method) = (chain(&call.receiver), call.method.to_string());
        if let Some((function, parameter)) = &self.within
            && receiver == *parameter
        {
            let generic = self.into.generics.get_mut(function).unwrap();
            generic.methods.insert(method.clone());
        }
        self.arguments(&method, call.args.iter());
        self.into.methods.insert(Call { receiver, method });
        visit_mut::visit_expr_method_call_mut(self, call);
    }

    fn visit_expr_call_mut(&mut self, call: &mut syn::ExprCall) {
        if let Expr::Path(path) = &*call.func {
            let name = path.path.segments.last().unwrap().ident.to_string();
            self.arguments(&name, call.args.iter());
        }
        visit_mut::visit_expr_call_mut(self, call);
    }

    /// A function that is called, or passed on to be called.
    fn visit_expr_path_mut(&mut self, path: &mut syn::ExprPath) {
        let segments = path.path.segments.iter().map(|one| one.ident.to_string());
        let segments: Vec<String> = segments.collect();
        let before = match &*segments[0] {
            "isobath" => Some(Vec::new()),
            first => self.imported.get(first).cloned(),
        };
        if let Some(before) = before {
            let whole = [before, segments].concat();
            let end = whole.len().saturating_sub(2);
            self.into.paths.insert(whole[end..].join("::"));
        }
        visit_mut::visit_expr_path_mut(self, path);
    }

    /// The expressions that a macro is given, up to what is not one.
    fn visit_macro_mut(&mut self, mac: &mut syn::Macro) {
        let parse = |input: syn::parse::ParseStream<'_>| {
            let mut found = Vec::new();
            while let Ok(expr) = input.parse::<Expr>() {
                found.push(expr);
                let is_more = input.parse::<syn::Token![,]>().is_ok()
                    || input.parse::<syn::Token![;]>().is_ok();
                if !is_more {
                    break;
                }
            }
            input.parse::<proc_macro2::TokenStream>()?;
            Ok(found)
        };
        let found = mac.parse_body_with(parse);
        found.into_iter().flatten().for_each(|mut expr| self.visit_expr_mut(&mut expr));
    }
}

/// The trait of a parameter `&impl Trait`.
fn implemented(of: &Type) -> Option<String> {
    let Type::Reference(of) = of else { return None };
    let Type::ImplTrait(of) = &*of.elem else { return None };
    of.bounds.iter().find_map(|bound| match bound {
        syn::TypeParamBound::Trait(bound) => {
            Some(bound.path.segments.last().unwrap().ident.to_string())
        }
        _ => None,
    })
}

/// An expression without the arguments of its calls, beginning with the last field.
fn chain(expr: &Expr) -> String {
    match expr {
        Expr::Path(path) => {
            let segments = path.path.segments.iter().map(|one| one.ident.to_string());
            segments.collect::<Vec<_>>().join("::")
        }
        Expr::Field(field) => match &field.member {
            Member::Named(name) => name.to_string(),
            Member::Unnamed(index) => format!("{}.{}", chain(&field.base), index.index),
        },
        Expr::MethodCall(call) => format!("{}.{}()", chain(&call.receiver), call.method),
        Expr::Call(call) => format!("{}()", chain(&call.func)),
        Expr::Paren(inner) => chain(&inner.expr),
        Expr::Reference(inner) => chain(&inner.expr),
        Expr::Try(inner) => chain(&inner.expr),
        Expr::Unary(inner) => chain(&inner.expr),
        Expr::Index(inner) => format!("{}[]", chain(&inner.expr)),
        _ => "?".to_owned(),
    }
}

#[test]
fn a_call_counts_with_its_receiver_and_outside_of_tests() {
    let source = r#"
        use isobath::{Batch, Readable, tools::{self, dump}};
        fn work(stage: &Stage) {
            let batch = Batch::new();
            check(&stage.db.snapshot());
            if matches!(stage.side.with(sync).put(key, value), Ok(_)) {
                others().map(tools::verify);
                other.get(key);
            }
        }
        fn check(part: &impl Readable) { part.first(); other.last(); }
        #[cfg(test)]
        mod tests { fn test() { stage.db.flush(); } }
    "#;
    let mut workload = Workload::default();
    workload.add(syn::parse_file(source).unwrap());
    let none = BTreeSet::new();
    let calls = |receivers: &[&str], method: &str| workload.calls(receivers, method, &none);
    assert!(calls(&["side.with()"], "put") && calls(&["with()"], "put"));
    assert!(!calls(&["db.with()", "side", "ide.with()"], "put"));
    assert!(!calls(&["db", "stage"], "get") && !calls(&["db"], "flush"));
    assert!(calls(&["snapshot()"], "first") && !calls(&["db"], "first"));
    assert!(!calls(&["snapshot()"], "last"));
    assert!(workload.calls(&["side"], "put", &BTreeSet::from(["with".to_owned()])));
    assert!(workload.calls_by_trait("Readable", "first"));
    let paths: Vec<&str> = workload.paths.iter().map(String::as_str).collect();
    assert_eq!(paths, ["Batch::new", "tools::verify"]);
}
