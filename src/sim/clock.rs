//! The simulator's own clock: raw kernel readings, nothing scaled, nothing cached.
//!
//! The ledger must be a witness against the measuring side, so it reads CLOCK_MONOTONIC directly and shares no
//! code with the `clock` room. Does not convert between clocks; the ledger's header carries one pair of readings
//! for people who want wall-clock times.

use nix::time::{ClockId, clock_gettime};

use crate::units::Nanos;

/// CLOCK_MONOTONIC now, in nanoseconds. Costs about 30 ns (vDSO, no system call).
pub(crate) fn monotonic() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME now, in nanoseconds since the Unix epoch.
pub(crate) fn realtime() -> Nanos {
    read(ClockId::CLOCK_REALTIME)
}

#[expect(clippy::disallowed_methods, reason = "the simulator's clock is the raw kernel clock")]
#[expect(
    clippy::expect_used,
    reason = "both clocks exist on every kernel; the call fails only for unknown ids"
)]
fn read(id: ClockId) -> Nanos {
    let t = clock_gettime(id).expect("CLOCK_MONOTONIC and CLOCK_REALTIME can always be read");
    Nanos(t.tv_sec() * Nanos::PER_SECOND + t.tv_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_agrees_with_the_standard_librarys_clock() {
        #[expect(clippy::disallowed_methods, reason = "the second clock of the comparison")]
        let outer = std::time::Instant::now();
        let before = monotonic();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let after = monotonic();
        let span = i64::try_from(outer.elapsed().as_nanos()).unwrap();
        let ours = after.since(before).unwrap().0;
        assert!(ours >= 5_000_000, "slept 5 ms, saw {ours} ns");
        assert!(ours <= span, "{ours} ns lie within {span} ns");
    }

    #[test]
    fn realtime_is_later_than_this_files_birth() {
        assert!(realtime().0 > 1_760_000_000 * Nanos::PER_SECOND);
    }
}
