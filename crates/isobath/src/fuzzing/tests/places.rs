//! Tests the errors of decoders once the caller adds the place: every message names a file.

use super::{Chance, TARGETS};
use crate::error::NamedDecoder;
use crate::options::FamilyOptions;
use crate::{table, version, wal};
use std::path::Path;

/// Decoders outside the rooms that list their own.
const DECODERS: [NamedDecoder; 1] =
    [("family options", |bytes| FamilyOptions::from_stored(bytes).err())];

#[test]
fn every_decoders_complaint_names_the_file_and_where_the_piece_begins() {
    let seeds: Vec<Vec<u8>> = TARGETS.iter().flat_map(|t| (t.seeds)(t.name)).collect();
    let mut chance = Chance::new(7);
    let parts = [
        &table::fuzzing::DECODERS[..],
        &version::fuzzing::DECODERS,
        &wal::fuzzing::DECODERS,
        &DECODERS,
    ];
    for (name, decode) in parts.concat() {
        let mut complaints = 0;
        for turn in 0..2000 {
            let mut bytes = seeds[turn % seeds.len()].clone();
            chance.mutate(&mut bytes, &seeds);
            let Some(complaint) = decode(&bytes) else { continue };
            let what = complaint.to_string();
            let is_damage = complaint.is_damage();
            let error = complaint.in_file(Path::new("db/table/7.tbl"), 4096);
            let text = error.to_string();
            assert_eq!(error.is_corruption(), is_damage, "{name}: {text}");
            assert!(text.contains("db/table/7.tbl") && text.contains(&what), "{name}: {text}");
            assert!(!is_damage || text.contains("at offset 4096"), "{name}: {text}");
            complaints += 1;
        }
        assert!(complaints > 10, "{name} takes almost everything: {complaints}");
    }
}
