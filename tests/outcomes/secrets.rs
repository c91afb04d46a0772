//! The key is sent and shown nowhere, not even when the server shows it to us.

use crate::answers::{TOKEN, chunks};
use crate::run::{Run, start};
use crate::server::{Peer, Request, Server, Then};

const KEY: &str = "sk-hs-0123456789abcdefghijklmnopqrstuv";
const HEADER: &str = "hs-header-9876543210zyxwvutsrqponm";

/// Files in which a secret stands, with what is around it.
fn leaks(run: &Run, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for path in run.files() {
        let bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(secret.len()).position(|window| window == secret.as_bytes()) {
            let around = &bytes[at.saturating_sub(60)..at + secret.len()];
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push(format!("{name}: {}", String::from_utf8_lossy(around)));
        }
    }
    found
}

/// Runs against a server that makes its answers from the secrets it was sent.
fn run_with_secrets(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Run {
    let server = Server::start(move |peer: &mut Peer, request: &Request| {
        let field = |name: &str| {
            let line = request.head.lines().find(|line| line.to_lowercase().starts_with(name)).unwrap();
            line.split_once(": ").unwrap().1.to_owned()
        };
        assert_eq!(field("authorization"), format!("Bearer {KEY}"));
        peer.say(answer(&format!("{} and {}", field("authorization"), field("x-api-key"))));
        Then::Close
    });
    let header = format!("X-Api-Key: {HEADER}");
    let running = start(&server.base_url(), 2, 1, &["--header", &header], &[("OPENAI_API_KEY", KEY)]);
    running.wait()
}

fn plain(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

#[track_caller]
fn assert_silent(run: &Run) {
    for secret in [KEY, HEADER] {
        let leaks = leaks(run, secret);
        assert!(leaks.is_empty(), "{} files show it:\n{}", leaks.len(), leaks.join("\n"));
    }
}

#[test]
fn a_good_run_shows_no_secret() {
    let run = run_with_secrets(|_| crate::answers::good());
    run.all_ok(2);
    assert_silent(&run);
}

#[test]
fn an_error_body_that_repeats_the_key_does_not_bring_it_into_the_documents() {
    let run = run_with_secrets(|said| {
        let body = format!("{{\"error\":{{\"message\":\"Incorrect key: {said}\",\"code\":\"{said}\"}}}}");
        plain("401 Unauthorized", "Content-Type: application/json\r\n", &body)
    });
    assert_eq!(run.outcomes(), ["http_error"; 2]);
    assert_silent(&run);
}

#[test]
fn no_other_part_of_an_answer_brings_the_key_into_the_documents() {
    let answers: [fn(&str) -> String; 6] = [
        |said| plain(&format!("403 {said}"), "", ""),
        |said| plain("307 Go", &format!("Location: /login?as={said}\r\n"), ""),
        |said| plain("200 OK", "Content-Type: text/html\r\n", &format!("<html>{said}</html>")),
        |said| chunks(&[TOKEN, &format!("data: {{\"error\":{{\"message\":\"{said}\"}}}}\n\n")]),
        |said| chunks(&[TOKEN, &format!("data: {{broken {said}\n\n"), TOKEN]) + "0\r\n\r\n",
        |said| {
            chunks(&[
                &TOKEN.replace("null", &format!("\"{said}\"")),
                &format!(
                    "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{said}\"}}]}}\n\n"
                ),
            ])
        },
    ];
    for answer in answers {
        let run = run_with_secrets(answer);
        assert_eq!(run.document["counts"]["ok"], 0);
        assert_silent(&run);
    }
}
