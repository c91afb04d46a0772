//! The echo of what requests carry beside their prompts.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spec::text;
use crate::config::spec::{BodySpec, Endpoint, PlainSpec, ThinkingMode};
use crate::report::ordered::OrderedMap;

/// What plain requests carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlainSpecDoc {
    /// Method.
    pub method: String,
    /// The file with their body.
    pub body_file: Option<String>,
    /// Bytes of the body; `null` without one.
    pub body_bytes: Option<u64>,
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
    /// Answers are asked for as event streams.
    #[serde(default = "streamed")]
    pub stream: bool,
    /// Usage is asked for with every event.
    #[serde(default)]
    pub continuous_usage: bool,
    /// Name of the output limit, where it is the user's choice; absent for endpoints with one name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens_field: Option<String>,
    /// `ignore_eos` is sent.
    #[serde(default)]
    pub ignore_eos: bool,
    /// Members that the user added; texts under names that look like credentials are masked.
    #[serde(default, skip_serializing_if = "OrderedMap::is_empty")]
    pub extra_body: OrderedMap<Value>,
}

impl PlainSpecDoc {
    pub(super) fn of(spec: &PlainSpec) -> Self {
        let PlainSpec { method, body, body_file } = spec;
        Self {
            method: method.name().to_owned(),
            body_file: body_file.as_deref().map(text),
            body_bytes: body.as_ref().map(|body| body.len() as u64),
        }
    }
}

impl BodySpecDoc {
    pub(super) fn of(spec: &BodySpec, endpoint: Endpoint) -> Self {
        let BodySpec {
            compat_anvil,
            temperature,
            top_p,
            thinking_mode,
            no_thinking,
            reasoning_effort,
            streamed,
            continuous_usage,
            max_tokens_field,
            ignore_eos,
            extra,
        } = spec;
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
            stream: *streamed,
            continuous_usage: *continuous_usage,
            max_tokens_field: (endpoint == Endpoint::Chat).then(|| max_tokens_field.name().to_owned()),
            ignore_eos: *ignore_eos,
            extra_body: extra
                .iter()
                // It was JSON when the run was resolved.
                .map(|(name, value)| (name.clone(), serde_json::from_str(value).unwrap_or_default()))
                .collect(),
        }
    }
}

/// What documents without the key mean.
const fn streamed() -> bool {
    true
}
