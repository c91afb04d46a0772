//! The chat dialect: `chat.completion.chunk` events as OpenAI, vLLM, SGLang, llama.cpp, TensorRT-LLM, TGI,
//! Ollama and the gateways in front of them send them. The older `/completions` share their frame (`choices`,
//! `finish_reason`, `usage`, `[DONE]`) and differ in one key, `text`, so that one reading serves for both.
//!
//! An event is output when any choice carries non-empty `delta.content` (a string, or parts of text and thinking),
//! `delta.reasoning` or `delta.reasoning_content` (once if both), `delta.refusal`, a name or arguments in
//! `delta.tool_calls[].function` or `delta.function_call`, or the `text` of the older completions. White space is
//! output; `""` and null are not. Only `[DONE]` ends the answer; a finish reason never does, since usage, errors
//! and further choices may follow it.
//!
//! An answer that was not streamed has a `message` in the place of `delta`.

mod keys;
mod scan;
mod value;

use super::event::{Protocol, is_error_event};
use super::found::Scanned;
use super::full::Parsed;
use super::{EventSink, Facts, ServerError};

pub(super) use value::usage_of;

/// `/chat/completions` and `/completions`.
pub(super) struct Chat;

impl Protocol for Chat {
    #[inline]
    fn scan<'a>(data: &'a [u8], found: &mut Scanned<'a>) -> Option<()> {
        scan::scan(data, found)
    }

    fn read_parsed(event: &[u8], data: &[u8], parsed: &Parsed, sink: &mut impl EventSink) -> Facts {
        let mut facts = value::read_parsed(parsed, sink);
        if is_error_event(event) {
            facts.error = Some(Box::new(ServerError::in_error_event(data, Some(&parsed.value))));
            facts.recognised = true;
        }
        facts
    }

    fn read_whole(parsed: &Parsed, sink: &mut impl EventSink) -> Facts {
        value::read_parsed(parsed, sink)
    }
}
