//! The counterparts on Windows of the system calls in [`super::calls`], where Windows has one.
//! Hints are ignored, nothing is mapped, and the kind of a directory's file system is unknown.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;

#[link(name = "kernel32")]
unsafe extern "system" {
    fn GetDiskFreeSpaceExW(
        directory: *const u16,
        available_bytes: *mut u64,
        total_bytes: *mut u64,
        free_bytes: *mut u64,
    ) -> i32;
}

/// How many bytes this user can still write on the volume of `dir`.
pub(super) fn free_space(dir: &Path) -> io::Result<u64> {
    let path: Vec<u16> = dir.as_os_str().encode_wide().chain([0]).collect();
    let (mut available, mut total) = (0, 0);
    let free = std::ptr::null_mut();
    // SAFETY: `path` ends in a zero, both have room for a number, and the last one may be null.
    let is_told = unsafe {
        GetDiskFreeSpaceExW(path.as_ptr(), &raw mut available, &raw mut total, free) != 0
    };
    match (is_told, total) {
        (false, _) => Err(io::Error::last_os_error()),
        // Some volumes cannot tell.
        (true, 0) => Ok(u64::MAX),
        (true, _) => Ok(available),
    }
}

/// `None`: Windows tells a program no limit.
pub(super) fn open_files_max() -> Option<u64> {
    None
}

pub(super) fn file_system_number(_dir: &Path) -> io::Result<Option<u64>> {
    Ok(None)
}

/// Renames; fails if the new name exists.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    super::rename_checked(from, to)
}

/// False: room cannot be reserved ahead of time.
pub(super) fn reserve_room(_file: &File, _len: u64) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn will_need(_file: &File, _offset: u64, _len: u64) {}

pub(super) fn random_access(_file: &File) {}

pub(super) fn start_write_back(_file: &File, _offset: u64, _len: u64) {}

/// The flag of `CreateFileW` that allows opening a directory.
const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;

/// Opens a directory to sync it, which needs write access.
pub(super) fn open_dir(dir: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(dir)
}

/// True if a failed sync of a directory says that the file system has none:
/// `ERROR_INVALID_FUNCTION`, `ERROR_ACCESS_DENIED`, `ERROR_NOT_SUPPORTED`.
pub(super) fn knows_no_dir_sync(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(1 | 5 | 50))
}

/// Does nothing: no file is mapped here, so no byte needs room of its own.
pub(super) fn unshare(_file: &File, _len: u64) -> io::Result<()> {
    Ok(())
}
