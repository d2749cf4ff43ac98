//! Documents of JSON that are changed by patches, without reading them first. A patch is a document
//! itself (RFC 7396, before that RFC 7386): its members replace those of the target, a member that
//! is `null` removes one, objects are patched in turn, and anything else replaces the target.
//!
//! ```text
//! family `profiles`   name  ->  {"city":"Oslo","likes":{"tea":true}}
//! operand                       {"likes":{"tea":null,"cake":true}}
//! ```
//!
//! Patches apply in the order of their commits. [`MergePatch::merge_partial`] makes one of two
//! where there is one that means the same: there is none for a patch that replaces what it meets
//! and another that patches what the first has put there. The engine keeps such patches apart.
//!
//! A patch `null` makes the value `null`: only a delete removes the key. Members of a value come in
//! the order of their names. A number that fits neither into 64 bits nor into a double becomes the
//! nearest double.
//!
//! `cargo run -p isobath --example merge_patch [DIRECTORY]`

use isobath::{BoxError, FamilyOptions, MergeOperator, Options};
use serde_json::{Map, Value};
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let given = std::env::args_os().nth(1);
    run(given.as_deref().map_or(scratch.path(), Path::new), &mut io::stdout())
}

pub(crate) struct MergePatch;

impl MergeOperator for MergePatch {
    fn name(&self) -> &str {
        "example.merge_patch"
    }

    fn merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        let mut document = existing.map_or(Ok(Value::Null), serde_json::from_slice)?;
        for operand in operands {
            patch(&mut document, serde_json::from_slice(operand)?);
        }
        Ok(serde_json::to_writer(out, &document)?)
    }

    fn merge_partial(&self, _key: &[u8], left: &[u8], right: &[u8], out: &mut Vec<u8>) -> bool {
        let parse = |bytes| serde_json::from_slice::<Value>(bytes).ok();
        let (Some(left), Some(right)) = (parse(left), parse(right)) else { return false };
        join(left, right).is_some_and(|joined| serde_json::to_writer(out, &joined).is_ok())
    }
}

/// Applies a patch. A document that is not there is like `null`.
fn patch(target: &mut Value, by: Value) {
    let Value::Object(changes) = by else {
        *target = by;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let members = target.as_object_mut().expect("it is one by now");
    for (name, change) in changes {
        match change {
            Value::Null => drop(members.remove(&name)),
            change => patch(members.entry(name).or_insert(Value::Null), change),
        }
    }
}

/// The patch that does what `left` and then `right` do, whatever they meet; `None` if there is
/// none.
fn join(left: Value, right: Value) -> Option<Value> {
    match (left, right) {
        (Value::Object(mut joined), Value::Object(later)) => {
            for (name, change) in later {
                let change = match joined.remove(&name) {
                    Some(earlier) => join(earlier, change)?,
                    None => change,
                };
                joined.insert(name, change);
            }
            Some(Value::Object(joined))
        }
        // As a patch, what comes of both would let members of the target stay.
        (_, Value::Object(_)) => None,
        // It replaces all, or removes it.
        (_, right) => Some(right),
    }
}

pub(crate) fn run(dir: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let db = Options::new().merge_operator(MergePatch).open(dir)?;
    let patched = FamilyOptions::new().merge_operator(MergePatch.name());
    let profiles = db.family(("profiles", patched))?;
    profiles.put("ada", r#"{"city":"Oslo","likes":{"tea":true,"rain":false}}"#)?;
    profiles.merge("ada", r#"{"likes":{"tea":null,"cake":true}}"#)?;
    profiles.merge("ada", r#"{"city":"Bergen"}"#)?;
    profiles.merge("bob", r#"{"city":null,"likes":{"tea":true}}"#)?;
    // The two patches may become one, but not with the third one.
    profiles.merge("ada", r#"{"likes":null}"#)?;
    profiles.merge("ada", r#"{"likes":{"snow":true}}"#)?;
    db.flush()?;
    for name in ["ada", "bob"] {
        let profile = profiles.get(name)?.expect("it was patched");
        writeln!(out, "{name}: {}", String::from_utf8_lossy(&profile))?;
    }

    // Reads of a key with a patch that is none fail, and a put or a delete ends the trouble.
    profiles.merge("bob", r#"{"city":"#)?;
    writeln!(out, "bob: {}", profiles.get("bob").expect_err("no JSON").name())?;
    profiles.delete("bob")?;
    writeln!(out, "bob: {:?}", profiles.get("bob")?)?;
    db.close()?;
    Ok(())
}
