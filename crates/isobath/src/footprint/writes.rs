//! The write set: the bytes of the operations, in chunks, and their indexes (`index.rs`), one of
//! operations on keys and one of range deletes (`spans.rs`).
//!
//! A chunk is written only while nothing shares it: not an open iterator, and not a value that one
//! returned. Otherwise the next operation goes into a new chunk. So what an iterator or a value
//! points to never changes. A value that is written again in place of an older one takes the older
//! one's bytes if it fits there, so that a counter in a loop does not grow the set.

use super::index::{Entries, Entry, Index, Place, Spot};
use crate::cursor::key_head;
use crate::format::{FamilyId, OpKind};
use std::sync::Arc;

/// The smallest and the largest chunk. Between these lengths, a new chunk has an eighth of the
/// length of all chunks so far, so chunks that stay half empty waste little.
const CHUNK_MIN: usize = 512;
const CHUNK_MAX: usize = 64 << 10;
/// A value of at least this length gets a chunk of its own. The chunk holds nothing else, so the
/// value is copied only once.
const OWN_CHUNK_MIN: usize = 16 << 10;

/// The most that new chunks take beside the key and the value for which they are made, where all
/// chunks take less than so many bytes.
pub(super) fn chunks_ahead(bytes: u64) -> u64 {
    2 * (bytes / 8).clamp(CHUNK_MIN as u64, CHUNK_MAX as u64)
}

/// The memory that an entry of the index stands for, its share of the lists included.
pub(super) const ENTRY_CHARGE: u64 = 64;

/// The bytes of keys and values.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    chunks: Vec<Arc<[u8]>>,
    /// The chunk that takes small pieces, if there is one, and how much of it is in use.
    open: Option<usize>,
    used: usize,
    /// The sum of all chunks' lengths.
    bytes: u64,
}

impl Chunks {
    #[inline]
    pub(super) fn bytes(&self, place: Place) -> &[u8] {
        if place.len == 0 {
            return &[];
        }
        &self.chunks[place.chunk as usize][place.at as usize..][..place.len as usize]
    }

    /// The chunk of a place, to be kept.
    pub(super) fn chunk(&self, place: Place) -> &Arc<[u8]> {
        &self.chunks[place.chunk as usize]
    }

    /// Copies a piece in.
    pub(super) fn add(&mut self, piece: &[u8]) -> Place {
        if piece.is_empty() {
            return Place::default();
        }
        let len = piece.len() as u32;
        if piece.len() >= OWN_CHUNK_MIN {
            return Place { chunk: self.push(piece.into()), at: 0, len };
        }
        let at = self.used;
        if let Some(open) = self.open
            && let Some(chunk) = Arc::get_mut(&mut self.chunks[open])
            && let Some(room) = chunk.get_mut(at..at + piece.len())
        {
            room.copy_from_slice(piece);
            self.used += piece.len();
            return Place { chunk: open as u32, at: at as u32, len };
        }
        let chunk_len = (self.bytes as usize / 8).clamp(CHUNK_MIN, CHUNK_MAX).max(piece.len());
        let mut chunk: Arc<[u8]> = std::iter::repeat_n(0, chunk_len).collect();
        if let Some(fresh) = Arc::get_mut(&mut chunk) {
            fresh[..piece.len()].copy_from_slice(piece);
        }
        let chunk = self.push(chunk);
        (self.open, self.used) = (Some(chunk as usize), piece.len());
        Place { chunk, at: 0, len }
    }

    fn push(&mut self, chunk: Arc<[u8]>) -> u32 {
        self.bytes += chunk.len() as u64;
        self.chunks.push(chunk);
        (self.chunks.len() - 1) as u32
    }

    /// Writes a piece over another one that is at least as long, if the chunk is not shared.
    pub(super) fn overwrite(&mut self, old: Place, piece: &[u8]) -> Option<Place> {
        if piece.len() > old.len as usize {
            return None;
        }
        if piece.is_empty() {
            return Some(Place { len: 0, ..old });
        }
        let chunk = Arc::get_mut(self.chunks.get_mut(old.chunk as usize)?)?;
        chunk[old.at as usize..][..piece.len()].copy_from_slice(piece);
        Some(Place { len: piece.len() as u32, ..old })
    }

    /// Gives up everything but the memory of the first chunk.
    fn clear(&mut self) {
        self.chunks.truncate(1);
        self.bytes = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        (self.open, self.used) = (self.chunks.first().map(|_| 0), 0);
    }

    /// Gives up everything that was added since a mark.
    fn cut(&mut self, mark: ChunksMark) {
        debug_assert!(mark.chunks <= self.chunks.len(), "a mark is of chunks that are gone");
        debug_assert!(mark.bytes <= self.bytes, "a mark is of bytes that are gone");
        debug_assert!(mark.chunks <= self.chunks.len(), "a mark lies behind what there is");
        self.chunks.truncate(mark.chunks);
        (self.open, self.used, self.bytes) = (mark.open, mark.used, mark.bytes);
    }
}

/// How far the chunks were filled.
#[derive(Clone, Copy, Debug, Default)]
struct ChunksMark {
    chunks: usize,
    open: Option<usize>,
    used: usize,
    bytes: u64,
}

/// What an iterator shares with the transaction until the transaction changes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    /// The operations on keys. They come after all range deletes.
    pub(super) index: Index,
    /// The range deletes, by where they begin.
    pub(super) spans: Index,
    pub(super) chunks: Chunks,
}

/// How far a write set had got: [`Writes::cut`] forgets the bytes added since.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritesMark(ChunksMark);

/// The operations of a transaction.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// None before the first write.
    body: Option<Arc<Body>>,
}

/// An operation of the write set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) family: FamilyId,
    pub(crate) kind: OpKind,
    /// Where a range delete begins.
    pub(crate) key: &'a [u8],
    /// Empty for a delete. Where a range delete ends, or empty.
    pub(crate) value: &'a [u8],
}

/// Walks over operations by family, of each the range deletes first, then by key.
#[derive(Clone)]
pub(crate) struct OperationsIter<'a>(Option<Both<'a>>);

#[derive(Clone)]
struct Both<'a> {
    body: &'a Body,
    spans: Entries<'a>,
    keys: Entries<'a>,
}

impl<'a> Iterator for OperationsIter<'a> {
    type Item = Operation<'a>;

    #[inline]
    fn next(&mut self) -> Option<Operation<'a>> {
        let Both { body, spans, keys } = self.0.as_mut()?;
        let is_key_next = match (spans.peek(), keys.peek()) {
            (Some(span), Some(key)) => key.family < span.family,
            (span, _) => span.is_none(),
        };
        let entry = if is_key_next { keys.next() } else { spans.next() };
        entry.map(|entry| body.operation(entry))
    }
}

impl Writes {
    /// The number of operations.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.index.len() + body.spans.len())
    }

    /// The memory that the set takes.
    #[inline]
    pub(super) fn charge(&self) -> u64 {
        let Some(body) = &self.body else { return 0 };
        body.chunks.bytes + (body.index.len() + body.spans.len()) as u64 * ENTRY_CHARGE
    }

    /// What an iterator keeps of the set: the set as it is now.
    pub(super) fn share(&self) -> Option<&Arc<Body>> {
        self.body.as_ref()
    }

    #[inline]
    pub(super) fn get(&self, family: FamilyId, key: &[u8]) -> Option<(&Body, &Entry)> {
        let body = self.body.as_deref()?;
        let spot = body.index.find(&body.chunks, family, key).ok()?;
        Some((body, body.index.get(spot)?))
    }

    /// Sets the operation of a key. Returns the key's entry, and the one that it replaced. With
    /// `keeps_old`, the bytes of the replaced operation stay.
    pub(super) fn set(
        &mut self,
        Operation { family, kind, key, value }: Operation<'_>,
        keeps_old: bool,
    ) -> (Entry, Option<Entry>) {
        debug_assert!(!kind.is_span(), "a range delete has an index of its own");
        let Body { index, chunks, .. } = self.body_mut();
        match index.find(chunks, family, key) {
            Ok(spot) => {
                let entry = index.entry_mut(spot);
                let old = *entry;
                let place = if keeps_old { None } else { chunks.overwrite(old.value, value) };
                entry.value = place.unwrap_or_else(|| chunks.add(value));
                debug_assert_eq!(chunks.bytes(entry.value), value, "an operation lost its value");
                entry.kind = kind;
                (*entry, Some(old))
            }
            Err(spot) => {
                let (head, key, value) = (key_head(key), chunks.add(key), chunks.add(value));
                let entry = Entry { head, family, key, value, kind };
                index.insert(spot, entry);
                debug_assert!(
                    index.find(chunks, family, chunks.bytes(entry.key)).is_ok(),
                    "an operation is not found again"
                );
                (entry, None)
            }
        }
    }

    /// Takes a change back: `entry` is the one that was set or removed, `previous` the one before.
    pub(super) fn restore(&mut self, entry: Entry, previous: Option<Entry>) {
        let Body { index, spans, chunks } = self.body_mut();
        let index = if entry.kind.is_span() { spans } else { index };
        match (index.find(chunks, entry.family, chunks.bytes(entry.key)), previous) {
            (Ok(spot), Some(previous)) => *index.entry_mut(spot) = previous,
            (Ok(spot), None) => index.remove(spot),
            (Err(spot), Some(previous)) => index.insert(spot, previous),
            (Err(_), None) => {}
        }
    }

    pub(super) fn mark(&self) -> WritesMark {
        let of = |Chunks { chunks, open, used, bytes }: &Chunks| ChunksMark {
            chunks: chunks.len(),
            open: *open,
            used: *used,
            bytes: *bytes,
        };
        WritesMark(self.body.as_ref().map(|body| of(&body.chunks)).unwrap_or_default())
    }

    /// Copies the bytes that entries still refer to into new chunks, if other bytes take more than
    /// half of the present chunks. Returns false if they do not. No savepoint may be there, since
    /// its log says where the old bytes are.
    pub(super) fn compact(&mut self) -> bool {
        let Some(old) = &self.body else { return false };
        let entries = old.index.iter().chain(old.spans.iter());
        let left: u64 = entries.map(|entry| u64::from(entry.key.len + entry.value.len)).sum();
        if left > old.chunks.bytes / 2 {
            return false;
        }
        let Body { mut index, mut spans, mut chunks } = Body::default();
        for (from, to) in [(&old.index, &mut index), (&old.spans, &mut spans)] {
            for entry in from.iter() {
                let key = chunks.add(old.chunks.bytes(entry.key));
                let value = chunks.add(old.chunks.bytes(entry.value));
                to.insert(to.end(), Entry { key, value, ..*entry });
            }
            debug_assert_eq!(from.len(), to.len(), "an operation was lost");
        }
        self.body = Some(Arc::new(Body { index, spans, chunks }));
        true
    }

    /// Forgets the bytes that were added since the mark. No entry refers to them any more.
    pub(super) fn cut(&mut self, mark: WritesMark) {
        if let Some(body) = &mut self.body {
            Arc::make_mut(body).chunks.cut(mark.0);
        }
    }

    /// The operations by family, of each the range deletes first, then by key.
    pub(super) fn iter(&self) -> OperationsIter<'_> {
        let both = self.body.as_deref().map(|body| Both {
            body,
            spans: body.spans.iter(),
            keys: body.index.iter(),
        });
        OperationsIter(both)
    }

    pub(super) fn body(&self) -> Option<&Body> {
        self.body.as_deref()
    }

    pub(super) fn body_mut(&mut self) -> &mut Body {
        Arc::make_mut(self.body.get_or_insert_default())
    }

    pub(super) fn clear(&mut self) {
        match self.body.as_mut().and_then(Arc::get_mut) {
            Some(body) => {
                body.index.clear();
                body.spans.clear();
                body.chunks.clear();
            }
            None => self.body = None,
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let Some(body) = &self.body else { return };
        body.index.check(&body.chunks);
        body.spans.check(&body.chunks);
        body.check_spans();
        let bytes: usize = body.chunks.chunks.iter().map(|chunk| chunk.len()).sum();
        assert_eq!(body.chunks.bytes, bytes as u64);
    }
}

impl Body {
    #[inline]
    pub(super) fn operation(&self, entry: &Entry) -> Operation<'_> {
        Operation {
            family: entry.family,
            kind: entry.kind,
            key: self.chunks.bytes(entry.key),
            value: self.chunks.bytes(entry.value),
        }
    }

    /// The spot of the first entry at or above a key of a family.
    pub(super) fn lower_bound(&self, family: FamilyId, key: &[u8]) -> Spot {
        match self.index.find(&self.chunks, family, key) {
            Ok(spot) | Err(spot) => spot,
        }
    }
}
