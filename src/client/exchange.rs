//! One request and its answer as a state machine over bytes and stamps: no socket, no clock, no wait.
//!
//! It hands bytes out until the request is written, takes bytes in until the answer is complete, gives every event the
//! stamp of the read that completed it, and fills the record.

use crate::record::{ChunkStamp, ErrorDetail, Outcome, Outlet, RequestRecord, Stamp, StampKind};
use crate::schedule::Outgoing;
use crate::units::{Nanos, Ticks, UnixNanos};
use crate::wire::dialect::{EMPTY_BODY, EventMeaning};
use crate::wire::response::{AnswerRule, Marks, Reading, ResponseReader};

/// Where an exchange stands after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More bytes are to come.
    Going,
    /// The terminal was read; the body is not complete yet.
    Terminal,
    /// The answer is complete.
    Complete,
    /// The answer is over and the connection is of no use any more.
    Failed,
    /// Bytes came although nothing was asked.
    Unexpected,
}

/// The exchange on a connection. Its storage is reused by every request of the connection.
#[derive(Debug)]
pub(crate) struct Exchange {
    request: Outgoing,
    record: Option<RequestRecord>,
    reader: ResponseReader,
    /// Stamp of the newest read with bytes, and what it cannot be before.
    last_read: Option<(Stamp, Ticks)>,
    /// When the answer ended.
    end: Option<Stamp>,
    /// An ending that came from outside the answer.
    verdict: Option<(Outcome, String)>,
    /// The peer spoke before it was asked, and the request was kept from it.
    withheld: bool,
}

/// Turns the reader's marks into stamps. Lives for one read.
struct Stamper<'a> {
    record: &'a mut RequestRecord,
    outlet: &'a mut Outlet,
    stamp: Stamp,
    not_before: Ticks,
    /// The newest event of the read, if it is an output chunk: only the last event of a read has a stamp of its own.
    newest: Option<ChunkStamp>,
    outputs: u64,
}

impl Exchange {
    pub(crate) fn new(answer_rule: AnswerRule) -> Self {
        Self {
            request: Outgoing::default(),
            record: None,
            reader: ResponseReader::new(answer_rule),
            last_read: None,
            end: None,
            verdict: None,
            withheld: false,
        }
    }

    /// Takes a request to write and the record to fill.
    pub(crate) fn begin(&mut self, request: Outgoing, record: RequestRecord) {
        self.request = request;
        self.record = Some(record);
        self.reader.start();
        self.last_read = None;
        self.end = None;
        self.verdict = None;
        self.withheld = false;
    }

    /// Numbers the record of a request that was taken before it was its turn, with its due as it is known by then.
    pub(crate) fn number(&mut self, serial: u64, due: Ticks) {
        if let Some(record) = self.record.as_mut() {
            (record.serial, record.due) = (serial, due);
        }
    }

    /// Gives a request back of which nothing was sent.
    pub(crate) fn take_back(&mut self) -> Option<RequestRecord> {
        self.request = Outgoing::default();
        self.record.take()
    }

    /// Nothing is sent, because the peer has spoken already. What it says still ends the request: it is the reason why
    /// there is no answer. Its stamps are kept; there is no start of sending, so no latency.
    pub(crate) fn withhold(&mut self) {
        self.request = Outgoing::default();
        self.withheld = true;
    }

    /// The connection was made for this request.
    pub(crate) fn connected(&mut self, now: Ticks) {
        if let Some((_, done)) = self.record.as_mut().and_then(|r| r.connect.as_mut()) {
            *done = Some(now);
        }
    }

    /// What is still to be written.
    pub(crate) const fn unsent(&self) -> &Outgoing {
        &self.request
    }

    /// Bytes were offered to the socket, for the first time or again.
    pub(crate) fn offered(&mut self, before: Ticks) {
        if let Some(record) = self.record.as_mut() {
            record.send_start.get_or_insert(before);
        }
    }

    /// The kernel took bytes between two readings.
    pub(crate) fn sent(&mut self, taken: usize, before: Ticks, after: Ticks) {
        self.offered(before);
        // The last view of the bytes is dropped with them: a prompt is not held while its answer streams.
        let taken = self.request.written(taken);
        if let Some(record) = self.record.as_mut() {
            record.counters.bytes_sent += taken as u64;
            if self.request.is_empty() {
                record.send_end = Some(after);
            }
        }
    }

    /// The kernel's stamp of the request's last byte.
    pub(crate) fn left_host(&mut self, at: UnixNanos) {
        if let Some(record) = self.record.as_mut() {
            record.sent_wire = Some(at);
        }
    }

    /// Takes in what one read brought.
    #[inline]
    pub(crate) fn on_read(
        &mut self,
        bytes: &[u8],
        stamp: Stamp,
        not_before: Ticks,
        outlet: &mut Outlet,
    ) -> Progress {
        let Some(record) = self.record.as_mut() else { return Progress::Unexpected };
        record.counters.reads += 1;
        record.counters.bytes_received += bytes.len() as u64;
        record.user_stamps_only |= stamp.kernel.is_none();
        self.last_read = Some((stamp, not_before));
        let mut stamper = Stamper { record, outlet, stamp, not_before, newest: None, outputs: 0 };
        let reading = self.reader.read(bytes, &mut stamper);
        stamper.close();
        self.progress(reading, stamp)
    }

    /// The peer closed its side.
    pub(crate) fn on_end_of_stream(&mut self, now: Ticks, outlet: &mut Outlet) -> Progress {
        let Some(record) = self.record.as_mut() else { return Progress::Failed };
        // An end of stream is no read with bytes: it has no kernel stamp of its own. An event that it completes came
        // with the read before.
        let end = Stamp { user: now, kernel: None };
        let (stamp, not_before) = self.last_read.unwrap_or((end, now));
        let mut stamper = Stamper { record, outlet, stamp, not_before, newest: None, outputs: 0 };
        let reading = self.reader.end_of_stream(&mut stamper);
        stamper.close();
        self.progress(reading, end)
    }

    /// The connection broke.
    pub(crate) fn on_reset(&mut self, message: &str, now: Ticks) -> Progress {
        let reading = self.reader.reset(message);
        self.progress(reading, Stamp { user: now, kernel: None })
    }

    fn progress(&mut self, reading: Reading, stamp: Stamp) -> Progress {
        match reading {
            Reading::Going if self.reader.terminal_seen() => Progress::Terminal,
            Reading::Going => Progress::Going,
            Reading::Complete => {
                self.end.get_or_insert(stamp);
                Progress::Complete
            }
            Reading::Failed => {
                self.end.get_or_insert(stamp);
                Progress::Failed
            }
        }
    }

    /// Ends the exchange for a reason outside the answer: a deadline, the run's end, a failed connect.
    pub(crate) fn give_up(&mut self, outcome: Outcome, message: &str, now: Ticks) {
        self.end.get_or_insert(Stamp { user: now, kernel: None });
        self.verdict.get_or_insert((outcome, message.to_owned()));
    }

    /// Whether the connection can carry another request once the body is complete.
    pub(crate) fn may_be_reused(&self) -> bool {
        self.request.is_empty() && !self.withheld && self.reader.may_keep_alive()
    }

    /// How long the server said it keeps an idle connection.
    pub(crate) fn announced_keep_alive(&self) -> Option<Nanos> {
        self.reader.announced_keep_alive()
    }

    /// Ends the exchange and shows its record, complete; `None` when there is none. [`Exchange::hand_over`] follows.
    pub(crate) fn finish(&mut self, now: Ticks) -> Option<&mut RequestRecord> {
        let concluded = self.record.is_some().then(|| self.conclude())?;
        let record = self.record.as_mut()?;
        self.request = Outgoing::default();
        record.set(StampKind::End, self.end.take().unwrap_or(Stamp { user: now, kernel: None }));
        record.http_status = self.reader.http_status();
        self.reader.write_to(record);
        if record.counters.output_chunks == 0 && record.counters.usage_events < 2 {
            // The one count of an answer without output is its total, and says nothing about its first token.
            record.unset(StampKind::FirstUsageToken);
        }
        let (outcome, detail) = if self.withheld {
            before_the_request(concluded.0, concluded.1, record.http_status)
        } else {
            concluded
        };
        record.outcome = outcome;
        let detail = match detail {
            // A stream without anything says that it does not end; to a run it is told as it came.
            Some(detail) if outcome == Outcome::EmptyResponse && record.counters.body_bytes == 0 => {
                Some(ErrorDetail { message: EMPTY_BODY.to_owned(), ..detail })
            }
            other => other,
        };
        record.error = detail.map(Box::new);
        Some(record)
    }

    /// Writes the record down.
    pub(crate) fn hand_over(&mut self, outlet: &mut Outlet) {
        if let Some(record) = self.record.take() {
            outlet.record(record);
        }
    }

    /// The ending: what the answer itself decided comes before what came from outside.
    fn conclude(&mut self) -> (Outcome, Option<ErrorDetail>) {
        let decided = self.reader.conclude();
        match (self.verdict.take(), decided) {
            (_, Some(decided)) => decided,
            (Some((outcome, message)), None) => {
                let detail = (!message.is_empty()).then(|| ErrorDetail { message, ..ErrorDetail::default() });
                (outcome, detail)
            }
            (None, None) => (Outcome::Internal, None),
        }
    }
}

/// How a request ends that was kept from a peer which had spoken already. A success cannot be its answer.
fn before_the_request(
    outcome: Outcome,
    detail: Option<ErrorDetail>,
    status: Option<u16>,
) -> (Outcome, Option<ErrorDetail>) {
    let mut detail = detail.unwrap_or_default();
    let status = status.filter(|status| (200..300).contains(status));
    if let Some(status) = status {
        detail.message = format!("status {status}");
    }
    detail.message = format!("came before the request was sent, which was then not sent: {}", detail.message);
    (status.map_or(outcome, |_| Outcome::HttpError), Some(detail))
}

impl Marks for Stamper<'_> {
    fn first_byte(&mut self) {
        self.record.set_first(StampKind::FirstByte, self.stamp);
    }

    fn interim(&mut self) {
        self.record.unset(StampKind::FirstByte);
    }

    fn head_done(&mut self) {
        self.record.set_first(StampKind::HeadDone, self.stamp);
    }

    #[inline]
    fn event(&mut self, meaning: &EventMeaning) {
        self.flush(false);
        self.record.set_first(StampKind::FirstEvent, self.stamp);
        if meaning.terminal {
            self.record.set_first(StampKind::Terminal, self.stamp);
        }
        let counted = meaning.completion_tokens.is_some_and(|tokens| tokens > 0);
        if counted && self.record.stamp(StampKind::FirstOutput).is_none() {
            self.record.set_first(StampKind::FirstUsageToken, self.stamp);
        }
        if meaning.textless {
            self.record.set_first(StampKind::FirstTextless, self.stamp);
            self.record.set(StampKind::LastTextless, self.stamp);
        }
        let Some(kind) = meaning.output else { return };
        self.record.set_first(StampKind::FirstOutput, self.stamp);
        self.record.set(StampKind::LastOutput, self.stamp);
        for (seen, stamp) in [
            (meaning.reasoning, StampKind::FirstReasoning),
            (meaning.content, StampKind::FirstContent),
            (meaning.tool_call, StampKind::FirstToolCall),
        ] {
            if seen {
                self.record.set_first(stamp, self.stamp);
            }
        }
        self.outputs += 1;
        if self.outputs > 1 {
            self.record.counters.coalesced_chunks += 1;
        }
        self.newest = Some(ChunkStamp {
            serial: self.record.serial,
            stamp: self.stamp,
            not_before: self.not_before,
            choice: meaning.choice,
            ends_read: false,
            kind,
            tokens: meaning.new_tokens,
        });
    }
}

impl Stamper<'_> {
    /// The read is over: its last event, if it was output, has the stamp of the read as its own.
    fn close(mut self) {
        self.flush(true);
    }

    #[inline]
    fn flush(&mut self, ends_read: bool) {
        if let Some(chunk) = self.newest.take() {
            self.outlet.chunk(ChunkStamp { ends_read, ..chunk });
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::record::{Ended, Inlet, OutputKind, Phase, rings};
    use crate::units::UnixNanos;

    const HEAD: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

    fn chunk(data: &str) -> String {
        format!("{:x}\r\n{data}\r\n", data.len())
    }

    fn content(text: &str) -> String {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    }

    struct Bench {
        exchange: Exchange,
        outlet: Outlet,
        inlet: Inlet,
        now: u64,
    }

    impl Bench {
        fn new() -> Self {
            let (outlet, inlet) = rings();
            let mut exchange = Exchange::new(AnswerRule::default());
            exchange.begin(
                Bytes::from_static(b"POST").into(),
                RequestRecord::new(7, Phase::Measured, 0, Ticks(1)),
            );
            exchange.sent(4, Ticks(10), Ticks(12));
            Self { exchange, outlet, inlet, now: 100 }
        }

        /// One read at the next full hundred of ticks; its kernel stamp is five before.
        fn read(&mut self, bytes: &str) -> Progress {
            self.now += 100;
            let kernel = UnixNanos::new(self.now.cast_signed() - 5);
            let stamp = Stamp { user: Ticks(self.now), kernel };
            self.exchange.on_read(bytes.as_bytes(), stamp, Ticks(self.now - 100), &mut self.outlet)
        }

        /// The record, if the request ends now.
        fn end(&mut self, now: Ticks) -> Option<RequestRecord> {
            self.exchange.finish(now)?;
            self.exchange.hand_over(&mut self.outlet);
            self.inlet.pop().map(Ended::into_record)
        }

        fn chunks(&mut self) -> Vec<(u64, bool)> {
            std::iter::from_fn(|| self.inlet.chunks.pop().ok())
                .map(|c| (c.stamp.user.0, c.ends_read))
                .collect()
        }
    }

    #[test]
    fn every_mark_has_the_stamp_of_its_read() {
        let mut bench = Bench::new();
        assert_eq!(bench.read("HTTP/1.1 200 OK\r\n"), Progress::Going);
        assert_eq!(bench.read(&HEAD["HTTP/1.1 200 OK\r\n".len()..]), Progress::Going);
        assert_eq!(bench.read(&chunk(&content("a"))), Progress::Going);
        assert_eq!(bench.read(&chunk(&content("b"))), Progress::Going);
        assert_eq!(bench.read(&chunk("data: [DONE]\n\n")), Progress::Terminal);
        assert_eq!(bench.read("0\r\n\r\n"), Progress::Complete);
        assert!(bench.exchange.may_be_reused());
        let record = bench.end(Ticks(999)).unwrap();
        assert_eq!(record.outcome, Outcome::Ok);
        let at = |kind| record.stamp(kind).map(|s| s.user.0);
        assert_eq!(at(StampKind::FirstByte), Some(200));
        assert_eq!(at(StampKind::HeadDone), Some(300));
        assert_eq!(at(StampKind::FirstEvent), Some(400));
        assert_eq!(at(StampKind::FirstContent), Some(400));
        assert_eq!(at(StampKind::LastOutput), Some(500));
        assert_eq!(at(StampKind::Terminal), Some(600));
        assert_eq!(at(StampKind::End), Some(700));
        assert_eq!((record.send_start, record.send_end), (Some(Ticks(10)), Some(Ticks(12))));
        assert_eq!((record.counters.reads, record.counters.bytes_sent), (6, 4));
        assert!(!record.user_stamps_only);
        assert_eq!(bench.chunks(), [(400, true), (500, true)]);
        assert!(bench.end(Ticks(1_000)).is_none(), "a request ends once");
    }

    #[test]
    fn only_the_last_event_of_a_read_has_the_stamp_as_its_own() {
        let mut bench = Bench::new();
        bench.read(HEAD);
        // Two outputs in one read; then one that is followed by an event without output.
        bench.read(&chunk(&(content("a") + &content("b"))));
        bench.read(&chunk(
            &(content("c")
                + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"),
        ));
        assert_eq!(bench.read(&(chunk("data: [DONE]\n\n") + "0\r\n\r\n")), Progress::Complete);
        assert_eq!(bench.chunks(), [(300, false), (300, true), (400, false)]);
        let record = bench.end(Ticks(999)).unwrap();
        assert_eq!((record.counters.output_chunks, record.counters.coalesced_chunks), (3, 1));
        assert_eq!(record.first_output_kind, Some(OutputKind::Content));
    }

    #[test]
    fn what_comes_before_the_request_was_sent_is_never_its_answer() {
        const EARLY: [(&str, Outcome, &str); 4] = [
            ("HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n", Outcome::HttpError, "status 408 Late"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\ndata: [DONE]\n\n",
                Outcome::HttpError,
                "status 200",
            ),
            ("220 mail ready\r\n\r\n", Outcome::BadStatusLine, ""),
            (
                "HTTP/1.1 307 Go\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
                Outcome::Redirect,
                "status 307 Go",
            ),
        ];
        for (early, outcome, told) in EARLY {
            let mut bench = Bench::new();
            let record = RequestRecord::new(7, Phase::Measured, 0, Ticks(1));
            bench.exchange.begin(Bytes::from_static(b"POST").into(), record);
            bench.exchange.withhold();
            assert!(bench.exchange.unsent().is_empty());
            bench.read(early);
            assert!(!bench.exchange.may_be_reused());
            let record = bench.end(Ticks(999)).unwrap();
            assert_eq!((record.outcome, record.send_start, record.counters.bytes_sent), (outcome, None, 0));
            let message = &record.error.as_ref().unwrap().message;
            assert!(
                message.starts_with("came before the request was sent") && message.ends_with(told),
                "{message}"
            );
        }
        let mut bench = Bench::new();
        assert_eq!(bench.read(EARLY[0].0), Progress::Complete);
        assert!(!bench.exchange.may_be_reused(), "a 408 may have been on its way before the request");
    }

    #[test]
    fn an_empty_body_is_told_as_one() {
        let told = |body: &str| {
            let mut bench = Bench::new();
            bench.read(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
            let record = bench.end(Ticks(999)).unwrap();
            assert_eq!(record.outcome, Outcome::EmptyResponse);
            record.error.unwrap().message
        };
        assert_eq!(told(""), EMPTY_BODY);
        assert!(told(": ping\n\n").starts_with("ended without"));
    }

    fn counted(delta: &str, tokens: u64) -> String {
        chunk(&format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}],\"usage\":{{\"completion_tokens\":{tokens}}}}}\n\n"
        ))
    }

    #[test]
    fn the_first_token_by_usage_comes_before_its_text() {
        let mut bench = Bench::new();
        bench.read(HEAD);
        bench.read(&counted(r#"{"role":"assistant","content":""}"#, 0));
        bench.read(&counted(r#"{"content":""}"#, 1));
        bench.read(&counted(r#"{"content":"a"}"#, 2));
        bench.read(&counted(r#"{"content":""}"#, 3));
        let record = bench.end(Ticks(999)).unwrap();
        let at = |kind| record.stamp(kind).map(|s| s.user.0);
        assert_eq!(at(StampKind::FirstUsageToken), Some(400));
        assert_eq!(at(StampKind::FirstContent), Some(500));
        assert_eq!((at(StampKind::FirstTextless), at(StampKind::LastTextless)), (Some(400), Some(600)));
        assert_eq!(record.counters.textless_chunks, 2, "a role is no token");
    }

    #[test]
    fn an_ordinary_total_at_the_end_is_no_first_token() {
        let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":7}}\n\n";
        for events in [vec![chunk(&content("a")), chunk(usage)], vec![chunk(usage)]] {
            let mut bench = Bench::new();
            bench.read(HEAD);
            for event in &events {
                bench.read(event);
            }
            let record = bench.end(Ticks(999)).unwrap();
            assert_eq!(record.usage.completion_tokens, Some(7));
            assert_eq!(record.stamp(StampKind::FirstUsageToken), None, "{events:?}");
        }
    }

    #[test]
    fn an_interim_answer_is_not_the_first_byte() {
        let mut bench = Bench::new();
        bench.read("HTTP/1.1 100 Continue\r\n\r\n");
        bench.read(HEAD);
        let record = bench.end(Ticks(999)).unwrap();
        assert_eq!(record.stamp(StampKind::FirstByte).map(|s| s.user), Some(Ticks(300)));
    }

    #[test]
    fn an_event_that_the_end_of_stream_completes_came_with_the_read_before() {
        let mut bench = Bench::new();
        bench.read("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        bench.read(&content("a"));
        bench.read("data: [DONE]");
        let progress = bench.exchange.on_end_of_stream(Ticks(5_000), &mut bench.outlet);
        assert_eq!(progress, Progress::Failed, "the connection is of no use any more");
        let record = bench.end(Ticks(5_001)).unwrap();
        assert_eq!(record.outcome, Outcome::Ok);
        assert_eq!(record.stamp(StampKind::Terminal).map(|s| s.user), Some(Ticks(400)));
        assert_eq!(record.stamp(StampKind::End).map(|s| s.user), Some(Ticks(5_000)));
        assert!(!record.user_stamps_only, "an end of stream is no read with bytes");
    }

    #[test]
    fn what_the_answer_decided_comes_before_what_ended_the_wait() {
        let mut bench = Bench::new();
        bench.read("HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n{\"error\":");
        bench.exchange.give_up(Outcome::TimeoutIdle, "", Ticks(5_000));
        let record = bench.end(Ticks(5_000)).unwrap();
        assert_eq!((record.outcome, record.http_status), (Outcome::HttpError, Some(503)));

        let mut bench = Bench::new();
        bench.read(HEAD);
        bench.read(&chunk(&content("a")));
        bench.exchange.give_up(Outcome::TimeoutIdle, "nothing came", Ticks(5_000));
        let record = bench.end(Ticks(5_000)).unwrap();
        assert_eq!(record.outcome, Outcome::TimeoutIdle);
        assert_eq!(record.error.as_ref().unwrap().message, "nothing came");
        assert!(record.stamp(StampKind::FirstOutput).is_some(), "partial stamps are kept");
    }

    #[test]
    fn a_read_without_a_kernel_stamp_makes_the_request_a_user_one() {
        let mut bench = Bench::new();
        bench.read(HEAD);
        let stamp = Stamp { user: Ticks(900), kernel: None };
        bench.exchange.on_read(chunk(&content("a")).as_bytes(), stamp, Ticks(800), &mut bench.outlet);
        assert!(bench.end(Ticks(999)).unwrap().user_stamps_only);
    }

    #[test]
    fn bytes_that_nobody_asked_for_are_unexpected() {
        let mut bench = Bench::new();
        bench.end(Ticks(1));
        assert_eq!(bench.read("HTTP/1.1 200 OK\r\n\r\n"), Progress::Unexpected);
    }
}
