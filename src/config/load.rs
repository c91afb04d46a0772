//! How many requests, and what makes one start: a slot that is free, or a schedule.

use super::args::RunArgs;
use super::defaults;
use super::resolve::within;
use super::usage::UsageError;
use crate::units::PerSecond;
use crate::units::text::format_duration;

/// How many requests, and how many at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSpec {
    /// Number of measured requests.
    pub requests: u64,
    /// Slots of the closed loop; without a meaning in an open one.
    pub concurrency: u32,
    /// The reference's shared-prefix burst: its size, 0 for none.
    pub burst: u32,
    /// When requests start in an open loop; `None` is a closed loop.
    pub arrivals: Option<Arrivals>,
}

/// When the requests of an open loop start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrivals {
    /// How many a second, on average.
    pub rate: PerSecond,
    /// How they follow each other.
    pub process: ArrivalProcess,
}

/// How the requests of an open loop follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalProcess {
    /// Evenly.
    Constant,
    /// As a Poisson process: independent gaps, exponentially distributed.
    Poisson,
}

pub(super) fn load(args: &RunArgs) -> Result<LoadSpec, UsageError> {
    let requests = args.requests.unwrap_or(defaults::REQUESTS);
    let requests = within("--requests", requests, 1, defaults::MAX_REQUESTS)?;
    let slots = |flag, value: u64, least| {
        let value = within(flag, value, least, u64::from(defaults::MAX_CONCURRENCY))?;
        u32::try_from(value).map_err(|_| UsageError::range(flag, "smaller"))
    };
    let concurrency =
        slots("--concurrency", args.concurrency.unwrap_or(u64::from(defaults::CONCURRENCY)), 1)?;
    let burst = slots("--burst", args.burst.unwrap_or(0), 0)?;
    let arrivals = arrivals(args, requests)?;
    if burst == 0 {
        return Ok(LoadSpec { requests, concurrency, burst, arrivals });
    }
    for (flag, value) in [("--requests", args.requests), ("--concurrency", args.concurrency)] {
        if value.is_some_and(|n| n != u64::from(burst)) {
            return Err(UsageError::clash(flag, "--burst", "a burst is that many requests at one instant"));
        }
    }
    Ok(LoadSpec { requests: u64::from(burst), concurrency: burst, burst, arrivals })
}

/// When requests start, where a rate is given. What would shape or cap the schedule is not built in yet.
fn arrivals(args: &RunArgs, requests: u64) -> Result<Option<Arrivals>, UsageError> {
    const FLAG: &str = "--rate";
    let Some(rate) = args.rate else {
        let reason = "--arrival says how requests follow each other at a rate";
        return if args.arrival.is_some() { Err(UsageError::missing(FLAG, reason)) } else { Ok(None) };
    };
    let (least, most) = (defaults::MIN_RATE, defaults::MAX_RATE);
    if !(least.0..=most.0).contains(&rate.0) {
        return Err(UsageError::range(FLAG, format!("between {} and {}", least.0, most.0)));
    }
    for (flag, is_given, reason) in [
        ("--concurrency", args.concurrency.is_some(), "a cap on the requests in flight is not built in yet"),
        ("--burst", args.burst.is_some_and(|n| n > 0), "a burst within a schedule is not built in yet"),
        (
            "--prewarm",
            args.prewarm,
            "how many connections a schedule needs is for the server's speed to decide",
        ),
    ] {
        if is_given {
            return Err(UsageError::clash(flag, FLAG, reason));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of requests is far below 2^53")]
    let seconds = requests.saturating_sub(1) as f64 / rate.0;
    if seconds > defaults::MAX_TIME_LIMIT.as_secs_f64() {
        let longest = format_duration(defaults::MAX_TIME_LIMIT);
        let reason = format!("is so low that {requests} requests take more than {longest}");
        return Err(UsageError::bad(FLAG, reason));
    }
    Ok(Some(Arrivals { rate, process: args.arrival.unwrap_or(ArrivalProcess::Poisson) }))
}

impl LoadSpec {
    /// Requests at a time, where that was asked for; `None` in an open loop.
    #[must_use]
    pub fn asked_concurrency(&self) -> Option<u32> {
        self.arrivals.is_none().then_some(self.concurrency)
    }
}

impl ArrivalProcess {
    /// The name on the command line and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
        }
    }
}
