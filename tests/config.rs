//! The flags of `hammerscale run`, the configuration file and the environment, from the outside: what each one becomes,
//! and the one sentence that each mistake gets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::FromArgMatches as _;
use hammerscale::config::args::{self, RunArgs};
use hammerscale::config::resolve;
use hammerscale::config::spec::{ConnectionMode, OutputFormat, ProgressMode, RunSpec, ThinkingMode};
use hammerscale::config::usage::UsageError;
use hammerscale::config::{defaults, file::ConfigFile};
use hammerscale::units::Nanos;

fn typed(argv: &[&str]) -> Result<RunArgs, UsageError> {
    let matches = args::command().try_get_matches_from(argv).map_err(|e| args::sentence(&e))?;
    RunArgs::from_arg_matches(&matches).map_err(|e| args::sentence(&e))
}

fn run_in(argv: &[&str], env: &[(&str, &str)]) -> Result<RunSpec, UsageError> {
    let env: BTreeMap<&str, OsString> = env.iter().map(|(k, v)| (*k, OsString::from(v))).collect();
    resolve::run_spec(typed(argv)?, &|name| env.get(name).cloned())
}

/// With a base URL, which every run needs.
fn run(argv: &[&str]) -> Result<RunSpec, UsageError> {
    run_in(argv, &[("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")])
}

fn spec(argv: &[&str]) -> RunSpec {
    run(argv).unwrap_or_else(|error| panic!("{argv:?}: {error}"))
}

fn sentence(argv: &[&str]) -> String {
    run(argv).map(|spec| panic!("{argv:?} became {spec:?}")).unwrap_err().to_string()
}

#[test]
fn without_flags_the_defaults_of_the_manual_hold() {
    let spec = spec(&[]);
    assert_eq!(spec.target.base_url, "http://127.0.0.1:8000/v1");
    assert_eq!((spec.target.host.as_str(), spec.target.port), ("127.0.0.1", 8_000));
    assert_eq!(spec.target.path, "/v1/chat/completions");
    assert_eq!(spec.target.models_path.as_deref(), Some("/v1/models"));
    assert_eq!((spec.target.model, spec.target.api_key, spec.target.sim), (None, None, None));
    assert!(spec.target.request_id_header && spec.target.headers.is_empty());
    assert_eq!((spec.load.requests, spec.load.concurrency, spec.load.burst), (60, 20, 0));
    let prompt = spec.prompt;
    assert_eq!((prompt.ctx_tokens, prompt.max_tokens, prompt.shared_prefix_tokens), (Some(512), 128, 0));
    assert!(prompt.unique && !prompt.same && !prompt.request_canaries && !prompt.controlled_output_strict);
    assert_eq!((prompt.seed, prompt.response_words, prompt.max_model_len), (0, 0, None));
    assert_eq!((prompt.margin, prompt.capture_limit), (1_024, 8_192));
    assert_eq!((spec.body.temperature, spec.body.top_p, spec.body.compat_anvil), (None, None, false));
    assert_eq!((spec.body.thinking_mode, spec.body.reasoning_effort), (ThinkingMode::Default, None));
    assert_eq!(spec.connection.mode, ConnectionMode::Keep);
    assert_eq!(spec.connection.timeout, Nanos::from_secs(900));
    assert_eq!(spec.connection.idle_timeout, Nanos::from_secs(900));
    assert_eq!(spec.connection.connect_timeout, Nanos::from_secs(10));
    assert_eq!((spec.instrument.workers, spec.instrument.cores.len()), (None, 0));
    assert!(spec.instrument.kernel_stamps && !spec.instrument.strict);
    assert_eq!((spec.output.dir, spec.output.json_out), (None, None));
    assert_eq!((spec.output.progress, spec.output.format), (ProgressMode::Auto, OutputFormat::Text));
    assert!(!spec.output.overwrite && !spec.output.quiet && !spec.dry_run);
}

#[test]
fn compat_anvil_takes_the_references_defaults() {
    let spec = spec(&["--compat", "anvil"]);
    assert!(spec.body.compat_anvil && !spec.prompt.unique);
    assert_eq!((spec.prompt.ctx_tokens, spec.prompt.max_tokens), (None, 64));
    assert_eq!(spec.prompt.shared_prefix_tokens, 8_000);
    assert_eq!((spec.load.requests, spec.load.concurrency, spec.prompt.margin), (60, 20, 1_024));
}

#[test]
fn the_seed_artifacts_command_line_is_understood() {
    let line = "--base-url http://127.0.0.1:30002/v1 --model glm53-mixed35 --engine vllm --gpu dual-sm120 --requests 4 \
                --concurrency 4 --ctx-tokens 8192 --max-tokens 16384 --response-words 64 --prompt-cache-mode unique \
                --request-canaries --controlled-output-policy strict --reasoning-effort max --compat anvil \
                --max-model-len 327680";
    let spec = run_in(&line.split_whitespace().collect::<Vec<_>>(), &[]).unwrap();
    assert!(spec.prompt.unique && spec.prompt.request_canaries && spec.prompt.controlled_output_strict);
    assert_eq!((spec.prompt.ctx_tokens, spec.prompt.max_tokens), (Some(8_192), 16_384));
    assert_eq!((spec.prompt.response_words, spec.prompt.shared_prefix_tokens), (64, 0));
    assert_eq!(spec.body.reasoning_effort.as_deref(), Some("max"));
    assert_eq!(spec.labels.engine.as_deref(), Some("vllm"));
}

#[test]
fn every_flag_reaches_the_specification() {
    let dir = tempfile::tempdir().unwrap();
    let artifact = dir.path().join("a.json");
    let spec = spec(&[
        "--num-prompts=10k",
        "--max-concurrency=1.5k",
        "--timeout-seconds=1.5",
        "--idle-timeout=250ms",
        "--connect-timeout=1m",
        "--connection=fresh",
        "--ctx-tokens=0",
        "--seed=-3",
        "--max-tokens=32",
        "--response-words=5",
        "--shared-prefix-tokens=100",
        "--request-canaries",
        "--controlled-output-policy=strict",
        "--max-model-len=8192",
        "--margin=0",
        "--capture-limit=100",
        "--temperature=1",
        "--top-p=0.5",
        "--no-thinking",
        "--workers=2",
        "--cores=3,0-1",
        "--stamps=user",
        "--strict-instrument",
        "--endpoint=chat",
        "--endpoint-path=/x/chat/completions",
        "--no-request-id",
        "--header=X-Team: a",
        "--header=x-request-id:mine",
        "--overwrite",
        "--quiet",
        "--progress=none",
        "--dry-run",
        "--label=run=7",
        "--label=note=",
        "--tier=t",
        "--manifest=m",
        "--source-recipe=r",
        "--clock-domain-id=host-1",
        &format!("--configuration-fingerprint=sha256:{}", "0a".repeat(32)),
        &format!("--output={}", artifact.display()),
        &format!("--out={}", dir.path().join("new").display()),
    ]);
    assert_eq!((spec.load.requests, spec.load.concurrency), (10_000, 1_500));
    assert_eq!(spec.connection.timeout, Nanos::from_millis(1_500));
    assert_eq!(spec.connection.idle_timeout, Nanos::from_millis(250));
    assert_eq!(spec.connection.connect_timeout, Nanos::from_secs(60));
    assert_eq!(spec.connection.mode, ConnectionMode::Fresh);
    assert_eq!((spec.prompt.ctx_tokens, spec.prompt.seed), (None, -3));
    assert_eq!((spec.prompt.max_tokens, spec.prompt.response_words), (32, 5));
    assert!(!spec.prompt.unique && spec.prompt.controlled_output_strict);
    assert_eq!((spec.prompt.shared_prefix_tokens, spec.prompt.max_model_len), (100, Some(8_192)));
    assert_eq!((spec.prompt.margin, spec.prompt.capture_limit), (0, 100));
    assert_eq!((spec.body.temperature, spec.body.top_p), (Some(1.0), Some(0.5)));
    assert_eq!((spec.body.thinking_mode, spec.body.no_thinking), (ThinkingMode::Disabled, true));
    assert_eq!((spec.instrument.workers, spec.instrument.cores), (Some(2), vec![3, 0, 1]));
    assert!(!spec.instrument.kernel_stamps && spec.instrument.strict);
    assert_eq!(spec.target.path, "/x/chat/completions");
    let headers: Vec<_> = spec.target.headers.iter().map(|(k, v)| (k.as_str(), v.reveal())).collect();
    assert_eq!(headers, [("X-Team", "a"), ("x-request-id", "mine")]);
    assert!(!spec.target.request_id_header && spec.output.overwrite && spec.output.quiet && spec.dry_run);
    assert_eq!(spec.output.json_out.as_deref(), Some(artifact.as_path()));
    assert_eq!(spec.output.dir, Some(dir.path().join("new")));
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    assert_eq!(spec.labels.labels, [pair("run", "7"), pair("note", "")]);
    assert_eq!(spec.labels.tier.as_deref(), Some("t"));
    assert_eq!(spec.labels.clock_domain_id.as_deref(), Some("host-1"));
}

/// A flag with its value (`--x=y`), more flags if needed, and the whole sentence.
const MISTAKES: &[(&[&str], &str)] = &[
    (&["--base-url=ftp://h"], "--base-url must begin with http://"),
    (&["--base-url=https://h/v1"], "--base-url asks for https, but TLS is not built in yet; use http"),
    (&["--base-url=http://h", "--sim"], "--sim does not go together with --base-url: a run has one target"),
    (&["--endpoint-path=v1"], "--endpoint-path must begin with a slash"),
    (
        &["--endpoint-path=/v1", "--sim"],
        "--endpoint-path does not go together with --sim: the simulator has its own paths",
    ),
    (&["--sim=a b"], "--sim takes a profile or KEY=VALUE;KEY=VALUE"),
    (&["--sim=ttft=1ms;itl"], "--sim has a setting that is not KEY=VALUE"),
    (&["--sim=ttft=1ms;ttft=2ms"], "--sim sets ttft twice"),
    (&["--sim=listen=127.0.0.1:1"], "--sim cannot set listen: the run decides it"),
    (&["--endpoint=completions"], "--endpoint completions is not built in yet; chat is"),
    (&["--endpoint=http"], "--endpoint http is not built in yet; chat is"),
    (&["--endpoint=chatt"], "--endpoint must be chat"),
    (&["--model= "], "--model must not be blank"),
    (&["--model=a\nb"], "--model must not have control characters"),
    (&["--api-key-env=NO_SUCH"], "--api-key-env names an environment variable that is not set"),
    (&["--api-key-env="], "--api-key-env must be the name of an environment variable"),
    (&["--api-key-env=BLANK"], "--api-key-env holds a blank key"),
    (
        &["--api-key-env=KEY", "--api-key-file=/dev/null"],
        "--api-key-env does not go together with --api-key-file: there is one key",
    ),
    (
        &["--api-key-file=/no/such/file"],
        "--api-key-file cannot be read: No such file or directory (os error 2)",
    ),
    (&["--api-key-file=/dev/null"], "--api-key-file holds a blank key"),
    (&["--header=X"], "--header must have a colon after its name"),
    (&["--header=: x"], "--header has a name that no header field can have"),
    (&["--header=X Y: x"], "--header has a name that no header field can have"),
    (&["--header=X : x"], "--header has a name that no header field can have"),
    (&["--header=X: a\r\nY: b"], "--header has a control character in its value"),
    (&["--header=Host: x"], "--header cannot set host: the client decides it"),
    (&["--header=Content-Length: 1"], "--header cannot set content-length: the client decides it"),
    (&["--header=X-Request-ID: 1"], "--header cannot set x-request-id unless --no-request-id is given"),
    (
        &["--header=Authorization: Basic x", "--api-key-env=KEY"],
        "--header does not go together with a key: both set the Authorization field",
    ),
    (&["--no-request-id=1"], "--no-request-id takes no value"),
    (&["--requests=0"], "--requests must be between 1 and 100000000"),
    (&["--requests=100000001"], "--requests must be between 1 and 100000000"),
    (&["--requests=-5"], "--requests \"-5\" must not be negative"),
    (&["--requests=many"], "--requests \"many\" is not a number (like 2, 0.5 or 12.5)"),
    (&["--requests=1.5"], "--requests \"1.5\" is not a whole number"),
    (&["--requests=10K"], "--requests \"10K\" has no unit that is known here (k, M, G)"),
    (&["--requests=99999999999999999999"], "--requests \"99999999999999999999\" is too large"),
    (&["--requests="], "--requests \"\" is empty"),
    (&["--requests=1", "--requests=2"], "--requests is given twice"),
    (&["--num-prompts=0"], "--requests must be between 1 and 100000000"),
    (
        &["--requests=60", "--burst=8"],
        "--requests does not go together with --burst: a burst is that many requests at one instant",
    ),
    (&["--concurrency=0"], "--concurrency must be between 1 and 1000000"),
    (&["--concurrency=2M"], "--concurrency must be between 1 and 1000000"),
    (
        &["--concurrency=4", "--burst=8"],
        "--concurrency does not go together with --burst: a burst is that many requests at one instant",
    ),
    (&["--burst=2M"], "--burst must be between 0 and 1000000"),
    (
        &["--burst=4", "--prompts=unique"],
        "--burst does not go together with --prompts unique: the requests of a burst share their prefix",
    ),
    (
        &["--burst=4", "--prompt-cache-mode=unique"],
        "--burst does not go together with --prompt-cache-mode unique: the requests of a burst share their prefix",
    ),
    (&["--connection=sticky"], "--connection must be one of keep, fresh"),
    (&["--connection="], "the value of --connection is missing: the flag takes one"),
    (&["--timeout=0s"], "--timeout must be more than 0s and at most 168h"),
    (&["--timeout=169h"], "--timeout must be more than 0s and at most 168h"),
    (&["--timeout=-1s"], "--timeout \"-1s\" must not be negative"),
    (&["--timeout=soon"], "--timeout \"soon\" is not a number (like 2, 0.5 or 12.5)"),
    (&["--timeout=1d"], "--timeout \"1d\" has no unit that is known here (ns, us, ms, s, m, h)"),
    (&["--timeout=0.1ns"], "--timeout \"0.1ns\" is not a whole number of nanoseconds"),
    (&["--timeout-seconds=0"], "--timeout must be more than 0s and at most 168h"),
    (&["--idle-timeout=0"], "--idle-timeout must be more than 0s and at most 168h"),
    (&["--connect-timeout=0"], "--connect-timeout must be more than 0s and at most 168h"),
    (&["--compat=vllm"], "--compat must be one of anvil"),
    (&["--ctx-tokens=31"], "--ctx-tokens must be 0, or between 32 and 16777216"),
    (&["--ctx-tokens=17M"], "--ctx-tokens must be 0, or between 32 and 16777216"),
    (&["--seed=1.5"], "--seed \"1.5\" is not a whole number between -2^63 and 2^63-1"),
    (
        &["--seed=9223372036854775808"],
        "--seed \"9223372036854775808\" is not a whole number between -2^63 and 2^63-1",
    ),
    (&["--max-tokens=0"], "--max-tokens must be between 1 and 16777216"),
    (&["--max-tokens=15", "--request-canaries"], "--max-tokens must be at least 16 with --request-canaries"),
    (&["--response-words=17M"], "--response-words must be between 0 and 16777216"),
    (&["--prompt-cache-mode=none"], "--prompt-cache-mode must be one of shared, unique"),
    (&["--prompts=all"], "--prompts must be one of same, unique"),
    (
        &["--prompts=unique", "--prompt-cache-mode=shared"],
        "--prompts unique does not go together with --prompt-cache-mode shared: the one means --prompt-cache-mode unique",
    ),
    (
        &["--prompts=same", "--prompt-cache-mode=unique"],
        "--prompts same does not go together with --prompt-cache-mode unique: the same prompt is not unique",
    ),
    (&["--shared-prefix-tokens=17M"], "--shared-prefix-tokens must be between 0 and 16777216"),
    (
        &["--shared-prefix-tokens=1", "--prompts=unique"],
        "--shared-prefix-tokens does not go together with --prompts unique: unique prompts share nothing",
    ),
    (
        &["--shared-prefix-tokens=1", "--prompt-cache-mode=unique", "--compat=anvil"],
        "--shared-prefix-tokens does not go together with --prompt-cache-mode unique: unique prompts share nothing",
    ),
    (&["--request-canaries=yes"], "--request-canaries takes no value"),
    (
        &["--request-canaries", "--prompts=same"],
        "--request-canaries does not go together with --prompts same: every prompt names a marker of its own",
    ),
    (
        &["--requests=100001", "--request-canaries"],
        "--requests must be at most 100000 with --request-canaries",
    ),
    (&["--controlled-output-policy=lax"], "--controlled-output-policy must be one of observe, strict"),
    (
        &["--controlled-output-policy=strict"],
        "--response-words is missing: a strict policy needs an exact answer to ask for",
    ),
    (&["--max-model-len=17M"], "--max-model-len must be between 0 and 16777216"),
    (
        &["--max-model-len=1152"],
        "--max-model-len must be more than --max-tokens and --margin together (1152)",
    ),
    (&["--margin=17M"], "--margin must be between 0 and 16777216"),
    (&["--capture-limit=0"], "--capture-limit must be between 1 and 16777216"),
    (
        &["--capture-limit=16", "--request-canaries"],
        "--capture-limit must be at least 17, the length of the answer that is asked for",
    ),
    (
        &["--capture-limit=8", "--controlled-output-policy=strict", "--response-words=2"],
        "--capture-limit must be at least 9, the length of the answer that is asked for",
    ),
    (&["--temperature=2.1"], "--temperature must be between 0 and 2"),
    (&["--temperature=-0.1"], "--temperature must be between 0 and 2"),
    (&["--temperature=nan"], "--temperature must be between 0 and 2"),
    (&["--temperature=warm"], "--temperature \"warm\" is not a number (like 2, 0.5 or 12.5)"),
    (&["--top-p=0"], "--top-p must be above 0 and at most 1"),
    (&["--top-p=1.01"], "--top-p must be above 0 and at most 1"),
    (&["--top-p=inf"], "--top-p must be above 0 and at most 1"),
    (&["--thinking-mode=on"], "--thinking-mode must be one of default, enabled, disabled, unsupported"),
    (
        &["--thinking-mode=enabled", "--model=openai/gpt-oss-20b"],
        "--thinking-mode is a chat template control that gpt-oss models do not have; use --reasoning-effort",
    ),
    (
        &["--no-thinking", "--thinking-mode=enabled"],
        "--no-thinking does not go together with --thinking-mode: it means --thinking-mode disabled",
    ),
    (
        &["--reasoning-effort=huge"],
        "--reasoning-effort must be one of none, minimal, low, medium, high, max, xhigh",
    ),
    (
        &["--reasoning-effort=low", "--thinking-mode=enabled"],
        "--reasoning-effort does not go together with --thinking-mode: a body carries one reasoning control",
    ),
    (
        &["--reasoning-effort=low", "--no-thinking"],
        "--reasoning-effort does not go together with --no-thinking: a body carries one reasoning control",
    ),
    (
        &["--reasoning-effort=low", "--model=Qwen3-8B"],
        "--reasoning-effort is not what Qwen models take; use --thinking-mode enabled or disabled",
    ),
    (
        &["--reasoning-effort=max", "--model=gpt-oss"],
        "--reasoning-effort must be one of low, medium, high for gpt-oss models",
    ),
    (&["--workers=0"], "--workers must be between 1 and 1024"),
    (
        &["--workers=3", "--cores=0,1"],
        "--workers does not go together with --cores: 3 workers need as many cores, and 2 are named",
    ),
    (&["--cores=x"], "--cores \"x\" is not a list of cores below 1024 (like 2,4-7)"),
    (&["--cores=1024"], "--cores \"1024\" is not a list of cores below 1024 (like 2,4-7)"),
    (&["--cores=3-1"], "--cores \"3-1\" has a range that runs backwards"),
    (&["--cores=0-2,1"], "--cores \"0-2,1\" names a core twice"),
    (&["--stamps=nic"], "--stamps must be one of kernel, user"),
    (&["--strict-instrument=1"], "--strict-instrument takes no value"),
    (&["--out="], "the value of --out is missing: the flag takes one"),
    (&["--out=/dev/null"], "--out names something that is not a directory"),
    (&["--out=src"], "--out names a directory that exists already; --overwrite replaces the run in it"),
    (&["--json-out=/no/such/dir/a.json"], "--json-out is to lie in a directory that does not exist"),
    (&["--json-out=/dev/null"], "--json-out names something that is not a file"),
    (&["--json-out=.."], "--json-out must name a file"),
    (&["--output=/no/such/dir/a.json"], "--json-out is to lie in a directory that does not exist"),
    (&["--overwrite=1"], "--overwrite takes no value"),
    (&["--quiet=1"], "--quiet takes no value"),
    (
        &["--quiet", "--progress=plain"],
        "--quiet does not go together with --progress plain: the one forbids what the other asks for",
    ),
    (
        &["--quiet", "--format=json"],
        "--quiet does not go together with --format: the one forbids what the other asks for",
    ),
    (&["--progress=fancy"], "--progress must be one of auto, plain, none"),
    (&["--format=vllm"], "--format must be one of text, json"),
    (&["--dry-run=1"], "--dry-run takes no value"),
    (&["--engine=a\u{1b}[2J"], "--engine must not have control characters"),
    (&["--gpu=a\tb"], "--gpu must not have control characters"),
    (&["--tier=a\rb"], "--tier must not have control characters"),
    (&["--manifest=a\0b"], "--manifest must not have control characters"),
    (&["--source-recipe=\n"], "--source-recipe must not have control characters"),
    (
        &["--clock-domain-id=a b"],
        "--clock-domain-id must be 1 to 64 letters, digits, dots, underscores and hyphens",
    ),
    (
        &["--configuration-fingerprint=sha256:00"],
        "--configuration-fingerprint must be sha256: and 64 lowercase hexadecimal digits",
    ),
    (&["--label=x"], "--label must be KEY=VALUE"),
    (
        &["--label=a b=1"],
        "--label must have a key of at most 64 letters, digits, dots, underscores and hyphens",
    ),
    (&["--label=a=1", "--label=a=2"], "--label sets a twice"),
    (&["--config=/no/such.toml"], "/no/such.toml: No such file or directory (os error 2)"),
    (&["--no-such-flag=SECRET"], "there is no flag --no-such-flag"),
    (&["--request=5"], "there is no flag --request (there is --requests)"),
    (&["--rate=5"], "there is no flag --rate"),
    (
        &["--header=X: a", "SECRET"],
        "there is an argument that belongs to no flag; put a value with spaces in quotes",
    ),
];

#[test]
fn every_mistake_gets_its_sentence() {
    let env = [("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"), ("KEY", "abc"), ("BLANK", " \n")];
    let mut wrong = Vec::new();
    for (argv, want) in MISTAKES {
        let got = run_in(argv, &env).map(|spec| panic!("{argv:?} became {spec:?}")).unwrap_err().to_string();
        if got != *want || got.contains('\n') {
            wrong.push(format!("{argv:?}\n  {got}\n  {want}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_flag_has_a_mistake_in_the_table() {
    let tested: BTreeSet<&str> = MISTAKES
        .iter()
        .map(|(argv, _)| argv[0].split('=').next().unwrap().trim_start_matches("--"))
        .collect();
    for arg in args::command().get_arguments() {
        let long = arg.get_long().unwrap();
        assert!(tested.contains(long), "--{long} has no row");
        assert!(arg.get_help().is_some_and(|help| !help.to_string().is_empty()), "--{long} has no help");
    }
}

#[test]
fn separate_values_are_read_like_joined_ones() {
    assert_eq!(spec(&["--requests", "5"]).load.requests, 5);
    assert_eq!(spec(&["--seed", "-3"]).prompt.seed, -3);
    assert_eq!(sentence(&["--requests", "-5"]), "--requests \"-5\" must not be negative");
    assert_eq!(sentence(&["--timeout", "-1s"]), "--timeout \"-1s\" must not be negative");
    assert_eq!(sentence(&["--model"]), "the value of --model is missing: the flag takes one");
    let stray = "there is an argument that belongs to no flag; put a value with spaces in quotes";
    assert_eq!(sentence(&["--sim", "profile"]), stray);
}

#[test]
fn the_help_shows_every_default_that_the_resolver_fills_in() {
    let help = args::command().render_long_help().to_string();
    // Long lines are broken for the terminal.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (flag, default) in [
        ("requests", "60"),
        ("concurrency", "20"),
        ("ctx-tokens", "512; with --compat anvil 0"),
        ("max-tokens", "128; with --compat anvil 64"),
        ("shared-prefix-tokens", "0; with --compat anvil or --burst 8000"),
        ("timeout", "15m"),
        ("connect-timeout", "10s"),
        ("margin", "1024"),
    ] {
        assert_eq!(defaults::shown(flag).as_deref(), Some(default), "{flag}");
        assert!(help.contains(&format!("[default: {default}]")), "{flag}: {help}");
    }
    let flags: BTreeSet<String> =
        args::command().get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect();
    let shown: Vec<&String> = flags.iter().filter(|flag| defaults::shown(flag).is_some()).collect();
    assert!(shown.len() > 25, "{shown:?}");
}

#[test]
fn modes_and_prefixes_combine_sensibly() {
    let got = |argv: &[&str]| {
        let prompt = spec(argv).prompt;
        (prompt.unique, prompt.same, prompt.shared_prefix_tokens)
    };
    for (argv, want) in [
        (&[] as &[&str], (true, false, 0)),
        (&["--prompts=unique"], (true, false, 0)),
        (&["--prompts=same"], (false, true, 0)),
        (&["--prompt-cache-mode=shared"], (false, false, 0)),
        (&["--shared-prefix-tokens=100"], (false, false, 100)),
        (&["--shared-prefix-tokens=0"], (true, false, 0)),
        (&["--shared-prefix-tokens=100", "--prompt-cache-mode=shared"], (false, false, 100)),
        (&["--shared-prefix-tokens=0", "--prompts=unique"], (true, false, 0)),
        (&["--prompts=same", "--shared-prefix-tokens=9"], (false, true, 9)),
        (&["--burst=4"], (false, false, 8_000)),
        (&["--burst=4", "--shared-prefix-tokens=0"], (false, false, 0)),
        (&["--burst=0"], (true, false, 0)),
        (&["--compat=anvil"], (false, false, 8_000)),
        (&["--compat=anvil", "--prompts=unique"], (true, false, 0)),
        (&["--compat=anvil", "--prompt-cache-mode=unique"], (true, false, 0)),
        (&["--compat=anvil", "--shared-prefix-tokens=0"], (false, false, 0)),
    ] {
        assert_eq!(got(argv), want, "{argv:?}");
    }
    let burst = spec(&["--burst=4", "--requests=4"]).load;
    assert_eq!((burst.requests, burst.concurrency, burst.burst), (4, 4, 4));
}

#[test]
fn limits_of_the_reference_do_not_apply() {
    let spec = spec(&[
        "--compat=anvil",
        "--requests=1M",
        "--concurrency=10k",
        "--ctx-tokens=2M",
        "--max-tokens=70000",
    ]);
    assert_eq!((spec.load.requests, spec.load.concurrency), (1_000_000, 10_000));
    assert_eq!((spec.prompt.ctx_tokens, spec.prompt.max_tokens), (Some(2_000_000), 70_000));
}

#[test]
fn the_simulator_is_a_target_of_its_own() {
    let settings = |argv: &[&str]| spec(argv).target.sim.unwrap().settings;
    assert_eq!(settings(&["--sim"]), []);
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    assert_eq!(settings(&["--sim=slow"]), [pair("profile", "slow")]);
    let got = settings(&["--sim=ttft=lognormal:80ms,20ms; itl=20ms;max_in_flight=4;"]);
    assert_eq!(got, [pair("ttft", "lognormal:80ms,20ms"), pair("itl", "20ms"), pair("max-in-flight", "4")]);
    let target = spec(&["--sim"]).target;
    assert_eq!((target.base_url.as_str(), target.path.as_str()), ("", "/v1/chat/completions"));
    assert_eq!(target.models_path.as_deref(), Some("/v1/models"));
}

#[test]
fn a_base_url_is_needed_and_the_environment_may_give_it() {
    let missing = "--base-url is missing: name the server, set OPENAI_BASE_URL, or use --sim";
    assert_eq!(run_in(&[], &[]).unwrap_err().to_string(), missing);
    assert_eq!(run_in(&[], &[("OPENAI_BASE_URL", " ")]).unwrap_err().to_string(), missing);
    let env = [("OPENAI_BASE_URL", "http://env:1")];
    assert_eq!(run_in(&[], &env).unwrap().target.host, "env");
    assert_eq!(run_in(&["--base-url=http://typed:2"], &env).unwrap().target.host, "typed");
    assert!(run_in(&["--sim"], &env).unwrap().target.sim.is_some());
}

#[test]
fn the_key_comes_from_where_it_was_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key.txt");
    std::fs::write(&path, "FILE-KEY\r\n").unwrap();
    let file = format!("--api-key-file={}", path.display());
    let base = "--base-url=http://h/v1";
    let env = [("OPENAI_API_KEY", "ENV-KEY\n"), ("MINE", "MY-KEY")];
    let key = |argv: &[&str], env: &[(&str, &str)]| {
        run_in(argv, env).unwrap().target.api_key.map(|key| key.reveal().to_owned())
    };
    assert_eq!(key(&[base], &env).as_deref(), Some("ENV-KEY"));
    assert_eq!(key(&[base, "--api-key-env=MINE"], &env).as_deref(), Some("MY-KEY"));
    assert_eq!(key(&[base, &file], &env).as_deref(), Some("FILE-KEY"));
    assert_eq!(key(&[base], &[]), None);
    assert_eq!(key(&[base], &[("OPENAI_API_KEY", "  ")]), None);
    // A field given by hand wins over a variable that happens to be set.
    assert_eq!(key(&[base, "--header=authorization: Basic x"], &env), None);
    let broken = run_in(&[base], &[("OPENAI_API_KEY", "two words")]).unwrap_err().to_string();
    let want = "--api-key-env OPENAI_API_KEY holds a key with spaces, line ends or other unusual characters";
    assert_eq!(broken, want);
    std::fs::write(&path, vec![b'k'; 9_000]).unwrap();
    let long = run_in(&[base, &file], &[]).unwrap_err().to_string();
    assert_eq!(long, "--api-key-file holds a key of more than 8192 bytes");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(
        run_in(&[base, &file], &[]).unwrap_err().to_string(),
        "--api-key-file holds a key that is not UTF-8"
    );
}

#[test]
fn no_secret_is_shown_by_anything() {
    const SECRETS: [&str; 4] = ["TESTKEY-0123456789", "TEAMSECRET-42", "URLPASS-77", "PASTED-KEY"];
    let clean = |text: String| {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{text}");
        }
    };
    let env = [("OPENAI_API_KEY", SECRETS[0])];
    let header = format!("--header=X-Team-Token: {}", SECRETS[1]);
    let good = ["--base-url=http://h/v1", header.as_str()];
    clean(format!("{:?}", typed(&good).unwrap()));
    let spec = run_in(&good, &env).unwrap();
    clean(format!("{spec:?}{:#?}", spec.target));
    assert_eq!(spec.target.headers[0].1.reveal(), SECRETS[1]);
    let userinfo = format!("--base-url=http://user:{}@h/v1", SECRETS[2]);
    clean(format!("{:?}", typed(&[&userinfo]).unwrap()));
    for argv in [
        vec![userinfo.as_str()],
        vec!["--base-url=http://h", "--api-key-env=PASTED-KEY"],
        vec!["--base-url=http://h", "--api-key=PASTED-KEY"],
        vec!["--base-url=http://h", "--api-key", "PASTED-KEY"],
        vec!["--base-url=http://h", "PASTED-KEY"],
        vec!["--base-url=http://h", "--header=TEAMSECRET-42"],
        vec!["--base-url=http://h", "--header=X: TEAMSECRET-42\u{1}"],
        vec!["--base-url=http://h", "--header=X", "TEAMSECRET-42"],
        vec!["--base-url=http://h", "--header=Host: TEAMSECRET-42"],
        vec!["--base-url=http://h", "--header=Authorization: TEAMSECRET-42", "--api-key-file=/dev/null"],
    ] {
        let error = run_in(&argv, &env).unwrap_err();
        clean(format!("{error} {error:?} {error:#?}"));
    }
    let toml = "header = [\"X: TEAMSECRET-42\"]\nbase_url = \"http://u:URLPASS-77@h\"\n";
    let read = ConfigFile::parse(toml, Path::new("c.toml")).unwrap();
    clean(format!("{read:?}"));
    for toml in ["header = [\"X: TEAMSECRET-42\", 5]", "header = \"TEAMSECRET-42", "api_key = \"PASTED-KEY\""]
    {
        let error = ConfigFile::parse(toml, Path::new("c.toml")).unwrap_err();
        clean(format!("{error} {error:?}"));
    }
}

fn with_file(toml: &str, argv: &[&str]) -> Result<RunSpec, UsageError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bench.toml");
    std::fs::write(&path, toml).unwrap();
    let config = format!("--config={}", path.display());
    let result = run(&[argv, &[&config]].concat());
    result.map_err(|error| match error {
        // The folder differs from test to test.
        UsageError::File { line, reason, .. } => {
            UsageError::File { path: PathBuf::from("bench.toml"), line, reason }
        }
        other => other,
    })
}

#[test]
fn every_flag_can_stand_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let toml = format!(
        r#"
# every flag, in the types that fit
base_url = "http://file:9/v1"
endpoint_path = "/x/chat/completions"
endpoint = "chat"
model = "m"
header = ["X-A: 1", "X-B: 2"]
no_request_id = true
requests = "10k"
concurrency = 0x10
burst = 0
connection = "fresh"
timeout = 1.5
idle_timeout = "250ms"
connect_timeout = 3
compat = "anvil"
ctx_tokens = 1_024
seed = -3
max_tokens = 32
response_words = 5
prompt_cache_mode = "shared"
prompts = "same"
shared_prefix_tokens = 100
request_canaries = false
controlled_output_policy = "strict"
max_model_len = 8192
margin = 0
capture_limit = 100
temperature = 1
top_p = 0.5
thinking_mode = "disabled"
no_thinking = true
workers = 2
cores = [3, 0, 1]
stamps = "user"
strict_instrument = true
out = "{out}/new"
json_out = "{out}/a.json"
overwrite = true
quiet = false
progress = "none"
format = "json"
dry_run = true
engine = "e"
gpu = "g"
tier = "t"
manifest = "m"
source_recipe = "s"
clock_domain_id = "c"
configuration_fingerprint = "sha256:{fingerprint}"
label = ["k=v"]
"#,
        out = dir.path().display(),
        fingerprint = "0".repeat(64),
    );
    let spec = with_file(&toml, &[]).unwrap();
    assert_eq!((spec.target.host.as_str(), spec.target.model.as_deref()), ("file", Some("m")));
    assert_eq!((spec.load.requests, spec.load.concurrency), (10_000, 16));
    assert_eq!(spec.connection.timeout, Nanos::from_millis(1_500));
    assert_eq!(spec.connection.connect_timeout, Nanos::from_secs(3));
    assert_eq!((spec.prompt.seed, spec.prompt.ctx_tokens), (-3, Some(1_024)));
    assert_eq!(spec.instrument.cores, [3, 0, 1]);
    assert_eq!((spec.target.headers.len(), spec.labels.labels.len()), (2, 1));
    assert!(
        spec.prompt.same
            && spec.dry_run
            && spec.output.format == OutputFormat::Json
            && !spec.target.request_id_header
    );
    // What the file above leaves out stands for the rest; nothing else may be missing from it.
    let absent = ["sim", "api-key-env", "api-key-file", "reasoning-effort", "config"];
    for arg in args::command().get_arguments() {
        let key = arg.get_long().unwrap();
        let there = toml.contains(&format!("\n{} = ", key.replace('-', "_")));
        assert_eq!(there, !absent.contains(&key), "{key}");
    }
    assert_eq!(with_file("sim = true", &[]).unwrap().target.sim.unwrap().settings, []);
    assert_eq!(with_file("sim = \"itl=1ms\"", &[]).unwrap().target.sim.unwrap().settings.len(), 1);
    assert_eq!(
        with_file("reasoning_effort = \"low\"", &[]).unwrap().body.reasoning_effort.as_deref(),
        Some("low")
    );
    assert_eq!(with_file("num_prompts = 7", &[]).unwrap().load.requests, 7);
    assert_eq!(with_file("cores = \"0-1\"", &[]).unwrap().instrument.cores, [0, 1]);
    assert_eq!(with_file("header = \"X: 1\"", &[]).unwrap().target.headers.len(), 1);
}

#[test]
fn the_command_line_wins() {
    let load = |toml: &str, argv: &[&str]| {
        let load = with_file(toml, argv).unwrap().load;
        (load.requests, load.concurrency, load.burst)
    };
    assert_eq!(load("requests = 5\nconcurrency = 6", &["--requests=7"]), (7, 6, 0));
    // A burst and a number of requests are two ways to say how many.
    assert_eq!(load("requests = 5", &["--burst=3"]), (3, 3, 3));
    assert_eq!(load("burst = 3", &["--requests=5"]), (5, 20, 0));
    let spec = with_file("header = [\"X-A: 1\", \"X-B: 2\"]\nquiet = true", &["--header=X-C: 3"]).unwrap();
    assert_eq!(spec.target.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["X-C"]);
    assert!(spec.output.quiet);
    let spec = with_file("prompt_cache_mode = \"shared\"", &["--prompts=unique"]).unwrap();
    assert!(spec.prompt.unique);
    let spec = with_file("thinking_mode = \"enabled\"", &["--reasoning-effort=low"]).unwrap();
    assert_eq!(
        (spec.body.thinking_mode, spec.body.reasoning_effort.as_deref()),
        (ThinkingMode::Default, Some("low"))
    );
    let spec = with_file("base_url = \"http://file/v1\"", &["--sim"]).unwrap();
    assert!(spec.target.sim.is_some());
    let spec = with_file("sim = true", &["--base-url=http://typed/v1"]).unwrap();
    assert_eq!(spec.target.host, "typed");
    // The file wins over the environment.
    assert_eq!(with_file("base_url = \"http://file/v1\"", &[]).unwrap().target.host, "file");
}

#[test]
fn mistakes_in_the_file_have_their_line() {
    for (toml, want) in [
        ("\n\nrequsts = 5", "bench.toml line 3: there is no setting \"requsts\""),
        ("max-tokens = 5", "bench.toml line 1: there is no setting \"max-tokens\""),
        ("config = \"x\"", "bench.toml line 1: there is no setting \"config\""),
        ("help = true", "bench.toml line 1: there is no setting \"help\""),
        ("api_key = \"x\"", "bench.toml line 1: there is no setting \"api_key\""),
        ("requests = true", "bench.toml line 1: requests must be a number, or a text with a unit"),
        ("requests = [5]", "bench.toml line 1: requests must be a number, or a text with a unit"),
        ("requests = 1979-05-27", "bench.toml line 1: requests must be a number, or a text with a unit"),
        (
            "requests = \"many\"",
            "bench.toml line 1: --requests \"many\" is not a number (like 2, 0.5 or 12.5)",
        ),
        ("requests = 1.5", "bench.toml line 1: --requests \"1.5\" is not a whole number"),
        ("model = 5", "bench.toml line 1: model must be a text"),
        ("quiet = 1", "bench.toml line 1: quiet must be true or false"),
        ("header = [5]", "bench.toml line 1: header must be a list of texts"),
        ("header = true", "bench.toml line 1: header must be a list of texts"),
        ("cores = [\"a\"]", "bench.toml line 1: cores must be a list of cores"),
        ("connection = \"sticky\"", "bench.toml line 1: --connection must be one of keep, fresh"),
        ("connection = true", "bench.toml line 1: connection must be a text"),
        ("[load]\nrequests = 5", "bench.toml line 1: there is no setting \"load\""),
        ("requests = 5\nnum_prompts = 6", "bench.toml line 2: num_prompts is set twice under two names"),
        ("requests = 5\nrequests = 6", "bench.toml line 2: duplicate key"),
        // What only shows once everything is known.
        ("model = \"m\"\nrequests = 0", "bench.toml line 2: --requests must be between 1 and 100000000"),
        (
            "\nthinking_mode = \"enabled\"\nno_thinking = true",
            "bench.toml line 3: --no-thinking does not go together with --thinking-mode: it means --thinking-mode disabled",
        ),
    ] {
        let error = with_file(toml, &[]).map(|spec| panic!("{toml} became {spec:?}")).unwrap_err();
        assert_eq!(error.to_string(), want, "{toml}");
    }
    // The flag was typed, so the file is not to blame.
    let error = with_file("requests = 5", &["--requests=0"]).unwrap_err().to_string();
    assert_eq!(error, "--requests must be between 1 and 100000000");
    let syntax = with_file("model = \"m\"\nrequests = = 5", &[]).unwrap_err().to_string();
    assert!(syntax.starts_with("bench.toml line 2: ") && !syntax.contains('\n'), "{syntax}");
}

#[test]
fn a_file_that_is_no_text_or_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    std::fs::write(&path, [0xff]).unwrap();
    let error = ConfigFile::read(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}: is not UTF-8 text", path.display()));
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    let error = ConfigFile::read(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}: is larger than 1048576 bytes", path.display()));
    assert!(ConfigFile::read(dir.path()).is_err());
}

#[test]
fn results_are_not_written_over_or_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("old.json"), "{}").unwrap();
    std::os::unix::fs::symlink(at("old.json"), at("link.json")).unwrap();
    std::os::unix::fs::symlink(at("gone.json"), at("dangling.json")).unwrap();
    std::fs::create_dir(at("run")).unwrap();
    let json_out = |name: &str| run(&[&format!("--json-out={}", at(name))]);
    assert!(json_out("new.json").is_ok() && json_out("old.json").is_ok());
    for link in ["link.json", "dangling.json"] {
        assert_eq!(json_out(link).unwrap_err().to_string(), "--json-out names a symbolic link");
    }
    assert_eq!(json_out("run").unwrap_err().to_string(), "--json-out names something that is not a file");
    let out = format!("--out={}", at("run"));
    assert!(run(&[&out]).is_err());
    assert!(run(&[&out, "--overwrite"]).is_ok() && run(&[&out, "--dry-run"]).is_ok());
    // Into the directory that the run itself makes.
    let (out, inside) = (format!("--out={}", at("fresh")), format!("--json-out={}", at("fresh/a.json")));
    assert!(run(&[&out, &inside]).is_ok() && run(&[&inside]).is_err());
}
