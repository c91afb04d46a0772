//! The echo of the resolved run, without secrets: a key is only said to be there, header fields only by name, and
//! values in a query whose names look like credentials are masked.
//!
//! Every struct of the spec is taken apart field by field, so that a new field does not compile before it is echoed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::spec::{
    BodySpec, ConnectionMode, ConnectionSpec, InstrumentSpec, LabelSpec, LoadSpec, OutputSpec, PromptSpec,
    RunSpec, TargetSpec, ThinkingMode,
};
use crate::report::ordered::OrderedMap;
use crate::units::Nanos;

/// The resolved run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpecDoc {
    /// Where requests go.
    pub target: TargetSpecDoc,
    /// How many, and how many at a time.
    pub load: LoadSpecDoc,
    /// What the prompts are.
    pub prompt: PromptSpecDoc,
    /// What else the body carries.
    pub body: BodySpecDoc,
    /// Connections and time limits.
    pub connection: ConnectionSpecDoc,
    /// Workers, cores, stamps.
    pub instrument: InstrumentSpecDoc,
    /// Where results go.
    pub output: OutputSpecDoc,
    /// Operator's labels.
    pub labels: LabelSpecDoc,
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpecDoc {
    /// Base URL.
    pub base_url: String,
    /// Request path.
    pub path: String,
    /// Path of the models list.
    pub models_path: Option<String>,
    /// Settings of the embedded simulator, when it is the target.
    pub sim: Option<OrderedMap<String>>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// A key is sent.
    pub api_key: bool,
    /// Names of further header fields.
    pub headers: Vec<String>,
    /// `X-Request-Id` is sent.
    pub request_id_header: bool,
}

/// How many requests, and how many at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSpecDoc {
    /// Measured requests.
    pub requests: u64,
    /// Slots.
    pub concurrency: u32,
    /// Size of the shared-prefix burst, 0 for none.
    pub burst: u32,
}

/// What the prompts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptSpecDoc {
    /// Fixed context target; `null` samples.
    pub ctx_tokens: Option<u64>,
    /// Seed.
    pub seed: i64,
    /// Output limit.
    pub max_tokens: u64,
    /// Words of controlled output, 0 for none.
    pub response_words: u64,
    /// Every prompt differs from the first byte on.
    pub unique: bool,
    /// Every request sends the prompt of request 0.
    pub same: bool,
    /// Tokens of the shared prefix.
    pub shared_prefix_tokens: u64,
    /// Canaries are asked for.
    pub request_canaries: bool,
    /// Controlled output must be exact.
    pub controlled_output_strict: bool,
    /// Model length, given.
    pub max_model_len: Option<u64>,
    /// Headroom below the model length.
    pub margin: u64,
    /// Characters of visible text kept per answer.
    pub capture_limit: usize,
}

/// What else the body carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BodySpecDoc {
    /// The reference's body.
    pub compat_anvil: bool,
    /// Temperature.
    pub temperature: Option<f64>,
    /// Nucleus mass.
    pub top_p: Option<f64>,
    /// Thinking mode.
    pub thinking_mode: String,
    /// `--no-thinking` was given.
    pub no_thinking: bool,
    /// Reasoning effort.
    pub reasoning_effort: Option<String>,
}

/// Connections and time limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionSpecDoc {
    /// `keep` or `fresh`.
    pub mode: String,
    /// Deadline of a request.
    pub timeout_s: f64,
    /// Longest silence.
    pub idle_timeout_s: f64,
    /// Longest time to connect.
    pub connect_timeout_s: f64,
}

/// Workers, cores, stamps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstrumentSpecDoc {
    /// Workers; `null` is one per core but one.
    pub workers: Option<u32>,
    /// Cores to pin workers to.
    pub cores: Vec<u32>,
    /// `kernel` or `user`.
    pub stamps: String,
    /// A verdict of `suspect` fails the run.
    pub strict: bool,
}

/// Where results go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpecDoc {
    /// Directory, when one was given.
    pub dir: Option<String>,
    /// Second place of the reference artifact.
    pub json_out: Option<String>,
    /// An existing run is replaced.
    pub overwrite: bool,
}

/// Operator's labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSpecDoc {
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
    /// `--label K=V`.
    pub labels: OrderedMap<String>,
}

impl SpecDoc {
    /// The echo of a resolved run.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Self {
        let RunSpec { target, load, prompt, body, connection, instrument, output, labels, dry_run: _ } = spec;
        Self {
            target: TargetSpecDoc::of(target),
            load: LoadSpecDoc::of(load),
            prompt: PromptSpecDoc::of(prompt),
            body: BodySpecDoc::of(body),
            connection: ConnectionSpecDoc::of(connection),
            instrument: InstrumentSpecDoc::of(instrument),
            output: OutputSpecDoc::of(output),
            labels: LabelSpecDoc::of(labels),
        }
    }
}

impl TargetSpecDoc {
    fn of(spec: &TargetSpec) -> Self {
        // Host and port are part of the base URL.
        let TargetSpec {
            base_url, host: _, port: _, path, models_path, sim, model, api_key, headers, ..
        } = spec;
        let TargetSpec { request_id_header, .. } = spec;
        Self {
            base_url: base_url.clone(),
            path: masked_path(path),
            models_path: models_path.as_deref().map(masked_path),
            sim: sim.as_ref().map(|sim| sim.settings.iter().cloned().collect()),
            model: model.clone(),
            api_key: api_key.is_some(),
            headers: headers.iter().map(|(name, _)| name.clone()).collect(),
            request_id_header: *request_id_header,
        }
    }
}

impl LoadSpecDoc {
    fn of(spec: &LoadSpec) -> Self {
        let LoadSpec { requests, concurrency, burst } = *spec;
        Self { requests, concurrency, burst }
    }
}

impl PromptSpecDoc {
    fn of(spec: &PromptSpec) -> Self {
        let PromptSpec {
            ctx_tokens,
            seed,
            max_tokens,
            response_words,
            unique,
            same,
            shared_prefix_tokens,
            request_canaries,
            controlled_output_strict,
            max_model_len,
            margin,
            capture_limit,
        } = *spec;
        Self {
            ctx_tokens,
            seed,
            max_tokens,
            response_words,
            unique,
            same,
            shared_prefix_tokens,
            request_canaries,
            controlled_output_strict,
            max_model_len,
            margin,
            capture_limit,
        }
    }
}

impl BodySpecDoc {
    fn of(spec: &BodySpec) -> Self {
        let BodySpec { compat_anvil, temperature, top_p, thinking_mode, no_thinking, reasoning_effort } =
            spec;
        let thinking_mode = match thinking_mode {
            ThinkingMode::Default => "default",
            ThinkingMode::Enabled => "enabled",
            ThinkingMode::Disabled => "disabled",
            ThinkingMode::Unsupported => "unsupported",
        };
        Self {
            compat_anvil: *compat_anvil,
            temperature: temperature.and_then(super::finite),
            top_p: top_p.and_then(super::finite),
            thinking_mode: thinking_mode.to_owned(),
            no_thinking: *no_thinking,
            reasoning_effort: reasoning_effort.clone(),
        }
    }
}

impl ConnectionSpecDoc {
    fn of(spec: &ConnectionSpec) -> Self {
        let ConnectionSpec { mode, timeout, idle_timeout, connect_timeout } = spec;
        let mode = match mode {
            ConnectionMode::Keep => "keep",
            ConnectionMode::Fresh => "fresh",
        };
        let [timeout_s, idle_timeout_s, connect_timeout_s] =
            [timeout, idle_timeout, connect_timeout].map(|limit| Nanos::as_secs_f64(*limit));
        Self { mode: mode.to_owned(), timeout_s, idle_timeout_s, connect_timeout_s }
    }
}

impl InstrumentSpecDoc {
    fn of(spec: &InstrumentSpec) -> Self {
        let InstrumentSpec { workers, cores, kernel_stamps, strict } = spec;
        Self {
            workers: *workers,
            cores: cores.clone(),
            stamps: if *kernel_stamps { "kernel" } else { "user" }.to_owned(),
            strict: *strict,
        }
    }
}

impl OutputSpecDoc {
    fn of(spec: &OutputSpec) -> Self {
        // What was shown on the way changes no number.
        let OutputSpec { dir, json_out, overwrite, quiet: _, progress: _, format: _ } = spec;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Self { dir: dir.as_deref().map(text), json_out: json_out.as_deref().map(text), overwrite: *overwrite }
    }
}

impl LabelSpecDoc {
    fn of(spec: &LabelSpec) -> Self {
        let LabelSpec {
            engine,
            gpu,
            tier,
            manifest,
            source_recipe,
            clock_domain_id,
            configuration_fingerprint,
            labels,
        } = spec.clone();
        Self {
            engine,
            gpu,
            tier,
            manifest,
            source_recipe,
            clock_domain_id,
            configuration_fingerprint,
            labels: labels.into_iter().collect(),
        }
    }
}

/// Parts of parameter names whose values are credentials on some gateway (`api-key`, `access_token`, `sig`, …).
const CREDENTIAL_WORDS: [&str; 8] = ["key", "token", "secret", "sig", "pass", "auth", "cred", "code"];
const MASK: &str = "***";

/// A request path whose query shows no credentials.
pub(super) fn masked_path(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let mask = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_credential(name) => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    };
    format!("{path}?{}", query.split('&').map(mask).collect::<Vec<_>>().join("&"))
}

fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CREDENTIAL_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_shows_no_credentials() {
        for (path, shown) in [
            ("/v1/chat/completions", "/v1/chat/completions"),
            ("/chat?api-version=2024-10-21", "/chat?api-version=2024-10-21"),
            ("/chat?api-version=1&API-Key=abc&x", "/chat?api-version=1&API-Key=***&x"),
            ("/chat?access_token=abc", "/chat?access_token=***"),
            ("/chat?key=", "/chat?key="),
            ("/chat?sig=a%3D=b&v=2", "/chat?sig=***&v=2"),
        ] {
            assert_eq!(masked_path(path), shown);
        }
    }
}
