//! Endings that no byte of an answer decides: no connection, an answer that is not the one that was asked for, the
//! run's own end; and the exit codes, each by a run that must end with it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::answers::{DONE, LAST, ROLE, TOKEN, chunks, good};
use crate::run::{Reached, Run, check_stamps, run, start};
use crate::server::{Peer, Request, Server, Then};

/// Results are there so soon after a signal.
const RESULTS_WITHIN: Duration = Duration::from_secs(2);

#[track_caller]
fn assert_all(run: &Run, outcome: &str, reached: Reached) {
    assert!(run.outcomes().iter().all(|o| *o == outcome), "{:?}", run.outcomes());
    for row in &run.rows {
        check_stamps(row, reached, reached == Reached::Output).unwrap();
        assert_eq!(row["error"]["class"], outcome);
    }
    run.counts_agree();
}

#[test]
fn a_name_that_does_not_resolve_ends_every_request_and_the_run_with_6() {
    let run = run("http://nosuchhost.invalid/v1", 3, 2, &[]);
    assert_eq!(run.rows.len(), 3);
    assert_all(&run, "dns", Reached::NotSent);
    run.ended_with(6);
    assert!(run.rows[0]["http_status"].is_null());
    let detail = run.rows[0]["error"]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("nosuchhost.invalid"), "the reason is lost: {detail:?}");
}

#[test]
fn a_port_that_nobody_listens_on_ends_every_request_and_the_run_with_6() {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let run = run(&format!("http://{address}/v1"), 5, 2, &[]);
    assert_eq!(run.rows.len(), 5);
    assert_all(&run, "connect_refused", Reached::NotSent);
    run.ended_with(6);
}

#[test]
fn an_address_that_no_connection_can_be_made_to_ends_every_request_and_the_run_with_6() {
    // A link-local address without its interface: the kernel refuses before any packet.
    let run = run("http://[fe80::1]:8000/v1", 3, 2, &[]);
    assert_eq!(run.rows.len(), 3);
    assert_all(&run, "connect_failed", Reached::NotSent);
    run.ended_with(6);
}

/// Reads a small request and gives the last answer of its connection.
fn answer(stream: &mut TcpStream) {
    let mut seen = [0; 64 * 1024];
    assert!(stream.read(&mut seen).unwrap() > 0);
    stream.write_all(good().replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes()).unwrap();
}

#[test]
fn a_port_that_closes_in_the_middle_of_a_run_is_told_and_the_run_goes_on() {
    // The listener is gone before its second connection is answered.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut first = listener.accept().unwrap().0;
        answer(&mut first);
        let mut second = listener.accept().unwrap().0;
        drop(listener);
        answer(&mut second);
    });
    let run = run(&format!("http://{address}/v1"), 6, 1, &[]);
    server.join().unwrap();
    let mut expected = vec!["ok"; 2];
    expected.extend(["connect_refused"; 4]);
    assert_eq!(run.outcomes(), expected);
    run.ended_with(1);
}

#[test]
fn an_answer_that_is_not_the_one_that_was_asked_for_is_no_success() {
    let server = Server::start(|peer: &mut Peer, request: &Request| {
        let marker = format!("ANVIL_REQ_0_{:05}", request.index);
        let text = if request.index == 1 { "ANVIL_REQ_0_00000".to_owned() } else { marker };
        let token = TOKEN.replace("\"a\"", &format!("\"{text} code code\""));
        peer.say(chunks(&[&token, DONE]) + LAST);
        Then::Keep
    });
    let kept = run(&server.base_url(), 3, 1, &["--request-canaries"]);
    assert_eq!(kept.outcomes(), ["ok", "canary_failed", "ok"]);
    check_stamps(&kept.rows[1], Reached::Output, true).unwrap();
    assert_eq!(kept.rows[1]["canary"]["foreign_marker_count"], 1);
    kept.ended_with(1);
    kept.counts_agree();

    let flags = ["--request-canaries", "--response-words", "3", "--controlled-output-policy", "strict"];
    let strict = run(&server.base_url(), 3, 1, &flags);
    assert_eq!(strict.outcomes(), ["controlled_output_failed", "canary_failed", "controlled_output_failed"]);
    check_stamps(&strict.rows[0], Reached::Output, true).unwrap();
    assert_eq!(strict.rows[0]["controlled_output"]["observed_code_words"], 2);
    strict.ended_with(3);
    run(
        &server.base_url(),
        1,
        1,
        &["--request-canaries", "--response-words", "2", "--controlled-output-policy", "strict"],
    )
    .all_ok(1);
}

/// Answers the first request, and lets every other one stream without end. Tells of the first token of each.
fn endless() -> (Server, mpsc::Receiver<usize>) {
    let (told, heard) = mpsc::channel();
    let server = Server::start(move |peer: &mut Peer, request: &Request| {
        if request.index == 0 {
            peer.say(good());
            return Then::Keep;
        }
        peer.say(chunks(&[ROLE]));
        for _ in 0..1_000 {
            peer.say(format!("{:x}\r\n{TOKEN}\r\n", TOKEN.len()));
            let _ = told.send(request.index);
            peer.pause(20);
        }
        Then::Close
    });
    (server, heard)
}

#[test]
fn a_signal_ends_the_run_and_the_results_are_written() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (server, heard) = endless();
        let running = start(&server.base_url(), 50, 3, &[], &[]);
        // Three requests stream, each with a token or two.
        let mut streaming = std::collections::BTreeSet::new();
        while streaming.len() < 3 {
            streaming.insert(heard.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        std::thread::sleep(Duration::from_millis(100));
        running.signal(signal);
        let asked = Instant::now();
        let run = running.wait();
        assert!(asked.elapsed() < RESULTS_WITHIN, "{:?} after {signal}", asked.elapsed());
        run.ended_with(130);
        assert_eq!(run.document["interrupted"], true);
        assert_eq!(run.document["counts"]["planned"], 50);
        assert_eq!(run.outcomes(), ["ok", "incomplete", "incomplete", "incomplete"]);
        for row in &run.rows[1..] {
            check_stamps(row, Reached::Output, false).unwrap();
            assert_eq!(row["output_tokens"], row["content_chunks"], "the tokens so far count");
            assert!(row["content_chunks"].as_u64().unwrap() > 1);
        }
        run.counts_agree();
    }
}

#[test]
fn a_signal_while_connections_are_idle_or_waited_for_ends_the_run_too() {
    // Nobody answers: the requests are cut where they stand.
    let server = Server::start(|_: &mut Peer, _: &Request| Then::Hang);
    let running = start(&server.base_url(), 50, 3, &[], &[]);
    while server.requests().len() < 3 {
        std::thread::sleep(Duration::from_millis(5));
    }
    running.signal(Signal::SIGINT);
    let asked = Instant::now();
    let run = running.wait();
    assert!(asked.elapsed() < RESULTS_WITHIN);
    run.ended_with(130);
    assert_eq!(run.outcomes(), ["incomplete"; 3]);
    for row in &run.rows {
        check_stamps(row, Reached::Sent, false).unwrap();
    }
}

#[test]
fn exit_codes_follow_from_what_the_requests_came_to() {
    let failing_from = |first: usize| {
        Server::start(move |peer: &mut Peer, request: &Request| {
            if request.index >= first {
                peer.say("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
            } else {
                peer.say(good());
            }
            Then::Keep
        })
    };
    for (first, code) in [(4, 0), (3, 1), (0, 3)] {
        let server = failing_from(first);
        let run = run(&server.base_url(), 4, 2, &[]);
        run.ended_with(code);
        assert_eq!(run.document["counts"]["ok"], first);
        assert_eq!(run.document["counts"]["sent"], 4);
    }
}

#[test]
fn a_mistake_on_the_command_line_is_one_sentence_and_nothing_is_sent() {
    let server = Server::start(|peer: &mut Peer, _: &Request| {
        peer.say(good());
        Then::Keep
    });
    let scratch = tempfile::tempdir().unwrap();
    let mistakes: [&[&str]; 6] = [
        &["--concurrency", "0"],
        &["--requests", "many"],
        &["--idle-timeout", "-1s"],
        &["--header", "no colon"],
        &["--no-such-flag"],
        &["--controlled-output-policy", "lenient"],
    ];
    for flags in mistakes {
        let output = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
            .args(["run", "--base-url", &server.base_url(), "--model", "m", "--max-model-len", "8192"])
            .args(flags)
            .arg("--out")
            .arg(scratch.path().join("run"))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{flags:?}: {said}");
        let flag = flags[0].trim_start_matches('-');
        assert!(said.contains(flag), "{flags:?}: {said}");
        assert!(output.stdout.is_empty());
        assert!(!scratch.path().join("run").exists(), "{flags:?} left a run behind");
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn what_no_server_could_make_valid_is_refused_before_the_server_is_asked_anything() {
    let server = Server::start(|peer: &mut Peer, _: &Request| {
        peer.say(good());
        Then::Keep
    });
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("run");
    let artifact = out.join("artifact.json");
    let too_small = ["--ctx-tokens", "32", "--request-canaries", "--response-words", "10"];
    let own_file = ["--model", "m", "--max-model-len", "8192", "--json-out", artifact.to_str().unwrap()];
    std::fs::create_dir(&out).unwrap();
    for flags in [&too_small[..], &own_file[..], &[&own_file[..], &["--overwrite"]].concat()[..]] {
        let output = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
            .args(["run", "--base-url", &server.base_url(), "--out"])
            .arg(if flags == too_small { scratch.path().join("other") } else { out.clone() })
            .args(flags)
            .env_remove("OPENAI_API_KEY")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{flags:?}: {said}");
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0, "nothing is left behind");
    assert!(!scratch.path().join("other").exists());
}

/// A terminal sends Ctrl-C to every process of its foreground group.
#[test]
fn ctrl_c_in_a_terminal_ends_the_run_and_not_its_simulator_first() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("run");
    let mut child = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
        .args(["run", "--sim=ttft=20ms;itl=5ms", "--requests", "1000", "--concurrency", "20"])
        .args(["--max-tokens", "64", "--progress", "none", "--quiet", "--out"])
        .arg(&out)
        .process_group(0)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let requests = out.join("requests.jsonl.part");
    let some = || std::fs::metadata(&requests).is_ok_and(|file| file.len() > 0);
    // The recorder hands lines over once a second.
    for _ in 0..1_000 {
        if some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::killpg(group, Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let text = std::fs::read_to_string(out.join("run.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["counts"]["failed"], 0, "{}", document["counts"]);
    assert!(document["counts"]["ok"].as_u64().unwrap() > 0, "{}", document["counts"]);
}
