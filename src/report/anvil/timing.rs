//! One row of `request_timings`: the reference's `result_timing`, from our stamps or from an artifact.
//!
//! How our stamps map: time to first output is the earlier of first reasoning and first visible content, never a tool
//! call or a refusal; time to first token is the first visible content; end to end ends at `[DONE]`, else at the end of
//! the body, never at a finish reason. All three begin when connecting began on a fresh connection (the reference opens
//! one per request and counts it in), and at the first byte sent on a kept one. Milliseconds are whole nanoseconds over
//! a million. The derived fields are computed from these milliseconds, in the order that reproduces published digits.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::metrics::row::{CanaryObservation, ControlledOutputObservation, RequestRow};
use crate::units::Nanos;

/// Output tokens are those of the server's usage object.
pub const USAGE: &str = "usage";
/// The server sent no usage: output is counted in content deltas.
pub const CONTENT_CHUNKS: &str = "content_chunks";

/// A row. Fields are in the order of the document's keys. What a row of an older generation lacks is empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Deltas with visible content.
    #[serde(default)]
    pub content_chunks: u64,
    /// Controlled output, when asked for.
    #[serde(default)]
    pub controlled_output: Option<ControlledOutput>,
    /// Output tokens after the first per second of generation.
    pub decode_tok_s: Option<f64>,
    /// End to end.
    pub e2e_ms: f64,
    /// Prompt tokens per second until the first output.
    pub effective_prefill_tok_s: Option<f64>,
    /// End to end minus time to first output.
    pub generation_ms: f64,
    /// The same as `tpot_ms`, under its legacy name.
    pub mean_inter_token_latency_ms: Option<f64>,
    /// The same as `tpot_ms`.
    #[serde(default)]
    pub mean_time_per_output_token_ms: Option<f64>,
    /// Where the output tokens come from: [`USAGE`] or [`CONTENT_CHUNKS`].
    pub output_token_source: Cow<'static, str>,
    /// `usage.completion_tokens`; never a chunk count.
    pub output_tokens: Option<u64>,
    /// The plan's context target.
    pub planned_context_tokens: Option<u64>,
    /// `usage.prompt_tokens` as chat completions mean it, the only endpoint of the reference: the whole prompt.
    pub prompt_tokens: Option<u64>,
    /// Deltas with reasoning.
    #[serde(default)]
    pub reasoning_chunks: u64,
    /// Canary, when asked for.
    #[serde(default)]
    pub request_canary: Option<Canary>,
    /// Position in the plan.
    pub request_index: u64,
    /// First reasoning or visible content; missing in generation 3, where it is the time to first token.
    #[serde(default)]
    pub time_to_first_output_ms: Option<f64>,
    /// Generation over output tokens after the first.
    #[serde(default)]
    pub tpot_ms: Option<f64>,
    /// First visible content.
    pub ttft_ms: f64,
    /// The captured text is not all of it.
    #[serde(default)]
    pub visible_content_truncated: bool,
    /// End to end minus time to first token.
    #[serde(default)]
    pub visible_generation_ms: Option<f64>,
}

/// `request_canary`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// The capture was not truncated.
    pub capture_complete: bool,
    /// Markers of other requests found.
    pub foreign_marker_count: u64,
    /// The marker asked for.
    pub marker: String,
    /// The text begins with it.
    pub marker_at_start: bool,
    /// All markers found.
    pub observed_marker_count: u64,
    /// All of it holds.
    pub passed: bool,
}

/// `controlled_output`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlledOutput {
    /// The capture was not truncated.
    pub capture_complete: bool,
    /// Exactly the words asked for; null when the capture was truncated.
    pub exact_adherence: Option<bool>,
    /// Words that are exactly `code`.
    pub observed_code_words: u64,
    /// Other words.
    pub observed_extra_words: u64,
    /// Exact under `strict`, always under `observe`.
    pub passed: bool,
    /// Whether it had to be exact.
    pub policy: Policy,
    /// Words asked for.
    pub requested_words: u64,
}

/// What controlled output is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Recorded.
    Observe,
    /// Must be exact.
    Strict,
}

/// The fields that follow from others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Derived {
    pub(super) generation_ms: f64,
    pub(super) visible_generation_ms: f64,
    pub(super) effective_prefill_tok_s: Option<f64>,
    pub(super) decode_tok_s: Option<f64>,
    pub(super) tpot_ms: Option<f64>,
}

impl Timing {
    /// The row of a request; `None` where the reference drops it: no visible content, no end, or stamps out of order.
    /// Observations are not filled in.
    #[must_use]
    pub fn of(row: &RequestRow) -> Option<Self> {
        let start = row.connect_start.or(row.send_start)?;
        let ms = |at: Option<Nanos>| at?.since(start).map(Nanos::as_millis_f64);
        let ttft_ms = ms(row.at.first_content)?;
        let first_output_ms = ms(row.at.first_reasoning).map_or(ttft_ms, |reasoning| reasoning.min(ttft_ms));
        let e2e_ms = ms(row.at.terminal.or(row.at.end))?;
        if first_output_ms < 0.0 || e2e_ms < ttft_ms {
            return None;
        }
        let output_tokens = row.usage.completion_tokens;
        let derived =
            Derived::of(first_output_ms, ttft_ms, e2e_ms, row.usage.whole_prompt_tokens(), output_tokens);
        Some(Self {
            content_chunks: row.counters.content_deltas,
            controlled_output: None,
            decode_tok_s: derived.decode_tok_s,
            e2e_ms,
            effective_prefill_tok_s: derived.effective_prefill_tok_s,
            generation_ms: derived.generation_ms,
            mean_inter_token_latency_ms: derived.tpot_ms,
            mean_time_per_output_token_ms: derived.tpot_ms,
            output_token_source: token_source(row).into(),
            output_tokens,
            planned_context_tokens: row.planned_context_tokens,
            prompt_tokens: row.usage.whole_prompt_tokens(),
            reasoning_chunks: row.counters.reasoning_deltas,
            request_canary: None,
            request_index: row.request_index,
            time_to_first_output_ms: Some(first_output_ms),
            tpot_ms: derived.tpot_ms,
            ttft_ms,
            visible_content_truncated: row.visible_content_truncated,
            visible_generation_ms: Some(derived.visible_generation_ms),
        })
    }

    /// With the observations of its answer.
    #[must_use]
    pub fn observed(self, row: &RequestRow) -> Self {
        Self {
            request_canary: row.canary.as_ref().map(Canary::of),
            controlled_output: row.controlled_output.as_ref().map(ControlledOutput::of),
            ..self
        }
    }

    /// What follows from the row's own milliseconds and tokens.
    pub(super) fn derived(&self) -> Derived {
        let first_output_ms = self.time_to_first_output_ms.unwrap_or(self.ttft_ms);
        Derived::of(first_output_ms, self.ttft_ms, self.e2e_ms, self.prompt_tokens, self.output_tokens)
    }

    /// Output tokens as sums count them: by usage, else the content chunks.
    pub(super) fn counted_tokens(&self) -> u64 {
        self.output_tokens.unwrap_or(self.content_chunks)
    }
}

impl Derived {
    /// The order of operations is the reference's; any other differs in the last digit of about a fifth of all rows.
    fn of(first_output_ms: f64, ttft_ms: f64, e2e_ms: f64, prompt: Option<u64>, output: Option<u64>) -> Self {
        let generation_ms = e2e_ms - first_output_ms;
        let later_tokens =
            output.and_then(|n| n.checked_sub(1)).filter(|n| *n > 0 && generation_ms > 0.0).map(float);
        Self {
            generation_ms,
            visible_generation_ms: e2e_ms - ttft_ms,
            effective_prefill_tok_s: prompt
                .filter(|_| first_output_ms > 0.0)
                .map(|n| float(n) / (first_output_ms / 1000.0)),
            decode_tok_s: later_tokens.map(|n| n / (generation_ms / 1000.0)),
            tpot_ms: later_tokens.map(|n| generation_ms / n),
        }
    }
}

impl Canary {
    pub(super) fn of(seen: &CanaryObservation) -> Self {
        Self {
            capture_complete: seen.capture_complete,
            foreign_marker_count: seen.foreign_marker_count,
            marker: seen.marker.clone(),
            marker_at_start: seen.marker_at_start,
            observed_marker_count: seen.observed_marker_count,
            passed: seen.passed,
        }
    }
}

impl ControlledOutput {
    pub(super) fn of(seen: &ControlledOutputObservation) -> Self {
        Self {
            capture_complete: seen.capture_complete,
            exact_adherence: seen.exact_adherence,
            observed_code_words: seen.observed_code_words,
            observed_extra_words: seen.observed_extra_words,
            passed: seen.passed,
            policy: Policy::of(seen.strict),
            requested_words: seen.requested_words,
        }
    }
}

impl Policy {
    pub(super) const fn of(strict: bool) -> Self {
        if strict { Self::Strict } else { Self::Observe }
    }
}

/// The reference knows the final usage object and the count of chunks, nothing between.
pub(super) const fn token_source(row: &RequestRow) -> &'static str {
    if row.usage.completion_tokens.is_some() { USAGE } else { CONTENT_CHUNKS }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^53, and Python rounds the same way"
)]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::row;

    #[test]
    fn a_hand_worked_row() {
        // Sent at 1 ms, reasoning 20, content 30, [DONE] 131; 100 prompt and 11 output tokens.
        let timing = Timing::of(&row(5)).unwrap();
        assert_eq!(timing.time_to_first_output_ms, Some(19.0));
        assert_eq!((timing.ttft_ms, timing.e2e_ms), (29.0, 130.0));
        assert_eq!((timing.generation_ms, timing.visible_generation_ms), (111.0, Some(101.0)));
        assert_eq!(timing.effective_prefill_tok_s, Some(100.0 / 0.019));
        assert_eq!(timing.decode_tok_s, Some(10.0 / 0.111));
        assert_eq!(timing.tpot_ms, Some(11.1));
        assert_eq!(timing.mean_inter_token_latency_ms, timing.tpot_ms);
        assert_eq!(timing.mean_time_per_output_token_ms, timing.tpot_ms);
        assert_eq!((timing.content_chunks, timing.reasoning_chunks), (4, 2));
        assert_eq!((timing.prompt_tokens, timing.output_tokens), (Some(100), Some(11)));
        assert_eq!(timing.output_token_source, USAGE);
        assert_eq!((timing.request_index, timing.planned_context_tokens), (5, Some(512)));
        assert_eq!((timing.request_canary, timing.controlled_output), (None, None));
    }

    #[test]
    fn a_prompt_is_that_of_chat_however_another_endpoint_counts_it() {
        let mut apart = row(5);
        (apart.usage.prompt_tokens, apart.usage.cache_counted_apart) = (Some(60), true);
        assert_eq!(Timing::of(&apart), Timing::of(&row(5)));
    }

    #[test]
    fn only_reasoning_and_visible_content_are_first_output() {
        let mut row = row(0);
        row.at.first_reasoning = None;
        row.at.first_tool_call = Some(Nanos::from_millis(15));
        row.at.first_output = row.at.first_tool_call;
        let timing = Timing::of(&row).unwrap();
        assert_eq!(
            timing.time_to_first_output_ms,
            Some(29.0),
            "equal to the time to first token: one stamp per event"
        );
        // Reasoning after content does not move the first output.
        row.at.first_reasoning = Some(Nanos::from_millis(40));
        assert_eq!(Timing::of(&row).unwrap().time_to_first_output_ms, Some(29.0));
    }

    #[test]
    fn the_end_is_done_or_the_end_of_the_body() {
        let mut row = row(0);
        row.at.terminal = None;
        assert_eq!(Timing::of(&row).map(|timing| timing.e2e_ms), Some(131.0));
        row.at.end = None;
        assert_eq!(Timing::of(&row), None);
    }

    #[test]
    fn rows_out_of_order_and_rows_without_content_are_dropped() {
        let changes: [fn(&mut RequestRow); 5] = [
            |row| row.at.first_content = None,
            |row| row.at.terminal = Some(Nanos::from_millis(29)),
            |row| row.at.first_reasoning = Some(Nanos(0)),
            |row| row.send_start = Some(Nanos::from_millis(31)),
            |row| row.send_start = None,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut row = row(0);
            change(&mut row);
            assert_eq!(Timing::of(&row), None, "{i}");
        }
    }

    #[test]
    fn null_rules_of_the_derived_fields() {
        for (output, has_rate) in [(None, false), (Some(0), false), (Some(1), false), (Some(2), true)] {
            let derived = Derived::of(10.0, 10.0, 20.0, None, output);
            assert_eq!(
                (derived.decode_tok_s.is_some(), derived.tpot_ms.is_some()),
                (has_rate, has_rate),
                "{output:?}"
            );
            assert_eq!(derived.effective_prefill_tok_s, None);
        }
        // Nothing was generated after the first output, or it came at once.
        assert_eq!(Derived::of(20.0, 20.0, 20.0, Some(5), Some(9)).decode_tok_s, None);
        assert_eq!(Derived::of(0.0, 0.0, 20.0, Some(5), Some(9)).effective_prefill_tok_s, None);
        assert_eq!(Derived::of(10.0, 10.0, 20.0, Some(0), Some(9)).effective_prefill_tok_s, Some(0.0));
    }
}
