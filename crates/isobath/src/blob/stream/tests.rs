//! The file of a stream: its bytes, reads at any place, and damage.

use super::writer::check_len;
use super::*;
use crate::error::{Error, Result};
use crate::format::StreamAddress;
use crate::limits::MAX_STREAM_LEN;
use crate::table::Codec;
use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

const UUID: [u8; 16] = [7; 16];
const NUMBER: u64 = 5;

/// The bytes of a file with this stream, which is written in pieces of so many bytes.
fn written(value: &[u8], codec: Codec, frame_len: usize, piece: usize) -> (Vec<u8>, StreamAddress) {
    let (fs, path) = (MemoryFs::new(), Path::new("/stream"));
    let file = fs.create(path).unwrap();
    let mut writer = StreamWriter::create(file, (UUID, NUMBER), (codec, frame_len)).unwrap();
    value.chunks(piece).for_each(|piece| writer.write(piece).unwrap());
    let address = writer.finish().unwrap();
    let file = fs.open_read(path, FileAccess::Positional).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).unwrap();
    (bytes, address)
}

fn open(bytes: &[u8], address: &StreamAddress) -> Result<OpenStream> {
    let (fs, path) = (MemoryFs::new(), Path::new("/stream"));
    let mut file = fs.create(path).unwrap();
    file.append(bytes).unwrap();
    file.flush().unwrap();
    OpenStream::open(fs.open_read(path, FileAccess::Positional)?, Arc::default(), address)
}

fn read_all(bytes: &[u8], address: &StreamAddress) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    open(bytes, address)?.read_all(&mut out)?;
    Ok(out)
}

#[test]
fn golden_bytes_of_the_file_of_a_stream() {
    let (bytes, address) = written(b"abcdefg", Codec::None, 4, 3);
    let at = FILE_HEADER_LEN;
    assert_eq!((&bytes[at..at + 5], &bytes[at + 13..at + 17]), (&b"abcd\0"[..], &b"efg\0"[..]));
    let index_at = at + 13 + 12;
    assert_eq!(bytes[index_at..index_at + 3], [4, 2, 13]);
    assert_eq!(bytes[index_at + 3..index_at + 7], bytes[at + 5..at + 9]);
    assert_eq!(bytes[index_at + 7], 12);
    assert_eq!(bytes[index_at + 8..index_at + 12], bytes[at + 17..at + 21]);
    let trailer = &bytes[bytes.len() - 32..];
    assert_eq!(trailer[..24], [153_u64, 21, 7].map(u64::to_le_bytes).concat());
    assert_eq!(trailer[24..], address.checksum.to_le_bytes());
    assert_eq!((address.file, address.value_len, address.file_len), (5, 7, bytes.len() as u64));
    assert_eq!((bytes.len(), checksum64(&bytes)), (206, GOLDEN_SUM));
    assert_eq!(read_all(&bytes, &address).unwrap(), b"abcdefg");
}

/// The checksum of the file above. It must never change.
const GOLDEN_SUM: u64 = 12_004_632_629_949_588_316;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_place_of_a_stream_reads_as_that_of_the_value(
        value in prop::collection::vec(0u8..3, 0..300),
        frame_len in 1usize..40,
        piece in 1usize..90,
        places in prop::collection::vec(0u64..310, 1..30),
        is_packed in any::<bool>(),
    ) {
        let codec = if is_packed { Codec::Lz4 } else { Codec::None };
        let (bytes, address) = written(&value, codec, frame_len, piece);
        let mut stream = open(&bytes, &address).unwrap();
        prop_assert_eq!(stream.len(), value.len() as u64);
        for at in places {
            let read = stream.read_from(at).unwrap();
            let behind = value.get(at as usize..).unwrap_or_default();
            prop_assert!(read.len() <= frame_len && behind.starts_with(read));
            prop_assert_eq!(read.is_empty(), behind.is_empty());
        }
        prop_assert_eq!(read_all(&bytes, &address).unwrap(), value);
    }
}

#[test]
fn every_flipped_bit_and_every_lost_end_is_damage() {
    let value: Vec<u8> = (0..40).map(|nth| nth / 3).collect();
    for codec in [Codec::None, Codec::Lz4] {
        let (bytes, address) = written(&value, codec, 16, 7);
        assert_eq!(read_all(&bytes, &address).unwrap(), value);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = read_all(&bad, &address).unwrap_err();
            assert!(error.is_corruption() || error.name() == "NEWER_FORMAT", "{bit}: {error}");
        }
        for len in 0..bytes.len() {
            let error = read_all(&bytes[..len], &address).unwrap_err();
            assert!(error.is_corruption(), "{len}: {error}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(read_all(&longer, &address).unwrap_err().is_corruption());
    }
}

#[test]
fn a_frame_of_another_stream_or_place_is_damage_of_that_frame_alone() {
    let (first, second) = (vec![1; 40], vec![2; 40]);
    let (bytes, address) = written(&first, Codec::None, 16, 40);
    let (others, other) = written(&second, Codec::None, 16, 40);
    assert_eq!((address.value_len, address.file_len), (other.value_len, other.file_len));
    assert_ne!(address.checksum, other.checksum, "they differ in what they hold alone");
    let error = read_all(&others, &address).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    let frame = |nth: usize| FILE_HEADER_LEN + nth * 25..FILE_HEADER_LEN + (nth + 1) * 25;
    let mut foreign = bytes.clone();
    foreign[frame(1)].copy_from_slice(&others[frame(1)]);
    let mut moved = bytes.clone();
    moved.copy_within(frame(0), frame(1).start);
    for bad in [foreign, moved] {
        let mut stream = open(&bad, &address).unwrap();
        assert_eq!(stream.read_from(3).unwrap(), [1; 13]);
        let error = stream.read_from(16).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("153"), "{error}");
        assert_eq!(stream.read_from(3).unwrap(), [1; 13], "the others are read as before");
        assert_eq!(stream.read_from(33).unwrap(), [1; 7]);
    }
}

#[test]
fn a_forged_index_takes_no_memory_and_makes_no_panic() {
    let index = Index { frame_len: 16, lens: vec![25; 3], checks: vec![9; 3] };
    let (payload, end) = (index.encode(), FILE_HEADER_LEN as u64 + 75);
    assert_eq!(Index::decode(&payload, 40, end).unwrap(), index);
    assert!(Index::decode(&payload, 49, end).is_err(), "three frames have 48 bytes at most");
    assert!(Index::decode(&payload, 40, end + 1).is_err(), "its frames end elsewhere");
    for len in 0..payload.len() {
        assert!(Index::decode(&payload[..len], 40, end).is_err(), "{len}");
    }
    let forged = |frame_len: u64, count: u64| {
        let mut out = Vec::new();
        put_varint(&mut out, frame_len);
        put_varint(&mut out, count);
        Index::decode(&out, u64::MAX, end)
    };
    assert!(forged(1, u64::MAX).unwrap_err().is_damage());
    assert!(forged(0, 0).unwrap_err().is_newer_format());
    assert!(forged(FRAME_LEN_MAX + 1, 0).unwrap_err().is_newer_format());
}

#[test]
fn a_stream_has_a_longest_length() {
    check_len(MAX_STREAM_LEN - 3, 3).unwrap();
    let error = check_len(MAX_STREAM_LEN - 3, 4).unwrap_err();
    assert!(error.to_string().contains(&MAX_STREAM_LEN.to_string()), "{error}");
    assert!(check_len(u64::MAX, usize::MAX).is_err());
}

#[test]
fn a_write_that_fails_is_an_error_of_the_writer() {
    let whole = |fs: &MemoryFs| {
        let file = fs.create(Path::new("/stream"))?;
        let mut writer = StreamWriter::create(file, (UUID, NUMBER), (Codec::None, 1 << 16))?;
        writer.write(&vec![7; 1 << 20])?;
        writer.finish().map(drop)
    };
    whole(&MemoryFs::new()).unwrap();
    for op in [FileOp::Write, FileOp::Sync] {
        let fs = MemoryFs::new();
        fs.inject(Fault::on(op));
        assert!(whole(&fs).is_err_and(|error: Error| error.io_kind().is_some()), "{op:?}");
    }
}
