//! The origin of a slice: what a repair needs to know about it if the manifest is lost. Nothing
//! else reads it.
//!
//! ```text
//! label   name of the family (length, bytes), its options (length, JSON; empty: the defaults)
//! files   varint count, then file numbers, ascending: varint difference to the one before
//! ```
//!
//! The default family with default options needs no label. A slice with inputs was made by a
//! compaction. Together with the compaction's other outputs, it replaces the slices of its family
//! in the input files. It also replaces those in the ancestor files: files from which the inputs
//! had been made and which were still on disk when the compaction began. A repair that writes a
//! slice anew does the same, and names its inputs among the ancestors too.

use super::SliceMeta;
use super::context::TableContext;
use super::reader::read_root;
use crate::error::{DecodeError, Decoded, Result};
use crate::format::{Decoder, put_bytes, put_varint};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The origin that a slice states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) label: Option<Arc<Label>>,
    /// The files that a compaction read, ascending; empty for a flush.
    pub(crate) inputs: Arc<[u64]>,
    /// Files that the inputs replace and that were still there, ascending.
    pub(crate) ancestors: Arc<[u64]>,
}

impl Origin {
    /// States that a repair has written the slice, from what it could read of the inputs: these
    /// count as ancestors, too. An input of a compaction never does.
    pub(crate) fn note_repair_of(&mut self, inputs: &BTreeSet<u64>, ancestors: BTreeSet<u64>) {
        self.inputs = inputs.iter().copied().collect();
        self.ancestors = ancestors.union(inputs).copied().collect();
    }

    /// True if a repair has written the slice. It may lack what its inputs had lost by then.
    pub(crate) fn is_of_repair(&self) -> bool {
        !self.inputs.is_empty() && self.inputs.iter().all(|input| self.ancestors.contains(input))
    }
}

/// The origin that a slice in use states.
pub(crate) fn origin_of(context: &TableContext, meta: &SliceMeta) -> Result<Origin> {
    Ok(read_root(&context.files.get(meta.file)?, meta.root)?.origin)
}

/// The family's name and options when the slice was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// JSON, or empty for the defaults.
    pub(crate) options: Vec<u8>,
}

impl Label {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, self.name.as_bytes());
        put_bytes(&mut out, &self.options);
        out
    }

    pub(super) fn decode(field: &[u8]) -> Decoded<Label> {
        let mut decoder = Decoder::new(field);
        let name = String::from_utf8(decoder.bytes()?.to_vec())
            .map_err(|_| DecodeError::damaged("a slice's label is not UTF-8"))?;
        let options = decoder.bytes()?.to_vec();
        Ok(Label { name, options })
    }
}

pub(super) fn encode_files(inputs: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, inputs.len() as u64);
    let mut before = 0;
    for &input in inputs {
        put_varint(&mut out, input - before);
        before = input;
    }
    out
}

pub(super) fn decode_files(field: &[u8]) -> Decoded<Arc<[u64]>> {
    let mut decoder = Decoder::new(field);
    let count = decoder.varint()?;
    if count > decoder.remaining() as u64 {
        return Err(decoder.malformed("a slice of more files than fit the field"));
    }
    let mut inputs = Vec::with_capacity(count as usize);
    let mut input = 0u64;
    for _ in 0..count {
        let step = decoder.varint()?;
        input = match input.checked_add(step) {
            Some(next) => next,
            None => return Err(decoder.malformed("a file's number overflows")),
        };
        inputs.push(input);
    }
    Ok(inputs.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_hold() {
        let label = Label { name: "users".to_owned(), options: b"{}".to_vec() };
        assert_eq!(label.encode(), b"\x05users\x02{}");
        assert_eq!(Label::decode(b"\x05users\x02{}").unwrap(), label);
        assert_eq!(encode_files(&[7, 9, 300]), b"\x03\x07\x02\xa3\x02");
        assert_eq!(&*decode_files(b"\x03\x07\x02\xa3\x02").unwrap(), [7, 9, 300]);
    }

    #[test]
    fn hostile_fields_are_errors() {
        for bytes in [&b"\xff\xff\xff\xff\x0f"[..], b"\x02\x01", b""] {
            assert!(decode_files(bytes).is_err(), "{bytes:?}");
        }
        let overflow = [&b"\x02"[..], &[0xff; 9], &[1, 1]].concat();
        assert!(decode_files(&overflow).is_err());
        for bytes in [&b"\x05user"[..], b"\x01\xff\x00", b"\x01a"] {
            assert!(Label::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
