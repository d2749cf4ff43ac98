//! Files of a `SortedFileWriter`: what of a file an ingest refuses.

use super::*;
use crate::SortedFileWriter;
use crate::cursor::Entry;
use crate::error::Result;
use crate::format::{DEFAULT_FAMILY, OpKind};
use crate::mvcc::Expiring;
use crate::span::{Span, fragments};
use crate::table::{TableOptions, TableWriter};

const PATH: &str = "/sorted";

fn env(fs: &MemoryFs) -> Env {
    Env { fs: Arc::new(fs.clone()), ..Env::system() }
}

/// Its deletes of ranges were not carried out, its operands reached a family without a merge
/// operator, and no tick was due for the ends of its values.
#[test]
fn a_sorted_file_with_what_no_writer_of_such_files_writes_is_refused() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.put("kept", "value").unwrap();
    let mut ending = Vec::new();
    Expiring { expires_ms: 7, value: b"value" }.put(&mut ending);
    let span = || Span { start: (*b"k").into(), end: Some((*b"l").into()), seq: 1 };
    let forge = |path: &Path, entry: Option<(OpKind, &[u8])>, has_span: bool| -> Result<()> {
        let mut writer = TableWriter::create(fs.create(path)?, [0; 16], 0)?;
        writer.begin_slice(DEFAULT_FAMILY, &TableOptions::default())?;
        // What is wrong comes behind many that are right.
        for n in 0..500 {
            let (key, value) = (&*key(n), &*vec![7; 300]);
            writer.add(Entry { key, seq: 1, kind: OpKind::Put, value })?;
        }
        if let Some((kind, value)) = entry {
            writer.add(Entry { key: b"a", seq: 1, kind, value })?;
        }
        if has_span {
            writer.set_spans(fragments(vec![span()]));
        }
        writer.finish().map(drop)
    };
    let mut ingest = db.ingest().unwrap();
    for (name, entry, has_span) in [
        ("/span", None, true),
        ("/merge", Some((OpKind::Merge, &b"1"[..])), false),
        ("/ending", Some((OpKind::PutExpiring, &*ending)), false),
    ] {
        forge(Path::new(name), entry, has_span).unwrap();
        let told = ingest.add_file(name).expect_err(name);
        assert_eq!(told.name(), "INVALID_ARGUMENT", "{told}");
        assert!(told.to_string().contains(name), "{told}");
    }
    forge(Path::new("/plain"), Some((OpKind::Delete, b"")), false).unwrap();
    assert_eq!(ingest.add_file("/plain").unwrap(), 501, "nothing was taken of the others");
    ingest.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 501);
}

#[test]
fn an_empty_sorted_file_does_not_bind_an_ingest_to_its_family() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    SortedFileWriter::create_in(PATH, &env(&fs)).unwrap().finish().unwrap();
    let mut ingest = db.ingest().unwrap();
    assert_eq!(ingest.of(&side).add_file(PATH).unwrap(), 0);
    ingest.put("a", "1").unwrap();
    db.drop_family(&side).unwrap();
    ingest.commit().unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), "1");
}
