//! Shows one file of a database as a list of items: what the file's own codec says about its bytes,
//! and where.

mod blob;
mod log;
mod manifest;
mod prepared;
mod table;

use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind, Salt};
use crate::version::{CURRENT, manifest_number};
use crate::vfs::{FileAccess, FileSystem};
use std::path::Path;

/// One item in a file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DumpItem<'a> {
    /// The offset in the file at which it begins, in bytes.
    pub offset: u64,
    /// 0 for an item of its own, 1 for a part of the item before, and so on.
    pub depth: usize,
    /// The kind of item: `header`, `edit`, `record`, `block`, `entry` and so on. `damage` for a
    /// part that cannot be read.
    pub name: &'static str,
    /// The contents of the item.
    pub fields: &'a [(&'static str, Field<'a>)],
}

/// A value in a [`DumpItem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field<'a> {
    /// A count, length or identity.
    Number(u64),
    /// A position in the log, usually written in hexadecimal digits.
    Lsn(u64),
    /// A key or a value.
    Bytes(&'a [u8]),
    /// A text.
    Text(&'a str),
}

/// Receives the items of a dump.
type Visit<'a> = &'a mut dyn FnMut(&DumpItem<'_>) -> Result<()>;

/// Passes items on, and counts those that are damage.
struct Dump<'a> {
    fs: &'a dyn FileSystem,
    path: &'a Path,
    visit: Visit<'a>,
    damaged: u64,
}

impl Dump<'_> {
    fn show(
        &mut self,
        offset: u64,
        depth: usize,
        name: &'static str,
        fields: &[(&'static str, Field<'_>)],
    ) -> Result<()> {
        (self.visit)(&DumpItem { offset, depth, name, fields })
    }

    fn header(&mut self, header: &FileHeader) -> Result<()> {
        let kind = format!("{:?}", header.kind).to_lowercase();
        let uuid = format!("{:032x}", u128::from_be_bytes(header.uuid));
        let (kind, uuid) = (("kind", Field::Text(&kind)), ("database", Field::Text(&uuid)));
        let generation = ("generation", Field::Number(header.generation));
        match header.kind {
            FileKind::Log => {
                let base = ("base", Field::Lsn(header.number));
                self.show(0, 0, "header", &[kind, base, generation, uuid])
            }
            FileKind::Table | FileKind::Manifest | FileKind::Prepared | FileKind::Blob => {
                let number = ("number", Field::Number(header.number));
                let features = ("features", Field::Text("salted"));
                let fields = [kind, number, uuid, features];
                let shown = if header.salt == Salt::NONE { 3 } else { 4 };
                self.show(0, 0, "header", &fields[..shown])
            }
        }
    }

    fn damage(&mut self, offset: u64, detail: &str) -> Result<()> {
        self.damaged += 1;
        self.show(offset, 0, "damage", &[("detail", Field::Text(detail))])
    }

    /// Shows an error that is damage. Returns any other error.
    fn absorb(&mut self, error: &Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Corruption { offset, detail, .. } => self.damage(*offset, detail),
            _ => Err(error.clone()),
        }
    }
}

/// Shows the file at `path`: a manifest, `CURRENT`, a table, a blob file, a prepared transaction or
/// a segment of the log. It may be intact or damaged, and its database open or closed. The file's
/// header tells its kind or, if the header is damaged, its name. Locks nothing and changes nothing.
/// What another process is writing at the same time may look torn.
///
/// Returns the number of damaged parts; each was also passed to `visit` as an item. An error from
/// `visit` ends the dump and is returned.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if the file does not belong to a database,
/// [`ErrorKind::NewerFormat`], or an I/O error.
pub fn dump(
    path: &Path,
    env: &Env,
    visit: &mut dyn FnMut(&DumpItem<'_>) -> Result<()>,
) -> Result<u64> {
    let mut dump = Dump { fs: &*env.fs, path, visit, damaged: 0 };
    match detect(&*env.fs, path)? {
        Detected::Current => manifest::current(&mut dump)?,
        Detected::File(FileKind::Manifest) => manifest::manifest(&mut dump)?,
        Detected::File(FileKind::Table) => table::table(&mut dump, &env.fs)?,
        Detected::File(FileKind::Log) => log::segment(&mut dump)?,
        Detected::File(FileKind::Prepared) => prepared::entry(&mut dump)?,
        Detected::File(FileKind::Blob) => blob::values(&mut dump)?,
    }
    Ok(dump.damaged)
}

enum Detected {
    Current,
    File(FileKind),
}

fn detect(fs: &dyn FileSystem, path: &Path) -> Result<Detected> {
    let file = fs.open_read(path, FileAccess::Positional)?;
    let mut bytes = vec![0; file.len().min(FILE_HEADER_LEN as u64) as usize];
    file.read_at(0, &mut bytes)?;
    let kinds = [FileKind::Log, FileKind::Table, FileKind::Manifest, FileKind::Prepared];
    for kind in kinds.into_iter().chain([FileKind::Blob]) {
        match FileHeader::decode(&bytes, kind) {
            Ok(_) => return Ok(Detected::File(kind)),
            Err(error) if error.is_newer_format() => return Err(error.in_file(path, 0)),
            Err(_) => {}
        }
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name == CURRENT {
        return Ok(Detected::Current);
    }
    if manifest_number(name).is_some() {
        return Ok(Detected::File(FileKind::Manifest));
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("tbl") => Ok(Detected::File(FileKind::Table)),
        Some("wal" | "spare" | "new") => Ok(Detected::File(FileKind::Log)),
        _ => Err(Error::invalid_argument(format!(
            "neither the header nor the name of {} is that of a file of a database; give CURRENT, a MANIFEST-*, \
             a *.tbl or a *.wal file",
            path.display()
        ))),
    }
}
