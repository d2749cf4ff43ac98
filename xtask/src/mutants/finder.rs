//! Walks a file's syntax tree and notes every mutant that the operators make of it.
//!
//! `operators.rs` changes expressions, `statements.rs` statements and bodies; here is where they
//! are looked for. Left out are constants, `const fn`, types, patterns, attributes, macros
//! (assertions and events among them), what `cfg` leaves out, and implementations of `Debug` and
//! `Display`.

use super::orders::{self, Orders};
use super::site::{Kind, Mutant, Sites};
use super::sources::{SourceFile, is_compiled};
use super::{operators, statements};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ItemFn, Signature};

/// Notes the mutants of a file.
pub(super) struct Finder<'a> {
    file: &'a SourceFile,
    pub(super) sites: &'a mut Sites,
    pub(super) mutants: &'a mut Vec<Mutant>,
    pub(super) orders: Orders,
}

/// The bytes of a node.
pub(super) fn range(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

/// Finds the mutants of a file, adds them to `mutants`, and notes where they stand.
pub(super) fn find(file: &SourceFile, sites: &mut Sites, mutants: &mut Vec<Mutant>) {
    let mut finder = Finder { file, sites, mutants, orders: Orders::default() };
    finder.visit_file(&file.syntax);
}

/// Notes the functions of a file only, for one that has no mutants but those with names.
pub(super) fn find_functions(file: &SourceFile) -> Vec<Range<usize>> {
    let mut bodies = Bodies(Vec::new());
    bodies.visit_file(&file.syntax);
    bodies.0
}

/// What is between the braces of every body of a function that is no `const fn`.
struct Bodies(Vec<Range<usize>>);

impl<'ast> Visit<'ast> for Bodies {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if item.sig.constness.is_none() {
            self.0.push(statements::inner(&item.block));
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if item.sig.constness.is_none() {
            self.0.push(statements::inner(&item.block));
        }
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.0.extend(item.default.as_ref().map(statements::inner));
        visit::visit_trait_item_fn(self, item);
    }
}

impl Finder<'_> {
    /// The text of a range.
    pub(super) fn text(&self, range: Range<usize>) -> &str {
        &self.file.text[range]
    }

    /// Notes a mutant that puts `text` in place of `range`.
    pub(super) fn add(
        &mut self,
        range: Range<usize>,
        kind: Kind,
        operator: &'static str,
        text: String,
        change: &str,
    ) -> usize {
        let before = &self.file.text[..range.start];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
        let change = change.split_whitespace().collect::<Vec<_>>().join(" ");
        let file = self.file.path.clone();
        self.sites.add(range, kind, self.mutants.len(), text);
        self.mutants.push(Mutant {
            name: None,
            file,
            line,
            column,
            operator,
            change,
            access: None,
        });
        self.mutants.len() - 1
    }

    /// Notes that `range` is replaced by `text`, and says so.
    pub(super) fn replace(
        &mut self,
        range: Range<usize>,
        kind: Kind,
        operator: &'static str,
        text: &str,
    ) {
        let change = format!("`{}` -> `{}`", shortened(self.text(range.clone())), shortened(text));
        self.add(range, kind, operator, text.to_owned(), &change);
    }

    fn function(&mut self, whole: Range<usize>, signature: &Signature, body: &syn::Block) {
        self.sites.function(whole);
        self.orders = Orders::default();
        statements::early_return(self, signature, body);
    }
}

/// A text for a table: one line, not too long.
pub(super) fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= 70 {
        return line;
    }
    let chars: Vec<char> = line.chars().collect();
    let (head, tail) = (&chars[..45], &chars[chars.len() - 20..]);
    format!("{}...{}", head.iter().collect::<String>(), tail.iter().collect::<String>())
}

fn is_for_people(item: &syn::ItemImpl) -> bool {
    let Some((_, path, _)) = &item.trait_ else { return false };
    path.segments.last().is_some_and(|last| last.ident == "Debug" || last.ident == "Display")
}

fn attributes(item: &syn::Item) -> &[Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let has_bodies = matches!(
            item,
            syn::Item::Fn(_) | syn::Item::Impl(_) | syn::Item::Mod(_) | syn::Item::Trait(_)
        );
        if has_bodies && is_compiled(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if item.sig.constness.is_none() {
            self.function(range(item), &item.sig, &item.block);
            self.visit_block(&item.block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_people(item) {
            item.items.iter().for_each(|item| self.visit_impl_item(item));
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if let syn::ImplItem::Fn(item) = item
            && is_compiled(&item.attrs)
            && item.sig.constness.is_none()
        {
            self.function(range(item), &item.sig, &item.block);
            self.visit_block(&item.block);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(item) = item
            && is_compiled(&item.attrs)
            && let Some(body) = &item.default
        {
            self.function(range(item), &item.sig, body);
            self.visit_block(body);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        statements::of_block(self, block);
        visit::visit_block(self, block);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if is_compiled(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if is_compiled(&arm.attrs) {
            operators::of_guard(self, arm);
            visit::visit_arm(self, arm);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::Const(_) | Expr::Macro(_) => {}
            Expr::Block(block) if !is_compiled(&block.attrs) => {}
            Expr::Repeat(repeat) => self.visit_expr(&repeat.expr),
            Expr::Call(call) if orders::of_fence(self, call) => {}
            // A call that only tells the simulator which places are reached changes nothing else.
            Expr::Call(call) if statements::is_for_simulator(self.text(range(call))) => {}
            Expr::If(whole) if operators::is_planted(self.text(range(&whole.cond))) => {
                self.visit_expr(&whole.cond);
                // The branch that carries out a planted bug is a fault already.
                if !operators::is_for_planted(self.text(range(&whole.cond))) {
                    self.visit_block(&whole.then_branch);
                }
                if let Some((_, otherwise)) = &whole.else_branch {
                    self.visit_expr(otherwise);
                }
            }
            _ => {
                operators::of_expression(self, expression);
                visit::visit_expr(self, expression);
            }
        }
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
}
