//! What an endpoint's answers look like, as a table: which events frame the text, and how each is written.
//!
//! The schedule (see `script`) walks through the table and knows nothing else of an endpoint. What is the same in all
//! events of a response is rendered once per request ([`Template`]); an event is then a few copies into a buffer that
//! is used again and again. Sans-IO. Shares nothing with `wire`.

use super::ask::{Ask, BadBody};
use crate::sim::framing;
use crate::sim::ledger::{EventKind, Service};
use crate::sim::script::{Answer, Step};

/// Appends one whole event, from its first field to its empty line.
pub(crate) type Write = fn(&Template, &Step, &Answer, &mut Vec<u8>);

/// An endpoint that generates text.
#[derive(Debug)]
pub(crate) struct Layout {
    /// What the ledger calls it.
    pub(crate) service: Service,
    /// Reads a request's body.
    pub(crate) read: fn(&[u8]) -> Result<Ask, BadBody>,
    /// Renders what all events of a response share.
    pub(super) prepare: fn(&mut Template),
    /// Events sent at once, before there is any output.
    pub(crate) at_once: &'static [Frame],
    /// Events sent together with the first output.
    pub(crate) opening: &'static [Frame],
    /// Reasoning; `None` where the endpoint has no place for it, and then there is none.
    pub(crate) reasoning: Option<Block>,
    /// Visible content.
    pub(crate) content: Block,
    /// Events sent together with the last output; the last of them is of the kind `Done`.
    pub(crate) closing: &'static [Frame],
    /// Appends the body of an answer in one piece.
    pub(super) write_body: fn(&Template, &Answer, &mut Vec<u8>),
}

/// A run of output events and what stands around them. Left out altogether where it has no token.
#[derive(Debug)]
pub(crate) struct Block {
    /// Events before the first output.
    pub(crate) open: &'static [Frame],
    /// One output event.
    pub(crate) delta: Frame,
    /// Events after the last output.
    pub(crate) close: &'static [Frame],
}

/// One event of a layout.
#[derive(Debug)]
pub(crate) struct Frame {
    /// What the ledger calls it.
    pub(crate) kind: EventKind,
    /// How it is written.
    pub(crate) write: Write,
}

/// What is the same in all events of one response, and what its usage will say.
#[derive(Debug)]
pub(crate) struct Template {
    layout: &'static Layout,
    /// The response's number, the only part of its id that varies.
    pub(super) id: u64,
    /// Seconds since the Unix epoch.
    pub(super) created: i64,
    pub(super) model: String,
    pub(super) prompt_tokens: u64,
    pub(super) continuous_usage: bool,
    /// What the endpoint's events, or its response objects, begin with.
    pub(super) prefix: Vec<u8>,
    /// The constant middle of reasoning events and of content events, where that differs between responses.
    pub(super) reasoning_delta: Vec<u8>,
    pub(super) content_delta: Vec<u8>,
}

impl Block {
    /// Output events alone, with nothing around them.
    pub(super) const fn bare(kind: EventKind, write: Write) -> Self {
        Self { open: &[], delta: Frame::new(kind, write), close: &[] }
    }
}

impl Frame {
    /// An event that `write` writes.
    pub(super) const fn new(kind: EventKind, write: Write) -> Self {
        Self { kind, write }
    }
}

impl Template {
    /// For a response with this id, made at `created` (seconds since the Unix epoch).
    pub(crate) fn new(layout: &'static Layout, id: u64, created: i64, ask: Ask) -> Self {
        let mut template = Self {
            layout,
            id,
            created,
            prompt_tokens: ask.prompt.tokens(),
            continuous_usage: ask.continuous_usage,
            model: ask.model,
            prefix: Vec::new(),
            reasoning_delta: Vec::new(),
            content_delta: Vec::new(),
        };
        (layout.prepare)(&mut template);
        template
    }

    /// Renders one event, chunk framing included, into `out`, which is emptied first. Returns where the event starts
    /// in it (the room for the size line is rarely used up).
    pub(crate) fn write_event(&self, step: &Step, answer: &Answer, out: &mut Vec<u8>) -> usize {
        framing::begin_chunk(out);
        (step.write)(self, step, answer, out);
        framing::end_chunk(step.planned.kind == EventKind::Done, out)
    }

    /// Renders the body of an answer in one piece.
    pub(crate) fn write_body(&self, answer: &Answer, out: &mut Vec<u8>) {
        (self.layout.write_body)(self, answer, out);
    }
}

/// Appends all text of one kind.
pub(super) fn write_all_text(answer: &Answer, kind: EventKind, out: &mut Vec<u8>) {
    let tokens = if kind == EventKind::Reasoning { answer.reasoning_tokens } else { answer.content_tokens };
    answer.write_text(kind, 0, u32::try_from(tokens).unwrap_or(u32::MAX), out);
}

/// Appends the text of one output event.
pub(super) fn write_delta(step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    answer.write_text(step.planned.kind, step.first_token, step.planned.tokens, out);
}
