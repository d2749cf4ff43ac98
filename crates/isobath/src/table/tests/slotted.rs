//! Tests the bytes of a slotted block, searches and walks in slotted blocks of every shape beside a
//! list, and blocks of bytes that no builder makes.

use crate::format::{Lsn, OpKind};
use crate::table::backward::PassedKeys;
use crate::table::block::{Block, SEQ_MAX};
use crate::table::block_builder::BlockBuilder;
use crate::table::common_prefix_len;
use crate::table::key_buffer::KeyBuffer;
use crate::table::staging::BlockForm;
use proptest::prelude::*;

type Versions = Vec<(Vec<u8>, Lsn, OpKind, Vec<u8>)>;

/// The bytes of a block, and whether it is slotted.
fn build_as(form: BlockForm, versions: &Versions) -> (Vec<u8>, bool) {
    let mut builder = BlockBuilder::new(1);
    builder.begin_slice(form, 8, usize::MAX);
    let mut last: &[u8] = b"";
    for (key, seq, kind, value) in versions {
        builder.add(key, common_prefix_len(last, key), *seq, *kind, value);
        last = key;
    }
    let foretold = builder.len();
    let bytes = builder.finish(last).to_vec();
    assert!(bytes.len() <= foretold, "{} of {foretold}", bytes.len());
    (bytes, builder.is_slotted())
}

fn build(versions: &Versions) -> Vec<u8> {
    build_as(BlockForm::Slotted, versions).0
}

fn put(
    key: impl Into<Vec<u8>>,
    seq: Lsn,
    value: impl Into<Vec<u8>>,
) -> (Vec<u8>, Lsn, OpKind, Vec<u8>) {
    (key.into(), seq, OpKind::Put, value.into())
}

#[test]
fn golden_bytes_hold() {
    let bytes = build(&vec![
        put("key-a", 5000, "one"),
        ("key-a".into(), 4990, OpKind::Delete, "".into()),
        put("key-bcdefghijk", 4999, "two"),
    ]);
    let mut expected = b"\x01aone\x01a\x0abcdefghijktwo".to_vec();
    // Offsets, prefix, heads, versions of one byte.
    expected.extend_from_slice(b"\0\0\x05\0\x07\0\x15\0");
    expected.extend_from_slice(b"key-\0a\0acb");
    expected.extend_from_slice(b"\xa1\x00\x91");
    // Ten sequences, without a flag; lengths that differ, offsets of two bytes, the form.
    expected.extend_from_slice(b"\xa0\0\0\0\0\0\0\0\xff\xff\x02\x02");
    // Base, count, prefix, no interval, width.
    expected.extend_from_slice(b"\x7e\x13\0\0\0\0\0\0\x03\0\0\0\x04\0\x00\x01");
    assert_eq!(bytes, expected);
    // Keys and values of one length, values alone, each key once.
    let bytes = build(&vec![put("ka", 7, "one"), put("kb", 9, "two")]);
    let mut expected = b"aonebtwo".to_vec();
    expected.extend_from_slice(b"k\0a\0b\x01\x21");
    expected.extend_from_slice(b"\x23\0\0\0\0\0\0\0\x01\0\x00\x02");
    expected.extend_from_slice(b"\x07\0\0\0\0\0\0\0\x02\0\0\0\x01\0\x00\x01");
    assert_eq!(bytes, expected);
}

/// Compares a block with the list that it was made of, in every way that readers use it.
fn check(versions: &Versions, probes: &[Vec<u8>]) {
    let block = Block::parse(build(versions)).unwrap();
    block.check_columns().unwrap();
    assert!(block.is_slotted());
    assert_eq!(block.entry_count() as usize, versions.len());
    let mut key = KeyBuffer::default();
    block.begin_key(&mut key);
    for (at, version) in versions.iter().enumerate() {
        let entry = block.slot(at as u32).unwrap();
        block.extend_key(entry, &mut key).unwrap();
        assert_eq!(key.as_slice(), version.0);
        assert_eq!(block.value(entry), version.3);
        assert_eq!(block.version(at as u32).unwrap(), (version.1, version.2));
        let below = versions[..at].last().is_some_and(|before| before.0 < version.0);
        if let Some((index, before)) = block.slot_below(at as u32, key.as_slice()) {
            let (key, newest) = (&versions[at - 1].0, index as usize);
            assert!(below && newest == at - 1 && newest > 0 && versions[newest - 1].0 < *key);
            assert_eq!(Some(before), block.slot(index));
        } else {
            assert!(!below || at == 1 || versions[at - 2].0 == versions[at - 1].0);
        }
    }
    assert!(block.slot(versions.len() as u32).is_none());
    let seqs = versions.iter().flat_map(|version| [version.1, version.1 + 1]);
    let points: Vec<_> = seqs.take(8).chain([0, Lsn::MAX]).collect();
    let is_whole = |point| versions.iter().all(|it| it.2 == OpKind::Put && it.1 < point);
    assert!(points.iter().all(|point| block.is_seen_whole(*point) == is_whole(*point)));
    for probe in versions.iter().map(|version| &version.0).chain(probes) {
        for &point in &points {
            let is_at_or_after = |it: &(Vec<u8>, Lsn, OpKind, Vec<u8>)| {
                it.0 > *probe || (it.0 == *probe && it.1 < point)
            };
            let expected = versions.iter().position(is_at_or_after);
            let hit = block.search(probe, point).unwrap();
            assert_eq!(hit.map(|hit| hit.index as usize), expected, "{probe:?} at {point}");
            if let Some(hit) = hit {
                assert_eq!(hit.is_equal, versions[hit.index as usize].0 == *probe);
                assert_eq!(Some(hit.entry), block.slot(hit.index));
            }
        }
        let (mut found, mut behind) = (KeyBuffer::default(), PassedKeys::default());
        let before = block.search_before(Some(probe), &mut found, &mut behind).unwrap();
        let below = versions.iter().rfind(|version| version.0 < *probe);
        let expected = below.map(|it| versions.iter().position(|other| other.0 == it.0).unwrap());
        assert_eq!(before.map(|(index, _)| index as usize), expected, "below {probe:?}");
        assert!(below.is_none_or(|it| it.0 == found.as_slice()));
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(255)], 0..6),
        2 => any::<[u8; 16]>().prop_map(Vec::from),
        2 => (0u32..3000).prop_map(|i| format!("user{i:08}").into_bytes()),
        1 => (0u32..3, 0u32..99).prop_map(|(i, j)| format!("{i}{}{j}", "l".repeat(200)).into_bytes()),
    ]
}

fn kind() -> impl Strategy<Value = OpKind> {
    let kinds = [OpKind::Delete, OpKind::Merge, OpKind::PutExpiring, OpKind::PutSeparated];
    prop_oneof![9 => Just(OpKind::Put), 1 => proptest::sample::select(kinds.to_vec())]
}

fn versions() -> impl Strategy<Value = Versions> {
    let seqs = prop_oneof![
        4 => proptest::collection::btree_set(1u64..1 << 20, 1..2),
        1 => proptest::collection::btree_set(1u64..60, 1..40),
        1 => Just([SEQ_MAX].into()),
    ];
    let kinds = prop_oneof![1 => Just(None), 1 => kind().prop_map(Some)];
    let lens = prop_oneof![Just(Some(9usize)), Just(None)];
    let of_key = (seqs, kinds, 0usize..300);
    (lens, proptest::collection::btree_map(key(), of_key, 1..120)).prop_map(|(one_len, keys)| {
        let mut versions = Vec::new();
        for (key, (seqs, kind, len)) in keys {
            for seq in seqs.into_iter().rev() {
                let value = vec![seq as u8; one_len.unwrap_or(len)];
                versions.push((key.clone(), seq, kind.unwrap_or(OpKind::Put), value));
            }
        }
        versions
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_block_is_what_it_was_made_of(
        versions in versions(),
        probes in proptest::collection::vec(key(), 30),
    ) {
        check(&versions, &probes);
        // The same entries in the form that the builder chooses are the same to a search.
        let block = Block::parse(build_as(BlockForm::Either, &versions).0).unwrap();
        block.check_columns().unwrap();
        let slotted = Block::parse(build(&versions)).unwrap();
        for probe in &probes {
            let place = |block: &Block| block.search(probe, 30).unwrap().map(|hit| hit.index);
            assert_eq!(place(&block), place(&slotted));
        }
    }
}

#[test]
fn blocks_of_one_entry_and_of_very_many_are_searched() {
    check(&vec![put("", 1, "")], &[b"".to_vec(), b"a".to_vec()]);
    check(&vec![put("key", 1, "value")], &[b"kex".to_vec(), b"kez".to_vec(), b"keyy".to_vec()]);
    check(&vec![put(vec![b'k'; 65_536], 1, "")], &[vec![b'k'; 65_537], vec![b'k'; 9]]);
    check(&vec![put(vec![b'k'; 65_535], 1, ""), put(vec![b'l'; 65_535], 1, "")], &[]);
    check(&vec![put("k", 1, vec![1; 70_000]), put("l", 1, vec![2; 70_001])], &[]);
    for value_len in [0, 1, 3] {
        // Offsets of no bytes, of two and of four.
        let of =
            |i: u32| put((i / 2).to_be_bytes(), u64::from(100 - i % 2), vec![1; (i % 3) as usize]);
        let same = |i: u32| put(i.to_be_bytes(), 7, vec![1; value_len]);
        let many: Versions = match value_len {
            3 => (0..70_000).map(of).collect(),
            _ => (0..70_000).map(same).collect(),
        };
        let block = Block::parse(build(&many)).unwrap();
        block.check_columns().unwrap();
        for (at, (key, seq, ..)) in
            many.iter().enumerate().step_by(997).chain(many.iter().enumerate().rev().take(3))
        {
            let hit = block.search(key, seq + 1).unwrap().unwrap();
            assert_eq!((hit.index as usize, hit.is_equal), (at, true));
        }
        assert!(block.search(&70_000u32.to_be_bytes(), 0).unwrap().is_none());
    }
}

#[test]
fn a_version_at_the_point_is_not_seen() {
    let versions: Versions = (1..=300).rev().map(|seq| put("key", seq * 2, [seq as u8])).collect();
    let block = Block::parse(build(&versions)).unwrap();
    for seq in 1..=300u64 {
        let at = |point| block.search(b"key", point).unwrap().map(|hit| 300 - u64::from(hit.index));
        assert_eq!(at(seq * 2 + 1), Some(seq));
        assert_eq!(at(seq * 2), (seq > 1).then_some(seq - 1));
    }
}

#[test]
fn the_builder_chains_where_that_is_much_shorter() {
    let form = |key: &dyn Fn(u32) -> Vec<u8>, value: &str| {
        let versions: Versions = (0..60).map(|i| put(key(i), 5, value)).collect();
        build_as(BlockForm::Either, &versions).1
    };
    let value = "v".repeat(100);
    assert!(form(&|i| format!("key{i:08}").into_bytes(), &value));
    let far = |i: u32| format!("{:04}{}{:06}", i / 20, "m".repeat(30), i).into_bytes();
    assert!(!form(&far, ""));
    // Keys of which whole copies would fill the memory.
    assert!(form(&|i| [&[7; 60_000][..], &i.to_be_bytes()].concat(), ""));
    assert!(!form(&|i| [&(i / 20).to_be_bytes()[..], &[7; 60_000], &[i as u8]].concat(), ""));
    assert!(!build_as(BlockForm::Either, &vec![put("one", 5, "entry")]).1);
}

#[test]
fn the_builder_chains_where_little_is_left_after_compression_beside_offsets() {
    let is_slotted = |value_len: &dyn Fn(u64) -> usize, stored_len| {
        let mut builder = BlockBuilder::new(1);
        builder.begin_slice(BlockForm::Either, 8, usize::MAX);
        builder.note_stored(1000, stored_len);
        for i in 0..60u64 {
            let key = (i * 0x0357_9bdf).to_be_bytes();
            builder.add(&key, usize::from(i > 0) * 4, i + 9, OpKind::Put, &vec![7; value_len(i)]);
        }
        builder.finish(&(59u64 * 0x0357_9bdf).to_be_bytes());
        builder.is_slotted()
    };
    let varied = |i| 30 + i as usize % 7;
    assert!(is_slotted(&varied, 1009) && is_slotted(&varied, 900));
    assert!(!is_slotted(&varied, 300) && !is_slotted(&varied, 0));
    assert!(is_slotted(&|_| 33, 300), "without offsets nothing stays that compression leaves");
}

#[test]
fn no_changed_byte_panics() {
    let keys = (0..30u32).map(|i| put(format!("key{:05}", i / 2), u64::from(100 - i % 2), "value"));
    let varied = (0..30u32).map(|i| put(format!("key{i}"), 100, "v".repeat(i as usize)));
    let mut varied: Versions = varied.collect();
    varied.sort_by(|a, b| a.0.cmp(&b.0));
    for versions in [keys.collect(), varied, vec![put("k", 1, vec![1; 70_000]), put("l", 1, "")]] {
        let good = build(&versions);
        let step = if good.len() > 4096 { 1013 } else { 1 };
        let places = (0..good.len()).filter(|at| at % step == 0 || at + 80 > good.len());
        for at in places {
            for byte in [0, 1, 0x7f, 0x80, 0xff, good[at] ^ 1] {
                let mut bad = good.clone();
                bad[at] = byte;
                read_all(bad, &versions);
            }
            read_all(good[at..].to_vec(), &versions);
        }
    }
}

fn read_all(bytes: Vec<u8>, versions: &Versions) {
    let Ok(block) = Block::parse(bytes) else { return };
    let _ = block.check_columns();
    let (mut found, mut behind) = (KeyBuffer::default(), PassedKeys::default());
    for (key, seq, ..) in versions {
        for point in [*seq, seq + 1] {
            let _ = block.search(key, point);
            let _ = block.search_restarts(key, point);
        }
        let _ = block.search_before(Some(key), &mut found, &mut behind);
    }
    let _ = block.search_before(None, &mut found, &mut behind);
    block.begin_key(&mut found);
    for index in 0..block.entry_count().min(100) {
        if let Ok(entry) = block.entry_of(index, 0) {
            let _ = (block.value(entry), block.extend_key(entry, &mut found));
            let _ = (block.changes_key(entry, found.as_slice()), block.version(index));
            let _ = block.slot_below(index, found.as_slice());
        }
    }
}

#[test]
fn a_tail_is_taken_up_to_its_limits_and_no_further() {
    let sound = build(&vec![put("ka", 7, "one"), put("kb", 9, "two")]);
    let from_end = |at: usize, byte: u8| {
        let mut changed = sound.clone();
        let len = changed.len();
        changed[len - at] = byte;
        Block::parse(changed)
    };
    assert!(from_end(17, 3).unwrap_err().is_newer_format(), "another form");
    assert!(from_end(17, 1).unwrap_err().is_damage(), "no form");
    assert!(from_end(28, 0x27).unwrap_err().is_newer_format(), "another flag");
    for offset_len in 0..=255 {
        // The entries could be shorter by three offsets of two bytes.
        let parsed = from_end(18, offset_len);
        assert_eq!(parsed.is_ok(), [0, 2].contains(&offset_len), "{offset_len}");
    }
    for (at, byte) in [(8, 0), (8, 99), (4, 99), (1, 0), (1, 9)] {
        assert!(from_end(at, byte).unwrap_err().is_damage(), "{byte} at {at}");
    }
    // Three entries do not fill eight bytes, less what their columns take.
    assert!(from_end(8, 3).unwrap_err().is_damage());
    for len in 0..sound.len() - 8 {
        assert!(Block::parse(sound[sound.len() - len..].to_vec()).is_err(), "{len}");
    }
}
