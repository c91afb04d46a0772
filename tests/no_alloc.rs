//! Reading an answer allocates nothing once the storage is warm: not for the head, not for an event, not for the end.

#![allow(clippy::unwrap_used, missing_docs)]

use hammerscale::wire::dialect::EventMeaning;
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

#[test]
fn the_counter_counts() {
    let made = allocation_counter::measure(|| drop(std::hint::black_box(vec![1_u8; 100])));
    assert_eq!(made.count_total, 1);
}
