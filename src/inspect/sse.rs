//! A plain event stream.

use std::io::{self, Write};

use super::Capture;
use crate::report::inspect::sse::{StreamEnd, StreamPrinter};
use crate::report::inspect::{LimitDoc, Reader};
use crate::wire::sse::{Event, Limits, Parser, Sink};

pub(super) fn print(capture: &Capture<'_>, out: impl Write, reader: Reader) -> io::Result<()> {
    let mut parser = Parser::new(Limits::default());
    let mut shown = Shown { printer: StreamPrinter::new(out, reader), retry: Vec::new() };
    let limit = capture.pieces().find_map(|piece| parser.feed(piece, &mut shown).err());
    let comments = parser.comments();
    let tail = parser.finish();
    shown.printer.finish(&StreamEnd {
        comments,
        retry: shown.retry,
        last_event_id: tail.last_event_id.to_vec(),
        block_open: tail.block_open,
        unterminated: tail.unterminated.to_vec(),
        limit: limit.map(|error| LimitDoc::at(error.offset(), error.to_string())),
    })
}

struct Shown<W> {
    printer: StreamPrinter<W>,
    retry: Vec<u64>,
}

impl<W: Write> Sink for Shown<W> {
    fn event(&mut self, event: Event<'_>) {
        self.printer.event(event.event, event.data, event.id);
    }

    fn comment(&mut self, text: &[u8]) {
        self.printer.aside("comment", text);
    }

    fn error_field(&mut self, value: &[u8]) {
        self.printer.aside("error field", value);
    }

    fn retry(&mut self, ms: u64) {
        self.printer.aside("retry, ms", ms.to_string().as_bytes());
        self.retry.push(ms);
    }
}
