//! The push parser: lines out of bytes that arrive in pieces, and what each line does.
//!
//! Every byte is searched for a line end exactly once. A line that a read leaves open waits in `line`; the next read
//! is searched from its own first byte on and never from the start of that line, so feeding byte by byte stays
//! linear. What the lines of one event add up to is in `block`.

use memchr::{memchr, memchr2};

use super::block::{Block, Borrowed, TooLarge};
use super::field::{Field, retry_ms};
use super::storage::{self, replace_within, reserve_within};
use super::{Event, Limits, Sink, SseError, Tail};

const LF: u8 = b'\n';
const CR: u8 = b'\r';
const BOM: [u8; BOM_BYTES] = [0xef, 0xbb, 0xbf];
const BOM_BYTES: usize = 3;

/// A parser for one event stream at a time; see the [module](super) for what it promises.
///
/// ```
/// use hammerscale::wire::sse::{Event, Limits, Parser, Sink};
///
/// struct Lengths(Vec<usize>);
/// impl Sink for Lengths {
///     fn event(&mut self, event: Event<'_>) {
///         self.0.push(event.data.len());
///     }
/// }
///
/// let mut parser = Parser::new(Limits::default());
/// let mut lengths = Lengths(Vec::new());
/// parser.feed(b"data: first\n\ndata: [DO", &mut lengths)?;
/// parser.feed(b"NE]\n", &mut lengths)?;
/// assert_eq!(lengths.0, [5]);
///
/// let tail = parser.finish();
/// assert_eq!(tail.pending.map(|event| event.data), Some(&b"[DONE]"[..]));
/// # Ok::<(), hammerscale::wire::sse::SseError>(())
/// ```
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    /// The unfinished line that earlier reads left; not empty exactly while one is open.
    line: Vec<u8>,
    block: Block,
    /// The last event ID buffer.
    id: Vec<u8>,
    /// Where `finish` joins an unterminated data line to the data before it.
    tail: Vec<u8>,
    /// The last byte was a CR that ended a line, so an LF now belongs to it.
    skip_lf: bool,
    /// How many bytes of a byte order mark have been matched; `BOM_BYTES` once that question is settled.
    bom: usize,
    fed: u64,
    scanned: u64,
    comments: u64,
    failed: Option<SseError>,
}

impl Parser {
    /// A parser at the start of a stream. Allocates nothing until a read ends within a block.
    pub fn new(limits: Limits) -> Self {
        Parser {
            limits,
            line: Vec::new(),
            block: Block::default(),
            id: Vec::new(),
            tail: Vec::new(),
            skip_lf: false,
            bom: 0,
            fed: 0,
            scanned: 0,
            comments: 0,
            failed: None,
        }
    }

    /// Back to the start of a new stream: nothing of the old one is left but its storage, of which each buffer keeps
    /// at most [`RETAINED_BYTES`](super::RETAINED_BYTES).
    pub fn reset(&mut self) {
        for buffer in [&mut self.line, &mut self.id, &mut self.tail] {
            storage::empty(buffer);
        }
        self.block.reset();
        self.skip_lf = false;
        self.bom = 0;
        self.fed = 0;
        self.scanned = 0;
        self.comments = 0;
        self.failed = None;
    }

    /// Reads the next bytes of the stream, however they were cut, and hands to `sink` what they complete.
    ///
    /// # Errors
    /// A limit was exceeded; everything complete before that byte has been handed out. From then on every call
    /// returns the same error and reads nothing, until [`reset`](Self::reset).
    pub fn feed<S: Sink + ?Sized>(&mut self, input: &[u8], sink: &mut S) -> Result<(), SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.fed += input.len() as u64;
        let mut open = Borrowed::default();
        let result = self.read_lines(input, &mut open, sink);
        self.block.keep(&open, &self.limits);
        self.failed = result.err();
        result
    }

    /// What is left at the end of the stream. Changes nothing: the same answer comes again until more is fed.
    ///
    /// After an error it shows the block as it stood before the offending line, and for
    /// [`SseError::LineTooLong`] the first [`Limits::line_bytes`] bytes of that line as `unterminated`.
    pub fn finish(&mut self) -> Tail<'_> {
        let unterminated = match self.bom {
            matched @ 1..BOM_BYTES => BOM.get(..matched).unwrap_or_default(),
            _ => &self.line,
        };
        let (mut event, mut id) = (self.block.event(), self.id.as_slice());
        let mut data = self.block.data();
        let mut error = None;
        match Field::read(unterminated) {
            Field::Data(value) => {
                data = Some(match data {
                    None => value,
                    Some(before) => {
                        self.tail.clear();
                        self.tail.reserve_exact(before.len() + 1 + value.len());
                        self.tail.extend_from_slice(before);
                        self.tail.push(LF);
                        self.tail.extend_from_slice(value);
                        &self.tail
                    }
                });
            }
            Field::Event(value) => event = value,
            Field::Id(value) if memchr(0, value).is_none() => id = value,
            Field::Error(value) => error = Some(value),
            Field::Id(_) | Field::Retry(_) | Field::Comment(_) | Field::Unknown => {}
        }
        Tail {
            error,
            pending: data.map(|data| Event { event, data, id }),
            block_open: self.block.data().is_some(),
            unterminated,
            last_event_id: &self.id,
        }
    }

    /// The last event ID buffer now; empty when no `id` field came.
    pub fn last_event_id(&self) -> &[u8] {
        &self.id
    }

    /// Complete comment lines so far.
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Bytes looked at so far: each byte in the search for line ends, and the values of `id` and `retry` once more.
    /// At most twice the bytes fed.
    pub fn bytes_scanned(&self) -> u64 {
        self.scanned
    }

    /// Bytes of the stream held right now: the unfinished line, the open block and the last event ID.
    pub fn buffered_bytes(&self) -> usize {
        self.line.len() + self.block.held_bytes() + self.id.len()
    }

    /// Bytes of storage allocated right now.
    pub fn storage_bytes(&self) -> usize {
        self.line.capacity() + self.block.storage_bytes() + self.id.capacity() + self.tail.capacity()
    }

    /// Reads every line that ends in the input and keeps the rest.
    fn read_lines<'i, S: Sink + ?Sized>(
        &mut self,
        input: &'i [u8],
        open: &mut Borrowed<'i>,
        sink: &mut S,
    ) -> Result<(), SseError> {
        let mut rest = self.after_bom(input)?;
        while let Some((&first, after_first)) = rest.split_first() {
            if self.skip_lf {
                self.skip_lf = false;
                if first == LF {
                    self.scanned += 1;
                    rest = after_first;
                    continue;
                }
            }
            if (first == LF || first == CR) && self.line.is_empty() {
                self.scanned += 1;
                self.skip_lf = first == CR;
                rest = after_first;
                self.block.dispatch(open, &self.id, sink);
                continue;
            }
            let Some(end) = memchr2(LF, CR, rest) else {
                self.scanned += rest.len() as u64;
                return self.carry(rest, 0);
            };
            let (piece, from_end) = rest.split_at(end);
            self.scanned += end as u64 + 1;
            if self.line.is_empty() {
                if end > self.limits.line_bytes {
                    return self.carry(piece, from_end.len());
                }
                self.read_field(piece, from_end.len(), open, sink)?;
            } else {
                self.carry(piece, from_end.len())?;
                self.read_carried(from_end.len(), sink)?;
            }
            self.skip_lf = from_end.first() == Some(&CR);
            rest = from_end.get(1..).unwrap_or_default();
        }
        Ok(())
    }

    /// The input without a byte order mark at the very start of the stream, which may come in pieces.
    #[inline]
    fn after_bom<'i>(&mut self, mut input: &'i [u8]) -> Result<&'i [u8], SseError> {
        while let Some(expected) = BOM.get(self.bom) {
            match input.split_first() {
                None => break,
                Some((first, after)) if first == expected => {
                    self.scanned += 1;
                    self.bom += 1;
                    input = after;
                }
                Some(_) => {
                    let matched = std::mem::replace(&mut self.bom, BOM_BYTES);
                    self.carry(BOM.get(..matched).unwrap_or_default(), input.len())?;
                }
            }
        }
        Ok(input)
    }

    /// Appends to the unfinished line. `after` is how many bytes of the input follow the piece.
    fn carry(&mut self, piece: &[u8], after: usize) -> Result<(), SseError> {
        let limit = self.limits.line_bytes;
        let room = limit - self.line.len();
        let kept = piece.get(..room).unwrap_or(piece);
        reserve_within(&mut self.line, kept.len(), limit);
        self.line.extend_from_slice(kept);
        match piece.len() - kept.len() {
            0 => Ok(()),
            beyond => Err(SseError::LineTooLong { offset: self.fed - (after + beyond) as u64 }),
        }
    }

    /// Reads the carried line, which is complete now, and leaves its storage empty.
    fn read_carried<S: Sink + ?Sized>(&mut self, after: usize, sink: &mut S) -> Result<(), SseError> {
        let mut line = std::mem::take(&mut self.line);
        let mut open = Borrowed::default();
        let result = self.read_field(&line, after, &mut open, sink);
        // The first data line of a block becomes the data buffer as it is; copying it out would touch a large event
        // a second time.
        let data_from = open.data.take().map(|value| line.len() - value.len());
        self.block.keep(&open, &self.limits);
        if let Some(data_from) = data_from {
            self.block.adopt(&mut line, data_from);
        }
        line.clear();
        self.line = line;
        result
    }

    /// Applies one complete line that is not blank. `after` is how many bytes of the input follow it.
    #[inline]
    fn read_field<'i, S: Sink + ?Sized>(
        &mut self,
        line: &'i [u8],
        after: usize,
        open: &mut Borrowed<'i>,
        sink: &mut S,
    ) -> Result<(), SseError> {
        match Field::read(line) {
            Field::Data(value) => {
                let added = self.block.add_data(value, open, &self.limits);
                added.map_err(|TooLarge| SseError::EventTooLarge { offset: self.fed - after as u64 })?;
            }
            Field::Event(value) => open.event = Some(value),
            Field::Id(value) => {
                self.scanned += value.len() as u64;
                if memchr(0, value).is_none() {
                    replace_within(&mut self.id, value, self.limits.line_bytes);
                }
            }
            Field::Retry(value) => {
                self.scanned += value.len() as u64;
                if let Some(ms) = retry_ms(value) {
                    sink.retry(ms);
                }
            }
            Field::Comment(text) => {
                self.comments += 1;
                sink.comment(text);
            }
            Field::Error(value) => sink.error_field(value),
            Field::Unknown => {}
        }
        Ok(())
    }
}

impl Default for Parser {
    fn default() -> Self {
        Parser::new(Limits::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sse::block::DATA_NAME_BYTES;
    use crate::wire::sse::{EVENT_LIMIT_BYTES, LINE_LIMIT_BYTES, RETAINED_BYTES};

    /// Keeps events, comments and retries in the order in which they came.
    #[derive(Default)]
    struct Log(Vec<String>);

    impl Sink for Log {
        fn event(&mut self, event: Event<'_>) {
            let [kind, data, id] = [event.event, event.data, event.id].map(|part| part.escape_ascii());
            self.0.push(format!("event {kind}|{data}|{id}"));
        }

        fn comment(&mut self, text: &[u8]) {
            self.0.push(format!("comment {}", text.escape_ascii()));
        }

        fn retry(&mut self, ms: u64) {
            self.0.push(format!("retry {ms}"));
        }
    }

    /// Counts events and those whose data lies inside the range of addresses of the input.
    struct Places {
        input: std::ops::Range<*const u8>,
        events: u64,
        borrowed: u64,
    }

    impl Sink for Places {
        fn event(&mut self, event: Event<'_>) {
            self.events += 1;
            self.borrowed += u64::from(self.input.contains(&event.data.as_ptr()));
        }
    }

    fn log(stream: &[u8]) -> Vec<String> {
        let mut log = Log::default();
        Parser::default().feed(stream, &mut log).unwrap();
        log.0
    }

    /// The bytes (counted from 1) after which an event was out, fed byte by byte.
    fn dispatch_points(stream: &[u8]) -> Vec<usize> {
        let (mut parser, mut log, mut points) = (Parser::default(), Log::default(), Vec::new());
        for (index, byte) in stream.chunks(1).enumerate() {
            let before = log.0.len();
            parser.feed(byte, &mut log).unwrap();
            points.extend((before..log.0.len()).map(|_| index + 1));
        }
        points
    }

    fn never_ending(parser: &mut Parser, head: &[u8], repeated: &[u8]) -> (SseError, usize) {
        let (mut log, mut held) = (Log::default(), 0);
        let mut result = parser.feed(head, &mut log);
        while result.is_ok() {
            held = held.max(parser.buffered_bytes());
            result = parser.feed(repeated, &mut log);
        }
        (result.unwrap_err(), held.max(parser.buffered_bytes()))
    }

    #[test]
    fn an_event_is_out_at_the_first_byte_of_its_blank_line() {
        assert_eq!(dispatch_points(b"data:a\n\ndata:b\n\n"), [8, 16]);
        assert_eq!(dispatch_points(b"data:a\r\rdata:b\r\r"), [8, 16]);
        assert_eq!(dispatch_points(b"data:a\r\n\r\ndata:b\r\n\r\n"), [9, 19]);
        assert_eq!(dispatch_points(b"data:a\n\r\ndata:b\r\n\ndata:c\r\n\r"), [8, 18, 27]);
        assert_eq!(dispatch_points(b"\xef\xbb\xbfdata:a\n\n"), [11]);
    }

    #[test]
    fn the_lf_of_a_crlf_never_makes_a_blank_line() {
        assert_eq!(log(b"data:a\r\ndata:b\r\n\r\n"), ["event |a\\nb|"]);
        assert_eq!(log(b"data:a\r\n"), [] as [&str; 0]);
        assert_eq!(log(b"data:a\r\n\n"), ["event |a|"]);
        assert_eq!(log(b"data:a\n\r\ndata:b\n\r"), ["event |a|", "event |b|"]);
    }

    #[test]
    fn everything_comes_in_stream_order() {
        assert_eq!(
            log(b": hi\nretry: 5\nid: 1\nevent: t\ndata: x\n:\n\nevent: lost\n\ndata\n\n"),
            ["comment  hi", "retry 5", "comment ", "event t|x|1", "event ||1"]
        );
    }

    #[test]
    fn whole_events_with_one_data_line_are_borrowed_and_need_no_storage() {
        let chunk = b"data: {\"choices\":[{\"delta\":{\"content\":\" token\"}}]}\n\n".repeat(50);
        let mut parser = Parser::default();
        let mut places = Places { input: chunk.as_ptr_range(), events: 0, borrowed: 0 };
        for _ in 0..3 {
            parser.feed(&chunk, &mut places).unwrap();
        }
        assert_eq!((places.events, places.borrowed), (150, 150));
        assert_eq!(parser.storage_bytes(), 0);
        assert_eq!(parser.bytes_scanned(), 3 * chunk.len() as u64);
    }

    #[test]
    fn storage_does_not_grow_once_warm() {
        let stream = b"id: 12\nevent: t\ndata: {\"a\":\ndata: 1}\n\n: ping\n\ndata: tail";
        let (mut parser, mut log) = (Parser::default(), Log::default());
        let mut warm = None;
        for _ in 0..50 {
            parser.reset();
            for piece in stream.chunks(7) {
                parser.feed(piece, &mut log).unwrap();
            }
            assert!(parser.finish().pending.is_some());
            // Two streams warm it: the line and data buffers may change places.
            warm = warm.or((log.0.len() == 4).then(|| parser.storage_bytes()));
        }
        assert_eq!(log.0.len(), 100);
        assert_eq!(warm, Some(parser.storage_bytes()));
    }

    #[test]
    fn a_line_that_never_ends_is_an_error_and_its_storage_is_bounded() {
        for head in ["data: ", ":", "id: ", "unknown"] {
            let mut parser = Parser::default();
            let (error, held) = never_ending(&mut parser, head.as_bytes(), &[b'x'; 60_000]);
            assert_eq!(error, SseError::LineTooLong { offset: LINE_LIMIT_BYTES as u64 });
            assert!(held <= LINE_LIMIT_BYTES, "{held}");
            assert!(parser.storage_bytes() <= LINE_LIMIT_BYTES, "{}", parser.storage_bytes());
        }
    }

    #[test]
    fn an_event_that_never_ends_is_an_error_and_its_storage_is_bounded() {
        let mut parser = Parser::default();
        let line = [b"data: ".to_vec(), vec![b'x'; 60_000], b"\r\n".to_vec()].concat();
        let (error, held) = never_ending(&mut parser, b"", &line);
        let lines = (EVENT_LIMIT_BYTES + 1) / 60_001;
        let end_of_last = lines * line.len() + line.len() - 2;
        assert_eq!(error, SseError::EventTooLarge { offset: end_of_last as u64 });
        assert!(held <= EVENT_LIMIT_BYTES, "{held}");
        assert!(parser.storage_bytes() <= EVENT_LIMIT_BYTES + DATA_NAME_BYTES);
    }

    #[test]
    fn an_error_stays_until_reset() {
        let mut parser = Parser::new(Limits { line_bytes: 8, event_bytes: 4 });
        let mut log = Log::default();
        let too_long = SseError::LineTooLong { offset: 18 };
        assert_eq!(parser.feed(b"data: ab\n\ndata: abc\n\n", &mut log), Err(too_long));
        assert_eq!(parser.feed(b"\n\ndata: ab\n\n", &mut log), Err(too_long));
        assert_eq!(log.0, ["event |ab|"]);
        assert_eq!(parser.finish().unterminated, b"data: ab");
        assert_eq!(too_long.to_string(), "event stream line too long at byte 18");

        parser.reset();
        let too_large = SseError::EventTooLarge { offset: 16 };
        assert_eq!(parser.feed(b"data:ab\ndata: cd\n\n", &mut log), Err(too_large));
        assert_eq!(too_large.offset(), 16);
        assert_eq!(parser.finish().pending.map(|event| event.data), Some(&b"ab"[..]));

        parser.reset();
        assert_eq!(parser.feed(b"data:a\ndata: cd\n\n", &mut log), Ok(()));
        assert_eq!(log.0, ["event |ab|", "event |a\\ncd|"]);
    }

    #[test]
    fn reset_forgets_the_stream_and_gives_large_storage_back() {
        let mut parser = Parser::default();
        let mut log = Log::default();
        parser.feed(b"id: 9\n:\nevent: t\ndata: ", &mut log).unwrap();
        parser.feed(&vec![b'x'; 1 << 20], &mut log).unwrap();
        parser.feed(b"\n", &mut log).unwrap();
        // One buffer holds the large line: it became the data buffer without a copy.
        assert!((1 << 20..3 << 19).contains(&parser.storage_bytes()), "{}", parser.storage_bytes());
        parser.feed(b"event: u\ndata: open\r", &mut log).unwrap();
        assert!(parser.storage_bytes() > 1 << 20);
        assert_eq!((parser.last_event_id(), parser.comments()), (&b"9"[..], 1));

        parser.reset();
        assert!(parser.storage_bytes() <= 5 * RETAINED_BYTES, "{}", parser.storage_bytes());
        assert_eq!((parser.buffered_bytes(), parser.bytes_scanned(), parser.comments()), (0, 0, 0));
        log.0.clear();
        // The byte order mark counts again, and neither type nor ID of the old stream is left.
        parser.feed(b"\xef\xbb\xbfdata: x\n\n", &mut log).unwrap();
        assert_eq!(log.0, ["event |x|"]);
    }

    #[test]
    fn the_end_shows_what_the_standard_discards() {
        type Expected<'a> = (Option<(&'a [u8], &'a [u8], &'a [u8])>, bool, &'a [u8], &'a [u8]);
        let cases: [(&[u8], Expected<'_>); 14] = [
            (b"", (None, false, b"", b"")),
            (b"data: [DONE]\n", (Some((b"", b"[DONE]", b"")), true, b"", b"")),
            (b"data: [DONE]\r", (Some((b"", b"[DONE]", b"")), true, b"", b"")),
            (b"data: [DONE]", (Some((b"", b"[DONE]", b"")), false, b"data: [DONE]", b"")),
            (b"data: a\ndata: b", (Some((b"", b"a\nb", b"")), true, b"data: b", b"")),
            (b"data: a\nevent: t", (Some((b"t", b"a", b"")), true, b"event: t", b"")),
            (b"id: 1\ndata: a\nid: 2", (Some((b"", b"a", b"2")), true, b"id: 2", b"1")),
            (b"id: 1\ndata: a\nid: \0", (Some((b"", b"a", b"1")), true, b"id: \0", b"1")),
            (b"event: t\nid: 3\n", (None, false, b"", b"3")),
            (b"{\"error\":\"down\"}", (None, false, b"{\"error\":\"down\"}", b"")),
            (b"error: {}\n", (None, false, b"", b"")),
            (b"error: {}", (None, false, b"error: {}", b"")),
            (b"\xef", (None, false, b"\xef", b"")),
            (b"\xef\xbb", (None, false, b"\xef\xbb", b"")),
        ];
        for (stream, (pending, block_open, unterminated, last_event_id)) in cases {
            let mut parser = Parser::default();
            parser.feed(stream, &mut Log::default()).unwrap();
            let pending = pending.map(|(event, data, id)| Event { event, data, id });
            let error = unterminated.strip_prefix(b"error: ");
            let expected = Tail { pending, error, block_open, unterminated, last_event_id };
            assert_eq!(parser.finish(), expected);
            assert_eq!(parser.finish(), expected, "asking changes nothing");
        }
    }
}
