//! What a reader must know before using the numbers: one code and one sentence with the figures each.
//!
//! A warning is about the run or the server; what is wrong with the instrument is a reason of its verdict
//! ([`crate::report::validity`]). Codes are part of the document's contract.

use crate::aggregate::summary::Summary;
use crate::aggregate::tokens::AskedReceived;
use crate::config::spec::{Endpoint, prompt_room};
use crate::metrics::MetricId;
use crate::metrics::row::TokenSource;
use crate::record::{Anomaly, Outcome};
use crate::report::document::RunDocument;
use crate::report::document::instrument::PrewarmDoc;
use crate::report::document::provenance::PlanDoc;
use crate::report::document::spec::{KEEP, SpecDoc};
use crate::units::text::format_rate;
use crate::units::{PerSecond, display};

/// Largest deviation of a length from what was asked for that is not told, in percent.
pub const LENGTH_TOLERANCE_PERCENT: u64 = 1;
/// Largest share of cached prompt tokens that is not told when prompts were meant to be unique: a chat template and the
/// reference's header line are common to all prompts.
pub const MAX_CACHED_SHARE: f64 = 0.05;
/// What all prompts have in common is at most this long, in tokens: a chat template with a system prompt of its own and
/// the reference's header line. More, or most of the prompt, was in the cache before the run.
pub const MAX_COMMON_TOKENS: f64 = 256.0;
/// See [`MAX_COMMON_TOKENS`].
const MAX_COMMON_SHARE: f64 = 0.5;
/// Smallest part of the schedule's rate that is not told: what a run of some seconds loses at its ends.
pub const MIN_RATE_SHARE: f64 = 0.99;
/// Below this many values the 99th percentile by nearest rank is the largest value.
pub const MIN_SAMPLES_FOR_P99: u64 = 100;
/// Tokens per chunk from which on several tokens per chunk are told; a little above one, because some servers count
/// tokens that have no text of their own.
pub const MAX_TOKENS_PER_CHUNK: f64 = 1.05;

/// The code of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// Nothing could be sent.
    TargetUnreachable,
    /// Answers are not as long as was asked for.
    OutputLength,
    /// Prompts are not as long as was asked for.
    PromptLength,
    /// Prompts are shorter than was asked for, because the model takes no longer ones.
    ContextCapped,
    /// The server took prompts from its cache that were meant to be unique.
    CachedShare,
    /// Prompts that were meant to be unique repeat.
    RepeatedPrompts,
    /// The rate of an open loop was not reached.
    RateNotReached,
    /// Too few values behind a p99.
    FewSamples,
    /// Answers were redirects.
    Redirects,
    /// The first event announces only a role.
    RoleChunkFirst,
    /// Answers carry no usage object.
    NoUsage,
    /// Usage was asked for with every event, and answers do not count as they go.
    NotCountedAsAsked,
    /// Chunks carry several tokens.
    MultiTokenChunks,
    /// Answers came as event streams although none was asked for.
    StreamedUnasked,
    /// Connections were to be kept and none could be: the server closed them, or sent what spoils them.
    ConnectionsNotKept,
    /// Bytes came that no request had asked for.
    UnaskedBytes,
    /// Connections that were to be made before the window could not be made.
    PrewarmFailed,
    /// The target is the embedded simulator.
    SimulatedTarget,
    /// The reference's rules count other requests as valid.
    ReferenceCountsDiffer,
}

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Its code.
    pub code: Code,
    /// One sentence with the figures, without a full stop.
    pub text: String,
}

/// The warnings of a run, in the order of the codes, from what its document says, so that a saved run has the same as at
/// its end. `reference_ok` is [`RunFacts::reference_ok`](crate::report::document::RunFacts::reference_ok).
#[must_use]
pub fn find(run: &RunDocument, summary: &Summary, reference_ok: Option<u64>) -> Vec<Warning> {
    let RunDocument { spec, target, plan, prewarm, .. } = run;
    let is_streamed = spec.body.as_ref().is_some_and(|body| body.stream);
    let found = [
        (Code::TargetUnreachable, target.unreachable.clone()),
        (Code::OutputLength, output_length(summary)),
        (Code::PromptLength, prompt_length(summary)),
        (Code::ContextCapped, context_capped(spec, target.max_model_len)),
        (Code::CachedShare, cached_share(spec, summary)),
        (Code::RepeatedPrompts, repeated_prompts(spec, plan)),
        (Code::RateNotReached, rate_not_reached(spec, summary)),
        (Code::FewSamples, few_samples(summary)),
        (Code::Redirects, redirects(summary)),
        (Code::RoleChunkFirst, role_chunk_first(summary).filter(|_| is_streamed)),
        (Code::NoUsage, no_usage(spec, summary)),
        (Code::NotCountedAsAsked, not_counted_as_asked(spec, summary)),
        (Code::MultiTokenChunks, multi_token_chunks(summary).filter(|_| is_streamed)),
        (Code::StreamedUnasked, streamed_unasked(summary)),
        (Code::ConnectionsNotKept, connections_not_kept(spec, summary)),
        (Code::UnaskedBytes, unasked_bytes(summary)),
        (Code::PrewarmFailed, prewarm.as_ref().and_then(prewarm_failed)),
        (Code::SimulatedTarget, simulated_target(target.simulated)),
        (Code::ReferenceCountsDiffer, reference_counts_differ(summary, reference_ok)),
    ];
    found.into_iter().filter_map(|(code, text)| text.map(|text| Warning { code, text })).collect()
}

impl Code {
    /// Every code, in the order of [`find`].
    pub const ALL: [Self; 19] = [
        Self::TargetUnreachable,
        Self::OutputLength,
        Self::PromptLength,
        Self::ContextCapped,
        Self::CachedShare,
        Self::RepeatedPrompts,
        Self::RateNotReached,
        Self::FewSamples,
        Self::Redirects,
        Self::RoleChunkFirst,
        Self::NoUsage,
        Self::NotCountedAsAsked,
        Self::MultiTokenChunks,
        Self::StreamedUnasked,
        Self::ConnectionsNotKept,
        Self::UnaskedBytes,
        Self::PrewarmFailed,
        Self::SimulatedTarget,
        Self::ReferenceCountsDiffer,
    ];

    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TargetUnreachable => "target_unreachable",
            Self::OutputLength => "output_length",
            Self::PromptLength => "prompt_length",
            Self::ContextCapped => "context_capped",
            Self::CachedShare => "cached_share",
            Self::RepeatedPrompts => "repeated_prompts",
            Self::RateNotReached => "rate_not_reached",
            Self::FewSamples => "few_samples",
            Self::Redirects => "redirects",
            Self::RoleChunkFirst => "role_chunk_first",
            Self::NoUsage => "no_usage",
            Self::NotCountedAsAsked => "not_counted_as_asked",
            Self::MultiTokenChunks => "multi_token_chunks",
            Self::StreamedUnasked => "streamed_unasked",
            Self::ConnectionsNotKept => "connections_not_kept",
            Self::UnaskedBytes => "unasked_bytes",
            Self::PrewarmFailed => "prewarm_failed",
            Self::SimulatedTarget => "simulated_target",
            Self::ReferenceCountsDiffer => "reference_counts_differ",
        }
    }
}

fn output_length(summary: &Summary) -> Option<String> {
    let sums = summary.tokens.output.filter(is_off)?;
    let early = match summary.tokens.ended_early {
        0 => String::new(),
        n => format!("; {} ended below their limit", display::counted(n, "answer")),
    };
    let (came, asked, ratio) = figures(&sums)?;
    Some(format!("{came} output tokens received of {asked} asked for ({ratio}){early}"))
}

fn prompt_length(summary: &Summary) -> Option<String> {
    let sums = summary.tokens.prompt.filter(is_off)?;
    let (came, asked, ratio) = figures(&sums)?;
    Some(format!("the server counted {came} prompt tokens where {asked} were asked for ({ratio})"))
}

fn context_capped(spec: &SpecDoc, max_model_len: Option<u64>) -> Option<String> {
    let prompt = spec.prompt.as_ref()?;
    let (asked, length) = (prompt.ctx_tokens?, max_model_len?);
    let room =
        prompt_room(length, prompt.max_tokens.unwrap_or(0), prompt.margin).filter(|room| *room < asked)?;
    let (asked, length) = (display::counted(asked, "token"), display::whole(length));
    let room = display::counted(room, "token");
    Some(format!(
        "{asked} were asked for and the model takes {length}, output and margin included: prompts of {room}"
    ))
}

fn cached_share(spec: &SpecDoc, summary: &Summary) -> Option<String> {
    let beyond = summary.tokens.cached_beyond_prompt;
    if beyond > 0 {
        let (some, all) = (display::whole(beyond), display::counted(summary.counts.ok, "answer"));
        return Some(format!(
            "{some} of {all} told more cached tokens than prompt tokens: one of the two counts is not what it is called, \
             and no share of the cache is made of them"
        ));
    }
    let sums = summary.tokens.cached.filter(|_| meant_to_be_unique(spec))?;
    let share = sums.share().filter(|share| *share > MAX_CACHED_SHARE)?;
    let most = summary.metric(MetricId::CachedTokens)?.percentiles?.p99;
    let cause = if most <= MAX_COMMON_TOKENS && share <= MAX_COMMON_SHARE {
        format!(
            "at most {} tokens of a prompt, as long as the beginning that all prompts have in common (chat template \
             and header line)",
            display::fixed(most, 0)
        )
    } else {
        format!(
            "up to {} tokens of a prompt, more than all prompts have in common: an earlier run has sent the same \
             ones, unless the chat template is that long",
            display::fixed(most, 0)
        )
    };
    let share = display::percent(share);
    Some(format!(
        "{share} of the prompt tokens came from the server's cache although prompts are unique within a run: {cause}"
    ))
}

fn repeated_prompts(spec: &SpecDoc, plan: &PlanDoc) -> Option<String> {
    (meant_to_be_unique(spec) && plan.repeats > 0).then(|| {
        let (repeats, distinct) =
            (display::counted(plan.repeats, "prompt"), display::whole(plan.distinct_prompts));
        format!(
            "{repeats} had been sent before although prompts were meant to be unique ({distinct} distinct)"
        )
    })
}

fn rate_not_reached(spec: &SpecDoc, summary: &Summary) -> Option<String> {
    let schedule = summary.stamps.schedule.as_ref()?;
    let share = schedule.rate_share().filter(|share| *share < MIN_RATE_SHARE)?;
    let (held, sent) = (schedule.held_per_s()?, schedule.sent_per_s()?);
    let [held, sent] = [held, sent].map(|rate| display::significant(rate, 3));
    let asked = format_rate(PerSecond(spec.load.rate?));
    Some(format!(
        "{sent} requests a second were sent where the schedule held {held} ({} of it; asked for: {asked})",
        display::percent(share)
    ))
}

fn few_samples(summary: &Summary) -> Option<String> {
    let ok = summary.counts.ok;
    (ok > 0 && ok < MIN_SAMPLES_FOR_P99).then(|| {
        let (samples, enough) = (display::counted(ok, "sample"), display::whole(MIN_SAMPLES_FOR_P99));
        format!("{samples}: below {enough}, a p99 is just the largest value")
    })
}

fn redirects(summary: &Summary) -> Option<String> {
    let redirects = *summary.counts.by_outcome.get(&Outcome::Redirect)?;
    let answers = display::counted(redirects, "answer");
    Some(format!("{answers} of {} redirected and not followed", display::whole(summary.counts.started)))
}

fn role_chunk_first(summary: &Summary) -> Option<String> {
    (summary.role_chunk_first > 0).then(|| {
        let (some, all) =
            (display::whole(summary.role_chunk_first), display::counted(summary.counts.ok, "answer"));
        format!("the first event of {some} of {all} carries no output: it is not the first token")
    })
}

fn no_usage(spec: &SpecDoc, summary: &Summary) -> Option<String> {
    let (tokens, ok) = (&summary.tokens, summary.counts.ok);
    // Nobody expects usage of a page.
    spec.body.as_ref()?;
    let (without, unknown) = if spec.target.endpoint == Endpoint::Embeddings.name() {
        // Only prompts have tokens.
        (ok.saturating_sub(tokens.prompt.map_or(0, |sums| sums.requests)), "prompt tokens are unknown")
    } else {
        (tokens.without_usage, "output tokens are estimated or unknown")
    };
    (without > 0).then(|| {
        let (without, all) = (display::whole(without), display::counted(ok, "answer"));
        format!("{without} of {all} without usage: their {unknown}")
    })
}

fn not_counted_as_asked(spec: &SpecDoc, summary: &Summary) -> Option<String> {
    let counted = summary.tokens.sources.get(&TokenSource::ContinuousUsage).copied().unwrap_or(0);
    let without = summary.counts.ok.saturating_sub(counted);
    let asked = spec.body.as_ref().is_some_and(|body| body.continuous_usage);
    (asked && without > 0).then(|| {
        let (without, all) = (display::whole(without), display::counted(summary.counts.ok, "answer"));
        format!(
            "{without} of {all} did not tell the tokens of each chunk although usage was asked for with every event: \
             they are in no inter-token latency"
        )
    })
}

fn multi_token_chunks(summary: &Summary) -> Option<String> {
    let ratio = summary.tokens.per_chunk?.ratio().filter(|ratio| *ratio > MAX_TOKENS_PER_CHUNK)?;
    let ratio = display::significant(ratio, 3);
    Some(format!(
        "a chunk carries {ratio} tokens on average: gaps between chunks are not gaps between tokens"
    ))
}

fn streamed_unasked(summary: &Summary) -> Option<String> {
    let unasked = summary.stream.streamed_unasked;
    (unasked > 0).then(|| {
        let (some, all) = (display::whole(unasked), display::counted(summary.counts.started, "request"));
        format!(
            "{some} of {all} got an event stream that was not asked for: their times are those of a stream"
        )
    })
}

fn connections_not_kept(spec: &SpecDoc, summary: &Summary) -> Option<String> {
    let counts = &summary.counts;
    // In an open loop as many may have been in flight as were sent; below half of them, the rest could have followed.
    let at_a_time = match spec.load.concurrency {
        Some(slots) => f64::from(slots),
        None => 2.0 * summary.rates.concurrency_max.unwrap_or(f64::INFINITY),
    };
    let could_be_reused = counts.ok > 0 && float(counts.sent) > at_a_time;
    // Then it was not the server that ended them, and another warning says who did.
    let spoiled = summary.stream.anomalies.contains_key(&Anomaly::UnaskedBytes);
    (spec.connection.mode == KEEP && could_be_reused && counts.reused == 0 && !spoiled).then(|| {
        let sent = display::counted(counts.sent, "request");
        format!("the server closed every connection after its answer: each of the {sent} needed a new one")
    })
}

fn unasked_bytes(summary: &Summary) -> Option<String> {
    let spoiled = summary.stream.anomalies.get(&Anomaly::UnaskedBytes)?;
    let spoiled = display::counted(*spoiled, "connection");
    Some(format!(
        "this client closed {spoiled} because bytes came that no request had asked for; where such bytes come just after \
         a request was sent they are taken for its answer, so that others may have another's"
    ))
}

fn prewarm_failed(prewarm: &PrewarmDoc) -> Option<String> {
    let failure = prewarm.failure.as_ref().filter(|_| prewarm.failed > 0)?;
    let (failed, asked) = (display::whole(prewarm.failed), display::counted(prewarm.asked, "connection"));
    Some(format!(
        "{failed} of {asked} could not be made before the window ({failure}); their slots' first requests made their own"
    ))
}

fn simulated_target(is_simulated: bool) -> Option<String> {
    is_simulated.then(|| "the target is the embedded simulator, not an inference server".to_owned())
}

fn reference_counts_differ(summary: &Summary, reference_ok: Option<u64>) -> Option<String> {
    let (reference, ours) = (reference_ok?, summary.counts.ok);
    (reference != ours).then(|| {
        let (reference, ours) = (display::counted(reference, "request"), display::whole(ours));
        format!("artifact.json counts {reference} as valid by the reference's rules, this document {ours}")
    })
}

/// Whether every prompt was to differ from the first byte on.
fn meant_to_be_unique(spec: &SpecDoc) -> bool {
    spec.prompt.as_ref().is_some_and(|prompt| prompt.unique)
}

fn is_off(sums: &AskedReceived) -> bool {
    let off = u128::from(sums.received.abs_diff(sums.asked));
    sums.asked > 0 && off * 100 > u128::from(sums.asked) * u128::from(LENGTH_TOLERANCE_PERCENT)
}

/// What came, what was asked for, and the ratio.
fn figures(sums: &AskedReceived) -> Option<(String, String, String)> {
    Some((display::whole(sums.received), display::whole(sums.asked), display::percent(sums.ratio()?)))
}
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}
