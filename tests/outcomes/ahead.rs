//! Connections made ahead of the requests, and where connections come from.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::answers::good;
use crate::run::{run, start, within_three_tries};
use crate::server::{Peer, Request, Server, Then};

fn keeping() -> Server {
    Server::start(|peer: &mut Peer, _: &Request| {
        peer.say(good());
        Then::Keep
    })
}

fn sources(ends: &[u8]) -> Vec<IpAddr> {
    ends.iter().map(|end| IpAddr::from([127, 0, 0, *end])).collect()
}

#[test]
fn connections_made_ahead_are_there_before_the_first_request() {
    let server = Server::start_gathering(|peer: &mut Peer, _: &Request| {
        peer.say(good());
        Then::Keep
    });
    let run = run(&server.base_url(), 60, 20, &["--prewarm"]);
    run.all_ok(60);
    assert_eq!((server.there_at_first_request(), server.connections()), (20, 20), "one per slot");
    assert!(run.rows.iter().all(|row| row["connect_ns"].is_null()), "no request made a connection");
    let uses = |n: u64| run.rows.iter().filter(|row| row["connection_use"] == n).count();
    assert_eq!(uses(0), 20, "a connection counts its requests from zero");
    assert!(run.document["metrics"]["connect_ms"].is_null());
    let prewarm = &run.document["prewarm"];
    assert_eq!(
        (&prewarm["asked"], &prewarm["made"], &prewarm["failed"]),
        (&20.into(), &20.into(), &0.into())
    );
    assert_eq!((&prewarm["connect_us"]["count"], prewarm["failure"].is_null()), (&20.into(), true));
    assert!(prewarm["connections_per_s"].as_f64().unwrap() > 0.0);
    // The zero of all stamps lies before them, and the window behind them.
    let took = prewarm["took_s"].as_f64().unwrap();
    let window = run.document["window"]["start_ns"].as_f64().unwrap() / 1e9;
    assert!(took > 0.0 && window >= took, "{took} s, then the window at {window} s");
}

#[test]
fn every_slot_gets_its_connection_also_where_there_are_fewer_requests() {
    let server = keeping();
    run(&server.base_url(), 3, 12, &["--prewarm"]).all_ok(3);
    assert_eq!(server.connections(), 12);
}

#[test]
fn a_server_that_closes_after_every_answer_still_gets_its_first_requests_on_them() {
    // It promises to keep its connections and does not: that is found out behind the first answer, and must not cost
    // the connections that have carried nothing yet.
    let promise = "\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n";
    let answer = good().replacen("\r\n", promise, 1);
    within_three_tries(|| {
        let answer = answer.clone();
        let server = Server::start(move |peer: &mut Peer, _: &Request| {
            peer.say(&answer);
            Then::Close
        });
        let run = run(&server.base_url(), 40, 4, &["--prewarm"]);
        run.check_all_ok(40)?;
        let made = run.rows.iter().filter(|row| !row["connect_ns"].is_null()).count();
        if (server.connections(), made) == (40, 36) {
            return Ok(());
        }
        Err(format!("{} connections, {made} of them made by requests", server.connections()))
    });
}

#[test]
fn a_connection_that_cannot_be_made_ahead_is_told_and_its_request_tries_again() {
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run = run(&format!("http://{address}/v1"), 8, 4, &["--prewarm"]);
    run.ended_with(6);
    assert!(run.outcomes().iter().all(|outcome| *outcome == "connect_refused"));
    let prewarm = &run.document["prewarm"];
    assert_eq!((&prewarm["asked"], &prewarm["made"], &prewarm["failed"]), (&4.into(), &0.into(), &4.into()));
    assert_eq!(prewarm["failure"], "Connection refused");
    assert!(prewarm["connect_us"].is_null());
    let warnings = run.document["warnings"].as_array().unwrap();
    let told = warnings.iter().find(|warning| warning["code"] == "prewarm_failed").unwrap();
    assert!(told["text"].as_str().unwrap().starts_with("4 of 4 connections could not be made"), "{told}");
}

#[test]
fn without_the_flag_nothing_is_made_ahead() {
    let server = keeping();
    let run = run(&server.base_url(), 3, 12, &[]);
    run.all_ok(3);
    assert_eq!(server.connections(), 3);
    assert!(run.document["prewarm"].is_null());
    assert_eq!(run.document["metrics"]["connect_ms"]["count"], 3);
}

#[test]
fn connections_come_from_the_named_addresses_in_turn() {
    for flags in [&["--connection", "fresh"][..], &["--prewarm"], &[]] {
        let server = keeping();
        let list = ["--source-ip", "127.0.0.2,127.0.0.9, 127.0.0.4"];
        let run = run(&server.base_url(), 30, 6, &[flags, &list].concat());
        run.all_ok(30);
        let named = sources(&[2, 9, 4]);
        let accepted = server.accepted();
        let mut from: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for request in server.requests() {
            let id = run.rows[request.index]["connection_id"].as_u64().unwrap();
            let peer = accepted[request.connection].ip();
            assert_eq!(peer, named[usize::try_from(id % 3).unwrap()], "connection {id}");
            *from.entry(peer).or_default() += 1;
        }
        assert_eq!(from.len(), 3, "{from:?}");
        assert_eq!(server.connections(), if flags.contains(&"fresh") { 30 } else { 6 });
        let echoed: Vec<String> = named.iter().map(ToString::to_string).collect();
        assert_eq!(run.document["spec"]["connection"]["source_ips"], serde_json::json!(echoed));
    }
}

#[test]
fn a_source_that_is_not_here_or_of_no_use_is_refused_before_the_first_packet() {
    let server = keeping();
    // 192.0.2.0/24 is for documents (RFC 5737); the other one may not even be there, and is of the wrong family.
    for (list, told) in [("127.0.0.1,192.0.2.1", "192.0.2.1"), ("127.0.0.1,::1", "::1")] {
        let mut running = start(&server.base_url(), 4, 2, &["--source-ip", list], &[]);
        assert_eq!(running.wait_for_code(), 2);
        let said = running.read("stderr");
        assert!(said.contains("--source-ip") && said.contains(told), "{said}");
    }
    assert_eq!(server.connections(), 0);
}
