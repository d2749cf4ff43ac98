//! Edits as bytes and as sentences.

use super::super::fixtures;
use super::*;
use proptest::prelude::*;

fn one_of_each() -> Edit {
    Edit::new(vec![
        Change::Database { uuid: [0xab; 16] },
        Change::CreateFamily {
            family: 300,
            name: "über".to_owned(),
            options: b"{}".to_vec(),
            lsn: 4096,
        },
        Change::DropFamily { family: 1, lsn: 2 },
        Change::RenameFamily { family: 1, name: "n".to_owned(), lsn: 3 },
        Change::SetFamilyOptions { family: 1, options: b"[]".to_vec() },
        Change::AddSlice { level: 6, meta: fixtures::meta(300, 77, "a", "b\0", (5, 500)) },
        Change::RemoveSlice { family: 300, level: 5, file: 76 },
        Change::ReplayFrom { lsn: 1 << 40 },
        Change::LsnCeiling { lsn: 1 << 41 },
        Change::NextFile { number: 78 },
        Change::NextFamily { family: 301 },
        Change::Term(Term { term: 2, ended_at: 10, resumes_at: 20 }),
        Change::DurableLsn { lsn: 9 },
        Change::CleanClose { end: 11 },
        Change::FamiliesChanged { lsn: 12 },
        Change::OldestReadable { lsn: 1 << 33 },
        Change::Moments {
            moments: vec![
                Moment { unix_ms: 1_700_000_000_123, point: 1 << 33 },
                Moment { unix_ms: 1_700_000_001_124, point: (1 << 33) + 64 },
            ],
        },
        Change::History { span_ms: 86_400_000 },
        Change::AddPrepared { lsn: 4096, xid: b"id\0".to_vec(), file: 79, len: 300 },
        Change::RemovePrepared { lsn: 4096 },
        Change::Ticks {
            ticks: vec![
                Tick { lsn: 1 << 33, unix_ms: 1_700_000_000_123 },
                Tick { lsn: (1 << 33) + 48, unix_ms: 1_700_000_000_125 },
            ],
        },
    ])
}

#[test]
fn golden_bytes_hold() {
    let golden = [
        "0110abababababababababababababababab",
        "020dac0205c3bc626572027b7d8020",
        "03020102",
        "040401016e03",
        "050401025b5d",
        "061406ac024d80014064c8010a01016102620005f403",
        "0704ac02054c",
        "0806808080808020",
        "0906808080808040",
        "0a014e",
        "0b02ad02",
        "0c03020a14",
        "0d0109",
        "0e010b",
        "0f010c",
        "10058080808020",
        "1116fbd095ffbc318080808020e4d895ffbc31c080808020",
        "120480b89929",
        "15098020036964004fac02",
        "16028020",
        "170d8080808020fbd095ffbc313002",
    ];
    assert_eq!(golden.len(), one_of_each().changes.len());
    for (change, golden) in one_of_each().changes.into_iter().zip(golden) {
        let bytes = Edit::new(vec![change.clone()]).encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden, "{change}");
    }
    let bytes = one_of_each().encode();
    assert_eq!(Edit::decode(&bytes).unwrap(), one_of_each());
}

#[test]
fn an_edit_cut_short_is_an_error_or_fewer_changes() {
    let bytes = one_of_each().encode();
    for len in 0..bytes.len() {
        if let Ok(edit) = Edit::decode(&bytes[..len]) {
            assert!(edit.changes.len() < one_of_each().changes.len());
            assert_eq!(edit.encode(), bytes[..len]);
        }
    }
}

#[test]
fn an_unknown_change_is_skipped_only_if_it_says_so() {
    let mut bytes = Edit::new(vec![Change::NextFile { number: 1 }]).encode();
    bytes.extend_from_slice(&[0x80 | 99, 3, 1, 2, 3]);
    let expected = Edit::new(vec![Change::NextFile { number: 1 }]);
    assert_eq!(Edit::decode(&bytes).unwrap(), expected);
    bytes.extend_from_slice(&[99, 0]);
    assert!(Edit::decode(&bytes).unwrap_err().is_newer_format());
}

#[test]
fn bytes_behind_a_known_body_are_an_error() {
    assert!(Edit::decode(&[10, 2, 1, 1]).unwrap_err().is_damage());
}

#[test]
fn levels_names_and_families_out_of_range_are_errors() {
    let level = [7, 3, 0, LEVELS_MAX as u8, 1];
    let family = [11, 5, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let name = [4, 4, 0, 1, 0xff, 0];
    for bytes in [&level[..], &family, &name] {
        assert!(Edit::decode(bytes).unwrap_err().is_damage(), "{bytes:?}");
    }
}

#[test]
fn changes_read_as_sentences() {
    let lines: Vec<_> = one_of_each().changes.iter().map(Change::to_string).collect();
    assert_eq!(lines[0], "database abababababababababababababababab");
    assert_eq!(lines[1], "create family 300 \"über\" at 4096 with {}");
    assert_eq!(
        lines[5],
        "add file 77 to level 6 of family 300: \"a\"..=\"b\\x00\", sequences 5..=500, \
         10 entries (1 deletes), 100 bytes on disk at 128+64"
    );
}

proptest! {
    #[test]
    fn hostile_bytes_give_an_edit_or_an_error(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        tag in 1u8..24,
    ) {
        let _ = Edit::decode(&bytes);
        // A plausible frame, so that the decoders of the bodies are reached.
        let mut framed = vec![tag];
        bytes.truncate(127);
        put_bytes(&mut framed, &bytes);
        let _ = Edit::decode(&framed);
    }
}
