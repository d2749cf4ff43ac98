//! The names by which families know what a program brings: merge operators and compaction filters.

use crate::error::{Error, Result};

/// The bytes of the longest name.
const NAME_MAX: usize = 200;

/// Names are stored as JSON, as they are.
pub(super) fn check_name(option: &str, name: &str) -> Result<()> {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
    if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "{option}: a name has 1 to {NAME_MAX} ASCII characters, without quotes, backslashes and \
         control characters; {name:?} is none"
    )))
}
