//! The answer of an endpoint, read by the very reader that a run uses.

use std::io::{self, Write};

use super::{Capture, HTTP_START};
use crate::record::{ErrorDetail, Outcome};
use crate::report::inspect::Reader;
use crate::report::inspect::answer::{AnswerDoc, AnswerPrinter, CodeDoc, ErrorDoc};
use crate::wire::dialect::{Dialect, ErrorCode, EventMeaning, StreamAccount, TextRule};
use crate::wire::response::{AnswerRule, Marks, ResponseReader, beginning};
use crate::wire::sse::Event;

/// A bare body is the body of this answer: a stream that ends with its connection.
const BARE_STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
/// The same for one JSON body.
const BARE_JSON: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";

pub(super) fn print(
    capture: &Capture<'_>,
    dialect: Dialect,
    out: impl Write,
    reader: Reader,
) -> io::Result<()> {
    // No text is longer than the bytes that carry it, so that none is cut.
    let text = TextRule::keep(capture.bytes.len());
    let rule = AnswerRule { dialect, streamed: capture.streamed, method: capture.method, text };
    let mut answer = ResponseReader::new(rule);
    let mut shown =
        Shown { printer: AnswerPrinter::new(out, reader), events: 0, outputs: Outputs::default() };
    let whole = capture.bytes.starts_with(HTTP_START);
    if !whole {
        answer.read(if capture.streamed { BARE_STREAM } else { BARE_JSON }, &mut shown);
    }
    for piece in capture.pieces() {
        answer.read(piece, &mut shown);
    }
    answer.end_of_stream(&mut shown);
    let (outcome, mut detail) = answer.conclude().unwrap_or((Outcome::Internal, None));
    if !whole
        && outcome == Outcome::NotAStream
        && let Some(detail) = &mut detail
    {
        // The head is ours, and what it says was seen by nobody.
        detail.message = format!("the file is no event stream: {}", beginning(&detail.body_start));
    }
    let status = answer.http_status().filter(|_| whole);
    let mut doc = describe(answer.account(), &shown.outputs, status, outcome, detail);
    doc.one_body = !capture.streamed && doc.events == 0;
    doc.hint = capture.chunk_hint().filter(|_| outcome == Outcome::BadChunk);
    shown.printer.finish(&doc)
}

struct Shown<W> {
    printer: AnswerPrinter<W>,
    events: u64,
    outputs: Outputs,
}

/// Numbers of events with output.
#[derive(Default)]
struct Outputs {
    first: Option<u64>,
    first_content: Option<u64>,
    last: Option<u64>,
}

impl<W: Write> Marks for Shown<W> {
    fn first_byte(&mut self) {}

    fn interim(&mut self) {}

    fn head_done(&mut self) {}

    fn event(&mut self, meaning: &EventMeaning) {
        let number = Some(self.events);
        self.events += 1;
        if meaning.output.is_some() {
            self.outputs.first = self.outputs.first.or(number);
            self.outputs.last = number;
        }
        if meaning.content {
            self.outputs.first_content = self.outputs.first_content.or(number);
        }
    }

    fn seen(&mut self, event: &Event<'_>, meaning: &EventMeaning) {
        self.printer.event(event.event, event.data, &words(meaning));
    }

    fn comment(&mut self, text: &[u8]) {
        self.printer.comment(text);
    }
}

/// What an event means, in a few words.
fn words(meaning: &EventMeaning) -> String {
    let said = [
        (meaning.after_terminal, "after the terminal"),
        (meaning.malformed, "not JSON"),
        (meaning.error, "error"),
        (meaning.reasoning, "reasoning"),
        (meaning.content, "content"),
        (meaning.tool_call, "tool call"),
        (meaning.refusal, "refusal"),
        (meaning.role_only, "role"),
        (meaning.finish, "finish"),
        (meaning.completion_tokens.is_some(), "usage"),
        (meaning.terminal, "terminal"),
        (meaning.unrecognised, "unrecognised"),
    ];
    let said: Vec<&str> = said.into_iter().filter_map(|(so, word)| so.then_some(word)).collect();
    if said.is_empty() { "no output".to_owned() } else { said.join(", ") }
}

fn describe(
    account: &StreamAccount,
    outputs: &Outputs,
    http_status: Option<u16>,
    outcome: Outcome,
    detail: Option<ErrorDetail>,
) -> AnswerDoc {
    let (counters, usage) = (account.counters(), account.usage());
    let text = |kept: Option<&crate::record::CapturedText>| kept.map(|t| t.text.clone()).unwrap_or_default();
    let word = match outcome {
        Outcome::Ok => "ok",
        Outcome::NoOutput => "ok_no_tokens",
        _ => "failed",
    };
    let reasons = account.finish_reasons().iter();
    AnswerDoc {
        http_status,
        events: counters.events,
        content_chunks: counters.content_chunks,
        reasoning_chunks: counters.reasoning_chunks,
        tool_call_chunks: counters.tool_call_chunks,
        refusal_chunks: counters.refusal_chunks,
        token_events: counters.output_chunks,
        tokenless_events: counters.events.saturating_sub(counters.output_chunks),
        keepalive_comments: counters.keepalive_comments,
        content_text: text(account.visible_text()),
        reasoning_text: text(account.reasoning_text()),
        tool_arguments: text(account.tool_arguments()),
        first_token_event: outputs.first,
        first_token_kind: account.first_output_kind().map(|kind| kind.name()),
        first_content_event: outputs.first_content,
        last_token_event: outputs.last,
        finish_reason: reasons.map(|(choice, reason)| (choice.to_string(), reason.to_owned())).collect(),
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        reasoning_tokens: usage.reasoning_tokens,
        cached_tokens: usage.cached_tokens,
        cache_creation_tokens: usage.cache_creation_tokens,
        done: account.done(),
        events_after_done: counters.events_after_done,
        malformed_events: counters.malformed_events,
        error: (word == "failed").then(|| error(account, outcome, detail)),
        outcome: word,
        one_body: false,
        hint: None,
    }
}

fn error(account: &StreamAccount, outcome: Outcome, detail: Option<ErrorDetail>) -> ErrorDoc {
    let server = account.server_error();
    let code = server.and_then(|error| error.code.as_ref()).map(|code| match code {
        ErrorCode::Number(number) => CodeDoc::Number(*number),
        ErrorCode::Text(text) => CodeDoc::Text(text.clone()),
    });
    let detail = detail.unwrap_or_default();
    ErrorDoc {
        category: outcome.name(),
        message: Some(detail.message).filter(|message| !message.is_empty()),
        code: code.or_else(|| detail.code.map(CodeDoc::Text)),
        error_type: server.and_then(|error| error.error_type.clone()).or(detail.error_type),
    }
}
