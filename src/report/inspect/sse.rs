//! A plain event stream: every event as the standard dispatches it, and what is left at the end.

use std::io::{self, Write};

use serde::Serialize;

use super::{LimitDoc, Reader, base64, event_columns, fact, preview, said, text, type_of};

/// What a stream left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamEnd {
    /// Comment lines.
    pub comments: u64,
    /// Accepted reconnection times, in milliseconds.
    pub retry: Vec<u64>,
    /// The last event ID buffer.
    pub last_event_id: Vec<u8>,
    /// A data line waits for its blank line.
    pub block_open: bool,
    /// Bytes after the last line end.
    pub unterminated: Vec<u8>,
    /// Why the rest was not read.
    pub limit: Option<LimitDoc>,
}

/// Prints a stream while it is read, so that its length is no matter.
#[derive(Debug)]
pub struct StreamPrinter<W> {
    out: W,
    reader: Reader,
    events: u64,
    /// The first failure to write; nothing is written after it.
    result: io::Result<()>,
}

#[derive(Serialize)]
struct EventDoc<'a> {
    event: &'a str,
    data: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_raw_b64: Option<String>,
    id: &'a str,
}

#[derive(Serialize)]
struct EndDoc<'a> {
    comments: u64,
    retry: &'a [u64],
    last_event_id: &'a str,
    pending_block_at_eof: bool,
    unterminated_tail_b64: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a LimitDoc>,
}

impl<W: Write> StreamPrinter<W> {
    /// Begins to print. `out` should be buffered.
    pub fn new(out: W, reader: Reader) -> Self {
        let mut printer = Self { out, reader, events: 0, result: Ok(()) };
        if reader == Reader::Program {
            printer.attempt(|out| out.write_all(b"{\"events\":["));
        }
        printer
    }

    /// The next event; an empty type is a message.
    pub fn event(&mut self, event: &[u8], data: &[u8], id: &[u8]) {
        let number = self.events;
        self.events += 1;
        match self.reader {
            Reader::Program => self.attempt(|out| {
                if number > 0 {
                    out.write_all(b",")?;
                }
                let raw = std::str::from_utf8(data).is_err().then(|| base64(data));
                let (event, data, id) = (type_of(event), text(data), text(id));
                let doc = EventDoc { event: &event, data: &data, data_raw_b64: raw, id: &id };
                Ok(serde_json::to_writer(out, &doc)?)
            }),
            Reader::Person => {
                let columns = event_columns(Some(number), &type_of(event));
                let used = columns.chars().count();
                self.attempt(|out| writeln!(out, "{columns}{}", preview(data, used)));
            }
        }
    }

    /// A line that is no part of an event.
    pub fn aside(&mut self, what: &str, value: &[u8]) {
        if self.reader == Reader::Person {
            let columns = event_columns(None, what);
            let used = columns.chars().count();
            self.attempt(|out| writeln!(out, "{columns}{}", preview(value, used)));
        }
    }

    /// The end of the stream.
    ///
    /// # Errors
    /// The first failure to write, here or before.
    pub fn finish(mut self, end: &StreamEnd) -> io::Result<()> {
        let events = self.events;
        match self.reader {
            Reader::Program => self.attempt(|out| {
                let doc = serde_json::to_string(&EndDoc {
                    comments: end.comments,
                    retry: &end.retry,
                    last_event_id: &text(&end.last_event_id),
                    pending_block_at_eof: end.block_open,
                    unterminated_tail_b64: base64(&end.unterminated),
                    error: end.limit.as_ref(),
                })?;
                // The object began with its events.
                writeln!(out, "],{}", doc.strip_prefix('{').unwrap_or(&doc))
            }),
            Reader::Person => self.attempt(|out| {
                writeln!(out)?;
                fact(out, "events", &events.to_string())?;
                fact(out, "comments", &end.comments.to_string())?;
                if !end.last_event_id.is_empty() {
                    said(out, "last event id", &end.last_event_id)?;
                }
                if end.block_open {
                    fact(out, "open block", "data without the blank line that would have dispatched it")?;
                }
                if !end.unterminated.is_empty() {
                    said(out, "unfinished last line", &end.unterminated)?;
                }
                match &end.limit {
                    Some(limit) => fact(out, "not read on", &limit.message),
                    None => Ok(()),
                }
            }),
        }
        self.result.and_then(|()| self.out.flush())
    }

    fn attempt(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.result.is_ok() {
            self.result = write(&mut self.out);
        }
    }
}
