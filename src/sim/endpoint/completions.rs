//! `POST /v1/completions`: a prompt continued, in vLLM's layout. There is no reasoning: the endpoint has no place for
//! it, and the text of a real engine is not told apart.

use std::borrow::Cow;

use serde::Deserialize;

use super::ask::{self, Ask, BadBody, StreamOptions};
use super::inputs::{Input, Inputs};
use super::layout::{Block, Frame, Layout, Template, write_all_text, write_delta};
use super::openai::{end_chunk, finish_reason, write_done, write_opening, write_usage, write_usage_chunk};
use super::wish::Wish;
use crate::sim::ledger::{EventKind, Service};
use crate::sim::script::{Answer, Step};

/// The endpoint.
pub(super) static LAYOUT: Layout = Layout {
    service: Service::Completions,
    read,
    prepare,
    at_once: &[],
    opening: &[],
    reasoning: None,
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
    prompt: Inputs<'a>,
    max_tokens: Option<u64>,
    min_tokens: Option<u64>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u64>,
}

fn read(body: &[u8]) -> Result<Ask, BadBody> {
    let body: RawBody<'_> = ask::parse(body)?;
    let [prompt] = body.prompt.0.as_slice() else {
        return Err(BadBody("There must be exactly one prompt.".to_owned()));
    };
    if body.n.is_some_and(|n| n != 1) {
        return Err(BadBody("The only supported value of n is 1.".to_owned()));
    }
    let ask = Ask {
        model: ask::model_name(body.model)?,
        prompt: prompt.size(),
        limit: body.max_tokens,
        min_tokens: body.min_tokens.unwrap_or(0),
        ignore_eos: body.ignore_eos.unwrap_or(false),
        stream: body.stream.unwrap_or(false),
        wish: match prompt {
            Input::Text(text) => Wish::from_text(text),
            Input::Ids { .. } => Wish::default(),
        },
        ..Ask::default()
    };
    ask.with_stream_options(body.stream_options).checked("max_tokens")
}

fn prepare(template: &mut Template) {
    let mut prefix = b"data: ".to_vec();
    write_opening(template, "cmpl", "text_completion", &mut prefix);
    template.prefix = prefix;
}

fn write_content(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    out.extend_from_slice(br#"{"index":0,"text":""#);
    write_delta(step, answer, out);
    out.extend_from_slice(
        br#"","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]"#,
    );
    end_chunk(template, step, answer, out);
}

fn write_finish(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    out.extend_from_slice(br#"{"index":0,"text":"","logprobs":null,"finish_reason":""#);
    out.extend_from_slice(finish_reason(answer).as_bytes());
    out.extend_from_slice(br#"","stop_reason":null,"prompt_token_ids":null,"token_ids":null}]"#);
    end_chunk(template, step, answer, out);
}

fn write_body(template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    write_opening(template, "cmpl", "text_completion", out);
    out.extend_from_slice(br#"{"index":0,"text":""#);
    write_all_text(answer, EventKind::Content, out);
    out.extend_from_slice(br#"","logprobs":null,"finish_reason":""#);
    out.extend_from_slice(finish_reason(answer).as_bytes());
    out.extend_from_slice(br#"","stop_reason":null,"prompt_logprobs":null}]"#);
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
    fn a_prompt_is_a_text_or_token_numbers() {
        let ask = read(
            r##"{"model":"m","prompt":"é\n# request 0: Begin with the exact marker k, followed by one space. x",
               "max_tokens":3,"min_tokens":2,"ignore_eos":true,"stream":true,"echo":false,"stop":null,
               "stream_options":{"include_usage":true,"continuous_usage_stats":true}}"##,
        )
        .unwrap();
        assert_eq!((ask.prompt.bytes, ask.limit, ask.min_tokens, ask.ignore_eos), (71, Some(3), 2, true));
        assert_eq!((ask.stream, ask.include_usage, ask.continuous_usage), (true, true, true));
        assert_eq!(ask.wish.marker.as_deref(), Some("k"));
        let ask = read(r#"{"model":"m","prompt":[1,2,3]}"#).unwrap();
        assert_eq!((ask.prompt.tokens(), ask.limit, ask.stream), (3, None, false));
        assert_eq!(read(r#"{"model":"m","prompt":["ab cd"]}"#).unwrap().prompt.tokens(), 2);
    }

    #[test]
    fn running_counts_come_only_with_the_final_ones() {
        let ask =
            read(r#"{"model":"m","prompt":"a","stream_options":{"continuous_usage_stats":true}}"#).unwrap();
        assert!(!ask.include_usage && !ask.continuous_usage);
    }

    #[test]
    fn bad_bodies_are_refused_with_a_sentence() {
        for (body, word) in [
            (r#"{"model":"m"}"#, "prompt"),
            (r#"{"model":"m","prompt":[]}"#, "one prompt"),
            (r#"{"model":"m","prompt":["a","b"]}"#, "one prompt"),
            (r#"{"model":"m","prompt":{}}"#, "a text"),
            (r#"{"model":"m","prompt":"a","max_tokens":0}"#, "max_tokens"),
            (r#"{"model":"m","prompt":"a","max_tokens":1048576}"#, "context length"),
            (r#"{"model":"m","prompt":"a","n":3}"#, "n is 1"),
        ] {
            let BadBody(message) = read(body).unwrap_err();
            assert!(message.contains(word), "{body}: {message}");
        }
    }
}
