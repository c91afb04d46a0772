//! How far the product's stamps are from what the server really did: the binary, as a process, against the simulator's
//! ledger and against the log of the replay server, which shares no line with the product.
//!
//! Medians are asserted; tails are printed, because a shared machine makes them. Errors hold for this machine and for
//! loopback, where no wire lies between the send call and the receive stamp.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "accuracy/labels.rs"]
mod labels;
#[path = "accuracy/product.rs"]
mod product;
#[path = "accuracy/replay.rs"]
mod replay;
#[path = "accuracy/transmit.rs"]
mod transmit;

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hammerscale::audit::{Bounded, Budget, ClientRequest, Deviation, Mismatches, Truth, pair};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use product::run_to_its_end;

/// These tests judge instants on a machine with few cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The promise for kernel stamps, of the median over all events.
const STAMP_MEDIAN_US: f64 = 5.0;

/// Gaps are differences of such stamps, and what all stamps have in common, most of their error, cancels.
const GAP_MEDIAN_US: f64 = 2.0;

/// How far the client's axis and the ledger's may disagree: about 0.1 µs, more when the machine was busy elsewhere while
/// an anchor was taken.
const AXIS_TOLERANCE_US: f64 = 2.0;

/// Of a thousand stamps, how many may lie outside the send calls of their events. None does as a rule; a kernel that is
/// overloaded may put the receiving side off until after the call.
const STAMPS_OUTSIDE_PER_MILLE: usize = 10;

/// Descriptors beside those of the streams, generously: the product says by itself what it needs exactly.
const OTHER_DESCRIPTORS: u64 = 200;

/// A run against the simulator.
struct Load {
    streams: usize,
    /// Output events of a stream.
    events: usize,
    /// Until the first of them; spread over several gaps, so that sends do not come in bursts. Events of a burst are
    /// queued behind each other, and these tests are about stamps.
    first: &'static str,
    gap: &'static str,
}

#[test]
fn stamps_are_what_the_simulators_ledger_says() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let load = Load { streams: 1_000, events: 120, first: "uniform:100ms,600ms", gap: "50ms" };
    let budget = load.run(|_| ());
    assert_stamps(&budget);
    let exact = budget.kernel.signed.count;
    assert!(exact >= 100_000, "only {exact} events end their reads");
    // The last output of a stream is sent right before the stream's end, and mostly read with it.
    assert!(budget.censored.count > 0, "no event shares its read with another");
    assert_median("time to first output", &budget.first_output, STAMP_MEDIAN_US);
    let delivery = budget.delivery.signed.percentiles_us.unwrap().min;
    assert!(delivery >= -AXIS_TOLERANCE_US, "a request that arrived {delivery} µs after it was sent");
}

/// A client that gets no processor for a while finds many events in one read. It has one stamp for all of them, and must
/// not make gaps from it.
#[test]
fn a_client_that_is_held_up_reports_no_gap_that_was_not_there() {
    const STOPS: u32 = 4;
    const STOPPED: Duration = Duration::from_millis(60);
    const RUNNING: Duration = Duration::from_millis(200);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let load = Load { streams: 50, events: 400, first: "uniform:50ms,100ms", gap: "5ms" };
    let budget = load.run(|product| {
        for _ in 0..STOPS {
            std::thread::sleep(RUNNING);
            kill(product, Signal::SIGSTOP).unwrap();
            std::thread::sleep(STOPPED);
            kill(product, Signal::SIGCONT).unwrap();
        }
    });
    assert_stamps(&budget);
    // Every stop hides eleven of a stream's events behind a twelfth. Half of that is asked for: a stop may fall before
    // the first event or after the last.
    let hidden = budget.censored.count;
    assert!(hidden >= load.streams * 11 * 2, "only {hidden} events were hidden by the stops");
}

#[test]
fn stamps_are_what_an_independent_server_logged() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let budget = replay::LOAD.run(|_| ());
    replay::judge(&budget);
}

impl Load {
    /// Runs the product under this load, pairs everything it wrote down with the ledger, and takes the differences.
    fn run(&self, meanwhile: impl FnOnce(Pid)) -> Budget {
        self.assert_descriptors();
        let Self { streams, events, first, gap } = self;
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("ledger");
        let flags = [
            &format!("--sim=ttft={first};itl={gap};tokens={events};ledger={}", path.display()),
            &format!("--requests={streams}"),
            &format!("--concurrency={streams}"),
            &format!("--max-tokens={events}"),
        ];
        let run = run_to_its_end(scratch.path(), &flags.map(String::as_str), meanwhile);
        let truth = Truth::read(&path).unwrap();
        assert!(truth.is_complete, "the simulator did not end in order");
        let client: Vec<ClientRequest<'_>> = run.requests().collect();
        let pairing = pair(&client, &truth, run.zero());
        assert_eq!(pairing.mismatches, Mismatches::default());
        assert_eq!((pairing.requests.len(), pairing.chunks()), (*streams, streams * events));
        let budget = Budget::of(&pairing);
        say(&format!("{streams} streams, a gap of {gap}, against the ledger, µs"));
        say_budget(&budget);
        transmit::judge(&pairing);
        assert_eq!(
            budget.kernel.signed.count + budget.censored.count,
            streams * events,
            "every event is judged"
        );
        budget
    }

    /// # Panics
    /// When this machine does not let a process have as many descriptors as there are streams.
    fn assert_descriptors(&self) {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let (streams, needed) = (self.streams, self.streams as u64 + OTHER_DESCRIPTORS);
        assert!(
            hard >= needed,
            "{streams} streams need {needed} descriptors, and the hard limit is {hard}: raise it (ulimit -Hn)"
        );
    }
}

/// What holds for every run, however busy the client was.
fn assert_stamps(budget: &Budget) {
    assert_eq!(budget.unstamped, 0, "a read came without a kernel stamp");
    assert_median("kernel stamp", &budget.kernel, STAMP_MEDIAN_US);
    assert_median("gap", &budget.gaps.error, GAP_MEDIAN_US);
    let earliest = budget.kernel.signed.percentiles_us.unwrap().min;
    assert!(earliest >= -AXIS_TOLERANCE_US, "a stamp {earliest} µs after its event was sent");
    let Bounded { count, outside, .. } = budget.stamped;
    assert!(outside * 1_000 <= count * STAMPS_OUTSIDE_PER_MILLE, "{:?}", budget.stamped);
    assert!(budget.censored.worst.as_micros_f64() <= AXIS_TOLERANCE_US, "{:?}", budget.censored);
    assert_eq!(budget.gaps.false_gaps, 0, "a gap was reported that was not sent");
}

fn assert_median(what: &str, errors: &Deviation, limit_us: f64) {
    let median = errors.magnitude.median_us().unwrap();
    assert!(median <= limit_us, "{what}: median error {median} µs, promised {limit_us} µs");
}

fn say_budget(budget: &Budget) {
    let Budget { stamped, censored, gaps, .. } = budget;
    say_spread("kernel stamp", &budget.kernel);
    say_spread("user stamp", &budget.user);
    say_spread("time to first output", &budget.first_output);
    say_spread("last output", &budget.last_output);
    say_spread("end of the stream", &budget.end);
    say_spread("gap", &gaps.error);
    say_spread("send start to arrival", &budget.delivery);
    say_spread("the send calls", &Deviation { signed: budget.send_call, magnitude: budget.send_call });
    say(&format!("  {} kernel stamps, {} outside their send calls", stamped.count, stamped.outside));
    say(&format!("  {} events share their reads, {} outside their bounds", censored.count, censored.outside));
    say(&format!("  {} false gaps, {} of them false zeros", gaps.false_gaps, gaps.false_zero_gaps));
}

fn say_spread(what: &str, deviation: &Deviation) {
    let count = deviation.signed.count;
    let (Some(mean), Some(p)) = (deviation.signed.mean_us, deviation.magnitude.percentiles_us) else {
        return say(&format!("  {what:<22} none"));
    };
    let of_magnitude = [("p50", p.p50), ("p99", p.p99), ("p99.9", p.p99_9), ("max", p.max)];
    let of_magnitude = of_magnitude.map(|(name, value)| format!("  {name} {value:>8.2}")).concat();
    say(&format!("  {what:<22} n {count:<6}  mean {mean:>8.2}  |e|{of_magnitude}"));
}

/// Straight to standard error: what a passing test prints is otherwise held back, and these figures are for the log.
pub(crate) fn say(line: &str) {
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "{line}").unwrap();
}
