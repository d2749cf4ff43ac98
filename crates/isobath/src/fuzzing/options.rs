//! Options as text: the possible content of a file of options, or of a stored family.

use crate::options::{FamilyOptions, Options};
use crate::table::Codec;

/// Options of a family in the form in which log and manifest store them.
pub(super) fn family_options(data: &[u8]) {
    let Ok(options) = FamilyOptions::from_stored(data) else { return };
    let again = FamilyOptions::from_stored(&options.to_stored()).expect("options just written");
    assert_eq!(again, options);
    if options.check().is_ok() {
        let written = options.table_options(0, "default", 6);
        assert_eq!(u64::from(written.block_len), options.block_size);
    }
}

/// Options of a database in the form that a file may have.
pub(super) fn options(data: &[u8]) {
    let Ok(options) = serde_json::from_slice::<Options>(data) else { return };
    let text = serde_json::to_string(&options).expect("plain data always serialises");
    let again: Options = serde_json::from_str(&text).expect("options just written");
    assert_eq!(format!("{again:?}"), format!("{options:?}"));
    let _ = options.check();
}

/// Initial inputs for the fuzzer.
pub(super) fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "family_options" => vec![
            FamilyOptions::new().to_stored(),
            FamilyOptions::new().codecs([Codec::Zstd, Codec::Snappy]).to_stored(),
            br#"{"block_size": "4KiB", "level_size_ratio": 4}"#.to_vec(),
        ],
        _ => vec![
            serde_json::to_vec(&Options::new()).expect("plain data always serialises"),
            br#"{"write_buffer": "16MiB", "durability": "sync", "family": {"codecs": ["zstd"]}}"#
                .to_vec(),
            br#"{"sync_interval": {"secs": 1, "nanos": 5}, "io": "positional"}"#.to_vec(),
        ],
    }
}
