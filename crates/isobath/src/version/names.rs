//! What the files of a database are called, and where they are.

use std::path::{Path, PathBuf};

pub(crate) const CURRENT: &str = "CURRENT";
pub(super) const CURRENT_TMP: &str = "CURRENT.tmp";
pub(crate) const LOCK: &str = "LOCK";
pub(crate) const LOG_DIR: &str = "wal";
pub(crate) const TABLE_DIR: &str = "table";

/// Files are numbered below this, and LSNs and terms too, so that counting on from any cannot wrap.
pub(super) const NUMBER_END: u64 = 1 << 62;

const MANIFEST_PREFIX: &str = "MANIFEST-";
const TABLE_SUFFIX: &str = ".tbl";

pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:06}")
}

pub(crate) fn table_name(number: u64) -> String {
    format!("{number:06}{TABLE_SUFFIX}")
}

/// The number of a manifest, if `name` is exactly what [`manifest_name`] makes of a number.
pub(crate) fn manifest_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix(MANIFEST_PREFIX)?.parse().ok()?;
    (number < NUMBER_END && manifest_name(number) == name).then_some(number)
}

/// The number of a table file, if `name` is exactly what [`table_name`] makes of a number.
pub(crate) fn table_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(TABLE_SUFFIX)?.parse().ok()?;
    (number < NUMBER_END && table_name(number) == name).then_some(number)
}

pub(crate) fn manifest_path(db: &Path, number: u64) -> PathBuf {
    db.join(manifest_name(number))
}

pub(crate) fn table_path(db: &Path, number: u64) -> PathBuf {
    db.join(TABLE_DIR).join(table_name(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_numbers() {
        for number in [0, 1, 42, 999_999, 1_000_000, NUMBER_END - 1] {
            assert_eq!(manifest_number(&manifest_name(number)), Some(number));
            assert_eq!(table_number(&table_name(number)), Some(number));
        }
        assert_eq!(manifest_name(7), "MANIFEST-000007");
        assert_eq!(table_path(Path::new("db"), 42), Path::new("db/table/000042.tbl"));
    }

    #[test]
    fn names_that_are_not_ours_have_no_number() {
        for name in [
            "",
            "1.tbl",
            "+00001.tbl",
            "000001.tbl.bak",
            "0000001.tbl",
            "x.tbl",
            "18446744073709551615.tbl",
        ] {
            assert_eq!(table_number(name), None, "{name}");
        }
        for name in ["MANIFEST", "MANIFEST-1", "MANIFEST-000001~", "manifest-000001", "CURRENT"] {
            assert_eq!(manifest_number(name), None, "{name}");
        }
    }
}
