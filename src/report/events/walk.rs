//! Going through the chunks of a whole run, request by request, as often as a summary needs.
//!
//! Blocks come in the order of the rows, because both were written when a request ended, so that one walk over both needs
//! one request's chunks in memory. A file in another order was not written by this tool, or was changed since; it is read
//! into memory whole.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::io::Read;

use super::RequestKey;
use super::read::{Ending, EventsError, EventsReader, RunEvents};
use crate::aggregate::chunk_facts::Visit;
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;

/// A file and the rows of its requests.
#[derive(Debug)]
pub struct Walk<S, O> {
    rows: S,
    open: O,
    order: Order,
    ending: Ending,
}

/// What a first look at the blocks showed.
#[derive(Debug)]
enum Order {
    /// They come in the order of the rows, but for blocks of requests without a row: those that had not ended when the
    /// process did.
    OfRows {
        without_row: HashSet<RequestKey>,
    },
    Another,
}

impl<S: RowSource, R: Read, O: Fn() -> Result<EventsReader<R>, EventsError>> Walk<S, O> {
    /// Looks through the file that `open` opens.
    ///
    /// # Errors
    /// [`EventsError`]; damage after the header is no error but an [`Ending`].
    pub fn new(rows: S, open: O) -> Result<Self, EventsError> {
        let mut reader = open()?;
        let order = Order::of(rows, &mut reader)?;
        while reader.next_block()?.is_some() {}
        let ending = reader.end();
        Ok(Self { rows, open, order, ending })
    }

    /// How the file ended.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// Hands every row with its chunks to `visit`, in the order of the rows.
    ///
    /// # Errors
    /// [`EventsError`].
    pub fn each(&self, visit: &mut Visit<'_>) -> Result<(), EventsError> {
        let mut reader = (self.open)()?;
        let Order::OfRows { without_row } = &self.order else {
            let events = RunEvents::rest(reader)?;
            self.rows.rows().for_each(|row| visit(row.borrow(), events.of(RequestKey::of(row.borrow()))));
            return Ok(());
        };
        let mut next = reader.next_block()?;
        let mut chunks = Vec::new();
        for row in self.rows.rows() {
            let row: &RequestRow = row.borrow();
            let key = RequestKey::of(row);
            chunks.clear();
            while let Some(block) = next.take_if(|block| block.key == key || without_row.contains(&block.key))
            {
                if block.key == key {
                    chunks.extend(block.chunks);
                }
                next = reader.next_block()?;
            }
            visit(row, &chunks);
        }
        Ok(())
    }
}

impl Order {
    fn of(rows: impl RowSource, reader: &mut EventsReader<impl Read>) -> Result<Self, EventsError> {
        let key = |row: &RequestRow| RequestKey::of(row);
        let mut known: Option<HashSet<RequestKey>> = None;
        let mut without_row = HashSet::new();
        let (mut left, mut passed, mut last) = (rows.rows(), 0, None);
        while let Some(block) = reader.next_block()? {
            if last == Some(block.key) || without_row.contains(&block.key) {
                continue;
            }
            if known.as_ref().is_none_or(|known| known.contains(&block.key)) {
                if let Some(skipped) = left.position(|row| key(row.borrow()) == block.key) {
                    passed += skipped + 1;
                    last = Some(block.key);
                    continue;
                }
                let known = known.get_or_insert_with(|| rows.rows().map(|row| key(row.borrow())).collect());
                if known.contains(&block.key) {
                    return Ok(Self::Another);
                }
                left = rows.rows();
                if let Some(skipped) = passed.checked_sub(1) {
                    left.nth(skipped);
                }
            }
            without_row.insert(block.key);
        }
        Ok(Self::OfRows { without_row })
    }
}
