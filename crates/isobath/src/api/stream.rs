//! Streams: values of any length, which are written from a reader and read piece by piece.

use crate::engine::{Engine, Mention};
use crate::error::Result;
use crate::family::Family;
use crate::options::Expiry;
use crate::read::StreamRead;
use crate::write::{StreamSink, Written};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

/// Writes a value piece by piece, so that it never lies in memory as a whole.
/// [`Db::value_writer`](crate::Db::value_writer) returns it. [`ValueWriter::finish`] ends the
/// value, and [`Batch::put_streamed`](crate::Batch::put_streamed) puts it.
///
/// The value goes to a file as it comes, except if it is short. If a writer is dropped, its file is
/// removed; after a close of the database, by the next open.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("streams")?;
/// # let films = db.family("films")?;
/// use std::io::Write;
/// let mut writer = db.value_writer(&films)?;
/// for scene in ["first", "second"] {
///     writer.write_all(scene.as_bytes()).expect("room for a film");
/// }
/// let film = writer.finish()?;
/// let mut batch = isobath::Batch::new();
/// batch.put("count", "1");
/// batch.of(&films).put_streamed("f1", film);
/// db.write(batch)?;
/// assert_eq!(films.get("f1")?.unwrap(), "firstsecond");
/// # Ok(())
/// # }
/// ```
pub struct ValueWriter {
    of: Mention,
    sink: StreamSink,
}

impl ValueWriter {
    pub(crate) fn new(engine: &Arc<Engine>, family: &Family) -> Result<ValueWriter> {
        let keyspace = family.of(engine)?;
        Ok(ValueWriter { of: family.mention(), sink: StreamSink::new(engine, keyspace)? })
    }

    /// The length of the value so far.
    pub fn written(&self) -> u64 {
        self.sink.len()
    }

    /// Ends the value, and syncs its file. So a commit that puts it never names a file that a power
    /// cut could take.
    ///
    /// # Errors
    /// An error of an earlier write or of the sync. The value is lost then, and its file
    /// is removed, as that of a writer that is dropped.
    pub fn finish(self) -> Result<Streamed> {
        Ok(Streamed { of: self.of, value: self.sink.finish()? })
    }
}

/// An error of the engine is the inner one of the [`io::Error`]. The only one after which the
/// writer goes on is [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument), for bytes
/// beyond [`MAX_STREAM_LEN`](crate::MAX_STREAM_LEN).
impl Write for ValueWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.put(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueWriter({} bytes)", self.sink.len())
    }
}

/// A value that a [`ValueWriter`] has written, and that no key has yet. Give it to
/// [`Batch::put_streamed`](crate::Batch::put_streamed). If it is dropped, its file is removed, as
/// that of a writer.
pub struct Streamed {
    pub(crate) of: Mention,
    pub(crate) value: Written,
}

impl Streamed {
    /// The length of the value.
    pub fn len(&self) -> u64 {
        self.value.len()
    }

    /// True if the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Streamed({} bytes)", self.len())
    }
}

/// Reads a value piece by piece, from any place on. `get_reader` returns it on everything that
/// reads.
///
/// It reads the value that the key had at the read point, whatever is written later. It keeps the
/// file of that value, or the block or memtable in which it lies, as a [`Value`](crate::Value)
/// does: of a long value two pieces of up to 256 KiB are in memory, and eight bytes for each
/// piece. Once the database is closed, reads are errors.
pub struct ValueReader {
    read: StreamRead,
    at: u64,
}

impl ValueReader {
    pub(crate) fn new(read: StreamRead) -> ValueReader {
        ValueReader { read, at: 0 }
    }

    /// The length of the value.
    pub fn len(&self) -> u64 {
        self.read.len()
    }

    /// True if the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the value ends: [`Expiry::Never`] or [`Expiry::At`]. The reader goes on beyond that.
    pub fn expiry(&self) -> Expiry {
        Expiry::of_stored(self.read.expires_ms())
    }
}

/// An error of the engine is the inner one of the [`io::Error`]. Damage is of one piece of the
/// value; others can be read.
impl Read for ValueReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let piece = self.read.read_from(self.at)?;
        let len = piece.len().min(buf.len());
        buf[..len].copy_from_slice(&piece[..len]);
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a seek to before the value");
        self.at = at.ok_or_else(before)?;
        Ok(self.at)
    }
}

impl std::fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueReader(at {} of {} bytes)", self.at, self.len())
    }
}

/// Expands to the method that puts a stream. `$this.put_read(key, reader)` does it.
macro_rules! stream_writes {
    ($type:ty, $this:ident : $receiver:ty) => {
        impl $type {
            /// Sets `key` to all that `value` reads. It may have up to
            /// [`MAX_STREAM_LEN`]($crate::MAX_STREAM_LEN) bytes, and is never in memory as a
            /// whole: what does not fit into 256 KiB goes to a file of its own, which is synced
            /// before the commit. To put several such values together, or one with other
            /// operations, use [`Db::value_writer`]($crate::Db::value_writer). The value ends as
            /// the family says; for another end, call `put_streamed` and `set_expiry` in one
            /// transaction.
            ///
            /// # Errors
            /// Nothing is written if `value` cannot be read to its end. A key that is too long, and
            /// a database that takes no writes, are errors before any of `value` is read. After any
            /// other error `value` may be read in part or to its end: before the call is repeated,
            /// it has to begin anew, or less would be put.
            pub fn put_reader(
                $this: $receiver,
                key: impl AsRef<[u8]>,
                mut value: impl std::io::Read,
            ) -> $crate::Result<$crate::Commit> {
                $this.put_read(key.as_ref(), &mut value)
            }
        }
    };
}
pub(crate) use stream_writes;
