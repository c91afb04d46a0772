//! One streamed answer as vLLM writes it: every event in a chunk of its own, each with another text, the shapes changing
//! only as a real server changes them.

/// The bytes of an answer and where its sends end.
pub struct Answer {
    pub bytes: Vec<u8>,
    /// Ascending; the last one is the length.
    pub cuts: Vec<usize>,
}

/// Texts as a tokenizer cuts them: mostly short words, some punctuation, some escapes, some that are not ASCII.
const TEXTS: [&str; 16] = [
    " the",
    " river",
    " bends",
    ",",
    " north",
    " of",
    " a",
    " settlement",
    ".",
    "\\n\\n",
    " It",
    " was",
    " caf\u{e9}",
    " \\\"old\\\"",
    "ing",
    " measurement",
];

const HEAD: &str = "HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 12:00:00 GMT\r\nserver: uvicorn\r\n\
    content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// What every event of one answer begins with.
const BEGIN: &str = "data: {\"id\":\"chatcmpl-5f0c1d6f9e3b4a7b8c2d1e0f9a8b7c6d\",\"object\":\"chat.completion.chunk\",\
    \"created\":1760000001,\"model\":\"meta-llama/Llama-3.1-8B-Instruct\",\"choices\":";

impl Answer {
    /// An answer of `tokens` events with output, `per_send` of them in one send.
    pub fn new(tokens: usize, per_send: usize) -> Self {
        let mut answer = Self { bytes: HEAD.as_bytes().to_vec(), cuts: Vec::new() };
        answer.cut();
        answer.event(
            "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\
             \"prompt_token_ids\":null}",
        );
        answer.cut();
        for number in 0..tokens {
            // The number keeps texts apart that would repeat after sixteen.
            let text = TEXTS[number % TEXTS.len()];
            let apart = if number % 3 == 0 { (number / TEXTS.len()).to_string() } else { String::new() };
            answer.event(&format!(
                "[{{\"index\":0,\"delta\":{{\"content\":\"{text}{apart}\"}},\"logprobs\":null,\
                 \"finish_reason\":null,\"token_ids\":null}}]}}"
            ));
            if (number + 1) % per_send == 0 || number + 1 == tokens {
                answer.cut();
            }
        }
        answer.event(
            "[{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":null,\"finish_reason\":\"length\",\
             \"stop_reason\":null,\"token_ids\":null}]}",
        );
        answer.cut();
        answer.event(&format!(
            "[],\"usage\":{{\"prompt_tokens\":17,\"total_tokens\":{},\"completion_tokens\":{tokens}}}}}",
            tokens + 17
        ));
        answer.cut();
        answer.chunk("data: [DONE]\n\n");
        answer.bytes.extend_from_slice(b"0\r\n\r\n");
        answer.cut();
        answer
    }

    /// Line ends in it: what a loop that only looks for them must find.
    pub fn line_ends(&self) -> u64 {
        memchr::memchr_iter(b'\n', &self.bytes).count() as u64
    }

    fn event(&mut self, rest: &str) {
        self.chunk(&format!("{BEGIN}{rest}\n\n"));
    }

    fn chunk(&mut self, data: &str) {
        self.bytes.extend_from_slice(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes());
    }

    fn cut(&mut self) {
        self.cuts.push(self.bytes.len());
    }
}
