//! The command itself: refusals, addresses, the ledger as JSON lines.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::client::{Sim, chat_body, post_chat};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.arg("sim").args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn what_cannot_work_is_one_sentence_and_exit_code_2() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, names) in [
        (vec!["--ttft", "soon"], "--ttft"),
        (vec!["--itl", "normal:1ms"], "--itl"),
        (vec!["--profile", "none"], "--profile"),
        (vec!["--listen", &taken], "--listen"),
        (vec!["--listen", "192.0.2.1:1"], "--listen"),
        (vec!["--ledger", "/nowhere/at/all"], "--ledger"),
        (vec!["--cores", "1000"], "--cores"),
        (vec!["--exit-with-stdin"], "--exit-with-stdin"),
        (vec!["--dump-ledger", "/dev/null"], "HSLEDGER"),
        (vec!["--dump-ledger", "/nowhere"], "/nowhere"),
    ] {
        let output = run(&arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(names) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_file_that_is_no_ledger_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for text in ["{\"schema\": \"hammerscale.run/1.2\"}", "HS", "HSLEDGEr and more"] {
        std::fs::write(at("run.json"), text).unwrap();
        let output = run(&["--ledger", at("run.json").to_str().unwrap()]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains("--ledger") && stderr.contains("no ledger"), "{stderr}");
        assert_eq!(std::fs::read_to_string(at("run.json")).unwrap(), text);
    }
    // An empty file and a ledger are replaced. The end of standard input is the simulator's.
    let ledger = at("ledger").display().to_string();
    std::fs::write(&ledger, "").unwrap();
    for seed in ["7", "8"] {
        let serve = ["--exit-with-stdin", "--seed", seed, "--ledger", &ledger];
        let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
        let output = command.arg("sim").args(serve).stdin(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(hammerscale::sim::ledger::read(&at("ledger")).unwrap().header.seed.to_string(), seed);
    }
}

#[test]
fn it_listens_where_it_is_told() {
    let sim = Sim::start(&["--listen=127.0.0.1:0"]);
    assert!(sim.address.ip().is_loopback() && sim.address.port() > 0);
    if TcpListener::bind("[::1]:0").is_ok() {
        let sim = Sim::start(&["--listen=[::1]:0", "--profile=instant"]);
        assert!(sim.address.is_ipv6());
        assert_eq!(sim.connect().chat(&chat_body("x", 1, true), None).events().len(), 5);
        assert!(sim.finish().connections[0].opened.peer.is_ipv6());
    }
}

#[test]
fn a_core_can_be_chosen() {
    let sim = Sim::start(&["--cores=0", "--profile=instant"]);
    assert_eq!(sim.connect().chat(&chat_body("x", 1, true), None).events().len(), 5);
    assert_eq!(sim.finish().requests.len(), 1);
}

#[test]
fn a_ledger_can_be_printed() {
    let mut sim = Sim::start(&["--profile=instant", "--seed=9"]);
    let mut client = sim.connect();
    let response = client.chat(&chat_body("x", 3, true), Some("a\"b"));
    drop(client);
    sim.close_stdin();
    assert!(sim.wait().success());
    let path = sim.ledger_path();
    let output = run(&["--dump-ledger", path.to_str().unwrap()]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let lines: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |record: &str| lines.iter().filter(|l| l["record"] == record).collect::<Vec<_>>();
    assert_eq!((&of("header")[0]["seed"], &of("header")[0]["version"]), (&9.into(), &2.into()));
    assert_eq!(of("request_arrived")[0]["request_id"], "a\"b");
    let kinds: Vec<_> = of("event_sent").iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["role", "content", "content", "content", "finish", "usage", "done"]);
    assert_eq!(kinds.len(), response.chunks.len());
    assert_eq!(of("end")[0]["events"], 7);
    // Cut short, it is printed up to the cut, which is said.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 60]).unwrap();
    let output = run(&["--dump-ledger", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cut short"));
    assert!(output.stdout.len() > 500);
}

#[test]
fn a_ledger_that_cannot_be_written_on_ends_it_with_an_error() {
    let output = run(&["--ledger", "/dev/full"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--ledger /dev/full: "));
    // A limit on the file's size fails later, when the simulator serves already: 64 blocks of 512 or 1,024 bytes.
    let mut sim = Sim::start_limited("-f 64", &["--profile=instant"]);
    let mut client = sim.connect();
    for _ in 0..10 {
        // It may end in the middle of an answer.
        let bytes = post_chat(&chat_body("x", 1000, false), None);
        if client.stream.write_all(&bytes).is_err()
            || client.stream.read(&mut [0; 65_536]).is_ok_and(|n| n == 0)
        {
            break;
        }
        let _ = client.stream.write_all(&post_chat(&chat_body("x", 1000, true), None));
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(sim.wait().code(), Some(70));
    assert!(sim.complaint().contains("the ledger could not be written"));
    let ledger = hammerscale::sim::ledger::read(&sim.ledger_path()).unwrap();
    assert!(!ledger.is_complete() && !ledger.requests.is_empty());
}
