//! A device that really fails: a loop device over a sparse file on a tmpfs without room.
//!
//! A write to a part of the disk that the file has no room for yet fails in the device, after the
//! kernel has accepted it from the database. The next sync of that file fails, and later ones
//! succeed although the data is gone. Pages of zeros are turned into such parts (they read as
//! before). The file system is frozen meanwhile, so that no page changes between the check and the
//! punching of the hole.
//!
//! From the first failure of the log on, the database refuses writes and serves reads. The device
//! then recovers, the database is opened anew, and what is there must be what a power cut may
//! leave.

use super::calls;
use super::campaign::{Campaign, Outcome, Series, Verdict};
use super::check::Death;
use super::enospc::Ballast;
use super::life::Said;
use super::sandbox::{Disk, JOURNAL_LEN, Sandbox};
use super::writer::{Trouble, Writer};
use isobath::env::planted::Plant;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const DISK_LEN: u64 = 64 << 20;
/// The disk's blocks that are in use fit, and some more.
const TMPFS_LEN: u64 = 80 << 20;
const PAGE_LEN: usize = 4096;
const READ_LEN: usize = 1 << 20;
/// How long a failure may take to reach the log. It may never do so, if nothing is written where
/// the device fails.
const REFUSED_WITHIN: Duration = Duration::from_millis(250);
/// `linux/jbd2.h`: what a block of the file system's journal begins with.
const JOURNAL_MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// Where disks are made.
pub(crate) struct Workshop {
    tmpfs: PathBuf,
    mounted: PathBuf,
}

/// Room for disks, or an error that says what this machine lacks for them.
pub(crate) fn prepare() -> Result<Workshop, String> {
    let sandbox = Sandbox::enter(TMPFS_LEN * 2)?;
    let told = |error: io::Error| format!("this needs a tmpfs ({error})");
    let workshop = Workshop {
        tmpfs: sandbox.tmpfs("device", TMPFS_LEN).map_err(told)?,
        mounted: sandbox.path("mounted"),
    };
    // Make one disk at once, so that a missing tool or permission shows before the first round.
    workshop.disk()?.unmount().map_err(told)?;
    Ok(workshop)
}

impl Workshop {
    fn image(&self) -> PathBuf {
        self.tmpfs.join("disk")
    }

    /// A new disk in place of the one before.
    fn disk(&self) -> Result<Disk, String> {
        if self.image().exists() {
            fs::remove_file(self.image()).map_err(|error| error.to_string())?;
        }
        let disk = Disk::create(&self.image(), self.mounted.clone(), DISK_LEN)?;
        let limited = disk.write_single_pages();
        limited.map_err(|error| {
            format!("this needs a queue whose requests can be limited ({error})")
        })?;
        Ok(disk)
    }
}

/// Makes the device fail under one database after the other.
pub(crate) fn run(
    workshop: &Workshop,
    rounds: u64,
    seed: u64,
    plant: Option<Plant>,
) -> Result<Outcome, Box<dyn Error>> {
    let (dir, after, trouble) = (workshop.mounted.join("db"), Death::Power, Trouble::FailingDevice);
    let writer = Writer::new(dir, seed, after, trouble, plant);
    let ballast = Ballast::create(&workshop.tmpfs.join("ballast"))?;
    let mut disk: Option<Disk> = None;
    let campaign = Campaign { unit: "rounds", deaths: rounds, lives_max: 1, writer };
    campaign.run(&mut |series| {
        if let Some(used) = disk.take() {
            used.unmount()?;
        }
        let fresh = disk.insert(workshop.disk()?);
        fail_once(fresh, &workshop.image(), &ballast, series)
    })
}

fn fail_once(disk: &Disk, image: &Path, ballast: &Ballast, series: &mut Series<'_>) -> Verdict {
    let mut life = match series.begin_writing()? {
        Ok(life) => life,
        Err(wrong) => return Ok(Some(wrong)),
    };
    thread::sleep(Duration::from_micros(series.rng.u64(..10_000)));
    let root = File::open(disk.at())?;
    calls::freeze(&root)?;
    let spares_journal = series.rng.u32(..3) > 0;
    let dug = dig_holes(image, spares_journal, series.rng).and_then(|()| ballast.fill(0));
    calls::thaw(&root)?;
    dug?;
    drop(root);
    let said = life.listen(REFUSED_WITHIN)?;
    if series.rng.bool() {
        // In half of the rounds the device works again before the kernel writes its dirty pages to
        // it.
        ballast.drop_all()?;
    }
    let wrong = series.end(life, true)?;
    let lasting = disk.unmount();
    ballast.drop_all()?;
    lasting?;
    disk.mount()?;
    series.errors += u64::from(said == Said::Done);
    Ok(wrong)
}

/// Makes holes of pages of zeros, here and there.
fn dig_holes(image: &Path, spares_journal: bool, rng: &mut fastrand::Rng) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let mut buffer = vec![0; READ_LEN];
    let mut journal = None;
    let mut at = 0;
    while at < DISK_LEN {
        file.read_exact_at(&mut buffer, at)?;
        let digs_here = rng.u32(..4) > 0;
        for (index, page) in buffer.chunks_exact(PAGE_LEN).enumerate() {
            let offset = at + (index * PAGE_LEN) as u64;
            if journal.is_none() && page.starts_with(&JOURNAL_MAGIC) {
                journal = Some(offset..offset + JOURNAL_LEN);
            }
            let is_journal = journal.as_ref().is_some_and(|range| range.contains(&offset));
            let may_dig = if is_journal { !spares_journal } else { digs_here };
            if may_dig && page.iter().all(|byte| *byte == 0) {
                calls::punch_hole(&file, offset, PAGE_LEN as u64)?;
            } else if is_journal {
                calls::take_room(&file, offset, PAGE_LEN as u64)?;
            }
        }
        at += READ_LEN as u64;
    }
    Ok(())
}
