//! Files of sorted keys that are written without a database.

use crate::env::Env;
use crate::error::{Error, Result};
use crate::limits::{check_key, check_value};
use crate::transact::SortedWriter;
use crate::version::sync_dir_name;
use crate::vfs::{Directory, WriteFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes a file of sorted keys, without a database: in another process, say, or on another
/// machine. [`Ingest::add_file`](crate::Ingest::add_file) takes it into any family of any database.
///
/// The keys come in ascending order, each once. Until [`SortedFileWriter::finish`] the file has a
/// name of its own in the same directory, `isobath-sorted-` and 16 hexadecimal digits and `.tmp`,
/// and nothing is under the name that was asked for. A file that is not finished is removed when
/// the writer is dropped. If the process is killed, it stays under its own name, and a program may
/// remove it once no process writes a sorted file in this directory.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// use isobath::SortedFileWriter;
/// # let dir = std::env::temp_dir().join(format!("isobath-doc-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&dir);
/// # let db = isobath::Options::new().open(dir.join("db"))?;
/// # let path = dir.join("insects.sorted");
/// let mut file = SortedFileWriter::create(&path)?;
/// file.put("ant", "insect")?;
/// file.put("bee", "insect")?;
/// assert_eq!(file.finish()?, 2);
///
/// let mut ingest = db.ingest()?;
/// ingest.add_file(&path)?;
/// ingest.commit()?;
/// assert_eq!(db.get("bee")?.unwrap(), "insect");
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
#[must_use = "a file that is not finished is removed"]
pub struct SortedFileWriter {
    env: Env,
    /// The name that it gets when it is complete.
    path: PathBuf,
    /// The name that it has until then, which no other writer has.
    unfinished: PathBuf,
    /// Where the file is. Held open, so that a complete file does not fail for want of a
    /// descriptor. `None` if the process may not read it: then it cannot be synced.
    dir: Option<Arc<dyn Directory>>,
    /// `None` once the file is finished, or after an error.
    writer: Option<SortedWriter>,
    /// Why there is no file any more.
    failure: Option<Error>,
}

impl SortedFileWriter {
    /// Begins a file. There must be none of this name, neither now nor when it is finished. A
    /// relative path means what it means now, also if the process changes its directory.
    ///
    /// The directory's own name is synced in the directory above it, because a program may have
    /// just made it. Names further above are left to the program: if it has just made these, too
    /// (`create_dir_all`), it has to sync each of the directories above.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file exists or cannot be created, its
    /// directory cannot be opened, or the directory above cannot be synced. Directories that may be
    /// written to but not read are good enough.
    #[cfg(any(unix, windows))]
    pub fn create(path: impl AsRef<Path>) -> Result<SortedFileWriter> {
        SortedFileWriter::create_in(path, &Env::system())
    }

    /// Like [`SortedFileWriter::create`], on the file system of an [`Env`]: for a database in
    /// memory, say, which finds its files there.
    pub fn create_in(path: impl AsRef<Path>, env: &Env) -> Result<SortedFileWriter> {
        let path = env.fs.absolute(path.as_ref())?;
        let above = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let dir = match env.fs.open_dir(above) {
            Err(error) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => None,
            opened => Some(opened?),
        };
        let Some(name) = path.file_name() else { return Err(taken(&path)) };
        if env.fs.exists(&path)? {
            return Err(taken(&path));
        }
        sync_dir_name(&*env.fs, above)?;
        // Without a slash at its end.
        let path = path.with_file_name(name);
        let (unfinished, file) = create_beside(env, &path)?;
        let writer = SortedWriter::create(file);
        let writer = Some(writer.inspect_err(|_| drop(env.fs.remove(&unfinished)))?);
        Ok(SortedFileWriter { env: env.clone(), path, unfinished, dir, writer, failure: None })
    }

    /// Takes the next key, with its value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfOrder`](crate::ErrorKind::OutOfOrder) if the key is not behind the one
    /// before it; it was not taken then. After an error of the disk every later call fails with it.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), Some(value.as_ref()))
    }

    /// Takes the next key, which the ingest deletes. The errors are those of
    /// [`SortedFileWriter::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), None)
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(key)?;
        check_value(value.unwrap_or_default())?;
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let writer = self.writer.as_mut().ok_or_else(Error::closed)?;
        if let Some(after) = writer.last_key().filter(|last| key <= *last) {
            return Err(Error::out_of_order(&self.path.display().to_string(), key, after));
        }
        let added = writer.add(key, value);
        if let Err(error) = &added {
            // Something of the key may be in the file.
            self.failure = Some(error.clone());
            self.discard();
        }
        added
    }

    /// Completes the file, gives it its name, so that both survive power loss, and returns the
    /// number of its keys. In a directory that the process may not read nothing is promised about
    /// the file's name.
    ///
    /// Of several writers of one name, the first that finishes has the file, and the others fail.
    /// Where the system has no rename that refuses to replace a file (it has on the common file
    /// systems of Linux), two processes that finish at the same moment may both succeed. Then the
    /// file of one of them is there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if it cannot be written, or there is a file of its
    /// name now; it is removed then, and nothing else is. If only its directory cannot be synced,
    /// it stays under its name: it is whole, but power loss may take the name, and the error says
    /// so. Remove it then, and write it again.
    pub fn finish(mut self) -> Result<u64> {
        let failure = self.failure.take();
        let writer = self.writer.take().ok_or_else(|| failure.unwrap_or_else(Error::closed))?;
        let named = writer.finish().and_then(|keys| self.give_name().map(|()| keys));
        let keys = named.inspect_err(|_| drop(self.env.fs.remove(&self.unfinished)))?;
        // From here on the file under the name may be a stranger's, so nothing removes it.
        let synced = self.dir.as_ref().map_or(Ok(()), |dir| dir.sync());
        synced.map_err(|e| {
            Error::io("vouch for the name of the complete file", &self.path, e.into())
        })?;
        Ok(keys)
    }

    fn give_name(&self) -> Result<()> {
        debug_assert!(self.writer.is_none(), "only a complete file gets its name");
        match self.env.fs.rename(&self.unfinished, &self.path) {
            Err(error) if is_taken(&error) => Err(taken(&self.path)),
            renamed => renamed,
        }
    }

    fn discard(&mut self) {
        if self.writer.take().is_some() {
            let _ = self.env.fs.remove(&self.unfinished);
        }
    }
}

/// Creates a file under a name that no other has.
fn create_beside(env: &Env, path: &Path) -> Result<(PathBuf, Box<dyn WriteFile>)> {
    /// How many names are tried. A process that died may have left some, and the next one may draw
    /// the same numbers.
    const NAMES_MAX: u64 = 1000;
    let drawn = env.random.next_u64();
    let mut nth = 0;
    loop {
        let name = format!("isobath-sorted-{:016x}.tmp", drawn.wrapping_add(nth));
        let unfinished = path.with_file_name(name);
        match env.fs.create(&unfinished) {
            Err(error) if is_taken(&error) && nth < NAMES_MAX => nth += 1,
            created => return Ok((unfinished, created?)),
        }
    }
}

fn is_taken(error: &Error) -> bool {
    error.io_kind() == Some(io::ErrorKind::AlreadyExists)
}

fn taken(path: &Path) -> Error {
    Error::io("create", path, io::ErrorKind::AlreadyExists.into())
}

impl Drop for SortedFileWriter {
    fn drop(&mut self) {
        self.discard();
    }
}

impl std::fmt::Debug for SortedFileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SortedFileWriter({})", self.path.display())
    }
}
