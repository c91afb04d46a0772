//! The echo of the resolved run, without secrets: a key is only said to be there, header fields only by name, and what
//! is masked is decided in [`masking`].
//!
//! Every struct of the spec is taken apart field by field, so that a new field does not compile before it is echoed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::masking;
use crate::config::spec::{
    ConnectionMode, ConnectionSpec, Endpoint, InstrumentSpec, LabelSpec, LoadSpec, OutputSpec, PromptSpec,
    RunSpec, TargetSpec,
};
use crate::report::document::body_spec::{BodySpecDoc, PlainSpecDoc};
use crate::report::ordered::OrderedMap;
use crate::units::text::format_rate;
use crate::units::{Nanos, PerSecond, display};

/// [`ConnectionSpecDoc::mode`] of a run whose connections carry one request after the other.
pub const KEEP: &str = "keep";

/// The resolved run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpecDoc {
    /// Where requests go.
    pub target: TargetSpecDoc,
    /// How many, and how many at a time.
    pub load: LoadSpecDoc,
    /// What the prompts are; `null` for plain requests.
    pub prompt: Option<PromptSpecDoc>,
    /// What else the body carries; `null` for plain requests.
    pub body: Option<BodySpecDoc>,
    /// What plain requests carry; absent for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<PlainSpecDoc>,
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
    /// Endpoint, by its name on the command line.
    #[serde(default = "chat")]
    pub endpoint: String,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadSpecDoc {
    /// Measured requests.
    pub requests: u64,
    /// Slots of the closed loop; `null` in an open one.
    pub concurrency: Option<u32>,
    /// Size of the shared-prefix burst, 0 for none.
    pub burst: u32,
    /// Requests per second that an open loop was to start; absent in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// How they were to follow each other; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<String>,
}

/// What the prompts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptSpecDoc {
    /// Fixed context target; `null` samples.
    pub ctx_tokens: Option<u64>,
    /// Seed.
    pub seed: i64,
    /// Output limit; `null` where nothing is generated.
    pub max_tokens: Option<u64>,
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

/// Connections and time limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionSpecDoc {
    /// `keep` or `fresh`.
    pub mode: String,
    /// Connections are made before the first request.
    #[serde(default)]
    pub prewarm: bool,
    /// Local addresses to connect from; empty lets the system choose.
    #[serde(default)]
    pub source_ips: Vec<String>,
    /// Deadline of a request.
    pub timeout_s: f64,
    /// Longest silence.
    pub idle_timeout_s: f64,
    /// Longest time to connect.
    pub connect_timeout_s: f64,
}

/// Workers, cores, stamps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstrumentSpecDoc {
    /// Workers; `null` is one per core but one.
    pub workers: Option<u32>,
    /// Cores to pin workers to.
    pub cores: Vec<u32>,
    /// `kernel` or `user`.
    pub stamps: String,
    /// A verdict of `suspect` fails the run.
    pub strict: bool,
    /// Most that the client may add to a latency; `null` where no limit was asked for.
    #[serde(default)]
    pub max_client_error_us: Option<f64>,
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
        let RunSpec { target, load, prompt, body, connection, instrument, output, labels, dry_run: _ } =
            &masking::shown(spec);
        Self {
            target: TargetSpecDoc::of(target),
            load: LoadSpecDoc::of(load),
            prompt: target.endpoint.takes_prompts().then(|| PromptSpecDoc::of(prompt, target.endpoint)),
            body: target.endpoint.takes_prompts().then(|| BodySpecDoc::of(body, target.endpoint)),
            plain: target.plain.as_ref().map(PlainSpecDoc::of),
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
            endpoint,
            plain: _,
            base_url,
            host: _,
            port: _,
            path,
            models_path,
            sim,
            model,
            api_key,
            headers,
            request_id_header,
        } = spec;
        Self {
            endpoint: endpoint.name().to_owned(),
            base_url: base_url.clone(),
            path: path.clone(),
            models_path: models_path.clone(),
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
        let LoadSpec { requests, concurrency: _, burst, arrivals } = *spec;
        Self {
            requests,
            concurrency: spec.asked_concurrency(),
            burst,
            rate: arrivals.map(|arrivals| arrivals.rate.0),
            arrival: arrivals.map(|arrivals| arrivals.process.name().to_owned()),
        }
    }
}

impl LoadSpecDoc {
    /// How the load is driven, in a few words: `20 at a time`, `at 12.5/s (poisson)`.
    #[must_use]
    pub fn driven(&self) -> String {
        match (self.rate, self.concurrency) {
            (Some(rate), _) => {
                let arrival = self.arrival.as_deref().unwrap_or("open loop");
                format!("at {} ({arrival})", format_rate(PerSecond(rate)))
            }
            (None, Some(slots)) => format!("{} at a time", display::whole(u64::from(slots))),
            (None, None) => "at an unknown pace".to_owned(),
        }
    }
}

impl PromptSpecDoc {
    fn of(spec: &PromptSpec, endpoint: Endpoint) -> Self {
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
            max_tokens: endpoint.generates().then_some(max_tokens),
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

impl ConnectionSpecDoc {
    fn of(spec: &ConnectionSpec) -> Self {
        let ConnectionSpec { mode, prewarm, source_ips, timeout, idle_timeout, connect_timeout } = spec;
        let mode = match mode {
            ConnectionMode::Keep => KEEP,
            ConnectionMode::Fresh => "fresh",
        };
        let [timeout_s, idle_timeout_s, connect_timeout_s] =
            [timeout, idle_timeout, connect_timeout].map(|limit| Nanos::as_secs_f64(*limit));
        Self {
            mode: mode.to_owned(),
            prewarm: *prewarm,
            source_ips: source_ips.iter().map(ToString::to_string).collect(),
            timeout_s,
            idle_timeout_s,
            connect_timeout_s,
        }
    }
}

impl InstrumentSpecDoc {
    fn of(spec: &InstrumentSpec) -> Self {
        let InstrumentSpec { workers, cores, kernel_stamps, strict, max_client_error } = spec;
        Self {
            workers: *workers,
            cores: cores.clone(),
            stamps: if *kernel_stamps { "kernel" } else { "user" }.to_owned(),
            strict: *strict,
            max_client_error_us: max_client_error.map(Nanos::as_micros_f64),
        }
    }
}

impl OutputSpecDoc {
    fn of(spec: &OutputSpec) -> Self {
        // What was shown on the way changes no number.
        let OutputSpec { dir, json_out, overwrite, quiet: _, progress: _, format: _ } = spec;
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

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What documents without the key mean.
fn chat() -> String {
    Endpoint::Chat.name().to_owned()
}
