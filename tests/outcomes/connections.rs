//! What becomes of connections: kept, closed, closed behind the client's back, spoiled; and that the slot is free
//! when `[DONE]` was read, whatever the connection still waits for.
//!
//! The server counts connections and notes when requests come. Machines stop processes for tens of milliseconds, so
//! delays are medians with slack, and a script's own delay is several times that slack.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::answers::{DONE, HEAD, LAST, ROLE, TOKEN, chunks, good};
use crate::run::{Run, run, start, start_limited, within_three_tries};
use crate::server::{Peer, Request, Server, Then};

/// A server that says this to every request.
fn saying(answer: &str, then: Then) -> Server {
    let answer = answer.to_owned();
    Server::start(move |peer: &mut Peer, _: &Request| {
        peer.say(&answer);
        then
    })
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: {got:?} instead of {expected:?}")) }
}

fn sum(run: &Run, key: &str) -> u64 {
    run.rows.iter().map(|row| row[key].as_u64().unwrap()).sum()
}

#[test]
fn a_server_that_keeps_connections_gets_one_per_slot() {
    let server = saying(&good(), Then::Keep);
    let run = run(&server.base_url(), 60, 4, &[]);
    run.all_ok(60);
    assert_eq!(server.connections(), 4);
    assert_eq!(run.rows.iter().filter(|row| row["reused"] == true).count(), 56);
    assert_eq!((sum(&run, "stale_connections"), sum(&run, "connection_retries")), (0, 0));
    let mut connection_of = BTreeMap::new();
    for request in server.requests() {
        let row = &run.rows[request.index];
        assert_eq!(row["bytes_sent"], request.head.len() + request.body.len());
        // What the record calls one connection is one connection.
        let id = row["connection_id"].as_u64().unwrap();
        assert_eq!(*connection_of.entry(id).or_insert(request.connection), request.connection);
    }
    // Whatever a connection carried, its numbers begin at zero and have no gap.
    let mut uses: Vec<(u64, u64)> = run
        .rows
        .iter()
        .map(|row| (row["connection_id"].as_u64().unwrap(), row["connection_use"].as_u64().unwrap()))
        .collect();
    uses.sort_unstable();
    assert!(uses.windows(2).all(|pair| pair[1] == (pair[0].0, pair[0].1 + 1) || pair[1].1 == 0), "{uses:?}");
}

#[test]
fn a_fresh_connection_per_request_is_one_and_says_so() {
    let server = saying(&good(), Then::Keep);
    run(&server.base_url(), 12, 3, &["--connection", "fresh"]).all_ok(12);
    assert_eq!(server.connections(), 12);
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.head.to_lowercase().contains("\r\nconnection: close\r\n"))
    );
}

#[test]
fn a_server_that_says_close_gets_a_connection_per_request() {
    let answer = good().replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let server = saying(&answer, Then::Close);
    let run = run(&server.base_url(), 20, 2, &[]);
    run.all_ok(20);
    assert_eq!(server.connections(), 20);
    assert_eq!(sum(&run, "stale_connections"), 0, "a close that was announced is none of them");
}

/// A server that promises to keep its connections, and closes each of them that long after its answer.
fn promising(close_after_ms: impl Fn(&Request) -> u64 + Send + Sync + 'static) -> Server {
    let promise = "\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n";
    let answer = good().replacen("\r\n", promise, 1);
    Server::start(move |peer: &mut Peer, request: &Request| {
        peer.say(&answer);
        peer.pause(close_after_ms(request));
        Then::Close
    })
}

#[test]
fn a_server_that_promises_to_keep_and_closes_loses_no_request() {
    within_three_tries(|| {
        let server = promising(|_| 0);
        run(&server.base_url(), 40, 4, &[]).check_all_ok(40)?;
        same("connections", &server.connections(), &40)
    });
}

#[test]
fn the_first_close_of_such_a_server_costs_no_request_of_the_other_slots() {
    // The first connections close one after the other, well within the time for which they are watched.
    within_three_tries(|| {
        let server = promising(|request| if request.index < 4 { 2 + 4 * request.index as u64 } else { 0 });
        run(&server.base_url(), 40, 4, &[]).check_all_ok(40)?;
        same("connections", &server.connections(), &40)
    });
}

#[test]
fn a_connection_that_was_closed_while_the_client_was_busy_elsewhere_is_replaced() {
    // The last chunk comes 15 ms after [DONE], so the next request has gone to another connection by then, and this
    // one is idle for the 80 ms that its answer takes.
    let server = Server::start_idle(Duration::from_millis(50), |peer: &mut Peer, _: &Request| {
        peer.say(chunks(&[ROLE, TOKEN]));
        peer.pause(200);
        peer.say(format!("{:x}\r\n{DONE}\r\n", DONE.len()));
        peer.pause(15);
        peer.say(LAST);
        Then::Keep
    });
    within_three_tries(|| {
        let run = run(&server.base_url(), 8, 2, &[]);
        run.check_all_ok(8)?;
        same("retries", &sum(&run, "connection_retries"), &0)?;
        if sum(&run, "stale_connections") > 0 { Ok(()) } else { Err("none was found closed".to_owned()) }
    });
}

#[test]
fn one_connection_that_idles_out_does_not_make_the_server_one_that_closes() {
    // The first answer leaves a connection that nobody needs and the server closes after 50 ms; the second connection
    // is good for all that follows.
    let server = Server::start_idle(Duration::from_millis(50), |peer: &mut Peer, request: &Request| {
        if request.index == 0 {
            peer.say(chunks(&[TOKEN, DONE]));
            peer.pause(10);
            peer.say(LAST);
        } else {
            if request.index == 1 {
                peer.pause(120);
            }
            peer.say(good());
        }
        Then::Keep
    });
    run(&server.base_url(), 8, 1, &[]).all_ok(8);
    // Two, and more only where the machine was late.
    assert!(server.connections() <= 4, "{} connections for 8 requests", server.connections());
}

/// Instants by request.
type Notes = Arc<Mutex<Vec<(usize, Instant)>>>;

/// Says an answer up to its `[DONE]`, in `answer_ms`, and the last chunk `tail_ms` later. Notes the instants of the
/// `[DONE]`s.
fn with_late_tail(answer_ms: u64, tail_ms: u64) -> (Server, Notes) {
    let done_at = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&done_at);
    let server = Server::start(move |peer: &mut Peer, request: &Request| {
        peer.say(chunks(&[TOKEN]));
        peer.pause(answer_ms);
        peer.say(format!("{:x}\r\n{DONE}\r\n", DONE.len()));
        notes.lock().unwrap().push((request.index, Instant::now()));
        peer.pause(tail_ms);
        peer.say(LAST);
        Then::Keep
    });
    (server, done_at)
}

/// From each `[DONE]` to the arrival of the next request.
fn spans_after_done(server: &Server, done_at: &Notes) -> Vec<Duration> {
    let requests = server.requests();
    let arrival =
        |index: usize| requests.iter().find(|request| request.index == index).map(|request| request.at);
    let done_at = done_at.lock().unwrap();
    done_at
        .iter()
        .filter_map(|(index, at)| Some(arrival(index + 1)?.saturating_duration_since(*at)))
        .collect()
}

#[test]
fn the_slot_is_free_at_done_and_not_at_the_last_chunk() {
    const TAIL_MS: u64 = 50;
    within_three_tries(|| {
        let (server, done_at) = with_late_tail(80, TAIL_MS);
        let run = run(&server.base_url(), 13, 1, &[]);
        run.check_all_ok(13)?;
        let spans = spans_after_done(&server, &done_at);
        same("spans", &spans.len(), &12)?;
        let typical = median(spans);
        if typical > Duration::from_millis(TAIL_MS / 4) {
            return Err(format!("{typical:?} from [DONE] to the next request"));
        }
        // Two connections take turns, each with the time for its tail, and no answer was cut.
        same("connections", &server.connections(), &2)?;
        let whole = run.rows.iter().filter(|row| row["cut_after_terminal"] == false);
        let tailed = whole.filter(|row| row["end_ns"].as_i64() > row["terminal_ns"].as_i64());
        same("answers with their tail", &tailed.count(), &13)
    });
}

#[test]
fn tails_that_overlap_do_not_hold_the_slot_either() {
    const TAIL_MS: u64 = 50;
    within_three_tries(|| {
        let (server, done_at) = with_late_tail(0, TAIL_MS);
        run(&server.base_url(), 25, 1, &[]).check_all_ok(25)?;
        let typical = median(spans_after_done(&server, &done_at));
        if typical < Duration::from_millis(TAIL_MS / 4) { Ok(()) } else { Err(format!("{typical:?}")) }
    });
}

#[test]
fn descriptors_for_tails_are_part_of_what_a_run_needs() {
    // A slot whose connection waits for its last chunk opens a second one. The limit allows the slots and what a run
    // has open besides, and no second connections: such a run either says so before the first packet, or it copes.
    const SLOTS: usize = 64;
    const BESIDES: usize = 48;
    let (server, _) = with_late_tail(0, 40);
    let mut running = start_limited(SLOTS + BESIDES, &server.base_url(), 4 * SLOTS, SLOTS);
    if running.wait_for_code() == 2 {
        let said = running.read("stderr");
        assert!(said.contains("descriptors"), "{said}");
        assert_eq!(server.connections(), 0);
    } else {
        running.wait().all_ok(4 * SLOTS);
    }
}

#[test]
fn a_tail_that_comes_at_once_lets_the_connection_carry_on() {
    // The next request waits a moment for a tail that is on its way rather than to open a connection for it.
    let server = Server::start(|peer: &mut Peer, _: &Request| {
        peer.say(chunks(&[TOKEN, DONE]));
        peer.say(LAST);
        Then::Keep
    });
    run(&server.base_url(), 60, 1, &[]).all_ok(60);
    // On a busy machine the second write may come late now and then.
    assert!(server.connections() <= 12, "{} connections", server.connections());
}

#[test]
fn a_tail_that_never_comes_costs_its_connection_after_a_tenth_of_a_second() {
    let waited = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&waited);
    let server = Server::start(move |peer: &mut Peer, _: &Request| {
        peer.say(chunks(&[TOKEN]));
        peer.pause(150);
        peer.say(format!("{:x}\r\n{DONE}\r\n", DONE.len()));
        notes.lock().unwrap().extend(peer.wait_for_close());
        Then::Close
    });
    let run = run(&server.base_url(), 5, 1, &[]);
    run.all_ok(5);
    assert_eq!(server.connections(), 5);
    assert!(run.rows.iter().all(|row| row["cut_after_terminal"] == true));
    let e2e = &run.document["metrics"]["e2e_ms"];
    assert!(e2e["p50"].as_f64().unwrap() < 200.0, "an answer ends at its [DONE]: {e2e}");
    drop(server);
    let waited = waited.lock().unwrap().clone();
    assert_eq!(waited.len(), 5);
    let typical = median(waited);
    assert!((80..400).contains(&typical.as_millis()), "closed {typical:?} after [DONE]");
}

#[test]
fn a_stream_without_a_length_that_stays_open_after_done_is_no_cut_answer() {
    let server = saying(&format!("{HEAD}\r\n{TOKEN}{DONE}"), Then::Hang);
    let run = run(&server.base_url(), 4, 1, &[]);
    run.all_ok(4);
    assert!(run.rows.iter().all(|row| row["cut_after_terminal"] == false));
}

#[test]
fn bytes_behind_an_answer_spoil_its_connection_and_no_request() {
    for junk in ["\r\n", "junk", "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", &good()] {
        let server = saying(&(good() + junk), Then::Keep);
        let run = run(&server.base_url(), 8, 1, &[]);
        run.all_ok(8);
        assert_eq!(server.connections(), 8, "{junk:?}");
        assert!(run.rows.iter().all(|row| row["output_chunks"] == 2), "{junk:?}");
        let spoiled = run.rows.iter().filter(|row| row["anomalies"] == serde_json::json!(["unasked_bytes"]));
        // What follows the last answer may come too late to be seen.
        assert!(spoiled.count() >= 7, "{junk:?}");
        let warnings = run.document["warnings"].as_array().unwrap();
        let told = warnings.iter().find(|warning| warning["code"] == "unasked_bytes").unwrap();
        assert!(told["text"].as_str().unwrap().starts_with("this client closed "), "{told}");
    }
}

#[test]
fn bytes_that_nobody_asked_for_spoil_an_idle_connection() {
    // Only behind the first answer: while it is watched no other request goes out, so the bytes come to a connection
    // that is idle, if they do not come with the answer.
    let server = Server::start(|peer: &mut Peer, request: &Request| {
        peer.say(good());
        if request.index == 0 {
            peer.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
        }
        Then::Keep
    });
    let run = run(&server.base_url(), 8, 1, &[]);
    run.all_ok(8);
    assert_eq!(server.connections(), 2);
    // Of the first where they came with its answer; else of the one that found its connection gone, which is not always
    // the second: a slot that did not wait for the last chunk has sent that on another connection.
    let told: Vec<_> = run.rows.iter().filter(|row| row["anomalies"][0] == "unasked_bytes").collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0]["request_index"] != 0, sum(&run, "stale_connections") == 1, "{told:#?}");
}

/// A server that answers `408` on accept, on its first so many connections, and every request after 100 ms.
fn greeting(connections: usize) -> Server {
    const EARLY: &str = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
    Server::start_greeting(EARLY, connections, |peer: &mut Peer, _: &Request| {
        peer.pause(100);
        peer.say(good());
        Then::Keep
    })
}

#[test]
fn an_answer_that_comes_before_its_request_ends_it_and_the_connection() {
    // Whether it is there before the request is sent, or while that is on its way, is a race.
    let server = greeting(usize::MAX);
    let run = run(&server.base_url(), 12, 2, &[]);
    assert_eq!(run.outcomes(), ["http_error"; 12]);
    assert_eq!(server.connections(), 12, "none is used again");
    for row in &run.rows {
        assert_eq!(row["http_status"], 408);
        let told = row["error"]["detail"].as_str().unwrap();
        assert_eq!(told.contains("before the request was sent"), row["send_start_ns"].is_null(), "{told}");
        assert!(row["send_start_ns"].is_null() == (row["bytes_sent"] == 0), "{row}");
        assert!(!row["first_byte_ns"].is_null());
    }
    assert_eq!(run.document["instrument"]["inverted_requests"], 0, "no stamp accuses the instrument");
    run.ended_with(3);
}

#[test]
fn no_answer_is_taken_for_that_of_another_request() {
    for flags in [&[][..], &["--prewarm"]] {
        let server = greeting(2);
        let run = run(&server.base_url(), 10, 2, flags);
        for row in run.rows.iter().filter(|row| row["outcome"] == "ok") {
            let took = row["end_ns"].as_i64().unwrap() - row["send_start_ns"].as_i64().unwrap();
            assert!(took > 95_000_000, "{took} ns: {row}");
        }
        let ok = run.outcomes().iter().filter(|outcome| **outcome == "ok").count();
        assert!(ok >= 8 && (flags.len() == 1 || ok == 8), "{:?}", run.outcomes());
        assert_eq!(server.connections(), 4, "the first two are replaced");
    }
}

#[test]
fn the_first_byte_is_that_of_the_final_answer() {
    const PAUSE_MS: u64 = 40;
    let server = Server::start(|peer: &mut Peer, _: &Request| {
        peer.say("HTTP/1.1 100 Continue\r\n\r\n");
        peer.say("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        peer.pause(PAUSE_MS);
        peer.say(good());
        Then::Keep
    });
    let run = run(&server.base_url(), 6, 2, &[]);
    run.all_ok(6);
    assert_eq!(server.connections(), 2, "interim answers cost no connection");
    for row in &run.rows {
        let waited = row["first_byte_ns"].as_i64().unwrap() - row["send_start_ns"].as_i64().unwrap();
        assert!(waited >= (i64::try_from(PAUSE_MS).unwrap() - 5) * 1_000_000, "{waited} ns");
    }
}

#[test]
fn an_answer_that_comes_before_the_request_was_read_is_the_answer() {
    let refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\n\r\ntoo big";
    let server = Server::start_hasty(move |peer: &mut Peer, _: &Request| {
        peer.say(refusal);
        // What was not read makes the close a reset.
        peer.pause(30);
        Then::Close
    });
    let run = run(&server.base_url(), 4, 1, &["--max-model-len", "4000000", "--ctx-tokens", "2000000"]);
    assert_eq!(run.outcomes(), ["http_error"; 4]);
    for row in &run.rows {
        assert_eq!(row["http_status"], 413);
        assert_eq!(row["error"]["body_start"], "too big");
        assert!(row["send_end_ns"].is_null(), "it was never sent whole");
    }
    run.ended_with(3);
}

#[test]
fn an_answer_of_megabytes_that_waits_with_its_end_is_read_to_the_end() {
    // The client is stopped while its answer comes, so that all of it and the close lie in its socket when it goes on:
    // more than it reads in one turn. The answer before has made the socket's window wide enough, mostly, so four times.
    const WIDE: usize = 12 << 20;
    const WAITING: usize = 1_100 << 10;
    let client: Arc<OnceLock<Pid>> = Arc::default();
    let pid = Arc::clone(&client);
    let comments = |bytes: usize| format!(": {}\n\n", "c".repeat(1_020)).repeat(bytes / 1_024);
    let (wide, waiting) = (comments(WIDE), comments(WAITING));
    let server = Server::start(move |peer: &mut Peer, request: &Request| {
        if request.index.is_multiple_of(2) {
            let body = [&wide, TOKEN, DONE].concat();
            peer.say(format!("{HEAD}Content-Length: {}\r\n\r\n{body}", body.len()));
            return Then::Keep;
        }
        let finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
        let answer = format!("{HEAD}\r\n{waiting}{TOKEN}{finish}").into_bytes();
        let pid = *pid.wait();
        kill(pid, Signal::SIGSTOP).unwrap();
        let said = peer.say_while_taken(&answer, Duration::from_millis(200));
        if said == answer.len() {
            peer.close_writing();
            peer.pause(60);
        }
        kill(pid, Signal::SIGCONT).unwrap();
        // Where the window was too narrow, the rest follows.
        peer.say(&answer[said..]);
        Then::Close
    });
    let running = start(&server.base_url(), 8, 1, &["--idle-timeout", "2s"], &[]);
    client.set(running.pid()).unwrap();
    running.wait().all_ok(8);
}
