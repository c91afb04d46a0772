//! The plan against two independent witnesses: the published artifact with its hashes, and a re-implementation of the
//! reference's rules in Python, on top of Python's own `random` and `json`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]
#![allow(clippy::cast_precision_loss, clippy::disallowed_methods)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use clap::FromArgMatches as _;
use hammerscale::config::args::{self, RunArgs};
use hammerscale::config::resolve::resolve;
use hammerscale::config::spec::ResolvedTarget;
use hammerscale::plan::Plan;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

fn plan(argv: &[String], max_model_len: Option<u64>) -> Plan {
    let base = "--base-url=http://127.0.0.1:30002/v1".to_owned();
    let matches = args::command().try_get_matches_from(argv.iter().chain([&base])).unwrap();
    let spec = resolve(&RunArgs::from_arg_matches(&matches).unwrap(), &|_| None).unwrap();
    let model = spec.target.model.clone().unwrap();
    Plan::new(
        &spec,
        &ResolvedTarget { addresses: Vec::new(), model, max_model_len, unresolved: None, unreachable: None },
    )
    .unwrap()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_seed_artifacts_first_body_has_the_published_length_and_hash() {
    let text = std::fs::read_to_string(
        "tests/data/anvil/seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1.json",
    )
    .unwrap();
    let artifact: Value = serde_json::from_str(&text).unwrap();
    let mut line = words(
        "--compat anvil --requests 4 --concurrency 4 --ctx-tokens 8192 --max-tokens 16384 --response-words 64 \
         --prompt-cache-mode unique --request-canaries --controlled-output-policy strict --reasoning-effort max",
    );
    line.push(format!("--model={}", artifact["model"].as_str().unwrap()));
    let plan = plan(&line, artifact["max_context_tokens"].as_u64());
    let body = plan.body(0).unwrap();
    assert_eq!(body.len(), 25_480);
    assert_eq!(hex(&body), "13d8cf6ce4b0721387efb9a2d04fa3c40d1c79584595ad6ace44cd2501ea77be");
    // What the artifact says about its own plan.
    let distribution: serde_json::Map<String, Value> =
        plan.context_distribution().iter().map(|(tokens, n)| (tokens.to_string(), json!(n))).collect();
    assert_eq!(artifact["context_distribution"], Value::Object(distribution));
    for row in artifact["request_timings"].as_array().unwrap() {
        let index = row["request_index"].as_u64().unwrap();
        assert_eq!(row["planned_context_tokens"].as_u64(), plan.planned_context_tokens(index));
        assert_eq!(row["request_canary"]["marker"].as_str(), plan.canary_marker(index).as_deref());
    }
}

/// The rules of the reference, written down once more from their description.
const WITNESS: &str = r##"
import hashlib, json, random, sys

def filler(offset, n):
    out, size, k = [], 0, 0
    while size < n:
        line = "def helper_%d():\n    return compute(%d)  # routine specialist context\n" % (offset + k, k)
        out.append(line)
        size += len(line)
        k += 1
    return "".join(out)[:n]

def prompt(c, i, tokens):
    total = 3 * tokens
    marker = "ANVIL_REQ_%d_%05d" % (c["seed"], i) if c["canaries"] else None
    tail = "\n# request %d:" % i
    if marker:
        tail += " Begin with the exact marker %s, followed by one space." % marker
    if c["words"]:
        tail += (" Then emit exactly %d repetitions of the lowercase word code, separated by single spaces."
                 " Do not add other text and do not stop early." % c["words"])
    else:
        tail += (" Summarize" if marker else " summarize") + " the above in one line."
    prefix = filler(0, int(c["shared"] * 3.0))
    if c["unique"]:
        prefix = "# unique benchmark request %s\n" % (marker or i)
    left = total - len(prefix) - len(tail) - 1
    if left > 0:
        return prefix + "\n" + filler(i, left) + tail
    return prefix[:total - len(tail)] + tail

for line in sys.stdin:
    c = json.loads(line)
    r = random.Random(c["seed"])
    cap = c["length"] - c["max_tokens"] - c["margin"] if c["length"] else None
    planned, bodies = [], []
    for i in range(c["n"]):
        tokens = c["ctx"]
        if not tokens:
            u = r.random()
            tokens = 16000 if u <= 0.218 else 32768 if u <= 0.602 else 65536 if u <= 0.906 else 131072 if u <= 0.995 else 262144
        planned.append(min(tokens, cap) if cap else tokens)
        body = {"model": c["model"], "messages": [{"role": "user", "content": prompt(c, i, planned[-1])}], "max_tokens": c["max_tokens"]}
        if c["temperature"] is not None:
            body["temperature"] = float(c["temperature"])
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        if c["thinking"] is not None:
            body["chat_template_kwargs"] = {"enable_thinking": c["thinking"]}
        if c["effort"]:
            body["reasoning_effort"] = c["effort"]
        if c["top_p"] is not None:
            body["top_p"] = float(c["top_p"])
        bodies.append(hashlib.sha256(json.dumps(body).encode()).hexdigest())
    print(json.dumps({"planned": planned, "bodies": bodies}))
"##;

/// Runs the witness over all cases at once.
fn witness(cases: &[Value]) -> Vec<Value> {
    let mut child = Command::new("python3")
        .args(["-c", WITNESS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let input: String = cases.iter().map(|case| format!("{case}\n")).collect();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A sequence of numbers that is the same in every run (Knuth's MMIX constants), so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()].clone()
    }
}

/// One case: the flags, and the same for the witness.
fn case(numbers: &mut Numbers) -> (Vec<String>, Option<u64>, Value) {
    let mut argv = Vec::new();
    let mut flag = |name: &str, value: &str| argv.push(format!("--{name}={value}"));
    let seed = match numbers.below(4) {
        0 => numbers.pick(&[0, 1, -3, 3, i64::MAX, i64::MIN, 1 << 32, (1 << 32) - 1]),
        _ => i64::try_from(numbers.below(1 << 31)).unwrap() * numbers.pick(&[1, -1, 7_919, 2_147_483_647]),
    };
    let compat = numbers.below(2) == 0;
    let sampled = numbers.below(6) == 0;
    let n = if sampled { 8 } else { numbers.pick(&[3, 11, 120]) };
    let ctx = if sampled { 0 } else { 150 + numbers.below(1_000) };
    let unique = numbers.below(2) == 0;
    let shared = if unique { 0 } else { numbers.pick(&[0, 1, 40, 300, 8_000]) };
    let (canaries, words) = (numbers.below(2) == 0, numbers.pick(&[0, 0, 1, 64, 999]));
    let length = numbers.pick(&[None, None, Some(2_000), Some(40_000)]);
    let max_tokens = numbers.pick(&[16, 64, 200]);
    let margin = numbers.pick(&[0, 1_024]);
    let model = numbers.pick(&["m", "org/Model-7B", "é\"\\😀", "模型"]);
    let temperature = numbers.pick(&[None, Some("0"), Some("1"), Some("0.7"), Some("0.00001"), Some("2.0")]);
    let top_p = numbers.pick(&[None, Some("1"), Some("0.95"), Some("1e-7")]);
    let thinking = numbers.pick(&[None, None, Some(true), Some(false)]);
    let effort = if thinking.is_none() { numbers.pick(&[None, Some("none"), Some("xhigh")]) } else { None };
    if compat {
        flag("compat", "anvil");
    }
    flag("requests", &n.to_string());
    flag("ctx-tokens", &ctx.to_string());
    flag("seed", &seed.to_string());
    flag("max-tokens", &max_tokens.to_string());
    flag("margin", &margin.to_string());
    flag("model", model);
    flag("response-words", &words.to_string());
    flag("prompt-cache-mode", if unique { "unique" } else { "shared" });
    flag("shared-prefix-tokens", &shared.to_string());
    for (name, value) in [("temperature", temperature), ("top-p", top_p), ("reasoning-effort", effort)] {
        if let Some(value) = value {
            flag(name, value);
        }
    }
    if let Some(on) = thinking {
        flag("thinking-mode", if on { "enabled" } else { "disabled" });
    }
    if canaries {
        argv.push("--request-canaries".to_owned());
    }
    let number = |text: &str| text.parse::<f64>().unwrap();
    let temperature = temperature.map(number).or(compat.then_some(0.0));
    let case = json!({
        "seed": seed, "n": n, "ctx": ctx, "length": length, "max_tokens": max_tokens, "margin": margin, "model": model,
        "unique": unique, "shared": shared, "canaries": canaries, "words": words, "temperature": temperature,
        "top_p": top_p.map(number), "thinking": thinking, "effort": effort,
    });
    (argv, length, case)
}

#[test]
fn plans_agree_with_the_witness_to_the_byte() {
    let mut numbers = Numbers(20_260_917);
    let cases: Vec<_> = (0..60).map(|_| case(&mut numbers)).collect();
    let answers = witness(&cases.iter().map(|(_, _, case)| case.clone()).collect::<Vec<_>>());
    assert_eq!(answers.len(), cases.len());
    let mut compared = 0;
    for ((argv, length, case), answer) in cases.iter().zip(&answers) {
        let plan = plan(argv, *length);
        for index in 0..plan.requests() {
            let at = usize::try_from(index).unwrap();
            assert_eq!(plan.planned_context_tokens(index), answer["planned"][at].as_u64(), "{case} {index}");
            assert_eq!(hex(&plan.body(index).unwrap()), answer["bodies"][at], "{case} {index}");
            compared += 1;
        }
    }
    assert!(compared > 1_000, "{compared}");
}

/// What Python makes of a JSON text: its own layout, the order of the text.
fn as_python_writes(texts: &[String]) -> Vec<String> {
    let script = "import json,sys\nfor line in sys.stdin: print(json.dumps(json.loads(line)))";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    child.stdin.take().unwrap().write_all(texts.join("\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bodies_of_every_endpoint_are_what_python_writes() {
    let user = r#"[{"role":"user","content":PROMPT}]"#;
    let cases: Vec<(&str, String)> = vec![
        ("--endpoint completions", r#"{"model":"é","prompt":PROMPT,"max_tokens":128,"stream":true,"stream_options":{"include_usage":true}}"#.to_owned()),
        ("--endpoint completions --no-stream --temperature 1e-7 --top-p 1 --ignore-eos --max-tokens 9", r#"{"model":"é","prompt":PROMPT,"max_tokens":9,"temperature":1e-7,"stream":false,"top_p":1.0,"ignore_eos":true}"#.to_owned()),
        ("--endpoint responses --reasoning-effort low --temperature 0", r#"{"model":"é","input":PROMPT,"max_output_tokens":128,"temperature":0.0,"stream":true,"reasoning":{"effort":"low"}}"#.to_owned()),
        ("--endpoint messages --no-thinking --top-p 0.5", format!(r#"{{"model":"é","messages":{user},"max_tokens":128,"stream":true,"thinking":{{"type":"disabled"}},"top_p":0.5}}"#)),
        ("--endpoint messages --no-stream", format!(r#"{{"model":"é","messages":{user},"max_tokens":128,"stream":false}}"#)),
        ("--endpoint embeddings", r#"{"model":"é","input":PROMPT}"#.to_owned()),
        ("--continuous-usage --max-tokens-field max_completion_tokens", format!(r#"{{"model":"é","messages":{user},"max_completion_tokens":128,"stream":true,"stream_options":{{"include_usage":true,"continuous_usage_stats":true}}}}"#)),
        (r#"--extra-body {"n": 2, "temperature": 0.25} --compat anvil --prompts unique --max-tokens 128 --ctx-tokens 512"#, format!(r#"{{"model":"é","messages":{user},"max_tokens":128,"temperature":0.25,"stream":true,"stream_options":{{"include_usage":true}},"n":2}}"#)),
    ];
    let (mut ours, mut texts) = (Vec::new(), Vec::new());
    for (flags, text) in &cases {
        // A value in braces is one word.
        let mut argv = vec!["--model=é".to_owned(), "--requests=3".to_owned()];
        let rest = match flags.strip_prefix("--extra-body ").and_then(|rest| rest.split_once("} ")) {
            Some((json, rest)) => {
                argv.extend(["--extra-body".to_owned(), format!("{json}}}")]);
                rest
            }
            None => flags,
        };
        argv.extend(words(rest));
        let plan = plan(&argv, None);
        for index in 0..plan.requests() {
            let prompt = json!(plan.prompt(index).unwrap()).to_string();
            texts.push(text.replace("PROMPT", &prompt));
            ours.push(String::from_utf8(plan.body(index).unwrap().to_vec()).unwrap());
        }
    }
    assert_eq!(ours, as_python_writes(&texts));
    assert_eq!(ours.len(), 3 * cases.len());
}

#[test]
fn plain_requests_share_one_body_and_have_no_prompt() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = [b'x'; 5_000];
    bytes[0] = 0x1b;
    std::fs::write(file.path(), bytes).unwrap();
    let body = format!("--body={}", file.path().display());
    let argv = ["--endpoint=http", "--method=POST", "--requests=4", &body].map(str::to_owned);
    let matches = args::command().try_get_matches_from(argv.iter()).unwrap();
    let args = RunArgs::from_arg_matches(&matches).unwrap();
    let spec =
        resolve(&args, &|name| (name == "OPENAI_BASE_URL").then(|| "http://h:1/x?key=KEY".into())).unwrap();
    let target = hammerscale::plan::describe::unasked(&spec);
    let plan = Plan::new(&spec, &target).unwrap();
    let bodies: Vec<_> = (0..5).map(|index| plan.body(index)).collect();
    assert!(
        bodies[..4]
            .iter()
            .all(|body| body.as_ref().unwrap().as_ptr() == bodies[0].as_ref().unwrap().as_ptr())
    );
    assert_eq!((bodies[0].as_deref(), &bodies[4]), (Some(&bytes[..]), &None));
    assert_eq!(
        (plan.prompt(0), plan.planned_context_tokens(0), plan.requested_max_tokens()),
        (None, None, None)
    );
    assert_eq!((plan.distinct_prompts(), plan.repeats(), plan.body_bytes(3)), (0, 0, Some(5_000)));
    let shown = hammerscale::plan::describe::text(&spec, &target, &plan);
    assert!(shown.contains("POST http://h:1/x?key=***\n") && !shown.contains("prompts"), "{shown}");
    let json = hammerscale::plan::describe::json(&spec, &target, &plan);
    assert!(shown.contains("\\u{1b}x") && !(shown + &json).contains(['\u{1b}', 'K']), "{json}");
}

#[test]
fn draws_agree_with_pythons_generator_over_random_seeds() {
    let mut numbers = Numbers(1);
    let seeds: Vec<i64> = (0..200)
        .map(|i| match i {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => -(1 << 32),
            _ => {
                let low = i64::try_from(numbers.below(1 << 31)).unwrap();
                let high = i64::try_from(numbers.below(1 << 31)).unwrap();
                (low | (high << 31)) * if i % 2 == 0 { 1 } else { -1 }
            }
        })
        .collect();
    let script = "import random,struct,sys\nfor s in map(int,sys.argv[1:]):\n r=random.Random(s)\n \
                  print(*(struct.pack('>d',r.random()).hex() for _ in range(700)))";
    let output = Command::new("python3")
        .args(["-c", script])
        .args(seeds.iter().map(ToString::to_string))
        .output()
        .expect("python3");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), seeds.len());
    for (seed, line) in seeds.iter().zip(text.lines()) {
        let mut ours = hammerscale::plan::mt19937::Mt19937::from_python_seed(*seed);
        for (n, theirs) in line.split(' ').enumerate() {
            assert_eq!(format!("{:016x}", ours.random().to_bits()), theirs, "seed {seed}, draw {n}");
        }
    }
}
