//! What a request for generated text asks for, whatever its endpoint: the part that the schedule and the ledger need.
//!
//! Bodies are read by `serde_json`, and prompts are looked at where they lie: only their size and the asked-for form
//! of the answer are kept, never the text. Fields that are not named in an endpoint's file are ignored.

use std::borrow::Cow;

use serde::Deserialize;

use super::wish::Wish;
use crate::sim::options::{DEFAULT_TOKENS, MAX_MODEL_LEN};

/// Longest model name that is echoed: it is repeated in every event.
pub(crate) const MAX_MODEL_BYTES: usize = 256;

/// Bytes of prompt text that count as one token: the common rule of thumb for English text and code.
pub(crate) const BYTES_PER_TOKEN: usize = 4;

/// A request that will be answered with generated text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ask {
    /// The model's name, echoed.
    pub(crate) model: String,
    /// How much prompt there is.
    pub(crate) prompt: PromptSize,
    /// The most tokens to generate, reasoning included; at least 1.
    pub(crate) limit: Option<u64>,
    /// The fewest tokens to generate, as far as the limit allows.
    pub(crate) min_tokens: u64,
    /// Go on to the limit, whatever else would end the answer.
    pub(crate) ignore_eos: bool,
    /// Whether the answer is a stream of events.
    pub(crate) stream: bool,
    /// Whether a stream has a usage chunk, where the endpoint leaves that to the request.
    pub(crate) include_usage: bool,
    /// Whether every chunk says how many tokens there are so far, where the endpoint has that.
    pub(crate) continuous_usage: bool,
    /// The form of the answer.
    pub(crate) wish: Wish,
}

/// How much prompt there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PromptSize {
    /// UTF-8 bytes of all texts.
    pub(crate) bytes: u64,
    /// Tokens that were given by their numbers.
    pub(crate) ids: u64,
}

/// Why a body is refused. Always answered with status 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadBody(pub(crate) String);

/// `stream_options`, as vLLM has them.
#[derive(Debug, Deserialize)]
pub(super) struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

impl Ask {
    /// Takes over `stream_options`: the running counts come only together with the final ones, as in vLLM.
    pub(super) fn with_stream_options(mut self, options: Option<StreamOptions>) -> Self {
        let Some(options) = options else { return self };
        self.include_usage = options.include_usage.unwrap_or(false);
        self.continuous_usage = self.include_usage && options.continuous_usage_stats.unwrap_or(false);
        self
    }

    /// Checks what every endpoint demands.
    ///
    /// # Errors
    /// [`BadBody`] with one sentence for the peer; `limit_name` is the endpoint's word for the limit.
    pub(super) fn checked(self, limit_name: &str) -> Result<Self, BadBody> {
        if self.limit == Some(0) {
            return Err(BadBody(format!("{limit_name} must be at least 1.")));
        }
        self.prompt.check(self.limit.unwrap_or(1))?;
        Ok(self)
    }

    /// The limit, or what is generated when none is given.
    pub(crate) fn limit_or_default(&self) -> u64 {
        self.limit.unwrap_or(DEFAULT_TOKENS)
    }
}

impl PromptSize {
    /// Adds another piece.
    pub(super) const fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ids = self.ids.saturating_add(other.ids);
    }

    /// Estimated tokens: UTF-8 bytes divided by four, rounded up, and the numbered ones; at least 1.
    pub(crate) fn tokens(self) -> u64 {
        self.bytes.div_ceil(BYTES_PER_TOKEN as u64).saturating_add(self.ids).max(1)
    }

    /// Checks that it fits the context together with `further` tokens.
    ///
    /// # Errors
    /// [`BadBody`] when it does not.
    pub(super) fn check(self, further: u64) -> Result<(), BadBody> {
        let tokens = self.tokens();
        let needed = tokens.saturating_add(further);
        if needed > MAX_MODEL_LEN {
            return Err(BadBody(format!(
                "This model's maximum context length is {MAX_MODEL_LEN} tokens, and the request needs {needed} \
                 (about {tokens} of prompt)."
            )));
        }
        Ok(())
    }
}

/// Reads a body as one JSON object.
///
/// # Errors
/// [`BadBody`] with one sentence for the peer.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, BadBody> {
    // A struct may be written as an array for serde; in a request it may not.
    if body.trim_ascii_start().first().is_some_and(|&b| b != b'{') {
        return Err(BadBody("The body is not a JSON object.".to_owned()));
    }
    serde_json::from_slice(body).map_err(|e| BadBody(format!("The body cannot be used: {e}.")))
}

/// A model's name that may be echoed.
///
/// # Errors
/// [`BadBody`] when it is longer than [`MAX_MODEL_BYTES`].
pub(super) fn model_name(name: Cow<'_, str>) -> Result<String, BadBody> {
    if name.len() > MAX_MODEL_BYTES {
        return Err(BadBody(format!("The model's name is longer than {MAX_MODEL_BYTES} bytes.")));
    }
    Ok(name.into_owned())
}
