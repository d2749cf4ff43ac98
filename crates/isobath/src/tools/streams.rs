//! Streams for tools: whether those can be read that records of the log name.

use crate::blob::OpenStream;
use crate::error::Error;
use crate::format::{Op, StreamAddress, streams_of};
use crate::version::table_path;
use crate::vfs::{FileAccess, FileSystem};
use std::path::Path;
use std::sync::Arc;

/// The operations of a record that put streams which are not whole, each with its place in the
/// record and why. All frames are read.
pub(super) fn unreadable<'o>(
    fs: &dyn FileSystem,
    db: &Path,
    ops: &'o [Op<'o>],
) -> Vec<(u64, &'o Op<'o>, Error)> {
    let check = |(at, op, address): (usize, &'o Op<'o>, StreamAddress)| {
        let path = table_path(db, address.file);
        let open = || match fs.exists(&path)? {
            true => fs.open_read(&path, FileAccess::Positional),
            false => Err(Error::corruption(&path, 0, "a log record names it, but it is missing")),
        };
        let checked = open()
            .and_then(|file| OpenStream::open(file, Arc::default(), &address))
            .and_then(|mut stream| stream.check(&mut |_| ()));
        Some((at as u64, op, checked.err()?.for_key(op.key)))
    };
    streams_of(ops).filter_map(check).collect()
}
