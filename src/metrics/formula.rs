//! The formulas: one pure function from a request's row to its value, per metric of the catalog.
//!
//! A millisecond value is the nanosecond difference as a double, divided by a million, and nothing else, so that
//! anybody who reads the stamps computes the same double. A difference that is negative stays negative: an inversion
//! must be seen. The reference's own formulas are in `report::anvil`, on purpose apart.

use crate::metrics::catalog::MetricId;
use crate::metrics::row::RequestRow;
use crate::record::{Outcome, Phase};
use crate::units::Nanos;

/// Tokens of the first chunk where nothing tells them: the usual server sends one token per chunk.
pub const ASSUMED_FIRST_CHUNK_TOKENS: u64 = 1;

/// The value of `id` for one request; `None` when the request has none: it is not in the [population](counts), its
/// stamps or counts are missing, or the metric's `excluded_when` holds. Metrics of gap and of run scope have no value
/// per request.
#[must_use]
pub fn value(id: MetricId, row: &RequestRow) -> Option<f64> {
    if !counts(row) {
        return None;
    }
    let at = &row.at;
    match id {
        MetricId::TimeToFirstByte => ms(at.first_byte, row.send_start),
        MetricId::TimeToFirstByteFromDue => ms(at.first_byte, Some(row.due)),
        MetricId::TimeToFirstEvent => ms(at.first_event, row.send_start),
        MetricId::TimeToFirstEventFromDue => ms(at.first_event, Some(row.due)),
        MetricId::TimeToFirstOutput => ms(at.first_output, row.send_start),
        MetricId::TimeToFirstOutputFromDue => ms(at.first_output, Some(row.due)),
        MetricId::Ttft => ms(at.first_content, row.send_start),
        MetricId::TtftFromDue => ms(at.first_content, Some(row.due)),
        MetricId::TimeToLastOutput => ms(at.last_output, row.send_start),
        MetricId::TimeToLastOutputFromDue => ms(at.last_output, Some(row.due)),
        MetricId::E2e => ms(stream_end(row), row.send_start),
        MetricId::E2eFromDue => ms(stream_end(row), Some(row.due)),
        MetricId::Generation => ms(stream_end(row), at.first_output),
        MetricId::VisibleGeneration => ms(stream_end(row), at.first_content),
        MetricId::Tpot => tpot_ms(row),
        MetricId::DecodeTokS => per(1000.0, tpot_ms(row)?),
        MetricId::EffectivePrefillTokS => {
            per(count(row.usage.prompt_tokens)?, seconds(at.first_output, row.send_start)?)
        }
        MetricId::OutputTokSPerUser => {
            per(count(row.output_tokens)?, seconds(stream_end(row), row.send_start)?)
        }
        MetricId::PromptTokens => count(row.usage.prompt_tokens),
        MetricId::OutputTokens => count(row.output_tokens),
        MetricId::ReasoningTokens => count(row.usage.reasoning_tokens),
        MetricId::CachedTokens => count(row.usage.cached_tokens),
        MetricId::PrefixCacheHit => per(count(row.usage.cached_tokens)?, count(row.usage.prompt_tokens)?),
        MetricId::SendLag => ms(row.send_start, Some(row.due)),
        MetricId::RequestWrite => ms(row.send_end, row.send_start),
        MetricId::Connect => row.connect.map(Nanos::as_millis_f64),
        MetricId::InterChunkLatency
        | MetricId::RequestRate
        | MetricId::AttemptRate
        | MetricId::OutputTokS
        | MetricId::TotalTokS
        | MetricId::PeakOutputTokS
        | MetricId::ConcurrencyMean
        | MetricId::ConcurrencyMax => None,
    }
}

/// Whether a request is in the population of the distributions: `ok`, and not warm-up.
#[must_use]
pub fn counts(row: &RequestRow) -> bool {
    row.outcome == Outcome::Ok && row.phase != Phase::Warmup
}

/// End of stream: the terminal where one was read, else the end of the body.
#[must_use]
pub fn stream_end(row: &RequestRow) -> Option<Nanos> {
    row.at.terminal.or(row.at.end)
}

fn tpot_ms(row: &RequestRow) -> Option<f64> {
    if row.several_choices || row.one_output_read || row.counters.output_chunks < 2 {
        return None;
    }
    let later_tokens = row.output_tokens?.checked_sub(ASSUMED_FIRST_CHUNK_TOKENS)?;
    if later_tokens == 0 {
        return None;
    }
    Some(ms(row.at.last_output, row.at.first_output)? / count(Some(later_tokens))?)
}

fn ms(later: Option<Nanos>, earlier: Option<Nanos>) -> Option<f64> {
    Some(later?.since(earlier?)?.as_millis_f64())
}

fn seconds(later: Option<Nanos>, earlier: Option<Nanos>) -> Option<f64> {
    Some(later?.since(earlier?)?.as_secs_f64())
}

/// A quotient over something that must be positive to make sense.
fn per(amount: f64, over: f64) -> Option<f64> {
    (over > 0.0).then(|| amount / over)
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
fn count(n: Option<u64>) -> Option<f64> {
    n.map(|n| n as f64)
}
