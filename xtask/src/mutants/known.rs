//! The mutants with names: exact substitutions that a file lists, each with the reason why it is
//! there.
//!
//! ```toml
//! [[mutant]]
//! name = "keep-takes-the-tail"
//! why = "..."
//! [[mutant.edit]]
//! file = "crates/isobath/src/engine/read_points.rs"
//! find = "self.readers_from(log.visible().min(retained))"
//! replace = "self.readers_from(log.tail().min(retained))"
//! ```
//!
//! `find` occurs exactly once in its file (or `nth` says which one is meant, from 1), within the
//! body of a function. A mutant may have several edits; they are switched on together. Edits in one
//! function's body make one change of it.

use super::finder::{find_functions, shortened};
use super::site::{Kind, Mutant, Sites};
use super::sources::SourceFile;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

#[derive(Deserialize)]
struct List {
    mutant: Vec<Known>,
}

/// A mutant with a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) why: String,
    /// Why nothing can kill it, if people have found so.
    pub(super) equivalent: Option<String>,
    pub(super) edit: Vec<Edit>,
}

/// A substitution.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    pub(super) file: String,
    find: String,
    replace: String,
    nth: Option<usize>,
}

/// The bytes that an edit replaces, and by what.
type Replacement<'a> = (Range<usize>, &'a str);

/// The mutants that a file lists.
pub(super) fn read(list: &Path) -> io::Result<Vec<Known>> {
    let text = fs::read_to_string(list)?;
    parse(&text).map_err(|error| io::Error::other(format!("{}: {error}", list.display())))
}

/// The mutants that such a file's text lists.
pub(super) fn parse(text: &str) -> Result<Vec<Known>, toml::de::Error> {
    toml::from_str::<List>(text).map(|list| list.mutant)
}

/// Takes out those that do not fit the sources any more, and says why each does not.
pub(super) fn take_stale(known: &mut Vec<Known>, files: &[SourceFile]) -> Vec<String> {
    let mut stale = Vec::new();
    known.retain(|one| {
        let complaint = one.edit.iter().find_map(|edit| {
            let Some(file) = files.iter().find(|file| file.path == edit.file) else {
                return Some(format!("{} is no file of the library", edit.file));
            };
            place_and_body(edit, file, &find_functions(file)).err()
        });
        stale.extend(complaint.iter().map(|complaint| format!("{}: {complaint}", one.name)));
        complaint.is_none()
    });
    stale
}

/// Notes where the listed mutants, which all fit, stand in a file.
pub(super) fn find(
    known: &[Known],
    file: &SourceFile,
    sites: &mut Sites,
    mutants: &mut Vec<Mutant>,
) {
    if known.iter().all(|known| known.edit.iter().all(|edit| edit.file != file.path)) {
        return;
    }
    let bodies = find_functions(file);
    for one in known {
        let mut by_body: BTreeMap<(usize, usize), Vec<Replacement<'_>>> = BTreeMap::new();
        for edit in one.edit.iter().filter(|edit| edit.file == file.path) {
            if let Ok((place, body)) = place_and_body(edit, file, &bodies) {
                by_body.entry((body.start, body.end)).or_default().push((place, &edit.replace));
            }
        }
        for ((start, end), mut edits) in by_body {
            edits.sort_by_key(|(place, _)| place.start);
            let mutant = number(one, file, edits[0].0.start, mutants);
            let mut text = String::new();
            let mut at = start;
            for (place, replacement) in edits {
                text.push_str(&file.text[at..place.start]);
                text.push_str(replacement);
                at = place.end;
            }
            text.push_str(&file.text[at..end]);
            sites.add(start..end, Kind::Body, mutant, text);
        }
    }
}

/// The bytes that an edit replaces, and the body of the innermost function that they lie in.
fn place_and_body(
    edit: &Edit,
    file: &SourceFile,
    bodies: &[Range<usize>],
) -> Result<(Range<usize>, Range<usize>), String> {
    let place = place(edit, &file.text)?;
    let around = bodies.iter().filter(|body| body.start <= place.start && place.end <= body.end);
    let body = around.min_by_key(|body| body.len()).ok_or("it lies in no function's body")?;
    Ok((place, body.clone()))
}

/// The bytes that an edit replaces.
fn place(edit: &Edit, text: &str) -> Result<Range<usize>, String> {
    let places: Vec<usize> = text.match_indices(&edit.find).map(|(at, _)| at).collect();
    let at = match (edit.nth, places.len()) {
        (None, 1) => places[0],
        (Some(nth), count) if (1..=count).contains(&nth) => places[nth - 1],
        (nth, count) => {
            return Err(format!(
                "{}: {:?} occurs {count} times, wanted is {nth:?}",
                edit.file, edit.find
            ));
        }
    };
    Ok(at..at + edit.find.len())
}

/// The mutant of this name, made if it is not there yet.
fn number(known: &Known, file: &SourceFile, at: usize, mutants: &mut Vec<Mutant>) -> usize {
    let is_it = |mutant: &Mutant| mutant.name.as_ref() == Some(&known.name);
    if let Some(there) = mutants.iter().position(is_it) {
        return there;
    }
    let line = file.text[..at].matches('\n').count() + 1;
    let edit = known.edit.iter().find(|edit| edit.file == file.path).expect("it has an edit here");
    let change = format!("`{}` -> `{}`", shortened(&edit.find), shortened(&edit.replace));
    let (name, file) = (Some(known.name.clone()), file.path.clone());
    mutants.push(Mutant { name, file, line, column: 0, operator: "known", change, access: None });
    mutants.len() - 1
}
