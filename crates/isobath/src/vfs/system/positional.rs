//! Reading and writing by position. Any thread may do so at any time.

use std::fs::File;
use std::io;

#[cfg(unix)]
use std::os::unix::fs::FileExt;
#[cfg(windows)]
use std::os::windows::fs::FileExt;

/// Fills `buf` from `offset`. The end of the file is an error of kind `UnexpectedEof`.
#[cfg(unix)]
pub(super) fn read_exact(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buf, offset)
}

/// Writes all of `bytes` at `offset`.
#[cfg(unix)]
pub(super) fn write_all(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Fills `buf` from `offset`. The end of the file is an error of kind `UnexpectedEof`. Each call
/// states its own offset, so it does not matter that it also moves the file's position.
#[cfg(windows)]
pub(super) fn read_exact(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.seek_read(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                buf = &mut buf[len..];
                offset += len as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `bytes` at `offset`.
#[cfg(windows)]
pub(super) fn write_all(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_write(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => {
                bytes = &bytes[len..];
                offset += len as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
