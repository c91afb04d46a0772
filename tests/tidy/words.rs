//! Words that have one home: metric ids, readings of time, formatted durations; and words that have none.

use std::collections::BTreeSet;

use crate::source::{Kind, Source};

/// The one place of metric ids.
pub(crate) const CATALOG: &str = "src/metrics/catalog.rs";

/// Where an id may stand all the same, because there the word is not ours. A prefix of a path, the words (empty:
/// all), the reason.
const NOT_OUR_WORDS: &[(&str, &[&str], &str)] = &[
    ("src/report/anvil", &[], "the reference artifact's own keys"),
    ("src/metrics/compat", &[], "other tools' own names"),
    ("src/wire/dialect", PROTOCOL_WORDS, "keys of the servers' usage objects"),
    ("src/sim", PROTOCOL_WORDS, "keys of the servers' usage objects"),
];

/// Metric ids that are also keys of the usage objects of the endpoints' protocols.
const PROTOCOL_WORDS: &[&str] = &["prompt_tokens", "output_tokens", "reasoning_tokens", "cached_tokens"];

/// Ids every catalog has: a catalog from which these cannot be read was not understood.
const LANDMARKS: [&str; 6] =
    ["ttft_ms", "e2e_ms", "tpot_ms", "time_to_first_output_ms", "inter_chunk_latency_ms", "request_rate"];

/// Files that read clocks: the clock room, and the simulator's own clock, which must not share the room's scaling.
const CLOCKS: [&str; 2] = ["src/clock/", "src/sim/clock.rs"];

/// `WORD::now` of these types reads a clock.
const CLOCK_TYPES: [&str; 2] = ["Instant", "SystemTime"];

/// These words read a clock wherever they stand.
const CLOCK_WORDS: [&str; 5] = ["clock_gettime", "gettimeofday", "quanta", "rdtsc", "_rdtsc"];

/// A word that begins so and is followed by `.now` reads that clock of the kernel.
const KERNEL_CLOCK: &str = "CLOCK_";

/// Unit words that make a number a duration.
const UNITS: [&str; 12] = [
    "ns",
    "us",
    "µs",
    "μs",
    "ms",
    "s",
    "sec",
    "secs",
    "seconds",
    "milliseconds",
    "microseconds",
    "nanoseconds",
];

/// Macros that must not be left in code.
const BANNED_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Files that may hold unsafe code, with the reason. None does.
const MAY_BE_UNSAFE: &[(&str, &str)] = &[];

/// The ids of the catalog: its string literals outside tests that are lower-case words joined by underscores.
///
/// # Errors
/// A sentence when there is no catalog, or one of the [`LANDMARKS`] is not in it.
pub(crate) fn metric_ids(sources: &[Source]) -> Result<BTreeSet<String>, String> {
    let catalog = sources.iter().find(|s| s.path == CATALOG).ok_or(format!("{CATALOG} is missing"))?;
    let texts = catalog.product_tokens().filter_map(|t| match &t.kind {
        Kind::Text(text) => Some(text),
        _ => None,
    });
    let ids: BTreeSet<String> = texts.filter(|t| is_id(t)).cloned().collect();
    match LANDMARKS.iter().find(|id| !ids.contains(**id)) {
        Some(id) => Err(format!("{CATALOG}: `{id}` is not among its string literals")),
        None => Ok(ids),
    }
}

fn is_id(text: &str) -> bool {
    let part = |p: &str| !p.is_empty() && p.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.contains('_') && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.split('_').all(part)
}

/// No metric id as a string literal outside the catalog.
pub(crate) fn check_metric_ids(ids: &BTreeSet<String>, sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|s| s.path.starts_with("src/") && s.path != CATALOG) {
        for token in source.product_tokens() {
            let Kind::Text(text) = &token.kind else { continue };
            let not_ours = |(prefix, words, _): &&(&str, &[&str], &str)| {
                source.path.starts_with(prefix) && (words.is_empty() || words.contains(&text.as_str()))
            };
            if ids.contains(text) && !NOT_OUR_WORDS.iter().any(|entry| not_ours(&entry)) {
                let at = format!("{}:{}", source.path, token.line);
                faults.push(format!("{at}: metric id \"{text}\": take it from {CATALOG}"));
            }
        }
    }
    faults
}

/// Only [`CLOCKS`] read time.
pub(crate) fn check_time(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let others = |s: &&Source| s.path.starts_with("src/") && !CLOCKS.iter().any(|c| s.path.starts_with(c));
    for source in sources.iter().filter(others) {
        for (i, token) in source.tokens.iter().enumerate().filter(|(_, t)| !t.test) {
            let Kind::Word(word) = &token.kind else { continue };
            let now = CLOCK_TYPES.contains(&word.as_str()) && source.has_at(i + 1, &[":", ":", "now"]);
            let kernel = word.starts_with(KERNEL_CLOCK) && source.has_at(i + 1, &[".", "now"]);
            if now || kernel || CLOCK_WORDS.contains(&word.as_str()) {
                faults
                    .push(format!("{}:{}: `{word}` reads time outside {CLOCKS:?}", source.path, token.line));
            }
        }
    }
    faults
}

/// Only `units` formats durations.
pub(crate) fn check_durations(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let others = |s: &&Source| s.path.starts_with("src/") && !s.path.starts_with("src/units");
    for source in sources.iter().filter(others) {
        for token in source.product_tokens() {
            if let Kind::Text(text) = &token.kind
                && let Some(found) = formatted_duration(text)
            {
                let at = format!("{}:{}", source.path, token.line);
                faults.push(format!("{at}: `{found}` formats a duration: only `units` does"));
            }
        }
    }
    faults
}

/// The first `{…}` that is followed by a unit of time, with or without a space between.
fn formatted_duration(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let after = &rest[open + 1..];
        let close = after.find(['{', '}'])?;
        let inside = &after[..close];
        let placeholder = after[close..].starts_with('}')
            && inside.chars().all(|c| c.is_alphanumeric() || "_:.*$<>^+#?".contains(c));
        let behind = &after[close + 1..];
        if placeholder {
            let unit_at = behind.strip_prefix([' ', '\u{a0}', '\u{202f}']).unwrap_or(behind);
            let end = unit_at.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(unit_at.len());
            if UNITS.contains(&&unit_at[..end]) {
                let length = behind.len() - unit_at.len() + end;
                return Some(&rest[open..open + close + 2 + length]);
            }
        }
        // `{{` is an escaped brace: nothing inside it is a placeholder.
        rest = after.strip_prefix('{').unwrap_or(behind);
    }
    None
}

/// Nothing unfinished, left over or switched off.
pub(crate) fn check_banned(sources: &[Source]) -> Vec<String> {
    let fix_me = concat!("FIX", "ME");
    let mut faults = Vec::new();
    for source in sources {
        let mut fault = |line: usize, what: &str| faults.push(format!("{}:{line}: {what}", source.path));
        for (i, token) in source.tokens.iter().enumerate() {
            let Kind::Word(word) = &token.kind else { continue };
            if BANNED_MACROS.contains(&word.as_str()) && source.has_at(i + 1, &["!"]) {
                fault(token.line, &format!("`{word}!` is not finished work"));
            }
            if word == "ignore" && i >= 2 && source.has_at(i - 2, &["#", "["]) {
                fault(token.line, "a test that never runs proves nothing");
            }
            if word == "unsafe" && !MAY_BE_UNSAFE.iter().any(|(path, _)| *path == source.path) {
                fault(token.line, "unsafe code outside the list of files that may hold it");
            }
        }
        for comment in source.comments.iter().filter(|c| c.text.contains(fix_me)) {
            fault(comment.line, "an open end in a comment: close it, or file it");
        }
    }
    faults
}

#[cfg(test)]
const FIXTURE_CATALOG: &str = r#"
catalog! {
    Ttft: "ttft_ms", "Time to first token", "first content minus send start";
    E2e: "e2e_ms", "End to end"; Tpot: "tpot_ms"; Output: "time_to_first_output_ms"; P: "prompt_tokens";
    Gap: "inter_chunk_latency_ms", "never"; Rate: "request_rate"; "1.0"
}
#[cfg(test)] mod tests { const A: &str = "only_in_a_test"; }
"#;

#[test]
fn the_catalog_is_read_or_the_rule_fails() {
    let ids = metric_ids(&[Source::new(CATALOG, FIXTURE_CATALOG)]).unwrap();
    assert_eq!(ids.len(), 7);
    assert!(metric_ids(&[]).unwrap_err().contains("missing"));
    let partial = FIXTURE_CATALOG.replace("e2e_ms", "E2E");
    assert!(metric_ids(&[Source::new(CATALOG, &partial)]).unwrap_err().contains("e2e_ms"));
}

#[test]
fn a_metric_id_outside_the_catalog_is_found() {
    let ids = metric_ids(&[Source::new(CATALOG, FIXTURE_CATALOG)]).unwrap();
    let faults = |path: &str, text: &str| check_metric_ids(&ids, &[Source::new(path, text)]).len();
    assert_eq!(faults("src/report/terminal.rs", "f(\"ttft_ms\")"), 1);
    assert_eq!(faults("src/report/terminal.rs", "f(b\"e2e_ms\", r\"tpot_ms\")"), 2);
    assert_eq!(faults("src/report/terminal.rs", "f(\"prompt_tokens\")"), 1);
    assert_eq!(faults("src/wire/dialect/chat.rs", "f(b\"prompt_tokens\")"), 0);
    assert_eq!(faults("src/wire/dialect/chat.rs", "f(b\"ttft_ms\")"), 1);
    assert_eq!(faults("src/report/anvil/rows.rs", "f(\"ttft_ms\")"), 0);
    assert_eq!(faults("src/report/terminal.rs", "// \"ttft_ms\"\n#[cfg(test)] mod t { f(\"ttft_ms\"); }"), 0);
    assert_eq!(faults("src/report/terminal.rs", "f(\"ttft_ms is a metric\", ttft_ms)"), 0);
}

#[test]
fn a_reading_of_time_outside_the_clocks_is_found() {
    let faults = |path: &str, text: &str| check_time(&[Source::new(path, text)]).len();
    for reading in [
        "std::time::Instant::now()",
        "let f = Instant::now;",
        "SystemTime::now()",
        "tokio::time::Instant::now()",
        "nix::time::clock_gettime(id)",
        "use quanta::Clock;",
        "ClockId::CLOCK_MONOTONIC.now()",
    ] {
        assert_eq!(faults("src/client/worker.rs", reading), 1, "{reading}");
        assert_eq!(faults("src/sim/server.rs", reading), 1, "{reading}");
        assert_eq!(faults("src/clock/mod.rs", reading), 0, "{reading}");
        assert_eq!(faults("src/sim/clock.rs", reading), 0, "{reading}");
    }
    assert_eq!(
        faults(
            "src/client/worker.rs",
            "/* Instant::now() */ f(now, Instant::from(x), \"quanta\", TimerFd::new(ClockId::CLOCK_MONOTONIC))"
        ),
        0
    );
}

#[test]
fn a_formatted_duration_outside_units_is_found() {
    let faults = |path: &str, text: &str| check_durations(&[Source::new(path, text)]).len();
    for text in [
        "{} ms",
        "{}ms",
        "took {x:.3} s",
        "{:>8.1}µs,",
        "{{x}} {y}ns",
        "{0}us",
        "{n} seconds",
        "a {b} c {d}s.",
    ] {
        assert_eq!(faults("src/report/terminal.rs", &format!("f(\"{text}\")")), 1, "{text}");
        assert_eq!(faults("src/units/text.rs", &format!("f(\"{text}\")")), 0, "{text}");
    }
    for text in [
        "{}",
        "{name}_ms",
        "{n} samples",
        "{{}}s",
        "ttft 80 ms",
        "{\\\"a\\\":1}s",
        "{x} msg",
        "{a}{b}",
        "{n} requests",
        "{",
    ] {
        assert_eq!(faults("src/report/terminal.rs", &format!("f(\"{text}\")")), 0, "{text}");
    }
}

#[test]
fn unfinished_and_unsafe_code_is_found() {
    let faults = |text: &str| check_banned(&[Source::new("src/a.rs", text)]).len();
    assert_eq!(faults("fn f() { todo!() }"), 1);
    assert_eq!(faults("fn f() { unimplemented!(\"x\"); dbg!(x); }"), 2);
    assert_eq!(faults("#[test]\n#[ignore]\nfn t() {}"), 1);
    assert_eq!(faults("#[ignore = \"slow\"] fn t() {}"), 1);
    assert_eq!(faults("fn f() { unsafe { g() } }"), 1);
    assert_eq!(faults(concat!("// FIX", "ME: later")), 1);
    assert_eq!(faults("// unsafe todo!() dbg!(x)\nfn f() { g(\"todo!()\", ignore, todo) }"), 0);
    assert_eq!(faults("#![deny(unsafe_code)]"), 0);
}
