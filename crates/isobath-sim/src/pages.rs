//! Generated parts of a page of documentation: what stands between `<!-- name -->` and `<!-- /name
//! -->`.

use std::fs;
use std::io;
use std::path::Path;

/// Replaces what stands between the markers of `name` in `page`.
pub(crate) fn replace(page: &Path, name: &str, text: &str) -> io::Result<()> {
    let before = fs::read_to_string(page)?;
    let after = replaced(&before, name, text).ok_or_else(|| {
        io::Error::other(format!("{} has no <!-- {name} --> and <!-- /{name} -->", page.display()))
    })?;
    fs::write(page, after)
}

fn replaced(page: &str, name: &str, text: &str) -> Option<String> {
    let (head, rest) = page.split_once(&format!("<!-- {name} -->"))?;
    let (_, tail) = rest.split_once(&format!("<!-- /{name} -->"))?;
    Some(format!("{head}<!-- {name} -->\n\n{}\n\n<!-- /{name} -->{tail}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_markers_changes() {
        let page = "before\n<!-- a -->\nold\n<!-- /a -->\nafter <!-- b --><!-- /b -->\n";
        let once = replaced(page, "a", "new\n").unwrap();
        assert_eq!(once, page.replace("\nold\n", "\n\nnew\n\n"));
        assert_eq!(replaced(&once, "a", "new").unwrap(), once);
        assert_eq!(replaced(page, "c", "new"), None);
    }
}
