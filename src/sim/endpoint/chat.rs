//! `POST /v1/chat/completions`: what a request asks for as far as the simulator obeys it, and vLLM's layout of the
//! answer.

use std::borrow::Cow;

use serde::Deserialize;

use super::ask::{self, Ask, BadBody, StreamOptions};
use super::conversation::Conversation;
use super::layout::{Block, Frame, Layout, Template, write_all_text, write_delta};
use super::openai::{end_chunk, finish_reason, write_done, write_opening, write_usage, write_usage_chunk};
use crate::sim::ledger::{EventKind, Service};
use crate::sim::script::{Answer, Step};

/// The endpoint.
pub(super) static LAYOUT: Layout = Layout {
    service: Service::Chat,
    read,
    prepare,
    at_once: &[],
    opening: &[Frame::new(EventKind::Role, write_role)],
    reasoning: Some(Block::bare(EventKind::Reasoning, write_reasoning)),
    content: Block::bare(EventKind::Content, write_content),
    closing: &[
        Frame::new(EventKind::Finish, write_finish),
        Frame::new(EventKind::Usage, write_usage_chunk),
        Frame::new(EventKind::Done, write_done),
    ],
    write_body,
};

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    messages: Conversation,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    min_tokens: Option<u64>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u64>,
}

fn read(body: &[u8]) -> Result<Ask, BadBody> {
    let body: RawBody<'_> = ask::parse(body)?;
    if body.messages.messages == 0 {
        return Err(BadBody("There must be at least one message.".to_owned()));
    }
    if body.n.is_some_and(|n| n != 1) {
        return Err(BadBody("The only supported value of n is 1.".to_owned()));
    }
    let ask = Ask {
        model: ask::model_name(body.model)?,
        prompt: body.messages.content.size,
        // The newer name wins where both are given, as in vLLM.
        limit: body.max_completion_tokens.or(body.max_tokens),
        min_tokens: body.min_tokens.unwrap_or(0),
        ignore_eos: body.ignore_eos.unwrap_or(false),
        stream: body.stream.unwrap_or(false),
        wish: body.messages.content.wish,
        ..Ask::default()
    };
    ask.with_stream_options(body.stream_options).checked("max_tokens")
}

fn prepare(template: &mut Template) {
    let mut prefix = b"data: ".to_vec();
    write_opening(template, "chatcmpl", "chat.completion.chunk", &mut prefix);
    template.prefix = prefix;
}

fn write_role(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    out.extend_from_slice(
        br#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null"#,
    );
    end_chunk(template, step, answer, out);
}

fn write_reasoning(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    out.extend_from_slice(br#"{"index":0,"delta":{"reasoning":""#);
    end_output(template, step, answer, out);
}

fn write_content(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    out.extend_from_slice(br#"{"index":0,"delta":{"content":""#);
    end_output(template, step, answer, out);
}

fn end_output(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_delta(step, answer, out);
    out.extend_from_slice(br#""},"logprobs":null,"finish_reason":null,"token_ids":null}]"#);
    end_chunk(template, step, answer, out);
}

fn write_finish(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    out.extend_from_slice(br#"{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":""#);
    out.extend_from_slice(finish_reason(answer).as_bytes());
    out.extend_from_slice(br#"","stop_reason":null,"token_ids":null}]"#);
    end_chunk(template, step, answer, out);
}

fn write_body(template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    write_opening(template, "chatcmpl", "chat.completion", out);
    out.extend_from_slice(br#"{"index":0,"message":{"role":"assistant","#);
    if answer.reasoning_tokens > 0 {
        out.extend_from_slice(br#""reasoning":""#);
        write_all_text(answer, EventKind::Reasoning, out);
        out.extend_from_slice(br#"","#);
    }
    out.extend_from_slice(br#""content":""#);
    write_all_text(answer, EventKind::Content, out);
    out.extend_from_slice(br#""},"logprobs":null,"finish_reason":""#);
    out.extend_from_slice(finish_reason(answer).as_bytes());
    out.extend_from_slice(br#"","stop_reason":null}]"#);
    write_usage(template, answer, out);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Ask, BadBody> {
        super::read(body.as_bytes())
    }

    #[test]
    fn the_references_body_is_understood() {
        let tail = "\n# request 3: Begin with the exact marker ANVIL_REQ_-7_00003, followed by one space. Then emit \
                    exactly 64 repetitions of the lowercase word code, separated by single spaces. Do not add other \
                    text and do not stop early.";
        let prompt = format!("{}{tail}", "def helper_1():\n    return compute(1)  # routine\n".repeat(40));
        let body = serde_json::json!({
            "model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 99, "temperature": 0.0,
            "stream": true, "stream_options": {"include_usage": true}, "reasoning_effort": "max"
        });
        let request = read(&body.to_string()).unwrap();
        assert_eq!(request.prompt.bytes, u64::try_from(prompt.len()).unwrap());
        assert_eq!(request.prompt.tokens(), u64::try_from(prompt.len()).unwrap().div_ceil(4));
        assert_eq!(
            (request.model.as_str(), request.limit, request.stream, request.include_usage),
            ("m", Some(99), true, true)
        );
        assert_eq!(request.wish.marker.as_deref(), Some("ANVIL_REQ_-7_00003"));
        assert_eq!(request.wish.code_words, Some(64));
    }

    #[test]
    fn contents_may_be_parts_or_null() {
        let request = read(
            r##"{"model":"m","messages":[{"role":"system","content":"abcd"},{"role":"assistant","content":null},
               {"role":"user","content":[{"type":"text","text":"12"},{"type":"image_url","image_url":{"url":"x"}},
               {"type":"text","text":"é\n# request 0: Begin with the exact marker k, followed by one space. x"}]}]}"##,
        )
        .unwrap();
        assert_eq!(request.prompt.bytes, 4 + 2 + 71);
        assert_eq!(request.wish.marker.as_deref(), Some("k"));
        assert!(!request.stream && request.limit.is_none());
    }

    #[test]
    fn the_newer_limit_wins() {
        let request =
            read(r#"{"model":"m","messages":[{"content":"a"}],"max_tokens":5,"max_completion_tokens":7}"#)
                .unwrap();
        assert_eq!(request.limit, Some(7));
        assert_eq!(request.prompt.tokens(), 1);
    }

    #[test]
    fn bad_bodies_are_refused_with_a_sentence() {
        for (body, word) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "object"),
            (r#"{"messages":[{"content":"a"}]}"#, "model"),
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","messages":[]}"#, "message"),
            (r#"{"model":"m","messages":[{"content":5}]}"#, "message text"),
            (r#"{"model":"m","messages":[{"content":"a"}],"max_tokens":0}"#, "max_tokens"),
            (r#"{"model":"m","messages":[{"content":"a"}],"max_tokens":-1}"#, "-1"),
            (r#"{"model":"m","messages":[{"content":"a"}],"max_tokens":2000000}"#, "context length"),
            (r#"{"model":"m","messages":[{"content":"a"}],"n":2}"#, "n is 1"),
            (r#"{"model":"m","messages":[{"content":"a"}]} x"#, "trailing"),
        ] {
            let BadBody(message) = read(body).unwrap_err();
            assert!(message.contains(word), "{body}: {message}");
        }
        assert!(super::read(b"{\"model\":\"\xff\",\"messages\":[{}]}").is_err());
    }
}
