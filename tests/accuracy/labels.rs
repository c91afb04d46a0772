//! Where the time of slow requests went: a slow server, a client that was held up, and a line that loses the request
//! are each told by their name.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

use hammerscale::report::document::slowest::SlowDoc;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::product::{Finished, Guarded, run_to_its_end};
use crate::{ALONE, say};

/// The slowest requests that a document shows.
const SHOWN: usize = 10;

#[test]
fn a_slow_server_is_the_server() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = tempfile::tempdir().unwrap();
    let flags = ["--sim=ttft=300ms;itl=5ms;tokens=3", "--requests=20", "--concurrency=5", "--max-tokens=3"];
    let run = run_to_its_end(scratch.path(), &flags, |_| ());
    let slowest = told("a slow server", &run);
    assert_eq!(slowest.len(), SHOWN);
    for slow in &slowest {
        assert_eq!(slow.label, "server", "{slow:?}");
        assert!(slow.server_ms >= 300.0, "{slow:?}");
        let rtt = slow.rtt_us.expect("the kernel knows the round trip");
        assert!(rtt < 10_000 && slow.retransmits == Some(0), "{slow:?}");
    }
    let ordered = slowest.is_sorted_by(|a, b| total(a) >= total(b));
    assert!(
        ordered && slowest.iter().all(|slow| slow.request_id.ends_with(&format!("-{}", slow.request_index)))
    );
}

#[test]
fn a_client_that_is_held_up_is_the_client() {
    /// A request takes a fifth of this: those that are under way when the client stops have long ended when it goes on.
    const STOPPED: Duration = Duration::from_secs(2);
    const SLOTS: usize = 4;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = tempfile::tempdir().unwrap();
    let flags =
        ["--sim=ttft=100ms;itl=10ms;tokens=30", "--requests=40", "--concurrency=4", "--max-tokens=30"];
    let growing = scratch.path().join("run/requests.jsonl.part");
    let run = run_to_its_end(scratch.path(), &flags, |product| {
        wait_for(&growing);
        std::thread::sleep(Duration::from_secs(1));
        stop_for(product, STOPPED);
    });
    let slowest = told("a client that was held up", &run);
    let held: Vec<&SlowDoc> = slowest.iter().take_while(|slow| slow.label == "client").collect();
    assert_eq!(held.len(), SLOTS, "{slowest:?}");
    for slow in held {
        // By the kernel's stamp the answer came in its own time: the wait is in no latency, and is told here.
        assert!(slow.client_ms >= STOPPED.as_secs_f64() * 1e3 * 0.5, "{slow:?}");
        assert!(slow.e2e_from_due_ms.unwrap() < STOPPED.as_secs_f64() * 1e3 * 0.5, "{slow:?}");
    }
}

/// A line of 8 KiB a second from the client to the server, whose queue holds two segments or many. Requests are three
/// segments long: in the one case the kernel sends again, in the other they only wait. Answers come back unhindered.
#[test]
fn a_line_that_loses_or_delays_the_request_is_the_network() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (what, queue_bytes, loses) in [("a line that loses", "3000", true), ("a slow line", "200000", false)]
    {
        let line = match Line::new(queue_bytes) {
            Ok(line) => line,
            Err(reason) => return say(&format!("left out, a line between two network namespaces: {reason}")),
        };
        let slowest = told(what, &line.run());
        assert!(!slowest.is_empty());
        for slow in &slowest {
            assert_eq!(slow.label, "network", "{slow:?}");
            assert!(slow.rtt_us.is_some(), "{slow:?}");
        }
        // On the slow line the kernel may send the last segment again, because it hears nothing of it for so long.
        let sent_again = slowest.iter().all(|slow| slow.retransmits.is_some_and(|n| n > 0));
        assert!(sent_again || !loses, "{slowest:?}");
    }
}

fn told(what: &str, run: &Finished) -> Vec<SlowDoc> {
    let slowest = run.document().slowest.clone();
    say(&format!("the slowest requests of {what}, ms"));
    for slow in slowest.iter().take(5) {
        let SlowDoc { label, client_ms, network_ms, server_ms, retransmits, rtt_us, .. } = slow;
        let (sent_again, rtt) = (retransmits.unwrap(), rtt_us.unwrap());
        say(&format!(
            "  {label:<8} client {client_ms:>8.2}  network {network_ms:>8.2}  server {server_ms:>8.2}  sent again {sent_again}, {rtt} µs"
        ));
    }
    slowest
}

fn total(slow: &SlowDoc) -> f64 {
    slow.client_ms + slow.network_ms + slow.server_ms
}

fn wait_for(path: &Path) {
    let is_there = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        path.exists()
    });
    assert!(is_there, "{} never came", path.display());
}

fn stop_for(product: Pid, span: Duration) {
    kill(product, Signal::SIGSTOP).unwrap();
    std::thread::sleep(span);
    kill(product, Signal::SIGCONT).unwrap();
}

/// Two network namespaces and a line between them. Needs to be root, and a kernel with the parts.
struct Line {
    client: Namespace,
    server: Namespace,
}

struct Namespace(String);

/// Addresses of a private network that nobody else in these namespaces has.
const CLIENT: &str = "10.231.7.1";
const SERVER: &str = "10.231.7.2";

impl Line {
    /// # Errors
    /// What this machine does not have.
    fn new(queue_bytes: &str) -> Result<Self, String> {
        let pid = std::process::id();
        let line = Self {
            client: Namespace::new(&format!("hs-client-{pid}"))?,
            server: Namespace::new(&format!("hs-server-{pid}"))?,
        };
        let (client, server) = (line.client.0.as_str(), line.server.0.as_str());
        call(&["ip", "-n", client, "link", "add", "out", "type", "veth", "peer", "in", "netns", server])?;
        for (namespace, device, address) in [(client, "out", CLIENT), (server, "in", SERVER)] {
            call(&["ip", "-n", namespace, "address", "add", &format!("{address}/24"), "dev", device])?;
            call(&["ip", "-n", namespace, "link", "set", device, "up"])?;
            // The product looks whether the kernel stamps on the loopback device.
            call(&["ip", "-n", namespace, "link", "set", "lo", "up"])?;
        }
        let bucket = ["root", "tbf", "rate", "8kbps", "burst", "1600", "limit", queue_bytes];
        call(&[&["tc", "-n", client, "qdisc", "add", "dev", "out"], &bucket[..]].concat())?;
        Ok(line)
    }

    fn run(&self) -> Finished {
        let listen = format!("{SERVER}:0");
        let arguments = [
            "sim",
            "--listen",
            &listen,
            "--ttft",
            "20ms",
            "--itl",
            "1ms",
            "--tokens",
            "2",
            "--exit-with-stdin",
        ];
        let mut server = Guarded(self.server.inside(|| spawn(&arguments)));
        let mut first = String::new();
        BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        let address = first.split_whitespace().find(|word| word.contains(SERVER)).expect(&first);
        let base_url =
            if address.starts_with("http") { address.to_owned() } else { format!("http://{address}/v1") };
        let scratch = tempfile::tempdir().unwrap();
        // Some four bytes a token; and no question about models, which would fill the bucket.
        let flags = [
            "--base-url",
            &base_url,
            "--model=hammerscale-sim",
            "--max-model-len=32768",
            "--ctx-tokens=900",
            "--requests=3",
            "--concurrency=1",
            "--max-tokens=2",
        ];
        self.client.inside(|| run_to_its_end(scratch.path(), &flags, |_| ()))
    }
}

impl Namespace {
    fn new(name: &str) -> Result<Self, String> {
        call(&["ip", "netns", "add", name])?;
        Ok(Self(name.to_owned()))
    }

    /// Does something on a thread that is in this namespace: what it starts is too.
    fn inside<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        let path: PathBuf = ["/run/netns", &self.0].iter().collect();
        let place = File::open(path).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(place, CloneFlags::CLONE_NEWNET).unwrap();
                job()
            });
            inside.join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = call(&["ip", "netns", "del", &self.0]);
    }
}

fn spawn(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn call(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{}: {error}", words[0])),
    }
}
