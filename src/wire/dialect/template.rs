//! A remembered event: most events of a stream are the previous one with another text in the same place.
//!
//! An event that the scan was certain of is kept as what stood before its only output text (`head`, with the
//! opening quote) and behind it (`tail`, with the closing quote). A later event that is `head`, a string body that
//! is not empty, and `tail` again takes a parser through the same states, since a string body ends at the first
//! quote that is not escaped whatever it holds: so it means the same with the new text, and neither scan nor full
//! parse would say otherwise. Comparing two runs of bytes costs a tenth of scanning them.
//!
//! A stream whose events differ elsewhere (padding of random length, counts in every event) pays for a few vain
//! comparisons and then for none.

use super::Facts;
use super::cursor::Cursor;
use crate::record::OutputKind;

/// Vain comparisons in a row after which a stream is held to have no template. A server that changes its time
/// stamp every second loses one event in as many seconds and never comes near.
const MAX_MISSES: u8 = 8;

/// Longer events are not remembered: what repeats is short, and the memory is one per connection.
const MAX_BYTES: usize = 4096;

/// What is remembered of the previous events of a stream.
#[derive(Debug, Default)]
pub(super) struct Template {
    head: Vec<u8>,
    tail: Vec<u8>,
    known: Option<Known>,
    misses: u8,
}

/// What an event with the same head and tail means.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// The choice of the output.
    pub(super) choice: u32,
    /// The kind of the output.
    pub(super) kind: OutputKind,
    /// Everything else.
    pub(super) facts: Facts,
}

impl Template {
    /// Forgets everything and keeps the storage: a new stream has another id in its events.
    pub(super) fn start(&mut self) {
        self.known = None;
        self.misses = 0;
    }

    /// The meaning of an event like the remembered one, and its text between the quotes.
    #[inline]
    pub(super) fn recognise<'a>(&mut self, data: &'a [u8]) -> Option<(&Known, &'a [u8])> {
        let known = self.known.as_ref()?;
        let text = text_between(&self.head, data, &self.tail);
        match text {
            Some(text) => {
                self.misses = 0;
                Some((known, text))
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// Remembers an event whose only output is `text`, a part of `data`.
    #[inline]
    pub(super) fn learn(&mut self, data: &[u8], text: &[u8], known: impl FnOnce() -> Known) {
        if self.misses >= MAX_MISSES || text.is_empty() || data.len() > MAX_BYTES {
            // Nothing known, nothing compared.
            self.known = None;
            return;
        }
        let Some(start) = text.as_ptr().addr().checked_sub(data.as_ptr().addr()) else { return };
        let (Some(head), Some(tail)) = (data.get(..start), data.get(start + text.len()..)) else { return };
        self.head.clear();
        self.head.extend_from_slice(head);
        self.tail.clear();
        self.tail.extend_from_slice(tail);
        self.known = Some(known());
    }
}

/// The string body between `head` and `tail`, if `data` is the three together and the body is a good one.
#[inline]
fn text_between<'a>(head: &[u8], data: &'a [u8], tail: &[u8]) -> Option<&'a [u8]> {
    let rest = data.strip_prefix(head)?;
    let mut cursor = Cursor::new(rest);
    let text = cursor.string_body()?;
    if text.is_empty() || rest.get(text.len()..) != Some(tail) {
        return None;
    }
    if cursor.beyond_ascii() {
        std::str::from_utf8(text).ok()?;
    }
    Some(text)
}
