//! Collects the signatures of everything that the crate's root and its module `tools` export from
//! the sources, and compares them with the listing in the tree.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The items of an exported type, as the sources write them.
type Listing = BTreeMap<String, Vec<String>>;

/// The names after `pub use` in the crate's root.
fn exported(root: &str) -> Vec<String> {
    let uses = root.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let names = uses.flat_map(|path| {
        let last = path.split_once("::").unwrap().1;
        last.trim_matches(['{', '}']).split(',').map(|name| name.trim().to_owned())
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The texts of the sources in a folder, without those of `tools`, which is listed by itself.
fn sources(dir: &Path, found: &mut Vec<String>) {
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if ["bench_support", "fuzzing", "tools"].iter().any(|name| path.ends_with(name)) {
            continue;
        } else if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            // The rest of the file is tests.
            found.push(text.split("\nmod tests {").next().unwrap().to_owned());
        }
    }
}

/// A signature in one line, up to its body.
fn signature<'a>(first: &'a str, rest: &mut impl Iterator<Item = &'a str>) -> String {
    let mut text = first.trim().to_owned();
    while !text.ends_with(['{', ';', '}']) {
        let Some(next) = rest.next() else { break };
        let glue = if text.ends_with('(') || next.trim() == ")" { "" } else { " " };
        write!(text, "{glue}{}", next.trim()).unwrap();
    }
    let text = text.trim_end_matches('}').trim_end_matches('{').trim().trim_end_matches(';');
    text.replace("$crate::", "").replace(", )", ")").replace("$this: $receiver", "self").to_owned()
}

/// The name of an item, or of the type of an `impl`.
fn name_of(text: &str) -> String {
    let text = text.trim_start();
    let text = match text.strip_prefix('<') {
        Some(rest) => rest.split_once('>').unwrap().1.trim_start(),
        None => text,
    };
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The context of a line.
enum Place {
    Outside,
    /// Inside the item with this name.
    Item(String),
    /// Inside an `impl` of the item with this name.
    Impl(String),
    /// Inside a macro that expands to methods.
    Macro(String),
}

/// The macros that expand to public methods of the types that they are given.
const MACROS: [&str; 6] =
    ["reads!(", "writes!(", "stream_writes!(", "range_deletes!(", "steps!(", "scans!("];
const ITEMS: [&str; 6] = ["struct ", "enum ", "trait ", "const ", "type ", "fn "];

fn list(source: &str, exported: &[String], listing: &mut Listing) {
    let mut place = Place::Outside;
    let mut lines = source.lines();
    let mut is_test = false;
    let mut is_of_options = false;
    while let Some(line) = lines.next() {
        is_of_options |= line.starts_with("options! {");
        if line.starts_with("#[cfg(") && line.contains("test") {
            is_test = true;
            continue;
        }
        let is_item = line.starts_with(char::is_alphabetic);
        let is_test = is_item && std::mem::take(&mut is_test);
        if line.starts_with(['}', ')']) {
            place = Place::Outside;
        } else if let Some(rest) = line.strip_prefix("macro_rules! ") {
            let is_told = MACROS.iter().any(|name| name.trim_end_matches("!(") == name_of(rest));
            let told = Place::Macro(format!("{}!", name_of(rest)));
            place = if is_told { told } else { Place::Outside };
        } else if let Some(rest) = MACROS.iter().find_map(|it| line.strip_prefix(it)) {
            // Lifetimes come first where there are any.
            let rest = rest.split_once(']').map_or(rest, |(_, rest)| rest);
            let of = listing.entry(name_of(rest)).or_default();
            of.push(line.trim_end_matches(';').to_owned());
        } else if let Some(rest) = line.strip_prefix("impl") {
            let (of_what, name) = match rest.split_once(" for ") {
                Some((of_what, name)) => (Some(of_what), name),
                None => (None, rest),
            };
            place = Place::Impl(name_of(name));
            let is_told = exported.contains(&name_of(name)) && !line.contains("Sealed") && !is_test;
            if let Some(of_what) = of_what.filter(|_| is_told) {
                listing.entry(name_of(name)).or_default().push(format!("impl{of_what}"));
            }
        } else if let Some(rest) = line.strip_prefix("pub ") {
            let item = ITEMS.iter().find_map(|item| rest.strip_prefix(item));
            let name = item.map(name_of).filter(|name| exported.contains(name) && !is_test);
            if let Some(name) = name {
                let mut signature = signature(line, &mut lines);
                if signature.starts_with("pub const ") {
                    signature.truncate(signature.find(" = ").unwrap());
                }
                let of = listing.entry(name.clone()).or_default();
                of.push(signature);
                if std::mem::take(&mut is_of_options) {
                    of.push("options! of these fields: `new`, `Default`, setters".to_owned());
                }
                let has_members = line.ends_with('{') && !rest.starts_with("fn ");
                place = if has_members { Place::Item(name) } else { Place::Outside };
            }
        } else {
            member(line, &mut lines, &place, exported, listing);
        }
    }
}

/// A method, a field or a variant.
fn member<'a>(
    line: &'a str,
    rest: &mut impl Iterator<Item = &'a str>,
    place: &Place,
    exported: &[String],
    listing: &mut Listing,
) {
    match place {
        Place::Item(name) | Place::Impl(name) if exported.contains(name) => {
            let is_item = matches!(place, Place::Item(_));
            let is_variant = line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
            let is_method = line.starts_with("    pub ") || line.starts_with("    fn ");
            let is_of_trait = listing.get(name).is_some_and(|of| of[0].starts_with("pub trait"));
            if line.starts_with("    pub ") && line.trim_end().ends_with(',') {
                let field = line.trim().trim_end_matches(',');
                // Without the default value, which only lists of options have.
                let field = field.split_once(" = ").map_or(field, |(field, _)| field);
                listing.get_mut(name).unwrap().push(format!("  {field}"));
            } else if line.starts_with("    pub fn ") || (is_method && is_of_trait) {
                let text = signature(line, rest);
                listing.entry(name.clone()).or_default().push(format!("  {text}"));
            } else if is_variant && listing.get(name).is_some_and(|of| !of.is_empty()) {
                let variant = line.trim().trim_end_matches([',', '{']).trim();
                listing.get_mut(name).unwrap().push(format!("  {variant}"));
            } else if is_item && line.starts_with("        ") && line.ends_with(',') {
                listing.get_mut(name).unwrap().push(format!("    {}", line.trim()));
            }
        }
        Place::Macro(name) if line.starts_with("            pub fn ") => {
            let text = signature(line, rest);
            listing.entry(name.clone()).or_default().push(format!("  {text}"));
        }
        _ => {}
    }
}

/// The listing of what a module exports, whose sources lie in a folder, as text.
fn listed(module: &str, folder: &Path, prefix: &str) -> String {
    let exported = exported(&std::fs::read_to_string(folder.join(module)).unwrap());
    let (mut texts, mut listing) = (Vec::new(), Listing::new());
    sources(folder, &mut texts);
    texts.iter().for_each(|text| list(text, &exported, &mut listing));
    let mut text = String::new();
    for (name, items) in
        listing.iter().filter(|(name, _)| name.ends_with('!') || exported.contains(name))
    {
        writeln!(text, "{prefix}{name}").unwrap();
        items.iter().for_each(|item| writeln!(text, "    {item}").unwrap());
    }
    for name in &exported {
        assert!(listing.contains_key(name), "nothing is found of {name}");
    }
    text
}

#[test]
fn the_listing_has_every_public_signature() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let src = crate_dir.join("src");
    let mut text = listed("lib.rs", &src, "");
    text.push_str(&listed("mod.rs", &src.join("tools"), "tools::"));
    let path = crate_dir.join("tests/api/public.txt");
    if std::env::var_os("ISOBATH_UPDATE").is_some() {
        return std::fs::write(path, text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let changed = text.lines().zip(kept.lines()).find(|(now, kept)| now != kept);
    assert!(
        text == kept,
        "the API is not that of tests/api/public.txt ({changed:?}); run with ISOBATH_UPDATE=1 and look at the diff"
    );
}

/// The lines of an item that open its variants or itself, each with the attributes before it.
fn may_grow(source: &str, begins: impl Fn(&str) -> bool) -> Vec<(String, bool)> {
    let (mut found, mut attributes) = (Vec::new(), String::new());
    for line in source.lines() {
        if line.trim_start().starts_with("#[") {
            attributes.push_str(line);
        } else if begins(line) {
            found.push((
                name_of(line.trim_start_matches("pub enum ")),
                attributes.contains("#[non_exhaustive]"),
            ));
            attributes.clear();
        } else if !line.trim_start().starts_with("//") {
            attributes.clear();
        }
    }
    found
}

/// The variants of an enum of this file, each with whether it may get more fields.
fn variants_of(file: &str, name: &str) -> Vec<(String, bool)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split(&format!("pub enum {name}")).nth(1).unwrap().split("\n}").next().unwrap();
    let is_variant =
        |line: &str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
    may_grow(text, is_variant)
}

#[test]
fn every_public_enum_and_every_kind_of_error_and_event_can_grow() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut names, mut texts) = (Vec::new(), Vec::new());
    for (module, folder) in [("lib.rs", "src"), ("mod.rs", "src/tools")] {
        let folder = crate_dir.join(folder);
        names.extend(exported(&std::fs::read_to_string(folder.join(module)).unwrap()));
        sources(&folder, &mut texts);
    }
    let enums = texts.iter().flat_map(|text| may_grow(text, |line| line.starts_with("pub enum ")));
    let enums: Vec<_> = enums.filter(|(name, _)| names.contains(name)).collect();
    assert!(enums.len() > 10, "{enums:?}");
    let (kinds, events) =
        (variants_of("error/kind.rs", "ErrorKind"), variants_of("events.rs", "Event"));
    assert!(kinds.len() > 20 && events.len() > 10, "{kinds:?} {events:?}");
    let all = enums.iter().chain(&kinds).chain(&events);
    let fixed: Vec<_> = all.filter(|(_, may_grow)| !may_grow).collect();
    assert!(fixed.is_empty(), "without #[non_exhaustive]: {fixed:?}");
}
