//! `run.json`: everything that was measured, on what, with what, and how good the instrument was.
//!
//! These types are the contract: serialized forms stand apart from the types the program computes with, keys keep their
//! order, and what is missing is `null` or absent, never 0. Numbers are finite. Blocks of later versions (objectives,
//! server metrics) are absent, not empty. [`RunDocument::of`] only translates;
//! formulas are in `metrics`, the verdict in [`crate::report::validity`], the warnings in [`crate::report::warnings`].

pub mod body_spec;
pub mod compat;
pub mod instrument;
pub mod measured;
pub mod metric;
pub mod provenance;
pub mod slowest;
pub mod spec;
pub mod stream;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::compat::PeerDoc;
use self::instrument::{InstrumentDoc, PrewarmDoc};
use self::measured::{CountsDoc, FailureDoc, RatesDoc, TokensDoc, WindowDoc};
use self::metric::MetricDoc;
use self::provenance::{HostDoc, PlanDoc, TargetDoc, ToolDoc};
use self::slowest::SlowDoc;
use self::spec::SpecDoc;
use self::stream::StreamDoc;
use crate::aggregate::summary::Summary;
use crate::config::masking;
use crate::config::spec::{ResolvedTarget, RunSpec};
use crate::metrics::row::StampSource;
use crate::record::RunId;
use crate::report::host::{Host, Tool};
use crate::report::ordered::OrderedMap;
use crate::report::validity::{Asked, InstrumentFacts};
use crate::report::warnings::{self, Warning};
use crate::units::{Nanos, UnixNanos, calendar};

/// Name and version of the document, `hammerscale.run/MAJOR.MINOR`. A minor version only adds keys; readers ignore keys
/// they do not know.
///
/// * 1.0: the first one.
/// * 1.1: `compat`; `inter_token_latency_ms`, `time_to_first_usage_token_ms` and its twin from due; in `tpot_ms`
///   `first_chunk_tokens` can be `measured`, and `first_chunk_counts` says how many where both kinds occur; in lines of
///   `requests.jsonl` `first_usage_token_ns`, `first_textless_ns`, `last_textless_ns`, `textless_chunks`,
///   `first_chunk_tokens` and `chunk_tokens`; the endpoint and what its bodies carry, in `spec`, `null` for what plain
///   requests do not have; `prewarm`, `instrument.peak_rss_bytes`, `instrument.cpu_time_s`, `spec.connection.prewarm` and
///   `spec.connection.source_ips`; `instrument.slot_wait_share`; `stream`, and in lines `streamed_unasked` and `anomalies`; in lines
///   `cache_creation_tokens` and `cache_counted_apart`, in `tokens.cached` `created` and `counted_apart`: every number of
///   prompt tokens but those of lines is that of whole prompts; `span`, `instrument.clock.compared_over_s`,
///   `target.unreachable` and, in lines of `requests.jsonl`, `finish_reasons_in_order`, so that this document and
///   `artifact.json` follow from what is given in this document and from the records.
/// * 1.2: `instrument.client_error_us`, `workers`, `steal_share`, `stood_still_ms`, `reads`, `ring_fill`,
///   `coalesced_late_share`, `coalesced_sent_share`; `instrument.clock.error_us`, `bracket_us`, `wall_bracket_us`;
///   `spec.instrument.max_client_error_us`; `instrument.calibration`; `spec.load.rate` and `arrival`, with which
///   `spec.load.concurrency` is `null`; `slowest`, `instrument.tx_stamp_share`, `time_to_first_output_wire_ms` and, in lines,
///   `sent_wire_ns`, `rtt_us`, `retransmits` and `unacked_us`. The figures of scheduler, hypervisor and timers are filled in.
pub const SCHEMA: &str = "hammerscale.run/1.2";

/// What the plan says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFacts {
    /// Digest of everything that is decided before the first packet.
    pub digest: String,
    /// Where prompts come from.
    pub prompt_source: String,
    /// Different prompts among the measured requests.
    pub distinct_prompts: u64,
    /// Measured requests whose prompt was sent before, warm-up included.
    pub repeats: u64,
}

/// From just before the first request, warm-up included, to the end of the last one: what the reference's wall clock
/// measures. Nanoseconds since the zero of all stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Just before the first request.
    pub began_ns: i64,
    /// The end of the last request; of a run without requests, the end of the run.
    pub ended_ns: i64,
    /// From when on no request was started, of a run that its operator cut short; `null` for all others.
    #[serde(default)]
    pub stopped_ns: Option<i64>,
}

impl Span {
    /// Its length; 0 where it would be negative.
    #[must_use]
    pub const fn length(self) -> Nanos {
        let length = self.ended_ns.saturating_sub(self.began_ns);
        Nanos(if length > 0 { length } else { 0 })
    }
}

/// Everything a document is made from.
#[derive(Debug, Clone)]
pub struct RunFacts<'a> {
    /// The run's name.
    pub run_id: &'a RunId,
    /// The zero of all stamps on CLOCK_REALTIME.
    pub started_unix: UnixNanos,
    /// The same instant on CLOCK_MONOTONIC.
    pub started_monotonic: Nanos,
    /// From just before the first request to the end of the last one.
    pub span: Span,
    /// The run was cut short by its operator.
    pub interrupted: bool,
    /// The program.
    pub tool: Tool,
    /// The machine.
    pub host: &'a Host,
    /// What was asked for.
    pub spec: &'a RunSpec,
    /// What was found out about the target.
    pub target: &'a ResolvedTarget,
    /// What was planned.
    pub plan: &'a PlanFacts,
    /// What was measured.
    pub summary: &'a Summary,
    /// What is known about the instrument.
    pub instrument: &'a InstrumentFacts,
    /// Valid requests by the reference's own rules; `None` when no reference artifact was made.
    pub reference_ok: Option<u64>,
    /// The metrics of the reference artifact; `None` when none was made.
    pub reference_metrics: Option<&'a BTreeMap<String, serde_json::Value>>,
}

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run's name.
    pub run_id: String,
    /// CLOCK_REALTIME at the zero of all stamps: a string, because it is beyond what a double holds.
    pub started_unix_ns: String,
    /// CLOCK_MONOTONIC at the same instant.
    pub started_monotonic_ns: String,
    /// The zero in UTC.
    pub started_at: String,
    /// The end of the last request in UTC.
    pub finished_at: String,
    /// The run was cut short by its operator.
    pub interrupted: bool,
    /// What the reference's wall clock measures; absent in documents before 1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    /// The program.
    pub tool: ToolDoc,
    /// The machine.
    pub host: HostDoc,
    /// The server.
    pub target: TargetDoc,
    /// What was asked for, without secrets.
    pub spec: SpecDoc,
    /// What was planned.
    pub plan: PlanDoc,
    /// Requests by ending.
    pub counts: CountsDoc,
    /// One example of each failing outcome, in the order of their declaration.
    pub failures: OrderedMap<FailureDoc>,
    /// Connections made before the window; absent where none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prewarm: Option<PrewarmDoc>,
    /// The parts of the run; `null` when nothing was measured.
    pub window: Option<WindowDoc>,
    /// Metrics by name, in catalog order; one without a value is absent.
    pub metrics: OrderedMap<MetricDoc>,
    /// Metrics of run scope by name.
    pub rates: RatesDoc,
    /// Token facts.
    pub tokens: TokensDoc,
    /// What answers looked like on the wire; absent in documents of version 1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamDoc>,
    /// The slowest requests and where their time went, slowest first; absent in documents before 1.1.
    #[serde(default)]
    pub slowest: Vec<SlowDoc>,
    /// How good the instrument was.
    pub instrument: InstrumentDoc,
    /// What other tools would have reported, by tool; absent in documents of version 1.0.
    #[serde(default)]
    pub compat: OrderedMap<PeerDoc>,
    /// What a reader must know before using the numbers.
    pub warnings: Vec<WarningDoc>,
}

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarningDoc {
    /// Its code.
    pub code: String,
    /// One sentence with the figures.
    pub text: String,
}

/// Why a text is no run document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not JSON, or not the keys of a run document.
    #[error("not a run document: {0}")]
    Shape(#[from] serde_json::Error),
    /// A document of something else, or of another major version.
    #[error("not a document of this version: {0:?}, expected {SCHEMA:?} or a later minor version")]
    Schema(String),
}

impl RunDocument {
    /// The document of a run.
    #[must_use]
    pub fn of(facts: &RunFacts<'_>) -> Self {
        let summary = facts.summary;
        let spec = SpecDoc::of(facts.spec);
        let mut document = Self {
            schema: SCHEMA.to_owned(),
            run_id: facts.run_id.to_string(),
            started_unix_ns: facts.started_unix.get().to_string(),
            started_monotonic_ns: facts.started_monotonic.0.to_string(),
            started_at: calendar::rfc3339(facts.started_unix),
            finished_at: calendar::rfc3339(after(facts.started_unix, facts.span.ended_ns)),
            interrupted: facts.interrupted,
            span: Some(facts.span),
            tool: ToolDoc::of(&facts.tool),
            host: HostDoc::of(facts.host),
            target: TargetDoc::of(&spec, facts.target, &masking::typed_secrets(&facts.spec.target)),
            plan: PlanDoc::of(facts.plan, &spec.load, facts.spec.prompt.seed),
            spec,
            counts: CountsDoc::of(&summary.counts, facts.instrument.dropped_stamps),
            failures: FailureDoc::all(&summary.counts),
            prewarm: facts.instrument.prewarm.as_ref().map(PrewarmDoc::of),
            window: summary.spans.map(|spans| WindowDoc::of(spans, summary.steady_state)),
            metrics: MetricDoc::all(summary),
            rates: measured::rates(&summary.rates),
            tokens: TokensDoc::of(&summary.tokens),
            stream: Some(StreamDoc::of(&summary.stream)),
            slowest: SlowDoc::all(&summary.slowest, facts.run_id.as_str()),
            instrument: InstrumentDoc::of(facts.instrument, summary),
            compat: PeerDoc::all(facts.reference_metrics, &summary.compat),
            warnings: Vec::new(),
        };
        document.take_judgement(summary, facts.reference_ok);
        document
    }

    /// The document with everything computed again that follows from the requests: counts, window, statistics, rates,
    /// tokens, and what the stamps say about the instrument. What needs the reference artifact is a step of its own:
    /// [other tools' metrics](Self::take_peers) and [what is judged](Self::take_judgement).
    #[must_use]
    pub fn computed_again(&self, summary: &Summary, last_end: Option<Nanos>) -> Self {
        let mut again = self.clone();
        if let Some(span) = &mut again.span {
            span.ended_ns = last_end.map_or(span.ended_ns, |end| end.0);
            again.interrupted = span.stopped_ns.is_some();
        }
        again.target.take_spec(&self.spec);
        again.plan.take_load(&self.spec.load);
        again.plan.seed = self.spec.prompt.as_ref().map_or(self.plan.seed, |prompt| prompt.seed);
        if let Some(zero) = self.zero_unix() {
            again.started_at = calendar::rfc3339(zero);
            if let Some(span) = again.span {
                again.finished_at = calendar::rfc3339(after(zero, span.ended_ns));
            }
        }
        // The stamps of a record that was lost too are counted by nobody else.
        let all_records = self.instrument.ring_drops == 0;
        let dropped = if all_records { summary.stamps.missing_chunks } else { self.counts.dropped_stamps };
        again.counts = CountsDoc::of(&summary.counts, dropped);
        again.failures = FailureDoc::all(&summary.counts);
        again.window = summary.spans.map(|spans| WindowDoc::of(spans, summary.steady_state));
        again.metrics = MetricDoc::all(summary);
        again.rates = measured::rates(&summary.rates);
        again.tokens = TokensDoc::of(&summary.tokens);
        again.stream = Some(StreamDoc::of(&summary.stream));
        let kernel_stamps_asked = self.spec.instrument.stamps == StampSource::Kernel.name();
        again.instrument.take_stamps(summary, kernel_stamps_asked);
        again
    }

    /// Takes over the name of the run and the slowest requests, whose names follow from it.
    pub fn take_slowest(&mut self, run_id: &str, summary: &Summary) {
        run_id.clone_into(&mut self.run_id);
        self.slowest = SlowDoc::all(&summary.slowest, run_id);
    }

    /// Takes over what other tools would have reported; `reference` is `metrics` of the reference artifact.
    pub fn take_peers(&mut self, reference: Option<&BTreeMap<String, serde_json::Value>>, summary: &Summary) {
        self.compat = PeerDoc::all(reference, &summary.compat);
    }

    /// Takes over the verdict and the warnings; `reference_ok` as in [`RunFacts`]. Another minor version finds other
    /// things, so the judgement of its documents stays as it is.
    pub fn take_judgement(&mut self, summary: &Summary, reference_ok: Option<u64>) {
        if self.schema == SCHEMA {
            let asked = Asked::of(&self.spec);
            self.instrument.take_judgement(asked, self.counts.dropped_stamps, summary);
            let found = warnings::find(self, summary, reference_ok);
            self.warnings = found.into_iter().map(WarningDoc::of).collect();
        }
    }

    /// CLOCK_REALTIME at the zero of all stamps; `None` where the document does not say it in a number.
    #[must_use]
    pub fn zero_unix(&self) -> Option<UnixNanos> {
        UnixNanos::new(self.started_unix_ns.parse().ok()?)
    }

    /// The document as indented JSON with a final line break.
    ///
    /// # Errors
    /// None that a value of this type can cause; the signature is the serializer's.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// Reads a document of this major version.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_str(text)?;
        if family(&head.schema) != family(SCHEMA) {
            return Err(DocumentError::Schema(head.schema));
        }
        Ok(serde_json::from_str(text)?)
    }
}

impl WarningDoc {
    fn of(warning: Warning) -> Self {
        Self { code: warning.code.name().to_owned(), text: warning.text }
    }
}

/// The name and the major version.
pub(in crate::report) fn family(schema: &str) -> Option<&str> {
    schema.rsplit_once('.').map(|(family, _)| family)
}

/// An instant of the run on the wall clock.
pub(super) fn after(zero: UnixNanos, at_ns: i64) -> UnixNanos {
    UnixNanos::at(zero.get().saturating_add(at_ns))
}

/// A number as JSON has it: `None` for what is not finite.
pub(in crate::report) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
