//! The formulas: one pure function from a request's row to its value, per metric of the catalog.
//!
//! A millisecond value is the nanosecond difference as a double, divided by a million, and nothing else, so that
//! anybody who reads the stamps computes the same double. A difference that is negative stays negative: an inversion
//! must be seen. The reference's own formulas are in `report::anvil`, on purpose apart.

use crate::metrics::catalog::MetricId;
use crate::metrics::row::{RequestRow, StampSource};
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
        MetricId::TimeToFirstOutputWire => {
            ms(at.first_output.filter(|_| row.stamp_source == StampSource::Kernel), row.sent_wire)
        }
        MetricId::Ttft => ms(at.first_content, row.send_start),
        MetricId::TtftFromDue => ms(at.first_content, Some(row.due)),
        MetricId::TimeToFirstUsageToken => ms(at.first_usage_token, row.send_start),
        MetricId::TimeToFirstUsageTokenFromDue => ms(at.first_usage_token, Some(row.due)),
        MetricId::TimeToLastOutput => ms(at.last_output, row.send_start),
        MetricId::TimeToLastOutputFromDue => ms(at.last_output, Some(row.due)),
        MetricId::E2e => ms(stream_end(row), row.send_start),
        MetricId::E2eFromDue => ms(stream_end(row), Some(row.due)),
        MetricId::Generation => ms(stream_end(row), at.first_output),
        MetricId::VisibleGeneration => ms(stream_end(row), at.first_content),
        MetricId::Tpot => tpot_ms(row),
        MetricId::DecodeTokS => per(1000.0, tpot_ms(row)?),
        MetricId::EffectivePrefillTokS => {
            per(count(row.usage.whole_prompt_tokens())?, seconds(at.first_output, row.send_start)?)
        }
        MetricId::OutputTokSPerUser => {
            per(count(row.output_tokens)?, seconds(stream_end(row), row.send_start)?)
        }
        MetricId::PromptTokens => count(row.usage.whole_prompt_tokens()),
        MetricId::OutputTokens => count(row.output_tokens),
        MetricId::ReasoningTokens => count(row.usage.reasoning_tokens),
        MetricId::CachedTokens => count(row.usage.cached_tokens),
        MetricId::PrefixCacheHit => {
            let (cached, prompt) = row.usage.cached_of_prompt()?;
            per(count(Some(cached))?, count(Some(prompt))?)
        }
        MetricId::SendLag => ms(row.send_start, Some(row.due)),
        MetricId::RequestWrite => ms(row.send_end, row.send_start),
        MetricId::Connect => row.connect.map(Nanos::as_millis_f64),
        MetricId::InterChunkLatency
        | MetricId::InterTokenLatency
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

/// Tokens of the first output chunk by the server's own count; `None` where they are not known. A first chunk that
/// brought output and no token is no count but one that lags behind its text.
#[must_use]
pub fn measured_first_chunk_tokens(row: &RequestRow) -> Option<u64> {
    row.first_chunk_tokens.map(u64::from).filter(|tokens| *tokens > 0)
}

fn tpot_ms(row: &RequestRow) -> Option<f64> {
    if row.several_choices || row.one_output_read || row.counters.output_chunks < 2 {
        return None;
    }
    let first_tokens = measured_first_chunk_tokens(row).unwrap_or(ASSUMED_FIRST_CHUNK_TOKENS);
    let later_tokens = row.output_tokens?.checked_sub(first_tokens)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::catalog::{CATALOG, Scope};
    use crate::metrics::testing::row;

    /// Every metric of request scope on the hand-made row of [`row`].
    const WORKED: [(MetricId, Option<f64>); 29] = [
        (MetricId::TimeToFirstByte, Some(9.0)),
        (MetricId::TimeToFirstByteFromDue, Some(10.0)),
        (MetricId::TimeToFirstEvent, Some(10.0)),
        (MetricId::TimeToFirstEventFromDue, Some(11.0)),
        (MetricId::TimeToFirstOutput, Some(19.0)),
        (MetricId::TimeToFirstOutputFromDue, Some(20.0)),
        (MetricId::TimeToFirstOutputWire, None),
        (MetricId::Ttft, Some(29.0)),
        (MetricId::TtftFromDue, Some(30.0)),
        (MetricId::TimeToFirstUsageToken, None),
        (MetricId::TimeToFirstUsageTokenFromDue, None),
        (MetricId::TimeToLastOutput, Some(129.0)),
        (MetricId::TimeToLastOutputFromDue, Some(130.0)),
        (MetricId::E2e, Some(130.0)),
        (MetricId::E2eFromDue, Some(131.0)),
        (MetricId::Generation, Some(111.0)),
        (MetricId::VisibleGeneration, Some(101.0)),
        (MetricId::Tpot, Some(11.0)),
        (MetricId::DecodeTokS, Some(1000.0 / 11.0)),
        (MetricId::EffectivePrefillTokS, Some(100.0 / 0.019)),
        (MetricId::OutputTokSPerUser, Some(11.0 / 0.13)),
        (MetricId::PromptTokens, Some(100.0)),
        (MetricId::OutputTokens, Some(11.0)),
        (MetricId::ReasoningTokens, Some(4.0)),
        (MetricId::CachedTokens, Some(40.0)),
        (MetricId::PrefixCacheHit, Some(0.4)),
        (MetricId::SendLag, Some(1.0)),
        (MetricId::RequestWrite, Some(1.0)),
        (MetricId::Connect, None),
    ];

    #[test]
    fn hand_worked_values() {
        for (id, want) in WORKED {
            assert_eq!(value(id, &row(0)), want, "{id:?}");
        }
        let covered = CATALOG.iter().filter(|m| m.scope == Scope::Request).count();
        assert_eq!(covered, WORKED.len(), "every metric of request scope is worked by hand");
    }

    #[test]
    fn a_nanosecond_is_kept() {
        let mut row = row(0);
        row.send_start = Some(Nanos(1_000_001));
        assert_eq!(value(MetricId::TimeToFirstByte, &row), Some(8_999_999.0 / 1e6));
    }

    #[test]
    fn an_inversion_is_seen_and_not_clamped() {
        let mut row = row(0);
        row.send_start = Some(Nanos::from_millis(12));
        assert_eq!(value(MetricId::TimeToFirstByte, &row), Some(-2.0));
        // A speed over a negative span means nothing.
        row.send_start = Some(Nanos::from_millis(20));
        assert_eq!(value(MetricId::EffectivePrefillTokS, &row), None);
    }

    #[test]
    fn a_fresh_connection_has_its_span() {
        let mut row = row(0);
        row.connect = Some(Nanos(250_000));
        assert_eq!(value(MetricId::Connect, &row), Some(0.25));
    }

    #[test]
    fn end_to_end_falls_back_to_the_end_of_the_body() {
        let mut row = row(0);
        row.at.terminal = None;
        assert_eq!(value(MetricId::E2e, &row), Some(131.0));
        assert_eq!(value(MetricId::Generation, &row), Some(112.0));
    }

    #[test]
    fn a_reasoning_only_answer_has_no_ttft() {
        let mut row = row(0);
        row.at.first_content = None;
        assert_eq!(value(MetricId::Ttft, &row), None);
        assert_eq!(value(MetricId::VisibleGeneration, &row), None);
        assert_eq!(value(MetricId::TimeToFirstOutput, &row), Some(19.0));
    }

    #[test]
    fn tpot_needs_two_tokens_two_chunks_two_reads_and_one_choice() {
        let changes: [fn(&mut RequestRow); 7] = [
            |row| row.output_tokens = Some(1),
            |row| row.output_tokens = Some(0),
            |row| row.output_tokens = None,
            |row| row.counters.output_chunks = 1,
            |row| row.one_output_read = true,
            |row| row.several_choices = true,
            |row| row.at.last_output = None,
        ];
        for change in changes {
            let mut row = row(0);
            change(&mut row);
            assert_eq!(value(MetricId::Tpot, &row), None);
            assert_eq!(value(MetricId::DecodeTokS, &row), None);
        }
        let mut row = row(0);
        row.output_tokens = Some(2);
        row.counters.output_chunks = 2;
        assert_eq!(value(MetricId::Tpot, &row), Some(110.0));
    }

    /// Report 5 of the collected ones: 8 tokens in the first chunk, then 8 chunks of one token every 20 ms.
    #[test]
    fn tpot_takes_the_tokens_of_the_first_chunk_where_they_were_counted() {
        let mut row = row(0);
        (row.output_tokens, row.counters.output_chunks) = (Some(16), 9);
        (row.at.first_output, row.at.last_output) =
            (Some(Nanos::from_millis(500)), Some(Nanos::from_millis(660)));
        assert_eq!(value(MetricId::Tpot, &row), Some(160.0 / 15.0));
        row.first_chunk_tokens = Some(8);
        assert_eq!(value(MetricId::Tpot, &row), Some(20.0));
        row.first_chunk_tokens = Some(0);
        assert_eq!(value(MetricId::Tpot, &row), Some(160.0 / 15.0), "a count that lags is none");
        for all_or_more in [16, 17] {
            row.first_chunk_tokens = Some(all_or_more);
            assert_eq!(value(MetricId::Tpot, &row), None);
        }
    }

    #[test]
    fn the_first_token_by_usage_may_come_before_the_first_text() {
        let mut row = row(0);
        row.at.first_usage_token = Some(Nanos::from_millis(15));
        assert_eq!(value(MetricId::TimeToFirstUsageToken, &row), Some(14.0));
        assert_eq!(value(MetricId::TimeToFirstUsageTokenFromDue, &row), Some(15.0));
        assert_eq!(value(MetricId::Ttft, &row), Some(29.0), "which stays the time to text");
    }

    #[test]
    fn a_span_on_the_wire_needs_two_kernel_stamps() {
        let mut row = row(0);
        row.sent_wire = Some(Nanos(1_250_000));
        assert_eq!(value(MetricId::TimeToFirstOutputWire, &row), Some(18.75));
        row.stamp_source = StampSource::User;
        assert_eq!(value(MetricId::TimeToFirstOutputWire, &row), None);
    }

    #[test]
    fn missing_counts_are_missing_and_zero_counts_are_zero() {
        let mut row = row(0);
        row.usage.prompt_tokens = Some(0);
        row.usage.cached_tokens = Some(0);
        assert_eq!(value(MetricId::PromptTokens, &row), Some(0.0));
        assert_eq!(value(MetricId::CachedTokens, &row), Some(0.0));
        assert_eq!(value(MetricId::EffectivePrefillTokS, &row), Some(0.0));
        assert_eq!(value(MetricId::PrefixCacheHit, &row), None);
        row.usage = crate::record::Usage::default();
        for id in [
            MetricId::PromptTokens,
            MetricId::ReasoningTokens,
            MetricId::CachedTokens,
            MetricId::PrefixCacheHit,
            MetricId::EffectivePrefillTokS,
        ] {
            assert_eq!(value(id, &row), None, "{id:?}");
        }
    }

    #[test]
    fn a_cache_that_is_counted_apart_is_part_of_the_prompt() {
        let mut apart = row(0);
        let usage = &mut apart.usage;
        (usage.prompt_tokens, usage.cache_creation_tokens, usage.cache_counted_apart) =
            (Some(50), Some(10), true);
        for metric in CATALOG {
            assert_eq!(value(metric.id, &apart), value(metric.id, &row(0)), "{}", metric.name);
        }
    }

    #[test]
    fn failed_cut_and_warmup_requests_have_no_value() {
        for outcome in Outcome::ALL.into_iter().filter(|o| *o != Outcome::Ok) {
            let mut row = row(0);
            row.outcome = outcome;
            assert!(CATALOG.iter().all(|m| value(m.id, &row).is_none()), "{outcome:?}");
        }
        let mut row = row(0);
        row.phase = Phase::Warmup;
        assert!(CATALOG.iter().all(|m| value(m.id, &row).is_none()));
        row.phase = Phase::Drain;
        assert_eq!(value(MetricId::Ttft, &row), Some(29.0));
    }

    #[test]
    fn gap_and_run_metrics_have_no_value_per_request() {
        let others = CATALOG.iter().filter(|m| m.scope != Scope::Request);
        for metric in others {
            assert_eq!(value(metric.id, &row(0)), None, "{}", metric.name);
        }
    }
}
