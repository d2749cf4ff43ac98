//! Tests of all file systems, and of the parts that they share.

mod conformance;

use super::*;
use crate::error::ErrorKind;

#[test]
fn what_no_machine_can_address_is_too_large_with_the_name_of_its_file() {
    let path = Path::new("table");
    assert_eq!(len_in_memory(4096, path).unwrap(), 4096);
    for len in [isize::MAX as u64 + 1, u64::MAX] {
        let error = len_in_memory(len, path).unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::Io { path, source, .. } if path.ends_with("table") && source.kind() == io::ErrorKind::FileTooLarge
        ));
    }
}
