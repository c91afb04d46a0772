//! The chat dialect: `chat.completion.chunk` events as OpenAI, vLLM, SGLang, llama.cpp, TensorRT-LLM, TGI,
//! Ollama and the gateways in front of them send them.
//!
//! An event is output when any choice carries non-empty `delta.content` (a string, or parts of text and thinking),
//! `delta.reasoning` or `delta.reasoning_content` (once if both), `delta.refusal`, a name or arguments in
//! `delta.tool_calls[].function` or `delta.function_call`, or the `text` of the older completions. White space is
//! output; `""` and null are not. Only `[DONE]` ends the answer; a finish reason never does, since usage, errors
//! and further choices may follow it.

mod keys;
mod scan;
mod value;

pub use scan::{Scanned, scan};
pub use value::read_parsed;

use super::template::{Known, Template};
use super::{ChoiceShape, EventSink, Facts, JsonText, Malformed, ServerError, full};

/// The terminal of this dialect.
const DONE: &[u8] = b"[DONE]";

/// The type of events that report an error.
const ERROR_EVENT: &[u8] = b"error";

/// Reads one event.
#[inline]
pub(super) fn read(event: &[u8], data: &[u8], template: &mut Template, sink: &mut impl EventSink) -> Facts {
    // TensorRT-LLM and others leave a space or a carriage return behind the data.
    let data = data.trim_ascii();
    if data == DONE {
        return Facts { terminal: true, recognised: true, ..Facts::default() };
    }
    if event.eq_ignore_ascii_case(ERROR_EVENT) {
        return read_in_full(event, data, sink);
    }
    if let Some((known, text)) = template.recognise(data) {
        sink.choice(known.choice, ChoiceShape::Delta);
        sink.output(known.kind, JsonText::Raw(text));
        return known.facts.clone();
    }
    let mut found = Scanned::default();
    if scan(data, &mut found).is_none() {
        return read_in_full(event, data, sink);
    }
    if let Some((choice, kind, text)) = found.only_output() {
        template.learn(data, text, || Known { choice, kind, facts: found.facts() });
    }
    found.report(sink)
}

/// Reads one event (not the terminal) by the full parse alone.
pub fn read_in_full(event: &[u8], data: &[u8], sink: &mut impl EventSink) -> Facts {
    let is_error_event = event.eq_ignore_ascii_case(ERROR_EVENT);
    let error_event = |value| Some(Box::new(ServerError::in_error_event(data, value)));
    match full::parse(data) {
        Ok(parsed) => {
            let mut facts = read_parsed(&parsed, sink);
            if is_error_event {
                facts.error = error_event(Some(&parsed.value));
                facts.recognised = true;
            }
            facts
        }
        Err(refusal) => {
            let error = if is_error_event { error_event(None) } else { None };
            let malformed = Malformed { reason: refusal.reason, error: error_in_a_line(data) };
            Facts {
                malformed: Some(Box::new(malformed)),
                error,
                invalid_utf8: refusal.invalid_utf8,
                ..Facts::default()
            }
        }
    }
}

/// The error in one line of data that is not JSON as a whole: the event stream joins the lines of an event, so a
/// server that writes an error into an event it had not ended makes two texts of one.
fn error_in_a_line(data: &[u8]) -> Option<ServerError> {
    /// Two are seen; more would be a hostile server's way to make us parse.
    const MAX_LINES: usize = 16;

    data.split(|b| *b == b'\n').take(MAX_LINES).filter(|line| line.len() < data.len()).find_map(|line| {
        let parsed = full::parse(line).ok()?;
        let object = parsed.value.as_object()?;
        ServerError::in_object(object, object.contains_key("choices"))
    })
}
