//! What a flush merges: a memtable, and the files of large commits.

use crate::cursor::{Cursor, Entry};
use crate::engine::{SpilledCursor, SpilledPart};
use crate::error::Result;
use crate::memtable::{Memtable, MemtableCursor};
use std::sync::Arc;

pub(super) enum Input {
    Memtable(MemtableCursor),
    Layer(Box<SpilledCursor>),
}

impl Input {
    pub(super) fn memtable(memtable: &Arc<Memtable>) -> Input {
        Input::Memtable(MemtableCursor::new(memtable.clone()))
    }

    pub(super) fn layer(part: &SpilledPart) -> Input {
        Input::Layer(Box::new(part.cursor(false)))
    }
}

macro_rules! each {
    ($input:expr, $cursor:ident => $call:expr) => {
        match $input {
            Input::Memtable($cursor) => $call,
            Input::Layer($cursor) => $call,
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
        }
    }

    #[inline]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        match self {
            Input::Memtable(cursor) => Cursor::next_key(cursor, scratch),
            Input::Layer(cursor) => Cursor::next_key(&mut **cursor, scratch),
        }
    }
}
