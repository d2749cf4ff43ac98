//! System calls that the standard library does not offer: mounts, loop devices, and what cuts and
//! disturbs a file system.
//!
//! Each is a thin wrapper: it takes integers and paths and returns the system's error. Numbers that
//! the C library's headers lack stand beside their use, with the name of the kernel's header.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

/// `linux/fs.h`, ext4 and xfs: the file system refuses everything from here on, as if the device
/// were gone.
const FS_IOC_SHUTDOWN: u32 = 0x8004_587d;
/// The log is not flushed first.
const SHUTDOWN_WITHOUT_LOG_FLUSH: u32 = 2;
/// `linux/fs.h`
const FIFREEZE: u32 = 0xc004_5877;
const FITHAW: u32 = 0xc004_5878;
const BLKFLSBUF: u32 = 0x1261;
/// `linux/loop.h`
const LOOP_CTL_GET_FREE: u32 = 0x4c82;
const LOOP_CONFIGURE: u32 = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Gives this process and its children mounts of their own, which the kernel removes when the last
/// of them ends. Call it before the process has other threads.
pub(super) fn own_mounts() -> io::Result<()> {
    // SAFETY: takes an integer.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    // From here on no mount appears in the namespace that this one was copied from.
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE, "")
}

/// Mounts a file system.
pub(super) fn mount(
    device: Option<&Path>,
    at: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    options: &str,
) -> io::Result<()> {
    let device = c_path(device.unwrap_or(Path::new("none")))?;
    let (at, options) = (c_path(at)?, CString::new(options)?);
    let kind = CString::new(kind.unwrap_or("none"))?;
    // SAFETY: all pointers are to strings that end in a zero byte and live until the call returns.
    // The kernel only reads them.
    let answer = unsafe {
        libc::mount(device.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    check(answer).map(drop)
}

/// Unmounts what is mounted at a place.
pub(super) fn unmount(at: &Path) -> io::Result<()> {
    let at = c_path(at)?;
    // SAFETY: a string that ends in a zero byte.
    check(unsafe { libc::umount2(at.as_ptr(), 0) }).map(drop)
}

/// Cuts a file system off its device, without writing what it still holds. The next mount finds
/// what a power cut would have left.
pub(super) fn shut_down(dir: &File) -> io::Result<()> {
    let flags = SHUTDOWN_WITHOUT_LOG_FLUSH;
    // SAFETY: the call reads one integer of 32 bits, which lives until it returns.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), FS_IOC_SHUTDOWN as _, &raw const flags) }).map(drop)
}

/// Writes everything of a file system to its device, and makes further writes wait until [`thaw`].
pub(super) fn freeze(dir: &File) -> io::Result<()> {
    // SAFETY: takes integers.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), FIFREEZE as _, 0) }).map(drop)
}

/// Ends [`freeze`].
pub(super) fn thaw(dir: &File) -> io::Result<()> {
    // SAFETY: takes integers.
    check(unsafe { libc::ioctl(dir.as_raw_fd(), FITHAW as _, 0) }).map(drop)
}

/// Makes the kernel forget its cache of a block device that is not mounted, as a power cut does.
pub(super) fn forget_buffers(device: &File) -> io::Result<()> {
    // SAFETY: takes integers.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF as _, 0) }).map(drop)
}

/// Writes the dirty pages of a range to the device and waits until they are there. Metadata stays
/// as it is.
pub(super) fn write_back(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: takes integers; the descriptor is open as long as `file` is borrowed.
    let answer = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset.cast_signed(), len.cast_signed(), flags)
    };
    check(answer).map(drop)
}

/// Makes a hole of a range that holds zeros, which gives its room back and reads as before.
pub(super) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len)
}

/// Allocates room for a range, or fails if there is none.
pub(super) fn take_room(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, 0, offset, len)
}

fn fallocate(file: &File, mode: libc::c_int, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (offset.cast_signed(), len.cast_signed());
    // SAFETY: takes integers; the descriptor is open as long as `file` is borrowed.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) }).map(drop)
}

/// Bytes that are free on the file system of a file.
pub(super) fn free_bytes(file: &File) -> io::Result<u64> {
    let mut stat = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the descriptor is open as long as `file` is borrowed, and there is room for the
    // answer.
    check(unsafe { libc::fstatvfs(file.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it has filled the answer in.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail * stat.f_frsize)
}

/// A file without a name, in memory: it lives as long as a process has it open.
pub(super) fn file_in_memory() -> io::Result<File> {
    // SAFETY: the name is a string that ends in a zero byte.
    let fd = check(unsafe { libc::memfd_create(c"isobath-sim".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor is fresh, so no other value owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Makes the kernel kill this process when the thread that started it ends.
pub(super) fn die_with_parent() -> io::Result<()> {
    // SAFETY: takes integers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).map(drop)
}

/// Waits until there is something to read, at most for `limit`. False if there is nothing.
pub(super) fn wait_readable(file: &impl AsRawFd, limit: Duration) -> io::Result<bool> {
    let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = libc::timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: the call gets one structure of each kind, which live until it returns, and no signal
    // mask.
    match check(unsafe { libc::ppoll(&raw mut wanted, 1, &raw const limit, ptr::null()) }) {
        Ok(count) => Ok(count > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

/// `struct loop_config`: a `loop_info64` of zeros but for its flags.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info_before_flags: [u64; 5],
    info_number_and_key: [u32; 3],
    info_flags: u32,
    info_after_flags: [u8; 176],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

/// Attaches an image to a free loop device. The device detaches it when the last process that has
/// it open or mounted is gone.
pub(super) fn attach_loop(image: &File) -> io::Result<(File, PathBuf)> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    let config = LoopConfig {
        fd: image.as_raw_fd().cast_unsigned(),
        block_size: 0,
        info_before_flags: [0; 5],
        info_number_and_key: [0; 3],
        info_flags: LO_FLAGS_AUTOCLEAR,
        info_after_flags: [0; 176],
        reserved: [0; 8],
    };
    loop {
        // SAFETY: takes integers.
        let number = check(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _, 0) })?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new().read(true).write(true).open(&path)?;
        match configure(device.as_raw_fd(), &config) {
            Ok(()) => return Ok((device, path)),
            // Another process took this device first: try the next one.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
    }
}

fn configure(device: RawFd, config: &LoopConfig) -> io::Result<()> {
    // SAFETY: the call only reads the structure, which has the layout of the kernel's header and
    // lives until the call returns.
    check(unsafe { libc::ioctl(device, LOOP_CONFIGURE as _, ptr::from_ref(config)) }).map(drop)
}
