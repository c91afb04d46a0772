//! The resolved run: complete, checked, immutable. Everything downstream reads this and never a flag.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use bytes::Bytes;

pub use super::endpoint::Endpoint;
pub use super::load::{ArrivalProcess, Arrivals, LoadSpec};
use crate::units::Nanos;
use crate::wire::http1::Method;

/// A run with every default filled in and every contradiction refused.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSpec {
    /// Where requests go.
    pub target: TargetSpec,
    /// How many, and how many at a time.
    pub load: LoadSpec,
    /// What the prompts are.
    pub prompt: PromptSpec,
    /// What else the body carries.
    pub body: BodySpec,
    /// Connections and time limits.
    pub connection: ConnectionSpec,
    /// Workers, cores, stamps.
    pub instrument: InstrumentSpec,
    /// Where results go.
    pub output: OutputSpec,
    /// Operator's labels, recorded and never interpreted.
    pub labels: LabelSpec,
    /// Print the plan and send nothing.
    pub dry_run: bool,
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetSpec {
    /// What is sent and how the answer is read.
    pub endpoint: Endpoint,
    /// Method and body of plain requests; `None` for every endpoint but [`Endpoint::Http`].
    pub plain: Option<PlainSpec>,
    /// The base URL as recorded in documents: no userinfo, no trailing slash; the origin alone for plain requests;
    /// empty until the simulator has its port.
    pub base_url: String,
    /// Host name or address literal without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Request path of the endpoint, query included.
    pub path: String,
    /// Path of the models list, when the base allows one.
    pub models_path: Option<String>,
    /// The embedded simulator's settings, when it is the target.
    pub sim: Option<SimSpec>,
    /// Model name; `None` asks `/models`, which must list exactly one. Plain requests name none.
    pub model: Option<String>,
    /// The key that authenticates requests. Never printed, never stored.
    pub api_key: Option<Secret>,
    /// Further header fields, in order. Values are never printed or stored.
    pub headers: Vec<(String, Secret)>,
    /// Send `X-Request-Id`.
    pub request_id_header: bool,
}

/// The embedded simulator, as `hammerscale sim` flags: passed on to the child process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimSpec {
    /// `KEY=VALUE` pairs, keys without dashes.
    pub settings: Vec<(String, String)>,
}

/// A text that must not reach any output. `Debug` shows only that it is there.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// What plain requests carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainSpec {
    /// Their method.
    pub method: Method,
    /// Their body; `None` when no file was named. All requests share the bytes.
    pub body: Option<Bytes>,
    /// The file it was read from.
    pub body_file: Option<PathBuf>,
}

/// What the prompts are: the reference's knobs.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptSpec {
    /// Fixed context target in tokens; `None` samples the reference's distribution.
    pub ctx_tokens: Option<u64>,
    /// Seed of the context sampler; also part of the canary markers.
    pub seed: i64,
    /// Output limit.
    pub max_tokens: u64,
    /// Words of controlled output, 0 for none.
    pub response_words: u64,
    /// Every prompt different from the first byte on.
    pub unique: bool,
    /// Every request sends the prompt of request 0.
    pub same: bool,
    /// Estimated tokens of the shared prefix (0 in unique mode).
    pub shared_prefix_tokens: u64,
    /// Ask for a marker at the start of every answer and check it.
    pub request_canaries: bool,
    /// Controlled output must be exact.
    pub controlled_output_strict: bool,
    /// Model length; `None` asks `/models`.
    pub max_model_len: Option<u64>,
    /// Headroom kept free below the model length.
    pub margin: u64,
    /// Characters of visible text kept per answer.
    pub capture_limit: usize,
}

/// The reference's thinking modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingMode {
    /// Nothing is sent.
    Default,
    /// `chat_template_kwargs: {enable_thinking: true}`.
    Enabled,
    /// `chat_template_kwargs: {enable_thinking: false}`.
    Disabled,
    /// Nothing is sent; recorded.
    Unsupported,
}

/// What else the body carries. Nothing is sent that was not asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct BodySpec {
    /// `--compat anvil`: temperature 0.0 is sent when none was asked for.
    pub compat_anvil: bool,
    /// Temperature asked for.
    pub temperature: Option<f64>,
    /// Nucleus mass asked for.
    pub top_p: Option<f64>,
    /// Thinking mode.
    pub thinking_mode: ThinkingMode,
    /// `--no-thinking` was given (recorded apart from the mode).
    pub no_thinking: bool,
    /// Reasoning effort.
    pub reasoning_effort: Option<String>,
    /// Answers are asked for as event streams.
    pub streamed: bool,
    /// Usage is asked for with every event.
    pub continuous_usage: bool,
    /// The name under which chat completions are told the output limit.
    pub max_tokens_field: MaxTokensField,
    /// `ignore_eos: true` is sent.
    pub ignore_eos: bool,
    /// Further members of the body: name, and value in JSON as it was typed.
    pub extra: Vec<(String, String)>,
}

/// The name under which chat completions are told the output limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MaxTokensField {
    /// `max_tokens`, the older name, which every server knows.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, the newer name, which some models insist on.
    MaxCompletionTokens,
}

/// How connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionMode {
    /// One connection per slot, kept as long as the server keeps it.
    Keep,
    /// A new connection for every request.
    Fresh,
}

/// Connections and time limits.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionSpec {
    /// Keep or fresh.
    pub mode: ConnectionMode,
    /// Make the connections of all slots before the first request.
    pub prewarm: bool,
    /// Local addresses to connect from, in turn; empty lets the system choose.
    pub source_ips: Vec<IpAddr>,
    /// Deadline of a request from its due instant.
    pub timeout: Nanos,
    /// Longest silence.
    pub idle_timeout: Nanos,
    /// Longest time to connect.
    pub connect_timeout: Nanos,
}

/// Workers, cores, stamps.
#[derive(Debug, Clone, PartialEq)]
pub struct InstrumentSpec {
    /// Number of workers; `None` is all cores but one, at least one.
    pub workers: Option<u32>,
    /// Cores to pin workers to, in order; empty lets the affinity mask choose.
    pub cores: Vec<u32>,
    /// Use kernel receive stamps.
    pub kernel_stamps: bool,
    /// A verdict of `suspect` also fails the run.
    pub strict: bool,
    /// Most that the client may add to a latency; more makes the verdict invalid.
    pub max_client_error: Option<Nanos>,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressMode {
    /// Live on a terminal, plain elsewhere.
    Auto,
    /// Plain lines.
    Plain,
    /// Nothing.
    None,
}

/// What stdout carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// The summary for people.
    Text,
    /// The run document.
    Json,
}

/// Where results go.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSpec {
    /// Directory of the run; `None` is `hammerscale-runs/<run id>`.
    pub dir: Option<PathBuf>,
    /// A second place for the reference artifact.
    pub json_out: Option<PathBuf>,
    /// Replace an existing run.
    pub overwrite: bool,
    /// No summary on stdout, no progress.
    pub quiet: bool,
    /// Progress.
    pub progress: ProgressMode,
    /// What stdout carries.
    pub format: OutputFormat,
}

/// Operator's labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSpec {
    /// Engine.
    pub engine: Option<String>,
    /// Accelerator.
    pub gpu: Option<String>,
    /// Tier of a serving manifest.
    pub tier: Option<String>,
    /// Serving manifest.
    pub manifest: Option<String>,
    /// Recipe the server was started from.
    pub source_recipe: Option<String>,
    /// Declaration that several artifacts share one host clock.
    pub clock_domain_id: Option<String>,
    /// Declared fingerprint of the configuration.
    pub configuration_fingerprint: Option<String>,
    /// `--label K=V`, in order.
    pub labels: Vec<(String, String)>,
}

/// What the run found out about its target before the first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedTarget {
    /// Addresses of the host, in the order they are used.
    pub addresses: Vec<SocketAddr>,
    /// The model that is sent; empty for plain requests.
    pub model: String,
    /// The model's context length, given or asked for; `None` when unknown.
    pub max_model_len: Option<u64>,
    /// Why the host has no address.
    pub unresolved: Option<String>,
    /// Why nothing could be sent: neither was a model named, nor could the server be asked for one.
    pub unreachable: Option<String>,
}

impl RunSpec {
    /// What was asked of every prompt and what it is cut to, in tokens, where a model of this length has no room for what
    /// was asked; `None` where it has, and for sampled lengths.
    #[must_use]
    pub fn cut_context(&self, max_model_len: Option<u64>) -> Option<(u64, u64)> {
        let max_tokens = if self.target.endpoint.generates() { self.prompt.max_tokens } else { 0 };
        let asked = self.prompt.ctx_tokens.filter(|_| self.target.endpoint.takes_prompts())?;
        let room = prompt_room(max_model_len?, max_tokens, self.prompt.margin)?;
        (room < asked).then_some((asked, room))
    }

    /// Whether the reference artifact can be made of the run: the reference knows answers whose text is streamed, and
    /// would count all others as failures of the server.
    #[must_use]
    pub const fn has_reference_artifact(&self) -> bool {
        self.streams_text()
    }

    /// Whether answers are text that comes bit by bit.
    #[must_use]
    pub const fn streams_text(&self) -> bool {
        self.target.endpoint.generates() && self.body.streamed
    }
}

/// The longest prompt that a model has room for, in tokens: its length less the output limit and the margin. `None` when
/// these leave nothing.
#[must_use]
pub const fn prompt_room(max_model_len: u64, max_tokens: u64, margin: u64) -> Option<u64> {
    match max_model_len.checked_sub(max_tokens.saturating_add(margin)) {
        None | Some(0) => None,
        room => room,
    }
}

impl TargetSpec {
    /// The header fields that authenticate a request, then those of the user: what every request to the target has,
    /// a question for its models too.
    #[must_use]
    pub fn fields(&self) -> Vec<(&str, Secret)> {
        let mut fields = Vec::with_capacity(self.headers.len() + 2);
        if let Some(key) = &self.api_key {
            fields.push(match self.endpoint {
                Endpoint::Messages => ("x-api-key", key.clone()),
                _ => ("Authorization", Secret::new(format!("Bearer {}", key.reveal()))),
            });
        }
        let version = ANTHROPIC_VERSION;
        let own_version = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(version.0));
        if self.endpoint == Endpoint::Messages && !own_version {
            fields.push((version.0, Secret::new(version.1.to_owned())));
        }
        fields.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.clone())));
        fields
    }
}

/// The version of the Messages interface whose bodies are sent and whose events are read; the interface wants it in
/// every request.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

impl MaxTokensField {
    /// The name of the member.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// Nothing that was not asked for, as a stream.
impl Default for BodySpec {
    fn default() -> Self {
        Self {
            compat_anvil: false,
            temperature: None,
            top_p: None,
            thinking_mode: ThinkingMode::Default,
            no_thinking: false,
            reasoning_effort: None,
            streamed: true,
            continuous_usage: false,
            max_tokens_field: MaxTokensField::default(),
            ignore_eos: false,
            extra: Vec::new(),
        }
    }
}

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the request and nothing else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}
