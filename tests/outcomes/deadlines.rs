//! Deadlines: which one ends a request, when, and what the answer had decided before it.
//!
//! Deadlines are a few hundred milliseconds here; they must not come early, and not later than a busy machine explains.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::answers::{DONE, HEAD, LAST, TOKEN, chunks, good};
use crate::run::{Reached, check_stamps, run};
use crate::server::{Peer, Request, Server, Then};

/// What a busy machine may add to a deadline.
const SLACK_MS: f64 = 500.0;

/// The deadline of the connection is the longer one: the shorter one must not wait for it.
const IDLE_200_MS: [&str; 4] = ["--idle-timeout", "200ms", "--connect-timeout", "2s"];

/// A server that says this and then nothing.
fn stalling(answer: &str) -> Server {
    let answer = answer.to_owned();
    Server::start(move |peer: &mut Peer, _: &Request| {
        peer.say(&answer);
        Then::Hang
    })
}

fn ms_between(row: &Value, from: &str, to: &str) -> f64 {
    (row[to].as_i64().unwrap() - row[from].as_i64().unwrap()) as f64 / 1e6
}

#[track_caller]
fn assert_deadline(row: &Value, from: &str, deadline_ms: f64) {
    let waited = ms_between(row, from, "end_ns");
    assert!(waited >= deadline_ms - 1.0, "ended {waited} ms after {from}: too early");
    assert!(waited <= deadline_ms + SLACK_MS, "ended {waited} ms after {from}: too late");
}

#[test]
fn silence_ends_a_request_wherever_its_answer_stands() {
    let half = chunks(&[TOKEN]);
    let cases: [(&str, Reached, &str); 5] = [
        ("", Reached::Sent, "send_end_ns"),
        ("HTTP/1.1 100 Continue\r\n\r\n", Reached::Sent, "send_end_ns"),
        ("HTTP/1.1 200", Reached::FirstByte, "first_byte_ns"),
        (HEAD, Reached::FirstByte, "first_byte_ns"),
        (&half, Reached::Output, "last_output_ns"),
    ];
    for (answer, reached, last) in cases {
        let server = stalling(answer);
        let run = run(&server.base_url(), 2, 2, &IDLE_200_MS);
        assert_eq!(run.outcomes(), ["timeout_idle"; 2], "{answer:?}");
        for row in &run.rows {
            check_stamps(row, reached, false).unwrap();
            assert_deadline(row, last, 200.0);
        }
        run.ended_with(3);
        run.counts_agree();
    }
}

#[test]
fn comments_break_the_silence_and_not_the_deadline() {
    let drip = |times: u32| {
        Server::start(move |peer: &mut Peer, _: &Request| {
            peer.say(chunks(&[]));
            for _ in 0..times {
                peer.pause(60);
                peer.say("8\r\n: ping\n\n\r\n");
            }
            peer.say(format!("{:x}\r\n{TOKEN}{DONE}\r\n{LAST}", TOKEN.len() + DONE.len()));
            Then::Keep
        })
    };
    let server = drip(8);
    run(&server.base_url(), 2, 2, &["--idle-timeout", "250ms"]).all_ok(2);
    let server = drip(100);
    let run = run(&server.base_url(), 2, 2, &["--idle-timeout", "5s", "--timeout", "300ms"]);
    assert_eq!(run.outcomes(), ["timeout_total"; 2]);
    for row in &run.rows {
        check_stamps(row, Reached::Head, false).unwrap();
        assert!(row["keepalive_comments"].as_u64().unwrap() > 0);
        assert_deadline(row, "due_ns", 300.0);
    }
    run.ended_with(3);
}

#[test]
fn what_the_answer_said_before_it_stalled_is_its_ending() {
    let error = chunks(&[TOKEN, "data: {\"error\":{\"message\":\"boom\"}}\n\n"]);
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 50\r\nRetry-After: 2\r\n\r\nhalf";
    let moved = "HTTP/1.1 308 Moved\r\nContent-Length: 50\r\nLocation: /v2\r\n\r\n";
    let coded = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 50\r\n\r\n";
    let whole_error = "HTTP/1.1 200 OK\r\n\r\n{\"error\":{\"message\":\"boom\"}}";
    let cases = [
        (error.as_str(), "server_error_in_stream", "boom"),
        (busy, "http_error", "half"),
        (moved, "redirect", "status 308 Moved"),
        (coded, "unsupported_content_coding", "the body is coded although identity was asked for: gzip"),
        (whole_error, "json_error_body", "boom"),
    ];
    for (answer, outcome, says) in cases {
        let server = stalling(answer);
        let run = run(&server.base_url(), 2, 2, &IDLE_200_MS);
        assert_eq!(run.outcomes(), [outcome; 2]);
        for row in &run.rows {
            assert_eq!(row["error"]["detail"], says);
            assert_deadline(row, "first_byte_ns", 200.0);
        }
    }
}

#[test]
fn a_stall_costs_its_own_slot_only() {
    let server = Server::start(|peer: &mut Peer, request: &Request| {
        if request.index == 0 {
            return Then::Hang;
        }
        peer.say(good());
        Then::Keep
    });
    let run = run(&server.base_url(), 30, 2, &IDLE_200_MS);
    assert_eq!(run.rows[0]["outcome"], "timeout_idle");
    assert!(run.rows[1..].iter().all(|row| row["outcome"] == "ok"));
    let ended_while_it_stalled =
        run.rows[1..].iter().filter(|row| ms_between(row, "end_ns", "end_ns") == 0.0);
    assert_eq!(ended_while_it_stalled.count(), 29);
    let stalled_until = run.rows[0]["end_ns"].as_i64().unwrap();
    assert!(run.rows[1..].iter().all(|row| row["end_ns"].as_i64().unwrap() < stalled_until));
    run.ended_with(1);
}

#[test]
fn a_connection_that_is_not_made_in_time_is_told() {
    // A listener that accepts nobody, and a queue that is full: the kernel drops further attempts.
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let waiting: Vec<_> =
        (0..8).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok()).collect();
    assert!((1..8).contains(&waiting.len()), "{} connections fit into a queue for one", waiting.len());
    let run = run(&format!("http://{address}/v1"), 2, 2, &["--connect-timeout", "200ms"]);
    assert_eq!(run.outcomes(), ["timeout_connect"; 2]);
    for row in &run.rows {
        check_stamps(row, Reached::NotSent, false).unwrap();
        assert!(row["connect_ns"].is_null());
        assert_deadline(row, "connect_start_ns", 200.0);
    }
    run.ended_with(6);
    run.counts_agree();
}
