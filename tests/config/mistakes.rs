//! Every flag with the mistakes that can be made with it, and the whole sentence of each.

use std::collections::BTreeSet;

use hammerscale::config::args;

use super::run_in;

/// The value of the variable `KEY`.
pub(crate) const KEY: &str = "abc";
/// The value of the variable `BLANK`.
pub(crate) const BLANK_KEY: &str = " \n";

/// A flag with its value (`--x=y`), more flags if needed, and the whole sentence.
pub(crate) const MISTAKES: &[(&[&str], &str)] = &[
    (&["--base-url=ftp://h"], "--base-url must begin with http://"),
    (&["--base-url=https://h/v1"], "--base-url asks for https, but TLS is not built in yet; use http"),
    (&["--base-url=http://h", "--sim"], "--sim does not go together with --base-url: a run has one target"),
    (&["--endpoint-path=v1"], "--endpoint-path must begin with a slash"),
    (
        &["--endpoint-path=/v1", "--sim"],
        "--endpoint-path does not go together with --sim: the simulator has its own paths",
    ),
    (
        &["--sim=slow"],
        "--sim cannot be read: profile: there is no profile 'slow' (there are default, loaded, reasoning, speculative, \
         fast, instant)",
    ),
    (&["--sim=ttft=1ms;itl"], "--sim cannot be read: 'itl' is not KEY=VALUE"),
    (&["--sim=ttft=1ms;ttft=2ms"], "--sim cannot be read: 'ttft' is given twice"),
    (&["--sim=ttft=soon"], "--sim cannot be read: ttft: 'soon': 'soon' is not a duration such as 20ms"),
    (
        &["--sim", "default"],
        "there is an argument that belongs to no flag; a profile is joined to its flag: --sim=default",
    ),
    (
        &["--sim=nope=1"],
        "--sim cannot be read: there is no setting 'nope' (there are cores, itl, ledger, max-in-flight, profile, \
         reasoning-tokens, seed, tokens, tokens-per-chunk, ttft)",
    ),
    (&["--sim=listen=127.0.0.1:1"], "--sim cannot set listen: the run decides it"),
    (&["--endpoint=template"], "--endpoint template is not built in yet; use the endpoint that is nearest"),
    (
        &["--endpoint=chatt"],
        "--endpoint must be one of chat, completions, responses, messages, embeddings, http",
    ),
    (
        &["--base-url=http://h/v1/chat/completions", "--endpoint=completions"],
        "--base-url ends with the path of --endpoint chat, and another endpoint is asked for",
    ),
    (&["--base-url=http://h/a?b#c", "--endpoint=http"], "--base-url must not have a fragment"),
    (
        &["--sim", "--endpoint=http"],
        "--sim does not go together with --endpoint http: the simulator serves models only",
    ),
    (
        &["--model=m", "--endpoint=http"],
        "--model does not go together with --endpoint http: plain requests name no model",
    ),
    (
        &["--ctx-tokens=64", "--endpoint=http"],
        "--ctx-tokens does not go together with --endpoint http: plain requests have no prompt",
    ),
    (
        &["--max-tokens=5", "--endpoint=embeddings"],
        "--max-tokens does not go together with --endpoint embeddings: nothing is generated there",
    ),
    (
        &["--temperature=1", "--endpoint=embeddings"],
        "--temperature does not go together with --endpoint embeddings: nothing is generated there",
    ),
    (
        &["--reasoning-effort=low", "--endpoint=messages"],
        "--reasoning-effort does not go together with --endpoint messages: its requests have no effort",
    ),
    (
        &["--thinking-mode=enabled", "--endpoint=messages"],
        "--thinking-mode does not go together with --endpoint messages: thinking needs a budget of tokens there: give \
         one by --extra-body",
    ),
    (
        &["--no-thinking", "--endpoint=responses"],
        "--no-thinking does not go together with --endpoint responses: its requests have no chat template",
    ),
    (
        &["--compat=anvil", "--endpoint=responses"],
        "--compat does not go together with --endpoint responses: the reference sends chat completions",
    ),
    (&["--method=TRACE"], "--method must be one of GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS"),
    (
        &["--method=GET"],
        "--method does not go together with --endpoint chat: only plain requests (--endpoint http) have one of their \
         own",
    ),
    (
        &["--body=Cargo.toml"],
        "--body does not go together with --endpoint chat: only plain requests (--endpoint http) have one of their \
         own",
    ),
    (
        &["--body=Cargo.toml", "--endpoint=http"],
        "--method is missing: name how the --body is sent (like POST)",
    ),
    (
        &["--body=/no/such", "--endpoint=http", "--method=PUT"],
        "--body cannot be read: No such file or directory (os error 2)",
    ),
    (
        &["--body=src", "--endpoint=http", "--method=PUT"],
        "--body cannot be read: it is a directory and no regular file",
    ),
    (
        &["--body=/dev/zero", "--endpoint=http", "--method=PUT"],
        "--body names a file of more than 67108864 bytes",
    ),
    (
        &["--stream", "--no-stream"],
        "--stream does not go together with --no-stream: an answer is a stream or it is not",
    ),
    (
        &["--stream", "--endpoint=embeddings"],
        "--stream does not go together with --endpoint embeddings: its answers are never streamed",
    ),
    (
        &["--no-stream", "--endpoint=http"],
        "--no-stream does not go together with --endpoint http: plain requests ask for no stream anyway",
    ),
    (
        &["--json-out=a.json", "--no-stream"],
        "--json-out does not go together with --no-stream: the reference's artifact is about streamed text",
    ),
    (
        &["--json-out=a.json", "--endpoint=http"],
        "--json-out does not go together with --endpoint http: the reference's artifact is about streamed text",
    ),
    (
        &["--continuous-usage", "--no-stream"],
        "--continuous-usage does not go together with --no-stream: one body has its usage once",
    ),
    (
        &["--continuous-usage", "--endpoint=messages"],
        "--continuous-usage does not go together with --endpoint messages: its requests have no stream_options",
    ),
    (&["--max-tokens-field=tokens"], "--max-tokens-field must be one of max_tokens, max_completion_tokens"),
    (
        &["--max-tokens-field=max_tokens", "--endpoint=completions"],
        "--max-tokens-field does not go together with --endpoint completions: only chat completions have two names for \
         the limit",
    ),
    (
        &["--ignore-eos", "--endpoint=responses"],
        "--ignore-eos does not go together with --endpoint responses: its requests have no such member",
    ),
    (&["--extra-body=[1]"], "--extra-body must be a JSON object"),
    (&["--extra-body={"], "--extra-body is no JSON: EOF while parsing an object at line 1 column 1"),
    (&["--extra-body={\"a\":1,\"a\":2}"], "--extra-body sets \"a\" twice"),
    (
        &["--extra-body={\"stream\":false}"],
        "--extra-body must not set \"stream\": use --stream or --no-stream",
    ),
    (&["--extra-body={\"messages\":[]}"], "--extra-body must not set \"messages\": it holds the prompt"),
    (&["--extra-body={\"model\":\"x\"}"], "--extra-body must not set \"model\": use --model"),
    (
        &["--extra-body={\"max_completion_tokens\":5}"],
        "--extra-body must not set \"max_completion_tokens\": use --max-tokens",
    ),
    (
        &["--extra-body={\"max_output_tokens\":5}", "--endpoint=responses"],
        "--extra-body must not set \"max_output_tokens\": use --max-tokens",
    ),
    (
        &["--extra-body={\"top_p\":1}", "--top-p=0.5"],
        "--extra-body does not go together with --top-p: both set \"top_p\"",
    ),
    (
        &["--extra-body={}", "--endpoint=http"],
        "--extra-body does not go together with --endpoint http: a plain body is a file's: use --body",
    ),
    (
        &["--header=X-Api-Key: x", "--api-key-env=KEY", "--endpoint=messages"],
        "--header does not go together with a key: both set the x-api-key field",
    ),
    (&["--header=Content-Type: a/b"], "--header cannot set content-type: the client decides it"),
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
    (&["--api-key-file=src"], "--api-key-file cannot be read: it is a directory and no regular file"),
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
    (&["--rate=0"], "--rate must be between 0.001 and 1000000"),
    (&["--rate=1.1M"], "--rate must be between 0.001 and 1000000"),
    (&["--rate=-5"], "--rate \"-5\" must not be negative"),
    (&["--rate=fast"], "--rate \"fast\" is not a number (like 2, 0.5 or 12.5)"),
    (&["--rate=5/m"], "--rate \"5/m\" has no unit that is known here (k, M, /s)"),
    (&["--rate=1e3"], "--rate \"1e3\" is not a number (like 2, 0.5 or 12.5)"),
    (&["--rate="], "--rate \"\" is empty"),
    (&["--rate=5", "--rate=6"], "--rate is given twice"),
    (&["--request-rate=0"], "--rate must be between 0.001 and 1000000"),
    (&["--rate=0.01", "--requests=6050"], "--rate is so low that 6050 requests take more than 168h"),
    (&["--arrival=gamma", "--rate=5"], "--arrival must be one of constant, poisson"),
    (&["--arrival=constant"], "--rate is missing: --arrival says how requests follow each other at a rate"),
    (
        &["--concurrency=4", "--rate=5"],
        "--concurrency does not go together with --rate: a cap on the requests in flight is not built in yet",
    ),
    (
        &["--burst=4", "--rate=5"],
        "--burst does not go together with --rate: a burst within a schedule is not built in yet",
    ),
    (
        &["--prewarm", "--rate=5"],
        "--prewarm does not go together with --rate: how many connections a schedule needs is for the server's speed to \
         decide",
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
    (&["--timeout=1e99s"], "--timeout \"1e99s\" is not a number (like 2, 0.5 or 12.5)"),
    (&["--requests=1e3"], "--requests \"1e3\" is not a number (like 2, 0.5 or 12.5)"),
    (&["--timeout=0.1ns"], "--timeout \"0.1ns\" is not a whole number of nanoseconds"),
    (&["--timeout-seconds=0"], "--timeout must be more than 0s and at most 168h"),
    (&["--idle-timeout=0"], "--idle-timeout must be more than 0s and at most 168h"),
    (&["--connect-timeout=0"], "--connect-timeout must be more than 0s and at most 168h"),
    (&["--max-client-error=0"], "--max-client-error must be more than 0s and at most 168h"),
    (&["--max-client-error=169h"], "--max-client-error must be more than 0s and at most 168h"),
    (&["--max-client-error=-1us"], "--max-client-error \"-1us\" must not be negative"),
    (
        &["--max-client-error=50us", "--stamps=user"],
        "--max-client-error does not go together with --stamps user: without kernel stamps nobody knows how late reading \
         was",
    ),
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
        "--response-words is missing: --controlled-output-policy strict needs an exact answer to ask for",
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
    (&["--prewarm=1"], "--prewarm takes no value"),
    (
        &["--prewarm", "--connection=fresh"],
        "--prewarm does not go together with --connection fresh: a connection made before the first request is not a \
         fresh one",
    ),
    (&["--source-ip="], "--source-ip \"\" is not a list of IP addresses (like 10.0.0.1,10.0.0.2)"),
    (
        &["--source-ip=10.0.0.1,eth0"],
        "--source-ip \"10.0.0.1,eth0\" is not a list of IP addresses (like 10.0.0.1,10.0.0.2)",
    ),
    (
        &["--source-ip=10.0.0.1:80"],
        "--source-ip \"10.0.0.1:80\" is not a list of IP addresses (like 10.0.0.1,10.0.0.2)",
    ),
    (&["--source-ip=::1,10.0.0.1,::1"], "--source-ip \"::1,10.0.0.1,::1\" names ::1 twice"),
    (
        &["--source-ip=10.0.0.1,::ffff:10.0.0.1"],
        "--source-ip \"10.0.0.1,::ffff:10.0.0.1\" names 10.0.0.1 twice",
    ),
    (&["--source-ip=0.0.0.0"], "--source-ip \"0.0.0.0\" names 0.0.0.0, from which nothing can connect"),
    (
        &["--source-ip=255.255.255.255"],
        "--source-ip \"255.255.255.255\" names 255.255.255.255, from which nothing can connect",
    ),
    (&["--source-ip=ff02::1"], "--source-ip \"ff02::1\" names ff02::1, from which nothing can connect"),
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
    (&["--config=src"], "src: it is a directory and no regular file"),
    (&["--config=/no/such.toml"], "/no/such.toml: No such file or directory (os error 2)"),
    (&["--no-such-flag=SECRET"], "there is no flag --no-such-flag"),
    (&["--request=5"], "there is no flag --request (there is --requests)"),
    (
        &["--header=X: a", "SECRET"],
        "there is an argument that belongs to no flag; put a value with spaces in quotes",
    ),
];

#[test]
fn every_mistake_gets_its_sentence() {
    let env = [("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"), ("KEY", KEY), ("BLANK", BLANK_KEY)];
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
