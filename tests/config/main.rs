//! The flags of `hammerscale run`, the configuration file and the environment, from the outside: what each one becomes,
//! and the one sentence that each mistake gets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod every_flag;
mod file;
mod mistakes;
mod refused;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use clap::FromArgMatches as _;
use hammerscale::config::args::{self, RunArgs};
use hammerscale::config::defaults;
use hammerscale::config::resolve;
use hammerscale::config::spec::{
    ArrivalProcess, ConnectionMode, OutputFormat, ProgressMode, RunSpec, ThinkingMode,
};
use hammerscale::config::usage::UsageError;
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
    assert!(!spec.connection.prewarm && spec.connection.source_ips.is_empty());
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

#[test]
fn connections_can_be_made_ahead_and_from_named_addresses() {
    let sources = spec(&["--source-ip=10.0.0.1, fd00::2,::ffff:10.0.0.2"]).connection.source_ips;
    let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
    assert_eq!(sources, ["10.0.0.1", "fd00::2", "10.0.0.2"]);
    assert!(spec(&["--prewarm"]).connection.prewarm);
    assert!(spec(&["--prewarm", "--connection=keep"]).connection.prewarm);
}

#[test]
fn separate_values_are_read_like_joined_ones() {
    assert_eq!(spec(&["--requests", "5"]).load.requests, 5);
    assert_eq!(spec(&["--seed", "-3"]).prompt.seed, -3);
    assert_eq!(sentence(&["--requests", "-5"]), "--requests \"-5\" must not be negative");
    assert_eq!(sentence(&["--timeout", "-1s"]), "--timeout \"-1s\" must not be negative");
    assert_eq!(
        sentence(&["--timeout", "--quiet"]),
        "--timeout \"--quiet\" is not a number (like 2, 0.5 or 12.5)"
    );
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
    for once in ["[default: GET]", "[default: chat]", "[default: 60]"] {
        assert_eq!(help.matches(once).count(), 1, "{once}");
    }
    let flags: BTreeSet<String> =
        args::command().get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect();
    let shown: Vec<&String> = flags.iter().filter(|flag| defaults::shown(flag).is_some()).collect();
    assert!(shown.len() > 25, "{shown:?}");
}

#[test]
fn every_endpoint_has_its_path_and_its_models() {
    let target = |base: &str, argv: &[&str]| {
        let base = format!("--base-url={base}");
        let argv: Vec<&str> = argv.iter().copied().chain([base.as_str()]).collect();
        let target = run_in(&argv, &[("OPENAI_API_KEY", "KEY-1")]).unwrap().target;
        (target.path.clone(), target.models_path.clone(), target.base_url.clone(), target)
    };
    for (name, path) in [
        ("chat", "/chat/completions"),
        ("completions", "/completions"),
        ("responses", "/responses"),
        ("messages", "/messages"),
        ("embeddings", "/embeddings"),
    ] {
        let endpoint = format!("--endpoint={name}");
        for base in ["http://h:1", "http://h:1/v1/", &format!("http://h:1/v1{path}")] {
            let (got, models, recorded, _) = target(base, &[&endpoint]);
            assert_eq!(got, format!("/v1{path}"), "{base}");
            assert_eq!(
                (models.as_deref(), recorded.as_str()),
                (Some("/v1/models"), "http://h:1/v1"),
                "{base}"
            );
        }
        let (got, models, _, _) = target("http://h:1/v1", &[&endpoint, "--endpoint-path=/x/y"]);
        assert_eq!((got.as_str(), models), ("/x/y", None));
    }
    // Plain requests go to the base as it is.
    for (base, path) in [
        ("http://h:1", "/"),
        ("http://h:1/", "/"),
        ("http://h:1/a//b/", "/a//b/"),
        ("http://h:1/v1/x?a=b/c&d", "/v1/x?a=b/c&d"),
        ("http://h:1?q=1", "/?q=1"),
    ] {
        let (got, models, recorded, target) = target(base, &["--endpoint=http"]);
        assert_eq!((got.as_str(), models, recorded.as_str()), (path, None, "http://h:1"), "{base}");
        assert_eq!(target.api_key, None, "a key goes only where it was sent on purpose");
    }
    let (got, ..) = target("http://h:1/a", &["--endpoint=http", "--endpoint-path=/b?c"]);
    assert_eq!(got, "/b?c");
}

#[test]
fn the_key_goes_into_the_field_of_the_endpoint() {
    let fields = |argv: &[&str]| {
        let argv: Vec<&str> = argv.iter().copied().chain(["--base-url=http://h"]).collect();
        let target = run_in(&argv, &[("OPENAI_API_KEY", "KEY-1")]).unwrap().target;
        let fields = target.fields();
        fields.iter().map(|(name, value)| format!("{name}: {}", value.reveal())).collect::<Vec<_>>()
    };
    assert_eq!(fields(&[]), ["Authorization: Bearer KEY-1"]);
    assert_eq!(fields(&["--endpoint=responses", "--header=X: 1"]), ["Authorization: Bearer KEY-1", "X: 1"]);
    assert_eq!(fields(&["--endpoint=messages"]), ["x-api-key: KEY-1", "anthropic-version: 2023-06-01"]);
    let own = ["--endpoint=messages", "--header=Anthropic-Version: 2030-01-01", "--header=X-API-Key: k"];
    assert_eq!(fields(&own), ["Anthropic-Version: 2030-01-01", "X-API-Key: k"]);
    let plain = ["--endpoint=http", "--header=Content-Type: a/b", "--header=Accept: c/d"];
    assert_eq!(fields(&plain), ["Content-Type: a/b", "Accept: c/d"]);
    assert_eq!(fields(&["--endpoint=http", "--api-key-env=OPENAI_API_KEY"]), ["Authorization: Bearer KEY-1"]);
}

#[test]
fn what_is_streamed_follows_from_endpoint_and_flags() {
    for (argv, want) in [
        (&[] as &[&str], true),
        (&["--stream"], true),
        (&["--no-stream"], false),
        (&["--endpoint=messages", "--no-stream"], false),
        (&["--endpoint=responses"], true),
        (&["--endpoint=embeddings"], false),
        (&["--endpoint=embeddings", "--no-stream"], false),
        (&["--endpoint=http"], false),
    ] {
        let spec = spec(argv);
        assert_eq!(spec.body.streamed, want, "{argv:?}");
        assert_eq!(spec.has_reference_artifact(), want, "{argv:?}");
    }
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
fn a_rate_makes_an_open_loop() {
    let load = |argv: &[&str]| spec(argv).load;
    for (argv, rate, process) in [
        (&["--rate=12.5"][..], 12.5, ArrivalProcess::Poisson),
        (&["--request-rate", "1.5k/s", "--arrival", "constant"], 1_500.0, ArrivalProcess::Constant),
        (&["--rate=0.001", "--arrival=poisson", "--burst=0"], 0.001, ArrivalProcess::Poisson),
    ] {
        let arrivals = load(argv).arrivals.unwrap();
        assert_eq!((arrivals.rate.0, arrivals.process), (rate, process), "{argv:?}");
        assert_eq!(load(argv).asked_concurrency(), None);
    }
    assert_eq!(load(&[]).asked_concurrency(), Some(20));
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
    assert_eq!(settings(&["--sim=fast"]), [pair("profile", "fast")]);
    let got = settings(&["--sim=ttft=lognormal:80ms,20ms; itl=20ms;tokens_per_chunk=4;"]);
    assert_eq!(
        got,
        [pair("ttft", "lognormal:80ms,20ms"), pair("itl", "20ms"), pair("tokens_per_chunk", "4")]
    );
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
