//! A position in a slice's index: the data block on which a cursor stands.

use super::index::{handle_of, index_entry};
use super::loader::Loader;
use super::reader::{Place, Table, Way};
use crate::error::ReadError;
use crate::format::Lsn;
use crate::table::cache::BlockRef;

/// A walk stands on one data block, or past either end (then it is not `on`).
#[derive(Default)]
pub(super) struct IndexWalk {
    is_on: bool,
    /// The index block over data blocks: the only index block, or the one at `top_index`. `None` if
    /// the slice has no index.
    leaf: Option<BlockRef>,
    /// Has a meaning only in an index of two levels.
    top_index: u32,
    index: u32,
}

impl IndexWalk {
    /// True if the walk stands on a block.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The place of the data block on which the walk stands. If there is no index, the block lies
    /// in the root, and this is the root's place.
    pub(super) fn place(&self, table: &Table) -> Result<Place, ReadError> {
        let Some(leaf) = &self.leaf else { return Ok(Place::at(table.root_at)) };
        let at = handle_of(leaf, index_entry(leaf, self.index)?, table.base)?;
        Ok(match &table.way {
            Way::Index(_) => Place::hinted(at, self.index),
            Way::Data(_) | Way::Top(_) => Place::at(at),
        })
    }

    pub(super) fn first(&mut self, table: &Table, loader: &mut Loader) -> Result<(), ReadError> {
        self.stand_on_leaf(table, loader, 0)?;
        self.index = 0;
        Ok(())
    }

    pub(super) fn last(&mut self, table: &Table, loader: &mut Loader) -> Result<(), ReadError> {
        let top_index = match &table.way {
            Way::Top(top) => top.entry_count() - 1,
            _ => 0,
        };
        self.stand_on_leaf(table, loader, top_index)?;
        self.index = self.leaf.as_ref().map_or(0, |leaf| leaf.entry_count() - 1);
        Ok(())
    }

    /// Moves to the block that can hold the smallest key at or above `key`. If that block does not
    /// hold it, the key is the first one of the next block.
    pub(super) fn seek(
        &mut self,
        table: &Table,
        loader: &mut Loader,
        key: &[u8],
    ) -> Result<(), ReadError> {
        if !self.is_leaf_covering(table, key)? {
            let top_index = match &table.way {
                Way::Top(top) => match top.search_restarts(key, Lsn::MAX)? {
                    Some((index, _)) => index,
                    None => return self.leave(),
                },
                _ => 0,
            };
            self.stand_on_leaf(table, loader, top_index)?;
        }
        let Some(leaf) = &self.leaf else { return Ok(()) };
        match leaf.search_restarts(key, Lsn::MAX)? {
            Some((index, _)) => {
                self.index = index;
                self.is_on = true;
                Ok(())
            }
            None => self.leave(),
        }
    }

    pub(super) fn next(&mut self, table: &Table, loader: &mut Loader) -> Result<(), ReadError> {
        let Some(leaf) = self.leaf.as_ref().filter(|_| self.is_on) else { return self.leave() };
        if self.index + 1 < leaf.entry_count() {
            self.index += 1;
            return Ok(());
        }
        match &table.way {
            Way::Top(top) if self.top_index + 1 < top.entry_count() => {
                self.stand_on_leaf(table, loader, self.top_index + 1)?;
                self.index = 0;
                Ok(())
            }
            _ => self.leave(),
        }
    }

    pub(super) fn prev(&mut self, table: &Table, loader: &mut Loader) -> Result<(), ReadError> {
        if !self.is_on || self.leaf.is_none() {
            return self.leave();
        }
        if self.index > 0 {
            self.index -= 1;
            return Ok(());
        }
        if self.top_index == 0 {
            return self.leave();
        }
        self.stand_on_leaf(table, loader, self.top_index - 1)?;
        self.index = self.leaf.as_ref().map_or(0, |leaf| leaf.entry_count() - 1);
        Ok(())
    }

    /// True if `key`, or the place where it would be, lies in the walk's block.
    pub(super) fn is_covering(&self, table: &Table, key: &[u8]) -> Result<bool, ReadError> {
        if !self.is_on {
            return Ok(false);
        }
        let Some(leaf) = &self.leaf else { return Ok(true) };
        let separator = leaf.unshared(index_entry(leaf, self.index)?);
        Ok(key <= separator && self.separator_before(table)?.is_none_or(|before| before < key))
    }

    /// True if the previous block ends with a version of `first`, the first key of this block.
    pub(super) fn is_continued(&self, table: &Table, first: &[u8]) -> Result<bool, ReadError> {
        Ok(self.is_on && self.separator_before(table)? == Some(first))
    }

    /// The separator of the previous data block.
    fn separator_before<'a>(&'a self, table: &'a Table) -> Result<Option<&'a [u8]>, ReadError> {
        let (block, index) = match (&self.leaf, &table.way) {
            (Some(leaf), _) if self.index > 0 => (leaf, self.index - 1),
            (Some(_), Way::Top(top)) if self.top_index > 0 => (top, self.top_index - 1),
            _ => return Ok(None),
        };
        Ok(Some(block.unshared(index_entry(block, index)?)))
    }

    /// True if `key` lies between the separators of the current leaf.
    fn is_leaf_covering(&self, table: &Table, key: &[u8]) -> Result<bool, ReadError> {
        let (Some(leaf), Way::Top(top)) = (&self.leaf, &table.way) else {
            return Ok(self.leaf.is_some());
        };
        let last = leaf.unshared(index_entry(leaf, leaf.entry_count() - 1)?);
        if key > last {
            return Ok(false);
        }
        match self.top_index.checked_sub(1) {
            Some(before) => Ok(top.unshared(index_entry(top, before)?) < key),
            None => Ok(true),
        }
    }

    fn stand_on_leaf(
        &mut self,
        table: &Table,
        loader: &mut Loader,
        top_index: u32,
    ) -> Result<(), ReadError> {
        self.is_on = false;
        self.leaf = match &table.way {
            Way::Data(_) => None,
            Way::Index(index) => Some(index.clone()),
            Way::Top(top) => {
                let entry = index_entry(top, top_index)?;
                let at = handle_of(top, entry, table.base)?;
                Some(loader.load_index(table, Place::hinted(at, top_index))?)
            }
        };
        self.top_index = top_index;
        self.is_on = true;
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ReadError> {
        self.is_on = false;
        Ok(())
    }
}
