//! What is asked of the simulator for one row: how many streams, how many events of each, and when.
//!
//! The phases of the streams are spread over a gap, so that sends do not come in bursts: events that queue behind each
//! other at the sender would measure the queue. Few streams send several answers one after the other, so that the time to
//! first output and the send lag have more than a handful of samples; many streams send one answer, because all of them
//! ending at once would be a burst of requests. Pure: nothing is started here.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::config::args::{CoreList, RunArgs, SourceList};
use crate::config::calibrate_args::{CalibrateSpec, DURATION};
use crate::config::resolve::resolve;
use crate::config::spec::{RunSpec, SimSpec};
use crate::config::usage::UsageError;
use crate::sim::options::{MAX_MODEL_LEN, MODEL_ID};
use crate::units::text::format_duration;
use crate::units::{Nanos, PerSecond};

/// Requests that a row has at least, where its streams are few: enough for a median of the time to first output.
const REQUESTS_WANTED: u64 = 200;
/// Answers of a stream, one after the other, at most: each begins with a pause of its own.
const MAX_ROUNDS: u64 = 20;
/// Events of an answer at least, where it is one of several: its first and its last are special.
const EVENTS_PER_ROUND: u64 = 10;

/// Events that a row has at least, so that its 99th percentile is not one of the largest ten.
const EVENTS_WANTED: f64 = 1_000.0;
/// How long a row is measured at most: five rows are done in less than two minutes.
const MAX_MEASURED: Nanos = Nanos::from_secs(20);
/// How long a rate is tried: a sender that is a hundredth too slow is 20 ms late at the end.
pub(super) const TRIED: Nanos = Nanos::from_secs(2);

/// From a request to its first event, beside the phase: for one stream, and for every further one. All requests start
/// at one instant, and client and simulator together take some 40 µs for each.
const FIRST_EVENT: Nanos = Nanos::from_millis(20);
const FIRST_EVENT_PER_STREAM: Nanos = Nanos(60_000);

/// Streams over one local address: beyond, the kernel's search for a port takes a millisecond.
const STREAMS_PER_ADDRESS: u32 = 10_000;
/// Local addresses that are used at most: the last number of 127.0.0.x.
const MAX_ADDRESSES: u32 = 250;

/// Prompts are short: only answers are measured.
const PROMPT_TOKENS: u64 = 32;

/// One row's load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Load {
    /// Streams at a time.
    pub(super) streams: u32,
    /// Events per second over all of them.
    pub(super) rate: PerSecond,
    /// For how long.
    pub(super) measured: Nanos,
}

impl Load {
    /// A row at this rate, measured for as long as was asked or as its events need.
    pub(super) fn to_measure(streams: u32, rate: PerSecond, asked: Option<Nanos>) -> Self {
        let needed = seconds(EVENTS_WANTED / rate.0);
        Self { streams, rate, measured: asked.unwrap_or_else(|| needed.clamp(DURATION, MAX_MEASURED)) }
    }

    /// The specification of the run that drives it, with its files and its ledger.
    ///
    /// # Errors
    /// When the cores cannot be used, or a path cannot be passed on to the simulator.
    pub(super) fn run_spec(
        &self,
        calibration: &CalibrateSpec,
        dir: &Path,
        ledger: &Path,
    ) -> Result<RunSpec, UsageError> {
        let args = RunArgs {
            sim: Some(None),
            model: Some(MODEL_ID.to_owned()),
            requests: Some(self.rounds() * u64::from(self.streams)),
            concurrency: Some(u64::from(self.streams)),
            prewarm: true,
            source_ip: self.sources().map(SourceList),
            ctx_tokens: Some(PROMPT_TOKENS),
            max_tokens: Some(self.events_per_answer()),
            max_model_len: Some(MAX_MODEL_LEN),
            cores: (!calibration.cores.is_empty()).then(|| CoreList(calibration.cores.clone())),
            ..RunArgs::default()
        };
        let mut spec = resolve(&args, &|_| None)?;
        spec.target.sim = Some(self.simulator(ledger)?);
        // Whether the directory may be used was decided before the first row.
        spec.output = crate::config::spec::OutputSpec {
            dir: Some(dir.to_owned()),
            overwrite: true,
            ..calibration.output.clone()
        };
        Ok(spec)
    }

    fn simulator(&self, ledger: &Path) -> Result<SimSpec, UsageError> {
        let ledger = ledger.to_str().ok_or_else(|| UsageError::bad("--out", "must be UTF-8"))?;
        let gap = seconds(f64::from(self.streams) / self.rate.0);
        let first = Nanos(FIRST_EVENT.0.saturating_add(FIRST_EVENT_PER_STREAM.0 * i64::from(self.streams)));
        let last = Nanos(first.0.saturating_add(gap.0));
        let [first, last, gap] = [first, last, gap].map(format_duration);
        let ttft = format!("uniform:{first},{last}");
        let settings = [("ttft", ttft.as_str()), ("itl", &gap), ("ledger", ledger)];
        Ok(SimSpec { settings: settings.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec() })
    }

    /// Events of each stream.
    fn events_per_stream(&self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "float to integer saturates, and such a load is refused as too large"
        )]
        let events = (self.rate.0 / f64::from(self.streams) * self.measured.as_secs_f64()).round() as u64;
        events
    }

    /// Answers of each stream, one after the other.
    fn rounds(&self) -> u64 {
        let wanted = (REQUESTS_WANTED / u64::from(self.streams)).min(MAX_ROUNDS);
        wanted.min(self.events_per_stream() / EVENTS_PER_ROUND).max(1)
    }

    /// Two at least: one event has no gap.
    fn events_per_answer(&self) -> u64 {
        (self.events_per_stream() / self.rounds()).max(2)
    }

    /// Local addresses, where one has too few ports.
    fn sources(&self) -> Option<Vec<IpAddr>> {
        let count = self.streams.div_ceil(STREAMS_PER_ADDRESS).min(MAX_ADDRESSES);
        let address = |n: u32| IpAddr::V4(Ipv4Addr::new(127, 0, 0, u8::try_from(n).unwrap_or(1)));
        (count > 1).then(|| (1..=count).map(address).collect())
    }
}

/// A span of so many seconds, at least a nanosecond.
fn seconds(seconds: f64) -> Nanos {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "float to integer saturates, and a span that long is refused"
    )]
    let nanos = (seconds * 1e9).round() as i64;
    Nanos(nanos.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(streams: u32, rate: f64) -> Load {
        Load::to_measure(streams, PerSecond(rate), None)
    }

    #[test]
    fn every_row_has_the_events_that_its_percentiles_need() {
        for (streams, rate, seconds, rounds, events) in [
            (1, 50.0, 20, 20, 50),
            (10, 500.0, 6, 20, 15),
            (100, 5_000.0, 6, 2, 150),
            (1_000, 50_000.0, 6, 1, 300),
            (10_000, 100_000.0, 6, 1, 60),
            (10_000, 1_000.0, 6, 1, 2),
            (1, 1.0, 20, 2, 10),
        ] {
            let load = load(streams, rate);
            assert_eq!(load.measured, Nanos::from_secs(seconds), "{load:?}");
            assert_eq!((load.rounds(), load.events_per_answer()), (rounds, events), "{load:?}");
        }
        let asked = Load::to_measure(20, PerSecond(1_000.0), Some(Nanos::from_secs(2)));
        assert_eq!(
            (asked.measured, asked.rounds(), asked.events_per_answer()),
            (Nanos::from_secs(2), 10, 10)
        );
    }

    #[test]
    fn phases_are_spread_over_one_gap_after_all_requests_have_started() {
        let settings = load(1_000, 50_000.0).simulator(Path::new("a/ledger")).unwrap().settings;
        let settings: Vec<(&str, &str)> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(settings, [("ttft", "uniform:80ms,100ms"), ("itl", "20ms"), ("ledger", "a/ledger")]);
    }

    #[test]
    fn many_streams_come_from_several_addresses() {
        assert_eq!(load(10_000, 1e5).sources(), None);
        let sources = load(10_001, 1e5).sources().unwrap();
        assert_eq!(sources, ["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap()));
        assert_eq!(load(1_000_000, 1e5).sources().unwrap().len(), 100);
    }
}
