//! Tails, holes and damage: what recovery does with bytes that are not what was written.

use super::support::*;
use crate::error::ErrorKind;
use crate::format::Lsn;
use crate::wal::*;

/// A log of `count` records of 100 bytes, synced after each of `synced`. Returns their starts and
/// ends.
fn written(home: &Home, count: u64, synced: &[u64]) -> Vec<(Lsn, Lsn)> {
    let log = home.start();
    let ranges = (0..count).map(|n| {
        let range = put(&log, &payload(n, 100)).unwrap();
        if synced.contains(&n) {
            log.sync_to(range.1).unwrap();
        }
        range
    });
    ranges.collect()
}

#[test]
fn a_tail_torn_at_any_byte_ends_the_log_before_its_record() {
    for byte in [0x00, 0xff, 0x5a] {
        let home = Home::new();
        let ranges = written(&home, 6, &[2]);
        let (start, end) = ranges[5];
        for cut in (start..end).rev() {
            home.fill(cut, end, byte);
            let (found, scanned) = home.scan().unwrap();
            let padding = (start + 132..end).contains(&cut);
            let kept = if padding { 6 } else { 5 };
            assert_eq!(found, (0..kept).map(|n| payload(n, 100)).collect::<Vec<_>>());
            let lsn_cut = (cut - start).saturating_sub(12).min(8) as usize;
            let is_lsn_whole = start.to_le_bytes()[lsn_cut..].iter().all(|of_lsn| *of_lsn == byte);
            let tail = match cut - start {
                132.. => Tail::Clean,
                32.. => Tail::Torn { len: end - start },
                _ if is_lsn_whole => Tail::Torn { len: RECORD_HEADER_LEN as u64 },
                _ => Tail::Clean,
            };
            assert_eq!(scanned.tail, tail, "cut at {cut:#x}");
        }
    }
}

#[test]
fn whole_records_behind_a_hole_are_given_up_and_reported() {
    let home = Home::new();
    let ranges = written(&home, 40, &[2]);
    home.edit(ranges[10].0 + 50, |byte| byte ^ 1);
    let (found, scanned) = home.scan().unwrap();
    assert_eq!(found.len(), 10);
    assert_eq!(scanned.end, ranges[10].0);
    let bytes = ranges[39].1 - ranges[11].0;
    assert_eq!(scanned.tail, Tail::Hole { records: 29, bytes, last_end: ranges[39].1 });
}

/// Of a record that is longer than what is read at once, its bytes alone are read.
#[test]
fn what_lies_behind_a_damaged_record_is_found_whatever_its_length() {
    for len in [(1 << 20) - 40, (1 << 20) - 31, (1 << 20) + 1, (1 << 20) + 3, (1 << 20) + 8] {
        let home = Home::new();
        let (segment_len, start) = (1 << 22, 1 << 22);
        let long = LogOptions { segment_len, first_segment_len: segment_len, ..home.options() };
        let log = Log::start(&home.env, long, start, CEILING, 1).unwrap();
        let lens = [100, len, 100, 100];
        let ranges = lens.map(|len| put(&log, &payload(7, len)).unwrap());
        log.close().unwrap();
        drop(log);
        let path = home.path().join(format!("{start:016x}.wal"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[(HEADER_PAGE_LEN + ranges[1].0 - start) as usize + 500] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let mut seen = Vec::new();
        let mut visit = |dumped: &Dumped<'_>| {
            seen.push((dumped.header.lsn, dumped.payload.is_some()));
            Ok(())
        };
        dump(&*home.env.fs, &home.path(), start, &mut visit).unwrap();
        let expected: Vec<_> = (0..4).map(|nth| (ranges[nth].0, nth != 1)).collect();
        assert_eq!(seen, expected, "{len}");
    }
}

#[test]
fn records_longer_than_what_is_read_at_once_come_back_and_are_counted_behind_a_hole() {
    let home = Home::new();
    let (len, start) = (1 << 19, 1 << 20);
    let long = LogOptions { segment_len: len, first_segment_len: len, ..home.options() };
    let log = Log::start(&home.env, long, start, CEILING, 1).unwrap();
    let lens = [10, 700_000, 2_500_000, 0, 600_000, 1 << 20, (1 << 20) - 32, 5, (1 << 20) + 1];
    let lens_by_n = lens.iter().enumerate();
    let payloads: Vec<_> = lens_by_n.map(|(n, len)| payload(n as u64, *len)).collect();
    let ranges: Vec<_> = payloads.iter().map(|payload| put(&log, payload).unwrap()).collect();
    log.close().unwrap();
    drop(log);
    let end = ranges[8].1;
    let (found, scanned) = home.scan_from(start, 0).unwrap();
    assert!(found == payloads);
    assert_eq!((scanned.end, scanned.tail), (end, Tail::Clean));
    for n in [1, 2, 5, 8] {
        let place = ranges[n].0 + (RECORD_HEADER_LEN + lens[n] / 2) as u64;
        let path = home.path().join(format!("{:016x}.wal", place / len * len));
        let mut bytes = std::fs::read(&path).unwrap();
        let at = (HEADER_PAGE_LEN + place % len) as usize;
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let (found, scanned) = home.scan_from(start, 0).unwrap();
        assert!(found == payloads[..n]);
        let tail = match n {
            8 => Tail::Torn { len: end - ranges[8].0 },
            _ => Tail::Hole { records: 8 - n as u64, bytes: end - ranges[n].1, last_end: end },
        };
        assert_eq!((scanned.end, scanned.tail), (ranges[n].0, tail));
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
    }
}

#[test]
fn rot_below_a_durable_lsn_is_corruption_with_its_place() {
    let home = Home::new();
    let ranges = written(&home, 80, &[60]);
    for damaged in [0, 30, 60] {
        let at = ranges[damaged].0 + 40;
        home.edit(at, |byte| byte ^ 0x10);
        let error = home.scan().unwrap_err();
        let (path, offset) = home.place(ranges[damaged].0);
        match error.kind() {
            ErrorKind::Corruption { path: named, offset: at, .. } => {
                assert_eq!((named, *at), (&path, offset as u64));
            }
            other => panic!("{other}"),
        }
        home.edit(at, |byte| byte ^ 0x10);
    }
    home.edit(ranges[61].0 + 40, |byte| byte ^ 0x10);
    assert_eq!(home.scan().unwrap().0.len(), 61, "above the durable LSN it is a tail");
}

#[test]
fn rot_below_what_the_manifest_knows_durable_is_corruption() {
    let home = Home::new();
    let ranges = written(&home, 10, &[9]);
    home.edit(ranges[9].0 + 40, |byte| byte ^ 0x10);
    assert_eq!(home.scan().unwrap().0.len(), 9, "no later record names it");
    assert!(home.scan_from(START, ranges[9].1).unwrap_err().is_corruption());
    assert_eq!(home.scan_from(START, ranges[9].0).unwrap().0.len(), 9);
}

#[test]
fn a_missing_segment_in_front_of_a_record_is_corruption() {
    let home = Home::new();
    written(&home, 100, &[]);
    for base in [START + SEGMENT_LEN, START] {
        let (path, _) = home.place(base);
        std::fs::remove_file(&path).unwrap();
        match home.scan().unwrap_err().kind() {
            ErrorKind::Corruption { path: named, offset: 0, detail } => {
                assert_eq!(*named, path);
                assert!(detail.contains("missing"), "{detail}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_missing_segment_at_the_end_is_corruption_if_it_was_durable() {
    let home = Home::new();
    let ranges = written(&home, 100, &[99]);
    let mut bases = home.names(".wal");
    while bases.len() > 1 {
        std::fs::remove_file(home.path().join(bases.pop().unwrap())).unwrap();
    }
    assert!(home.scan_from(START, ranges[99].1).unwrap_err().is_corruption());
}

#[test]
fn a_missing_segment_that_a_record_goes_on_in_is_corruption_though_nothing_was_synced() {
    let home = Home::new();
    let ranges = written(&home, 100, &[]);
    let (last, _) = home.place(ranges[99].0);
    let base = ranges[99].0 / SEGMENT_LEN * SEGMENT_LEN;
    assert!(ranges.iter().any(|(start, end)| *start + 32 <= base && base < *end));
    for name in home.names(".wal") {
        if home.path().join(&name) >= last {
            std::fs::remove_file(home.path().join(name)).unwrap();
        }
    }
    let error = home.scan().unwrap_err().to_string();
    assert!(error.contains(last.to_str().unwrap()) && error.contains("is missing"), "{error}");
}

/// Where a look at the log ends if `meddle` runs while it visits the first record: that of a reader
/// beside the writer, or of a recovery.
fn look_beside(home: &Home, is_reader: bool, meddle: &dyn Fn()) -> crate::error::Result<Lsn> {
    let (fs, path) = (&*home.env.fs, home.path());
    let mut is_first = true;
    let visit = &mut |_: Lsn, _: &[u8]| {
        if std::mem::take(&mut is_first) {
            meddle();
        }
        Ok(())
    };
    let ended = match is_reader {
        true => {
            let place = (fs, &*path, UUID);
            follow(&mut Looked::default(), place, (START, 0), visit, &mut |_, _| ())
        }
        false => scan(fs, &path, UUID, START, 0, visit, &mut |_, _| ()),
    };
    Ok(ended?.end)
}

#[test]
fn a_segment_that_is_found_by_the_second_look_only_is_no_damage_to_a_reader_alone() {
    let home = Home::new();
    let ranges = written(&home, 100, &[]);
    let base = ranges[99].0 / SEGMENT_LEN * SEGMENT_LEN;
    let across = ranges.iter().find(|(start, end)| *start + 32 <= base && base < *end).unwrap();
    let (last, _) = home.place(ranges[99].0);
    let aside = home.path().join("aside");
    let take = || std::fs::rename(&last, &aside).unwrap();
    let give = || std::fs::rename(&aside, &last).unwrap();
    take();
    look_beside(&home, true, &|| ()).unwrap_err();
    assert_eq!(look_beside(&home, true, &give).unwrap(), across.0);
    take();
    assert!(look_beside(&home, false, &give).unwrap_err().is_corruption());
    assert_eq!(look_beside(&home, false, &|| ()).unwrap(), ranges[99].1);
}

/// Whether its bytes had been written when the first look came there, or were read wrong.
#[test]
fn a_record_that_the_second_look_finds_ends_no_log_that_is_recovered() {
    for synced in [&[60][..], &[]] {
        let home = Home::new();
        let ranges = written(&home, 100, synced);
        // In what a reader reads at first.
        let flip = || home.edit(ranges[20].0 + 50, |byte| byte ^ 1);
        flip();
        assert_eq!(look_beside(&home, true, &|| ()).is_err(), !synced.is_empty());
        assert_eq!(look_beside(&home, true, &flip).unwrap(), ranges[20].0);
        flip();
        assert!(look_beside(&home, false, &flip).unwrap_err().is_corruption());
        assert_eq!(look_beside(&home, false, &|| ()).unwrap(), ranges[99].1);
    }
}

#[test]
fn a_damaged_header_page_in_front_of_records_is_corruption_of_its_file() {
    for base in [START, START + SEGMENT_LEN] {
        let home = Home::new();
        let ranges = written(&home, 100, &[]);
        let (path, _) = home.place(base);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[9] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        for error in [home.scan(), home.scan_from(START, ranges[99].1)].map(Result::unwrap_err) {
            match error.kind() {
                ErrorKind::Corruption { path: named, offset: 0, .. } => assert_eq!(named, &path),
                other => panic!("{other}"),
            }
        }
    }
}

/// Segments are prepared before they are written, so a power cut may leave such a page torn.
#[test]
fn a_damaged_header_page_behind_the_last_record_ends_the_log_there() {
    let home = Home::new();
    let end = written(&home, 100, &[])[99].1;
    let base = end.next_multiple_of(SEGMENT_LEN);
    let mut bytes = crate::wal::segment::header_page(UUID, base, 1);
    bytes[9] ^= 0x40;
    bytes.resize((4096 + SEGMENT_LEN) as usize, 0);
    std::fs::write(home.path().join(format!("{base:016x}.wal")), bytes).unwrap();
    let (payloads, scanned) = home.scan_from(START, end).unwrap();
    assert_eq!((payloads.len(), scanned.end, scanned.tail), (100, end, Tail::Clean));
}

#[test]
fn the_segment_where_replay_begins_is_demanded_by_its_name() {
    let home = Home::new();
    written(&home, 100, &[]);
    let demand = |lsn| demand_segment(&*home.env.fs, &home.path(), lsn);
    demand(START).unwrap();
    demand(START + SEGMENT_LEN + 8).unwrap();
    let (path, _) = home.place(START + SEGMENT_LEN);
    for what in ["cut short", "missing"] {
        match what {
            "missing" => std::fs::remove_file(&path).unwrap(),
            _ => std::fs::write(&path, b"short").unwrap(),
        }
        let error = demand(START + SEGMENT_LEN + 8).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(what), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_missing_segment_is_named_where_those_beside_it_tell_and_no_other_ever_is() {
    let home = Home::new();
    let start = 16 * SEGMENT_LEN;
    let lens = LogOptions { segment_len: start, first_segment_len: SEGMENT_LEN, ..home.options() };
    let log = Log::start(&home.env, lens, start, CEILING, 1).unwrap();
    while log.tail() < start + 5 * start / 2 {
        put(&log, &payload(1, 1000)).unwrap();
    }
    drop(log);
    let fs = &*home.env.fs;
    let mut segments = inventory(fs, &home.path()).unwrap();
    segments.retain(|info| info.kind == SegmentKind::Log);
    assert!(segments.len() > 6, "{segments:?}");
    // First with all earlier segments in place, then with all of them retired.
    for at in 0..segments.len() {
        for retired in [0, at] {
            let (dir, missing) = (tempfile::tempdir().unwrap(), &segments[at]);
            for info in segments[retired..].iter().filter(|info| *info != missing) {
                std::fs::copy(&info.path, dir.path().join(info.path.file_name().unwrap())).unwrap();
            }
            let path = dir.path().join(missing.path.file_name().unwrap());
            for lsn in [missing.base, missing.base + 4000, missing.end() - 8] {
                let error = demand_segment(fs, dir.path(), lsn).unwrap_err();
                let ErrorKind::Corruption { path: named, .. } = error.kind() else {
                    panic!("{error}")
                };
                let is_last = at + 1 == segments.len();
                let is_told = *named == path;
                assert!(is_told || *named == dir.path(), "{error}, but it is {path:?}");
                let certain = retired < at || (at == 0 && lsn < missing.base + SEGMENT_LEN);
                assert!(is_told || !certain || is_last, "{error}, but it is {path:?}");
            }
        }
    }
}

#[test]
fn a_segment_that_was_cut_is_named_though_it_is_the_only_one() {
    let home = Home::new();
    written(&home, 10, &[]);
    let (path, _) = home.place(START);
    for name in home.names(".wal").iter().skip(1) {
        std::fs::remove_file(home.path().join(name)).unwrap();
    }
    std::fs::write(&path, b"short").unwrap();
    let error = demand_segment(&*home.env.fs, &home.path(), START + 8).unwrap_err();
    let words = [path.to_str().unwrap(), "cut short"];
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
}

#[test]
fn a_foreign_or_newer_segment_is_refused() {
    let home = Home::new();
    written(&home, 10, &[]);
    let (path, _) = home.place(START);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..4096].copy_from_slice(&header([8; 16], 1));
    std::fs::write(&path, &bytes).unwrap();
    assert!(home.scan().unwrap_err().to_string().contains("another database"));
    bytes[..4096].copy_from_slice(&header(UUID, 9));
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(home.scan().unwrap_err().kind(), ErrorKind::NewerFormat { .. }));
}

fn header(uuid: [u8; 16], version: u8) -> Vec<u8> {
    let mut page = crate::wal::segment::header_page(uuid, START, 1);
    page[10] = version;
    let sum = crate::format::checksum64(&page[..120]);
    page[120..128].copy_from_slice(&sum.to_le_bytes());
    page
}

#[test]
fn a_record_of_another_generation_ends_the_log() {
    let home = Home::new();
    written(&home, 3, &[]);
    let log = Log::start(&home.env, home.options(), 0x10_0000, CEILING, 7).unwrap();
    put(&log, b"seven").unwrap();
    drop(log);
    // Give the segment of this record another generation.
    let path = home.path().join(format!("{:016x}.wal", 0x10_0000));
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(home.scan_from(0x10_0000, 0).unwrap().0, [b"seven"]);
    bytes[..4096].copy_from_slice(&crate::wal::segment::header_page(UUID, 0x10_0000, 8));
    std::fs::write(&path, &bytes).unwrap();
    let tail = Tail::Torn { len: RECORD_HEADER_LEN as u64 };
    let empty = ScanEnd { end: 0x10_0000, records: 0, tail };
    assert_eq!(home.scan_from(0x10_0000, 0).unwrap().1, empty);
}

/// Flips one bit in each of many bytes of a small log. The scan finds everything, or fails with a
/// typed error, or reports an end at or above what was known durable. It never finds a wrong
/// record.
#[test]
fn every_flipped_bit_is_harmless_or_noticed() {
    let home = Home::new();
    let ranges = written(&home, 12, &[5]);
    let durable = ranges[5].1;
    let good: Vec<_> = (0..12).map(|n| payload(n, 100)).collect();
    let (path, first) = home.place(START);
    let original = std::fs::read(&path).unwrap();
    let used = first + (ranges[11].1 - START) as usize;
    let places = (0..128).chain((first..used).step_by(3));
    for (turn, place) in places.enumerate() {
        let mut bytes = original.clone();
        bytes[place] ^= 1 << (turn % 8);
        std::fs::write(&path, &bytes).unwrap();
        match home.scan() {
            Ok((found, scanned)) => {
                assert_eq!(found, good[..found.len()], "byte {place}");
                assert!(scanned.end >= durable, "byte {place} lost what was durable");
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Corruption { .. } | ErrorKind::NewerFormat { .. }
                ) => {}
            Err(other) => panic!("byte {place}: {other}"),
        }
    }
}

/// No other record tells of the last one. Even so, one flipped bit in its header does not make the
/// record look as if it had never been written.
#[test]
fn a_flipped_bit_in_the_last_header_is_a_torn_tail_not_a_clean_end() {
    let home = Home::new();
    let (start, _) = written(&home, 3, &[])[2];
    for bit in 0..8 * RECORD_HEADER_LEN as u64 {
        home.edit(start + bit / 8, |byte| byte ^ 1 << (bit % 8));
        let (found, scanned) = home.scan().unwrap();
        assert_eq!((found.len(), scanned.end), (2, start), "bit {bit}");
        assert!(matches!(scanned.tail, Tail::Torn { .. }), "bit {bit}: {:?}", scanned.tail);
        home.edit(start + bit / 8, |byte| byte ^ 1 << (bit % 8));
    }
}

/// Behind this one the segments have no byte.
#[test]
fn a_flipped_bit_in_a_header_at_the_end_of_the_segments_is_a_torn_tail_too() {
    let home = Home::new();
    let log = home.start();
    let (_, end) = put(&log, b"record").unwrap();
    let last = START + SEGMENT_LEN - RECORD_HEADER_LEN as u64;
    for len in [last - end, RECORD_HEADER_LEN as u64] {
        drop(log.reserve(len).unwrap());
    }
    drop(log);
    for name in home.names(".wal").into_iter().skip(1) {
        std::fs::remove_file(home.path().join(name)).unwrap();
    }
    assert_eq!(home.scan().unwrap().1.end, START + SEGMENT_LEN);
    for bit in 0..8 * RECORD_HEADER_LEN as u64 {
        home.edit(last + bit / 8, |byte| byte ^ 1 << (bit % 8));
        let (_, scanned) = home.scan().unwrap();
        assert_eq!(scanned.end, last, "bit {bit}");
        assert!(matches!(scanned.tail, Tail::Torn { .. }), "bit {bit}: {:?}", scanned.tail);
        home.edit(last + bit / 8, |byte| byte ^ 1 << (bit % 8));
    }
}

/// The header of a record of `len` bytes at `lsn`.
fn forged_header(len: u64, lsn: Lsn) -> [u8; RECORD_HEADER_LEN] {
    let mut header = [0; RECORD_HEADER_LEN];
    let payload_len = len - RECORD_HEADER_LEN as u64;
    header[6..12].copy_from_slice(&payload_len.to_le_bytes()[..6]);
    crate::wal::record::stamp(&mut header, lsn, 1, lsn);
    header
}

/// A value may look like headers that tell of more durable bytes, at the places where it lies.
#[test]
fn headers_within_a_torn_record_tell_nothing_of_the_log() {
    let home = Home::new();
    let log = home.start();
    let (_, at) = put(&log, b"first").unwrap();
    let forged = |at: Lsn| {
        let places = (at + RECORD_HEADER_LEN as u64..).step_by(RECORD_HEADER_LEN);
        let headers = places.map(|place| forged_header(RECORD_HEADER_LEN as u64, place));
        headers.take(8).flatten().collect::<Vec<_>>()
    };
    let (start, end) = put(&log, &forged(at)).unwrap();
    let (next, end_of_next) = put(&log, &forged(end)).unwrap();
    assert_eq!((start, next), (at, end));
    drop(log);
    for torn_too in [false, true] {
        home.fill(end - 8, end, 0x5a);
        if torn_too {
            home.fill(end_of_next - 8, end_of_next, 0x5a);
        }
        let (found, scanned) = home.scan().unwrap();
        assert_eq!((found.len(), scanned.end), (1, start));
        let bytes = end_of_next - next;
        let tail = match torn_too {
            false => Tail::Hole { records: 1, bytes, last_end: end_of_next },
            true => Tail::Torn { len: end - start },
        };
        assert_eq!(scanned.tail, tail);
    }
}

/// A segment file that is only a hole of the file system, and one with a record header before the
/// hole that names a record of that length. Reading that record would take as much memory. An open
/// must not even search the file for records.
#[test]
fn a_segment_longer_than_any_is_refused_by_its_name_and_not_read() {
    for has_record in [true, false] {
        let home = Home::new();
        let (base, hole) = (1 << 38, 3 << 30);
        let log = Log::start(&home.env, home.options(), base, 2 * base, 1).unwrap();
        put(&log, b"first").unwrap();
        drop(log);
        let path = home.path().join(format!("{base:016x}.wal"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[4096..].fill(0);
        if has_record {
            bytes[4096..4096 + RECORD_HEADER_LEN].copy_from_slice(&forged_header(hole, base));
        }
        for name in home.names(".wal") {
            std::fs::remove_file(home.path().join(name)).unwrap();
        }
        std::fs::write(&path, bytes).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096 + hole).unwrap();
        let error = home.scan_from(base, 0).unwrap_err();
        let words = [path.to_str().unwrap(), "no log segment has"];
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
        let mut seen = 0;
        let mut count = |_: &Dumped<'_>| {
            seen += 1;
            Ok(())
        };
        dump(&*home.env.fs, &home.path(), 0, &mut count).unwrap();
        assert_eq!(seen, u64::from(has_record), "what tools see of it is short");
    }
}

#[test]
fn a_record_longer_than_any_is_refused_by_its_place_and_not_read() {
    let home = Home::new();
    std::fs::create_dir(home.path()).unwrap();
    let count = 10 << 30 >> SEGMENT_LEN_MAX.ilog2();
    for nth in 1..=count {
        let base = nth * SEGMENT_LEN_MAX;
        let mut bytes = crate::wal::segment::header_page(UUID, base, 1);
        if nth == 1 {
            bytes.extend(forged_header(count * SEGMENT_LEN_MAX, base));
        }
        let path = home.path().join(format!("{base:016x}.wal"));
        std::fs::write(&path, bytes).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(HEADER_PAGE_LEN + SEGMENT_LEN_MAX).unwrap();
    }
    match home.scan_from(SEGMENT_LEN_MAX, 0).unwrap_err().kind() {
        ErrorKind::Corruption { path, offset: 4096, detail } => {
            assert_eq!(*path, home.path().join(format!("{SEGMENT_LEN_MAX:016x}.wal")));
            assert!(detail.contains(&(10_u64 << 30).to_string()), "{detail}");
        }
        other => panic!("{other}"),
    }
}

/// A segment file has its full length before it has its name, so no crash leaves a shorter one.
#[test]
fn a_segment_that_was_cut_is_corruption_wherever_it_ends() {
    for base in [START, START + SEGMENT_LEN] {
        let home = Home::new();
        written(&home, 50, &[]);
        let (path, _) = home.place(base);
        let whole = std::fs::read(&path).unwrap();
        for len in (0..whole.len()).rev().step_by(131) {
            std::fs::write(&path, &whole[..len]).unwrap();
            let error = home.scan().unwrap_err();
            assert!(error.is_corruption(), "cut to {len}: {error}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "cut to {len}: {error}");
        }
    }
}
