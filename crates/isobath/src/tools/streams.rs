//! Streams for tools: whether those can be read that records of the log name.

use crate::blob::OpenStream;
use crate::error::Error;
use crate::format::{Op, StreamAddress};
use crate::version::table_path;
use crate::vfs::{FileAccess, FileSystem};
use std::path::Path;
use std::sync::Arc;

/// The files of the streams that a record puts. An operation without an address does not decode.
pub(super) fn files_of<'o>(ops: &'o [Op<'o>]) -> impl Iterator<Item = u64> {
    let streamed = ops.iter().filter(|op| op.kind.is_streamed());
    streamed.filter_map(|op| Some(StreamAddress::of(op.kind, op.value).ok()?.file))
}

/// The operations of a record that put streams which are not whole, each with its place in the
/// record and why. All frames are read.
pub(super) fn unreadable<'o>(
    fs: &dyn FileSystem,
    db: &Path,
    ops: &'o [Op<'o>],
) -> Vec<(u64, &'o Op<'o>, Error)> {
    let check = |(at, op): (usize, &'o Op<'o>)| {
        // An operation without an address does not decode.
        let address = StreamAddress::of(op.kind, op.value).ok()?;
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
    let streamed = ops.iter().enumerate().filter(|(_, op)| op.kind.is_streamed());
    streamed.filter_map(check).collect()
}
