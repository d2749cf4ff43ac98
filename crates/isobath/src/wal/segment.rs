//! One segment file: its name, its header page, and where an LSN lies in it.
//!
//! ```text
//! wal/{base:016x}.wal     holds the LSNs [base, base + S): S is the file's length less the header page
//! wal/{n:016x}.spare      no longer needed, kept for reuse; n only tells spares apart
//! wal/{base:016x}.new     being made
//!
//! offset 0      the common file header (kind 1, number = base, generation = the term's), zeros after it
//! offset 4096   S bytes: LSN l lies at 4096 + (l - base)
//! ```
//!
//! A file gets the name `.wal` after its header page is durable. Its LSNs are handed out after its
//! directory entry is durable.

use crate::error::{Error, Result};
use crate::format::{FileHeader, FileKind, LSN_END, Lsn};
use crate::vfs::{FileSystem, SegmentFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The length of the header page; data begins here.
pub(crate) const HEADER_PAGE_LEN: u64 = 4096;

/// The least length of a segment's data.
pub(crate) const SEGMENT_LEN_MIN: u64 = 4096;

/// The greatest length of a segment's data. A longer file is not a segment of ours; at most this
/// much of it is read.
pub(crate) const SEGMENT_LEN_MAX: u64 = 64 << 20;

/// What a file in the log's directory is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// Holds records, or is prepared for them.
    Log,
    /// Is kept for reuse.
    Spare,
    /// Is being made, or a crash interrupted that.
    Unfinished,
}

impl SegmentKind {
    const ALL: [SegmentKind; 3] = [SegmentKind::Log, SegmentKind::Spare, SegmentKind::Unfinished];

    fn extension(self) -> &'static str {
        match self {
            SegmentKind::Log => "wal",
            SegmentKind::Spare => "spare",
            SegmentKind::Unfinished => "new",
        }
    }
}

/// A file of the log, as listed in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentInfo {
    pub(crate) path: PathBuf,
    pub(crate) kind: SegmentKind,
    /// The first LSN, as the name says. For a spare: the number in its name, which is not an LSN.
    pub(crate) base: Lsn,
    /// The length of the file.
    pub(crate) file_len: u64,
}

impl SegmentInfo {
    /// The length of the data, or `None` if no segment has a file of this length.
    pub(crate) fn data_len(&self) -> Option<u64> {
        let len = self.file_len.checked_sub(HEADER_PAGE_LEN)?;
        let is_placed =
            self.base.is_multiple_of(len.max(1)) && self.base.checked_add(len).is_some();
        let plausible = (SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&len)
            && len.is_power_of_two()
            && (is_placed || self.kind == SegmentKind::Spare);
        plausible.then_some(len)
    }

    /// The LSN after the last that the segment can hold.
    pub(crate) fn end(&self) -> Lsn {
        let len = self.file_len.saturating_sub(HEADER_PAGE_LEN);
        self.base.saturating_add(len.min(SEGMENT_LEN_MAX))
    }

    /// True if the segment's range contains `lsn`.
    pub(crate) fn holds(&self, lsn: Lsn) -> bool {
        (self.base..self.end()).contains(&lsn)
    }
}

pub(super) fn file_name(base: Lsn, kind: SegmentKind) -> String {
    format!("{base:016x}.{}", kind.extension())
}

fn parse_name(name: &str) -> Option<(Lsn, SegmentKind)> {
    let (base, extension) = name.split_once('.')?;
    let kind = SegmentKind::ALL.into_iter().find(|kind| kind.extension() == extension)?;
    let base = Lsn::from_str_radix(base, 16).ok()?;
    (base < LSN_END && file_name(base, kind) == name).then_some((base, kind))
}

/// Every file of the log in `dir`, by base LSN. Files with other names are left out.
pub(crate) fn inventory(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<SegmentInfo>> {
    let mut found: Vec<SegmentInfo> = fs
        .list(dir)?
        .into_iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| {
            let (base, kind) = parse_name(&entry.name)?;
            Some(SegmentInfo { path: dir.join(&entry.name), kind, base, file_len: entry.len })
        })
        .collect();
    found.sort_by_key(|info| info.base);
    Ok(found)
}

/// Fails unless a segment holds `lsn`, where replay begins according to the manifest.
pub(crate) fn demand_segment(fs: &dyn FileSystem, dir: &Path, lsn: Lsn) -> Result<()> {
    let files = inventory(fs, dir)?;
    if files.iter().any(|info| info.kind == SegmentKind::Log && info.holds(lsn)) {
        return Ok(());
    }
    let base = base_of_missing(&files, lsn);
    let path = base.map_or(dir.to_owned(), |base| dir.join(file_name(base, SegmentKind::Log)));
    let what = if files.iter().any(|info| info.path == path) { "cut short" } else { "missing" };
    let detail = format!(
        "the log segment is {what}: replay of the log begins in it, at LSN {lsn:#x}, and commits from there on are lost \
         without it"
    );
    Err(Error::corruption(&path, 0, detail))
}

/// The base of the missing segment that held `lsn`, as far as the segments beside it tell. A term's
/// segments follow each other without a gap, each as long as the one before it or twice as long.
fn base_of_missing(files: &[SegmentInfo], lsn: Lsn) -> Option<Lsn> {
    let mut segments = files.iter().filter(|info| info.kind == SegmentKind::Log);
    let before = segments.clone().rfind(|info| info.base <= lsn);
    // A file with a length that no segment has is the missing segment, cut short.
    if let Some(remnant) = before.filter(|info| info.data_len().is_none()) {
        return Some(remnant.base);
    }
    let after =
        segments.find_map(|info| Some((info.base, info.data_len()?)).filter(|_| info.base > lsn));
    let Some((end, len)) = after else {
        let follows = before.filter(|info| lsn - info.end() < info.end() - info.base);
        let begins_there = lsn.is_multiple_of(SEGMENT_LEN_MIN).then_some(lsn);
        return follows.map(SegmentInfo::end).or(begins_there);
    };
    let from = before.map_or(0, SegmentInfo::end);
    let fits = |len: u64| {
        let base = end.checked_sub(len).filter(|base| (from..=lsn).contains(base));
        base.filter(|_| len >= SEGMENT_LEN_MIN)
    };
    match (fits(len), fits(len / 2)) {
        (Some(long), Some(_)) => (long == from).then_some(long),
        (long, short) => long.or(short),
    }
}

/// The header page of the segment at `base`.
pub(super) fn header_page(uuid: [u8; 16], base: Lsn, generation: u16) -> Vec<u8> {
    let header =
        FileHeader { generation: generation.into(), ..FileHeader::new(FileKind::Log, uuid, base) };
    let mut page = header.encode().to_vec();
    page.resize(HEADER_PAGE_LEN as usize, 0);
    page
}

/// A segment that is open for writing.
pub(super) struct Segment {
    pub(super) base: Lsn,
    pub(super) end: Lsn,
    pub(super) file: Arc<dyn SegmentFile>,
}

impl Segment {
    /// Where `lsn` lies in the file.
    pub(super) fn offset(&self, lsn: Lsn) -> u64 {
        debug_assert!(self.base <= lsn && lsn <= self.end, "{lsn:#x} is in another segment");
        HEADER_PAGE_LEN + (lsn - self.base)
    }

    /// Syncs the part of `[from, to)` that lies in the segment.
    pub(super) fn sync_range(&self, from: Lsn, to: Lsn) -> Result<()> {
        let (from, to) = (from.max(self.base), to.min(self.end));
        self.file.sync_range(self.offset(from), to - from)
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({:#x}..{:#x})", self.base, self.end)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_the_header_page_hold() {
        let page = header_page([7; 16], 0x40_0000, 3);
        assert_eq!(page.len(), 4096);
        assert_eq!(&page[..16], b"ISOBATH\0\x01\x01\x01\x00\x80\x00\x00\x00");
        assert_eq!(&page[32..48], &[7; 16]);
        assert_eq!(&page[48..64], b"\0\0\x40\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        assert!(page[128..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn names_come_back_and_others_are_left_alone() {
        for kind in SegmentKind::ALL {
            assert_eq!(parse_name(&file_name(0xabc000, kind)), Some((0xabc000, kind)));
        }
        for name in [
            "LOCK",
            "1.wal",
            "0000000000ABC000.wal",
            "0000000000abc000.wal.bak",
            "x.new",
            "fffffffffffff000.wal",
            "ffffffffffffffff.spare",
        ] {
            assert_eq!(parse_name(name), None, "{name}");
        }
        for (base, is_one) in [(LSN_END - 0x1000, true), (LSN_END, false)] {
            let name = file_name(base, SegmentKind::ALL[0]);
            assert_eq!(parse_name(&name).is_some(), is_one, "{name}");
        }
    }

    #[test]
    fn a_file_of_another_length_is_no_segment() {
        let info = |base, file_len| SegmentInfo {
            path: PathBuf::new(),
            kind: SegmentKind::Log,
            base,
            file_len,
        };
        for len in [SEGMENT_LEN_MIN, 0x10000, SEGMENT_LEN_MAX] {
            assert_eq!(info(len, 4096 + len).data_len(), Some(len));
            assert_eq!(info(len, 4096 + len).end(), 2 * len);
        }
        let others = [(0x10000, 0x10000), (0x8000, 0x11000), (0, 4096), (0, 0), (0, 4095)];
        for (base, file_len) in others.into_iter().chain([
            (0, 4096 + SEGMENT_LEN_MIN / 2),
            (0, 4096 + 2 * SEGMENT_LEN_MAX),
            (0, u64::MAX),
        ]) {
            assert_eq!(info(base, file_len).data_len(), None, "{file_len:#x}");
        }
        assert_eq!(info(0, 0x11000).data_len(), Some(0x10000), "the first place of all");
        let last = 0u64.wrapping_sub(0x10000);
        assert_eq!(info(last, 0x11000).data_len(), None, "it would end above all LSNs");
        let spare = SegmentInfo { kind: SegmentKind::Spare, ..info(7, 0x11000) };
        assert_eq!(spare.data_len(), Some(0x10000), "its number is no place");
    }

    #[test]
    fn where_a_missing_segment_began_is_told_only_where_its_neighbours_leave_one_answer() {
        const U: u64 = SEGMENT_LEN_MIN;
        let file =
            |kind, base, file_len| SegmentInfo { path: PathBuf::new(), kind, base, file_len };
        let log = |base: u64, len: u64| file(SegmentKind::Log, base * U, HEADER_PAGE_LEN + len * U);
        let cut = |base: u64| file(SegmentKind::Log, base * U, 5);
        let spare = |base: u64| file(SegmentKind::Spare, base * U, HEADER_PAGE_LEN + U);
        for (files, lsn, expected) in [
            (vec![], 2 * U, Some(2 * U)),
            (vec![], 2 * U + 8, None),
            // After the last segment: at most as long as that one, or else it begins at the LSN
            // itself.
            (vec![log(4, 4)], 8 * U, Some(8 * U)),
            (vec![log(4, 4)], 12 * U - 8, Some(8 * U)),
            (vec![log(4, 4)], 12 * U, Some(12 * U)),
            (vec![log(4, 4)], 12 * U + 8, None),
            // Before the first segment: as long as that one, or half.
            (vec![log(8, 4)], 3 * U, None),
            (vec![log(8, 4)], 4 * U, Some(4 * U)),
            (vec![log(8, 4)], 6 * U - 8, Some(4 * U)),
            (vec![log(8, 4)], 6 * U, None),
            (vec![log(8, 1)], 7 * U, Some(7 * U)),
            (vec![log(8, 1)], 7 * U - 8, None),
            (vec![log(4, 4)], 3 * U, Some(0)),
            // Between two segments.
            (vec![log(2, 2), log(8, 4)], 7 * U, Some(4 * U)),
            (vec![log(4, 2), log(8, 4)], 7 * U, Some(6 * U)),
            (vec![log(2, 1), log(8, 4)], 7 * U, None),
            (vec![log(2, 1), log(8, 4)], 5 * U, Some(4 * U)),
            (vec![log(2, 2), log(8, 4), log(12, 4)], 7 * U, Some(4 * U)),
            // A segment that was cut short still has its name, and says nothing about others.
            (vec![cut(4)], 4 * U, Some(4 * U)),
            (vec![cut(4), log(8, 1)], 4 * U, Some(4 * U)),
            (vec![log(2, 2), cut(4), log(8, 4)], 7 * U, Some(4 * U)),
            (vec![cut(6), log(8, 4)], 5 * U, Some(4 * U)),
            (vec![spare(3)], 4 * U + 8, None),
            (vec![spare(3), spare(5)], 4 * U, Some(4 * U)),
        ] {
            assert_eq!(base_of_missing(&files, lsn), expected, "{lsn:#x} by {files:?}");
        }
    }

    #[test]
    fn a_segment_holds_the_lsns_from_its_base_on() {
        let info = SegmentInfo {
            path: PathBuf::new(),
            kind: SegmentKind::Log,
            base: 8192,
            file_len: HEADER_PAGE_LEN + 8192,
        };
        let held = [8191, 8192, 16383, 16384].map(|lsn| info.holds(lsn));
        assert_eq!(held, [false, true, true, false]);
    }
}
