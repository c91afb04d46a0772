//! The pull decoder of one response at a time.
//!
//! The caller owns the bytes: it offers what one read brought, takes part after part out of it, and hands the body's
//! bytes on where they lie. The decoder remembers only what a cut between two reads makes it remember. It neither
//! reads nor waits, and it does not look beyond the end of the response.

use super::body::Body;
use super::error::{Fault, HttpError, SizeLimit};
use super::head::{Head, HeadStep};
use super::limits::INTERIM_MAX;
use super::request::Method;
use crate::record::Anomalies;

/// What one call of [`ResponseDecoder::decode`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'i> {
    /// How many bytes of the input the call used up; all of them with [`Part::NeedMore`].
    pub consumed: usize,
    /// What they were.
    pub part: Part<'i>,
}

/// One part of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'i> {
    /// The input is used up and the response goes on.
    NeedMore,
    /// An interim response (1xx) was skipped; the final one is still to come. Its first byte is the next one: what
    /// was stamped as the answer's first byte so far belonged to the interim response.
    Interim(u16),
    /// The head of the final response is complete: [`ResponseDecoder::head`].
    Head,
    /// Bytes of the body, in the input; never none.
    Data(&'i [u8]),
    /// The response is complete; the rest of the input does not belong to it. Comes again when asked again.
    End,
}

/// Decodes responses, one after the other; reusable, and keeps its storage: after the first response nothing is
/// allocated until a head or a trailer section is larger than all before.
///
/// ```
/// use hammerscale::wire::http1::{Method, Part, ResponseDecoder};
///
/// let mut decoder = ResponseDecoder::new();
/// decoder.start(Method::Post);
/// let mut body = Vec::new();
/// for read in [&b"HTTP/1.1 200 OK\r\nTransfer-Encod"[..], b"ing: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"] {
///     let mut rest = read;
///     loop {
///         let decoded = decoder.decode(rest)?;
///         rest = &rest[decoded.consumed..];
///         match decoded.part {
///             Part::NeedMore | Part::End => break,
///             Part::Data(data) => body.extend_from_slice(data),
///             Part::Head => assert_eq!(decoder.head().unwrap().status(), 200),
///             Part::Interim(_) => {}
///         }
///     }
/// }
/// assert!(decoder.is_complete() && decoder.reusable());
/// assert_eq!(body, b"ok");
/// # Ok::<(), hammerscale::wire::http1::HttpError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ResponseDecoder {
    state: State,
    method: Method,
    /// Bytes of the response consumed so far.
    offset: u64,
    interims: u32,
    anomalies: Anomalies,
    closed: bool,
    error_offset: Option<u64>,
    head: Head,
    /// The method that the head in `head` answered, when it was read whole, from the first byte of its response on, and
    /// nothing about it was remarkable: the same bytes mean the same again.
    repeatable: Option<Method>,
    body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No byte has come; `head` holds the response before.
    Untouched,
    Head,
    Body,
    Complete,
    Failed(HttpError),
}

impl Default for ResponseDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponseDecoder {
    /// A decoder that has seen nothing, started for an answer to GET.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::Untouched,
            method: Method::Get,
            offset: 0,
            interims: 0,
            anomalies: Anomalies::NONE,
            closed: false,
            error_offset: None,
            head: Head::new(),
            repeatable: None,
            body: Body::default(),
        }
    }

    /// Forgets the last response and waits for the answer to a request of that method.
    pub fn start(&mut self, method: Method) {
        self.state = State::Untouched;
        self.method = method;
        self.offset = 0;
        self.interims = 0;
        self.anomalies = Anomalies::NONE;
        self.closed = false;
        self.error_offset = None;
        self.body.clear();
    }

    /// Takes the next part out of `input`, the bytes that follow those consumed so far. Call again with the rest of
    /// the input until [`Part::NeedMore`] or [`Part::End`]; an empty rest may still bring an `End`.
    ///
    /// The parts do not depend on how the response is cut into inputs, except for the sizes of the data.
    ///
    /// # Errors
    /// The first broken rule or limit; the response is given up, and every later call returns the same error.
    #[inline]
    pub fn decode<'i>(&mut self, input: &'i [u8]) -> Result<Decoded<'i>, HttpError> {
        if self.state == State::Body
            && let Some((consumed, data)) = self.body.read_short(input)
        {
            self.offset += consumed as u64;
            return Ok(Decoded { consumed, part: Part::Data(data) });
        }
        self.decode_rest(input)
    }

    /// Everything but the short path.
    fn decode_rest<'i>(&mut self, input: &'i [u8]) -> Result<Decoded<'i>, HttpError> {
        let step = match self.state {
            State::Body => self.body.read(input, self.offset, &mut self.anomalies),
            State::Untouched => self.decode_first(input),
            State::Head => self.decode_head(input),
            State::Complete => return Ok(Decoded { consumed: 0, part: Part::End }),
            State::Failed(error) => return Err(error),
        };
        match step {
            Ok(decoded) => {
                self.offset += decoded.consumed as u64;
                if decoded.part == Part::End {
                    self.state = State::Complete;
                }
                Ok(decoded)
            }
            Err(fault) => Err(self.fail(fault)),
        }
    }

    /// The peer closed. `Ok` when the response is complete, or complete by that.
    ///
    /// # Errors
    /// Where the response was cut: before it, in its head, or in its body.
    pub fn eof(&mut self) -> Result<(), HttpError> {
        self.closed = true;
        let end = match self.state {
            State::Complete => return Ok(()),
            State::Failed(error) => return Err(error),
            State::Untouched => {
                self.forget_head();
                Err(self.head.eof(false))
            }
            State::Head => Err(self.head.eof(self.interims > 0)),
            State::Body => self.body.eof(&mut self.anomalies),
        };
        match end {
            Ok(()) => {
                self.state = State::Complete;
                Ok(())
            }
            Err(fault) => Err(self.fail(fault)),
        }
    }

    /// The head of the final response, from [`Part::Head`] until the next [`ResponseDecoder::start`].
    #[must_use]
    pub fn head(&self) -> Option<&Head> {
        (self.state != State::Untouched && self.head.is_final()).then_some(&self.head)
    }

    /// The trailer fields of a chunked body, in the order received; empty before [`Part::End`]. They are never
    /// merged into the head's fields (RFC 9110 6.5.1).
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.body.trailers()
    }

    /// Whether the response is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Whether the line of the last chunk was read: the data of a chunked body is complete.
    #[must_use]
    pub fn last_chunk_seen(&self) -> bool {
        self.body.last_chunk_seen()
    }

    /// Whether the response, once complete, lets the connection be used again: its version, its `Connection` and
    /// its framing (RFC 9112 9.3). False before the end.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.is_complete() && self.head.is_persistent()
    }

    /// Whether the connection can be used again: [`ResponseDecoder::keep_alive`], and the peer has not closed. Bytes
    /// that are left over behind the response rule it out too; only the caller sees them.
    #[must_use]
    pub fn reusable(&self) -> bool {
        self.keep_alive() && !self.closed
    }

    /// What was accepted and flagged so far, interim responses included.
    #[must_use]
    pub fn anomalies(&self) -> Anomalies {
        self.anomalies
    }

    /// How many interim responses came.
    #[must_use]
    pub fn interims(&self) -> u32 {
        self.interims
    }

    /// Bytes of the response consumed so far, interim responses and framing included. Zero means that the answer
    /// has not begun. After an error: those consumed by the calls before it.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.offset
    }

    /// After an error, where its first offending byte stands, counted from the first byte of the response (interim
    /// responses included). `None` where no byte is to blame: an early end, too many fields, a folded value.
    #[must_use]
    pub fn error_offset(&self) -> Option<u64> {
        self.error_offset
    }

    /// The first bytes of a response. Servers send the same head over and over, or change it once a second: the head of
    /// the response before needs no second parse when it comes again to the byte.
    fn decode_first<'i>(&mut self, input: &'i [u8]) -> Result<Decoded<'i>, Fault> {
        if input.is_empty() {
            return Ok(Decoded { consumed: 0, part: Part::NeedMore });
        }
        if self.repeatable == Some(self.method) && input.starts_with(self.head.raw()) {
            return Ok(self.body_follows(self.head.raw().len()));
        }
        self.forget_head();
        self.state = State::Head;
        self.decode_head(input)
    }

    /// The head of the response before is of no use any more.
    fn forget_head(&mut self) {
        self.repeatable = None;
        self.head.begin(0);
    }

    /// The head is complete, and consumed so many bytes of this input.
    fn body_follows<'i>(&mut self, consumed: usize) -> Decoded<'i> {
        self.body.begin(self.head.framing());
        self.state = State::Body;
        Decoded { consumed, part: Part::Head }
    }

    fn decode_head<'i>(&mut self, input: &'i [u8]) -> Result<Decoded<'i>, Fault> {
        let (consumed, step) = self.head.read(input, self.method, &mut self.anomalies)?;
        if step == HeadStep::NeedMore {
            return Ok(Decoded { consumed, part: Part::NeedMore });
        }
        let head_start = self.head.offset();
        let status = self.head.status();
        if status == 101 {
            return Err(Fault { error: HttpError::SwitchingProtocols, offset: head_start });
        }
        if !self.head.is_final() {
            self.interims += 1;
            if self.interims > INTERIM_MAX {
                return Err(Fault {
                    error: HttpError::Limit(SizeLimit::InterimResponses),
                    offset: head_start,
                });
            }
            self.head.begin(self.offset + consumed as u64);
            return Ok(Decoded { consumed, part: Part::Interim(status) });
        }
        let unremarkable = self.interims == 0 && self.anomalies == Anomalies::NONE;
        self.repeatable = unremarkable.then_some(self.method);
        Ok(self.body_follows(consumed))
    }

    #[cold]
    fn fail(&mut self, fault: Fault) -> HttpError {
        self.state = State::Failed(fault.error);
        self.error_offset = fault.offset;
        fault.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Decodes all of the pieces; the bytes of the body.
    fn drain<'i>(decoder: &mut ResponseDecoder, pieces: impl IntoIterator<Item = &'i [u8]>) -> Vec<u8> {
        let mut body = Vec::new();
        for piece in pieces {
            let mut rest = piece;
            loop {
                let decoded = decoder.decode(rest).unwrap();
                rest = &rest[decoded.consumed..];
                match decoded.part {
                    Part::NeedMore | Part::End => break,
                    Part::Data(data) => body.extend_from_slice(data),
                    Part::Head | Part::Interim(_) => {}
                }
            }
        }
        body
    }

    /// One field of that size, or as many short ones as a head may have.
    fn fields(bytes: usize, many: bool) -> String {
        let count = if many { 200 } else { 1 };
        format!("X: {}\r\n", "v".repeat(bytes / count - 5)).repeat(count)
    }

    #[test]
    fn heads_and_trailers_that_trickle_in_cost_linear_work() {
        for many in [false, true] {
            let work = |bytes: usize| {
                let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", fields(bytes - 64, many));
                let mut decoder = ResponseDecoder::new();
                drain(&mut decoder, text.as_bytes().chunks(1));
                assert!(decoder.head().is_some());
                let head = decoder.head.section.work;
                let text = format!("{CHUNKED}0\r\n{}\r\n", fields(bytes - 64, many));
                decoder.start(Method::Get);
                drain(&mut decoder, text.as_bytes().chunks(1));
                assert!(decoder.is_complete());
                (head, decoder.body.trailers.work)
            };
            let (small, large) = (work(16 * 1024), work(64 * 1024));
            for (small, large, bytes) in [(small.0, large.0, 64 * 1024), (small.1, large.1, 64 * 1024)] {
                assert!(large <= 2 * bytes, "each byte is looked at twice at most: {large}");
                assert!(
                    large * 10 < small * 41,
                    "four times the bytes, four times the work: {small} {large}"
                );
            }
        }
    }

    #[test]
    fn nothing_is_allocated_once_the_largest_response_has_been_seen() {
        let text = format!("{}2\r\nok\r\n0\r\n{}\r\n", CHUNKED, "A: b\r\n c\r\n".repeat(20));
        let small = "HTTP/1.1 200 OK\r\nServer: a\r\n b\r\nContent-Length: 2\r\n\r\nok";
        let mut decoder = ResponseDecoder::new();
        drain(&mut decoder, [text.as_bytes(), b""]);
        let room = |decoder: &ResponseDecoder| {
            (decoder.head.section.capacities(), decoder.body.trailers.capacities())
        };
        let before = room(&decoder);
        for _ in 0..3 {
            decoder.start(Method::Post);
            assert_eq!(drain(&mut decoder, text.as_bytes().chunks(1)), b"ok");
            assert_eq!(decoder.trailers().count(), 20);
        }
        assert_eq!(room(&decoder), before);
        decoder.start(Method::Post);
        assert_eq!(drain(&mut decoder, [small.as_bytes()]), b"ok");
        assert_eq!(room(&decoder).1, before.1);
    }

    #[test]
    fn body_data_is_a_part_of_the_input_and_takes_its_framing_along() {
        let mut decoder = ResponseDecoder::new();
        let input = format!("{CHUNKED}5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nnext");
        let mut rest = input.as_bytes();
        let mut parts = Vec::new();
        while let Ok(decoded) = decoder.decode(rest)
            && parts.last() != Some(&Decoded { consumed: 5, part: Part::End })
        {
            if let Part::Data(data) = decoded.part {
                assert!(rest.as_ptr_range().contains(&data.as_ptr()));
            }
            parts.push(decoded);
            rest = &rest[decoded.consumed..];
        }
        let data = |consumed, text: &'static str| Decoded { consumed, part: Part::Data(text.as_bytes()) };
        assert_eq!(
            parts,
            [
                Decoded { consumed: CHUNKED.len(), part: Part::Head },
                data(10, "hello"),
                data(11, " world"),
                Decoded { consumed: 5, part: Part::End },
            ]
        );
        assert_eq!(rest, b"next");
    }

    #[test]
    fn a_length_and_a_chunk_of_64_bits_do_not_overflow() {
        for head in [
            "Content-Length: 18446744073709551615\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ] {
            let mut decoder = ResponseDecoder::new();
            let text = format!("HTTP/1.1 200 OK\r\n{head}ab");
            assert_eq!(drain(&mut decoder, [text.as_bytes(), b"cd"]), b"abcd");
            assert!(decoder.eof().is_err());
        }
    }
}
