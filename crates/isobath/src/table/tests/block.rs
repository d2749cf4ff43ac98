//! Tests the bytes of a block, and searches in blocks of every shape.

use crate::format::{Lsn, OpKind};
use crate::table::backward::PassedKeys;
use crate::table::block::{Block, SEQ_MAX};
use crate::table::block_builder::BlockBuilder;
use crate::table::key_buffer::KeyBuffer;
use crate::table::{KEY_LEN_MAX, common_prefix_len};

fn build(interval: u32, versions: &[(&[u8], Lsn, OpKind, &[u8])]) -> Vec<u8> {
    let mut builder = BlockBuilder::new(interval);
    let mut last: &[u8] = b"";
    for &(key, seq, kind, value) in versions {
        builder.add(key, common_prefix_len(last, key), seq, kind, value);
        last = key;
    }
    let foretold = builder.len();
    let bytes = builder.finish(last).to_vec();
    assert_eq!(bytes.len(), foretold);
    bytes
}

#[test]
fn golden_bytes_hold() {
    let bytes = build(
        2,
        &[
            (b"key-a", 5000, OpKind::Put, b"one"),
            (b"key-a", 4990, OpKind::Delete, b""),
            (b"key-bcdefghijk", 4999, OpKind::Put, b"two"),
        ],
    );
    let mut expected = b"\x00\x05\x03key-aone".to_vec();
    expected.extend_from_slice(b"\x05\x00\x00");
    expected.extend_from_slice(b"\x00\x0e\x03key-bcdefghijktwo");
    // Heads after the prefix "key-", restarts, versions of one byte, base, count, prefix, interval,
    // width.
    expected.extend_from_slice(b"a\0\0\0\0\0\0\0bcdefghi");
    expected.extend_from_slice(b"\0\0\0\0\x0e\0\0\0");
    expected.extend_from_slice(b"\xa1\x00\x91");
    expected.extend_from_slice(b"\x7e\x13\0\0\0\0\0\0\x03\0\0\0\x04\0\x02\x01");
    assert_eq!(bytes, expected);
}

#[test]
fn searches_find_what_a_linear_walk_finds() {
    let prefixes: [&[u8]; 3] = [b"", b"common/", b"12345678abcdefgh"];
    for (interval, prefix) in [1, 2, 3, 16].into_iter().flat_map(|i| prefixes.map(|p| (i, p))) {
        let mut keys: Vec<Vec<u8>> = (0..40u32)
            .map(|i| [prefix, &[b'a' + (i % 5) as u8; 9][..i as usize % 10], &[i as u8]].concat())
            .collect();
        keys.sort();
        keys.dedup();
        let versions: Vec<_> = keys
            .iter()
            .enumerate()
            .flat_map(|(i, key)| {
                (0..1 + i as u64 % 7).rev().map(move |v| (key.clone(), 100 + v * 10))
            })
            .collect();
        let entries: Vec<_> =
            versions.iter().map(|(key, seq)| (&key[..], *seq, OpKind::Put, &key[..])).collect();
        let block = Block::parse(build(interval, &entries)).unwrap();
        let probes = keys.iter().flat_map(|key| {
            [key.clone(), [&key[..], b"\0"].concat(), key[..key.len() - 1].to_vec()]
        });
        let outside = [b"".to_vec(), b"z".to_vec(), b"0".to_vec(), b"comzz".to_vec()];
        for probe in probes.chain(outside) {
            for point in [0, 100, 101, 115, 160, Lsn::MAX] {
                let expected = versions
                    .iter()
                    .position(|(key, seq)| *key > probe || (*key == probe && *seq < point));
                let hit = block.search(&probe, point).unwrap();
                assert_eq!(hit.map(|hit| hit.index as usize), expected, "{probe:?} at {point}");
                if let Some(hit) = hit {
                    assert_eq!(hit.is_equal, versions[hit.index as usize].0 == probe);
                    assert_eq!(block.version(hit.index).unwrap().0, versions[hit.index as usize].1);
                }
            }
            let below = keys.iter().rfind(|key| **key < probe);
            let mut found = KeyBuffer::default();
            let before =
                block.search_before(Some(&probe), &mut found, &mut PassedKeys::default()).unwrap();
            let expected = below.map(|key| versions.iter().position(|(k, _)| k == key).unwrap());
            assert_eq!(before.map(|(index, _)| index as usize), expected, "below {probe:?}");
            assert!(below.is_none_or(|key| *key == found.as_slice()));
        }
    }
}

/// Bytes that reached the decoder without a checksum must not cause a panic.
#[test]
fn arbitrary_bytes_never_panic() {
    let keys: Vec<_> = (0..30u32).map(|i| format!("key{i:05}").into_bytes()).collect();
    let entries: Vec<_> =
        keys.iter().map(|key| (&key[..], 100, OpKind::Put, &b"some value"[..])).collect();
    let good = build(4, &entries);
    let mut damaged = Vec::new();
    for at in 0..good.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] = byte;
            damaged.push(bad);
        }
        damaged.push(good[at..].to_vec());
    }
    for bytes in damaged {
        let Ok(block) = Block::parse(bytes) else { continue };
        let mut found = KeyBuffer::default();
        for key in &keys {
            let _ = block.search(key, Lsn::MAX);
            let _ = block.search_before(Some(key), &mut found, &mut PassedKeys::default());
        }
        let _ = block.search_before(None, &mut found, &mut PassedKeys::default());
        let mut at = 0;
        while let Ok(entry) = block.entry_at(at)
            && entry.end > at
        {
            let _ = block.extend_key(entry, &mut found);
            at = entry.end;
        }
    }
}

#[test]
fn a_block_that_unfolds_to_keys_of_impossible_length_is_refused() {
    let key = |n: u8| [vec![b'k'; KEY_LEN_MAX], vec![n]].concat();
    let keys: Vec<_> = (0..9).map(key).collect();
    let entries: Vec<_> = keys.iter().map(|key| (&key[..], 100, OpKind::Put, &b""[..])).collect();
    let block = Block::parse(build(16, &entries)).unwrap();
    let (mut found, mut behind) = (KeyBuffer::default(), PassedKeys::default());
    assert!(block.search_before(None, &mut found, &mut behind).unwrap_err().is_damage());
    let entry = block.entry_at(block.restart(0)).unwrap();
    assert!(block.extend_key(entry, &mut KeyBuffer::default()).unwrap_err().is_damage());
    // A key of the maximum length is valid.
    let longest = [vec![b'k'; KEY_LEN_MAX - 1], vec![0]].concat();
    let block = Block::parse(build(16, &[(&longest, 100, OpKind::Put, b"")])).unwrap();
    assert!(block.search_before(None, &mut found, &mut behind).unwrap().is_some());
}

/// Entries follow the last restart although its interval is full. Walking back would have to keep
/// the key of each of them.
#[test]
fn a_block_with_more_entries_after_a_restart_than_its_interval_is_refused() {
    let keys: Vec<_> = (0..40u8).map(|n| [vec![b'k'; 3000], vec![n]].concat()).collect();
    let entries: Vec<_> = keys.iter().map(|key| (&key[..], 100, OpKind::Put, &b""[..])).collect();
    let (long, short) = (build(255, &entries), build(16, &entries[..16]));
    let entries_of = |bytes: &[u8]| Block::parse(bytes.to_vec()).unwrap().entries_end() as usize;
    let forged = [&long[..entries_of(&long)], &short[entries_of(&short)..]].concat();
    let (mut found, mut behind) = (KeyBuffer::default(), PassedKeys::default());
    for (bytes, count) in [(&long, 40), (&short, 16)] {
        let block = Block::parse(bytes.clone()).unwrap();
        let last = block.search_before(None, &mut found, &mut behind).unwrap();
        assert_eq!(last.map(|(index, _)| index), Some(count - 1));
    }
    let block = Block::parse(forged).unwrap();
    assert!(block.search_before(None, &mut found, &mut behind).unwrap_err().is_damage());
    assert!(block.search_before(Some(b"l"), &mut found, &mut behind).unwrap_err().is_damage());
}

#[test]
fn what_two_keys_have_in_common_is_counted_whatever_their_lengths() {
    for (a_len, b_len) in (0..28).flat_map(|a| (0..28).map(move |b| (a, b))) {
        let a: Vec<u8> = (0..a_len).collect();
        let mut b: Vec<u8> = (0..b_len).collect();
        assert_eq!(common_prefix_len(&a, &b), usize::from(a_len.min(b_len)));
        for at in 0..usize::from(b_len) {
            b[at] ^= 0x80;
            assert_eq!(common_prefix_len(&a, &b), at.min(usize::from(a_len)));
            b[at] ^= 0x80;
        }
    }
}

#[test]
fn a_tail_is_taken_up_to_its_limits_and_no_further() {
    let sound = build(2, &[(b"a", 9, OpKind::Put, b""), (b"b", 9, OpKind::Put, b"")]);
    let tail = sound.len() - 16;
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = sound.clone();
        changed[tail + at..tail + at + bytes.len()].copy_from_slice(bytes);
        Block::parse(changed)
    };
    assert!(with(0, &SEQ_MAX.to_le_bytes()).is_ok());
    assert!(with(0, &(SEQ_MAX + 1).to_le_bytes()).unwrap_err().is_damage());
    assert!(with(8, &[0; 4]).unwrap_err().is_damage());
    assert!(with(8, &[0xff; 4]).unwrap_err().is_damage());
    assert!(with(14, &[0]).unwrap_err().is_damage());
    for width in 0..=255 {
        // Two entries of four bytes, and two heads or one, leave this much room for wider columns.
        let parsed = with(14, &[2, width]);
        assert_eq!(parsed.is_ok(), (1..=3).contains(&width), "{width}");
    }
    for len in 0..sound.len() {
        let parsed = Block::parse(sound[sound.len() - len..].to_vec());
        // The remaining entries must have room for at least one entry, of three bytes.
        assert_eq!(parsed.is_ok(), len + 5 >= sound.len(), "{len} of {}", sound.len());
    }
    let block = Block::parse(sound.clone()).unwrap();
    assert_eq!((block.entry_count(), block.restart_count(), block.interval()), (2, 1, 2));
    assert_eq!(block.entries_end(), 8);
    assert!(block.version(1).is_ok() && block.version(2).unwrap_err().is_damage());
    assert_eq!(block.into_bytes(), sound);
}
