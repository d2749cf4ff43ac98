//! The errors of decoders.
//!
//! A decoder sees a piece of a file. It does not know the file, or where in the file the piece
//! lies. So decoders have their own error type. The caller knows both, and makes an [`Error`] with
//! [`DecodeError::in_file`]. No other conversion from [`DecodeError`] to [`Error`] exists, so an
//! error without a file does not compile.

use super::Error;
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// The result of every decoder.
pub(crate) type Decoded<T> = Result<T, DecodeError>;

/// Why this version cannot read a piece of a file. It is one word long, because decoders on the
/// read path return it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DecodeError(Box<Fault>);

#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Damage {
        what: Cow<'static, str>,
        /// The byte in the piece, if the decoder knows it.
        offset: Option<usize>,
    },
    NewerFormat {
        what: Cow<'static, str>,
    },
    MissingCodec {
        codec: &'static str,
    },
}

impl DecodeError {
    /// The bytes are not what was written: damage.
    #[cold]
    pub(crate) fn damaged(what: impl Into<Cow<'static, str>>) -> DecodeError {
        DecodeError::new(Fault::Damage { what: what.into(), offset: None })
    }

    /// Damage found at this byte of the piece.
    #[cold]
    pub(crate) fn damaged_at(offset: usize, what: impl Into<Cow<'static, str>>) -> DecodeError {
        DecodeError::new(Fault::Damage { what: what.into(), offset: Some(offset) })
    }

    /// The bytes are intact, but a later version wrote them.
    #[cold]
    pub(crate) fn newer_format(what: impl Into<Cow<'static, str>>) -> DecodeError {
        DecodeError::new(Fault::NewerFormat { what: what.into() })
    }

    /// The bytes are intact, but need a codec that this build lacks.
    #[cold]
    pub(crate) fn missing_codec(codec: &'static str) -> DecodeError {
        DecodeError::new(Fault::MissingCodec { codec })
    }

    #[inline(never)]
    fn new(fault: Fault) -> DecodeError {
        DecodeError(Box::new(fault))
    }

    /// True if the bytes are not what was written.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(*self.0, Fault::Damage { .. })
    }

    /// True if a later version wrote the bytes.
    pub(crate) fn is_newer_format(&self) -> bool {
        matches!(*self.0, Fault::NewerFormat { .. })
    }

    /// The same error, as damage if it is one of a later version and such bytes count as damaged.
    pub(crate) fn unknown_as_damage(self, counts: bool) -> DecodeError {
        match counts && self.is_newer_format() {
            true => DecodeError::damaged(self.to_string()),
            false => self,
        }
    }

    /// The same error, of bytes that have `len` more in front.
    pub(crate) fn behind(mut self, len: usize) -> DecodeError {
        if let Fault::Damage { offset: Some(offset), .. } = &mut *self.0 {
            *offset += len;
        }
        self
    }

    /// Makes the error for a piece that begins at `offset` of the file at `path`.
    #[cold]
    pub(crate) fn in_file(self, path: &Path, offset: u64) -> Error {
        match *self.0 {
            Fault::Damage { .. } => Error::corruption(path, offset, self.to_string()),
            Fault::NewerFormat { what } => Error::newer_format(path, what),
            Fault::MissingCodec { codec } => Error::missing_codec(path, codec),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Fault::Damage { what, offset: Some(offset) } => write!(f, "{what} (at byte {offset})"),
            Fault::Damage { what, offset: None } | Fault::NewerFormat { what } => f.write_str(what),
            Fault::MissingCodec { codec } => {
                write!(f, "needs the codec {codec}, which this build lacks")
            }
        }
    }
}

/// The error of code that reads files and decodes them: with its file already, or without one until
/// the caller adds it.
#[derive(Debug)]
pub(crate) enum ReadError {
    Decode(DecodeError),
    Placed(Error),
}

impl ReadError {
    /// Adds the file and the offset if they are missing.
    #[cold]
    pub(crate) fn in_file(self, path: &Path, offset: u64) -> Error {
        match self {
            ReadError::Decode(error) => error.in_file(path, offset),
            ReadError::Placed(error) => error,
        }
    }
}

/// A decoder and its name. It returns its error if these bytes are not what it decodes.
#[cfg(test)]
pub(crate) type NamedDecoder = (&'static str, fn(&[u8]) -> Option<DecodeError>);

impl From<DecodeError> for ReadError {
    fn from(error: DecodeError) -> ReadError {
        ReadError::Decode(error)
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> ReadError {
        ReadError::Placed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoders_complaint_gets_the_file_and_keeps_its_own_offset() {
        let at = |error: DecodeError| error.in_file(Path::new("db/table/7.tbl"), 4096).to_string();
        let damaged = at(DecodeError::damaged_at(17, "a field runs past the end"));
        assert!(damaged.starts_with("corruption in db/table/7.tbl at offset 4096: "), "{damaged}");
        assert!(damaged.contains("a field runs past the end (at byte 17)"), "{damaged}");
        let missing = at(DecodeError::missing_codec("lz4"));
        assert!(missing.starts_with("db/table/7.tbl needs the codec lz4"), "{missing}");
        let newer = at(DecodeError::newer_format("block codec 9"));
        assert!(newer.starts_with("db/table/7.tbl has a format"), "{newer}");
        assert!(newer.contains("(block codec 9)"), "{newer}");
    }

    #[test]
    fn an_error_that_is_placed_stays_where_it_is() {
        let inner = DecodeError::damaged("a").in_file(Path::new("inner"), 1);
        let outer = ReadError::from(inner).in_file(Path::new("outer"), 2).to_string();
        assert!(outer.starts_with("corruption in inner at offset 1"), "{outer}");
        let outer = ReadError::from(DecodeError::damaged("a")).in_file(Path::new("outer"), 2);
        assert!(outer.to_string().starts_with("corruption in outer at offset 2"), "{outer}");
    }

    #[test]
    fn hot_decoders_return_small_results() {
        assert_eq!(size_of::<DecodeError>(), size_of::<usize>());
        assert_eq!(size_of::<Decoded<()>>(), size_of::<usize>());
        assert_eq!(size_of::<Decoded<u32>>(), 2 * size_of::<usize>());
    }
}
