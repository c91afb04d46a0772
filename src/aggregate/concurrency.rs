//! The span in which the asked concurrency was really held, and the rates over it.
//!
//! A run's first moments fill the slots and its last ones empty them; rates over the whole run mix both in. The steady
//! state reaches from the first instant at which as many requests as asked were in flight to the last one. It may
//! hold short dips, where a slot went from one request to the next: their part is told as a share. In flight means
//! sent and not ended, as in [`crate::metrics::rates`], whose rates over the whole window are not repeated here.

use std::borrow::Borrow;

use crate::metrics::formula;
use crate::metrics::rates::{RunRates, TokenTimeline, Window, generates_nothing};
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::Outcome;
use crate::units::Nanos;

/// The span in which the asked concurrency was held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyState {
    /// The span.
    pub span: Window,
    /// Share of the span with at least as many requests in flight as asked.
    pub held_share: f64,
    /// Rates over the span, without a peak. A request and its prompt tokens count for the part of its life (send start
    /// to end of stream) that lies in the span, output tokens for the part of the way from first to last output, or of
    /// its life when its answer came in one piece.
    /// Counting ends instead would depend on where between two generations of requests the span begins and ends.
    pub rates: RunRates,
}

impl SteadyState {
    /// The steady state of a run; `None` when the asked concurrency was never reached, or only for an instant.
    #[must_use]
    pub fn of(rows: impl RowSource, asked: u32) -> Option<Self> {
        let (span, held) = held_span(rows, asked)?;
        let seconds = span.seconds()?;
        let in_flight = RunRates::of(rows, span, &TokenTimeline::new(Window { end: span.start, ..span }));
        // What the sum of no doubles is, so that it stays what it was.
        let (mut ok, mut attempted) = (-0.0, -0.0);
        for row in rows.measured() {
            let row: &RequestRow = row.borrow();
            let life = life_within(row, span).unwrap_or(0.0);
            attempted += life;
            if formula::counts(row) {
                ok += life;
            }
        }
        let output = tokens(rows, |row| Some(float(row.output_tokens?) * output_within(row, span)?));
        let prompt =
            tokens(rows, |row| Some(float(row.usage.whole_prompt_tokens()?) * life_within(row, span)?));
        Some(Self {
            span,
            held_share: held.as_secs_f64() / seconds,
            rates: RunRates {
                request_rate: Some(ok / seconds),
                attempt_rate: Some(attempted / seconds),
                output_tok_s: output.map(|n| n / seconds),
                total_tok_s: output
                    .or_else(|| generates_nothing(rows).then_some(0.0))
                    .zip(prompt)
                    .map(|(o, p)| (o + p) / seconds),
                peak_output_tok_s: None,
                concurrency_mean: in_flight.concurrency_mean,
                concurrency_max: in_flight.concurrency_max,
            },
        })
    }
}

/// First and last instant with `asked` requests in flight, and how long there were as many in between.
fn held_span(rows: impl RowSource, asked: u32) -> Option<(Window, Nanos)> {
    let mut steps = Vec::new();
    for row in rows.measured() {
        let row: &RequestRow = row.borrow();
        if let (Some(start), Some(end)) = (row.send_start, formula::stream_end(row))
            && start < end
        {
            // At one instant an end comes before a start: the slot is free by then.
            steps.extend([(start, 1_i64), (end, -1)]);
        }
    }
    steps.sort_unstable();
    let asked = i64::from(asked);
    let (mut now, mut since, mut held) = (0_i64, None, Nanos(0));
    let mut span: Option<Window> = None;
    for (at, step) in steps {
        now += step;
        if now >= asked {
            since = since.or(Some(at));
        } else if let Some(start) = since.take() {
            held = Nanos(held.0.saturating_add(at.0.saturating_sub(start.0)));
            span = Some(Window { start: span.map_or(start, |s| s.start), end: at });
        }
    }
    span.map(|span| (span, held))
}

/// Sum over ok and cut requests; `None` when an ok request's tokens are unknown, as in the rates of the whole window.
fn tokens(rows: impl RowSource, of: impl Fn(&RequestRow) -> Option<f64>) -> Option<f64> {
    let known = |row: &RequestRow| match row.outcome {
        Outcome::Ok => Some(of(row)),
        Outcome::Incomplete => Some(of(row).or(Some(0.0))),
        _ => None,
    };
    rows.measured().filter_map(|row| known(row.borrow())).sum()
}

/// Part of the way from first to last output that lies in the span; all or nothing of an instant. An answer in one
/// piece has no such way: its tokens were made during its life.
fn output_within(row: &RequestRow, span: Window) -> Option<f64> {
    row.at
        .first_output
        .zip(row.at.last_output)
        .map_or_else(|| life_within(row, span), |(first, last)| part_within(first, last, span))
}

/// Part of a request's life that lies in the span; `None` for a request that was never sent.
fn life_within(row: &RequestRow, span: Window) -> Option<f64> {
    part_within(row.send_start?, formula::stream_end(row)?, span)
}

fn part_within(start: Nanos, end: Nanos, span: Window) -> Option<f64> {
    if start >= end {
        // An instant belongs to the span that it ends, so that what ends the span counts.
        return Some(f64::from(u8::from(span.start < end && end <= span.end)));
    }
    let inside = end.min(span.end).since(start.max(span.start))?.max(Nanos(0));
    Some(inside.as_secs_f64() / end.since(start)?.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::rows::Rows;
    use crate::metrics::testing::row;
    use crate::record::Phase;

    const S: i64 = Nanos::PER_SECOND;

    /// Output from one second after the start to the end.
    fn request(start_s: i64, end_s: i64, output_tokens: u64) -> RequestRow {
        let mut row = row(0);
        let at = |s: i64| Some(Nanos(s * S));
        row.send_start = at(start_s);
        row.at.first_output = at(start_s + 1);
        row.at.last_output = at(end_s);
        (row.at.terminal, row.at.end) = (at(end_s), at(end_s));
        row.output_tokens = Some(output_tokens);
        row.usage.prompt_tokens = Some(100);
        row
    }

    #[test]
    fn the_steady_state_of_a_hand_worked_run() {
        // Two slots: 0..4 and 5..9, 1..6 and 6..10. Two in flight in 1..4, and in 5..9 without a dip at 6.
        let rows = [request(0, 4, 30), request(1, 6, 40), request(5, 9, 30), request(6, 10, 30)];
        let steady = SteadyState::of(&rows, 2).unwrap();
        assert_eq!(steady.span, Window { start: Nanos(S), end: Nanos(9 * S) });
        assert_eq!(Some(steady.held_share), Some(7.0 / 8.0));
        let rates = steady.rates;
        // Three of four seconds of the first, all of the second and third, three of four of the fourth.
        assert_eq!((rates.request_rate, rates.attempt_rate), (Some(3.5 / 8.0), Some(3.5 / 8.0)));
        // Output: all of the first three, and two of three seconds of the fourth.
        assert_eq!(rates.output_tok_s, Some(120.0 / 8.0));
        assert_eq!(rates.total_tok_s, Some((120.0 + 350.0) / 8.0));
        assert_eq!(rates.concurrency_mean, Some((3.0 + 5.0 + 4.0 + 3.0) / 8.0));
        assert_eq!(rates.concurrency_max, Some(2.0));
        assert_eq!(rates.peak_output_tok_s, None);
    }

    #[test]
    fn an_answer_in_one_piece_counts_for_its_life() {
        let mut whole = request(0, 8, 80);
        (whole.at.first_output, whole.at.last_output) = (None, None);
        let steady = SteadyState::of(&[whole, request(4, 6, 10)], 2).unwrap();
        assert_eq!(steady.span, Window { start: Nanos(4 * S), end: Nanos(6 * S) });
        assert_eq!(steady.rates.output_tok_s, Some((20.0 + 10.0) / 2.0));
    }

    #[test]
    fn a_concurrency_that_was_never_reached_has_no_steady_state() {
        let rows = [request(0, 4, 30), request(4, 6, 30)];
        assert_eq!(SteadyState::of(&rows, 2), None, "an end and a start at one instant do not overlap");
        assert_eq!(SteadyState::of(&Rows::new(), 1), None);
        let mut warmup = request(0, 4, 30);
        warmup.phase = Phase::Warmup;
        assert_eq!(SteadyState::of(&[warmup, request(0, 4, 30)], 2), None);
    }

    #[test]
    fn one_burst_is_steady_from_its_last_start_to_its_first_end() {
        let rows = [request(0, 9, 30), request(1, 8, 30), request(2, 7, 30)];
        let steady = SteadyState::of(&rows, 3).unwrap();
        assert_eq!(steady.span, Window { start: Nanos(2 * S), end: Nanos(7 * S) });
        assert_eq!(Some(steady.held_share), Some(1.0));
        let parts = 5.0 / 9.0 + 5.0 / 7.0 + 1.0;
        assert_eq!(steady.rates.request_rate, Some(parts / 5.0));
    }

    #[test]
    fn the_steady_rate_is_the_one_of_littles_law_wherever_generations_end() {
        // Five slots, each request takes 2 s, eight generations, slots shifted against each other by 0.1 s.
        let rows: Vec<_> = (0..40)
            .map(|i| {
                let mut row = row(i);
                let start = i64::try_from(i % 5).unwrap() * S / 10 + i64::try_from(i / 5).unwrap() * 2 * S;
                (row.send_start, row.at.terminal) = (Some(Nanos(start)), Some(Nanos(start + 2 * S)));
                row.at.end = row.at.terminal;
                row
            })
            .collect();
        let rate = SteadyState::of(&rows, 5).unwrap().rates.request_rate.unwrap();
        assert!((rate - 5.0 / 2.0).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn unknown_tokens_of_an_ok_request_make_the_rate_unknown() {
        let (mut unknown, mut cut) = (request(0, 4, 30), request(0, 4, 30));
        unknown.output_tokens = None;
        assert_eq!(SteadyState::of(&[unknown, request(0, 4, 30)], 2).unwrap().rates.output_tok_s, None);
        (cut.output_tokens, cut.outcome) = (None, Outcome::Incomplete);
        let rates = SteadyState::of(&[cut, request(0, 4, 30)], 2).unwrap().rates;
        assert_eq!(rates.output_tok_s, Some(30.0 / 4.0));
        assert_eq!((rates.request_rate, rates.attempt_rate), (Some(0.25), Some(0.5)));
    }
}
