//! Edits as bytes and as sentences.

use super::super::fixtures;
use super::*;
use crate::table::{OldestDelete, StreamShare};
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
        Change::Term(Term { term: 2, ended_at: 10, resumes_at: 20, seed: 0 }),
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
        Change::CloneFamily {
            family: 301,
            source: 300,
            name: "n".to_owned(),
            options: b"{}".to_vec(),
            lsn: 4096,
        },
        Change::AddShared {
            family: 301,
            level: 6,
            meta: fixtures::meta(300, 77, "a", "b\0", (5, 500)),
        },
        Change::Lineage { family: 301, root: 300 },
        Change::Term(Term { term: 3, ended_at: 30, resumes_at: 40, seed: u64::MAX }),
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
        "180bad02ac02016e027b7d8020",
        "1916ad0206ac024d80014064c8010a01016102620005f403",
        "9a04ad02ac02",
        "1c0d031e28ffffffffffffffffff01",
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

#[test]
fn a_version_that_does_not_know_clones_refuses_them_and_may_forget_their_lineage() {
    let of = |tag: u8| {
        let known = one_of_each().changes;
        let bytes: Vec<_> =
            known.into_iter().map(|change| Edit::new(vec![change]).encode()).collect();
        bytes.into_iter().any(|bytes| bytes[0] == tag)
    };
    assert!(of(24) && of(25) && of(LINEAGE));
    assert_eq!([24, 25, LINEAGE].map(|tag| tag & MAY_SKIP != 0), [false, false, true]);
    let own = fixtures::meta(300, 77, "a", "b", (5, 500));
    assert!(matches!(Change::add_slice(300, 1, own.clone()), Change::AddSlice { .. }));
    assert!(matches!(Change::add_slice(301, 1, own), Change::AddShared { family: 301, .. }));
}

proptest! {
    #[test]
    fn hostile_bytes_give_an_edit_or_an_error(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        tag in 1u8..26,
    ) {
        let _ = Edit::decode(&bytes);
        // A plausible frame, so that the decoders of the bodies are reached.
        let mut framed = vec![tag];
        bytes.truncate(127);
        put_bytes(&mut framed, &bytes);
        let _ = Edit::decode(&framed);
    }
}

#[test]
fn the_oldest_delete_of_a_slice_is_a_field_that_a_reader_may_skip() {
    let plain = fixtures::meta(300, 77, "a", "b\0", (5, 500));
    let oldest_delete = Some(OldestDelete { seq: 300, flushed_ms: 1_800_000_000_000 });
    let meta = SliceMeta { oldest_delete, ..plain.clone() };
    let add = |meta| Edit::new(vec![Change::AddSlice { level: 6, meta }]);
    let bytes = add(meta.clone()).encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (body, field) = ("06ac024d80014064c8010a01016102620005f403", "4008ac0280a0f1c2b134");
    assert_eq!(hex, format!("141e{body}{field}"));
    assert_eq!(Edit::decode(&bytes).unwrap(), add(meta.clone()));
    // An older version knows no field 64, as this one knows none of 65.
    let mut unknown = bytes.clone();
    unknown[22] += 1;
    assert_eq!(Edit::decode(&unknown).unwrap(), add(plain));
    let line = add(meta).changes[0].to_string();
    assert!(line.ends_with(", the oldest delete 300 of 1800000000000 ms"), "{line}");
}

#[test]
fn the_streams_of_a_slice_are_a_field_that_older_versions_refuse() {
    let streams = [StreamShare { file: 70, len: 300 }].into();
    let meta = SliceMeta { streams, ..fixtures::meta(300, 77, "a", "b\0", (5, 500)) };
    let add = |meta| Edit::new(vec![Change::AddSlice { level: 6, meta }]);
    let bytes = add(meta.clone()).encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "141906ac024d80014064c8010a01016102620005f403040346ac02");
    assert_eq!(Edit::decode(&bytes).unwrap(), add(meta.clone()));
    // This one knows no field 5.
    let mut unknown = bytes.clone();
    unknown[22] += 1;
    assert!(Edit::decode(&unknown).unwrap_err().is_newer_format());
    let line = add(meta).changes[0].to_string();
    assert!(line.ends_with(", a stream in file 70 (300 bytes)"), "{line}");
}
