//! What a spill file must not have, though its checksums are right.

use super::*;
use crate::vfs::MemoryFs;

/// A file with one put of this kind, read as one that a record of the log names.
fn file_with(kind: OpKind, value: &[u8]) -> Arc<SpillFile> {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFs::new());
    let spills = Spills::to_read(fs, "/db/spill".into(), [7; 16]);
    let operation = Operation { family: 1, kind, key: b"k", value };
    let options = |_| TableOptions::default();
    let file = spills.write(std::iter::once(operation), options, 100).unwrap();
    file.keep();
    spills.open(&file.named()).unwrap()
}

#[test]
fn a_spill_file_that_says_its_values_lie_elsewhere_is_damaged() {
    let address = b"\xac\x02\x80\x01\x46\x88\x27";
    let expiring = [&u64::MAX.to_le_bytes()[..], address].concat();
    let refused = [
        (OpKind::PutSeparated, &address[..]),
        (OpKind::PutExpiringSeparated, &expiring),
        (OpKind::Merge, b"operand"),
    ];
    for (kind, value) in refused {
        let file = file_with(kind, value);
        let error = file.get(1, b"k").map(|found| found.is_some()).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        let text = error.to_string();
        assert!(text.contains("spill") && text.contains(kind.name()), "{text}");
        assert!(file.each(|_| Ok(())).unwrap_err().is_corruption(), "{kind:?}");
        assert!(file.get(1, b"other").unwrap().is_none());
    }
    let file = file_with(OpKind::Put, b"value");
    assert_eq!(&*file.get(1, b"k").unwrap().unwrap().unwrap().1, b"value");
    file.each(|operation| {
        assert_eq!(operation.value, b"value");
        Ok(())
    })
    .unwrap();
}
