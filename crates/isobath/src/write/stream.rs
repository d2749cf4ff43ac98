//! Streams: a value goes to a file of its own as it comes, and the commit that names it comes
//! after.
//!
//! 1. The writer holds the file's number before it creates the file. If the writer is dropped, the
//!    file is removed like an output that no job installs.
//! 2. [`StreamSink::finish`] syncs the file and its name. So no record of the log names a file that
//!    a power cut could take, whatever the durability of the commit.
//! 3. The commit gives the file to the epoch that owns its LSN, before its operation is in a
//!    memtable. Until the flush of that epoch a replay needs the file, even if the family is
//!    dropped.
//!
//! A short value stays in memory, and is put like any other.

use super::commit::{check_family, commit_one, commit_op};
use crate::blob::{StreamWriter, check_len};
use crate::engine::{Engine, Keyspace};
use crate::env::{Reach, reached};
use crate::error::{Error, Result};
use crate::format::{Lsn, OpKind, StreamAddress};
use crate::limits::check_key;
use crate::mvcc::Expiring;
use crate::options::{Expiry, WriteOptions};
use crate::table::Codec;
use crate::table::cache::table_path;
use crate::version::{LiveFile, TABLE_DIR};
use crate::write::Commit;
use crate::write::expiry::default_expiry;
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes that are taken from a program's reader at once.
const PIECE_LEN: usize = 64 << 10;

/// A value that is being written.
pub(crate) struct StreamSink {
    engine: Arc<Engine>,
    codec: Codec,
    state: State,
    len: u64,
}

enum State {
    /// No file has any of it yet.
    Held(Vec<u8>),
    File(Box<InFile>),
    /// The file could not be written.
    Failed(Error),
}

struct InFile {
    // Declared before the number, so that the file is closed before it is removed.
    writer: StreamWriter,
    file: Arc<LiveFile>,
}

/// A value that was written, and that no commit has yet.
pub(crate) enum Written {
    Held(Vec<u8>),
    Apart(StreamAddress, Arc<LiveFile>),
}

impl Written {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Written::Held(value) => value.len() as u64,
            Written::Apart(address, _) => address.value_len,
        }
    }
}

impl StreamSink {
    /// A value that takes the codec of this family's blob files.
    pub(crate) fn new(engine: &Arc<Engine>, family: &Keyspace) -> Result<StreamSink> {
        engine.check_writable()?;
        check_family(family)?;
        let codec = family.table_options(0).blob_codec;
        Ok(StreamSink { engine: engine.clone(), codec, state: State::Held(Vec::new()), len: 0 })
    }

    /// The same for a key that the caller has already: what would refuse the put does so before
    /// anything is written.
    pub(crate) fn for_key(
        engine: &Arc<Engine>,
        family: &Keyspace,
        key: &[u8],
    ) -> Result<StreamSink> {
        check_key(key)?;
        StreamSink::new(engine, family)
    }

    /// Appends bytes. If they are too many, the value stays as it was; after any other error it
    /// cannot be finished.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.engine.check_writable()?;
        check_len(self.len, bytes.len())?;
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        let put = self.put_or_fail(bytes);
        if let Err(error) = &put {
            // Dropping the file marks it for removal.
            self.state = State::Failed(error.clone());
        }
        self.len += bytes.len() as u64;
        put
    }

    fn put_or_fail(&mut self, bytes: &[u8]) -> Result<()> {
        if let State::Held(held) = &mut self.state {
            if held.len() + bytes.len() <= self.engine.options.sizes.stream_frame_len {
                held.extend_from_slice(bytes);
                return Ok(());
            }
            let held = std::mem::take(held);
            let mut file = self.begin_file()?;
            file.writer.write(&held)?;
            self.state = State::File(Box::new(file));
        }
        let State::File(file) = &mut self.state else { unreachable!("it was begun") };
        file.writer.write(bytes)
    }

    fn begin_file(&self) -> Result<InFile> {
        let engine = &self.engine;
        engine.admit_file()?;
        let errand = engine.errands.begin().ok_or_else(Error::closed)?;
        let file = engine.files.allocate();
        let path = table_path(&engine.dir.join(TABLE_DIR), file.number());
        let created = engine.options.env.fs.create(&path)?;
        drop(errand);
        let frame_len = engine.options.sizes.stream_frame_len;
        let of = (engine.uuid, file.number());
        let writer = StreamWriter::create(created, of, (self.codec, frame_len))?;
        Ok(InFile { writer, file })
    }

    /// How many bytes were put.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Ends the value. If it has a file, that is synced, and its name, too.
    pub(crate) fn finish(self) -> Result<Written> {
        let engine = self.engine;
        engine.check_writable()?;
        match self.state {
            State::Failed(error) => Err(error),
            State::Held(value) => Ok(Written::Held(value)),
            State::File(in_file) => {
                reached(Reach::StreamWritten);
                let InFile { writer, file } = *in_file;
                let address = writer.finish()?;
                debug_assert_eq!((address.file, address.value_len), (file.number(), self.len));
                file.len_or(|| Ok(address.file_len))?;
                engine.files.sync_names(&*engine.options.env.fs, &engine.dir.join(TABLE_DIR))?;
                Ok(Written::Apart(address, file))
            }
        }
    }
}

/// Writes all that the program's reader has.
pub(crate) fn write_all_of(mut sink: StreamSink, value: &mut dyn Read) -> Result<Written> {
    let mut piece = vec![0; PIECE_LEN];
    loop {
        match value.read(&mut piece) {
            Ok(0) => return sink.finish(),
            Ok(len) => sink.put(&piece[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Error::io("read a value that is put in", &sink.engine.dir, error));
            }
        }
    }
}

/// Gives the files of streams to the epoch that owns the reserved `lsn`. No operation of the commit
/// is in a memtable yet.
pub(super) fn hand_over(engine: &Engine, lsn: Lsn, streams: &[Arc<LiveFile>]) {
    if !streams.is_empty() {
        engine.epochs.owner(lsn).add_streams(streams);
    }
}

/// The kind of a put of a stream that ends so, and what is stored with it.
pub(crate) fn stored_stream(
    engine: &Engine,
    expiry: Expiry,
    address: &StreamAddress,
) -> Result<(OpKind, Vec<u8>)> {
    let (mut value, mut stored) = (Vec::new(), Vec::new());
    address.put(&mut value);
    Ok(match engine.note_expiry(expiry)? {
        None => (OpKind::PutStreamed, value),
        Some(expires_ms) => {
            Expiring { expires_ms, value: &value }.put(&mut stored);
            (OpKind::PutExpiringStreamed, stored)
        }
    })
}

/// Commits a put of a written value.
pub(crate) fn commit_streamed(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    (key, written): (&[u8], Written),
    options: WriteOptions,
) -> Result<Commit> {
    let (address, file) = match written {
        Written::Held(value) => {
            return commit_one(engine, family, OpKind::Put, key, &value, options);
        }
        Written::Apart(address, file) => (address, file),
    };
    let (kind, stored) = stored_stream(engine, default_expiry(family), &address)?;
    commit_op(engine, family, (kind, key, &stored), options, |lsn| {
        hand_over(engine, lsn, std::slice::from_ref(&file));
    })
}
