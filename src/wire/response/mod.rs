//! One answer, from its first byte to its verdict: HTTP, then the kind of body, then events, then their meaning.
//!
//! ```text
//! bytes ─► ResponseDecoder ─► head: status, codings ─► Body ─► events (sse) ─► meaning (dialect) ─► account ─┐
//!                                                        ├──► JSON that was not to be streamed ─► account ────┤
//!                                                        └──► plain body: first bytes kept, rest counted ─────┴─► verdict
//! ```
//!
//! The caller stamps reads; [`Marks`] tells it what each read completed. How the answer was cut into reads changes
//! only that. Nothing is allocated for a streamed answer that goes well once the storage is warm.
//!
//! What an answer means is decided by its first cause, and never again: a status that is no success and a coding that
//! was not asked for by the head alone; a terminal, or an error that the server reports, by its event; everything
//! else by the end of the answer. This file knows where the answer stands; what it holds is read in `body`, what an
//! ending means is said in `verdict`.

mod body;
mod verdict;

pub use body::{BODY_DISCARD_BYTES, BODY_READ_BYTES, WHOLE_BODY_BYTES};
pub use verdict::{BODY_START_BYTES, beginning};

use crate::record::{Anomaly, ErrorDetail, Outcome, RequestRecord};
use crate::units::Nanos;
use crate::wire::dialect::{Dialect, EventMeaning, StreamAccount, TextRule};
use crate::wire::http1::{Head, Method, Part, ResponseDecoder};
use crate::wire::sse::Event;
use body::{Body, Stop};
use verdict::{Ending, Verdict};

/// Learns what a read completed, in order.
pub trait Marks {
    /// The first byte of the final answer is in this read.
    fn first_byte(&mut self);
    /// What was taken for the first byte belonged to an interim answer (1xx).
    fn interim(&mut self);
    /// The head is complete.
    fn head_done(&mut self);
    /// An event is complete.
    fn event(&mut self, meaning: &EventMeaning);
    /// The bytes behind the [`Marks::event`] that follows; also those of an event after the terminal, which no such
    /// call follows. For showing an answer to people: a run looks at no text here.
    #[inline]
    fn seen(&mut self, event: &Event<'_>, meaning: &EventMeaning) {
        let _ = (event, meaning);
    }
    /// A comment line of the event stream.
    #[inline]
    fn comment(&mut self, text: &[u8]) {
        let _ = text;
    }
}

/// Where an answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// More bytes are to come.
    Going,
    /// The answer is complete; [`ResponseReader::may_keep_alive`] says whether the connection is of use.
    Complete,
    /// The answer is over and the connection is of no use.
    Failed,
}

/// How the answers to a request are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerRule {
    /// What the bytes of a body mean.
    pub dialect: Dialect,
    /// An event stream was asked for; else one JSON body. A server that does otherwise is read as what it sends: an
    /// event stream that nobody asked for is a stream with a flag, [`RequestRecord::streamed_unasked`]. Embeddings are
    /// never streamed and plain HTTP has no streams, whatever this says.
    pub streamed: bool,
    /// The method of the request: an answer to `HEAD` has no body.
    pub method: Method,
    /// What is done with the texts.
    pub text: TextRule,
}

/// Streamed chat completions.
impl Default for AnswerRule {
    fn default() -> Self {
        Self { dialect: Dialect::Chat, streamed: true, method: Method::Post, text: TextRule::default() }
    }
}

impl AnswerRule {
    /// Streamed chat completions of which texts of up to this many characters are kept.
    #[must_use]
    pub fn keeping(limit_chars: usize) -> Self {
        Self { text: TextRule::keep(limit_chars), ..Self::default() }
    }
}

/// Reads answers one after the other; the storage is reused.
///
/// ```
/// use hammerscale::record::Outcome;
/// use hammerscale::wire::dialect::EventMeaning;
/// use hammerscale::wire::response::{AnswerRule, Marks, Reading, ResponseReader};
///
/// struct Outputs(u32);
/// impl Marks for Outputs {
///     fn first_byte(&mut self) {}
///     fn interim(&mut self) {}
///     fn head_done(&mut self) {}
///     fn event(&mut self, meaning: &EventMeaning) {
///         self.0 += u32::from(meaning.output.is_some());
///     }
/// }
///
/// let mut reader = ResponseReader::new(AnswerRule::default());
/// let mut outputs = Outputs(0);
/// reader.start();
/// let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 61\r\n\r\n";
/// assert_eq!(reader.read(head, &mut outputs), Reading::Going);
/// let body = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
/// assert_eq!(reader.read(body, &mut outputs), Reading::Complete);
/// assert_eq!(outputs.0, 1);
/// assert!(reader.may_keep_alive());
/// assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
/// ```
#[derive(Debug)]
pub struct ResponseReader {
    rule: AnswerRule,
    decoder: ResponseDecoder,
    body: Body,
    /// A byte of the answer was read, an interim answer's too.
    begun: bool,
    /// The first byte of the answer that is being read was marked.
    first_byte_marked: bool,
    head_done: bool,
    /// The connection broke.
    broken: bool,
    /// Bytes came behind the end of the answer.
    unasked_bytes: bool,
    /// Nothing more is read.
    over: bool,
    verdict: Option<Verdict>,
}

impl ResponseReader {
    /// A reader by a rule.
    #[must_use]
    pub fn new(rule: AnswerRule) -> Self {
        let mut reader = Self {
            decoder: ResponseDecoder::new(),
            rule,
            body: Body::new(rule),
            begun: false,
            first_byte_marked: false,
            head_done: false,
            broken: false,
            unasked_bytes: false,
            over: false,
            verdict: None,
        };
        reader.start();
        reader
    }

    /// Forgets the last answer.
    pub fn start(&mut self) {
        self.decoder.start(self.rule.method);
        self.body.start();
        self.begun = false;
        self.first_byte_marked = false;
        self.head_done = false;
        self.broken = false;
        self.unasked_bytes = false;
        self.over = false;
        self.verdict = None;
    }

    /// Takes in the bytes of one read. Bytes behind the end of the answer say only that the connection cannot be used
    /// again: [`Reading::Failed`].
    pub fn read(&mut self, bytes: &[u8], marks: &mut impl Marks) -> Reading {
        if self.over {
            self.unasked_bytes |= !bytes.is_empty();
            return Reading::Failed;
        }
        let mut rest = bytes;
        loop {
            if !self.first_byte_marked && !rest.is_empty() {
                self.begun = true;
                self.first_byte_marked = true;
                marks.first_byte();
            }
            let decoded = match self.decoder.decode(rest) {
                Ok(decoded) => decoded,
                Err(error) => return self.end(Ending::Http(error), Reading::Failed),
            };
            rest = rest.get(decoded.consumed..).unwrap_or_default();
            match decoded.part {
                Part::NeedMore => return Reading::Going,
                Part::Interim(_) => {
                    marks.interim();
                    self.first_byte_marked = false;
                }
                Part::Head => {
                    self.head_done = true;
                    marks.head_done();
                    let head = self.decoder.head();
                    if let Some(plain) = head.and_then(|head| verdict::of_head(head, self.rule.dialect)) {
                        self.body.refuse(plain);
                    }
                }
                Part::Data(data) => match self.body.take(data, self.decoder.head(), marks) {
                    Ok(()) => {}
                    Err(Stop::Limit(error)) => return self.end(Ending::Limit(error), Reading::Failed),
                    Err(Stop::TooLong) => return self.end(Ending::TooLong, Reading::Failed),
                    Err(Stop::Enough) => return self.end(Ending::GivenUp, Reading::Failed),
                },
                Part::End => {
                    self.unasked_bytes = !rest.is_empty();
                    return self.end_cleanly(Reading::Complete, marks);
                }
            }
        }
    }

    /// The peer closed its side.
    pub fn end_of_stream(&mut self, marks: &mut impl Marks) -> Reading {
        let end = self.decoder.eof();
        if self.over {
            return Reading::Failed;
        }
        match end {
            Ok(()) => self.end_cleanly(Reading::Failed, marks),
            Err(error) => self.end(Ending::Http(error), Reading::Failed),
        }
    }

    /// The connection broke; `message` is the kernel's word for it.
    pub fn reset(&mut self, message: &str) -> Reading {
        self.broken = true;
        if self.over { Reading::Failed } else { self.end(Ending::Reset(message), Reading::Failed) }
    }

    /// Whether the terminal (`[DONE]`) was read.
    #[must_use]
    pub fn terminal_seen(&self) -> bool {
        self.body.account.done()
    }

    /// Whether the connection may carry another request: so far, and for good once the answer is complete.
    #[must_use]
    pub fn may_keep_alive(&self) -> bool {
        /// RFC 9110 15.5.9: the server has waited for a request long enough and closes, whether it says so or not. It
        /// may have said it while the request was on its way, and would then answer that one later.
        const REQUEST_TIMEOUT: u16 = 408;

        let head = self.decoder.head();
        let persistent = head.is_some_and(|head| head.is_persistent() && head.status() != REQUEST_TIMEOUT);
        persistent && !self.broken && !self.unasked_bytes && (!self.over || self.decoder.reusable())
    }

    /// How long the server said it keeps an idle connection (`Keep-Alive: timeout=`).
    #[must_use]
    pub fn announced_keep_alive(&self) -> Option<Nanos> {
        self.decoder.head()?.keep_alive_timeout()
    }

    /// Status of the final answer; `None` before its head is complete.
    #[must_use]
    pub fn http_status(&self) -> Option<u16> {
        self.decoder.head().map(Head::status)
    }

    /// What the events of the answer said so far; final once the answer is concluded.
    #[must_use]
    pub fn account(&self) -> &StreamAccount {
        &self.body.account
    }

    /// Fills in what the answer said: counts, usage, finish reasons, text. For an answer that is over, or that the
    /// caller gives up.
    pub fn write_to(&mut self, record: &mut RequestRecord) {
        // The account learns from its verdict that the body was cut after the terminal.
        self.give_up();
        record.counters.body_bytes = self.body.bytes();
        record.streamed_unasked = self.body.is_unasked_stream();
        record.anomalies.merge(self.decoder.anomalies());
        if self.unasked_bytes {
            record.anomalies.insert(Anomaly::UnaskedBytes);
        }
        self.body.account.write_to(record);
    }

    /// The verdict on an answer that is over, or that the caller gives up: then `None` while nothing has decided it.
    /// `[DONE]` decides, and so does an error that the server reported, whatever happens to the bytes after it; a
    /// status that is no success decides before its body is read. The detail is `None` with [`Outcome::Ok`] alone.
    pub fn conclude(&mut self) -> Option<(Outcome, Option<ErrorDetail>)> {
        self.give_up();
        self.verdict.take()
    }

    fn give_up(&mut self) {
        if !self.over {
            self.end(Ending::GivenUp, Reading::Failed);
        }
    }

    /// The body is complete, though the connection may have ended with it.
    fn end_cleanly(&mut self, reading: Reading, marks: &mut impl Marks) -> Reading {
        match self.body.finish(marks) {
            Ok(()) => self.end(Ending::Clean, reading),
            Err(error) => self.end(Ending::Limit(error), Reading::Failed),
        }
    }

    fn end(&mut self, ending: Ending<'_>, reading: Reading) -> Reading {
        self.over = true;
        self.verdict = if self.head_done {
            verdict::of_answer(&mut self.body, &self.decoder, ending)
        } else {
            verdict::of_head_that_ended(&self.decoder, self.begun, ending)
        };
        reading
    }
}

#[cfg(test)]
mod tests;
