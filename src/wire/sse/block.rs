//! The open block: what its lines said so far, and the event that its blank line makes of them.
//!
//! Values stay borrowed from the input until the input ends or a second `data` line has to be joined to the first.

use super::storage::{self, replace_within, reserve_within};
use super::{Event, Limits, Sink};

/// Bytes that may stand before the value of the longest data line in storage: `data: `.
pub(super) const DATA_NAME_BYTES: usize = 6;

/// What of the open block had to be copied.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The joined data from `data_from` on, once it can no longer be borrowed; meaningful while `has_data`.
    data: Vec<u8>,
    data_from: usize,
    has_data: bool,
    /// The latest event type.
    event: Vec<u8>,
}

/// What of the open block is still borrowed from the current input.
#[derive(Default)]
pub(super) struct Borrowed<'i> {
    /// The block's only data line so far.
    pub(super) data: Option<&'i [u8]>,
    /// The latest event type; overrides the block's own.
    pub(super) event: Option<&'i [u8]>,
}

/// The data would be longer than [`Limits::event_bytes`].
#[derive(Debug)]
pub(super) struct TooLarge;

impl Block {
    /// At the start of a stream.
    pub(super) fn reset(&mut self) {
        storage::empty(&mut self.data);
        storage::empty(&mut self.event);
        self.has_data = false;
    }

    /// Adds the value of a `data` line.
    #[inline]
    pub(super) fn add_data<'i>(
        &mut self,
        value: &'i [u8],
        open: &mut Borrowed<'i>,
        limits: &Limits,
    ) -> Result<(), TooLarge> {
        let before = match open.data {
            Some(first) => Some(first.len()),
            None => self.has_data.then(|| self.data.len() - self.data_from),
        };
        let joined = before.map_or(0, |bytes| bytes + 1) + value.len();
        if joined > limits.event_bytes {
            return Err(TooLarge);
        }
        if before.is_none() {
            open.data = Some(value);
            return Ok(());
        }
        if let Some(first) = open.data.take() {
            self.own_data(first, limits);
        }
        let ceiling_bytes = limits.event_bytes.saturating_add(DATA_NAME_BYTES);
        reserve_within(&mut self.data, 1 + value.len(), ceiling_bytes);
        self.data.push(b'\n');
        self.data.extend_from_slice(value);
        Ok(())
    }

    /// The blank line: hands out the block if it has data, and starts the next.
    #[inline]
    pub(super) fn dispatch<S: Sink + ?Sized>(&mut self, open: &mut Borrowed<'_>, id: &[u8], sink: &mut S) {
        if let Some(data) = open.data.take().or(self.data()) {
            sink.event(Event { event: open.event.unwrap_or(&self.event), data, id });
        }
        open.event = None;
        self.event.clear();
        self.data.clear();
        self.has_data = false;
    }

    /// The input ends: what is still borrowed from it becomes ours.
    #[inline]
    pub(super) fn keep(&mut self, open: &Borrowed<'_>, limits: &Limits) {
        if let Some(value) = open.data {
            self.own_data(value, limits);
        }
        if let Some(value) = open.event {
            replace_within(&mut self.event, value, limits.line_bytes);
        }
    }

    /// Takes the block's first data line as its data, name and all, and leaves other storage in its place.
    pub(super) fn adopt(&mut self, line: &mut Vec<u8>, data_from: usize) {
        std::mem::swap(line, &mut self.data);
        self.data_from = data_from;
        self.has_data = true;
    }

    /// The data that is ours; `None` when no `data` line was kept.
    #[inline]
    pub(super) fn data(&self) -> Option<&[u8]> {
        if self.has_data { self.data.get(self.data_from..) } else { None }
    }

    /// The event type that is ours.
    pub(super) fn event(&self) -> &[u8] {
        &self.event
    }

    /// Bytes held.
    pub(super) fn held_bytes(&self) -> usize {
        self.data.len() + self.event.len()
    }

    /// Bytes of storage allocated.
    pub(super) fn storage_bytes(&self) -> usize {
        self.data.capacity() + self.event.capacity()
    }

    fn own_data(&mut self, value: &[u8], limits: &Limits) {
        replace_within(&mut self.data, value, limits.event_bytes);
        self.data_from = 0;
        self.has_data = true;
    }
}
