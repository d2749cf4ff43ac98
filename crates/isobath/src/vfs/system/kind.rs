//! Which file systems are known, and on which of them a log may be mapped.
//!
//! Every byte of a segment is allocated and written before the segment's first use. If a later
//! store goes to the same place on the device, it needs no room, so it cannot fail. These are on
//! the list, by the number that `statfs` gives:
//!
//! - ext2, ext3, ext4: blocks are rewritten in place, whatever the journal does.
//! - xfs: the same, unless an extent is shared with a copy (`cp --reflink`, the default of a recent
//!   `cp`). When a segment is opened, it gets extents of its own again. A copy of an open database
//!   shares them until the next write, and until then a full device can end the process. Where that
//!   matters, the options can set the log's mode.
//! - tmpfs: pages that were written once are kept, in memory or swap.
//!
//! All others are not on the list, so their logs are mapped only if the options say so: file
//! systems that write elsewhere (btrfs, zfs, bcachefs, f2fs), those that stand for another of
//! unknown kind (overlay, fuse, 9p), network file systems, and everything that is not known here,
//! including every system but Linux.

use super::FileSystemKind;
use super::calls;
use std::io;
use std::path::Path;

const IN_PLACE: [(u64, &str); 3] =
    [(0xef53, "ext2/ext3/ext4"), (0x5846_5342, "xfs"), (0x0102_1994, "tmpfs")];

const ELSEWHERE: [(u64, &str); 10] = [
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlay"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
];

pub(super) fn of(dir: &Path) -> io::Result<FileSystemKind> {
    let Some(number) = calls::file_system_number(dir)? else {
        return Ok(FileSystemKind { name: "unknown".to_owned(), stores_in_place: false });
    };
    Ok(named(number))
}

fn named(number: u64) -> FileSystemKind {
    let name_in = |list: &[(u64, &str)]| {
        list.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned())
    };
    match name_in(&IN_PLACE) {
        Some(name) => FileSystemKind { name, stores_in_place: true },
        None => {
            let name = name_in(&ELSEWHERE).unwrap_or_else(|| format!("{number:#x}"));
            FileSystemKind { name, stores_in_place: false }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{FileAccess, IoMode};

    #[test]
    fn what_writes_elsewhere_or_is_not_known_stores_nothing_in_place() {
        let kinds = [0xef53, 0x9123_683e, 0x1234].map(named);
        assert_eq!(kinds.each_ref().map(|kind| kind.stores_in_place), [true, false, false]);
        assert_eq!(kinds.map(|kind| kind.name), ["ext2/ext3/ext4", "btrfs", "0x1234"]);
    }

    #[test]
    fn the_readme_says_where_a_log_is_mapped_and_how_tables_are_read() {
        let names = IN_PLACE.map(|(_, name)| name.replace('/', ", "));
        let (last, others) = names.split_last().unwrap();
        let on = format!("mapped on 64-bit Linux on {} and {last}", others.join(", "));
        let row = format!("| `Auto` (default) | {on}; by position elsewhere | by position |");
        assert!(include_str!("../../../README.md").contains(&row), "{row}");
        assert!(IN_PLACE.iter().all(|(number, _)| named(*number).stores_in_place));
        assert!(!ELSEWHERE.iter().any(|(number, _)| named(*number).stores_in_place));
        assert_eq!(IoMode::default().of_tables(), FileAccess::Positional);
    }
}
