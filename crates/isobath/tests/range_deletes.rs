//! Range deletes among slices that a compaction leaves where they are.

use isobath::{Db, Options, Result};

fn keys(db: &Db) -> Result<Vec<isobath::Key>> {
    db.iter().keys().collect()
}

/// Runs at both ends of the keys, and slices between them that no run reaches: these stay in their
/// level while the runs go into it. What the runs delete beyond them must not end up in the table
/// that ends before them.
#[test]
fn an_output_does_not_reach_across_slices_that_stay() -> Result<()> {
    for has_first in [true, false] {
        let db = Options::in_memory().open("/db")?;
        db.put("m", "stays")?;
        db.compact()?;
        // Older than the range deletes, so they have to be kept.
        let before = db.snapshot();
        for n in 0..8 {
            match n % 2 {
                0 if has_first => drop(db.put(format!("a{n}"), "new")?),
                0 => drop(db.delete_range("c".."d")?),
                _ => {
                    db.put(format!("z{n}"), "new")?;
                    db.delete_range("n".."y")?;
                }
            }
            db.flush()?;
        }
        db.wait_for_compactions(None)?;
        db.put("after", "all is well")?;
        let firsts = if has_first { 4 } else { 0 };
        assert_eq!(keys(&db)?.len(), firsts + 1 + 1 + 4, "{:?}", keys(&db)?);
        assert_eq!(before.iter().count(), 1);
        drop(before);
        db.compact()?;
        assert_eq!(keys(&db)?.len(), firsts + 1 + 1 + 4);
        db.close()?;
    }
    Ok(())
}
