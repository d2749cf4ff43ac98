//! The rooms of the engine, and who imports whom: a graph without circles.
//!
//! A room is a folder below `crates/isobath/src`, or a file there. An edge is a path in code that
//! ships; tests, models and fuzzing may name what they like. A circle means that neither room can
//! be understood, tested or changed without the other: move what both need below both, or pass it
//! in.

use super::imports::{ENGINE, module_of, top_module_named};
use super::{Source, Violation, Workspace};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What only fuzzers and benchmarks compile.
const OUTSIDE: [&str; 2] = ["bench_support", "fuzzing"];

/// For each room, the rooms that it imports, each with a place where it does.
pub type Rooms = BTreeMap<String, BTreeMap<String, (String, usize)>>;

/// The graph of the workspace.
pub fn rooms(workspace: &Workspace) -> Rooms {
    let files: Vec<&Source> =
        workspace.rust().filter(|source| source.path.starts_with(ENGINE)).collect();
    let tops: BTreeSet<String> =
        files.iter().filter_map(|source| module_of(&source.path).into_iter().next()).collect();
    let root = files.iter().find(|source| source.path.ends_with("/src/lib.rs"));
    // `crate::Error` is `crate::error::Error`, and `crate::db` is `crate::api::db`.
    let exports: BTreeMap<&str, &str> = root
        .iter()
        .flat_map(|root| &root.code.paths)
        .filter(|path| path.names.len() > 1 && tops.contains(&path.names[0]))
        .map(|path| (path.names[path.names.len() - 1].as_str(), path.names[0].as_str()))
        .collect();
    let mut rooms = Rooms::new();
    for source in &files {
        let module = module_of(workspace.moved.get(&source.path).unwrap_or(&source.path));
        let is_outside = module.iter().any(|name| OUTSIDE.contains(&name.as_str()));
        let Some(from) = module.first() else { continue };
        if is_outside || workspace.is_test_only(&source.path) {
            continue;
        }
        let imports = rooms.entry(from.clone()).or_default();
        for path in source.code.paths.iter().filter(|path| !path.in_test) {
            let Some(top) = top_module_named(&module, path) else { continue };
            let top = exports.get(top.as_str()).copied().unwrap_or(&top);
            if tops.contains(top) && top != from {
                let place = || (source.path.clone(), path.line);
                imports.entry(top.to_owned()).or_insert_with(place);
            }
        }
    }
    rooms
}

/// The shortest way from a room back to itself, if there is one; it begins and ends with the room.
fn circle(rooms: &Rooms, from: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(at) = next.pop_front() {
        for to in rooms.get(at).into_iter().flat_map(|imports| imports.keys()) {
            if to == from {
                let mut way = vec![from.to_owned(), at.to_owned()];
                while let Some(earlier) = before.get(way[way.len() - 1].as_str()) {
                    way.push((*earlier).to_owned());
                }
                way.reverse();
                return Some(way);
            }
            if !before.contains_key(to.as_str()) {
                before.insert(to, at);
                next.push_back(to);
            }
        }
    }
    None
}

/// A complaint for each room on a circle, at the import by which it leads on.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let rooms = rooms(workspace);
    let complain = |from: &String| {
        let way = circle(&rooms, from)?;
        let (path, line) = rooms[from][&way[1]].clone();
        let what = format!("rooms import each other in a circle: {}", way.join(" -> "));
        Some(Violation { path, line, what })
    };
    rooms.keys().filter_map(complain).collect()
}

/// The rooms, those first that import none of the later ones, each with what it imports.
pub fn describe(rooms: &Rooms) -> String {
    let mut lines = String::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    while done.len() < rooms.len() {
        let is_ready = |room: &&String| {
            let imports = &rooms[*room];
            !done.contains(room.as_str())
                && imports.keys().all(|to| done.contains(to.as_str()) || !rooms.contains_key(to))
        };
        let ready: Vec<&String> = rooms.keys().filter(is_ready).collect();
        if ready.is_empty() {
            lines.push_str("the rest imports each other in circles\n");
            break;
        }
        for room in ready {
            let imports: Vec<&str> = rooms[room].keys().map(String::as_str).collect();
            lines.push_str(&format!("{room}: {}\n", imports.join(", ")));
            done.insert(room);
        }
    }
    lines
}
