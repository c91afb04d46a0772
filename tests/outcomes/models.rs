//! The question for the server's models before the run: how long it may take, what is said of it, and how a run ends that
//! it gave no model.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::run::start;
use crate::server::{Peer, Request, Server, Then};

/// Nothing here may take the 15 s of the question's own limit.
const SOON: Duration = Duration::from_secs(10);

fn asking(dir: &std::path::Path, base: &str, flags: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_hammerscale"))
        .args(["run", "--out", "run", "--base-url", base])
        .args(flags)
        .current_dir(dir)
        .env_remove("OPENAI_API_KEY")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The exit code and what was said, of a run that leaves nothing.
#[track_caller]
fn ended(child: Child, dir: &std::path::Path) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(stdout.is_empty() && std::fs::read_dir(dir).unwrap().count() == 0, "{said}");
    (status.code(), said)
}

/// A server that takes connections and says nothing.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    (listener, origin)
}

#[test]
fn the_limits_of_requests_hold_for_it_and_a_wait_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (_listener, origin) = silent();
    for (flags, told) in [
        (&["--timeout", "1500ms"][..], true),
        (&["--idle-timeout", "1500ms", "--progress", "plain"], true),
        (&["--timeout", "1500ms", "--progress", "none"], false),
        (&["--timeout", "1500ms", "--quiet"], false),
        (&["--timeout", "200ms"], false),
    ] {
        let begun = Instant::now();
        let (code, said) = ended(asking(dir.path(), &origin, flags), dir.path());
        assert!(begun.elapsed() < SOON, "{flags:?}: {:?}", begun.elapsed());
        let asked = format!("hammerscale: asking {origin}/v1/models for its models\n");
        let last = format!(
            "hammerscale: --model is missing: {origin}/v1/models was asked for it, and there was no answer in time; \
             give --model\n"
        );
        let want = if told { asked + &last } else { last };
        assert_eq!((code, said), (Some(2), want), "{flags:?}");
    }
}

#[test]
fn what_came_instead_of_a_list_is_told_with_the_url() {
    let answers = [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status 404"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "an answer that is no JSON list of models"),
        ("SSH-2.0-OpenSSH\r\n", "no HTTP answer ("),
        ("", "no HTTP answer ("),
    ];
    for (answer, came) in answers {
        let dir = tempfile::tempdir().unwrap();
        let (listener, origin) = silent();
        let server = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _ = std::io::Read::read(&mut peer, &mut head).unwrap();
            peer.write_all(answer.as_bytes()).unwrap();
        });
        let (code, said) = ended(asking(dir.path(), &origin, &[]), dir.path());
        server.join().unwrap();
        let start = format!(
            "hammerscale: --model is missing: {origin}/v1/models was asked for it, and there was {came}"
        );
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.starts_with(&start) && said.ends_with("; give --model\n"), "{said}");
    }
}

#[test]
fn a_signal_meanwhile_ends_the_run_and_says_that_nothing_was_written() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let dir = tempfile::tempdir().unwrap();
        let (listener, origin) = silent();
        let child = asking(dir.path(), &origin, &["--progress", "none"]);
        let _peer = listener.accept().unwrap();
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let begun = Instant::now();
        let (code, said) = ended(child, dir.path());
        assert!(begun.elapsed() < SOON);
        let want = "hammerscale: interrupted before the first request: nothing was measured or written\n";
        assert_eq!((code, said.as_str()), (Some(130), want));
    }
}

#[test]
fn a_second_signal_ends_at_once_and_says_what_that_leaves() {
    let server = Server::start(|_: &mut Peer, _: &Request| Then::Hang);
    let mut running = start(&server.base_url(), 4, 2, &[], &[]);
    while server.requests().len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..40 {
        let _ = kill(running.pid(), Signal::SIGINT);
        let _ = kill(running.pid(), Signal::SIGTERM);
    }
    assert_eq!(running.wait_for_code(), 130);
    let said = running.read("stderr");
    // Whether the second one comes before the results are written is a matter of microseconds.
    let results = !running.read("run/run.json").is_empty();
    assert!(results != said.contains("ended at once by a second signal: files named .part"), "{said}");
}
