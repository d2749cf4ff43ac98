//! The files of a crate that are compiled into the library, found by walking its modules.
//!
//! What `cfg` leaves out is left out here: tests, models, other systems. The feature `simulation`
//! counts as on and as off.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Item, Lit, Meta, Token};

/// A file of the library.
pub(super) struct SourceFile {
    /// From the root of the workspace, with `/` between names.
    pub(super) path: String,
    pub(super) text: String,
    pub(super) syntax: syn::File,
}

/// Every file of the library whose root is `lib`, a path from `root`.
pub(super) fn walk(root: &Path, lib: &str) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let folder = Path::new(lib).parent().expect("a file lies in a folder").to_owned();
    read(root, Path::new(lib), &folder, &mut files)?;
    Ok(files)
}

/// Reads a file whose modules lie in `folder`, and then those.
fn read(root: &Path, path: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> io::Result<()> {
    let text = fs::read_to_string(root.join(path))?;
    let syntax = syn::parse_file(&text)
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    let beside = path.parent().expect("a file lies in a folder");
    let mut modules = Vec::new();
    for item in &syntax.items {
        if let Item::Mod(module) = item
            && module.content.is_none()
            && is_compiled(&module.attrs)
        {
            let name = module.ident.to_string();
            let moved = module.attrs.iter().find_map(path_of);
            modules.push((name, moved));
        }
    }
    let name = path.to_string_lossy().replace('\\', "/");
    files.push(SourceFile { path: name, text, syntax });
    for (name, moved) in modules {
        let candidates: [PathBuf; 2] = match &moved {
            Some(file) => [beside.join(file), beside.join(file)],
            None => [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")],
        };
        let file = candidates.iter().find(|file| root.join(file).is_file());
        let file = file.ok_or_else(|| io::Error::other(format!("module {name}: no file")))?;
        read(root, file, &folder.join(&name), files)?;
    }
    Ok(())
}

/// The file that a `path` attribute names.
fn path_of(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(value) if pair.path.is_ident("path") => match &value.lit {
            Lit::Str(file) => Some(file.value()),
            _ => None,
        },
        _ => None,
    }
}

/// False if these attributes leave out what they stand on, whether `simulation` is on or off.
pub(super) fn is_compiled(attributes: &[Attribute]) -> bool {
    [false, true].iter().any(|simulation| {
        attributes.iter().all(|attribute| match &attribute.meta {
            Meta::List(list) if list.path.is_ident("cfg") => {
                list.parse_args::<Meta>().is_ok_and(|meta| holds(&meta, *simulation))
            }
            Meta::Path(path) => !path.is_ident("test"),
            _ => true,
        })
    })
}

/// What a `cfg` predicate comes to in a build of today's system.
fn holds(meta: &Meta, simulation: bool) -> bool {
    match meta {
        Meta::Path(path) => path.is_ident("unix") || path.is_ident("debug_assertions"),
        Meta::NameValue(pair) => {
            let Expr::Lit(value) = &pair.value else { return false };
            let Lit::Str(value) = &value.lit else { return false };
            let value = value.value();
            (pair.path.is_ident("feature") && value == "simulation" && simulation)
                || (pair.path.is_ident("target_os") && value == "linux")
                || (pair.path.is_ident("target_pointer_width") && value == "64")
        }
        Meta::List(list) => {
            let parse = Punctuated::<Meta, Token![,]>::parse_terminated;
            let Ok(parts) = list.parse_args_with(parse) else { return false };
            let mut parts = parts.iter().map(|part| holds(part, simulation));
            if list.path.is_ident("not") {
                !parts.any(|holds| holds)
            } else if list.path.is_ident("all") {
                parts.all(|holds| holds)
            } else {
                parts.any(|holds| holds)
            }
        }
    }
}
