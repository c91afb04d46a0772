//! The work of the parsers on typical bytes, one job for each thing worth a figure. The chunks are those of the recorded
//! answers in `tests/`; every job has proved its answer before it is handed out.

use std::hint::black_box;

use hammerscale::record::OutputKind;
use hammerscale::wire::dialect::{
    ChoiceShape, Dialect, EventMeaning, EventSink, Facts, JsonText, Scanned, StreamAccount, TextRule,
};
use hammerscale::wire::http1::{Method, Part, ResponseDecoder};
use hammerscale::wire::response::{AnswerRule, Marks, Reading, ResponseReader};
use hammerscale::wire::sse::{Event, Limits, Parser, Sink};

/// Chunks of one pass: as many as a short answer has.
const PER_PASS: usize = 64;

/// A piece of work that can be repeated.
pub struct Job {
    pub name: &'static str,
    /// What one pass does so often.
    pub per_pass: usize,
    pub pass: Box<dyn FnMut()>,
}

/// The chunks of one kind of answer.
struct Source {
    name: &'static str,
    dialect: Dialect,
    file: &'static str,
    /// What its chunks have in their data.
    holds: &'static str,
}

const SOURCES: [Source; 6] = [
    Source {
        name: "chat, vLLM",
        dialect: Dialect::Chat,
        file: "tests/cases/transcripts/vllm-chat.sse",
        holds: "\"token_ids\":null}]}",
    },
    Source {
        name: "chat, vLLM with counts",
        dialect: Dialect::Chat,
        file: "tests/cases/transcripts/vllm-continuous-usage.sse",
        holds: "\"token_ids\":null}],\"usage\"",
    },
    Source {
        name: "chat, OpenAI",
        dialect: Dialect::Chat,
        file: "tests/cases/transcripts/openai-chat.sse",
        holds: "\"obfuscation\"",
    },
    Source {
        name: "completions, vLLM",
        dialect: Dialect::Completions,
        file: "tests/cases/engines/vllm.txt",
        holds: "\"object\":\"text_completion\"",
    },
    Source {
        name: "responses, OpenAI",
        dialect: Dialect::Responses,
        file: "tests/cases/transcripts/openai-responses.sse",
        holds: "\"type\":\"response.output_text.delta\"",
    },
    Source {
        name: "messages, vLLM",
        dialect: Dialect::Messages,
        file: "tests/data/engines/vllm-endpoints.txt",
        holds: "\"type\":\"text_delta\"",
    },
];

impl Source {
    /// The data of its chunks with output and without a finish reason, over and over.
    fn chunks(&self) -> Vec<Vec<u8>> {
        let path = format!("{}/{}", env!("CARGO_MANIFEST_DIR"), self.file);
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let data =
            text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|d| d.contains(self.holds));
        let only_output = |data: &&str| {
            let mut sink = Outputs::default();
            self.dialect.read_in_full(b"", data.as_bytes(), &mut sink);
            sink.outputs == 1 && sink.finishes == 0
        };
        let found: Vec<Vec<u8>> = data.filter(only_output).map(|data| data.as_bytes().to_vec()).collect();
        assert!(found.len() > 2, "{}: {} chunks", self.name, found.len());
        found.into_iter().cycle().take(PER_PASS).collect()
    }

    /// The type that its events have beside their data.
    fn event(&self) -> &'static [u8] {
        match self.dialect {
            Dialect::Responses => b"response.output_text.delta",
            Dialect::Messages => b"content_block_delta",
            _ => b"",
        }
    }
}

/// Counts what an event is said to carry.
#[derive(Default)]
struct Outputs {
    outputs: usize,
    finishes: usize,
}

impl EventSink for Outputs {
    fn choice(&mut self, index: u32, _: ChoiceShape) {
        black_box(index);
    }

    fn output(&mut self, _: OutputKind, text: JsonText<'_>) {
        black_box(text);
        self.outputs += 1;
    }

    fn finish(&mut self, _: JsonText<'_>) {
        self.finishes += 1;
    }
}

/// All jobs, by name.
pub fn jobs() -> Vec<Job> {
    let [vllm, counted, ..] = &SOURCES;
    let mut jobs: Vec<Job> = SOURCES.iter().flat_map(|source| [scan(source), account(source)]).collect();
    jobs.extend([
        events("events: search for line ends and fields", vllm),
        understood("events and meaning: chat, vLLM", vllm),
        understood("events and meaning: chat, vLLM with counts", counted),
        answer("answer: chunk, event and meaning", vllm),
        chunked(vllm),
        head(),
        typed(vllm),
    ]);
    jobs
}

fn job(name: String, per_pass: usize, pass: impl FnMut() + 'static) -> Job {
    let mut job = Job { name: name.leak(), per_pass, pass: Box::new(pass) };
    // Every pass checks itself; the second one finds the storage warm.
    (job.pass)();
    (job.pass)();
    job
}

/// Each chunk by the direct scan, as if no other had been like it.
fn scan(source: &Source) -> Job {
    let (chunks, dialect) = (source.chunks(), source.dialect);
    job(format!("scan: {}", source.name), PER_PASS, move || {
        let mut sink = Outputs::default();
        let mut found = Scanned::default();
        for data in &chunks {
            dialect.scan(black_box(data), &mut found).expect("the scan is certain of an everyday chunk");
            let facts: Facts = found.report(&mut sink);
            black_box(facts.recognised);
        }
        assert_eq!(sink.outputs, PER_PASS);
    })
}

/// Each chunk into the account of its answer, with what is remembered of the one before.
fn account(source: &Source) -> Job {
    let (chunks, event) = (source.chunks(), source.event());
    let mut account = StreamAccount::new(source.dialect);
    job(format!("meaning: {}", source.name), PER_PASS, move || {
        account.start(TextRule::default());
        for data in &chunks {
            black_box(account.on_event(event, black_box(data)));
        }
        assert_eq!(account.counters().output_chunks, PER_PASS as u64);
    })
}

/// Bytes of an event stream, an event each.
fn blocks(source: &Source) -> Vec<Vec<u8>> {
    source.chunks().iter().map(|data| [b"data: ", data.as_slice(), b"\n\n"].concat()).collect()
}

struct Count(usize);

impl Sink for Count {
    fn event(&mut self, event: Event<'_>) {
        black_box(event.data);
        self.0 += 1;
    }
}

fn events(name: &str, source: &Source) -> Job {
    let blocks = blocks(source);
    let mut parser = Parser::new(Limits::default());
    job(name.to_owned(), PER_PASS, move || {
        parser.reset();
        let mut count = Count(0);
        blocks.iter().for_each(|block| parser.feed(black_box(block), &mut count).unwrap());
        assert_eq!(count.0, PER_PASS);
    })
}

struct Account(StreamAccount);

impl Sink for Account {
    fn event(&mut self, event: Event<'_>) {
        black_box(self.0.on_event(event.event, event.data));
    }
}

fn understood(name: &str, source: &Source) -> Job {
    let blocks = blocks(source);
    let mut parser = Parser::new(Limits::default());
    let mut account = Account(StreamAccount::new(source.dialect));
    job(name.to_owned(), PER_PASS, move || {
        parser.reset();
        account.0.start(TextRule::default());
        blocks.iter().for_each(|block| parser.feed(black_box(block), &mut account).unwrap());
        assert_eq!(account.0.counters().output_chunks, PER_PASS as u64);
    })
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 12:00:00 GMT\r\nserver: uvicorn\r\n\
    content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

fn framed(source: &Source) -> Vec<Vec<u8>> {
    let frame = |block: Vec<u8>| [format!("{:x}\r\n", block.len()).as_bytes(), &block, b"\r\n"].concat();
    blocks(source).into_iter().map(frame).collect()
}

struct Seen(usize);

impl Marks for Seen {
    fn first_byte(&mut self) {}
    fn interim(&mut self) {}
    fn head_done(&mut self) {}
    fn event(&mut self, meaning: &EventMeaning) {
        self.0 += usize::from(meaning.output.is_some());
    }
}

/// A whole answer, a chunk a read.
fn answer(name: &str, source: &Source) -> Job {
    let framed = framed(source);
    let mut reader = ResponseReader::new(AnswerRule { dialect: source.dialect, ..AnswerRule::default() });
    job(name.to_owned(), PER_PASS, move || {
        reader.start();
        let mut seen = Seen(0);
        reader.read(HEAD, &mut seen);
        for chunk in &framed {
            assert_eq!(reader.read(black_box(chunk), &mut seen), Reading::Going);
        }
        assert_eq!(seen.0, PER_PASS);
    })
}

/// Chunk lines only.
fn chunked(source: &Source) -> Job {
    let framed = framed(source);
    let expected: usize = blocks(source).iter().map(Vec::len).sum();
    let mut decoder = ResponseDecoder::new();
    job("HTTP: one chunk".to_owned(), PER_PASS, move || {
        decoder.start(Method::Post);
        assert_eq!(decoder.decode(HEAD).unwrap().consumed, HEAD.len());
        let mut bytes = 0;
        for chunk in &framed {
            let mut rest = black_box(chunk.as_slice());
            loop {
                let decoded = decoder.decode(rest).unwrap();
                rest = &rest[decoded.consumed..];
                match decoded.part {
                    Part::Data(data) => bytes += data.len(),
                    _ => break,
                }
            }
        }
        assert_eq!(bytes, expected);
    })
}

fn head() -> Job {
    let mut decoder = ResponseDecoder::new();
    // One that comes again to the byte is not parsed again.
    let other: Vec<u8> = HEAD.to_ascii_uppercase();
    assert_ne!(other, HEAD);
    job("HTTP: one head".to_owned(), PER_PASS, move || {
        for turn in 0..PER_PASS {
            decoder.start(Method::Post);
            let head = if turn % 2 == 0 { HEAD } else { &other };
            assert!(matches!(decoder.decode(black_box(head)).unwrap().part, Part::Head));
        }
        assert_eq!(decoder.head().map(|head| head.status()), Some(200));
    })
}

#[derive(serde::Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<serde::de::IgnoredAny>,
}

#[derive(serde::Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(serde::Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<std::borrow::Cow<'a, str>>,
}

/// The same chunk by a general parser that knows what it looks for.
fn typed(source: &Source) -> Job {
    let chunks = source.chunks();
    job("beside it, serde_json into types: chat, vLLM".to_owned(), PER_PASS, move || {
        let mut outputs = 0;
        for data in &chunks {
            let chunk: Chunk<'_> = serde_json::from_slice(black_box(data)).unwrap();
            let choice = &chunk.choices[0];
            let is_output = choice.delta.content.as_ref().is_some_and(|text| !text.is_empty());
            outputs += usize::from(is_output && choice.finish_reason.is_none() && chunk.usage.is_none());
        }
        assert_eq!(outputs, PER_PASS);
    })
}
