//! The order statistics of counted latenesses.

use crate::aggregate::summary::Spread;
use crate::metrics::Percentiles;
use crate::metrics::quantile::Quantile;
use crate::record::Lateness;

/// All of them together, in microseconds; `None` without any.
#[must_use]
pub fn spread<'a>(of: impl Iterator<Item = &'a Lateness>) -> Option<Spread> {
    let mut all = Lateness::default();
    of.for_each(|one| all.merge(one));
    let count = usize::try_from(all.count()).ok()?;
    let nth = |index: usize| Some(all.nth(index as u64)?.as_micros_f64());
    let at = |q: Quantile| nth(q.index(count)?);
    Some(Spread {
        count,
        mean: all.mean_ns()? / 1e3,
        percentiles: Percentiles {
            min: nth(0)?,
            p1: at(Quantile::P1)?,
            p5: at(Quantile::P5)?,
            p25: at(Quantile::P25)?,
            p50: at(Quantile::P50)?,
            p75: at(Quantile::P75)?,
            p90: at(Quantile::P90)?,
            p95: at(Quantile::P95)?,
            p99: at(Quantile::P99)?,
            p99_9: at(Quantile::P99_9)?,
            max: nth(count.checked_sub(1)?)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    #[test]
    fn workers_are_told_together_and_as_their_spans_are() {
        let spans: Vec<Nanos> = (0..2_000).map(|i| Nanos((i * 97) % 2_003 * 1_000)).collect();
        let mut workers = [Lateness::default(), Lateness::default()];
        for (i, span) in spans.iter().enumerate() {
            workers[i % 2].add(*span);
        }
        let (got, want) = (spread(workers.iter()).unwrap(), Spread::of_micros(spans).unwrap());
        assert_eq!(got.count, 2_000);
        assert!((got.mean - want.mean).abs() < 1e-9);
        let of = |s: &Spread| {
            let p = s.percentiles;
            [p.min, p.p1, p.p5, p.p25, p.p50, p.p75, p.p90, p.p95, p.p99, p.p99_9, p.max]
        };
        for (got, want) in of(&got).into_iter().zip(of(&want)) {
            assert!((got - want).abs() <= want * 0.004, "{got} {want}");
        }
        assert_eq!((got.percentiles.min, got.percentiles.max), (want.percentiles.min, want.percentiles.max));
    }

    #[test]
    fn no_wait_has_no_lateness() {
        assert_eq!(spread([Lateness::default()].iter()), None);
        assert_eq!(spread([].iter()), None);
    }
}
