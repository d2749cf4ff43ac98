//! The table that a workload file returns, and the settings a run makes of it.
//!
//! ```text
//! return {
//!   name = "mixed", about = "...",
//!   items = 100000, users = 1000, batch = 1, value_size = 4096, key_size = 16,
//!   keys = "hashed" | "ordered",
//!   load = function(ctx) ... end,      -- once a thread, its share is [ctx.first, ctx.last)
//!   run = function(ctx) ... end,       -- one unit of work
//!   check = function(ctx) ... end,     -- once after the run: an error fails it
//!   check_always = true,               -- also on data that another process has loaded
//!   sweep = { B = {1, 64, 256} },
//! }
//! ```

use crate::generate::{Compressibility, KEY_LEN_MIN, KeyShape, VALUE_LEN_MIN};
use anyhow::{Context, Result, anyhow, bail};
use mlua::{Function, Lua, Table, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a run of a workload is made with.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) items: u64,
    pub(crate) users: u64,
    pub(crate) batch: u64,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) keys: KeyShape,
    pub(crate) compressibility: Compressibility,
    pub(crate) seed: u64,
}

/// More can't be multiplied by a number of threads and of bytes.
const COUNT_MAX: u64 = 1 << 40;

impl Settings {
    /// Fails on sizes that can't be.
    pub(crate) fn check(&self) -> Result<()> {
        if [self.items, self.users, self.batch].iter().any(|count| !(1..=COUNT_MAX).contains(count))
        {
            bail!("items, users and batch go from 1 to {COUNT_MAX}");
        }
        if !(KEY_LEN_MIN..=65_535).contains(&self.key_size) {
            bail!(
                "key size {} is impossible: generated keys have {KEY_LEN_MIN} to 65535 bytes",
                self.key_size
            );
        }
        if !(VALUE_LEN_MIN..=1 << 30).contains(&self.value_size) {
            bail!(
                "value size {} is impossible: generated values have {VALUE_LEN_MIN} bytes to 1 GiB",
                self.value_size
            );
        }
        Ok(())
    }
}

/// A workload file that was read once.
pub(crate) struct Workload {
    pub(crate) path: PathBuf,
    pub(crate) source: String,
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) defaults: Settings,
    /// True if its check needs to know nothing but what is in the database.
    pub(crate) check_always: bool,
    /// Values of each swept parameter, as Lua literals.
    pub(crate) sweep: BTreeMap<String, Vec<String>>,
}

const FIELDS: &[&str] = &[
    "name",
    "about",
    "items",
    "users",
    "batch",
    "value_size",
    "key_size",
    "keys",
    "load",
    "run",
    "check",
    "check_always",
    "sweep",
];

impl Workload {
    pub(crate) fn read(path: &Path) -> Result<Workload> {
        let source = std::fs::read_to_string(path)
            .with_context(|| format!("reading the workload {}", path.display()))?;
        Workload::parse(path, source)
    }

    pub(crate) fn parse(path: &Path, source: String) -> Result<Workload> {
        let lua = Lua::new();
        // The file may assign these to locals at its top level. They cannot be called while the
        // file is only loaded.
        for global in ["kv", "gen"] {
            lua.globals().set(global, lua.create_table().map_err(lua_error)?).map_err(lua_error)?;
        }
        let table = evaluate(&lua, path, &source)?;
        for pair in table.pairs::<String, Value>() {
            let (field, _) = pair.map_err(lua_error)?;
            if !FIELDS.contains(&field.as_str()) {
                bail!("{}: unknown field `{field}` (known: {})", path.display(), FIELDS.join(", "));
            }
        }
        let stem = path
            .file_stem()
            .map_or_else(|| "workload".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let defaults = Settings {
            items: number(&table, "items", 100_000)?,
            users: number(&table, "users", 1_000)?,
            batch: number(&table, "batch", 1)?,
            key_size: number(&table, "key_size", 16)? as usize,
            value_size: number(&table, "value_size", 100)? as usize,
            keys: key_shape(&table)?,
            compressibility: Compressibility::Half,
            seed: 42,
        };
        Ok(Workload {
            path: path.to_owned(),
            name: table.get::<Option<String>>("name").map_err(lua_error)?.unwrap_or(stem),
            about: table.get::<Option<String>>("about").map_err(lua_error)?.unwrap_or_default(),
            sweep: sweep(&table)?,
            check_always: table
                .get::<Option<bool>>("check_always")
                .map_err(lua_error)?
                .unwrap_or_default(),
            defaults,
            source,
        })
    }
}

/// Runs the file and takes the table it returns.
pub(crate) fn evaluate(lua: &Lua, path: &Path, source: &str) -> Result<Table> {
    let name = format!("@{}", path.display());
    let value: Value = lua.load(source).set_name(name).eval().map_err(lua_error)?;
    let Value::Table(table) = value else {
        bail!(
            "{} must return a table with a function `run`, and returned {}",
            path.display(),
            value.type_name()
        );
    };
    match table.get::<Value>("run").map_err(lua_error)? {
        Value::Function(_) => Ok(table),
        other => {
            bail!("{}: `run` must be a function, and is {}", path.display(), other.type_name())
        }
    }
}

/// The function under `name`, if the workload has one.
pub(crate) fn function(table: &Table, name: &str) -> Result<Option<Function>> {
    table.get::<Option<Function>>(name).map_err(lua_error)
}

/// A Lua error with its file, line and stack.
pub(crate) fn lua_error(error: mlua::Error) -> anyhow::Error {
    anyhow!("{error}")
}

fn number(table: &Table, name: &str, default: u64) -> Result<u64> {
    match table.get::<Value>(name).map_err(lua_error)? {
        Value::Nil => Ok(default),
        Value::Integer(number) if number > 0 => Ok(number as u64),
        other => bail!(
            "`{name}` must be a positive integer, and is {}",
            other.to_string().unwrap_or_default()
        ),
    }
}

fn key_shape(table: &Table) -> Result<KeyShape> {
    match table.get::<Option<String>>("keys").map_err(lua_error)?.as_deref() {
        None | Some("hashed") => Ok(KeyShape::Hashed),
        Some("ordered") => Ok(KeyShape::Ordered),
        Some("timestamp") => Ok(KeyShape::Timestamp),
        Some("swapped") => Ok(KeyShape::Swapped),
        Some(other) => bail!("`keys` can't be `{other}` (hashed, ordered, timestamp, swapped)"),
    }
}

fn sweep(table: &Table) -> Result<BTreeMap<String, Vec<String>>> {
    let mut sweep = BTreeMap::new();
    let Some(entries) = table.get::<Option<Table>>("sweep").map_err(lua_error)? else {
        return Ok(sweep);
    };
    for entry in entries.pairs::<String, Vec<Value>>() {
        let (name, values) =
            entry.map_err(lua_error).context("`sweep` maps a name to a list of values")?;
        let literals = values.iter().map(literal).collect::<Result<Vec<_>>>()?;
        sweep.insert(name, literals);
    }
    Ok(sweep)
}

fn literal(value: &Value) -> Result<String> {
    match value {
        Value::Integer(_) | Value::Number(_) | Value::Boolean(_) | Value::String(_) => {
            value.to_string().map_err(lua_error)
        }
        other => bail!("a swept value can't be a {}", other.type_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(source: &str) -> Result<Workload> {
        Workload::parse(Path::new("w.lua"), source.to_owned())
    }

    fn refusal(source: &str) -> String {
        parse(source).err().map(|error| format!("{error:#}")).unwrap()
    }

    #[test]
    fn fields_and_sweeps_are_read() {
        let workload = parse(
            "return { name = 'w', items = 7, value_size = 64, keys = 'ordered', run = function() end,
              sweep = { B = {1, 64}, mode = {'a', 'b'} } }",
        )
        .unwrap();
        assert_eq!(
            (workload.name.as_str(), workload.defaults.items, workload.defaults.value_size),
            ("w", 7, 64)
        );
        assert_eq!(workload.defaults.keys, KeyShape::Ordered);
        assert_eq!(workload.sweep["B"], ["1", "64"]);
        assert_eq!(workload.sweep["mode"], ["a", "b"]);
    }

    #[test]
    fn a_syntax_error_names_file_and_line() {
        let text = refusal("return {\n run = = 1 }");
        assert!(text.contains("w.lua:2"), "{text}");
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        assert!(refusal("return 5").contains("must return a table"));
        assert!(refusal("return { name = 'x' }").contains("`run` must be a function"));
        assert!(
            refusal("return { run = function() end, runs = 1 }").contains("unknown field `runs`")
        );
        assert!(
            refusal("return { run = function() end, items = -1 }")
                .contains("`items` must be a positive integer")
        );
    }
}
