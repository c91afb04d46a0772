//! The rows of a run in memory, packed: a request of a run takes some 100 bytes instead of a thousand, so that a run's
//! memory is about that of its file of stamps.
//!
//! Rows are added at the end and read from the beginning; there is no access by number. A reader unpacks one row at a
//! time. The bytes never leave the process, so their layout has no version.

mod coding;
mod pack;
mod unpack;

use std::borrow::Borrow;

use crate::metrics::row::RequestRow;
use crate::record::Phase;

use coding::Packer;
use pack::Before;

/// Bytes of a block: large enough that a run of a million requests has a few hundred, small enough that a short run
/// wastes nothing (what is not written is not resident). Blocks never move, so growing copies nothing.
const BLOCK_BYTES: usize = 1 << 20;

/// Rows in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    blocks: Vec<Vec<u8>>,
    len: usize,
    before: Before,
    packer: Packer,
}

/// A place between two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    block: usize,
    offset: usize,
    before: Before,
}

/// Unpacks rows one by one.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    blocks: &'a [Vec<u8>],
    at: Position,
}

/// Rows that can be gone through as often as is needed: packed ones, or a slice.
pub trait RowSource: Copy {
    /// A row or a reference to one.
    type Row: Borrow<RequestRow>;

    /// All rows in their order.
    fn rows(self) -> impl Iterator<Item = Self::Row>;

    /// Those that are no warm-up requests.
    fn measured(self) -> impl Iterator<Item = Self::Row> {
        self.rows().filter(|row| {
            let row: &RequestRow = row.borrow();
            row.phase != Phase::Warmup
        })
    }
}

impl<T: Copy + IntoIterator<Item: Borrow<RequestRow>>> RowSource for T {
    type Row = T::Item;

    fn rows(self) -> impl Iterator<Item = T::Item> {
        self.into_iter()
    }
}

impl Rows {
    /// No rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row at the end.
    pub fn push(&mut self, row: &RequestRow) {
        let block_is_full = |block: &Vec<u8>, more: usize| block.capacity() - block.len() < more;
        let mut before = self.before;
        let mut size = self.packer.pack(row, &mut before);
        if self.blocks.last().is_none_or(|block| block_is_full(block, size)) {
            // The first row of a block is told without the one before it, so that a block can be read alone.
            before = Before::default();
            size = self.packer.pack(row, &mut before);
            self.blocks.push(Vec::with_capacity(size.max(BLOCK_BYTES)));
        }
        if let Some(block) = self.blocks.last_mut() {
            self.packer.append_to(block);
        }
        self.before = before;
        self.len += 1;
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the rows take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// All rows.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.after(Position::default())
    }

    /// The rows after a position of an iterator over these rows, those that were added later included. A position
    /// of other rows gives no rows that mean anything, and no panic.
    #[must_use]
    pub fn after(&self, position: Position) -> Iter<'_> {
        Iter { blocks: &self.blocks, at: position }
    }
}

impl Iter<'_> {
    /// Where the next row begins.
    #[must_use]
    pub fn position(&self) -> Position {
        self.at
    }
}

impl Iterator for Iter<'_> {
    type Item = RequestRow;

    fn next(&mut self) -> Option<RequestRow> {
        let mut block = self.blocks.get(self.at.block)?;
        if self.at.offset >= block.len() {
            // A block that is being filled ends here for now; the next one may not be there yet.
            block = self.blocks.get(self.at.block + 1)?;
            self.at = Position { block: self.at.block + 1, ..Position::default() };
        }
        let mut bytes = block.get(self.at.offset..)?;
        let row = unpack::unpack(&mut bytes, &mut self.at.before)?;
        self.at.offset = block.len() - bytes.len();
        Some(row)
    }
}

impl<'a> IntoIterator for &'a Rows {
    type Item = RequestRow;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<R: Borrow<RequestRow>> FromIterator<R> for Rows {
    fn from_iter<T: IntoIterator<Item = R>>(rows: T) -> Self {
        let mut packed = Self::new();
        rows.into_iter().for_each(|row| packed.push(row.borrow()));
        packed
    }
}

#[cfg(test)]
mod tests;
