//! What an endpoint takes: which one was asked for, which flags have a place in its requests, whether its answers are
//! streamed, and what a plain request carries.

use std::path::Path;

use bytes::Bytes;

use super::args::RunArgs;
use super::defaults::MAX_BODY_FILE_BYTES;
use super::input;
use super::spec::{Endpoint, PlainSpec, ThinkingMode};
use super::usage::UsageError;
use crate::wire::http1::Method;

const FLAG: &str = "--endpoint";
const BODY: &str = "--body";

/// Endpoints to which a flag says something.
const PROMPTED: &[Endpoint] =
    &[Endpoint::Chat, Endpoint::Completions, Endpoint::Responses, Endpoint::Messages, Endpoint::Embeddings];
const GENERATING: &[Endpoint] =
    &[Endpoint::Chat, Endpoint::Completions, Endpoint::Responses, Endpoint::Messages];
const WITH_USAGE_OPTIONS: &[Endpoint] = &[Endpoint::Chat, Endpoint::Completions];
const WITH_EFFORT: &[Endpoint] = &[Endpoint::Chat, Endpoint::Responses];
const ONLY_CHAT: &[Endpoint] = &[Endpoint::Chat];
const ONLY_HTTP: &[Endpoint] = &[Endpoint::Http];

/// The endpoint that was asked for.
pub(super) fn endpoint(args: &RunArgs) -> Result<Endpoint, UsageError> {
    let Some(name) = args.endpoint.as_deref() else { return Ok(Endpoint::default()) };
    if name == "template" {
        return Err(UsageError::bad(FLAG, "template is not built in yet; use the endpoint that is nearest"));
    }
    Endpoint::ALL.into_iter().find(|endpoint| endpoint.name() == name).ok_or_else(|| {
        let names = Endpoint::ALL.map(Endpoint::name).join(", ");
        UsageError::range(FLAG, format!("one of {names}"))
    })
}

/// Whether event streams are asked for.
pub(super) fn streamed(args: &RunArgs, endpoint: Endpoint) -> Result<bool, UsageError> {
    let flags = &args.request;
    if flags.stream && flags.no_stream {
        return Err(UsageError::clash("--stream", "--no-stream", "an answer is a stream or it is not"));
    }
    if flags.continuous_usage && flags.no_stream {
        let reason = "one body has its usage once";
        return Err(UsageError::clash("--continuous-usage", "--no-stream", reason));
    }
    if args.json_out.is_some() && flags.no_stream {
        return Err(UsageError::clash("--json-out", "--no-stream", NO_ARTIFACT));
    }
    Ok(endpoint.generates() && !flags.no_stream)
}

/// Why a run without streamed text has no reference artifact.
const NO_ARTIFACT: &str = "the reference's artifact is about streamed text";

/// Refuses flags that the endpoint's requests have no place for.
pub(super) fn check_flags(args: &RunArgs, endpoint: Endpoint) -> Result<(), UsageError> {
    let place = format!("{FLAG} {}", endpoint.name());
    for (flag, given, places, reason) in prompt_flags(args).into_iter().chain(request_flags(args)) {
        if given && !places.contains(&endpoint) {
            return Err(UsageError::clash(flag, &place, reason));
        }
    }
    check_thinking(args, endpoint, &place)
}

/// A flag, whether it was given, where it has a meaning, and why not elsewhere.
type FlagRule = (&'static str, bool, &'static [Endpoint], &'static str);

fn prompt_flags(args: &RunArgs) -> [FlagRule; 15] {
    let no_prompt = "plain requests have no prompt";
    let no_output = "nothing is generated there";
    [
        ("--model", args.model.is_some(), PROMPTED, "plain requests name no model"),
        ("--ctx-tokens", args.ctx_tokens.is_some(), PROMPTED, no_prompt),
        ("--seed", args.seed.is_some(), PROMPTED, no_prompt),
        ("--prompt-cache-mode", args.prompt_cache_mode.is_some(), PROMPTED, no_prompt),
        ("--prompts", args.prompts.is_some(), PROMPTED, no_prompt),
        ("--shared-prefix-tokens", args.shared_prefix_tokens.is_some(), PROMPTED, no_prompt),
        ("--max-model-len", args.max_model_len.is_some(), PROMPTED, no_prompt),
        ("--margin", args.margin.is_some(), PROMPTED, no_prompt),
        ("--max-tokens", args.max_tokens.is_some(), GENERATING, no_output),
        ("--response-words", args.response_words.is_some(), GENERATING, no_output),
        ("--request-canaries", args.request_canaries, GENERATING, no_output),
        ("--controlled-output-policy", args.controlled_output_policy.is_some(), GENERATING, no_output),
        ("--capture-limit", args.capture_limit.is_some(), GENERATING, no_output),
        ("--temperature", args.temperature.is_some(), GENERATING, no_output),
        ("--top-p", args.top_p.is_some(), GENERATING, no_output),
    ]
}

fn request_flags(args: &RunArgs) -> [FlagRule; 12] {
    let flags = &args.request;
    let only_plain = "only plain requests (--endpoint http) have one of their own";
    [
        ("--compat", args.compat.is_some(), ONLY_CHAT, "the reference sends chat completions"),
        ("--stream", flags.stream, GENERATING, "its answers are never streamed"),
        ("--no-stream", flags.no_stream, PROMPTED, "plain requests ask for no stream anyway"),
        (
            "--continuous-usage",
            flags.continuous_usage,
            WITH_USAGE_OPTIONS,
            "its requests have no stream_options",
        ),
        (
            "--max-tokens-field",
            flags.max_tokens_field.is_some(),
            ONLY_CHAT,
            "only chat completions have two names for the limit",
        ),
        ("--ignore-eos", flags.ignore_eos, WITH_USAGE_OPTIONS, "its requests have no such member"),
        ("--reasoning-effort", args.reasoning_effort.is_some(), WITH_EFFORT, "its requests have no effort"),
        ("--extra-body", flags.extra_body.is_some(), PROMPTED, "a plain body is a file's: use --body"),
        ("--method", flags.method.is_some(), ONLY_HTTP, only_plain),
        (BODY, flags.body.is_some(), ONLY_HTTP, only_plain),
        ("--json-out", args.json_out.is_some(), GENERATING, NO_ARTIFACT),
        ("--sim", args.sim.is_some(), PROMPTED, "the simulator serves models only"),
    ]
}

/// Thinking is controlled by the chat template, or by the Messages interface's own member.
fn check_thinking(args: &RunArgs, endpoint: Endpoint, place: &str) -> Result<(), UsageError> {
    let flag = if args.no_thinking { "--no-thinking" } else { "--thinking-mode" };
    let mode = if args.no_thinking { Some(ThinkingMode::Disabled) } else { args.thinking_mode };
    let reason = match (mode, endpoint) {
        (None, _) | (_, Endpoint::Chat) => return Ok(()),
        (Some(_), Endpoint::Http) => "plain requests have no prompt",
        (Some(ThinkingMode::Default | ThinkingMode::Unsupported), _) => return Ok(()),
        (Some(ThinkingMode::Disabled), Endpoint::Messages) => return Ok(()),
        (Some(ThinkingMode::Enabled), Endpoint::Messages) => {
            "thinking needs a budget of tokens there: give one by --extra-body"
        }
        (Some(_), _) => "its requests have no chat template",
    };
    Err(UsageError::clash(flag, place, reason))
}

/// What a plain request carries; `None` for the other endpoints.
pub(super) fn plain(args: &RunArgs, endpoint: Endpoint) -> Result<Option<PlainSpec>, UsageError> {
    if endpoint != Endpoint::Http {
        return Ok(None);
    }
    let flags = &args.request;
    if flags.body.is_some() && flags.method.is_none() {
        // A GET with a body is seldom meant.
        return Err(UsageError::missing("--method", "name how the --body is sent (like POST)"));
    }
    Ok(Some(PlainSpec {
        method: flags.method.unwrap_or(Method::Get),
        body: flags.body.as_deref().map(read_body).transpose()?,
        body_file: flags.body.clone(),
    }))
}

fn read_body(path: &Path) -> Result<Bytes, UsageError> {
    let fail = |error: std::io::Error| UsageError::bad(BODY, format!("cannot be read: {error}"));
    // One byte more than allowed tells a file that is too large from one that fits exactly.
    let bytes = input::read(path, MAX_BODY_FILE_BYTES + 1).map_err(fail)?;
    if bytes.len() as u64 > MAX_BODY_FILE_BYTES {
        return Err(UsageError::bad(BODY, format!("names a file of more than {MAX_BODY_FILE_BYTES} bytes")));
    }
    Ok(bytes.into())
}
