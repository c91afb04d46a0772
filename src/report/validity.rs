//! Whether the instrument was good enough for its numbers: the verdict, with its reasons in words.
//!
//! The rule is one table of thresholds, each a constant with its reason. A verdict judges this machine and this
//! process, never the server: a server that fails, or that sends several tokens at once, is a finding about the
//! server. What an open loop holds is its schedule; what a closed loop holds instead is its concurrency, and its slots
//! must not wait for the client.

pub(in crate::report) mod client_error;
pub mod overload;
pub mod schedule;
pub mod stamps;

use std::fmt;

use crate::aggregate::summary::{Spread, Summary};
use crate::config::spec::Endpoint;
use crate::record::RingFill;
use crate::report::calibration::lookup::CalibrationNote;
use crate::report::document::instrument::InstrumentDoc;
use crate::report::document::spec::SpecDoc;
use crate::units::{Bytes, Nanos, PerSecond, display};

/// Largest rate error of the clock, in parts per million, against CLOCK_MONOTONIC. One part per million is a
/// microsecond a second: below the spread of the kernel's own stamps for every latency of up to some seconds. The
/// scaling reaches 0.001 where it works.
pub const MAX_DRIFT_PPM: f64 = 1.0;
/// Clock errors below this over the whole run say nothing: the two clocks cannot be read at the same instant, and the
/// bracket around the reading is some hundred nanoseconds wide. Without this floor every short run would fail.
pub const MIN_CLOCK_ERROR: Nanos = Nanos(1_000);
/// Share of requests with a stamp before one that it must follow from which on the clock counts as broken. Fewer are
/// the trace of one disturbed bracket between the two clock domains, and make the run suspect.
pub const MAX_INVERTED_SHARE: f64 = 0.001;
/// Largest share of the slots' time between the end of one request and the beginning of the next. The slots then held
/// less concurrency than was asked for, and the request rate is the client's as much as the server's. Measured on two
/// cores: below 0.1% with answers of tens of milliseconds, up to 9% with answers of a few, 46% to 59% where a server
/// answers at once and the client does all it can. Of plain requests it is only told: to find the most that a client and
/// a server do together is what they are often for, and the sentence says whose limit was met.
pub const MAX_SLOT_WAIT_SHARE: f64 = 0.1;
/// A slot that waited less than this over the whole run shows no slow client: machines stop a process for tens of
/// milliseconds now and then, and in a short run of fast answers one such stop is a large share.
pub const MIN_SLOT_WAIT: Nanos = Nanos::from_millis(50);
/// Largest share of the slots' time in the window that the first change of each slot takes without being told.
pub const MAX_FIRST_WAIT_SHARE: f64 = 0.01;

/// How good the instrument was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The numbers stand.
    Valid,
    /// The numbers may be worse than they look; the reasons say how.
    Suspect,
    /// The numbers must not be used.
    Invalid,
}

/// What was asked for that the verdict depends on.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Asked {
    /// Most that the client may add to a latency, in microseconds.
    pub max_client_error_us: Option<f64>,
    /// Plain requests, not those of a model's endpoint.
    pub plain: bool,
}

/// What the run knows about its instrument beyond what its rows say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InstrumentFacts {
    /// Kernel receive stamps were asked for.
    pub kernel_stamps: bool,
    /// Records that did not fit a ring.
    pub ring_drops: u64,
    /// Chunk stamps that did not fit a ring.
    pub dropped_stamps: u64,
    /// Requests that a worker began and of which there is no record.
    pub unresolved: u64,
    /// One entry per worker.
    pub workers: Vec<WorkerFacts>,
    /// How late timers fired, in microseconds.
    pub timer_lateness_us: Option<Spread>,
    /// Time that the hypervisor took from this machine during the run.
    pub steal: Option<StealFacts>,
    /// Longest time in which nothing of this process ran although nothing else had its core.
    pub stood_still: Option<Nanos>,
    /// Receive calls that brought bytes.
    pub reads: Option<ReadFacts>,
    /// How full the fullest rings were.
    pub ring_fill: Option<RingFill>,
    /// Largest resident size of this process so far.
    pub peak_rss: Option<Bytes>,
    /// Processor time of this process so far, all threads.
    pub cpu_time: Option<Nanos>,
    /// Connections made before the window; `None` where none were asked for.
    pub prewarm: Option<PrewarmFacts>,
    /// The clock.
    pub clock: ClockFacts,
    /// What the calibration of this machine says; `None` where there is none.
    pub calibration: Option<CalibrationNote>,
}

/// Connections made before the window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PrewarmFacts {
    /// How many were to be made.
    pub asked: u64,
    /// How many were made.
    pub made: u64,
    /// How many could not be made.
    pub failed: u64,
    /// What the first failure was.
    pub failure: Option<String>,
    /// From the first beginning to connect to the last end of it.
    pub took: Nanos,
    /// Spans of connecting, of those that were made, in microseconds.
    pub connect_us: Option<Spread>,
}

/// What the hypervisor took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StealFacts {
    /// Of all cores together.
    pub time: Nanos,
    /// The same as a share of their time.
    pub share: f64,
}

/// Receive calls that brought bytes, of all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadFacts {
    /// How many.
    pub count: u64,
    /// Those that filled the buffer.
    pub filled: u64,
    /// Bytes of the largest one.
    pub largest: u64,
}

/// What is known about one worker.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WorkerFacts {
    /// The core it was pinned to; `None` where pinning failed.
    pub core: Option<u32>,
    /// Share of the run in which its loop was not waiting.
    pub busy_share: Option<f64>,
    /// How long its loop ran.
    pub span: Option<Nanos>,
    /// Time it was ready to run and did not run.
    pub run_queue_wait: Option<Nanos>,
    /// How often it was taken off its core against its will.
    pub involuntary_switches: Option<u64>,
}

/// What is known about the clock.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClockFacts {
    /// Its name, such as the counter that is read; `None` where it is unknown.
    pub source: Option<String>,
    /// Largest error of the axis in parts per million of the run; `None` where it was not checked.
    pub drift_ppm: Option<f64>,
    /// That error: the largest difference from CLOCK_MONOTONIC.
    pub error: Option<Nanos>,
    /// How far the two clocks may have been apart when they were read, at most.
    pub bracket: Nanos,
    /// The same for the wall clock.
    pub wall_bracket: Nanos,
    /// Over how long the rate was compared.
    pub compared_over: Nanos,
    /// Readings that went backwards.
    pub inversions: u64,
    /// Steps of the wall clock during the run.
    pub wall_steps: u64,
}

/// The verdict and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The worst of its findings.
    pub verdict: Verdict,
    /// One sentence each, the worst first; none for a valid run.
    pub reasons: Vec<String>,
    /// What stands out without being the instrument's fault, one sentence each.
    pub notes: Vec<String>,
}

impl Asked {
    /// What a document says was asked for.
    #[must_use]
    pub fn of(spec: &SpecDoc) -> Self {
        Self {
            max_client_error_us: spec.instrument.max_client_error_us,
            plain: spec.target.endpoint == Endpoint::Http.name(),
        }
    }
}

impl PrewarmFacts {
    /// Connections made per second; `None` when that took no time.
    #[must_use]
    pub fn rate(&self) -> Option<PerSecond> {
        #[expect(clippy::cast_precision_loss, reason = "connections of a process are far below 2^53")]
        (self.took > Nanos(0)).then(|| PerSecond(self.made as f64 / self.took.as_secs_f64()))
    }
}

/// Judges a run, from what its document says about the instrument, so that a saved run is judged as it was at its end.
/// `dropped_stamps` are the chunk stamps that did not fit a ring.
#[must_use]
pub fn judge(instrument: &InstrumentDoc, asked: Asked, dropped_stamps: u64, summary: &Summary) -> Judgement {
    let mut findings = Vec::new();
    lost(instrument, dropped_stamps, summary, &mut findings);
    clock(instrument, summary, &mut findings);
    stamps::added(instrument, asked, summary, &mut findings);
    let is_behind = stamps::late(instrument, summary, &mut findings);
    overload::find(instrument, summary, is_behind, asked.plain, &mut findings);
    slots(summary, asked.plain, &mut findings);
    schedule::late_sends(summary, &mut findings);
    schedule::unsent(summary, &mut findings);
    findings.sort_by_key(|(verdict, _)| std::cmp::Reverse(*verdict));
    let (reasons, notes): (Vec<_>, Vec<_>) = findings.into_iter().partition(|(v, _)| *v != Verdict::Valid);
    let text = |findings: Vec<(Verdict, String)>| findings.into_iter().map(|(_, text)| text).collect();
    Judgement {
        verdict: reasons.first().map_or(Verdict::Valid, |(verdict, _)| *verdict),
        reasons: text(reasons),
        notes: text(notes),
    }
}

/// A finding that is `Valid` is a note.
type Findings = Vec<(Verdict, String)>;

/// What is missing from the record.
fn lost(instrument: &InstrumentDoc, dropped_stamps: u64, summary: &Summary, findings: &mut Findings) {
    let mut invalid = |count: u64, noun: &str, rest: &str| {
        if count > 0 {
            findings.push((Verdict::Invalid, format!("{} {rest}", display::counted(count, noun))));
        }
    };
    invalid(instrument.ring_drops, "record", "lost: a ring between worker and collector was full");
    invalid(dropped_stamps, "chunk stamp", "lost: a ring between worker and collector was full");
    invalid(
        summary.counts.client_faults,
        "request",
        "failed on this side: this machine could not do its part",
    );
    invalid(instrument.unresolved, "request", "begun and never accounted for: the counts cannot be trusted");
}

fn clock(instrument: &InstrumentDoc, summary: &Summary, findings: &mut Findings) {
    let clock = &instrument.clock;
    match clock.drift_ppm {
        Some(drift) if is_clock_wrong(drift, clock.compared_over_s) => {
            let (drift, limit) = (display::significant(drift, 2), display::significant(MAX_DRIFT_PPM, 1));
            findings.push((
                Verdict::Invalid,
                format!("the clock ran wrong by {drift} ppm against the kernel's, more than {limit} ppm"),
            ));
        }
        Some(_) => {}
        None if summary.counts.started > 0 => {
            findings.push((Verdict::Suspect, "the clock was not checked against the kernel's".to_owned()));
        }
        None => {}
    }
    if clock.inversions > 0 {
        let count = display::counted(clock.inversions, "time");
        findings.push((Verdict::Invalid, format!("the clock went backwards {count}")));
    }
    if let Some(share) = share(summary.stamps.inversions, summary.counts.started).filter(|s| *s > 0.0) {
        let verdict = if share > MAX_INVERTED_SHARE { Verdict::Invalid } else { Verdict::Suspect };
        let (count, all) =
            (display::whole(summary.stamps.inversions), display::whole(summary.counts.started));
        findings.push((
            verdict,
            format!("{count} of {all} requests have a stamp before one that it must follow"),
        ));
    }
    if clock.wall_steps > 0 {
        let count = display::counted(clock.wall_steps, "time");
        findings.push((
            Verdict::Valid,
            format!("the wall clock was set {count} during the run; no latency depends on it"),
        ));
    }
}

/// Whether the slots of the closed loop waited for the client.
fn slots(summary: &Summary, plain: bool, findings: &mut Findings) {
    // Without a valid request there is no rate to doubt, and a server that refuses at once is never waited for.
    if summary.counts.ok == 0 {
        return;
    }
    let time = &summary.stamps.slot_time;
    let shown = |time: Nanos| display::span_ms(time.as_millis_f64());
    let long = MIN_SLOT_WAIT.as_secs_f64() * count(time.slots);
    let waited = time.waited_share().filter(|share| *share > MAX_SLOT_WAIT_SHARE);
    if let Some(share) = waited.filter(|_| time.waited.as_secs_f64() > long) {
        let (waited, whole) = (shown(time.waited), shown(time.whole()));
        let (share, limit, held) =
            (display::percent(share), display::percent(MAX_SLOT_WAIT_SHARE), display::percent(1.0 - share));
        let slots =
            format!("between requests, slots waited for it for {waited} of {whole} ({share}, above {limit})");
        findings.push(if plain {
            (
                Verdict::Valid,
                format!("the request rate is the client's limit, not only the server's: {slots}"),
            )
        } else {
            let held = format!("the client was the bottleneck and held {held} of the concurrency");
            (Verdict::Suspect, format!("{held}: {slots}"))
        });
    }
    let window = summary.spans.and_then(|spans| spans.window.end.since(spans.window.start));
    let Some(window) = window.filter(|window| *window > Nanos(0) && time.kept_slots > 0) else { return };
    let first = time.first_waited.as_secs_f64() / (window.as_secs_f64() * count(time.kept_slots));
    if first > MAX_FIRST_WAIT_SHARE {
        let each = shown(Nanos(time.first_waited.0 / i64::try_from(time.kept_slots).unwrap_or(i64::MAX)));
        let (share, window) = (display::percent(first), shown(window));
        findings.push((
            Verdict::Valid,
            format!(
                "a slot waited {each} before its second request, {share} of the {window} measured: the first kept \
                 connection is watched before any is used again; send more requests"
            ),
        ));
    }
}

/// Where it is unknown over how long the clocks were compared, the rate decides alone.
fn is_clock_wrong(drift_ppm: f64, over_s: Option<f64>) -> bool {
    // A part per million is a microsecond a second.
    let is_noise = over_s.is_some_and(|over| (drift_ppm * over).abs() <= MIN_CLOCK_ERROR.as_micros_f64());
    drift_ppm.abs() > MAX_DRIFT_PPM && !is_noise
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| count(part) / count(whole))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(n: u64) -> f64 {
    n as f64
}

impl Verdict {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Suspect => "suspect",
            Self::Invalid => "invalid",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::chunk_facts::ChunkFacts;
    use crate::aggregate::schedule::ScheduleKept;
    use crate::aggregate::slots::SlotTime;
    use crate::aggregate::summary::{Coalesced, Facts};
    use crate::metrics::Percentiles;
    use crate::metrics::rows::Rows;
    use crate::metrics::testing::row;

    fn spread(p99: f64) -> Spread {
        let percentiles = Percentiles {
            min: 0.0,
            p1: 0.0,
            p5: 0.0,
            p25: 0.0,
            p50: 8.0,
            p75: 8.0,
            p90: 8.0,
            p95: 8.0,
            p99,
            p99_9: p99,
            max: p99,
        };
        Spread { count: 1_000, mean: 8.0, percentiles }
    }

    fn worker(run_queue_wait_ms: i64, busy_share: f64) -> WorkerFacts {
        WorkerFacts {
            core: Some(1),
            busy_share: Some(busy_share),
            span: Some(Nanos::from_secs(10)),
            run_queue_wait: Some(Nanos::from_millis(run_queue_wait_ms)),
            involuntary_switches: Some(7),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "what it is put into is an option")]
    fn steal(share: f64) -> Option<StealFacts> {
        Some(StealFacts { time: Nanos::from_millis(600), share })
    }

    #[expect(clippy::unnecessary_wraps, reason = "what it is put into is an option")]
    fn reads(filled: u64) -> Option<ReadFacts> {
        Some(ReadFacts { count: 100, filled, largest: 65_536 })
    }

    fn waited(waited_ms: i64, in_flight_ms: i64, slots: u64) -> SlotTime {
        let (waited, in_flight) = (Nanos::from_millis(waited_ms), Nanos::from_millis(in_flight_ms));
        SlotTime { slots, waited, in_flight, ..SlotTime::default() }
    }

    fn kept(begun: u64, late: u64) -> Option<ScheduleKept> {
        Some(ScheduleKept { begun, late, ..ScheduleKept::default() })
    }

    fn good() -> (InstrumentFacts, Summary) {
        let rows = [row(0), row(1)];
        let facts = Facts { planned: 2, asked_concurrency: Some(2), ..Facts::default() };
        let mut summary = Summary::of(&rows, ChunkFacts::of_rows_alone(&rows, &facts), facts);
        summary.counts.started = 10_000;
        summary.stamps.read_delay_us = Some(spread(20.0));
        summary.stamps.output_chunks = 1_000;
        summary.stamps.coalesced = Coalesced { sent: 50, late: 50 };
        let clock = ClockFacts {
            source: Some("tsc".to_owned()),
            drift_ppm: Some(-0.02),
            error: Some(Nanos(250)),
            wall_bracket: Nanos(50),
            compared_over: Nanos::from_secs(60),
            ..ClockFacts::default()
        };
        (InstrumentFacts { kernel_stamps: true, clock, ..InstrumentFacts::default() }, summary)
    }

    /// Each line of the table: what differs from a good run, the verdict, and a word of the reason (or note).
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table: one line of the rule an entry")]
    fn the_rule_line_by_line() {
        type Change = fn(&mut InstrumentFacts, &mut Summary);
        let table: [(&str, Change, Verdict, &str); 41] = [
            ("nothing", |_, _| {}, Verdict::Valid, ""),
            ("a ring drop", |f, _| f.ring_drops = 1, Verdict::Invalid, "1 record lost"),
            ("a lost stamp", |f, _| f.dropped_stamps = 3, Verdict::Invalid, "3 chunk stamps"),
            ("a client failure", |_, s| s.counts.client_faults = 2, Verdict::Invalid, "on this side"),
            ("no account", |f, _| f.unresolved = 1, Verdict::Invalid, "never accounted"),
            ("drift at the limit", |f, _| f.clock.drift_ppm = Some(-1.0), Verdict::Valid, ""),
            ("drift", |f, _| f.clock.drift_ppm = Some(-1.1), Verdict::Invalid, "-1.1 ppm"),
            (
                "drift of a short run is reading noise",
                |f, _| (f.clock.drift_ppm, f.clock.compared_over) = (Some(30.0), Nanos::from_millis(30)),
                Verdict::Valid,
                "",
            ),
            ("no clock check", |f, _| f.clock.drift_ppm = None, Verdict::Suspect, "not checked"),
            ("backwards", |f, _| f.clock.inversions = 1, Verdict::Invalid, "backwards"),
            ("few inversions", |_, s| s.stamps.inversions = 10, Verdict::Suspect, "10 of 10,000"),
            ("many inversions", |_, s| s.stamps.inversions = 11, Verdict::Invalid, "11 of 10,000"),
            ("a wall step", |f, _| f.clock.wall_steps = 2, Verdict::Valid, "set 2 times"),
            ("no kernel stamps", |_, s| s.stamps.user_requests = 1, Verdict::Suspect, "1 of 3 requests"),
            (
                "user stamps, as asked, with a known delay",
                |f, s| (f.kernel_stamps, s.stamps.user_requests) = (false, 2),
                Verdict::Valid,
                "",
            ),
            ("delay unknown", |_, s| s.stamps.read_delay_us = None, Verdict::Suspect, "unknown"),
            ("delay at the limit", |_, s| s.stamps.read_delay_us = Some(spread(1_000.0)), Verdict::Valid, ""),
            (
                "delay",
                |_, s| s.stamps.read_delay_us = Some(spread(8_300.0)),
                Verdict::Suspect,
                "8.30 ms, above 1.00 ms",
            ),
            (
                "one read in a thousand that waited",
                |_, s| {
                    let mut delay = spread(20.0);
                    delay.percentiles.max = 250_001.0;
                    s.stamps.read_delay_us = Some(delay);
                },
                Verdict::Suspect,
                "stood still: something waited 250 ms",
            ),
            (
                "waiting for the client at the limit",
                |_, s| s.stamps.slot_time = waited(1_000, 9_000, 8),
                Verdict::Valid,
                "",
            ),
            (
                "waiting for the client",
                |_, s| s.stamps.slot_time = waited(3_870, 1_930, 8),
                Verdict::Suspect,
                "held 33.3% of the concurrency: between requests, slots waited for it for 3.87 s of 5.80 s (66.7%, \
                 above 10.0%)",
            ),
            ("one stop in a short run", |_, s| s.stamps.slot_time = waited(400, 100, 8), Verdict::Valid, ""),
            (
                "the watch of a short run",
                |_, s| {
                    s.stamps.slot_time =
                        SlotTime { kept_slots: 2, first_waited: Nanos(3_000_000), ..SlotTime::default() }
                },
                Verdict::Valid,
                "waited 1.50 ms before its second request, 1.15% of the 131 ms measured",
            ),
            ("late sends at the limit", |_, s| s.stamps.schedule = kept(1_000, 10), Verdict::Valid, ""),
            ("one late send in a short run", |_, s| s.stamps.schedule = kept(60, 1), Verdict::Valid, ""),
            (
                "late sends",
                |_, s| s.stamps.schedule = kept(1_000, 11),
                Verdict::Invalid,
                "11 of 1,000 requests (1.10%, above 1.00%) went out more than 1.00 ms after",
            ),
            (
                "unsent at the limit",
                |_, s| (s.counts.planned, s.stamps.schedule) = (1_000, kept(990, 0)),
                Verdict::Valid,
                "",
            ),
            (
                "unsent",
                |_, s| (s.counts.planned, s.stamps.schedule) = (1_000, kept(989, 0)),
                Verdict::Suspect,
                "only 989 of 1,000 requests of the schedule were begun (98.9%)",
            ),
            ("the server batches", |_, s| s.stamps.coalesced.sent = 51, Verdict::Valid, "sent so"),
            (
                "merged here",
                |_, s| s.stamps.coalesced.late = 51,
                Verdict::Suspect,
                "5.10% of the output chunks",
            ),
            ("steal at the limit", |f, _| f.steal = steal(0.05), Verdict::Valid, ""),
            (
                "steal",
                |f, _| f.steal = steal(0.06),
                Verdict::Suspect,
                "6.00% of this machine's time to others",
            ),
            ("still at the limit", |f, _| f.stood_still = Some(Nanos::from_millis(100)), Verdict::Valid, ""),
            (
                "a stopped process",
                |f, _| f.stood_still = Some(Nanos::from_millis(203)),
                Verdict::Suspect,
                "stood still for 203 ms: it was stopped",
            ),
            ("a queue at the limit", |f, _| f.workers = vec![worker(500, 0.5)], Verdict::Valid, ""),
            (
                "hogs",
                |f, _| f.workers = vec![worker(600, 0.5), worker(4_000, 0.99), worker(0, 0.1)],
                Verdict::Suspect,
                "other programs ran on the core of worker 1: it waited for it for 4.00 s of 10.0 s (40.0%, above 5.00%) \
                 and was taken off it 7 times",
            ),
            ("busy without being late", |f, _| f.workers = vec![worker(0, 0.99)], Verdict::Valid, ""),
            ("full buffers", |f, _| f.reads = reads(2), Verdict::Valid, "2.00% of the reads filled"),
            ("few full buffers", |f, _| f.reads = reads(1), Verdict::Valid, ""),
            (
                "a ring that was nearly full",
                |f, _| f.ring_fill = Some(RingFill { records: 0.1, chunks: 0.63 }),
                Verdict::Valid,
                "63.0% full",
            ),
            (
                "the worst decides and stands first",
                |f, s| (f.ring_drops, s.stamps.read_delay_us) = (1, Some(spread(2_000.0))),
                Verdict::Invalid,
                "1 record lost",
            ),
        ];
        for (what, change, verdict, word) in table {
            let (mut facts, mut summary) = good();
            change(&mut facts, &mut summary);
            let document = InstrumentDoc::of(&facts, &summary);
            let judgement = judge(&document, Asked::default(), facts.dropped_stamps, &summary);
            assert_eq!(judgement.verdict, verdict, "{what}: {judgement:?}");
            assert_eq!(judgement.reasons.is_empty(), verdict == Verdict::Valid, "{what}");
            let said = judgement.reasons.first().or(judgement.notes.first());
            assert_eq!(said.is_some(), !word.is_empty(), "{what}: {judgement:?}");
            assert!(said.is_none_or(|text| text.contains(word)), "{what}: {judgement:?}");
        }
    }

    /// Of the two made-up requests one takes a millisecond to send and the clock adds 0.3 µs.
    #[test]
    fn the_bound_of_the_clients_error_is_the_sum_of_its_parts_and_is_held_to_what_was_asked() {
        let judged = |change: fn(&mut InstrumentFacts, &mut Summary), limit_us: f64| {
            let (mut facts, mut summary) = good();
            (summary.stamps.user_requests, summary.counts.ok) = (0, 2);
            change(&mut facts, &mut summary);
            let document = InstrumentDoc::of(&facts, &summary);
            let asked = Asked { max_client_error_us: Some(limit_us), plain: false };
            (document.client_error_us, judge(&document, asked, 0, &summary))
        };
        let near = |bound: Option<f64>, us: f64| (bound.unwrap() - us).abs() < 1e-6;
        let (bound, allowed) = judged(|_, _| {}, 1_000.4);
        assert!(near(bound, 1_000.3) && allowed.verdict == Verdict::Valid, "{bound:?} {allowed:?}");
        let (_, refused) = judged(|_, _| {}, 1_000.2);
        assert_eq!(refused.verdict, Verdict::Invalid);
        assert!(
            refused.reasons[0].contains("1.00 ms to a latency (p99), more than the 1.00 ms"),
            "{refused:?}"
        );
        // What is timed by the user-space clock is later by the read delay.
        assert!(near(judged(|_, s| s.stamps.user_requests = 1, 1.0).0, 1_020.3));
        let unknown: [fn(&mut InstrumentFacts, &mut Summary); 3] = [
            |_, s| (s.stamps.user_requests, s.stamps.read_delay_us) = (1, None),
            |f, _| f.clock.error = None,
            |_, s| s.metrics.clear(),
        ];
        for change in unknown {
            let (bound, judgement) = judged(change, 1_000_000.0);
            assert_eq!((bound, judgement.verdict), (None, Verdict::Invalid));
            assert!(judgement.reasons[0].contains("is unknown, and --max-client-error"), "{judgement:?}");
        }
    }

    /// A client at its limit is what plain requests are often for.
    #[test]
    fn of_plain_requests_the_limit_of_the_client_is_told() {
        let (facts, mut summary) = good();
        summary.stamps.slot_time = waited(3_870, 1_930, 8);
        let asked = Asked { plain: true, ..Asked::default() };
        let judgement = judge(&InstrumentDoc::of(&facts, &summary), asked, 0, &summary);
        assert_eq!(judgement.verdict, Verdict::Valid);
        assert!(judgement.notes[0].starts_with("the request rate is the client's limit"), "{judgement:?}");
        assert!(judgement.notes[0].contains("66.7%"), "{judgement:?}");
    }

    #[test]
    fn a_worker_that_cannot_keep_up_is_named_where_reading_falls_behind() {
        let (mut facts, mut summary) = good();
        facts.workers = vec![worker(0, 0.1), worker(0, 0.99)];
        summary.stamps.read_delay_us = Some(spread(1_500.0));
        let judgement = judge(&InstrumentDoc::of(&facts, &summary), Asked::default(), 0, &summary);
        let named = "worker 1 had no pause (busy for 99.0% of the run)";
        assert!(judgement.reasons.iter().any(|reason| reason.contains(named)), "{judgement:?}");
    }

    #[test]
    fn a_run_that_received_nothing_has_nothing_to_be_suspect_about() {
        let facts = Facts { planned: 2, ..Facts::default() };
        let empty = Summary::of(&Rows::new(), ChunkFacts::of_rows_alone(&Rows::new(), &facts), facts);
        let facts = InstrumentFacts { kernel_stamps: true, ..InstrumentFacts::default() };
        let judgement = judge(&InstrumentDoc::of(&facts, &empty), Asked::default(), 0, &empty);
        assert_eq!(judgement, Judgement { verdict: Verdict::Valid, reasons: vec![], notes: vec![] });
    }
}
