//! Shows a blob file: its header and the values one after the other. It says nothing of keys:
//! tables have those, with addresses. Nothing says how long a stored value is, but its checksum
//! tells where it ends. So values behind one that is damaged are not found.
//!
//! A file whose end is that of a stream is shown as frames, an index and a trailer.

use super::{Dump, Field};
use crate::blob::{OpenStream, end_of_stream};
use crate::error::Result;
use crate::format::{FILE_HEADER_LEN, FileKind, StreamAddress};
use crate::table::cache::read_header_of;
use crate::table::{
    BlockFile, Decompressor, VALUE_LEN_MAX, decode_frame, find_frame_in, open_frame,
};
use crate::vfs::{FileAccess, ReadFile, len_in_memory};
use std::sync::Arc;

/// Frames are at most so much longer than their values.
const FRAME_ROOM: u64 = 1 << 10;

pub(super) fn values(dump: &mut Dump<'_>) -> Result<()> {
    let file = dump.fs.open_read(dump.path, FileAccess::Positional)?;
    let header = read_header_of(&*file, FileKind::Blob)?;
    dump.header(&header)?;
    if let Some(end) = end_of_stream(&*file) {
        return stream(dump, &file, end);
    }
    let (file, decompressor) = (BlockFile::new(file, header.salt), Decompressor::default());
    let (mut offset, mut values) = (FILE_HEADER_LEN as u64, 0);
    let (mut stored, mut value) = (Vec::new(), Vec::new());
    while offset < file.len() {
        // It may be what is left of a stream, which may be longer than memory.
        let Some(len) = find_frame_in(&file, offset, VALUE_LEN_MAX as u64 + FRAME_ROOM)? else {
            let rest = file.len() - offset;
            dump.damage(offset, &format!("no whole value begins here: {rest} bytes are left"))?;
            break;
        };
        stored.resize(len_in_memory(len, dump.path)?, 0);
        file.read_at(offset, &mut stored)?;
        let mark = file.mark(offset);
        let decoded = open_frame(&stored, mark).and_then(|(codec, _)| {
            decode_frame(&stored, mark, &decompressor, &mut value)?;
            Ok(codec)
        });
        match decoded {
            Ok(codec) => {
                let codec = format!("{codec:?}").to_lowercase();
                let fields = [
                    ("stored_len", Field::Number(len)),
                    ("codec", Field::Text(&codec)),
                    ("value_len", Field::Number(value.len() as u64)),
                ];
                dump.show(offset, 0, "value", &fields)?;
            }
            Err(error) => dump.absorb(&error.in_file(dump.path, offset))?,
        }
        (offset, values) = (offset + len, values + 1);
    }
    let fields = [("values", Field::Number(values)), ("file_len", Field::Number(file.len()))];
    dump.show(file.len(), 0, "end", &fields)
}

/// Shows the frames of a stream, its index and its trailer.
fn stream(
    dump: &mut Dump<'_>,
    file: &Arc<dyn ReadFile>,
    (address, index_at): (StreamAddress, u64),
) -> Result<()> {
    let mut frames = 0;
    match OpenStream::open(file.clone(), Arc::default(), &address) {
        Ok(mut stream) => stream.each_frame(&mut |handle, frame| {
            frames += 1;
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return dump.absorb(&error),
            };
            let fields = [
                ("stored_len", Field::Number(handle.len.into())),
                ("value_len", Field::Number(frame.len() as u64)),
            ];
            dump.show(handle.offset, 0, "frame", &fields)
        })?,
        Err(error) => dump.absorb(&error)?,
    }
    dump.show(index_at, 0, "index", &[("frames", Field::Number(frames))])?;
    let fields = [
        ("value_len", Field::Number(address.value_len)),
        ("file_len", Field::Number(address.file_len)),
        ("checksum", Field::Number(address.checksum)),
    ];
    dump.show(file.len(), 0, "end of stream", &fields)
}
