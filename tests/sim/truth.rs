//! The ledger against what a client saw: every event, in order, sent when planned and received after it was sent; also
//! with a peer that does not read, peers that go away, and the simulator's own end.

use std::io::Read;
use std::time::Duration;

use hammerscale::sim::ledger::{self, ClosedBy, Ending, EventKind, EventSent};
use nix::sys::signal::Signal;

use crate::client::{Client, Response, Sim, chat_body, median, monotonic, post_chat};

/// Six concurrent clients with three requests each: (id, instant before sending, response).
fn load(sim: &Sim) -> Vec<(String, i64, Response)> {
    let address = sim.address;
    let threads: Vec<_> = (0..6)
        .map(|c| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let request = |i: usize| {
                    let id = format!("c{c}-{i}");
                    let sent = monotonic();
                    let response = client.chat(&chat_body("Hello there.", 12, true), Some(&id));
                    (id, sent, response)
                };
                (0..3).map(request).collect::<Vec<_>>()
            })
        })
        .collect();
    threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
}

#[test]
fn the_ledger_is_what_the_clients_saw() {
    let sim = Sim::start(&["--ttft=30ms", "--itl=7ms"]);
    let seen = load(&sim);
    let ledger = sim.finish();
    assert_eq!((ledger.connections.len(), ledger.requests.len()), (6, 18));
    assert!(ledger.connections.iter().all(|c| c.closed.unwrap().by == ClosedBy::Peer));
    for (id, sent, response) in &seen {
        let request = ledger.request_by_id(id).unwrap();
        let arrived = &request.arrived;
        assert!(arrived.arrival.0 >= *sent);
        assert_eq!(
            (arrived.model.as_str(), arrived.prompt_bytes, arrived.content_tokens),
            ("org/model-8b", 12, 12)
        );
        assert_eq!(request.ended.unwrap().ending, Ending::Complete);
        let head = request.head.unwrap();
        assert!(head.planned == arrived.arrival && head.before >= head.planned && head.after >= head.before);
        // One row per event the client decoded, in its order, with the length it has on the wire.
        assert_eq!(request.events.len(), response.chunks.len());
        for (index, (event, (chunk, received))) in request.events.iter().zip(&response.chunks).enumerate() {
            assert_eq!(usize::try_from(event.index).unwrap(), index);
            let framing = format!("{:x}\r\n\r\n", chunk.len()).len();
            let end = if event.kind == EventKind::Done { 5 } else { 0 };
            assert_eq!(usize::try_from(event.bytes).unwrap(), chunk.len() + framing + end);
            assert!(event.before >= event.planned, "never early");
            assert!(event.after >= event.before);
            assert!(*received > event.before.0, "received after it was sent");
        }
        assert_plan(arrived.arrival.0, &request.events);
    }
}

/// Role and first content after 30 ms, a content every 7 ms, the rest with the last: whatever happened before.
fn assert_plan(arrival: i64, events: &[EventSent]) {
    let outputs = events.iter().filter(|e| e.kind.is_output());
    for (k, event) in (0..).zip(outputs) {
        assert_eq!(event.planned.0, arrival + 30_000_000 + k * 7_000_000);
    }
    let last = arrival + 30_000_000 + 11 * 7_000_000;
    for event in events {
        match event.kind {
            EventKind::Role => assert_eq!(event.planned.0, arrival + 30_000_000),
            EventKind::Finish | EventKind::Usage | EventKind::Done => assert_eq!(event.planned.0, last),
            _ => {}
        }
    }
}

#[test]
fn events_are_sent_when_they_are_due() {
    // A busy machine takes the processor away at will: the best of five attempts shows what the simulator does.
    let mut medians = Vec::new();
    for _ in 0..5 {
        let sim = Sim::start(&["--ttft=30ms", "--itl=7ms"]);
        let seen = load(&sim);
        let ledger = sim.finish();
        let events = ledger.requests.iter().flat_map(|r| &r.events);
        let lateness = median(events.map(|e| e.before.0 - e.planned.0).collect());
        // Against the client's clock too: what it saw of the first content is not far from the plan.
        let delays = seen.iter().map(|(id, _, response)| {
            let request = ledger.request_by_id(id).unwrap();
            response.chunks[1].1 - request.events[1].before.0
        });
        medians.push((lateness, median(delays.collect())));
        if lateness < 200_000 {
            return;
        }
    }
    panic!("median lateness and client delay in ns: {medians:?}");
}

#[test]
fn a_peer_that_does_not_read_delays_nobody_else() {
    // Events of about 600 KB: no socket buffer takes them all.
    let sim = Sim::start(&["--ttft=10ms", "--itl=5ms", "--tokens-per-chunk=100000"]);
    let mut slow = sim.connect();
    slow.send(&post_chat(&chat_body("x", 900_000, true), Some("slow")));
    let mut whole = sim.connect();
    whole.send(&post_chat(&chat_body("x", 900_000, false), Some("whole")));
    std::thread::sleep(Duration::from_millis(100));
    let mut other = sim.connect();
    for i in 0..10 {
        let response = other.chat(&chat_body("x", 20, true), Some(&format!("other-{i}")));
        assert_eq!(response.text("content").split(' ').count(), 20);
    }
    let unread_until = monotonic();
    let response = slow.receive();
    assert_eq!(response.text("content").split(' ').count(), 900_000);
    let text = whole.receive().json()["choices"][0]["message"]["content"].as_str().unwrap().len();
    assert!(text > 3_000_000, "{text}");
    drop((slow, whole, other));
    let ledger = sim.finish();
    let slow = ledger.request_by_id("slow").unwrap();
    assert_eq!(slow.ended.unwrap().ending, Ending::Complete);
    assert_eq!(slow.events.len(), response.chunks.len());
    let blocked = slow.events.iter().filter(|e| e.before.0 > unread_until).count();
    assert!(blocked > 0, "some events had to wait for the reader");
    assert!(slow.events.windows(2).all(|w| w[1].before >= w[0].after), "one after the other");
    let is_other = |id: &Option<String>| id.as_deref().is_some_and(|id| id.starts_with("other-"));
    let others = ledger.requests.iter().filter(|r| is_other(&r.arrived.request_id));
    assert_eq!(others.clone().count(), 10);
    let lateness = median(others.flat_map(|r| &r.events).map(|e| e.before.0 - e.planned.0).collect());
    assert!(lateness < 50_000_000, "the others were held up by {lateness} ns");
}

#[test]
fn peers_that_go_away_are_seen_and_forgotten() {
    let sim = Sim::start(&["--ttft=10ms", "--itl=5ms"]);
    let mut leaver = sim.connect();
    leaver.send(&post_chat(&chat_body("x", 1000, true), Some("leaver")));
    leaver.stream.read_exact(&mut [0; 400]).unwrap();
    drop(leaver);
    let mut half = sim.connect();
    half.send(&post_chat(&chat_body("x", 1000, true), Some("half")));
    half.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut waiter = sim.connect();
    waiter.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: s\r\nContent-Length: 10\r\n\r\n12345");
    drop(waiter);
    // The half-closed one is given up at once, as by uvicorn; nothing but a head has come.
    let mut rest = Vec::new();
    let _ = half.stream.read_to_end(&mut rest);
    assert!(rest.len() < 400, "{}", String::from_utf8_lossy(&rest));
    let mut next = sim.connect();
    assert_eq!(next.chat(&chat_body("x", 3, true), Some("next")).events().len(), 7);
    drop(next);
    let ledger = sim.finish();
    assert_eq!(ledger.requests.len(), 3);
    for id in ["leaver", "half"] {
        let request = ledger.request_by_id(id).unwrap();
        assert_eq!(request.ended.unwrap().ending, Ending::PeerGone, "{id}");
        assert!(request.events.len() < 1000);
    }
    assert_eq!(ledger.request_by_id("next").unwrap().ended.unwrap().ending, Ending::Complete);
    assert_eq!(ledger.connections.len(), 4);
    assert!(ledger.connections.iter().all(|c| c.closed.unwrap().by == ClosedBy::Peer));
}

#[test]
fn signals_end_it_with_a_whole_ledger() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut sim = Sim::start(&["--ttft=10ms", "--itl=5ms"]);
        let mut client = sim.connect();
        client.send(&post_chat(&chat_body("x", 100_000, true), Some("endless")));
        client.stream.read_exact(&mut [0; 2000]).unwrap();
        sim.signal(signal);
        assert_eq!(sim.wait().code(), Some(0));
        let ledger = ledger::read(&sim.ledger_path()).unwrap();
        assert!(ledger.is_complete());
        let request = ledger.request_by_id("endless").unwrap();
        assert_eq!(request.ended.unwrap().ending, Ending::Stopped);
        assert_eq!(ledger.connections[0].closed.unwrap().by, ClosedBy::Simulator);
        // What the ledger says was sent is what can be read.
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        let sent = request.head.unwrap().bytes + request.events.iter().map(|e| e.bytes).sum::<u32>();
        assert_eq!(usize::try_from(sent).unwrap(), 2000 + rest.len());
    }
}

#[test]
fn a_killed_simulator_leaves_a_readable_ledger() {
    let mut sim = Sim::start(&["--ttft=10ms", "--itl=1ms"]);
    let mut client = sim.connect();
    client.send(&post_chat(&chat_body("x", 100_000, true), Some("cut")));
    // The last block is handed over every 100 ms.
    std::thread::sleep(Duration::from_millis(500));
    sim.signal(Signal::SIGKILL);
    assert_eq!(sim.wait().code(), None);
    let ledger = ledger::read(&sim.ledger_path()).unwrap();
    assert!(!ledger.is_complete());
    let request = ledger.request_by_id("cut").unwrap();
    assert_eq!(request.ended, None);
    let events = &request.events;
    assert!(events.len() > 50, "{} events", events.len());
    assert!(events.iter().zip(0..).all(|(e, i)| e.index == i), "no gap before the cut");
}

#[test]
fn the_end_of_standard_input_is_the_end() {
    let mut sim = Sim::start(&["--ttft=1ms", "--itl=0ms"]);
    let mut client = sim.connect();
    assert_eq!(client.chat(&chat_body("x", 3, true), None).events().len(), 7);
    sim.close_stdin();
    assert_eq!(sim.wait().code(), Some(0));
    assert!(client.is_closed());
    assert!(std::net::TcpStream::connect(sim.address).is_err());
}
