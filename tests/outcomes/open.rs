//! The open loop: requests start when they are due, whatever the server does; what waits shows in the latency from due
//! and nowhere is a request left out; connections are a pool.
//!
//! The server notes when requests come, on the clock that the run's stamps count on too. Machines stop processes for
//! tens of milliseconds, so instants are judged by their medians, or an attempt is made again.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::answers::good;
use crate::run::{Run, run_open, within_three_tries};
use crate::server::{Peer, Request, Server, Then};

const MS: i64 = 1_000_000;

fn ns(row: &Value, key: &str) -> i64 {
    row[key].as_i64().unwrap_or_else(|| panic!("{key} of {row}"))
}

fn column(run: &Run, of: impl Fn(&Value) -> i64) -> Vec<i64> {
    run.rows.iter().map(of).collect()
}

fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn dues(run: &Run) -> Vec<i64> {
    let dues = column(run, |row| ns(row, "due_ns"));
    dues.iter().map(|due| due - dues[0]).collect()
}

/// Whatever a busy machine does: all are there, in the order of the schedule, and none was sent before it was due.
fn check_open(run: &Run, requests: usize) -> Result<(), String> {
    let failed = run.rows.iter().filter(|row| row["outcome"] != "ok").count();
    if (run.rows.len(), failed) != (requests, 0) {
        return Err(format!("{failed} of {} failed", run.rows.len()));
    }
    let due = dues(run);
    let early = run.rows.iter().filter(|row| ns(row, "send_start_ns") < ns(row, "due_ns") - 1_000).count();
    if !due.is_sorted() || early > 0 {
        return Err(format!("{early} were sent before they were due, or dues are out of order: {due:?}"));
    }
    let document = &run.document;
    assert_eq!((&document["plan"]["loop"], &document["counts"]["dropped"]), (&"open".into(), &0.into()));
    assert_eq!(document["spec"]["load"]["concurrency"], Value::Null);
    assert_eq!(document["window"]["steady_state"], Value::Null);
    assert_eq!(document["instrument"]["slot_wait_share"], Value::Null);
    assert_eq!(document["instrument"]["send_lag_us"]["count"], requests);
    Ok(())
}

fn slow_server(ms: u64) -> Server {
    let answer = good();
    Server::start(move |peer: &mut Peer, _: &Request| {
        peer.pause(ms);
        peer.say(&answer);
        Then::Keep
    })
}

#[test]
fn constant_dues_are_even_and_the_server_sees_them_so() {
    within_three_tries(|| {
        let server = slow_server(0);
        let run = run_open(&server.base_url(), 100, "200/s", &["--arrival", "constant"]);
        check_open(&run, 100)?;
        // On the axis of the counter a due is good to the noise of its anchors.
        for (i, due) in dues(&run).iter().enumerate() {
            let want = i64::try_from(i).unwrap() * 5 * MS;
            if (due - want).abs() > 5_000 {
                return Err(format!("request {i} was due at {due} ns instead of {want}"));
            }
        }
        assert_eq!(run.document["plan"]["arrivals"], "constant");
        let waits = run.document["instrument"]["timer_lateness_us"]["count"].as_u64().unwrap();
        if !(50..=100).contains(&waits) {
            return Err(format!("{waits} waits for 100 requests that are 5 ms apart"));
        }
        assert_eq!(run.document["spec"]["load"]["rate"], 200.0);
        let mut came: Vec<Instant> = server.requests().iter().map(|request| request.at).collect();
        came.sort_unstable();
        let gaps = came.windows(2).map(|pair| i64::try_from((pair[1] - pair[0]).as_nanos()).unwrap());
        let gap = median(gaps.collect());
        if (gap - 5 * MS).abs() > MS / 2 {
            return Err(format!("requests came every {gap} ns"));
        }
        Ok(())
    });
}

#[test]
fn a_seed_gives_the_same_poisson_schedule_again_for_any_number_of_workers() {
    let server = slow_server(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(2).to_string();
    let schedule = |flags: &[&str]| {
        let run = run_open(&server.base_url(), 150, "1000", flags);
        check_open(&run, 150).unwrap();
        assert_eq!(run.document["plan"]["arrivals"], "poisson");
        dues(&run)
    };
    let one = schedule(&["--seed", "7", "--workers", "1"]);
    let again = schedule(&["--seed", "7", "--workers", &workers]);
    let other = schedule(&["--seed", "8", "--workers", "1"]);
    let apart = |a: &[i64], b: &[i64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).max().unwrap();
    assert!(apart(&one, &again) < 20_000, "{}", apart(&one, &again));
    assert!(apart(&one, &other) > MS);
    // Exponential gaps: their deviation is their mean.
    let gaps: Vec<f64> = one.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    assert!((0.7..1.3).contains(&(deviation / mean)), "{deviation} {mean}");
}

/// No coordinated omission: a server that stands still for half a second shows in every request that was due meanwhile,
/// as the time that was left of it.
#[test]
fn a_stall_of_the_server_is_in_every_request_that_was_due_in_it() {
    const STALL: Duration = Duration::from_millis(500);
    within_three_tries(|| {
        let answer = good();
        let first_at: Arc<std::sync::OnceLock<Instant>> = Arc::default();
        let server = Server::start(move |peer: &mut Peer, _: &Request| {
            // From 200 ms after the first request on, nobody is answered for half a second.
            let begins = *first_at.get_or_init(Instant::now) + Duration::from_millis(200);
            let (now, ends) = (Instant::now(), begins + STALL);
            if now >= begins && now < ends {
                peer.pause(u64::try_from((ends - now).as_millis()).unwrap());
            }
            peer.say(&answer);
            Then::Keep
        });
        let run = run_open(&server.base_url(), 100, "100", &["--arrival", "constant"]);
        check_open(&run, 100)?;
        for (i, row) in run.rows.iter().enumerate() {
            let due_ms = i64::try_from(i).unwrap() * 10;
            let left_ms = if (200..700).contains(&due_ms) { 700 - due_ms } else { 0 };
            let from_due_ms = (ns(row, "terminal_ns") - ns(row, "due_ns")) / MS;
            // The stall begins with the server's own clock; a request at its edges may be on either side.
            let is_edge = (due_ms - 200).abs() <= 10;
            if !is_edge && (from_due_ms - left_ms).abs() > 30 {
                return Err(format!(
                    "request {i}: {from_due_ms} ms from due, {left_ms} ms of the stall were left"
                ));
            }
            if ns(row, "send_start_ns") - ns(row, "due_ns") > 20 * MS {
                return Err(format!("request {i} waited in the client"));
            }
        }
        // 51 requests of 100 waited, from 500 ms down to nothing.
        let e2e = &run.document["metrics"]["e2e_from_due_ms"];
        let (p50, max) = (e2e["p50"].as_f64().unwrap(), e2e["max"].as_f64().unwrap());
        if p50 > 60.0 || !(450.0..560.0).contains(&max) {
            return Err(format!("p50 {p50}, max {max}"));
        }
        Ok(())
    });
}

#[test]
fn a_slow_server_gets_as_many_connections_as_the_schedule_needs_and_the_last_used_one_goes_first() {
    within_three_tries(|| {
        // 100 a second for 100 ms each: about ten in flight.
        let server = slow_server(100);
        let run = run_open(&server.base_url(), 60, "100", &["--arrival", "constant"]);
        check_open(&run, 60)?;
        let places: BTreeSet<i64> = column(&run, |row| ns(row, "slot")).into_iter().collect();
        let used: BTreeSet<i64> = column(&run, |row| ns(row, "connection_id")).into_iter().collect();
        if !(10..=16).contains(&used.len()) || server.connections() != used.len() {
            return Err(format!("{} connections, {} at the server", used.len(), server.connections()));
        }
        assert_eq!(
            places,
            (0..i64::try_from(places.len()).unwrap()).collect(),
            "places are numbered without gaps"
        );
        let at_most = run.document["rates"]["concurrency_max"].as_f64().unwrap();
        if at_most > 16.0 {
            return Err(format!("{at_most} in flight"));
        }
        Ok(())
    });
    within_three_tries(|| {
        let server = slow_server(0);
        let run = run_open(&server.base_url(), 40, "50", &["--arrival", "constant"]);
        check_open(&run, 40)?;
        // The first kept connection is watched for 10 ms; then one is enough, and it is always the same.
        let later: BTreeSet<i64> = run.rows[2..].iter().map(|row| ns(row, "connection_id")).collect();
        if later.len() > 2 {
            return Err(format!("connections {later:?}"));
        }
        Ok(())
    });
}

#[test]
fn fresh_connections_are_made_after_the_due_and_their_time_is_told_apart() {
    let server = slow_server(0);
    let run = run_open(&server.base_url(), 30, "100", &["--connection", "fresh", "--arrival", "constant"]);
    check_open(&run, 30).unwrap();
    assert_eq!(server.connections(), 30);
    for row in &run.rows {
        let lag = ns(row, "send_start_ns") - ns(row, "due_ns");
        assert!(ns(row, "connect_ns") > 0 && lag >= ns(row, "connect_ns"), "{row}");
    }
    assert_eq!(run.document["metrics"]["connect_ms"]["count"], 30);
}

#[test]
fn a_server_that_closes_idle_connections_costs_no_request() {
    let answer = good();
    let server = Server::start_idle(Duration::from_millis(40), move |peer: &mut Peer, _: &Request| {
        peer.say(&answer);
        Then::Keep
    });
    let run = run_open(&server.base_url(), 10, "10", &["--arrival", "constant"]);
    check_open(&run, 10).unwrap();
    assert!(server.connections() >= 9);
    assert!(run.document["counts"]["stale_connections"].as_u64().unwrap() >= 8);
}

#[test]
fn silence_ends_a_request_in_time_while_others_are_waited_for() {
    within_three_tries(|| {
        let server = Server::start(|_: &mut Peer, _: &Request| Then::Hang);
        let run =
            run_open(&server.base_url(), 10, "20", &["--arrival", "constant", "--idle-timeout", "120ms"]);
        assert_eq!(run.outcomes(), ["timeout_idle"; 10]);
        for row in &run.rows {
            let waited = ns(row, "end_ns") - ns(row, "send_end_ns");
            assert!(waited >= 120 * MS, "{row}");
            if waited > 150 * MS {
                return Err(format!("{waited} ns of silence"));
            }
        }
        Ok(())
    });
}

#[test]
fn what_fails_keeps_its_place_in_the_schedule() {
    let down = Arc::new(AtomicBool::new(false));
    let server = Server::start({
        let (answer, down) = (good(), Arc::clone(&down));
        move |peer: &mut Peer, _: &Request| {
            if down.fetch_xor(true, Ordering::Relaxed) {
                return Then::Reset;
            }
            peer.say(&answer);
            Then::Keep
        }
    });
    let run = run_open(&server.base_url(), 40, "200", &["--arrival", "constant"]);
    let lost = run.outcomes().iter().filter(|outcome| **outcome == "reset_before_response").count();
    let ok = run.outcomes().iter().filter(|outcome| **outcome == "ok").count();
    assert_eq!((ok, lost), (20, 20), "{:?}", run.outcomes());
    run.counts_agree();
    for (i, due) in dues(&run).iter().enumerate() {
        assert!((due - i64::try_from(i).unwrap() * 5 * MS).abs() < 5_000, "{i}: {due}");
    }
}

#[test]
fn a_rate_that_no_client_reaches_is_said_to_be_missed() {
    let server = slow_server(0);
    let run = run_open(&server.base_url(), 3_000, "1M", &["--arrival", "constant", "--endpoint", "http"]);
    assert_eq!(run.rows.len(), 3_000, "nothing is left out");
    let instrument = &run.document["instrument"];
    assert_eq!(instrument["verdict"], "invalid");
    assert!(instrument["reasons"][0].as_str().unwrap().contains("fell behind its schedule"), "{instrument}");
    let warnings = run.document["warnings"].as_array().unwrap();
    let told = warnings.iter().find(|warning| warning["code"] == "rate_not_reached").unwrap();
    assert!(told["text"].as_str().unwrap().contains("asked for: 1000000/s"), "{told}");
    run.ended_with(4);
}

#[test]
fn the_simulator_takes_an_open_loop_and_the_summary_tells_from_due() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
        .args(["run", "--sim=ttft=30ms;itl=2ms", "--rate", "100", "--requests", "60", "--max-tokens", "10"])
        .args(["--progress", "none", "--out"])
        .arg(dir.path().join("run"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("60 requests, at 100/s (poisson)"), "{text}");
    assert!(text.contains("60 of 60 requests ok"), "{text}");
    assert!(text.contains("Latency from due, ms") && text.contains("\n Send lag "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("run/run.json")).unwrap()).unwrap();
    let shown = text.lines().find(|line| line.trim_start().starts_with("End to end")).unwrap();
    let p50 = document["metrics"]["e2e_from_due_ms"]["p50"].as_f64().unwrap();
    let first: f64 = shown.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((first - p50).abs() <= p50 * 1e-3, "{shown}: {p50}");
    let artifact: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("run/artifact.json")).unwrap())
            .unwrap();
    assert_eq!((&artifact["concurrency"], &artifact["completed"]), (&Value::Null, &60.into()));
}
