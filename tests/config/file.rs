//! The configuration file.

use std::path::{Path, PathBuf};

use hammerscale::config::args;
use hammerscale::config::file::ConfigFile;
use hammerscale::config::spec::{ArrivalProcess, OutputFormat, RunSpec, ThinkingMode};
use hammerscale::config::usage::UsageError;
use hammerscale::units::Nanos;
use proptest::prelude::*;

use super::run;

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

/// What the README shows is a file that can be used.
#[test]
fn the_example_of_the_readme_is_read() {
    let readme = include_str!("../../README.md");
    let toml = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let spec = with_file(toml, &["--concurrency", "20"]).unwrap();
    assert_eq!((spec.load.requests, spec.load.concurrency, spec.prompt.max_tokens), (1_000, 20, 32));
    assert_eq!((spec.connection.timeout, spec.labels.labels.len()), (Nanos::from_secs(30), 2));
    assert!(spec.target.sim.is_some());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one flag a line")]
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
stream = true
no_stream = false
continuous_usage = true
max_tokens_field = "max_completion_tokens"
ignore_eos = true
extra_body = '{{"min_p": 0.1}}'
workers = 2
cores = [3, 0, 1]
stamps = "kernel"
strict_instrument = true
max_client_error = "50us"
prewarm = false
source_ip = "10.0.0.1,10.0.0.2"
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
    assert_eq!(spec.instrument.max_client_error, Some(Nanos(50_000)));
    assert_eq!(spec.connection.source_ips.len(), 2);
    assert_eq!((spec.target.headers.len(), spec.labels.labels.len()), (2, 1));
    assert!(
        spec.prompt.same
            && spec.dry_run
            && spec.output.format == OutputFormat::Json
            && !spec.target.request_id_header
    );
    // What the file above leaves out stands for the rest; nothing else may be missing from it.
    let absent = [
        "sim",
        "api-key-env",
        "api-key-file",
        "reasoning-effort",
        "method",
        "body",
        "config",
        "rate",
        "arrival",
    ];
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
    assert!(spec.body.continuous_usage && spec.body.ignore_eos && spec.body.streamed);
    assert_eq!(spec.body.extra, [("min_p".to_owned(), "0.1".to_owned())]);
    let plain = with_file("endpoint = \"http\"\nmethod = \"PUT\"\nbody = \"Cargo.toml\"", &[]).unwrap();
    assert_eq!(plain.target.plain.unwrap().body.unwrap(), std::fs::read("Cargo.toml").unwrap());
    assert!(with_file("prewarm = true", &[]).unwrap().connection.prewarm);
    assert_eq!(with_file("num_prompts = 7", &[]).unwrap().load.requests, 7);
    let rate = |toml| with_file(toml, &[]).unwrap().load.arrivals.unwrap();
    assert_eq!((rate("rate = 12.5").rate.0, rate("request_rate = \"1.1k/s\"").rate.0), (12.5, 1_100.0));
    assert_eq!(rate("rate = 3\narrival = \"constant\"").process, ArrivalProcess::Constant);
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
    assert!(with_file("no_stream = true", &["--stream"]).unwrap().body.streamed);
    // A rate and a number of slots are two ways to drive the load.
    let open = with_file("concurrency = 5\nprewarm = true", &["--rate=3"]).unwrap();
    assert_eq!((open.load.arrivals.map(|a| a.rate.0), open.connection.prewarm), (Some(3.0), false));
    let closed = with_file("rate = 3\narrival = \"constant\"", &["--concurrency=5"]).unwrap();
    assert_eq!((closed.load.arrivals, closed.load.concurrency), (None, 5));
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
        ("\n\nrequsts = 5", "bench.toml line 3: there is no setting \"requsts\" (there is requests)"),
        ("max-tokens = 5", "bench.toml line 1: there is no setting \"max-tokens\" (there is max_tokens)"),
        ("request = 5", "bench.toml line 1: there is no setting \"request\" (there is requests)"),
        ("seed = 1\nrequests =\nmodel = \"m\"", "bench.toml line 2: requests has no value"),
        ("requests = # how many", "bench.toml line 1: requests has no value"),
        ("config = \"x\"", "bench.toml line 1: there is no setting \"config\""),
        ("help = true", "bench.toml line 1: there is no setting \"help\""),
        ("api_key = \"x\"", "bench.toml line 1: there is no setting \"api_key\" (there is api_key_env)"),
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

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,60}|([a-z_]{1,12} = [-0-9a-z.\"\\[\\]{}#, ]{0,20}\n){0,4}") {
        let _ = ConfigFile::parse(&text, Path::new("c.toml"));
    }
}
