//! What holds for every flag, whichever it is: the binary refuses each listed mistake and sends nothing; values of the
//! wrong type or out of range are refused; and no two flags together do anything but work or be refused by name.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Command, Output};

use hammerscale::config::args;

use super::mistakes::{BLANK_KEY, KEY, MISTAKES};
use super::run_in;

/// A good value of every flag that takes one. Tests run where `Cargo.toml` is; a Linux kernel says its one-word name.
const GOOD: &[(&str, &str)] = &[
    ("base-url", "http://127.0.0.1:9/v1"),
    ("endpoint-path", "/x"),
    ("sim", "fast"),
    ("endpoint", "completions"),
    ("model", "m"),
    ("api-key-env", "KEY"),
    ("api-key-file", "/proc/sys/kernel/ostype"),
    ("header", "X-A: 1"),
    ("method", "PUT"),
    ("body", "LICENSE"),
    ("requests", "10"),
    ("concurrency", "2"),
    ("rate", "12.5"),
    ("arrival", "constant"),
    ("burst", "3"),
    ("connection", "fresh"),
    ("source-ip", "127.0.0.2"),
    ("timeout", "5s"),
    ("idle-timeout", "4s"),
    ("connect-timeout", "3s"),
    ("compat", "anvil"),
    ("ctx-tokens", "64"),
    ("seed", "7"),
    ("max-tokens", "32"),
    ("response-words", "5"),
    ("prompt-cache-mode", "shared"),
    ("prompts", "same"),
    ("shared-prefix-tokens", "100"),
    ("controlled-output-policy", "strict"),
    ("max-model-len", "8192"),
    ("margin", "16"),
    ("capture-limit", "100"),
    ("temperature", "0.5"),
    ("top-p", "0.9"),
    ("thinking-mode", "disabled"),
    ("reasoning-effort", "low"),
    ("max-tokens-field", "max_completion_tokens"),
    ("extra-body", "{\"min_p\": 0.1}"),
    ("workers", "1"),
    ("cores", "0"),
    ("stamps", "user"),
    ("max-client-error", "50us"),
    ("out", "target/no-such-run"),
    ("json-out", "target/no-such-artifact.json"),
    ("progress", "none"),
    ("format", "json"),
    ("engine", "e"),
    ("gpu", "g"),
    ("tier", "t"),
    ("manifest", "m"),
    ("source-recipe", "s"),
    ("clock-domain-id", "c"),
    ("configuration-fingerprint", "sha256:0000000000000000000000000000000000000000000000000000000000000000"),
    ("label", "k=v"),
    ("config", "/dev/null"),
];

/// Any text is a good value of these: a name, a label, a path that need not exist.
const FREE_TEXT: [&str; 8] =
    ["model", "engine", "gpu", "tier", "manifest", "source-recipe", "out", "json-out"];

/// Numbers and durations.
const NUMBERS: [&str; 21] = [
    "requests",
    "concurrency",
    "rate",
    "burst",
    "timeout",
    "idle-timeout",
    "connect-timeout",
    "ctx-tokens",
    "seed",
    "max-tokens",
    "response-words",
    "shared-prefix-tokens",
    "max-model-len",
    "margin",
    "capture-limit",
    "temperature",
    "top-p",
    "workers",
    "cores",
    "source-ip",
    "max-client-error",
];

fn env() -> [(&'static str, &'static str); 2] {
    [("KEY", KEY), ("BLANK", BLANK_KEY)]
}

fn flags() -> Vec<(String, bool)> {
    let command = args::command();
    command
        .get_arguments()
        .map(|arg| (arg.get_long().unwrap().to_owned(), arg.get_action().takes_values()))
        .collect()
}

fn good(flag: &str) -> Option<&'static str> {
    GOOD.iter().find(|(name, _)| *name == flag).map(|(_, value)| *value)
}

fn typed(flag: &str) -> String {
    good(flag).map_or(format!("--{flag}"), |value| format!("--{flag}={value}"))
}

/// The sentence of a refusal; `None` when the flags are taken.
fn refusal(argv: &[&str]) -> Option<String> {
    // A base URL or the simulator is needed, and one of the flags may be it.
    let has_target = argv.iter().any(|arg| arg.starts_with("--sim") || arg.starts_with("--base-url"));
    let mut env = env().to_vec();
    if !has_target {
        env.push(("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"));
    }
    run_in(argv, &env).err().map(|error| error.to_string())
}

#[test]
fn the_tables_know_every_flag() {
    let flags = flags();
    for (flag, takes_value) in &flags {
        assert_eq!(good(flag).is_some(), *takes_value, "--{flag}");
    }
    for name in GOOD.iter().map(|(name, _)| name).chain(&FREE_TEXT).chain(&NUMBERS) {
        assert!(flags.iter().any(|(flag, _)| flag == name), "{name}");
    }
}

#[test]
fn a_good_value_is_taken_or_the_refusal_says_what_is_missing() {
    for (flag, value) in GOOD {
        if let Some(sentence) = refusal(&[&format!("--{flag}={value}")]) {
            let needs = ["method", "body", "controlled-output-policy", "arrival"];
            assert!(needs.contains(flag), "--{flag}={value}: {sentence}");
        }
    }
}

#[test]
fn a_value_of_the_wrong_type_is_refused_by_name() {
    for (flag, takes_value) in flags().iter().filter(|(flag, _)| !FREE_TEXT.contains(&flag.as_str())) {
        let wrong: &[&str] = if *takes_value { &["\u{bf}wrong", ""] } else { &["1", "true"] };
        // `--sim=` is `--sim`.
        for value in wrong.iter().filter(|value| flag != "sim" || !value.is_empty()) {
            let argv = format!("--{flag}={value}");
            let sentence = refusal(&[&argv]).unwrap_or_else(|| panic!("{argv} is taken"));
            let named = sentence.contains(&format!("--{flag}")) || *flag == "config";
            assert!(named && !sentence.contains('\n'), "{argv}: {sentence}");
        }
    }
}

#[test]
fn a_number_out_of_range_is_refused_by_name() {
    for flag in NUMBERS {
        for value in ["-1", "-0.5", "99999999999999999999999", "1e999", "NaN", "inf"] {
            if flag == "seed" && value == "-1" {
                continue;
            }
            let argv = format!("--{flag}={value}");
            let sentence = refusal(&[&argv]).unwrap_or_else(|| panic!("{argv} is taken"));
            assert!(sentence.starts_with(&format!("--{flag}")), "{argv}: {sentence}");
        }
    }
}

#[test]
fn two_flags_work_together_or_are_refused_by_name() {
    let flags = flags();
    let (mut taken, mut refused) = (0, 0);
    for (first, _) in &flags {
        for (second, _) in flags.iter().filter(|(second, _)| second != first) {
            let argv = [typed(first), typed(second)];
            let Some(sentence) = refusal(&argv.each_ref().map(String::as_str)) else {
                taken += 1;
                continue;
            };
            refused += 1;
            let names = [first, second].map(|flag| format!("--{flag}"));
            let named = names.iter().any(|name| sentence.contains(name.as_str()));
            assert!(named && !sentence.contains('\n'), "{argv:?}: {sentence}");
        }
    }
    // Most pairs have nothing to do with each other; some contradict.
    assert!(taken > refused && refused > 100, "{taken} taken, {refused} refused");
}

fn binary(argv: &[&str], base_url: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hammerscale"))
        .arg("run")
        .args(argv)
        .env_remove("OPENAI_API_KEY")
        .env("OPENAI_BASE_URL", base_url)
        .envs(env())
        .output()
        .unwrap()
}

/// How many runs there are where runs go that name no directory.
fn runs() -> usize {
    std::fs::read_dir("hammerscale-runs").map_or(0, Iterator::count)
}

#[test]
fn the_binary_refuses_every_mistake_and_sends_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let before = runs();
    let mut wrong = Vec::new();
    // No argument of a process can hold a zero byte.
    for (argv, want) in MISTAKES.iter().filter(|(argv, _)| !argv.concat().contains('\0')) {
        let output = binary(argv, &base_url);
        let said = String::from_utf8_lossy(&output.stderr);
        let good = output.status.code() == Some(2)
            && output.stdout.is_empty()
            && said == format!("hammerscale: {want}\n");
        if !good {
            wrong.push(format!("{argv:?}: {:?}\n  {said}  {want}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nothing was sent");
    assert_eq!(runs(), before, "nothing was written");
}
