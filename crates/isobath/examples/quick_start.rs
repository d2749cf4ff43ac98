//! Every basic call once, in the usual order.
//!
//! `cargo run -p isobath --example quick_start [DIRECTORY]`

use isobath::{Batch, MIB, Options, WriteOptions};
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let given = std::env::args_os().nth(1);
    run(given.as_deref().map_or(scratch.path(), Path::new), &mut io::stdout())
}

pub(crate) fn run(dir: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let db = Options::new().block_cache(128 * MIB).open(dir)?;

    // Keys and values are bytes. A missing key is not an error.
    db.put("apple", "red")?;
    db.put("banana", "yellow")?;
    assert_eq!(db.get("apple")?.expect("it was put"), "red");
    db.delete("apple")?;
    assert!(db.get("apple")?.is_none());

    // A family is a table of its own. This opens it, or creates it if it does not exist.
    let stock = db.family("stock")?;
    stock.put("banana", "3")?;

    // A batch is written as a whole. With these options it survives power loss once the call
    // returns.
    let mut batch = Batch::new();
    batch.put("cherry", "black").put("damson", "blue");
    batch.of(&stock).put("cherry", "20").put("damson", "7");
    db.with(WriteOptions::sync()).write(batch)?;

    // A transaction reads and writes, also in several families. If others change what it has read,
    // nothing is written, and it runs again.
    db.transact(|tx| {
        if !tx.contains("elder")? {
            tx.put("elder", "black")?;
            tx.of(&stock).put("elder", "1")?;
        }
        Ok(())
    })?;

    // A snapshot does not change when new data is written.
    let before = db.snapshot();
    stock.delete("cherry")?;
    writeln!(out, "in stock, before and now:")?;
    for item in before.of(&stock).iter() {
        let (fruit, count) = item?;
        let left = stock.contains(&fruit)?;
        let (fruit, count) = (String::from_utf8_lossy(&fruit), String::from_utf8_lossy(&count));
        writeln!(out, "  {fruit}: {count}, {}", if left { "still there" } else { "gone" })?;
    }

    // Ranges can be read in both directions.
    for item in db.range("b".."d").rev() {
        let (fruit, colour) = item?;
        writeln!(out, "{} is {}", fruit.escape_ascii(), colour.escape_ascii())?;
    }

    // Snapshots and families keep the database open. `close` closes it at once and reports errors.
    Ok(db.close()?)
}
