//! Where everything happens: a tmpfs in a mount namespace of the tool's own, and ext4 on loop
//! devices within.
//!
//! No cleanup is needed. The namespace ends with the last process in it, however that ends. With it
//! the mounts go, and with them the loop devices, which detach themselves, and all files of the
//! tmpfs.

use super::calls;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The sandbox covers this place with a tmpfs of its own. It is a directory on every system, and
/// this tool needs nothing in it.
const ROOT: &str = "/dev/shm";
/// The least that ext4 takes with blocks of 4 KiB.
pub(super) const JOURNAL_LEN: u64 = 4 << 20;
/// An unmount may find that the kernel still holds something, for this long at most.
const BUSY_PAUSE: Duration = Duration::from_millis(1);
const BUSY_PAUSES_MAX: u32 = 5000;

/// A tmpfs of our own.
pub(crate) struct Sandbox {
    root: PathBuf,
}

impl Sandbox {
    /// Enters a sandbox with this much room, or says what this machine lacks for it.
    pub(crate) fn enter(len: u64) -> Result<Sandbox, String> {
        let root = PathBuf::from(ROOT);
        let mounted = calls::own_mounts().and_then(|()| {
            calls::mount(None, &root, Some("tmpfs"), 0, &format!("size={len},mode=700"))
        });
        mounted.map_err(|error| format!("this needs root, for mounts of its own ({error})"))?;
        Ok(Sandbox { root })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Mounts another tmpfs within.
    pub(crate) fn tmpfs(&self, name: &str, len: u64) -> io::Result<PathBuf> {
        let at = self.path(name);
        fs::create_dir_all(&at)?;
        calls::mount(None, &at, Some("tmpfs"), 0, &format!("size={len}"))?;
        Ok(at)
    }
}

/// ext4 on a loop device over an image file.
pub(crate) struct Disk {
    device: File,
    device_path: PathBuf,
    at: PathBuf,
}

impl Disk {
    /// Makes the image, attaches it, and mounts it at a new directory, or says what this machine
    /// lacks for it.
    pub(crate) fn create(image: &Path, at: PathBuf, len: u64) -> Result<Disk, String> {
        let told = |what: &str, error: io::Error| format!("this needs {what} ({error})");
        let make = || {
            fs::create_dir_all(&at)?;
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(image)?;
            file.set_len(len)?;
            make_ext4(image)?;
            Ok(file)
        };
        let file = make().map_err(|error| told("mkfs.ext4, of e2fsprogs", error))?;
        let attached = calls::attach_loop(&file);
        let (device, device_path) = attached.map_err(|error| told("loop devices", error))?;
        let disk = Disk { device, device_path, at };
        disk.mount().map_err(|error| told("ext4 in the kernel", error))?;
        Ok(disk)
    }

    /// Makes every request to the device one page long. The loop driver reports success for a write
    /// of which its file took only a part (seen in Linux 6.18); a page is taken as a whole or not
    /// at all.
    pub(crate) fn write_single_pages(&self) -> io::Result<()> {
        let name = self.device_path.file_name().unwrap_or_default();
        let queue = Path::new("/sys/block").join(name).join("queue");
        fs::write(queue.join("max_sectors_kb"), "4")
    }

    /// Where it is mounted.
    pub(crate) fn at(&self) -> &Path {
        &self.at
    }

    pub(crate) fn mount(&self) -> io::Result<()> {
        calls::mount(Some(&self.device_path), &self.at, Some("ext4"), 0, "")
    }

    /// Unmounts, and makes the kernel forget its cache of the device. No process may have files
    /// open there.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        let mut pauses = 0;
        while let Err(error) = calls::unmount(&self.at) {
            if error.raw_os_error() != Some(libc::EBUSY) || pauses == BUSY_PAUSES_MAX {
                return Err(error);
            }
            pauses += 1;
            thread::sleep(BUSY_PAUSE);
        }
        calls::forget_buffers(&self.device)
    }

    /// Cuts the power. From here on every operation on the file system fails. Unmount and mount it
    /// to see what was left.
    pub(crate) fn cut(&self) -> io::Result<()> {
        calls::shut_down(&File::open(&self.at)?)
    }
}

fn make_ext4(image: &Path) -> io::Result<()> {
    let mut command = Command::new("mkfs.ext4");
    // Small, and without lazy initialisation, which the kernel would do in the background.
    command.args(["-q", "-F", "-b", "4096", "-N", "1024", "-m", "0"]);
    command.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    let journal = format!("size={}", JOURNAL_LEN >> 20);
    command.args(["-J", &journal, "-O", "^resize_inode"]);
    let output = command.arg(image).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
