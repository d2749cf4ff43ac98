//! Shows a table: blocks, separators and entries.

use super::dump::{Dump, Field};
use crate::error::Result;
use crate::format::OpKind;
use crate::table::{BlockHandle, BlockKind, DumpItem, TableFile};
use crate::vfs::FileSystem;
use std::sync::Arc;

pub(super) fn table(dump: &mut Dump<'_>, fs: &Arc<dyn FileSystem>) -> Result<()> {
    let file = match TableFile::open(fs, dump.path) {
        Ok(file) => file,
        Err(error) => return dump.absorb(&error),
    };
    // Entries lie in a block: they are shown with its offset.
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
        DumpItem::Slice { root, meta } => dump.show(
            meta.root.offset,
            1,
            "slice",
            &[
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
            ],
        ),
        DumpItem::Separator { key, seq, leads_to } => {
            let to = ("leads_to", Field::Number(leads_to.offset));
            let fields = [to, ("seq", Field::Lsn(seq)), ("key", Field::Bytes(key))];
            dump.show(*block_at, 1, "separator", &fields)
        }
        DumpItem::Entry(entry) => {
            let kind = if entry.kind == OpKind::Put { "put" } else { "delete" };
            let fields = [
                ("kind", Field::Text(kind)),
                ("seq", Field::Lsn(entry.seq)),
                ("key", Field::Bytes(entry.key)),
                ("value", Field::Bytes(entry.value)),
            ];
            let shown = if entry.kind == OpKind::Put { &fields[..] } else { &fields[..3] };
            dump.show(*block_at, 1, "entry", shown)
        }
        DumpItem::Damage(error) => dump.absorb(error),
        DumpItem::Footer { offset, file_len } => {
            dump.show(offset, 0, "footer", &[("file_len", Field::Number(file_len))])
        }
    }
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
