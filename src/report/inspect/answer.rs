//! The answer of an endpoint: what its events carried, counted, and how it ended, in the words of the case files.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::{Reader, event_columns, fact, preview, said, type_of};
use crate::report::terminal::layout::{clean, left};

/// What an answer said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerDoc {
    /// Status of the response; absent for a bare body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// Events up to the terminal, that included.
    pub events: u64,
    /// Events with visible content.
    pub content_chunks: u64,
    /// Events with reasoning.
    pub reasoning_chunks: u64,
    /// Events with tool calls.
    pub tool_call_chunks: u64,
    /// Events with a refusal.
    pub refusal_chunks: u64,
    /// Events with output of any kind.
    pub token_events: u64,
    /// Events without.
    pub tokenless_events: u64,
    /// Comment lines.
    pub keepalive_comments: u64,
    /// The visible text.
    pub content_text: String,
    /// The reasoning.
    pub reasoning_text: String,
    /// The arguments of all tool calls.
    pub tool_arguments: String,
    /// Number of the first event with output, from 0.
    pub first_token_event: Option<u64>,
    /// What it carried.
    pub first_token_kind: Option<&'static str>,
    /// Number of the first event with visible content.
    pub first_content_event: Option<u64>,
    /// Number of the last event with output.
    pub last_token_event: Option<u64>,
    /// By choice; of several the last.
    pub finish_reason: BTreeMap<String, String>,
    /// Of the prompt, by the server.
    pub prompt_tokens: Option<u64>,
    /// Of the completion, by the server.
    pub completion_tokens: Option<u64>,
    /// Of the reasoning, by the server.
    pub reasoning_tokens: Option<u64>,
    /// Found in a cache, by the server.
    pub cached_tokens: Option<u64>,
    /// Written to a cache, by the server; in the listing alone, because the case files have no word for it.
    #[serde(skip)]
    pub cache_creation_tokens: Option<u64>,
    /// The terminal came.
    pub done: bool,
    /// Events behind it.
    pub events_after_done: u64,
    /// Events that are not JSON.
    pub malformed_events: u64,
    /// What went wrong, when the answer failed.
    pub error: Option<ErrorDoc>,
    /// `ok`, `ok_no_tokens` or `failed`.
    pub outcome: &'static str,
    /// It came as one body, which has no events and no terminal; the listing leaves their lines out.
    #[serde(skip)]
    pub one_body: bool,
    /// What to do about it; in the listing alone.
    #[serde(skip)]
    pub hint: Option<&'static str>,
}

/// Why an answer failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorDoc {
    /// The outcome, as records name it.
    pub category: &'static str,
    /// What is known.
    pub message: Option<String>,
    /// The server's code, a number or a text.
    pub code: Option<CodeDoc>,
    /// The server's type.
    #[serde(rename = "type")]
    pub error_type: Option<String>,
}

/// An error code as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CodeDoc {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// Prints an answer while it is read.
#[derive(Debug)]
pub struct AnswerPrinter<W> {
    out: W,
    reader: Reader,
    events: u64,
    /// The beginning of the event before.
    before: Vec<u8>,
    /// The first failure to write; nothing is written after it.
    result: io::Result<()>,
}

/// How much of an event is compared with the one before: chunks of an answer begin alike, for some hundred bytes, and
/// what is new in them is what a reader looks for.
const COMPARED_BYTES: usize = 4 * 1024;
/// What is shown of the part that two events have in common.
const CONTEXT_BYTES: usize = 24;
const ELLIPSIS: &[u8] = "…".as_bytes();

/// Columns of the classification of an event.
const MEANING: usize = 22;

impl<W: Write> AnswerPrinter<W> {
    /// Begins to print. `out` should be buffered.
    pub const fn new(out: W, reader: Reader) -> Self {
        Self { out, reader, events: 0, before: Vec::new(), result: Ok(()) }
    }

    /// The next event: its type, its data, and the words for what it means.
    pub fn event(&mut self, event: &[u8], data: &[u8], meaning: &str) {
        let number = self.events;
        self.events += 1;
        if self.reader == Reader::Program {
            return;
        }
        let same = data.iter().zip(&self.before).take_while(|(a, b)| a == b).count();
        self.before.clear();
        self.before.extend_from_slice(data.get(..COMPARED_BYTES).unwrap_or(data));
        match data.get(same.saturating_sub(CONTEXT_BYTES)..) {
            Some(news) if same > CONTEXT_BYTES => {
                self.line(Some(number), &type_of(event), meaning, &[ELLIPSIS, news].concat());
            }
            _ => self.line(Some(number), &type_of(event), meaning, data),
        }
    }

    /// A comment line.
    pub fn comment(&mut self, text: &[u8]) {
        self.line(None, "", "comment", text);
    }

    /// The answer is over.
    ///
    /// # Errors
    /// The first failure to write, here or before.
    pub fn finish(mut self, answer: &AnswerDoc) -> io::Result<()> {
        self.result?;
        match self.reader {
            Reader::Program => {
                serde_json::to_writer(&mut self.out, answer)?;
                writeln!(self.out)?;
            }
            Reader::Person => answer.list(&mut self.out)?,
        }
        self.out.flush()
    }

    fn line(&mut self, number: Option<u64>, kind: &str, meaning: &str, data: &[u8]) {
        if self.reader == Reader::Program || self.result.is_err() {
            return;
        }
        let columns = format!("{}{} ", event_columns(number, kind), left(meaning, MEANING));
        self.result = writeln!(self.out, "{columns}{}", preview(data, columns.chars().count()));
    }
}

impl AnswerDoc {
    fn list(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out)?;
        if let Some(status) = self.http_status {
            fact(out, "status", &status.to_string())?;
        }
        if !self.one_body {
            fact(out, "events", &format!("{}, {} with output", self.events, self.token_events))?;
        }
        for (name, count) in [
            ("with content", self.content_chunks),
            ("with reasoning", self.reasoning_chunks),
            ("with tool calls", self.tool_call_chunks),
            ("with a refusal", self.refusal_chunks),
            ("not JSON", self.malformed_events),
            ("after the terminal", self.events_after_done),
            ("comments", self.keepalive_comments),
        ] {
            if count > 0 {
                fact(out, name, &count.to_string())?;
            }
        }
        for (name, text) in [
            ("content", &self.content_text),
            ("reasoning", &self.reasoning_text),
            ("tool arguments", &self.tool_arguments),
        ] {
            if !text.is_empty() {
                said(out, name, text.as_bytes())?;
            }
        }
        for (choice, reason) in &self.finish_reason {
            said(out, "finish reason", format!("{reason} (choice {choice})").as_bytes())?;
        }
        for (name, tokens) in [
            ("prompt tokens", self.prompt_tokens),
            ("completion tokens", self.completion_tokens),
            ("reasoning tokens", self.reasoning_tokens),
            ("cached tokens", self.cached_tokens),
            ("cache creation tokens", self.cache_creation_tokens),
        ] {
            if let Some(tokens) = tokens {
                fact(out, name, &tokens.to_string())?;
            }
        }
        if !self.one_body {
            fact(out, "terminal", if self.done { "seen" } else { "not seen" })?;
        }
        fact(out, "outcome", self.outcome)?;
        if let Some(error) = &self.error {
            let message = clean(error.message.as_deref().unwrap_or("no detail"));
            let hint = self.hint.map_or_else(String::new, |hint| format!(" ({hint})"));
            // Whole: it is what the listing is read for.
            fact(out, "why", &format!("{}: {message}{hint}", error.category))?;
        }
        Ok(())
    }
}
