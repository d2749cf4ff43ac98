//! System calls of Unix that the standard library does not offer.
//!
//! The calls that only give hints ([`will_need`], [`random_access`], [`start_write_back`]) return
//! nothing: a kernel or file system that does not know a hint may ignore it.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a directory, to sync it.
pub(super) fn open_dir(dir: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(dir)
}

/// True if a failed sync of a directory says that the file system has none.
pub(super) fn knows_no_dir_sync(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// True if the process may use the blocks that a file system keeps for its administrator.
fn has_reserved_blocks() -> bool {
    // SAFETY: it has no argument and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// How many bytes this process can still write on the file system of `dir`.
pub(super) fn free_space(dir: &Path) -> io::Result<u64> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` ends in a zero byte and `stat` has room for the whole structure.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the structure consists of integers only, and the zeros it was created with are valid
    // integers.
    let stat = unsafe { stat.assume_init() };
    // Some file systems cannot tell, such as those of other programs.
    if stat.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    let blocks = if has_reserved_blocks() { stat.f_bfree } else { stat.f_bavail };
    // The widths of these fields differ between systems.
    #[allow(clippy::unnecessary_cast)]
    Ok((blocks as u64).saturating_mul(stat.f_frsize as u64))
}

/// How many files the process may have open.
pub(super) fn open_files_max() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes the structure that it is given, and nothing else.
    let is_told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    // The width differs between systems. "No limit" is a number greater than all others.
    #[allow(clippy::unnecessary_cast)]
    is_told.then_some(limit.rlim_cur as u64)
}

/// The number of the kind of file system that `dir` is on, if the system has such numbers.
pub(super) fn file_system_number(dir: &Path) -> io::Result<Option<u64>> {
    #[cfg(target_os = "linux")]
    {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let mut stat = MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: `path` ends in a zero byte and `stat` has room for the whole structure.
        if unsafe { libc::statfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the structure holds integers only, for which the zeros it was made of are valid
        // too.
        let stat = unsafe { stat.assume_init() };
        // The type's width and sign differ between machines; the numbers have 32 bits.
        #[allow(clippy::unnecessary_cast)]
        Ok(Some(u64::from(stat.f_type as u32)))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = dir;
        Ok(None)
    }
}

/// Makes sure that the first `len` bytes share no blocks with another file, if the file system
/// shares blocks at all.
pub(super) fn unshare(file: &File, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mode = libc::FALLOC_FL_UNSHARE_RANGE;
        // SAFETY: the descriptor is open for as long as `file` is borrowed; the rest are integers.
        while unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, len) } != 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => break,
                _ => return Err(error),
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, len);
    Ok(())
}

/// Renames; fails if the new name exists.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let source = CString::new(from.as_os_str().as_bytes())?;
        let target = CString::new(to.as_os_str().as_bytes())?;
        // SAFETY: both paths end in a zero byte and outlive the call; the rest are integers.
        let renamed = unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                libc::AT_FDCWD,
                source.as_ptr(),
                libc::AT_FDCWD,
                target.as_ptr(),
                libc::RENAME_NOREPLACE,
            )
        };
        if renamed == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // Kernels before 3.15, system call filters, and file systems that do not know the flag.
        if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::EPERM)) {
            return Err(error);
        }
    }
    super::rename_checked(from, to)
}

/// Reserves room for the first `len` bytes and keeps the length, so that a lack of room shows now
/// and the room is contiguous. False if this system cannot do it.
pub(super) fn reserve_room(file: &File, len: u64) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mode = libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open for as long as `file` is borrowed; the rest are integers.
        while unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, len) } != 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(false),
                _ => return Err(error),
            }
        }
        Ok(true)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, len);
        Ok(false)
    }
}

/// Asks the kernel to read `len` bytes from `offset` into the page cache.
pub(super) fn will_need(file: &File, offset: u64, len: u64) {
    #[cfg(target_os = "linux")]
    advise(file, offset, len, libc::POSIX_FADV_WILLNEED);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}

/// Announces random access to the file, so that a read does not bring in neighbouring pages.
pub(super) fn random_access(file: &File) {
    #[cfg(target_os = "linux")]
    advise(file, 0, 0, libc::POSIX_FADV_RANDOM);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

#[cfg(target_os = "linux")]
fn advise(file: &File, offset: u64, len: u64, advice: libc::c_int) {
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the rest are integers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, len, advice) };
}

/// Starts writing the dirty pages of a range to the device, without waiting. This makes nothing
/// durable: neither the device's cache nor the file's metadata is flushed.
pub(super) fn start_write_back(file: &File, offset: u64, len: u64) {
    #[cfg(target_os = "linux")]
    {
        let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
        // SAFETY: the descriptor is open for as long as `file` is borrowed; the rest are integers.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::system::rename_checked;
    use std::fs;

    #[test]
    fn where_the_system_cannot_refuse_a_name_in_use_the_engine_does() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, b"from").unwrap();
        fs::write(&to, b"to").unwrap();
        for rename in [rename_new, rename_checked] {
            let error = rename(&from, &to).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&to).unwrap(), b"to");
            let free = dir.path().join("free");
            rename(&from, &free).unwrap();
            assert_eq!(fs::read(&free).unwrap(), b"from");
            rename(&free, &from).unwrap();
        }
    }
}
