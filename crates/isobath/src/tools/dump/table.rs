//! Shows a table: blocks, separators and entries.

use super::prepared::{self, stream};
use super::{Dump, Field};
use crate::cursor::Entry;
use crate::error::Result;
use crate::format::{Address, OpKind, StreamAddress};
use crate::span::Fragment;
use crate::table::{
    BlockHandle, BlockKind, DumpItem, OldestDelete, Root, Sketch, SliceMeta, TableFile,
};
use crate::vfs::FileSystem;
use std::sync::Arc;

pub(super) fn table(dump: &mut Dump<'_>, fs: &Arc<dyn FileSystem>) -> Result<()> {
    let file = match TableFile::open(fs, dump.path) {
        Ok(file) => file,
        Err(error) => return dump.absorb(&error),
    };
    // Entries lie in a block and are shown with the offset of that block.
    let mut block_at = 0;
    file.dump(&mut |item| item_of(dump, item, &mut block_at))
}

fn item_of(dump: &mut Dump<'_>, item: DumpItem<'_>, block_at: &mut u64) -> Result<()> {
    match item {
        DumpItem::Header(header) => dump.header(header),
        DumpItem::Block { kind, handle, codec, decoded_len } => {
            *block_at = handle.offset;
            block(dump, kind, handle, &format!("{codec:?}").to_lowercase(), decoded_len)
        }
        DumpItem::Slice { root, meta } => slice(dump, root, meta),
        DumpItem::Separator { key, seq, leads_to } => {
            let to = ("leads_to", Field::Number(leads_to.offset));
            let fields = [to, ("seq", Field::Lsn(seq)), ("key", Field::Bytes(key))];
            dump.show(*block_at, 1, "separator", &fields)
        }
        DumpItem::Entry(entry) => show_entry(dump, &entry, *block_at),
        DumpItem::Damage(error) => dump.absorb(error),
        DumpItem::Footer { offset, file_len } => {
            dump.show(offset, 0, "footer", &[("file_len", Field::Number(file_len))])
        }
    }
}

fn show_entry(dump: &mut Dump<'_>, entry: &Entry<'_>, block_at: u64) -> Result<()> {
    let mut fields = vec![
        ("kind", Field::Text(entry.kind.name())),
        ("seq", Field::Lsn(entry.seq)),
        ("key", Field::Bytes(entry.key)),
    ];
    let is_separated = entry.kind.is_separated();
    match is_separated.then(|| Address::of(entry.kind, entry.value)) {
        Some(Ok(address)) => {
            fields.extend(prepared::end(entry.kind, entry.value));
            fields.extend([
                ("file", Field::Number(address.file)),
                ("offset", Field::Number(address.offset)),
                ("stored_len", Field::Number(address.stored_len.into())),
                ("value_len", Field::Number(address.value_len.into())),
            ]);
        }
        Some(Err(_)) => fields.push(("no_address", Field::Bytes(entry.value))),
        None if entry.kind.is_streamed() => match StreamAddress::of(entry.kind, entry.value) {
            Ok(address) => fields.extend(stream(entry.kind, entry.value, &address)),
            Err(_) => fields.push(("no_address", Field::Bytes(entry.value))),
        },
        None => fields.extend(prepared::value(entry.kind, entry.value)),
    }
    dump.show(block_at, 1, "entry", &fields)
}

fn slice(dump: &mut Dump<'_>, root: &Root, meta: &SliceMeta) -> Result<()> {
    let at = meta.root.offset;
    let fields = [
        ("family", Field::Number(meta.family.into())),
        ("entries", Field::Number(meta.entries)),
        ("deletes", Field::Number(meta.deletes)),
        ("data_blocks", Field::Number(root.data_blocks)),
        ("disk_bytes", Field::Number(meta.disk_bytes)),
        ("raw_bytes", Field::Number(meta.raw_bytes)),
        ("min_seq", Field::Lsn(meta.min_seq)),
        ("max_seq", Field::Lsn(meta.max_seq)),
        ("smallest", Field::Bytes(&meta.smallest)),
        ("largest", Field::Bytes(&meta.largest)),
    ];
    dump.show(at, 1, "slice", &fields)?;
    if root.has_slotted {
        dump.show(at, 2, "slotted blocks", &[])?;
    }
    for Fragment { start, end, seqs } in root.spans.fragments() {
        let seqs: Vec<String> = seqs.iter().map(u64::to_string).collect();
        let seqs = seqs.join(" ");
        let mut fields = vec![("seqs", Field::Text(&seqs)), ("start", Field::Bytes(start))];
        fields.extend(end.as_ref().map(|end| ("end", Field::Bytes(end))));
        dump.show(at, 2, OpKind::DeleteRange.name(), &fields)?;
    }
    for share in &root.blobs {
        let fields = [
            ("file", Field::Number(share.file)),
            ("values", Field::Number(share.values)),
            ("bytes", Field::Number(share.bytes)),
        ];
        dump.show(at, 2, "blob file", &fields)?;
    }
    for share in &root.streams {
        let fields = [("file", Field::Number(share.file)), ("len", Field::Number(share.len))];
        dump.show(at, 2, "stream", &fields)?;
    }
    if let Some(OldestDelete { seq, flushed_ms }) = root.oldest_delete {
        let fields = [("seq", Field::Lsn(seq)), ("flushed_ms", Field::Number(flushed_ms))];
        dump.show(at, 2, "oldest delete", &fields)?;
    }
    if let Some(stored) = &root.sketch {
        let mut sketch = Sketch::default();
        // One of an unknown form has no figure.
        if sketch.add_stored(stored).unwrap_or(false) {
            dump.show(at, 2, "sketch", &[("distinct_keys", Field::Number(sketch.estimate()))])?;
        }
    }
    if let Some(label) = root.origin.label.as_deref() {
        let fields =
            [("name", Field::Text(&label.name)), ("options", Field::Bytes(&label.options))];
        dump.show(at, 2, "label", &fields)?;
    }
    for (name, files) in [("inputs", &root.origin.inputs), ("ancestors", &root.origin.ancestors)] {
        if !files.is_empty() {
            let files: Vec<String> = files.iter().map(u64::to_string).collect();
            dump.show(at, 2, name, &[("files", Field::Text(&files.join(" ")))])?;
        }
    }
    for (tag, field) in &root.unknown {
        let fields = [("tag", Field::Number(*tag)), ("len", Field::Number(field.len() as u64))];
        dump.show(at, 2, "unknown field", &fields)?;
    }
    Ok(())
}

fn block(
    dump: &mut Dump<'_>,
    kind: BlockKind,
    handle: BlockHandle,
    codec: &str,
    decoded_len: usize,
) -> Result<()> {
    let name = match kind {
        BlockKind::Data => "data block",
        BlockKind::Filter => "filter",
        BlockKind::Index => "index block",
        BlockKind::Root => "root",
        BlockKind::Directory => "directory",
    };
    let fields = [
        ("len", Field::Number(handle.len.into())),
        ("codec", Field::Text(codec)),
        ("decoded_len", Field::Number(decoded_len as u64)),
    ];
    dump.show(handle.offset, 0, name, &fields)
}
