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

/// The key stands wherever a user can put it a second time.
#[test]
fn a_key_that_was_typed_in_other_places_too_is_shown_in_none_of_them() {
    let server = Server::start(|peer: &mut Peer, _: &Request| {
        peer.say(crate::answers::good());
        Then::Close
    });
    let extra = format!("{{\"user\":\"{KEY}\",\"metadata\":{{\"{KEY}\":[\"of {KEY}\"]}}}}");
    let label = format!("{KEY}={KEY}");
    let (base, dir) = (format!("{}/{KEY}", server.base_url().trim_end_matches("/v1")), format!("out-{KEY}"));
    let typed = ["--extra-body", &extra, "--label", &label, "--model", KEY, "--engine", KEY, "--gpu", KEY];
    let typed: Vec<&str> = typed.into_iter().chain(["--tier", KEY, "--manifest", KEY]).collect();
    let run = start(
        &base,
        2,
        1,
        &[&typed[..], &["--header", &format!("X-{KEY}: 1")]].concat(),
        &[("OPENAI_API_KEY", KEY)],
    );
    let run = run.wait();
    run.all_ok(2);
    assert!(run.files().iter().any(|file| file.ends_with("artifact.json")));
    assert_eq!(run.document["spec"]["labels"]["labels"]["[masked]"], "[masked]");
    assert_eq!(run.document["spec"]["body"]["extra_body"]["user"], "[masked]");
    assert_eq!(run.document["target"]["model"], "[masked]");
    assert_silent(&run);
    assert!(server.requests().iter().all(|request| request.head.contains(KEY)));
    let plain = ["--endpoint", "http", "--header", &format!("Authorization: Bearer {KEY}")];
    let run = start(&base, 2, 1, &plain, &[]).wait();
    run.all_ok(2);
    assert_silent(&run);
    for format in ["text", "json"] {
        let shown = std::process::Command::new(env!("CARGO_BIN_EXE_hammerscale"))
            .args(["run", "--dry-run", "--base-url", &base, "--out", &dir, "--format", format])
            .args(&typed)
            .env("OPENAI_API_KEY", KEY)
            .output()
            .unwrap();
        let text = String::from_utf8([shown.stdout, shown.stderr].concat()).unwrap();
        assert!(text.contains("[masked]") && !text.contains(KEY), "{text}");
    }
}

#[test]
fn credentials_of_others_in_a_redirect_are_masked() {
    let run =
        run_with_secrets(|_| plain("307 Go", "Location: http://me:hunter2@h/x?api_key=abcdefgh&v=2\r\n", ""));
    assert_eq!(run.outcomes(), ["redirect"; 2]);
    assert_eq!(run.rows[0]["error"]["location"], "http://***@h/x?api_key=***&v=2");
    for secret in ["hunter2", "abcdefgh"] {
        assert!(leaks(&run, secret).is_empty());
    }
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
