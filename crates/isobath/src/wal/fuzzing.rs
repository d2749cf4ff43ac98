//! What a fuzzer may feed to the log: payloads of records, and whole segments of patched records.
//! See `fuzzing/mod.rs`.

use super::record::{RECORD_HEADER_LEN, record_len, seal, stamp};
use super::scan::{Tail, dump, scan};
use super::segment::{HEADER_PAGE_LEN, SegmentKind, file_name, header_page};
use crate::error::{Decoded, ErrorKind};
use crate::format::{
    Decision, Decoder, LockedKey, LockedRange, Lsn, Op, OpKind, Payload, Prepare, decode_payload,
    put_bytes, put_payload,
};
use crate::limits::MAX_KEY_LEN;
use crate::vfs::{FileSystem, MemoryFs};
use std::path::Path;

/// The decoders here, for a test of their error messages.
#[cfg(test)]
pub(crate) const DECODERS: [crate::error::NamedDecoder; 1] =
    [("payload", |bytes| decode_payload(bytes).err())];

/// Feeds the bytes as a record's payload: a payload that decodes is the same after it is encoded
/// and decoded again.
pub(crate) fn payload(data: &[u8]) {
    let Ok(payload) = decode_payload(data) else { return };
    if let Payload::Batch(ops) = &payload {
        assert!(ops.iter().all(|op| op.key.len() <= MAX_KEY_LEN), "a key that no write may have");
    }
    let mut again = Vec::new();
    put_payload(&mut again, &payload);
    // A delete with a value cannot be encoded; decoding never makes one.
    assert_eq!(decode_payload(&again).expect("a payload just made"), payload);
}

const DIR: &str = "/wal";
const UUID: [u8; 16] = [5; 16];
const DATA_LEN: u64 = 8192;
const BASE: Lsn = 4 * DATA_LEN;
const GENERATION: u16 = 3;

/// Two segments of records with these payloads, then patched. The scan must visit a prefix of what
/// was written, at least up to what was known to be durable, or refuse the log.
///
/// The bytes: the number of records; their payloads, each with its length; how many of the first
/// records the third and later ones name as durable; then patches, each a place (two bytes) and the
/// new byte there.
pub(crate) fn log(data: &[u8]) {
    let mut decoder = Decoder::new(data);
    let Ok(written) = write(&mut decoder) else { return };
    let mut bytes = written.bytes.clone();
    let mut is_patched = false;
    while let (Ok(low), Ok(high), Ok(byte)) = (decoder.u8(), decoder.u8(), decoder.u8()) {
        let place = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
        is_patched |= bytes[place] != byte;
        bytes[place] = byte;
    }
    let fs = segments_of(&bytes);
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut visit = |_: Lsn, payload: &[u8]| {
        found.push(payload.to_vec());
        Ok(())
    };
    let scanned = scan(&fs, Path::new(DIR), UUID, BASE, 0, &mut visit, &mut |_, _| ());
    match scanned {
        Ok(end) => {
            assert!(found.len() <= written.payloads.len(), "records that were never written");
            assert_eq!(found, written.payloads[..found.len()], "other records than were written");
            assert!(end.end >= known_durable(&written, &bytes), "what was known durable is gone");
            assert!(is_patched || found.len() == written.payloads.len(), "records are missing");
            assert!(is_patched || end.tail == Tail::Clean);
        }
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Corruption { .. } | ErrorKind::NewerFormat { .. }
            ) =>
        {
            assert!(is_patched, "a sound log is refused");
        }
        Err(other) => panic!("{other}"),
    }
    let _ = dump(&fs, Path::new(DIR), 0, &mut |_| Ok(()));
}

struct Written {
    payloads: Vec<Vec<u8>>,
    /// Where each record begins and ends, and the durable LSN it names.
    records: Vec<(Lsn, Lsn, Lsn)>,
    /// The data of both segments.
    bytes: Vec<u8>,
}

/// The greatest durable LSN that an unpatched record names.
fn known_durable(written: &Written, bytes: &[u8]) -> Lsn {
    let is_whole = |&&(start, end, _): &&(Lsn, Lsn, Lsn)| {
        let range = (start - BASE) as usize..(end - BASE) as usize;
        bytes[range.clone()] == written.bytes[range]
    };
    let named = written.records.iter().filter(is_whole).map(|(_, _, durable)| *durable);
    named.max().unwrap_or(BASE)
}

/// The log before it is patched.
fn write(decoder: &mut Decoder<'_>) -> Decoded<Written> {
    let count = decoder.u8()? % 8;
    let mut written = Written {
        payloads: Vec::new(),
        records: Vec::new(),
        bytes: vec![0; 2 * DATA_LEN as usize],
    };
    let mut lsn = BASE;
    for _ in 0..count {
        let payload = decoder.bytes()?;
        let end = lsn + record_len(payload.len() as u64);
        if end > BASE + 2 * DATA_LEN {
            break;
        }
        written.records.push((lsn, end, BASE));
        written.payloads.push(payload.to_vec());
        lsn = end;
    }
    let named = usize::from(decoder.u8().unwrap_or(0));
    for nth in 0..written.records.len() {
        let (start, end, _) = written.records[nth];
        let durable = if nth < 2 { BASE } else { written.records[named.min(nth)].0 };
        written.records[nth].2 = durable;
        let mut record = vec![0; RECORD_HEADER_LEN];
        record.extend_from_slice(&written.payloads[nth]);
        let mut record = seal(&mut record);
        stamp(record.bytes_mut(), start, GENERATION, durable);
        written.bytes[(start - BASE) as usize..(end - BASE) as usize].copy_from_slice(&record);
    }
    Ok(written)
}

fn segments_of(bytes: &[u8]) -> MemoryFs {
    let fs = MemoryFs::new();
    fs.create_dir_all(Path::new(DIR)).expect("memory");
    for (nth, data) in bytes.chunks(DATA_LEN as usize).enumerate() {
        let base = BASE + nth as u64 * DATA_LEN;
        let path = Path::new(DIR).join(file_name(base, SegmentKind::Log));
        let mut file = fs.create(&path).expect("memory");
        let page = header_page(UUID, base, GENERATION);
        assert_eq!(page.len() as u64, HEADER_PAGE_LEN);
        file.append(&page).and_then(|()| file.append(data)).expect("memory");
        file.flush().expect("memory");
    }
    fs
}

/// Inputs to start from.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let ops = vec![
        Op { kind: OpKind::Put, family: 0, key: b"key", value: b"value" },
        Op { kind: OpKind::Delete, family: 300, key: b"gone", value: b"" },
    ];
    let prepare = Prepare {
        xid: b"xid",
        isolation: 4,
        ops: ops.clone(),
        keys: vec![LockedKey { family: 0, is_exclusive: true, key: b"locked" }],
        ranges: vec![LockedRange { family: 7, is_exclusive: false, lower: b"a", upper: None }],
    };
    let decision = Decision { is_commit: true, xid: b"xid", prepared: BASE };
    let payloads = [
        Payload::Batch(ops),
        Payload::Prepare(prepare),
        Payload::Decide(decision),
        Payload::EpochMarker,
        Payload::FamilyCreate { id: 7, name: "users", options: b"{\"block_size\":512}" },
        Payload::FamilyDrop { id: 7 },
        Payload::FamilyRename { id: 7, name: "people" },
    ];
    let payloads = payloads.iter().map(|payload| {
        let mut bytes = Vec::new();
        put_payload(&mut bytes, payload);
        bytes
    });
    if target == "payload" {
        // The shortest operation, with its family encoded in more bytes than needed. A decoder that
        // assumed too great a least length of an operation accepted these bytes, and refused them
        // once encoded again.
        let keyless = b"\x01\x01\0\0\0\0\x80\0\0".to_vec();
        let (mut too_long, key) = (Vec::new(), [b'k'; MAX_KEY_LEN + 1]);
        let delete = Op { kind: OpKind::Delete, family: 0, key: &key, value: b"" };
        put_payload(&mut too_long, &Payload::Batch(vec![delete]));
        return payloads.chain([keyless, too_long]).collect();
    }
    let mut sound = vec![5];
    payloads.for_each(|payload| put_bytes(&mut sound, &payload));
    sound.push(3);
    let patched = [&sound[..], &[40, 0, 9], &[90, 0, 1]].concat();
    let mut long = vec![7];
    (1..8).for_each(|nth| put_bytes(&mut long, &vec![nth; 2000]));
    vec![sound, patched, long]
}
