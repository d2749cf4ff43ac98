//! The names and places of the files of a database.

use crate::format::LSN_END;
use crate::table::cache;
use std::path::{Path, PathBuf};

pub(crate) const CURRENT: &str = "CURRENT";
pub(crate) const CURRENT_TMP: &str = "CURRENT.tmp";
pub(crate) const LOCK: &str = "LOCK";
pub(crate) const LOG_DIR: &str = "wal";
pub(crate) const TABLE_DIR: &str = "table";
/// What large transactions have written and not committed. Nothing in it outlives the opening.
pub(crate) const SPILL_DIR: &str = "spill";
/// The directories of a database. They are made before the first sync of the directory above that
/// anything relies on.
pub(super) const DIRS: [&str; 3] = [LOG_DIR, TABLE_DIR, SPILL_DIR];

/// The end of the numbers of files and terms.
pub(super) const NUMBER_END: u64 = LSN_END;

/// A file with this number or a greater one does not raise the next number. No database makes so
/// many files, and the numbers after it might run out.
pub(crate) const COUNTED_END: u64 = NUMBER_END / 2;

const MANIFEST_PREFIX: &str = "MANIFEST-";

pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:06}")
}

/// The number of a manifest, if `name` is exactly the name that [`manifest_name`] makes.
pub(crate) fn manifest_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix(MANIFEST_PREFIX)?.parse().ok()?;
    (number < NUMBER_END && manifest_name(number) == name).then_some(number)
}

/// The number of a table file, if `name` is exactly the name of one.
pub(crate) fn table_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".tbl")?.parse().ok()?;
    (number < NUMBER_END && cache::table_path(Path::new(""), number) == Path::new(name))
        .then_some(number)
}

pub(crate) fn manifest_path(db: &Path, number: u64) -> PathBuf {
    db.join(manifest_name(number))
}

/// The path of a table from the database's directory. Readers use [`cache::table_path`], which
/// starts from the table directory.
pub(crate) fn table_path(db: &Path, number: u64) -> PathBuf {
    cache::table_path(&db.join(TABLE_DIR), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_numbers() {
        for number in [0, 1, 42, 999_999, 1_000_000, NUMBER_END - 1] {
            assert_eq!(manifest_number(&manifest_name(number)), Some(number));
            let table = table_path(Path::new("db"), number);
            let name = table.file_name().and_then(|name| name.to_str()).unwrap();
            assert_eq!(table_number(name), Some(number));
        }
        assert_eq!(manifest_name(7), "MANIFEST-000007");
        assert_eq!(table_path(Path::new("db"), 42), Path::new("db/table/0000000042.tbl"));
    }

    #[test]
    fn names_that_are_not_ours_have_no_number() {
        for name in [
            "",
            "1.tbl",
            "+000000001.tbl",
            "0000000001.tbl.bak",
            "00000000001.tbl",
            "x.tbl",
            "18446744073709551615.tbl",
        ] {
            assert_eq!(table_number(name), None, "{name}");
        }
        let beyond = table_path(Path::new(""), NUMBER_END);
        assert_eq!(table_number(beyond.file_name().and_then(|name| name.to_str()).unwrap()), None);
        assert_eq!(manifest_number(&manifest_name(NUMBER_END)), None);
        for name in ["MANIFEST", "MANIFEST-1", "MANIFEST-000001~", "manifest-000001", "CURRENT"] {
            assert_eq!(manifest_number(name), None, "{name}");
        }
    }
}
