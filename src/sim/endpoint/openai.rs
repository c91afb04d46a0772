//! What chat completions and completions share: the opening of an object, its usage, its end. The layout is vLLM's.

use super::layout::Template;
use crate::sim::framing::{write_json_string, write_text};
use crate::sim::ledger::EventKind;
use crate::sim::script::{Answer, Step};

/// Appends an object's beginning, up to and including `"choices":[`.
pub(super) fn write_opening(template: &Template, id_prefix: &str, object: &str, out: &mut Vec<u8>) {
    write_text(
        out,
        format_args!(
            r#"{{"id":"{id_prefix}-{:016x}","object":"{object}","created":{},"model":"#,
            template.id, template.created
        ),
    );
    write_json_string(&template.model, out);
    out.extend_from_slice(br#","choices":["#);
}

/// Ends a chunk whose choices are written: the running counts, where they are wanted, and the end of the event.
pub(super) fn end_chunk(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    if template.continuous_usage {
        let so_far = step.first_token + u64::from(step.planned.tokens);
        let completion = match step.planned.kind {
            EventKind::Reasoning => so_far,
            EventKind::Content => answer.reasoning_tokens + so_far,
            EventKind::Finish => answer.tokens(),
            _ => 0,
        };
        write_counts(template.prompt_tokens, completion, out);
        out.extend_from_slice(br#","completion_tokens_details":null}"#);
    }
    out.extend_from_slice(b"}\n\n");
}

/// Writes the chunk with the final counts.
pub(super) fn write_usage_chunk(template: &Template, _: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    out.push(b']');
    write_usage(template, answer, out);
    out.extend_from_slice(b"}\n\n");
}

/// Writes the terminal.
pub(super) fn write_done(_: &Template, _: &Step, _: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: [DONE]\n\n");
}

/// Appends a comma and the final counts.
pub(super) fn write_usage(template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    write_counts(template.prompt_tokens, answer.tokens(), out);
    if answer.reasoning_tokens > 0 {
        write_text(
            out,
            format_args!(
                r#","completion_tokens_details":{{"reasoning_tokens":{}}}"#,
                answer.reasoning_tokens
            ),
        );
    }
    out.push(b'}');
}

/// Appends a comma and a usage object without its closing brace.
fn write_counts(prompt: u64, completion: u64, out: &mut Vec<u8>) {
    write_text(
        out,
        format_args!(
            r#","usage":{{"prompt_tokens":{prompt},"total_tokens":{},"completion_tokens":{completion}"#,
            prompt + completion
        ),
    );
}

/// Why the answer ended.
pub(super) const fn finish_reason(answer: &Answer) -> &'static str {
    if answer.cut_by_limit { "length" } else { "stop" }
}
