//! Reads one answer through the response reader, cut into pieces, and writes down everything a caller learns.
//!
//! It behaves as the client does: a reader that failed gets no more bytes, one that is complete gets those that still
//! come, and the end of the connection is told to it once.

use std::sync::LazyLock;

use hammerscale::record::{
    Anomalies, CapturedText, Counters, ErrorDetail, Outcome, OutputKind, Phase, RequestRecord, Usage,
};
use hammerscale::units::{Nanos, Ticks};
use hammerscale::wire::dialect::{Dialect, EventMeaning};
use hammerscale::wire::response::{AnswerRule, Marks, Reading, ResponseReader};

/// Characters of text kept: more than any answer of the tests has.
const CAPTURE_LIMIT: usize = 1_000_000;

/// How the connection ends behind the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It stays open, and the caller gives up.
    Silence,
    /// The peer closes.
    Eof,
    /// The peer resets.
    Reset,
}

pub(crate) const ENDS: [End; 3] = [End::Silence, End::Eof, End::Reset];

/// What a read completed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    FirstByte,
    Interim,
    HeadDone,
    Event(EventMeaning),
}

/// Everything that must not depend on how the answer was cut into reads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Account {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) detail: Option<ErrorDetail>,
    pub(crate) http_status: Option<u16>,
    pub(crate) counters: Counters,
    pub(crate) usage: Usage,
    pub(crate) finish: Vec<(u32, String)>,
    pub(crate) text: Option<CapturedText>,
    pub(crate) first_output_kind: Option<OutputKind>,
    pub(crate) cut_after_terminal: bool,
    pub(crate) streamed_unasked: bool,
    pub(crate) anomalies: Anomalies,
    pub(crate) terminal_seen: bool,
    pub(crate) may_keep_alive: bool,
    pub(crate) announced: Option<Nanos>,
}

/// One reading.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) account: Account,
    /// Where the answer stood when its bytes were used up or it was over, before the connection's end.
    pub(crate) reading: Reading,
    /// Marks in order, each with how many bytes had been handed over with its read. A mark that came with the end of
    /// the connection has one more than there are bytes.
    pub(crate) marks: Vec<(Mark, usize)>,
}

#[derive(Default)]
struct Notes {
    marks: Vec<(Mark, usize)>,
    fed: usize,
}

impl Marks for Notes {
    fn first_byte(&mut self) {
        self.marks.push((Mark::FirstByte, self.fed));
    }

    fn interim(&mut self) {
        self.marks.push((Mark::Interim, self.fed));
    }

    fn head_done(&mut self) {
        self.marks.push((Mark::HeadDone, self.fed));
    }

    fn event(&mut self, meaning: &EventMeaning) {
        self.marks.push((Mark::Event(*meaning), self.fed));
    }
}

/// Takes no notes.
pub(crate) struct Unmarked;

impl Marks for Unmarked {
    fn first_byte(&mut self) {}
    fn interim(&mut self) {}
    fn head_done(&mut self) {}
    fn event(&mut self, _meaning: &EventMeaning) {}
}

/// Reads `bytes`, cut at `cuts` (ascending positions), with that end behind them.
pub(crate) fn read(reader: &mut ResponseReader, bytes: &[u8], cuts: &[usize], end: End) -> Seen {
    let mut notes = Notes::default();
    let mut reading = Reading::Going;
    let mut over = None;
    reader.start();
    for to in cuts.iter().copied().chain([bytes.len()]) {
        let piece = &bytes[notes.fed..to];
        if piece.is_empty() {
            continue;
        }
        notes.fed = to;
        reading = reader.read(piece, &mut notes);
        if reading != Reading::Going {
            over.get_or_insert(reading);
        }
        if over == Some(Reading::Failed) {
            break;
        }
    }
    let reading = over.unwrap_or(reading);
    let may_keep_alive = reader.may_keep_alive();
    notes.fed = bytes.len() + 1;
    match end {
        End::Silence => {}
        End::Eof => assert_eq!(reader.end_of_stream(&mut notes), Reading::Failed),
        End::Reset => assert_eq!(reader.reset("Connection reset by peer"), Reading::Failed),
    }
    assert!(end == End::Silence || !reader.may_keep_alive(), "a connection that ended carries nothing");
    let mut record = RequestRecord::new(0, Phase::Measured, 0, Ticks(0));
    reader.write_to(&mut record);
    let (outcome, detail) = reader.conclude().unzip();
    let account = Account {
        outcome,
        detail: detail.flatten(),
        http_status: reader.http_status(),
        counters: record.counters,
        usage: record.usage,
        finish: record.finish.iter().map(|(choice, reason)| (choice, reason.to_owned())).collect(),
        text: record.text.map(|text| *text),
        first_output_kind: record.first_output_kind,
        cut_after_terminal: record.cut_after_terminal,
        streamed_unasked: record.streamed_unasked,
        anomalies: record.anomalies,
        terminal_seen: reader.terminal_seen(),
        may_keep_alive,
        announced: reader.announced_keep_alive(),
    };
    Seen { account, reading, marks: notes.marks }
}

/// A reader of streamed chat completions that keeps text.
pub(crate) fn reader() -> ResponseReader {
    reader_of(Dialect::Chat, true)
}

/// A reader of a dialect that keeps text.
pub(crate) fn reader_of(dialect: Dialect, streamed: bool) -> ResponseReader {
    ResponseReader::new(AnswerRule { dialect, streamed, ..AnswerRule::keeping(CAPTURE_LIMIT) })
}

/// Every position of a cut: byte by byte.
pub(crate) fn bytewise(bytes: &[u8]) -> Vec<usize> {
    (1..bytes.len()).collect()
}

/// Cuts into pieces of one size.
pub(crate) fn pieces_of(size: usize, bytes: &[u8]) -> Vec<usize> {
    (1..).map(|i| i * size).take_while(|&at| at < bytes.len()).collect()
}

/// Body in chunks of these sizes, the last of which holds the rest, with a trailer section; where each byte of the
/// body stands; and the position behind the line of the last chunk. `base` is where the body begins.
pub(crate) fn chunked(
    body: &[u8],
    sizes: &[usize],
    trailers: &str,
    base: usize,
) -> (Vec<u8>, Vec<usize>, usize) {
    let mut out = Vec::new();
    let mut places = Vec::new();
    let mut at = 0;
    let mut sizes = sizes.iter().copied();
    while at < body.len() {
        let size = sizes.next().unwrap_or(usize::MAX).clamp(1, body.len() - at);
        out.extend_from_slice(format!("{size:x}\r\n").as_bytes());
        places.extend((0..size).map(|i| base + out.len() + i));
        out.extend_from_slice(&body[at..at + size]);
        out.extend_from_slice(b"\r\n");
        at += size;
    }
    out.extend_from_slice(b"0\r\n");
    let last_chunk = base + out.len();
    out.extend_from_slice(trailers.as_bytes());
    out.extend_from_slice(b"\r\n");
    (out, places, last_chunk)
}

/// A transcript of the case files.
#[derive(Debug, Clone)]
pub(crate) struct Transcript {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    pub(crate) body: Vec<u8>,
    pub(crate) expect: serde_json::Value,
}

/// The dialect of a transcript's endpoint; Gemini's own chunks are read where chat chunks were asked for.
fn dialect_of(name: &str) -> Dialect {
    match name {
        "anthropic-overloaded" => Dialect::Messages,
        "openai-responses" | "openai-responses-failed" => Dialect::Responses,
        _ => Dialect::Chat,
    }
}

/// All transcripts, by name.
pub(crate) static TRANSCRIPTS: LazyLock<Vec<Transcript>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/transcripts");
    let transcript = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let expect = std::fs::read(path.with_extension("expect.json")).unwrap();
        Transcript {
            dialect: dialect_of(&name),
            name,
            body: std::fs::read(&path).unwrap(),
            expect: serde_json::from_slice(&expect).unwrap(),
        }
    };
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "sse")).map(transcript).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
});
