//! Files of sorted keys that are written without a database.

use crate::env::Env;
use crate::error::{Error, Result};
use crate::limits::{check_key, check_value};
use crate::transact::SortedWriter;
use crate::vfs::Directory;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes a file of sorted keys, without a database: in another process, say, or on another
/// machine. [`Ingest::add_file`](crate::Ingest::add_file) takes it into any family of any database.
///
/// The keys come in ascending order, each once. A file that is not finished is removed when the
/// writer is dropped, and is refused as damaged if the process was killed.
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
    path: PathBuf,
    /// Where the file is. Held open, so that a complete file does not fail for want of a
    /// descriptor. `None` if the process may not read it: then it cannot be synced.
    dir: Option<Arc<dyn Directory>>,
    /// `None` once the file is finished, or after an error.
    writer: Option<SortedWriter>,
    /// Why there is no file any more.
    failure: Option<Error>,
}

impl SortedFileWriter {
    /// Begins a file. There must be none of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file exists or cannot be created, or its
    /// directory cannot be opened. One that may be written to but not read is good enough.
    #[cfg(any(unix, windows))]
    pub fn create(path: impl AsRef<Path>) -> Result<SortedFileWriter> {
        SortedFileWriter::create_in(path, &Env::system())
    }

    /// Like [`SortedFileWriter::create`], on the file system of an [`Env`]: for a database in
    /// memory, say, which finds its files there.
    pub fn create_in(path: impl AsRef<Path>, env: &Env) -> Result<SortedFileWriter> {
        let path = path.as_ref().to_owned();
        let above = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = match env.fs.open_dir(above.unwrap_or(Path::new("."))) {
            Err(error) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => None,
            opened => Some(opened?),
        };
        let writer = Some(SortedWriter::create(env.fs.create(&path)?)?);
        Ok(SortedFileWriter { env: env.clone(), path, dir, writer, failure: None })
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

    /// Completes the file, so that it survives power loss, and returns the number of its keys. In a
    /// directory that the process may not read nothing is promised about the file's name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if it cannot be written; it is removed then.
    pub fn finish(mut self) -> Result<u64> {
        let failure = self.failure.take();
        let writer = self.writer.take().ok_or_else(|| failure.unwrap_or_else(Error::closed))?;
        let finished = writer.finish().and_then(|keys| {
            self.dir.as_ref().map_or(Ok(()), |dir| dir.sync())?;
            Ok(keys)
        });
        if finished.is_err() {
            let _ = self.env.fs.remove(&self.path);
        }
        finished
    }

    fn discard(&mut self) {
        if self.writer.take().is_some() {
            let _ = self.env.fs.remove(&self.path);
        }
    }
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
