//! Every default and every limit of `hammerscale run`, once, with its reason. The resolver fills them in, the help
//! prints them, the documents name them.

use clap::Arg;

use crate::units::text::{format_count, format_duration};
use crate::units::{Nanos, PerSecond};

/// The port of the `http` scheme (RFC 9110 section 4.2.1).
pub const HTTP_PORT: u16 = 80;

/// Where the base URL comes from when no flag names it: what every OpenAI client reads.
pub const BASE_URL_VARIABLE: &str = "OPENAI_BASE_URL";
/// Where the key comes from when no flag names it: what every OpenAI client reads.
pub const API_KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// Requests: the reference's number, enough for a p95 and done in minutes.
pub const REQUESTS: u64 = 60;
/// Slots: the reference's number, three rounds of 20.
pub const CONCURRENCY: u32 = 20;
/// Context target: a short chat turn, so that a first run answers at once on any server.
pub const CTX_TOKENS: u64 = 512;
/// Output limit: enough tokens for a stable time per token, few enough to finish.
pub const MAX_TOKENS: u64 = 128;
/// Shared prefix: none, because a shared prefix measures the server's cache.
pub const SHARED_PREFIX_TOKENS: u64 = 0;
/// Seed of the sampler and of the markers: the reference's, so that the same command sends the same bytes.
pub const SEED: i64 = 0;
/// Headroom below the model's length: the reference's; covers the chat template and the estimate of three characters
/// per token.
pub const MARGIN: u64 = 1_024;
/// Characters of visible text kept per answer: the reference's; about 1,630 words of controlled output.
pub const CAPTURE_LIMIT: u64 = 8_192;
/// Deadline of a request: the reference's; a long context on a busy server takes minutes.
pub const TIMEOUT: Nanos = Nanos::from_secs(900);
/// Longest silence: as long as the deadline, because a queue is silent.
pub const IDLE_TIMEOUT: Nanos = Nanos::from_secs(900);
/// Longest time to connect: several retransmissions of a lost SYN (1 s, 3 s, 7 s).
pub const CONNECT_TIMEOUT: Nanos = Nanos::from_secs(10);

/// The defaults of the reference, taken with `--compat anvil`.
pub mod anvil {
    /// Context target: `None` draws from the reference's distribution.
    pub const CTX_TOKENS: Option<u64> = None;
    /// Output limit.
    pub const MAX_TOKENS: u64 = 64;
    /// Shared prefix, also that of a burst.
    pub const SHARED_PREFIX_TOKENS: u64 = 8_000;
}

/// A plan keeps a byte per request and a document a line; a run beyond this is several runs.
pub const MAX_REQUESTS: u64 = 100_000_000;
/// Every slot has a descriptor and 16 KiB; the largest machines hold a million.
pub const MAX_CONCURRENCY: u32 = 1_000_000;
/// The lowest rate: a request in a quarter of an hour and more is no load.
pub const MIN_RATE: PerSecond = PerSecond(0.001);
/// The highest rate: ten times what the fastest client sends on a core, and a microsecond between two requests.
pub const MAX_RATE: PerSecond = PerSecond(1_000_000.0);
/// The smallest fixed context: the reference's; below it not even the prompt's last line fits.
pub const MIN_CTX_TOKENS: u64 = 32;
/// More tokens than any model takes or gives; a prompt of this size is 48 MiB. The reference stops at a sixteenth.
pub const MAX_TOKENS_PER_REQUEST: u64 = 16_777_216;
/// Canary markers begin an answer, and the reference wants room for them.
pub const MIN_MAX_TOKENS_WITH_CANARIES: u64 = 16;
/// Markers have five digits; a sixth would not be recognised by readers of the artifact.
pub const MAX_REQUESTS_WITH_CANARIES: u64 = 100_000;
/// Captured text is held until its request is judged; more than this per answer is no check but a copy.
pub const MAX_CAPTURE_LIMIT: u64 = 16_777_216;
/// A time limit beyond a week is a typing mistake, and below it no sum of limits overflows.
pub const MAX_TIME_LIMIT: Nanos = Nanos::from_secs(7 * 24 * 3_600);
/// The kernel's usual CPU_SETSIZE.
pub const MAX_CORES: u32 = 1_024;
/// Local addresses to connect from: at 28,000 ports each, seven times what the largest machines hold.
pub const MAX_SOURCE_IPS: usize = 256;
/// The range of the temperature in the OpenAI interface.
pub const MAX_TEMPERATURE: f64 = 2.0;
/// Texts that are only recorded; a longer one is a file in the wrong place.
pub const MAX_LABEL_CHARS: usize = 1_024;
/// Header fields of one's own; servers commonly stop at a hundred in all.
pub const MAX_HEADER_FIELDS: usize = 64;
/// Bytes of one header field; servers commonly stop at 8 KiB.
pub const MAX_HEADER_BYTES: usize = 8_192;
/// Bytes of a key file; the longest signed tokens have a few KiB, and the key becomes a header field.
pub const MAX_KEY_BYTES: usize = MAX_HEADER_BYTES;
/// Bytes of the file with a plain body: more than any prompt needs (48 MiB), and held in memory once.
pub const MAX_BODY_FILE_BYTES: u64 = 64 << 20;
/// Bytes of a configuration file; all flags together need a few KiB.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The default of a flag as the help shows it; `None` for a flag without one.
#[must_use]
pub fn shown(flag: &str) -> Option<String> {
    let or_anvil = |own: u64, anvil: &str| format!("{own}; with --compat anvil {anvil}");
    Some(match flag {
        "base-url" => format!("${BASE_URL_VARIABLE}"),
        "api-key-env" => format!("{API_KEY_VARIABLE}, if set"),
        "endpoint" => "chat".to_owned(),
        "requests" => format_count(REQUESTS),
        "concurrency" => format_count(u64::from(CONCURRENCY)),
        "arrival" => "poisson".to_owned(),
        "burst" | "response-words" | "max-model-len" => "0".to_owned(),
        "ctx-tokens" => or_anvil(CTX_TOKENS, "0"),
        "max-tokens" => or_anvil(MAX_TOKENS, &anvil::MAX_TOKENS.to_string()),
        "shared-prefix-tokens" => {
            let bursts = format!("or --burst {}", anvil::SHARED_PREFIX_TOKENS);
            or_anvil(SHARED_PREFIX_TOKENS, &bursts)
        }
        "prompt-cache-mode" => "unique; with --compat anvil or --burst shared".to_owned(),
        "prompts" => "unique".to_owned(),
        "seed" => SEED.to_string(),
        "margin" => MARGIN.to_string(),
        "capture-limit" => CAPTURE_LIMIT.to_string(),
        "controlled-output-policy" => "observe".to_owned(),
        "temperature" => "not sent; with --compat anvil 0.0".to_owned(),
        "top-p" | "reasoning-effort" => "not sent".to_owned(),
        "thinking-mode" => "default".to_owned(),
        "method" => "GET".to_owned(),
        "max-tokens-field" => "max_tokens".to_owned(),
        "connection" => "keep".to_owned(),
        "timeout" => format_duration(TIMEOUT),
        "idle-timeout" => format_duration(IDLE_TIMEOUT),
        "connect-timeout" => format_duration(CONNECT_TIMEOUT),
        "workers" => "all cores but one, at least one".to_owned(),
        "stamps" => "kernel, where available".to_owned(),
        "out" => "hammerscale-runs/<run id>".to_owned(),
        "progress" => "auto".to_owned(),
        "format" => "text".to_owned(),
        _ => return None,
    })
}

/// Adds the default to a flag's help.
pub(super) fn in_help(arg: Arg) -> Arg {
    let Some(default) = arg.get_long().and_then(shown) else { return arg };
    match arg.get_help() {
        Some(help) => {
            let help = format!("{help} [default: {default}]");
            arg.help(help)
        }
        None => arg,
    }
}
