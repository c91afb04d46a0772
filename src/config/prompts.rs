//! Prompt and body flags: the reference's knobs with two sets of defaults, and what does not go together.
//!
//! The modes combine like this: `unique` is the default without `--compat anvil`, `shared` with it. A burst, a shared
//! prefix or `--prompts same` given explicitly mean `shared`; together with an explicit `unique` they are refused.

use super::args::{CacheMode, OutputPolicy, Prompts, RunArgs};
use super::defaults::{self, anvil};
use super::reasoning;
use super::resolve::within;
use super::spec::{BodySpec, LoadSpec, PromptSpec, ThinkingMode};
use super::usage::UsageError;

const MAX: u64 = defaults::MAX_TOKENS_PER_REQUEST;

pub(super) fn prompt(args: &RunArgs, load: &LoadSpec, compat_anvil: bool) -> Result<PromptSpec, UsageError> {
    let unique = is_unique(args, load, compat_anvil)?;
    let tokens =
        |flag, value: Option<u64>, default, least| within(flag, value.unwrap_or(default), least, MAX);
    let own_or_anvil = |own, anvil| if compat_anvil { anvil } else { own };
    let max_tokens = own_or_anvil(defaults::MAX_TOKENS, anvil::MAX_TOKENS);
    let prefix = if compat_anvil || load.burst > 0 {
        anvil::SHARED_PREFIX_TOKENS
    } else {
        defaults::SHARED_PREFIX_TOKENS
    };
    let prefix = tokens("--shared-prefix-tokens", args.shared_prefix_tokens, prefix, 0)?;
    let spec = PromptSpec {
        ctx_tokens: ctx_tokens(args, compat_anvil)?,
        seed: args.seed.unwrap_or(defaults::SEED),
        max_tokens: tokens("--max-tokens", args.max_tokens, max_tokens, 1)?,
        response_words: tokens("--response-words", args.response_words, 0, 0)?,
        unique,
        same: args.prompts == Some(Prompts::Same),
        shared_prefix_tokens: if unique { 0 } else { prefix },
        request_canaries: args.request_canaries,
        controlled_output_strict: args.controlled_output_policy == Some(OutputPolicy::Strict),
        max_model_len: Some(tokens("--max-model-len", args.max_model_len, 0, 0)?).filter(|n| *n > 0),
        margin: tokens("--margin", args.margin, defaults::MARGIN, 0)?,
        capture_limit: capture_limit(args)?,
    };
    check_length(&spec)?;
    check_canaries(&spec, load)?;
    check_controlled_output(&spec)?;
    Ok(spec)
}

pub(super) fn body(args: &RunArgs, compat_anvil: bool) -> Result<BodySpec, UsageError> {
    let finite = |flag, value: Option<f64>, ok: fn(f64) -> bool, allowed: &str| match value {
        Some(x) if !ok(x) => Err(UsageError::range(flag, allowed)),
        _ => Ok(value),
    };
    let in_temperature = |x: f64| (0.0..=defaults::MAX_TEMPERATURE).contains(&x);
    let allowed = format!("between 0 and {}", defaults::MAX_TEMPERATURE);
    let temperature = finite("--temperature", args.temperature, in_temperature, &allowed)?;
    let top_p = finite("--top-p", args.top_p, |x| x > 0.0 && x <= 1.0, "above 0 and at most 1")?;
    let typed = args.thinking_mode;
    if args.no_thinking && typed.is_some_and(|mode| mode != ThinkingMode::Disabled) {
        return Err(UsageError::clash(
            "--no-thinking",
            "--thinking-mode",
            "it means --thinking-mode disabled",
        ));
    }
    let thinking_mode =
        if args.no_thinking { ThinkingMode::Disabled } else { typed.unwrap_or(ThinkingMode::Default) };
    if args.reasoning_effort.is_some() && thinking_mode != ThinkingMode::Default {
        let other = if args.no_thinking { "--no-thinking" } else { "--thinking-mode" };
        return Err(UsageError::clash("--reasoning-effort", other, "a body carries one reasoning control"));
    }
    if let Some(model) = &args.model {
        reasoning::check(model, thinking_mode, args.reasoning_effort.as_deref())?;
    }
    Ok(BodySpec {
        compat_anvil,
        // Minus zero is zero, and would be sent with its sign.
        temperature: temperature.map(|t| t + 0.0),
        top_p,
        thinking_mode,
        no_thinking: args.no_thinking,
        reasoning_effort: args.reasoning_effort.clone(),
        continuous_usage: args.request.continuous_usage,
        max_tokens_field: args.request.max_tokens_field.unwrap_or_default(),
        ignore_eos: args.request.ignore_eos,
        ..BodySpec::default()
    })
}

fn is_unique(args: &RunArgs, load: &LoadSpec, compat_anvil: bool) -> Result<bool, UsageError> {
    let (cache, prompts) = (args.prompt_cache_mode, args.prompts);
    if prompts == Some(Prompts::Unique) && cache == Some(CacheMode::Shared) {
        let reason = "the one means --prompt-cache-mode unique";
        return Err(UsageError::clash("--prompts unique", "--prompt-cache-mode shared", reason));
    }
    let prefix_given = args.shared_prefix_tokens.is_some_and(|n| n > 0);
    let unique = if prompts == Some(Prompts::Unique) {
        "--prompts unique"
    } else if cache == Some(CacheMode::Unique) {
        "--prompt-cache-mode unique"
    } else {
        let shared = cache.is_some() || prompts.is_some() || prefix_given || load.burst > 0 || compat_anvil;
        return Ok(!shared);
    };
    if prompts == Some(Prompts::Same) {
        return Err(UsageError::clash("--prompts same", unique, "the same prompt is not unique"));
    }
    if load.burst > 0 {
        return Err(UsageError::clash("--burst", unique, "the requests of a burst share their prefix"));
    }
    if prefix_given {
        return Err(UsageError::clash("--shared-prefix-tokens", unique, "unique prompts share nothing"));
    }
    Ok(true)
}

fn ctx_tokens(args: &RunArgs, compat_anvil: bool) -> Result<Option<u64>, UsageError> {
    match args.ctx_tokens {
        None if compat_anvil => Ok(anvil::CTX_TOKENS),
        None => Ok(Some(defaults::CTX_TOKENS)),
        Some(0) => Ok(None),
        Some(n) if (defaults::MIN_CTX_TOKENS..=MAX).contains(&n) => Ok(Some(n)),
        Some(_) => {
            let allowed = format!("0, or between {} and {MAX}", defaults::MIN_CTX_TOKENS);
            Err(UsageError::range("--ctx-tokens", allowed))
        }
    }
}

fn capture_limit(args: &RunArgs) -> Result<usize, UsageError> {
    let limit = args.capture_limit.unwrap_or(defaults::CAPTURE_LIMIT);
    let limit = within("--capture-limit", limit, 1, defaults::MAX_CAPTURE_LIMIT)?;
    usize::try_from(limit).map_err(|_| UsageError::range("--capture-limit", "smaller"))
}

fn check_length(spec: &PromptSpec) -> Result<(), UsageError> {
    let taken = spec.max_tokens + spec.margin;
    if spec.max_model_len.is_some_and(|length| length <= taken) {
        let allowed = format!("more than --max-tokens and --margin together ({taken})");
        return Err(UsageError::range("--max-model-len", allowed));
    }
    Ok(())
}

fn check_canaries(spec: &PromptSpec, load: &LoadSpec) -> Result<(), UsageError> {
    const FLAG: &str = "--request-canaries";
    if !spec.request_canaries {
        return Ok(());
    }
    if spec.same {
        return Err(UsageError::clash(FLAG, "--prompts same", "every prompt names a marker of its own"));
    }
    if spec.max_tokens < defaults::MIN_MAX_TOKENS_WITH_CANARIES {
        let least = defaults::MIN_MAX_TOKENS_WITH_CANARIES;
        return Err(UsageError::range("--max-tokens", format!("at least {least} with {FLAG}")));
    }
    if load.requests > defaults::MAX_REQUESTS_WITH_CANARIES {
        let most = defaults::MAX_REQUESTS_WITH_CANARIES;
        return Err(UsageError::range("--requests", format!("at most {most} with {FLAG}")));
    }
    Ok(())
}

/// What is captured must hold the answer that is checked, or every answer fails.
fn check_controlled_output(spec: &PromptSpec) -> Result<(), UsageError> {
    if spec.controlled_output_strict && spec.response_words == 0 {
        let reason = "--controlled-output-policy strict needs an exact answer to ask for";
        return Err(UsageError::missing("--response-words", reason));
    }
    // "ANVIL_REQ_", the seed, "_", five digits.
    let marker = if spec.request_canaries { 16 + spec.seed.to_string().len() as u64 } else { 0 };
    // "code" and a space for every word; the last one's space is the one after the marker.
    let words = if spec.controlled_output_strict { spec.response_words * 5 } else { 0 };
    let needed = marker + if spec.request_canaries { words } else { words.saturating_sub(1) };
    if spec.capture_limit as u64 >= needed {
        return Ok(());
    }
    let allowed = format!("at least {needed}, the length of the answer that is asked for");
    Err(UsageError::range("--capture-limit", allowed))
}
