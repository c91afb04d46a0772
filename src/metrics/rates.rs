//! Metrics of run scope: what happened per second of the window, and how many requests were in flight.
//!
//! Rates divide by the measured time and by nothing else. Percentiles and single requests are not here.

use std::borrow::Borrow;

use crate::metrics::catalog::MetricId;
use crate::metrics::formula;
use crate::metrics::gaps::Chunk;
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::Outcome;
use crate::units::Nanos;

/// The measured part of a run on its axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First measured due.
    pub start: Nanos,
    /// The end of the measured time: the last request's end where the number of requests is fixed.
    pub end: Nanos,
}

/// The numbers of a run; `None` where nothing is known, never 0 in its place.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunRates {
    /// Ok requests per second.
    pub request_rate: Option<f64>,
    /// Requests of any outcome per second.
    pub attempt_rate: Option<f64>,
    /// Output tokens per second.
    pub output_tok_s: Option<f64>,
    /// Prompt and output tokens per second; prompt tokens where nothing is generated.
    pub total_tok_s: Option<f64>,
    /// Output tokens of the best second.
    pub peak_output_tok_s: Option<f64>,
    /// Requests in flight, averaged over time.
    pub concurrency_mean: Option<f64>,
    /// Most requests in flight.
    pub concurrency_max: Option<f64>,
}

/// Output tokens along the window, for its best second.
#[derive(Debug, Clone)]
pub struct TokenTimeline {
    window: Window,
    /// Tokens of each [`STEP`](Self::STEP).
    steps: Vec<f64>,
    any: bool,
}

impl Window {
    /// Its length; `None` when it is empty or turned around.
    #[must_use]
    pub fn seconds(self) -> Option<f64> {
        let span = self.end.since(self.start)?;
        (span.0 > 0).then(|| span.as_secs_f64())
    }
}

impl RunRates {
    /// The rates of a window over all its rows (warm-up rows are skipped). The peak comes from the chunks, because rows
    /// do not have them.
    #[must_use]
    pub fn of(rows: impl RowSource, window: Window, timeline: &TokenTimeline) -> Self {
        let Some(seconds) = window.seconds() else { return Self::default() };
        let (mut ok, mut attempted) = (0, 0);
        let (mut output, mut prompt) = (Some(0), Some(0));
        for row in rows.measured() {
            let row: &RequestRow = row.borrow();
            attempted += 1;
            ok += u64::from(formula::counts(row));
            add_tokens(&mut output, row, row.output_tokens);
            add_tokens(&mut prompt, row, row.usage.whole_prompt_tokens());
        }
        if attempted == 0 {
            return Self::default();
        }
        let per_second = |n: u64| float(n) / seconds;
        let (mean, max) = concurrency(rows, window);
        Self {
            request_rate: Some(per_second(ok)),
            attempt_rate: Some(per_second(attempted)),
            output_tok_s: output.map(per_second),
            total_tok_s: output
                .or_else(|| generates_nothing(rows).then_some(0))
                .zip(prompt)
                .map(|(o, p)| per_second(o.saturating_add(p))),
            peak_output_tok_s: timeline.peak(),
            concurrency_mean: Some(mean / seconds),
            concurrency_max: Some(float(max)),
        }
    }

    /// The number of one metric of run scope; `None` for metrics of other scopes.
    #[must_use]
    pub const fn get(&self, id: MetricId) -> Option<f64> {
        match id {
            MetricId::RequestRate => self.request_rate,
            MetricId::AttemptRate => self.attempt_rate,
            MetricId::OutputTokS => self.output_tok_s,
            MetricId::TotalTokS => self.total_tok_s,
            MetricId::PeakOutputTokS => self.peak_output_tok_s,
            MetricId::ConcurrencyMean => self.concurrency_mean,
            MetricId::ConcurrencyMax => self.concurrency_max,
            _ => None,
        }
    }
}

impl TokenTimeline {
    /// Where the best second may begin: at every tenth of a second. Were it at whole seconds alone, the best of a run of
    /// two seconds could be below the run's mean.
    const STEP: Nanos = Nanos::from_millis(100);
    const STEPS_PER_SECOND: usize = 10;
    /// Longest window that has a peak: a week, 48 MB. A longer one would only cost memory.
    pub const MAX_STEPS: usize = 7 * 86_400 * Self::STEPS_PER_SECOND;

    /// An empty timeline of a window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let span = window.end.since(window.start).and_then(|span| u64::try_from(span.0).ok()).unwrap_or(0);
        let steps = usize::try_from(span.div_ceil(Self::STEP.0.unsigned_abs())).ok();
        let steps = steps.filter(|steps| *steps <= Self::MAX_STEPS).unwrap_or(0);
        Self { window, steps: vec![0.0; steps], any: false }
    }

    /// Adds one request's output chunks in order of arrival. Its tokens are shared out evenly between the chunks, and
    /// a chunk's tokens evenly over the gap before it; those of the first chunk fall where it arrived. Where the server
    /// counted the tokens of every chunk, each chunk has its own, and what the server counted beyond them (an end that
    /// came in no chunk) falls where the last one arrived.
    pub fn add_request(&mut self, chunks: &[Chunk], output_tokens: Option<u64>) {
        let (Some(tokens), Some(first), Some(last)) = (output_tokens, chunks.first(), chunks.last()) else {
            return;
        };
        self.any = true;
        let measured = chunks.iter().try_fold(0_u64, |sum, c| Some(sum.saturating_add(u64::from(c.tokens?))));
        let each = float(tokens) / float(count(chunks.iter()));
        let own = |chunk: &Chunk| chunk.tokens.filter(|_| measured.is_some()).map_or(each, f64::from);
        self.spread(first.at, first.at, own(first));
        for (earlier, later) in chunks.iter().zip(chunks.iter().skip(1)) {
            self.spread(earlier.at, later.at, own(later));
        }
        if let Some(beyond) = measured.and_then(|sum| tokens.checked_sub(sum)) {
            self.spread(last.at, last.at, float(beyond));
        }
    }

    /// Tokens of the best second; `None` when no tokens were added or the window is shorter than a second. The part of a
    /// step at its end belongs to no second.
    #[must_use]
    pub fn peak(&self) -> Option<f64> {
        let span = self.window.end.since(self.window.start).filter(|_| self.any)?;
        let whole = usize::try_from(span.0 / Self::STEP.0).unwrap_or(0);
        let seconds = self.steps.get(..whole).unwrap_or_default().windows(Self::STEPS_PER_SECOND);
        seconds.map(|steps| steps.iter().sum()).reduce(f64::max)
    }

    fn spread(&mut self, from: Nanos, to: Nanos, tokens: f64) {
        let zero = self.window.start.0;
        let (from, to) = (from.0.saturating_sub(zero), to.0.saturating_sub(zero));
        let step = |at: i64| usize::try_from(at.div_euclid(Self::STEP.0)).ok();
        if to <= from {
            if let Some(slot) = step(to).and_then(|s| self.steps.get_mut(s)) {
                *slot += tokens;
            }
            return;
        }
        let length = Nanos(to.saturating_sub(from)).as_secs_f64();
        let first = step(from.max(0)).unwrap_or(0);
        let mut slot_start = from.max(0).div_euclid(Self::STEP.0) * Self::STEP.0;
        for slot in self.steps.iter_mut().skip(first) {
            if slot_start >= to {
                break;
            }
            let slot_end = slot_start + Self::STEP.0;
            let inside = Nanos(to.min(slot_end) - from.max(slot_start)).as_secs_f64();
            *slot += tokens * inside / length;
            slot_start = slot_end;
        }
    }
}

/// Whether no measured request asked for output or got any: then an unknown number of output tokens is none.
pub fn generates_nothing(rows: impl RowSource) -> bool {
    rows.measured().all(|row| {
        let row: &RequestRow = row.borrow();
        row.requested_max_tokens.is_none() && row.output_tokens.is_none()
    })
}

/// Adds the tokens of an ok or of a cut request; `None` when those of an ok request are unknown. A cut request counts
/// with what is known of it.
fn add_tokens(sum: &mut Option<u64>, row: &RequestRow, tokens: Option<u64>) {
    let more = match row.outcome {
        Outcome::Ok => tokens,
        Outcome::Incomplete => tokens.or(Some(0)),
        _ => return,
    };
    *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
}

/// Request-seconds in flight within the window, and the most requests at one instant.
fn concurrency(rows: impl RowSource, window: Window) -> (f64, u64) {
    let mut busy = 0_i128;
    let mut steps = Vec::new();
    for row in rows.measured() {
        let row: &RequestRow = row.borrow();
        let (Some(start), Some(end)) = (row.send_start, formula::stream_end(row)) else { continue };
        let (start, end) = (start.max(window.start), end.min(window.end));
        if start < end {
            busy += i128::from(end.0) - i128::from(start.0);
            // At one instant an end comes before a start: the slot is free by then.
            steps.extend([(start, 1_i64), (end, -1)]);
        }
    }
    steps.sort_unstable();
    let mut now = 0_i64;
    let max = steps.iter().fold(0, |max, (_, step)| {
        now += step;
        max.max(now)
    });
    (seconds(busy), u64::try_from(max).unwrap_or(0))
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    items.fold(0, |n, _| n + 1)
}

#[expect(clippy::cast_precision_loss, reason = "rounded to a double once, at the end")]
fn seconds(ns: i128) -> f64 {
    ns as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::row::TokenSource;
    use crate::metrics::testing::row;
    use crate::record::Phase;

    const SECOND: i64 = Nanos::PER_SECOND;

    fn window(seconds: i64) -> Window {
        Window { start: Nanos(0), end: Nanos(seconds * SECOND) }
    }

    fn request(start_s: i64, end_s: i64, outcome: Outcome, tokens: Option<u64>) -> RequestRow {
        let mut row = row(0);
        row.outcome = outcome;
        row.send_start = Some(Nanos(start_s * SECOND));
        // What the connection waits for after the terminal is no part of the request.
        (row.at.terminal, row.at.end) = (Some(Nanos(end_s * SECOND)), Some(Nanos((end_s + 1) * SECOND)));
        row.output_tokens = tokens;
        row.output_token_source = TokenSource::Usage;
        row.usage.prompt_tokens = tokens.map(|n| 10 * n);
        row
    }

    fn of(rows: &[RequestRow], seconds: i64) -> RunRates {
        RunRates::of(rows, window(seconds), &TokenTimeline::new(window(seconds)))
    }

    #[test]
    fn rates_of_a_hand_worked_run() {
        let mut warmup = request(0, 4, Outcome::Ok, Some(1000));
        warmup.phase = Phase::Warmup;
        let rows = [
            request(0, 2, Outcome::Ok, Some(8)),
            request(0, 3, Outcome::HttpError, None),
            request(2, 4, Outcome::Ok, Some(12)),
            request(3, 4, Outcome::Incomplete, Some(4)),
            warmup,
        ];
        let rates = of(&rows, 4);
        assert_eq!(rates.request_rate, Some(0.5));
        assert_eq!(rates.attempt_rate, Some(1.0));
        assert_eq!(rates.output_tok_s, Some(6.0));
        assert_eq!(rates.total_tok_s, Some(66.0));
        // 2 + 3 + 2 + 1 request-seconds in 4 seconds; the third starts at the instant the first ends.
        assert_eq!(rates.concurrency_mean, Some(2.0));
        assert_eq!(rates.concurrency_max, Some(2.0));
        assert_eq!(rates.peak_output_tok_s, None);
    }

    #[test]
    fn unknown_tokens_of_an_ok_request_make_the_rate_unknown() {
        let rows = [request(0, 2, Outcome::Ok, Some(8)), request(0, 2, Outcome::Ok, None)];
        let rates = of(&rows, 2);
        assert_eq!((rates.output_tok_s, rates.total_tok_s), (None, None));
        assert_eq!(rates.request_rate, Some(1.0));
        // A cut request without a count takes nothing away from what is known.
        let rows = [request(0, 2, Outcome::Ok, Some(8)), request(0, 2, Outcome::Incomplete, None)];
        assert_eq!(of(&rows, 2).output_tok_s, Some(4.0));
    }

    #[test]
    fn prompts_alone_have_a_rate_where_nothing_is_generated() {
        let mut embedded = request(0, 2, Outcome::Ok, None);
        assert_eq!(of(&[embedded.clone()], 2).total_tok_s, None, "output was asked for");
        (embedded.requested_max_tokens, embedded.usage.prompt_tokens) = (None, Some(50));
        let rates = of(&[embedded.clone(), embedded.clone()], 2);
        assert_eq!((rates.output_tok_s, rates.total_tok_s), (None, Some(50.0)));
        embedded.usage.prompt_tokens = None;
        assert_eq!(of(&[embedded], 2).total_tok_s, None);
    }

    #[test]
    fn nothing_measured_has_no_rates() {
        assert_eq!(of(&[], 4), RunRates::default());
        assert_eq!(of(&[request(0, 2, Outcome::Ok, Some(8))], 0), RunRates::default());
        let turned = Window { start: Nanos(5), end: Nanos(4) };
        assert_eq!(turned.seconds(), None);
    }

    #[test]
    fn all_failed_is_a_rate_of_zero_and_not_unknown() {
        let rates = of(&[request(0, 1, Outcome::ConnectRefused, None)], 2);
        assert_eq!((rates.request_rate, rates.attempt_rate), (Some(0.0), Some(0.5)));
        assert_eq!(rates.output_tok_s, Some(0.0));
    }

    fn chunk(at: i64) -> Chunk {
        Chunk { at: Nanos(at), not_before: Nanos(at), ends_read: true, choice: 0, tokens: None }
    }

    /// Tokens by whole seconds.
    fn seconds(timeline: &TokenTimeline) -> Vec<f64> {
        let sums =
            timeline.steps.chunks(TokenTimeline::STEPS_PER_SECOND).map(|steps| steps.iter().sum::<f64>());
        sums.map(|sum| (sum * 1e9).round() / 1e9).collect()
    }

    #[test]
    fn the_best_second_begins_at_any_tenth() {
        let mut timeline = TokenTimeline::new(window(2));
        // Ten tokens at 0.65 s, ten at 1.55 s: no whole second holds both.
        for at in [650, 1_550] {
            timeline.add_request(&[chunk(at * SECOND / 1_000)], Some(10));
        }
        assert_eq!((seconds(&timeline), timeline.peak()), (vec![10.0, 10.0], Some(20.0)));
        let mut short = TokenTimeline::new(Window { start: Nanos(0), end: Nanos(SECOND - 1) });
        short.add_request(&[chunk(SECOND / 2)], Some(10));
        assert_eq!(short.peak(), None);
    }

    #[test]
    fn tokens_are_spread_over_the_gap_before_their_chunk() {
        let mut timeline = TokenTimeline::new(window(4));
        // 3 tokens: one at 0.5 s, one over 0.5..2.5 (a quarter, a half, a quarter), one over 2.5..2.75.
        timeline.add_request(&[chunk(SECOND / 2), chunk(5 * SECOND / 2), chunk(11 * SECOND / 4)], Some(3));
        assert_eq!(seconds(&timeline), [1.25, 0.5, 1.25, 0.0]);
        // From 0.5 on: the first token, and a second's worth of the next.
        assert!((timeline.peak().unwrap() - 1.5).abs() < 1e-9);
        // Another request decides: from 1.8 on, its tokens, 0.7 s of the second token, and all of the third.
        timeline.add_request(&[chunk(2 * SECOND), chunk(2 * SECOND)], Some(10));
        assert!((timeline.peak().unwrap() - 11.35).abs() < 1e-9);
    }

    #[test]
    fn counted_tokens_fall_with_their_own_chunk() {
        let mut timeline = TokenTimeline::new(window(3));
        let counted = |at, tokens| Chunk { tokens: Some(tokens), ..chunk(at) };
        // 7 at once, 1 over the next second, none with the last, and 2 that came in no chunk.
        let chunks = [counted(SECOND / 2, 7), counted(3 * SECOND / 2, 1), counted(5 * SECOND / 2, 0)];
        timeline.add_request(&chunks, Some(10));
        assert_eq!(seconds(&timeline), [7.5, 0.5, 2.0]);
        // One chunk without a count: nothing is known about the others either.
        let mut timeline = TokenTimeline::new(window(3));
        timeline.add_request(&[chunks[0], chunk(SECOND)], Some(10));
        assert_eq!(seconds(&timeline), [10.0, 0.0, 0.0]);
    }

    #[test]
    fn tokens_outside_the_window_count_for_their_part_inside() {
        let mut timeline = TokenTimeline::new(Window { start: Nanos(SECOND), end: Nanos(3 * SECOND) });
        // The second chunk's token: 0.5..1.5, half of it before the window. The third: 1.5..4.5, a third of it after.
        timeline.add_request(&[chunk(SECOND / 2), chunk(3 * SECOND / 2), chunk(9 * SECOND / 2)], Some(3));
        assert_eq!(seconds(&timeline), [0.666_666_667, 0.333_333_333]);
        let mut empty = TokenTimeline::new(window(0));
        empty.add_request(&[chunk(0)], Some(3));
        assert_eq!(empty.peak(), None);
        assert_eq!(TokenTimeline::new(window(2)).peak(), None);
        assert_eq!(TokenTimeline::new(window(i64::MAX / SECOND)).steps.len(), 0);
    }
}
