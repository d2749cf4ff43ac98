//! Values that are written piece by piece and read so. To the oracle they are values like others.

use super::runtime;
use super::workload::Stage;
use isobath::{Error, Expiry, Streamed, ValueReader};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// So many bytes are written at once.
const PIECE_LEN: usize = 100;

/// True if a put is written piece by piece. Its length says whether it has a file of its own.
pub(crate) fn is_streamed(nth: usize, value: &[u8]) -> bool {
    (value.len() + nth).is_multiple_of(3)
}

/// The error of the engine in one that a writer or reader has returned.
fn of_engine(error: io::Error) -> Error {
    error.downcast().unwrap_or_else(|error| Error::io("stream", Path::new("a value"), error))
}

/// The whole value.
pub(crate) fn read_back(reader: Option<ValueReader>) -> isobath::Result<Option<Vec<u8>>> {
    reader.map(|mut reader| read_whole(&mut reader)).transpose()
}

/// The whole value, its second half read first.
pub(crate) fn read_whole(reader: &mut ValueReader) -> isobath::Result<Vec<u8>> {
    let mut bytes = vec![0; reader.len() as usize];
    assert_eq!(reader.is_empty(), bytes.is_empty(), "a reader does not know how much it reads");
    assert!(!matches!(reader.expiry(), Expiry::After(_)), "a reader tells no moment");
    let half = bytes.len() / 2;
    let (first, second) = bytes.split_at_mut(half);
    for (at, part) in [(half, second), (0, first)] {
        let sought = reader.seek(SeekFrom::Start(at as u64));
        sought.and_then(|_| reader.read_exact(part)).map_err(of_engine)?;
    }
    Ok(bytes)
}

impl Stage {
    /// Writes a value that a commit then puts.
    pub(crate) fn streamed(&self, value: &[u8]) -> isobath::Result<Streamed> {
        let mut writer = self.db.value_writer(&self.side)?;
        for piece in value.chunks(PIECE_LEN) {
            writer.write_all(piece).map_err(of_engine)?;
            runtime::yield_now();
        }
        let written = writer.written();
        let streamed = writer.finish()?;
        let is_right = written == value.len() as u64
            && streamed.len() == written
            && streamed.is_empty() == value.is_empty();
        if !is_right {
            self.fail(format!("a stream of {} bytes has {written}", value.len()));
        }
        Ok(streamed)
    }
}
