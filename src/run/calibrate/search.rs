//! The highest rate that client and simulator hold, in a few short tries. Pure: what a try is, the caller says.

use crate::units::PerSecond;

/// Events per second of one stream at most: what a fast engine gives a user, and the rate that the promises are for.
const PER_STREAM: f64 = 50.0;
/// Where the search begins at the latest: the rate of ten thousand streams that the promises are for. What a core sends at
/// its limit, about twice that, comes in bursts and says more of the sender than of the stamps.
const START_CAP: f64 = 100_000.0;
/// Below this a rate is not searched for but taken: it costs a core some 2%, and where even that does not hold,
/// something else than the rate is the matter, which the row's verdict tells.
pub(super) const FLOOR: PerSecond = PerSecond(5_000.0);
/// Between a rate that held and twice it, which did not, this much more is tried.
const BETWEEN: f64 = 1.5;

/// The highest rate for which `holds` says yes: the start, or what is reached by halving, or half as much more than that.
/// Where none above [`FLOOR`] holds it is the floor, or the start where that is lower.
///
/// # Errors
/// Those of `holds`.
pub(super) fn highest<E>(
    streams: u32,
    mut holds: impl FnMut(PerSecond) -> Result<bool, E>,
) -> Result<PerSecond, E> {
    let start = (PER_STREAM * f64::from(streams)).min(START_CAP);
    let mut rate = start;
    while rate > FLOOR.0 {
        if holds(PerSecond(rate))? {
            let between = PerSecond(rate * BETWEEN);
            return Ok(if rate < start && holds(between)? { between } else { PerSecond(rate) });
        }
        rate /= 2.0;
    }
    Ok(PerSecond(start.min(FLOOR.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found where the machine holds up to `limit`, and what was tried on the way.
    fn found(streams: u32, limit: f64) -> (f64, Vec<f64>) {
        let mut tried = Vec::new();
        let rate = highest(streams, |rate| {
            tried.push(rate.0);
            Ok::<_, ()>(rate.0 <= limit)
        });
        (rate.unwrap().0, tried)
    }

    #[test]
    fn what_holds_at_once_is_taken() {
        assert_eq!(found(1, 1e6), (50.0, vec![]));
        assert_eq!(found(100, 0.0), (5_000.0, vec![]));
        assert_eq!(found(1_000, 1e6), (50_000.0, vec![50_000.0]));
    }

    #[test]
    fn the_search_halves_and_then_looks_between() {
        assert_eq!(found(10_000, 80_000.0), (75_000.0, vec![1e5, 5e4, 7.5e4]));
        assert_eq!(found(10_000, 60_000.0), (50_000.0, vec![1e5, 5e4, 7.5e4]));
    }

    #[test]
    fn a_machine_that_holds_nothing_ends_the_search() {
        let (rate, tried) = found(10_000, 0.0);
        assert_eq!((rate, tried), (5_000.0, vec![1e5, 5e4, 2.5e4, 1.25e4, 6.25e3]));
        assert_eq!(highest(1_000, |_| Err("stop")), Err("stop"));
    }
}
