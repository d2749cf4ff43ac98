//! Cuts a Rust file into tokens and keeps what the rules ask about: paths, functions, macros,
//! `unsafe`.
//!
//! Tokens, not a syntax tree: code inside macros counts like any other, comments and strings do
//! not.

use super::kinds;
use proc_macro2::{Delimiter, Group, LexError, TokenStream, TokenTree};
use std::iter::Peekable;

/// What a Rust file holds.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// Every path of at least one name, `use` groups spelled out.
    pub paths: Vec<PathUse>,
    /// Every function with a body.
    pub functions: Vec<Function>,
    /// Every `name!`.
    pub macros: Vec<Mention>,
    /// Every `unsafe`.
    pub unsafe_lines: Vec<usize>,
    /// Every place in code that ships which distinguishes kinds of operations without naming all of
    /// them.
    pub loose_kinds: Vec<usize>,
    /// Modules that it declares and that have files of their own.
    pub modules: Vec<ModuleFile>,
}

/// A path such as `crate::vfs::ReadFile`, where it stands in the code.
#[derive(Clone, Debug)]
pub struct PathUse {
    /// Its names; the last may be `*` or `self`.
    pub names: Vec<String>,
    /// The line of its first name.
    pub line: usize,
    /// How many modules of the same file are around it.
    pub depth: usize,
    /// True if it is compiled for tests only.
    pub in_test: bool,
}

impl PathUse {
    /// True if the path starts with these names.
    pub fn starts_with(&self, names: &[&str]) -> bool {
        self.names.len() >= names.len() && self.names.iter().zip(names).all(|(a, b)| a == b)
    }
}

/// A function with a body.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of `fn`.
    pub first_line: usize,
    /// The line of the closing brace.
    pub last_line: usize,
    /// True if it is compiled for tests only.
    pub in_test: bool,
}

/// The declaration of a module that has a file of its own.
#[derive(Clone, Debug)]
pub struct ModuleFile {
    /// Its name.
    pub name: String,
    /// The file that a `path` attribute names.
    pub file: Option<String>,
    /// True if it is compiled for tests only.
    pub in_test: bool,
}

/// A name and where it stands.
#[derive(Clone, Debug)]
pub struct Mention {
    /// The name.
    pub name: String,
    /// The line.
    pub line: usize,
    /// True if it is compiled for tests only.
    pub in_test: bool,
}

/// Where the scanner is.
#[derive(Clone, Copy, Default)]
struct Place {
    depth: usize,
    in_test: bool,
}

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

impl Code {
    /// Scans the text of a file.
    pub fn scan(text: &str) -> Result<Self, LexError> {
        let mut code = Code::default();
        code.walk(text.parse()?, Place::default());
        Ok(code)
    }

    fn walk(&mut self, stream: TokenStream, place: Place) {
        if !place.in_test {
            self.loose_kinds.extend(kinds::loose(&stream));
        }
        let mut tokens = stream.into_iter().peekable();
        // An item after `#[cfg(test)]` lasts until its first `;` or its body.
        let mut test_item = false;
        let mut file = None;
        while let Some(token) = tokens.next() {
            let here = Place { in_test: place.in_test || test_item, ..place };
            match token {
                TokenTree::Punct(p) if p.as_char() == '#' => {
                    let text = self.attribute(&mut tokens, here);
                    test_item |= is_for_tests(&text);
                    file = file_named(&text).or(file);
                }
                TokenTree::Punct(p) => test_item &= p.as_char() != ';',
                TokenTree::Group(group) => {
                    test_item &= group.delimiter() != Delimiter::Brace;
                    self.walk(group.stream(), here);
                }
                TokenTree::Ident(ident) => {
                    let (name, line) = (ident.to_string(), ident.span().start().line);
                    match name.as_str() {
                        "unsafe" => self.unsafe_lines.push(line),
                        "fn" => self.function(&tokens, line, here),
                        "mod" if self.module(&mut tokens, file.take(), here) => test_item = false,
                        _ => self.path(vec![name], line, &mut tokens, here),
                    }
                }
                TokenTree::Literal(_) => {}
            }
        }
    }

    /// Reads past an attribute and returns what is in its brackets, without spaces.
    fn attribute(&mut self, tokens: &mut Tokens, place: Place) -> String {
        if let Some(TokenTree::Punct(p)) = tokens.peek()
            && p.as_char() == '!'
        {
            tokens.next();
        }
        let Some(TokenTree::Group(group)) = tokens.peek() else { return String::new() };
        let stream = group.stream();
        tokens.next();
        let text = stream.to_string().split_whitespace().collect();
        self.walk(stream, place);
        text
    }

    /// Notes the function whose `fn` was just read, if it has a body.
    fn function(&mut self, tokens: &Tokens, first_line: usize, place: Place) {
        let mut ahead = tokens.clone();
        // `fn(u8) -> u8` is a type.
        let Some(TokenTree::Ident(name)) = ahead.next() else { return };
        for token in ahead {
            match token {
                TokenTree::Punct(p) if p.as_char() == ';' => return,
                TokenTree::Group(g) if g.delimiter() == Delimiter::Brace => {
                    let last_line = g.span_close().end().line;
                    let (name, in_test) = (name.to_string(), place.in_test);
                    self.functions.push(Function { name, first_line, last_line, in_test });
                    return;
                }
                _ => {}
            }
        }
    }

    /// Reads a module whose `mod` was just read. False, and nothing is read, if it is no module.
    fn module(&mut self, tokens: &mut Tokens, file: Option<String>, place: Place) -> bool {
        let mut ahead = tokens.clone();
        let Some(TokenTree::Ident(name)) = ahead.next() else { return false };
        match ahead.next() {
            Some(TokenTree::Punct(p)) if p.as_char() == ';' => {
                let name = name.to_string();
                self.modules.push(ModuleFile { name, file, in_test: place.in_test });
            }
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
                self.walk(body.stream(), Place { depth: place.depth + 1, ..place });
            }
            _ => return false,
        }
        *tokens = ahead;
        true
    }

    /// Reads on in a path of which `names` was read.
    fn path(&mut self, mut names: Vec<String>, line: usize, tokens: &mut Tokens, place: Place) {
        while next_is_path_separator(tokens) {
            tokens.nth(1);
            match tokens.peek() {
                Some(TokenTree::Ident(name)) => names.push(name.to_string()),
                Some(TokenTree::Punct(p)) if p.as_char() == '*' => names.push("*".to_owned()),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.branches(&names, group, place);
                    tokens.next();
                    return;
                }
                _ => break,
            }
            tokens.next();
        }
        if let Some(TokenTree::Punct(p)) = tokens.peek()
            && p.as_char() == '!'
            && let Some(name) = names.last()
        {
            self.macros.push(Mention { name: name.clone(), line, in_test: place.in_test });
        }
        self.paths.push(PathUse { names, line, depth: place.depth, in_test: place.in_test });
    }

    /// Reads the group of `use names::{...}`.
    fn branches(&mut self, names: &[String], group: &Group, place: Place) {
        if !place.in_test {
            self.loose_kinds.extend(kinds::loose(&group.stream()));
        }
        let mut tokens = group.stream().into_iter().peekable();
        while let Some(token) = tokens.next() {
            let (name, line) = match token {
                TokenTree::Ident(ident) => (ident.to_string(), ident.span().start().line),
                TokenTree::Punct(p) if p.as_char() == '*' => {
                    ("*".to_owned(), p.span().start().line)
                }
                _ => continue,
            };
            if name == "as" {
                tokens.next();
                continue;
            }
            let branch = names.iter().cloned().chain([name]).collect();
            self.path(branch, line, &mut tokens, place);
        }
    }
}

/// True for the attributes of items that only tests see. A model checker's runs are tests.
fn is_for_tests(attribute: &str) -> bool {
    matches!(attribute, "test" | "cfg(test)" | "cfg(loom)" | "cfg(shuttle)")
        || attribute.starts_with("cfg(all(test,")
        || attribute.starts_with("cfg(all(loom,")
}

/// The file of `path = "file"`.
fn file_named(attribute: &str) -> Option<String> {
    Some(attribute.strip_prefix("path=\"")?.strip_suffix('"')?.to_owned())
}

fn next_is_path_separator(tokens: &Tokens) -> bool {
    let mut ahead = tokens.clone();
    (0..2).all(|_| matches!(ahead.next(), Some(TokenTree::Punct(p)) if p.as_char() == ':'))
}
