//! The blocks that say where numbers come from: program, machine, server, plan.

use serde::{Deserialize, Serialize};

use super::PlanFacts;
use super::spec::{LoadSpecDoc, SpecDoc};
use crate::config::masking;
use crate::config::spec::ResolvedTarget;
use crate::record::mask::Mask;
use crate::report::host::{Host, Tool};

/// A closed loop, which has no arrivals of its own either.
const CLOSED: &str = "closed";

/// The program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDoc {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The commit it was built from.
    pub git: Option<String>,
    /// `release` or `debug`.
    pub build_profile: String,
    /// The compiler.
    pub rustc: Option<String>,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDoc {
    /// Model name of the processor.
    pub cpu: Option<String>,
    /// Processors that are online.
    pub cores: Option<u32>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Frequency governor.
    pub governor: Option<String>,
    /// Clock source of the kernel.
    pub clocksource: Option<String>,
    /// A hypervisor runs it.
    pub virtualised: Option<bool>,
}

/// The server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetDoc {
    /// Base URL, without userinfo.
    pub base_url: String,
    /// Request path.
    pub endpoint: String,
    /// The model that was sent; `null` for plain requests.
    pub model: Option<String>,
    /// The model's context length.
    pub max_model_len: Option<u64>,
    /// Engine, as the operator labelled it.
    pub engine: Option<String>,
    /// Accelerator, as the operator labelled it.
    pub gpu: Option<String>,
    /// Addresses, in the order they are used.
    pub resolved_addresses: Vec<String>,
    /// The connection is encrypted.
    pub tls: bool,
    /// The target is the embedded simulator.
    pub simulated: bool,
    /// Why nothing could be sent; absent where something could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
}

/// The plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanDoc {
    /// `closed` or `open`.
    #[serde(rename = "loop")]
    pub driven: String,
    /// Seed.
    pub seed: i64,
    /// Digest of everything that was decided before the first packet.
    pub digest: String,
    /// The arrival process.
    pub arrivals: String,
    /// Where prompts come from.
    pub prompt_source: String,
    /// Different prompts among the measured requests.
    pub distinct_prompts: u64,
    /// Measured requests whose prompt was sent before.
    pub repeats: u64,
}

impl ToolDoc {
    pub(in crate::report) fn of(tool: &Tool) -> Self {
        Self {
            name: tool.name.to_owned(),
            version: tool.version.to_owned(),
            git: tool.git.map(str::to_owned),
            build_profile: tool.profile.to_owned(),
            rustc: tool.rustc.map(str::to_owned),
        }
    }
}

impl HostDoc {
    pub(in crate::report) fn of(host: &Host) -> Self {
        let Host { cpu, cores, kernel, governor, clocksource, virtualised } = host.clone();
        Self { cpu, cores, kernel, governor, clocksource, virtualised }
    }
}

impl TargetDoc {
    /// The server of a run, without the run's own secrets.
    #[must_use]
    pub fn of(spec: &SpecDoc, resolved: &ResolvedTarget, secrets: &Mask) -> Self {
        let shown = |text: &String| masking::masked(text.clone(), secrets);
        let mut doc = Self {
            base_url: String::new(),
            endpoint: String::new(),
            // The server may have chosen the name.
            model: spec.prompt.as_ref().map(|_| shown(&resolved.model)),
            max_model_len: resolved.max_model_len,
            engine: None,
            gpu: None,
            resolved_addresses: resolved.addresses.iter().map(ToString::to_string).collect(),
            tls: false,
            simulated: false,
            unreachable: resolved.unreachable.as_ref().map(shown),
        };
        doc.take_spec(spec);
        doc
    }

    /// Takes over what follows from what was asked for.
    pub(super) fn take_spec(&mut self, spec: &SpecDoc) {
        self.base_url.clone_from(&spec.target.base_url);
        self.endpoint.clone_from(&spec.target.path);
        self.engine.clone_from(&spec.labels.engine);
        self.gpu.clone_from(&spec.labels.gpu);
        self.tls = spec.target.base_url.starts_with("https://");
        self.simulated = spec.target.sim.is_some();
    }
}

impl PlanDoc {
    pub(super) fn of(plan: &PlanFacts, load: &LoadSpecDoc, seed: i64) -> Self {
        let mut doc = Self {
            driven: String::new(),
            seed,
            digest: plan.digest.clone(),
            arrivals: String::new(),
            prompt_source: plan.prompt_source.clone(),
            distinct_prompts: plan.distinct_prompts,
            repeats: plan.repeats,
        };
        doc.take_load(load);
        doc
    }

    /// Takes over what follows from how the load was to be driven.
    pub(super) fn take_load(&mut self, load: &LoadSpecDoc) {
        self.driven = if load.rate.is_some() { "open" } else { CLOSED }.to_owned();
        self.arrivals = load.arrival.clone().unwrap_or_else(|| CLOSED.to_owned());
    }
}
