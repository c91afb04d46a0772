//! The flags of `hammerscale run`, as typed: one declaration per flag, from which the command line, the help and the
//! configuration file derive. Nothing is decided here: every value is optional, defaults are filled in and
//! contradictions refused by [`resolve`](super::resolve).
//!
//! Only flags that do something are declared. Values that may be secret are [`Secret`]s from the moment they are
//! read, so that no error message and no debug output can show them.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Command};

use super::defaults;
use super::lists::{core_list, source_list};
use super::reasoning::EFFORTS;
use super::request_args::RequestArgs;
use super::sim_args::PROFILES;
use super::spec::{ArrivalProcess, ConnectionMode, OutputFormat, ProgressMode, Secret, ThinkingMode};
use super::usage::UsageError;
use crate::units::text::{QuantityError, parse_count, parse_duration, parse_rate};
use crate::units::{Nanos, PerSecond};

/// Measures a server, or the embedded simulator, once: a closed loop of requests, or with --rate an open one.
#[derive(Debug, Clone, Default, Args)]
#[command(mut_args(defaults::in_help))]
pub struct RunArgs {
    /// Base of the endpoint, like http://127.0.0.1:8000/v1; `/v1` is added unless the path ends with it
    #[arg(long, value_name = "URL", value_parser = secret, help_heading = "Target")]
    pub base_url: Option<Secret>,
    /// Request path that replaces everything after the origin
    #[arg(long, value_name = "PATH", help_heading = "Target")]
    pub endpoint_path: Option<String>,
    /// Measure the embedded simulator instead of a server, with a profile or its settings
    #[arg(long, value_name = "PROFILE or 'KEY=VALUE;KEY=VALUE'", num_args = 0..=1, require_equals = true, help_heading = "Target")]
    pub sim: Option<Option<String>>,
    /// What is sent and how the answer is read: chat, completions, responses, messages, embeddings, or http for plain
    /// requests to the base as it is
    #[arg(long, value_name = "KIND", help_heading = "Target")]
    pub endpoint: Option<String>,
    /// Model to ask for; asked from the server when it lists exactly one
    #[arg(long, value_name = "NAME", help_heading = "Target")]
    pub model: Option<String>,
    /// Environment variable that holds the key
    #[arg(long, value_name = "NAME", help_heading = "Target")]
    pub api_key_env: Option<String>,
    /// File that holds the key
    #[arg(long, value_name = "FILE", help_heading = "Target")]
    pub api_key_file: Option<PathBuf>,
    /// Header field to send with every request; may be given again
    #[arg(long, value_name = "'NAME: VALUE'", value_parser = secret, help_heading = "Target")]
    pub header: Vec<Secret>,
    /// Do not send X-Request-Id
    #[arg(long, help_heading = "Target")]
    pub no_request_id: bool,

    /// Number of requests to measure
    #[arg(long, alias = "num-prompts", value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Load")]
    pub requests: Option<u64>,
    /// Requests in flight at a time
    #[arg(long, alias = "max-concurrency", value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Load")]
    pub concurrency: Option<u64>,
    /// Requests per second: an open loop, in which each one starts when it is due, however many are in flight
    #[arg(long, alias = "request-rate", value_name = "R", value_parser = parse_rate, allow_hyphen_values = true, help_heading = "Load")]
    pub rate: Option<PerSecond>,
    /// How the requests of an open loop follow each other: evenly, or at random as independent users do
    #[arg(long, value_name = "PROCESS", value_parser = arrival(), help_heading = "Load")]
    pub arrival: Option<ArrivalProcess>,
    /// Send N requests at one instant, with a shared prefix; 0 for none
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Load")]
    pub burst: Option<u64>,
    /// Connections: keep one per slot (with --rate a pool), or a fresh one per request
    #[arg(long, value_name = "MODE", value_parser = connection_mode(), help_heading = "Load")]
    pub connection: Option<ConnectionMode>,
    /// Make the connections of all slots before the first request
    #[arg(long, help_heading = "Load")]
    pub prewarm: bool,
    /// Local addresses to connect from, in turn, like 10.0.0.1,10.0.0.2
    #[arg(long, value_name = "LIST", value_parser = source_list, help_heading = "Load")]
    pub source_ip: Option<SourceList>,
    /// Deadline of a request
    #[arg(long, alias = "timeout-seconds", value_name = "D", value_parser = parse_duration, allow_hyphen_values = true, help_heading = "Load")]
    pub timeout: Option<Nanos>,
    /// Longest time without a byte from the server
    #[arg(long, value_name = "D", value_parser = parse_duration, allow_hyphen_values = true, help_heading = "Load")]
    pub idle_timeout: Option<Nanos>,
    /// Longest time to connect
    #[arg(long, value_name = "D", value_parser = parse_duration, allow_hyphen_values = true, help_heading = "Load")]
    pub connect_timeout: Option<Nanos>,
    /// Take the defaults and the body of another tool: anvil
    #[arg(long, value_name = "TOOL", value_parser = compat(), help_heading = "Load")]
    pub compat: Option<Compat>,

    /// Context target of every prompt in estimated tokens; 0 samples the reference's distribution
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Prompts")]
    pub ctx_tokens: Option<u64>,
    /// Seed of the context sampler, also part of the canary markers
    #[arg(long, value_name = "N", value_parser = integer, allow_hyphen_values = true, help_heading = "Prompts")]
    pub seed: Option<i64>,
    /// Output limit to ask for
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Prompts")]
    pub max_tokens: Option<u64>,
    /// Ask for exactly N words of output; 0 asks for a summary
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Prompts")]
    pub response_words: Option<u64>,
    /// Let prompts share their prefix, or give each one a header of its own
    #[arg(long, value_name = "MODE", value_parser = cache_mode(), help_heading = "Prompts")]
    pub prompt_cache_mode: Option<CacheMode>,
    /// Send the same prompt with every request, or a unique one
    #[arg(long, value_name = "KIND", value_parser = prompts(), help_heading = "Prompts")]
    pub prompts: Option<Prompts>,
    /// Estimated tokens of the prefix that all prompts share
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Prompts")]
    pub shared_prefix_tokens: Option<u64>,
    /// Ask every answer to begin with a marker of its own, and check it
    #[arg(long, help_heading = "Prompts")]
    pub request_canaries: bool,
    /// Whether an answer with other words than asked for fails
    #[arg(long, value_name = "POLICY", value_parser = output_policy(), help_heading = "Prompts")]
    pub controlled_output_policy: Option<OutputPolicy>,
    /// The model's context length; 0 asks the server
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Prompts")]
    pub max_model_len: Option<u64>,
    /// Tokens kept free below the model's length
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Prompts")]
    pub margin: Option<u64>,
    /// Characters of visible text kept per answer for checking
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Prompts")]
    pub capture_limit: Option<u64>,

    /// Temperature to ask for
    #[arg(long, value_name = "X", value_parser = decimal, allow_hyphen_values = true, help_heading = "Body")]
    pub temperature: Option<f64>,
    /// Nucleus mass to ask for
    #[arg(long, value_name = "X", value_parser = decimal, allow_hyphen_values = true, help_heading = "Body")]
    pub top_p: Option<f64>,
    /// Thinking, by the chat template's control
    #[arg(long, value_name = "MODE", value_parser = thinking_mode(), help_heading = "Body")]
    pub thinking_mode: Option<ThinkingMode>,
    /// The same as --thinking-mode disabled
    #[arg(long, help_heading = "Body")]
    pub no_thinking: bool,
    /// Reasoning effort to ask for
    #[arg(long, value_name = "EFFORT", value_parser = PossibleValuesParser::new(EFFORTS), help_heading = "Body")]
    pub reasoning_effort: Option<String>,
    /// What is sent beyond prompts and sampling.
    #[command(flatten)]
    pub request: RequestArgs,

    /// Number of worker threads, each on a core of its own
    #[arg(long, value_name = "N", value_parser = parse_count, allow_hyphen_values = true, help_heading = "Instrument")]
    pub workers: Option<u64>,
    /// Cores for the workers, like 2,4-7
    #[arg(long, value_name = "LIST", value_parser = core_list, allow_hyphen_values = true, help_heading = "Instrument")]
    pub cores: Option<CoreList>,
    /// Receive stamps of the kernel, or of user space
    #[arg(long, value_name = "SOURCE", value_parser = stamps(), help_heading = "Instrument")]
    pub stamps: Option<Stamps>,
    /// Fail the run also when the instrument's verdict is only suspect
    #[arg(long, help_heading = "Instrument")]
    pub strict_instrument: bool,
    /// Fail the run when the client may have added more than D to a latency (99th percentile); needs kernel stamps
    #[arg(long, value_name = "D", value_parser = parse_duration, allow_hyphen_values = true, help_heading = "Instrument")]
    pub max_client_error: Option<Nanos>,

    /// Directory for the results
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// A second place for the reference artifact
    #[arg(long, alias = "output", value_name = "FILE", help_heading = "Output")]
    pub json_out: Option<PathBuf>,
    /// Replace an existing run
    #[arg(long, help_heading = "Output")]
    pub overwrite: bool,
    /// No result on stdout, no progress
    #[arg(long, help_heading = "Output")]
    pub quiet: bool,
    /// How progress is shown on stderr
    #[arg(long, value_name = "HOW", value_parser = progress(), help_heading = "Output")]
    pub progress: Option<ProgressMode>,
    /// What stdout carries
    #[arg(long, value_name = "FORMAT", value_parser = output_format(), help_heading = "Output")]
    pub format: Option<OutputFormat>,
    /// Print what would be sent, and send nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,

    /// Engine, recorded
    #[arg(long, value_name = "TEXT", help_heading = "Labels")]
    pub engine: Option<String>,
    /// Accelerator, recorded
    #[arg(long, value_name = "TEXT", help_heading = "Labels")]
    pub gpu: Option<String>,
    /// Tier of a serving manifest, recorded
    #[arg(long, value_name = "TEXT", help_heading = "Labels")]
    pub tier: Option<String>,
    /// Serving manifest, recorded
    #[arg(long, value_name = "TEXT", help_heading = "Labels")]
    pub manifest: Option<String>,
    /// Recipe the server was started from, recorded
    #[arg(long, value_name = "TEXT", help_heading = "Labels")]
    pub source_recipe: Option<String>,
    /// Declares that several artifacts share one host clock
    #[arg(long, value_name = "ID", help_heading = "Labels")]
    pub clock_domain_id: Option<String>,
    /// Declared fingerprint of the configuration, sha256:<64 hexadecimal digits>
    #[arg(long, value_name = "SHA256", help_heading = "Labels")]
    pub configuration_fingerprint: Option<String>,
    /// A label of your own, recorded; may be given again
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Labels")]
    pub label: Vec<String>,

    /// TOML file with flags, underscores instead of hyphens; the command line wins
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
}

pub use super::lists::{CoreList, SourceList};

/// Tools whose defaults can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// The reference.
    Anvil,
}

/// The reference's cache modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMode {
    /// Prompts may share their prefix.
    Shared,
    /// Every prompt has a header of its own.
    Unique,
}

/// Whether prompts repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompts {
    /// One prompt for all requests.
    Same,
    /// Every prompt differs from its first line on.
    Unique,
}

/// What happens when controlled output is not what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPolicy {
    /// It is recorded.
    Observe,
    /// The request fails.
    Strict,
}

/// Where receive stamps come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamps {
    /// The kernel.
    Kernel,
    /// The user-space clock.
    User,
}

/// Turns the parser's error into one sentence. Arguments that are no flags are not repeated, because an unquoted
/// header field ends up there.
#[must_use]
pub fn sentence(error: &clap::Error) -> UsageError {
    use clap::error::{ContextKind, ErrorKind};
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let shown = text(ContextKind::InvalidArg);
    let flag = shown.split(['=', ' ', '[']).next().unwrap_or_default();
    match error.kind() {
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            UsageError::bad(flag, format!("{} {why}", quoted(&text(ContextKind::InvalidValue))))
        }
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue).is_empty() => {
            UsageError::missing(&format!("the value of {flag}"), "the flag takes one")
        }
        ErrorKind::InvalidValue => {
            UsageError::range(flag, format!("one of {}", text(ContextKind::ValidValue)))
        }
        ErrorKind::NoEquals => UsageError::bad(flag, "takes its value after an equals sign"),
        ErrorKind::TooManyValues => UsageError::bad(flag, "takes no value"),
        ErrorKind::ArgumentConflict => UsageError::bad(flag, "is given twice"),
        ErrorKind::UnknownArgument if flag.starts_with('-') && flag.len() > 1 => {
            let hint = match text(ContextKind::SuggestedArg) {
                near if near.is_empty() => String::new(),
                near => format!(" (there is {near})"),
            };
            UsageError::Unknown(format!("there is no flag {flag}{hint}"))
        }
        ErrorKind::UnknownArgument if PROFILES.iter().any(|profile| profile.name == shown) => {
            let flag = format!("--sim={shown}");
            UsageError::Unknown(format!(
                "there is an argument that belongs to no flag; a profile is joined to its flag: {flag}"
            ))
        }
        ErrorKind::UnknownArgument => UsageError::Unknown(
            "there is an argument that belongs to no flag; put a value with spaces in quotes".to_owned(),
        ),
        ErrorKind::MissingRequiredArgument => UsageError::missing(&shown, "the command needs it"),
        _ => {
            let rendered = error.to_string();
            let first = rendered.lines().next().unwrap_or_default();
            UsageError::Unknown(first.strip_prefix("error: ").unwrap_or(first).to_owned())
        }
    }
}

/// The flags alone, as a command: for reading a configuration file, and for generating documents.
#[must_use]
pub fn command() -> Command {
    RunArgs::augment_args(Command::new("run")).no_binary_name(true)
}

/// Characters of a value repeated in a message.
const MAX_QUOTED_CHARS: usize = 40;

fn quoted(value: &str) -> String {
    let cut: String = value.chars().take(MAX_QUOTED_CHARS).collect();
    let more = if value.chars().nth(MAX_QUOTED_CHARS).is_some() { "…" } else { "" };
    format!("\"{}{more}\"", cut.escape_debug())
}

#[expect(clippy::unnecessary_wraps, reason = "the parser's signature")]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text.to_owned()))
}

fn integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "is not a whole number between -2^63 and 2^63-1".to_owned())
}

/// Finite or not is a question of range, asked later.
fn decimal(text: &str) -> Result<f64, QuantityError> {
    text.parse().map_err(|_| QuantityError::NotANumber)
}

/// A parser of a few words.
pub(super) fn choice<T: Clone + Send + Sync + 'static>(
    words: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words.iter().map(|(word, _)| *word)).try_map(|word| {
        let found = words.iter().find(|(name, _)| *name == word);
        found.map(|(_, value)| value.clone()).ok_or("is not one of the words")
    })
}

fn compat() -> impl TypedValueParser<Value = Compat> {
    choice(&[("anvil", Compat::Anvil)])
}

fn arrival() -> impl TypedValueParser<Value = ArrivalProcess> {
    choice(&[("constant", ArrivalProcess::Constant), ("poisson", ArrivalProcess::Poisson)])
}

fn connection_mode() -> impl TypedValueParser<Value = ConnectionMode> {
    choice(&[("keep", ConnectionMode::Keep), ("fresh", ConnectionMode::Fresh)])
}

fn cache_mode() -> impl TypedValueParser<Value = CacheMode> {
    choice(&[("shared", CacheMode::Shared), ("unique", CacheMode::Unique)])
}

fn prompts() -> impl TypedValueParser<Value = Prompts> {
    choice(&[("same", Prompts::Same), ("unique", Prompts::Unique)])
}

fn output_policy() -> impl TypedValueParser<Value = OutputPolicy> {
    choice(&[("observe", OutputPolicy::Observe), ("strict", OutputPolicy::Strict)])
}

fn thinking_mode() -> impl TypedValueParser<Value = ThinkingMode> {
    choice(&[
        ("default", ThinkingMode::Default),
        ("enabled", ThinkingMode::Enabled),
        ("disabled", ThinkingMode::Disabled),
        ("unsupported", ThinkingMode::Unsupported),
    ])
}

fn stamps() -> impl TypedValueParser<Value = Stamps> {
    choice(&[("kernel", Stamps::Kernel), ("user", Stamps::User)])
}

pub(super) fn progress() -> impl TypedValueParser<Value = ProgressMode> {
    choice(&[("auto", ProgressMode::Auto), ("plain", ProgressMode::Plain), ("none", ProgressMode::None)])
}

pub(super) fn output_format() -> impl TypedValueParser<Value = OutputFormat> {
    choice(&[("text", OutputFormat::Text), ("json", OutputFormat::Json)])
}
