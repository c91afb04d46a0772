//! Plain requests against a server that nobody here wrote: nginx, whose access log is the witness.
//!
//! Why: a load generator's first duty is that what it counts is what happened. For every request id the log must have
//! the status, the bytes that came and the bytes that went which the client wrote down, and as many lines as requests.
//!
//! nginx has to be installed, so the test runs only with `HAMMERSCALE_NGINX_TESTS=1` and says so when it is left out.
//! With the variable set, nginx is mandatory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]
// Deadlines of this test; nothing is measured by them.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Switches the test on.
const SWITCH: &str = "HAMMERSCALE_NGINX_TESTS";
/// nginx listens within milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// A line is in the log when its connection's next request is read, or soon after the answer.
const LOGGED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Requests of the mixed run.
const MIXED: usize = 2_000;
/// Bytes of the page: more than one read of the client takes.
const PAGE_BYTES: usize = 123_456;

/// The last digit of a request's id decides its answer, so that one run gets all of them. A body is read whole only on
/// its way to somebody else: `/sink`, which does not log.
const CONFIGURATION: &str = r#"
daemon off;
master_process off;
pid DIR/pid;
error_log DIR/error.log;
events { worker_connections 256; }
http {
    log_format counts '$http_x_request_id $request_method $status $bytes_sent $request_length $body_bytes_sent';
    access_log DIR/access.log counts;
    client_body_temp_path DIR/body;
    proxy_temp_path DIR/proxy;
    fastcgi_temp_path DIR/fastcgi;
    uwsgi_temp_path DIR/uwsgi;
    scgi_temp_path DIR/scgi;
    keepalive_requests 100;
    map $http_x_request_id $answer {
        default page;
        ~[258]$ missing;
        ~[07]$ moved;
    }
    server {
        listen ADDRESS;
        root DIR/pages;
        location = /mixed { rewrite ^ /$answer last; }
        location = /moved { return 302 /page; }
        location = /post { proxy_pass http://ADDRESS/sink; }
        location = /sink { access_log off; return 204; }
    }
}
"#;

#[test]
fn every_plain_request_is_what_nginx_logged() {
    if !switched_on() {
        // Not `eprintln!`: the test harness would swallow it, and a test that is left out must say so.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "nginx: left out. To run it: install nginx, then {SWITCH}=1").unwrap();
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let nginx = Nginx::start(scratch.path());

    let mixed = nginx.measure("mixed", MIXED, &[]);
    assert_eq!(mixed.code, 1, "some requests failed: {}", mixed.stderr);
    let by_digit = |digits: &[usize]| (0..MIXED).filter(|i| digits.contains(&(i % 10))).count() as u64;
    let (ok, missing, moved) = (by_digit(&[1, 3, 4, 6, 9]), by_digit(&[2, 5, 8]), by_digit(&[0, 7]));
    mixed.counts(&[("200", ok), ("302", moved), ("404", missing)]);
    let outcomes = &mixed.document["counts"]["by_outcome"];
    assert_eq!((&outcomes["ok"], &outcomes["http_error"]), (&ok.into(), &missing.into()));
    assert_eq!(
        (&outcomes["redirect"], &mixed.document["counts"]["failed"]),
        (&moved.into(), &(missing + moved).into())
    );
    // Its connections were kept as long as nginx kept them: a hundred requests each.
    assert!(mixed.rows.iter().any(|row| row["connection_use"] == 99), "no connection was kept to its end");

    let head = nginx.measure("page", 200, &["--method", "HEAD"]);
    assert_eq!(head.code, 0, "{}", head.stderr);
    head.counts(&[("200", 200)]);
    assert!(head.rows.iter().all(|row| row["body_bytes"] == 0));

    let file = scratch.path().join("upload");
    for bytes in [0, 100, 300_000] {
        fs::write(&file, vec![b'x'; bytes]).unwrap();
        let post = nginx.measure("post", 200, &["--method", "POST", "--body", file.to_str().unwrap()]);
        assert_eq!(post.code, 0, "{}", post.stderr);
        post.counts(&[("204", 200)]);
        assert!(post.rows.iter().all(|row| row["bytes_sent"].as_u64().unwrap() > bytes as u64));
    }
    let fresh = nginx.measure("page", 100, &["--connection", "fresh"]);
    fresh.counts(&[("200", 100)]);
}

/// # Panics
/// When the switch has a value that means neither on nor off: a misspelt switch must not leave the test out.
fn switched_on() -> bool {
    match std::env::var(SWITCH).as_deref() {
        Err(_) | Ok("" | "0") => false,
        Ok("1") => true,
        Ok(other) => panic!("{SWITCH} is `{other}`: set it to 1, or not at all"),
    }
}

/// A server of our own. It ends with this value.
struct Nginx<'a> {
    child: Child,
    address: SocketAddr,
    dir: &'a Path,
}

/// A run, compared with the log.
struct Run {
    code: i32,
    rows: Vec<Value>,
    document: Value,
    stderr: String,
}

impl<'a> Nginx<'a> {
    fn start(dir: &'a Path) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        fs::create_dir(dir.join("pages")).unwrap();
        fs::write(dir.join("pages/page"), vec![b'a'; PAGE_BYTES]).unwrap();
        let text =
            CONFIGURATION.replace("DIR", dir.to_str().unwrap()).replace("ADDRESS", &address.to_string());
        fs::write(dir.join("nginx.conf"), text).unwrap();
        let mut child = Command::new("nginx")
            .arg("-p")
            .arg(dir)
            .arg("-c")
            .arg(dir.join("nginx.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("nginx.stderr")).unwrap())
            .spawn()
            .expect("nginx is installed");
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = child.try_wait().unwrap();
            let said = fs::read_to_string(dir.join("nginx.stderr")).unwrap_or_default();
            assert!(ended.is_none() && begun.elapsed() < READY_WITHIN, "nginx {ended:?}: {said}");
            std::thread::sleep(LOOK_AGAIN);
        }
        Self { child, address, dir }
    }

    /// Runs plain requests to a page and compares each one with its line of the log.
    fn measure(&self, page: &str, requests: usize, flags: &[&str]) -> Run {
        let log = self.dir.join("access.log");
        fs::write(&log, "").unwrap();
        let out = self.dir.join("run");
        let output = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
            .args(["run", "--endpoint", "http", "--base-url", &format!("http://{}/{page}", self.address)])
            .args(["--requests", &requests.to_string(), "--concurrency", "16", "--timeout", "30s"])
            .args(["--progress", "none", "--overwrite", "--out"])
            .arg(&out)
            .args(flags)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
        let rows: Vec<Value> =
            read("requests.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let document = serde_json::from_str(&read("run.json")).unwrap();
        assert_eq!(rows.len(), requests);
        assert!(!out.join("artifact.json").exists(), "no reference artifact can be made of plain requests");
        let logged = self.logged(requests);
        for row in &rows {
            let line = logged.get(row["request_id"].as_str().unwrap());
            let ours = ["http_status", "bytes_received", "bytes_sent", "body_bytes"]
                .map(|key| row[key].as_u64().unwrap_or(u64::MAX));
            assert_eq!(line, Some(&ours), "{row}");
        }
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Run { code: output.status.code().unwrap_or(-1), rows, document, stderr }
    }

    /// Status, bytes sent, bytes of the request and bytes of the body by request id.
    fn logged(&self, requests: usize) -> BTreeMap<String, [u64; 4]> {
        let begun = Instant::now();
        loop {
            let text = fs::read_to_string(self.dir.join("access.log")).unwrap();
            let lines = text.lines().count();
            if lines >= requests || begun.elapsed() > LOGGED_WITHIN {
                assert_eq!(lines, requests, "lines in the log");
                let parsed: BTreeMap<_, _> = text.lines().map(line).collect();
                assert_eq!(parsed.len(), requests, "an id came twice");
                return parsed;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Nginx<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    /// Fails unless the document counts these statuses and no others.
    #[track_caller]
    fn counts(&self, statuses: &[(&str, u64)]) {
        let wanted: serde_json::Map<String, Value> =
            statuses.iter().map(|(status, count)| ((*status).to_owned(), (*count).into())).collect();
        assert_eq!(self.document["counts"]["by_status"], Value::Object(wanted));
        let warnings = self.document["warnings"].as_array().unwrap();
        let about_tokens = ["no_usage", "role_chunk_first", "output_length", "reference_counts_differ"];
        assert!(
            !warnings.iter().any(|w| about_tokens.contains(&w["code"].as_str().unwrap())),
            "{warnings:?}"
        );
    }
}

fn line(text: &str) -> (String, [u64; 4]) {
    let words: Vec<&str> = text.split(' ').collect();
    let numbers = words[2..].iter().map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
    (words[0].to_owned(), numbers.try_into().unwrap())
}
