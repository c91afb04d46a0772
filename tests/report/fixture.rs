//! Made-up runs with every stamp chosen here: the same on every machine, at every time.

use std::path::PathBuf;

use hammerscale::aggregate::chunk::OutputChunk;
use hammerscale::aggregate::chunk_facts::{ChunkFacts, Visit};
use hammerscale::aggregate::summary::{Facts, Summary};
use hammerscale::config::spec::{
    BodySpec, ConnectionMode, ConnectionSpec, Endpoint, InstrumentSpec, LabelSpec, LoadSpec, OutputFormat,
    OutputSpec, ProgressMode, PromptSpec, ResolvedTarget, RunSpec, Secret, TargetSpec, ThinkingMode,
};
use hammerscale::metrics::row::{
    CanaryObservation, ControlledOutputObservation, ReceiveStamps, RequestRow, StampSource, TokenSource,
};
use hammerscale::record::{
    Anomalies, Anomaly, Counters, ErrorDetail, Outcome, OutputKind, Phase, RingFill, RunId, TransportFacts,
    Usage,
};
use hammerscale::report::calibration::BiasDoc;
use hammerscale::report::calibration::lookup::{CalibrationNote, NoteError};
use hammerscale::report::document::{PlanFacts, RunDocument, RunFacts, Span};
use hammerscale::report::host::{Host, Tool};
use hammerscale::report::terminal::FilesNote;
use hammerscale::report::validity::{ClockFacts, InstrumentFacts, ReadFacts, StealFacts, WorkerFacts};
use hammerscale::units::{Nanos, UnixNanos};

pub(crate) const US: i64 = 1_000;
pub(crate) const MS: i64 = 1_000_000;
/// 2026-09-17T17:21:04Z.
const STARTED: i64 = 1_789_665_664_000_000_000;

pub(crate) struct Run {
    pub(crate) spec: RunSpec,
    pub(crate) rows: Vec<RequestRow>,
    pub(crate) chunks: Vec<Vec<OutputChunk>>,
    pub(crate) facts: Facts,
    pub(crate) plan: PlanFacts,
    pub(crate) instrument: InstrumentFacts,
    pub(crate) interrupted: bool,
    pub(crate) reference_ok: Option<u64>,
    pub(crate) unreachable: Option<String>,
}

impl Run {
    pub(crate) fn id(&self) -> RunId {
        RunId::new(UnixNanos::new(STARTED).unwrap(), 0x3f9a_1c2e)
    }

    pub(crate) fn summary(&self) -> Summary {
        self.summary_of(&self.rows, |place, _| self.chunks[place].clone())
    }

    /// The summary of these rows with the chunks that `chunks_of` knows of a row, by its place.
    pub(crate) fn summary_of(
        &self,
        rows: &[RequestRow],
        chunks_of: impl Fn(usize, &RequestRow) -> Vec<OutputChunk>,
    ) -> Summary {
        let each = |add: &mut Visit<'_>| {
            rows.iter().enumerate().for_each(|(place, row)| add(row, &chunks_of(place, row)));
            Ok::<_, std::convert::Infallible>(())
        };
        Summary::of(rows, ChunkFacts::gather(rows, &self.facts, each).unwrap(), self.facts)
    }

    pub(crate) fn document(&self) -> RunDocument {
        self.document_of(&self.summary())
    }

    pub(crate) fn document_of(&self, summary: &Summary) -> RunDocument {
        let text = |t: &str| Some(t.to_owned());
        let host = Host {
            cpu: text("Example CPU @ 3.00GHz"),
            cores: Some(8),
            kernel: text("6.1.0"),
            governor: text("performance"),
            clocksource: text("tsc"),
            virtualised: Some(false),
        };
        let tool = Tool {
            name: "hammerscale",
            version: "0.1.0",
            git: Some("0123abc"),
            profile: "release",
            rustc: Some("rustc 1.89.0"),
        };
        let target = ResolvedTarget {
            addresses: vec!["127.0.0.1:8000".parse().unwrap()],
            model: "qwen3-32b".to_owned(),
            max_model_len: Some(32_768),
            unresolved: None,
            unreachable: self.unreachable.clone(),
        };
        let run_id = self.id();
        let facts = RunFacts {
            run_id: &run_id,
            started_unix: UnixNanos::new(STARTED).unwrap(),
            started_monotonic: Nanos(86_400_123_456_789),
            span: Span { began_ns: 0, ended_ns: 12_000 * MS, stopped_ns: self.facts.stop.map(|stop| stop.0) },
            interrupted: self.interrupted,
            tool,
            host: &host,
            spec: &self.spec,
            target: &target,
            plan: &self.plan,
            summary,
            instrument: &self.instrument,
            reference_ok: self.reference_ok,
            reference_metrics: None,
        };
        RunDocument::of(&facts)
    }

    pub(crate) fn files(&self) -> FilesNote {
        FilesNote {
            dir: format!("hammerscale-runs/{}", self.id()),
            names: ["artifact.json", "run.json", "requests.jsonl", "events.bin"].map(str::to_owned).into(),
            beside: vec![],
        }
    }
}

/// 60 requests on 20 slots after 2 warm-up requests; two fail, one chunk in twenty shares its read with the next one.
pub(crate) fn normal() -> Run {
    let mut run = empty();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for index in 0..2 {
        let (row, chunks) = request(&mut random, index, 0, Nanos(10 * MS), Phase::Warmup);
        run.rows.push(row);
        run.chunks.push(chunks);
    }
    let mut free = [1_500 * MS; 20];
    for index in 0..60 {
        let slot = (0..20).min_by_key(|slot| free[*slot]).unwrap();
        let due = Nanos(free[slot]);
        let (mut row, mut chunks) =
            request(&mut random, index, u32::try_from(slot).unwrap(), due, Phase::Measured);
        if index == 17 {
            idle_timeout(&mut row, &mut chunks);
        } else if index == 41 {
            http_error(&mut row, &mut chunks);
        }
        free[slot] = row.at.end.unwrap().0 + 20 * US;
        run.rows.push(row);
        run.chunks.push(chunks);
    }
    // In the order in which they end, as they are written.
    let mut order: Vec<_> = (0..run.rows.len()).collect();
    order.sort_by_key(|i| run.rows[*i].at.end);
    run.chunks = order.iter().map(|i| run.chunks[*i].clone()).collect();
    run.rows = order.iter().map(|i| run.rows[*i].clone()).collect();
    run
}

/// The same from a server that counts the tokens of its cache beside those of the prompt.
pub(crate) fn cache_apart() -> Run {
    let mut run = normal();
    for usage in run.rows.iter_mut().map(|row| &mut row.usage).filter(|usage| usage.prompt_tokens.is_some()) {
        usage.prompt_tokens = usage.prompt_tokens.map(|tokens| tokens - 16 - 300);
        (usage.cache_creation_tokens, usage.cache_counted_apart) = (Some(300), true);
    }
    run
}

/// Nothing was started.
pub(crate) fn empty() -> Run {
    Run {
        spec: spec(),
        rows: vec![],
        chunks: vec![],
        facts: Facts { planned: 60, asked_concurrency: Some(20), ..Facts::default() },
        plan: PlanFacts {
            digest: "5c1f0e77a0b3".to_owned(),
            prompt_source: "anvil".to_owned(),
            distinct_prompts: 60,
            repeats: 0,
        },
        instrument: InstrumentFacts {
            kernel_stamps: true,
            workers: vec![WorkerFacts {
                core: Some(1),
                busy_share: Some(0.0625),
                span: Some(Nanos(12_000 * MS)),
                run_queue_wait: Some(Nanos(1_250 * US)),
                involuntary_switches: Some(3),
            }],
            clock: ClockFacts {
                source: Some("tsc".to_owned()),
                drift_ppm: Some(0.017),
                error: Some(Nanos(204)),
                bracket: Nanos(31),
                wall_bracket: Nanos(47),
                compared_over: Nanos(12_000 * MS),
                inversions: 0,
                wall_steps: 0,
            },
            steal: Some(StealFacts { time: Nanos(10 * MS), share: 0.0004 }),
            stood_still: Some(Nanos(400 * US)),
            reads: Some(ReadFacts { count: 3_810, filled: 0, largest: 1_894 }),
            ring_fill: Some(RingFill { records: 0.0002, chunks: 0.0001 }),
            ..InstrumentFacts::default()
        },
        interrupted: false,
        reference_ok: None,
        unreachable: None,
    }
}

/// One request, one valid answer.
pub(crate) fn one_sample() -> Run {
    let mut run = empty();
    (run.facts.planned, run.spec.load.requests) = (1, 1);
    (run.facts.asked_concurrency, run.spec.load.concurrency) = (Some(1), 1);
    let (row, chunks) = request(&mut Random(7), 0, 0, Nanos(0), Phase::Measured);
    (run.rows, run.chunks) = (vec![row], vec![chunks]);
    run
}

/// Every answer is a status 503, and the run was interrupted.
pub(crate) fn all_failed() -> Run {
    let mut run = normal();
    for (row, chunks) in run.rows.iter_mut().zip(&mut run.chunks) {
        row.at.end = Some(Nanos(row.send_start.unwrap().0 + 4 * MS));
        http_error(row, chunks);
    }
    run.interrupted = true;
    run
}

/// Numbers at the far end: a day-long stream, millions of tokens, unknown texts.
pub(crate) fn wide() -> Run {
    let mut run = one_sample();
    let hour = 3_600_000 * MS;
    let row = &mut run.rows[0];
    for stamps in [&mut row.at, &mut row.user] {
        stamps.last_output = Some(Nanos(30 * hour));
        (stamps.terminal, stamps.end) = (stamps.last_output, stamps.last_output);
    }
    row.output_tokens = Some(123_456_789);
    row.usage.prompt_tokens = Some(987_654_321);
    run.spec.load.requests = 1_000_000;
    run.facts.planned = 1_000_000;
    run.spec.target.base_url =
        "https://gateway.a-very-long-name-of-a-company.example.com:8443/team/v1".to_owned();
    run.spec.target.path = "/team/v1/chat/completions?api-version=2024-10-21&api-key=SECRET-0".to_owned();
    run.instrument.ring_drops = 3;
    let bias = |mean, p50, p99| BiasDoc { mean: Some(mean), p50: Some(p50), p99: Some(p99) };
    run.instrument.calibration = Some(CalibrationNote {
        path: "/home/of/somebody/.local/share/hammerscale/calibration-0123456789abcdef.json".to_owned(),
        date: "2026-11-30T08:15:00Z".to_owned(),
        streams: 10_000,
        kernel_us: NoteError { p50: Some(1.912), p99: Some(4.625) },
        user_us: NoteError { p50: Some(7.903), p99: Some(1_021.4) },
        ttft_bias_us: bias(2.125, 1.75, 5.5),
        gap_bias_us: bias(-0.0625, 0.0, 2.25),
    });
    let mut failed = run.rows[0].clone();
    (failed.request_index, failed.outcome) = (1, Outcome::ServerErrorInStream);
    failed.error = Some(ErrorDetail {
        message: format!("\u{1b}[31m{} \"quoted\" \\ \u{202e}🦀\0", "overloaded ".repeat(30)),
        offset: Some(u64::MAX),
        error_type: None,
        code: Some("1e400".to_owned()),
        retry_after: Some("120".to_owned()),
        location: Some("/elsewhere".to_owned()),
        body_start: vec![0xff, b'<', 0],
    });
    run.rows.push(failed);
    run.chunks.push(vec![]);
    run
}

fn request(
    random: &mut Random,
    index: u64,
    slot: u32,
    due: Nanos,
    phase: Phase,
) -> (RequestRow, Vec<OutputChunk>) {
    let send_start = due.0 + random.between(2 * US, 18 * US);
    let first_byte = send_start + random.between(72 * MS, 97 * MS);
    let (chunks, coalesced) = stream(random, first_byte);
    let at = chunks[63].kernel.unwrap().0;
    let stamps = |kernel: bool| {
        let late = if kernel { 0 } else { 8 * US };
        let of = |chunk: &OutputChunk| Some(if kernel { chunk.kernel.unwrap() } else { chunk.user });
        ReceiveStamps {
            first_byte: Some(Nanos(first_byte + late)),
            head_done: Some(Nanos(first_byte + late)),
            first_event: Some(Nanos(first_byte + late)),
            first_output: of(&chunks[0]),
            first_reasoning: None,
            first_content: of(&chunks[0]),
            first_tool_call: None,
            last_output: of(&chunks[63]),
            first_usage_token: None,
            first_textless: None,
            last_textless: None,
            terminal: Some(Nanos(at + 400 * US + late)),
            end: Some(Nanos(at + 450 * US + late)),
        }
    };
    let mut row = answered(coalesced, stamps(true), stamps(false));
    (row.request_index, row.slot, row.phase, row.due) = (index, slot, phase, due);
    (row.connection_id, row.connection_use) = (u64::from(slot), u32::try_from(index / 20).unwrap());
    row.connect_start = (index < 20).then_some(Nanos(due.0 - 300 * US));
    row.connect = (index < 20).then_some(Nanos(150 * US));
    (row.send_start, row.send_end) = (Some(Nanos(send_start)), Some(Nanos(send_start + 12 * US)));
    row.sent_wire = Some(Nanos(send_start + 4 * US));
    // Of one request the kernel gave no stamp, and of one in seventeen a segment was lost.
    row.sent_wire = row.sent_wire.filter(|_| index != 8);
    let lost = u32::from(index % 17 == 9);
    row.transport =
        TransportFacts { rtt_us: Some(61), retransmits: Some(lost), unacked_us: Some(74 + lost * 70_000) };
    (row, chunks)
}

/// A valid answer in 64 chunks.
fn answered(coalesced: u64, at: ReceiveStamps, user: ReceiveStamps) -> RequestRow {
    RequestRow {
        request_index: 0,
        slot: 0,
        worker: 0,
        connection_id: 0,
        connection_use: 0,
        stale_connections: 0,
        phase: Phase::Measured,
        outcome: Outcome::Ok,
        http_status: Some(200),
        due: Nanos(0),
        dns: None,
        connect_start: None,
        connect: None,
        tls: None,
        send_start: None,
        send_end: None,
        sent_wire: None,
        transport: TransportFacts::default(),
        at,
        user,
        stamp_source: StampSource::Kernel,
        first_output_kind: Some(OutputKind::Content),
        several_choices: false,
        one_output_read: false,
        counters: Counters {
            events: 68,
            reads: 66 - coalesced,
            output_chunks: 64,
            content_chunks: 64,
            content_deltas: 64,
            coalesced_chunks: coalesced,
            bytes_sent: 2_900,
            bytes_received: 17_300,
            body_bytes: 16_400,
            ..Counters::default()
        },
        usage: Usage {
            prompt_tokens: Some(516),
            completion_tokens: Some(65),
            total_tokens: Some(581),
            reasoning_tokens: None,
            cached_tokens: Some(16),
            ..Usage::default()
        },
        output_tokens: Some(65),
        output_token_source: TokenSource::Usage,
        first_chunk_tokens: None,
        chunk_tokens: None,
        finish_reasons: vec![(0, "stop".to_owned())],
        planned_context_tokens: Some(512),
        requested_max_tokens: Some(64),
        canary: None,
        controlled_output: None,
        visible_content_truncated: false,
        cut_after_terminal: false,
        role_chunk_first: true,
        streamed_unasked: false,
        anomalies: Anomalies::NONE,
        error: None,
    }
}

/// 64 chunks, and how many of them share a read with an earlier one.
fn stream(random: &mut Random, first_byte: i64) -> (Vec<OutputChunk>, u64) {
    let mut chunks: Vec<OutputChunk> = Vec::new();
    let mut at = first_byte;
    for i in 0..64 {
        at += if i == 0 { 300 * US } else { random.between(19 * MS, 21 * MS) };
        let not_before = chunks.last().map_or(first_byte, |before| before.user.0 + 2 * US);
        let user = Nanos(at + random.between(6 * US, 12 * US));
        chunks.push(OutputChunk {
            choice: 0,
            kind: OutputKind::Content,
            kernel: Some(Nanos(at)),
            user,
            not_before: Nanos(not_before),
            ends_read: true,
            tokens: None,
        });
    }
    let mut coalesced = 0;
    for i in 1..63 {
        if random.between(0, 100) < 2 && chunks[i - 1].ends_read {
            let next = chunks[i + 1];
            (chunks[i].kernel, chunks[i].user, chunks[i].ends_read) = (next.kernel, next.user, false);
            chunks[i + 1].not_before = chunks[i].not_before;
            coalesced += 1;
        }
    }
    (chunks, coalesced)
}

fn idle_timeout(row: &mut RequestRow, chunks: &mut Vec<OutputChunk>) {
    chunks.truncate(10);
    row.outcome = Outcome::TimeoutIdle;
    let (last, given_up) = (chunks[9], Nanos(chunks[9].user.0 + 2_000 * MS));
    (row.at.last_output, row.user.last_output) = (last.kernel, Some(last.user));
    (row.at.end, row.user.end) = (Some(given_up), Some(given_up));
    (row.at.terminal, row.user.terminal) = (None, None);
    row.usage = Usage::default();
    (row.output_tokens, row.output_token_source) = (Some(10), TokenSource::ContentChunks);
    row.counters.output_chunks = 10;
    row.counters.content_chunks = 10;
    row.counters.content_deltas = 10;
    row.finish_reasons.clear();
    row.error = Some(ErrorDetail { message: "no byte came for 2s".to_owned(), ..ErrorDetail::default() });
}

fn http_error(row: &mut RequestRow, chunks: &mut Vec<OutputChunk>) {
    chunks.clear();
    row.outcome = Outcome::HttpError;
    row.http_status = Some(503);
    let end = Nanos(row.send_start.unwrap().0 + 4 * MS);
    let stamps = ReceiveStamps {
        first_byte: Some(Nanos(end.0 - 10 * US)),
        head_done: Some(Nanos(end.0 - 10 * US)),
        end: Some(end),
        ..ReceiveStamps::default()
    };
    (row.at, row.user) = (stamps, stamps);
    row.first_output_kind = None;
    row.usage = Usage::default();
    (row.output_tokens, row.output_token_source) = (None, TokenSource::Unknown);
    row.counters =
        Counters { reads: 1, bytes_sent: 2_900, bytes_received: 310, body_bytes: 60, ..Counters::default() };
    row.finish_reasons.clear();
    row.role_chunk_first = false;
    row.error = Some(ErrorDetail {
        message: "the server answered: model is overloaded".to_owned(),
        error_type: None,
        code: Some("overloaded".to_owned()),
        retry_after: Some("2".to_owned()),
        body_start: b"{\"error\":{\"code\":\"overloaded\"}}".to_vec(),
        ..ErrorDetail::default()
    });
}

/// A row with every optional part filled in.
pub(crate) fn full_row() -> RequestRow {
    let mut row = request(&mut Random(3), 5, 2, Nanos(MS), Phase::Drain).0;
    row.at.first_reasoning = row.at.first_event;
    row.at.first_tool_call = row.at.last_output;
    (row.dns, row.tls) = (Some(Nanos(5 * US)), Some(Nanos(800 * US)));
    (row.several_choices, row.one_output_read, row.cut_after_terminal) = (true, true, true);
    (row.visible_content_truncated, row.stale_connections) = (true, 2);
    (row.streamed_unasked, row.usage.cache_creation_tokens, row.usage.cache_counted_apart) =
        (true, Some(9), true);
    row.anomalies.insert(Anomaly::ObsFold);
    row.anomalies.insert(Anomaly::EofBeforeFinalCrlf);
    row.counters.malformed_events = 1;
    row.counters.unrecognised_events = 2;
    row.counters.events_after_done = 3;
    row.counters.keepalive_comments = 4;
    row.counters.reasoning_chunks = 5;
    row.counters.reasoning_deltas = 6;
    row.counters.tool_call_chunks = 6;
    row.counters.refusal_chunks = 7;
    row.usage.reasoning_tokens = Some(4);
    row.finish_reasons = vec![(0, "stop".to_owned()), (1, "length".to_owned())];
    row.canary = Some(CanaryObservation {
        marker: "ANVIL_REQ_0_00005".to_owned(),
        marker_at_start: true,
        observed_marker_count: 1,
        foreign_marker_count: 0,
        capture_complete: true,
        passed: true,
    });
    row.controlled_output = Some(ControlledOutputObservation {
        requested_words: 8,
        strict: true,
        observed_code_words: 8,
        observed_extra_words: 0,
        capture_complete: false,
        exact_adherence: None,
        passed: false,
    });
    row.error = Some(ErrorDetail {
        message: "event 3 is no JSON".to_owned(),
        offset: Some(512),
        error_type: Some("t".to_owned()),
        code: Some("x".to_owned()),
        retry_after: Some("1".to_owned()),
        location: Some("/".to_owned()),
        body_start: b"data: {".to_vec(),
    });
    row
}

fn spec() -> RunSpec {
    RunSpec {
        target: TargetSpec {
            endpoint: Endpoint::Chat,
            plain: None,
            base_url: "http://127.0.0.1:8000/v1".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 8000,
            path: "/v1/chat/completions".to_owned(),
            models_path: Some("/v1/models".to_owned()),
            sim: None,
            model: None,
            api_key: Some(Secret::new("SECRET-1".to_owned())),
            headers: vec![("X-Team".to_owned(), Secret::new("SECRET-2".to_owned()))],
            request_id_header: true,
        },
        load: LoadSpec { requests: 60, concurrency: 20, burst: 0, arrivals: None },
        prompt: PromptSpec {
            ctx_tokens: Some(512),
            seed: 0,
            max_tokens: 64,
            response_words: 0,
            unique: true,
            same: false,
            shared_prefix_tokens: 0,
            request_canaries: false,
            controlled_output_strict: false,
            max_model_len: None,
            margin: 256,
            capture_limit: 8_192,
        },
        body: BodySpec {
            compat_anvil: false,
            temperature: Some(0.0),
            top_p: None,
            thinking_mode: ThinkingMode::Default,
            no_thinking: false,
            reasoning_effort: None,
            ..BodySpec::default()
        },
        connection: ConnectionSpec {
            mode: ConnectionMode::Keep,
            prewarm: false,
            source_ips: Vec::new(),
            timeout: Nanos::from_secs(900),
            idle_timeout: Nanos::from_secs(2),
            connect_timeout: Nanos::from_secs(10),
        },
        instrument: InstrumentSpec {
            workers: None,
            cores: vec![1],
            kernel_stamps: true,
            strict: false,
            max_client_error: None,
        },
        output: OutputSpec {
            dir: None,
            json_out: Some(PathBuf::from("out.json")),
            overwrite: false,
            quiet: false,
            progress: ProgressMode::Auto,
            format: OutputFormat::Text,
        },
        labels: LabelSpec {
            engine: Some("vllm".to_owned()),
            labels: vec![("team".to_owned(), "serving".to_owned())],
            ..LabelSpec::default()
        },
        dry_run: false,
    }
}

/// xorshift.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn between(&mut self, low: i64, high: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + i64::try_from(self.0 % u64::try_from(high - low).unwrap()).unwrap()
    }
}
