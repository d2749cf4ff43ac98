//! What a flush merges: a memtable, and the files of large commits.
//!
//! The files of one ingest may be very many, and lie apart. Such files are read one after the
//! other, so that one of them is open at a time: each open one has a buffer for what it reads.

use crate::cursor::{ConcatCursor, Cursor, Entry};
use crate::engine::{SpilledCursor, SpilledPart};
use crate::error::Result;
use crate::memtable::{Memtable, MemtableCursor};
use crate::read::LayerFiles;
use std::sync::Arc;

pub(crate) enum Input {
    Memtable(MemtableCursor),
    Layer(Box<SpilledCursor>),
    Layers(Box<ConcatCursor<LayerFiles>>),
}

impl Input {
    pub(super) fn memtable(memtable: &Arc<Memtable>) -> Input {
        Input::Memtable(MemtableCursor::new(memtable.clone()))
    }

    /// Files of large commits, as few inputs as follows from their order: those with the highest
    /// keys are first where they lie apart.
    pub(crate) fn layers(parts: &[SpilledPart]) -> impl Iterator<Item = Input> {
        let is_above = |one: &SpilledPart, next: &SpilledPart| {
            next.meta().extent().is_below(&one.meta().extent())
        };
        parts.chunk_by(is_above).map(|apart| match apart {
            [part] => Input::Layer(Box::new(part.job_cursor())),
            _ => {
                let files = LayerFiles::for_job(apart.iter().rev().cloned().collect());
                Input::Layers(Box::new(ConcatCursor::new(files)))
            }
        })
    }
}

macro_rules! each {
    ($input:expr, $cursor:ident => $call:expr) => {
        match $input {
            Input::Memtable($cursor) => $call,
            Input::Layer($cursor) => $call,
            Input::Layers($cursor) => $call,
        }
    };
}

impl Cursor for Input {
    fn seek_first(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek(key))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek_for_prev(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match self {
            Input::Memtable(cursor) => Cursor::next(cursor),
            Input::Layer(cursor) => Cursor::next(&mut **cursor),
            Input::Layers(cursor) => Cursor::next(&mut **cursor),
        }
    }

    fn prev_key(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev_key())
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        each!(self, cursor => cursor.entry())
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self {
            Input::Memtable(cursor) => Cursor::key(cursor),
            Input::Layer(cursor) => Cursor::key(&**cursor),
            Input::Layers(cursor) => Cursor::key(&**cursor),
        }
    }

    #[inline]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        match self {
            Input::Memtable(cursor) => Cursor::next_key(cursor, scratch),
            Input::Layer(cursor) => Cursor::next_key(&mut **cursor, scratch),
            Input::Layers(cursor) => Cursor::next_key(&mut **cursor, scratch),
        }
    }
}
