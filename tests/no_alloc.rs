//! Reading an answer allocates nothing once the storage is warm: not for the head, not for an event, not for the end.

#![allow(clippy::unwrap_used, missing_docs)]

use hammerscale::wire::dialect::{Dialect, EventMeaning};
use hammerscale::wire::response::{AnswerRule, Marks, Reading, ResponseReader};

/// Counts events and keeps nothing.
#[derive(Default)]
struct Tally {
    events: u64,
    outputs: u64,
}

impl Marks for Tally {
    fn first_byte(&mut self) {}
    fn interim(&mut self) {}
    fn head_done(&mut self) {}
    fn event(&mut self, meaning: &EventMeaning) {
        self.events += 1;
        self.outputs += u64::from(meaning.output.is_some());
    }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nServer: test\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
                    Transfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\n\r\n";

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// An answer of 100 tokens, as vLLM lays it out, with usage and `[DONE]`.
fn answer() -> Vec<u8> {
    let mut text = HEAD.to_owned();
    for n in 0..100 {
        let event = format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":17,\"model\":\"m\",\
             \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word{n}\"}},\"logprobs\":null,\
             \"finish_reason\":null}}]}}\n\n"
        );
        text += &chunk(&event);
    }
    text += &chunk("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n");
    text += &chunk(
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":100,\"total_tokens\":109}}\n\n",
    );
    text += &chunk("data: [DONE]\n\n");
    text += "0\r\n\r\n";
    text.into_bytes()
}

/// Reads one answer in pieces of `size` bytes.
fn read(reader: &mut ResponseReader, bytes: &[u8], size: usize) -> Tally {
    let mut tally = Tally::default();
    reader.start();
    let mut last = Reading::Going;
    for piece in bytes.chunks(size) {
        last = reader.read(piece, &mut tally);
    }
    assert_eq!(last, Reading::Complete);
    tally
}

#[test]
fn an_answer_allocates_nothing_once_the_storage_is_warm() {
    let bytes = answer();
    let count = AnswerRule::default();
    for (capture, size) in [(count, usize::MAX), (count, 1), (count, 301), (AnswerRule::keeping(8_192), 301)]
    {
        let mut reader = ResponseReader::new(capture);
        read(&mut reader, &bytes, size);
        let mut tally = Tally::default();
        let made = allocation_counter::measure(|| tally = read(&mut reader, &bytes, size));
        assert_eq!((tally.events, tally.outputs), (103, 100));
        assert_eq!(made.count_total, 0, "capture {capture:?}, pieces of {size}: {made:?}");
    }
}

/// An answer of 100 tokens as typed events, with another event after every tenth; and where its last event begins,
/// which is parsed in full.
fn typed(delta: impl Fn(usize) -> String, quiet: &str, end: &str) -> (Vec<u8>, usize) {
    let mut text = HEAD.to_owned();
    let event = |data: &str| chunk(&format!("event: x\ndata: {data}\n\n"));
    for n in 0..100 {
        text += &event(&delta(n));
        if n % 10 == 9 {
            text += &event(quiet);
        }
    }
    let last_begins = text.len();
    text += &event(end);
    text += "0\r\n\r\n";
    (text.into_bytes(), last_begins)
}

#[test]
fn the_deltas_of_the_typed_dialects_allocate_nothing_once_the_storage_is_warm() {
    let responses = typed(
        |n| {
            format!(
                r#"{{"type":"response.output_text.delta","sequence_number":{n},"item_id":"msg_1","output_index":0,"content_index":0,"delta":" word{n}","logprobs":[]}}"#
            )
        },
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}"#,
        r#"{"type":"response.completed","response":{"status":"completed","usage":{"output_tokens":100}}}"#,
    );
    let messages = typed(
        |n| {
            format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":" word{n}"}}}}"#
            )
        },
        r#"{"type": "ping"}"#,
        r#"{"type":"message_stop"}"#,
    );
    for (dialect, (bytes, last_begins)) in [(Dialect::Responses, responses), (Dialect::Messages, messages)] {
        for (rule, size) in [
            (AnswerRule::default(), 301),
            (AnswerRule::keeping(8_192), 1),
            (AnswerRule::default(), usize::MAX),
        ] {
            let mut reader = ResponseReader::new(AnswerRule { dialect, ..rule });
            read(&mut reader, &bytes, size);
            let mut tally = Tally::default();
            reader.start();
            let before_last = bytes.get(..last_begins).unwrap();
            let made = allocation_counter::measure(|| {
                for piece in before_last.chunks(size) {
                    assert_eq!(reader.read(piece, &mut tally), Reading::Going);
                }
            });
            assert_eq!((tally.events, tally.outputs), (110, 100), "{dialect:?}");
            assert_eq!(made.count_total, 0, "{dialect:?}, pieces of {size}: {made:?}");
        }
    }
}

#[test]
fn a_body_of_vectors_allocates_next_to_nothing_once_the_storage_is_warm() {
    let vector = format!("{{\"embedding\":[{}0]}}", "0.0125,".repeat(1_536));
    let body = format!(
        "{{\"object\":\"list\",\"data\":[{vector},{vector}],\"usage\":{{\"prompt_tokens\":9,\"total_tokens\":9}}}}"
    );
    let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes();
    let mut reader =
        ResponseReader::new(AnswerRule { dialect: Dialect::Embeddings, ..AnswerRule::default() });
    read(&mut reader, &bytes, 4_096);
    let made = allocation_counter::measure(|| {
        read(&mut reader, &bytes, 4_096);
    });
    // The counts, which are parsed as a tree of two members.
    assert!(made.bytes_total < 1_000, "{made:?}");
    assert_eq!(reader.conclude().map(|(outcome, _)| outcome), Some(hammerscale::record::Outcome::Ok));
}

#[test]
fn the_counter_counts() {
    let made = allocation_counter::measure(|| drop(std::hint::black_box(vec![1_u8; 100])));
    assert_eq!(made.count_total, 1);
}
