//! Everything that is decided before the first packet, deterministic from the resolved run and what the target said
//! about itself: how many requests, each one's context, prompt and body, and a digest of it all.
//!
//! Nothing here reads a clock, a file or a socket, and nothing here depends on the order or the thread in which it
//! is asked. It does not decide *when* a request starts (that is `schedule`), and it does not render the HTTP head
//! (that is `wire`).
//!
//! # Memory
//! A body is a pure function of its index, made at several GB/s, so that a plan need not hold them. When all bodies
//! together fit in [`PREBUILT_BYTES`], [`Plan::prebuilt`] makes them before the first packet and a request costs one
//! reference count; otherwise whoever runs the plan calls [`Plan::body`] ahead of use on a control thread, never on
//! a worker core between a request's due instant and its end.

mod body;
mod context;
pub mod describe;
pub mod models;
pub mod mt19937;
mod prompt;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

pub use body::Template;
pub use context::{Contexts, NoRoom};
pub use prompt::{CHARS_PER_TOKEN, Layout, LineEnd, Recipe, TooSmall, canary_marker};

use crate::config::reasoning;
use crate::config::spec::{ResolvedTarget, RunSpec};
use crate::config::usage::UsageError;

/// Bodies up to this sum are made before the first packet: 10,000 requests of 8,192 tokens are 247 MB, and a machine
/// that measures 10,000 streams has that much to spare.
pub const PREBUILT_BYTES: u64 = 256 << 20;

/// The digest covers this many leading bytes of the bodies literally. The default run's are a fortieth of it; hashing
/// as many takes 2 ms with SHA instructions and 20 ms without, which a run of that size does not notice.
pub const DIGEST_BODY_BYTES: u64 = 4 << 20;

/// What will be sent, in which order.
#[derive(Debug)]
pub struct Plan {
    requests: u64,
    max_tokens: u64,
    /// Every request sends the prompt of request 0.
    same: bool,
    contexts: Contexts,
    recipe: Recipe,
    template: Template,
    digest: OnceLock<String>,
}

impl Plan {
    /// Plans a run.
    ///
    /// # Errors
    /// [`UsageError`] for what only shows once the model and its length are known: a reasoning control that the
    /// model's family does not have, no room for a context, a context without room for the prompt's last line.
    pub fn new(spec: &RunSpec, target: &ResolvedTarget) -> Result<Self, UsageError> {
        let (prompt, requests) = (&spec.prompt, spec.load.requests);
        reasoning::check(&target.model, spec.body.thinking_mode, spec.body.reasoning_effort.as_deref())?;
        let cap = context::cap(target.max_model_len, prompt.max_tokens, prompt.margin).map_err(no_room)?;
        let plan = Self {
            requests,
            max_tokens: prompt.max_tokens,
            same: prompt.same,
            contexts: Contexts::plan(prompt.ctx_tokens, prompt.seed, requests, cap),
            recipe: Recipe {
                unique: prompt.unique,
                shared_prefix_tokens: prompt.shared_prefix_tokens,
                canary_seed: prompt.request_canaries.then_some(prompt.seed),
                response_words: prompt.response_words,
            },
            template: Template::chat(&target.model, prompt.max_tokens, &spec.body),
            digest: OnceLock::new(),
        };
        plan.check_room(cap)?;
        Ok(plan)
    }

    /// Number of requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The body of request `index`, made anew at every call; `None` beyond the plan. For any thread but a worker.
    #[must_use]
    pub fn body(&self, index: u64) -> Option<Bytes> {
        let layout = self.layout(index)?;
        let mut out = Vec::with_capacity(usize::try_from(self.size(&layout)).ok()?);
        out.extend_from_slice(&self.template.head);
        layout.write(&mut out, LineEnd::Json);
        out.extend_from_slice(&self.template.tail);
        Some(Bytes::from(out))
    }

    /// Bytes of the body of request `index`, without making it.
    #[must_use]
    pub fn body_bytes(&self, index: u64) -> Option<u64> {
        Some(self.size(&self.layout(index)?))
    }

    /// All bodies, by index, when together they fit in [`PREBUILT_BYTES`]; `None` asks for [`Plan::body`] ahead of use.
    #[must_use]
    pub fn prebuilt(&self) -> Option<Vec<Bytes>> {
        if self.same {
            // One body, shared.
            let body = self.body(0)?;
            return (body.len() as u64 <= PREBUILT_BYTES)
                .then(|| (0..self.requests).map(|_| body.clone()).collect());
        }
        let mut left = PREBUILT_BYTES;
        for index in 0..self.requests {
            left = left.checked_sub(self.body_bytes(index)?)?;
        }
        (0..self.requests).map(|index| self.body(index)).collect()
    }

    /// The prompt of request `index` as the model sees it; `None` beyond the plan.
    #[must_use]
    pub fn prompt(&self, index: u64) -> Option<String> {
        let mut out = Vec::new();
        self.layout(index)?.write(&mut out, LineEnd::Plain);
        String::from_utf8(out).ok()
    }

    /// Planned context of request `index` in estimated tokens; `None` beyond the plan.
    #[must_use]
    pub fn planned_context_tokens(&self, index: u64) -> Option<u64> {
        (index < self.requests).then(|| self.contexts.tokens(self.prompt_index(index)))?
    }

    /// Planned contexts and how many requests have each, in ascending order.
    #[must_use]
    pub fn context_distribution(&self) -> BTreeMap<u64, u64> {
        if self.same {
            return self.contexts.tokens(0).map(|tokens| (tokens, self.requests)).into_iter().collect();
        }
        self.contexts.distribution()
    }

    /// The output limit that every request asks for.
    #[must_use]
    pub const fn requested_max_tokens(&self) -> u64 {
        self.max_tokens
    }

    /// The marker that the answer to request `index` must begin with; `None` when none was asked for.
    #[must_use]
    pub fn canary_marker(&self, index: u64) -> Option<String> {
        self.recipe.canary_seed.map(|seed| canary_marker(seed, index))
    }

    /// How many different prompts are sent: every prompt names its index, unless all are the same.
    #[must_use]
    pub const fn distinct_prompts(&self) -> u64 {
        if self.same { 1 } else { self.requests }
    }

    /// How many requests send a prompt that was sent before.
    #[must_use]
    pub const fn repeats(&self) -> u64 {
        self.requests - self.distinct_prompts()
    }

    /// SHA-256 of the plan in lowercase hexadecimal: two plans with the same digest send the same bodies in the same
    /// order. It covers what every body shares, the knobs of the prompts, the context of every request, and the first
    /// [`DIGEST_BODY_BYTES`] of the bodies themselves, so that a change of the generator cannot hide. It does not
    /// cover where the requests go, their header fields (some are secret) and how many are in flight: the same load
    /// on two servers has one digest.
    #[must_use]
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| self.compute_digest())
    }

    fn compute_digest(&self) -> String {
        let mut hash = Sha256::new();
        let Recipe { unique, shared_prefix_tokens, canary_seed, response_words } = &self.recipe;
        let knobs = format!(
            "hammerscale.plan/1 chat\nrequests {} same {} unique {unique} shared {shared_prefix_tokens} canaries \
             {canary_seed:?} words {response_words} head {} tail {}\n",
            self.requests,
            self.same,
            self.template.head.len(),
            self.template.tail.len(),
        );
        hash.update(knobs);
        hash.update(&self.template.head);
        hash.update(&self.template.tail);
        self.contexts.feed(|bytes| hash.update(bytes));
        let mut left = usize::try_from(DIGEST_BODY_BYTES).unwrap_or(usize::MAX);
        for body in (0..self.requests).map_while(|index| self.body(index)) {
            hash.update(body.get(..left).unwrap_or(&body));
            left = left.saturating_sub(body.len());
            if left == 0 {
                break;
            }
        }
        hash.finalize().iter().fold(String::with_capacity(64), |hex, byte| hex + &format!("{byte:02x}"))
    }

    fn prompt_index(&self, index: u64) -> u64 {
        if self.same { 0 } else { index }
    }

    fn layout(&self, index: u64) -> Option<Layout> {
        let tokens = self.planned_context_tokens(index)?;
        self.recipe.layout(self.prompt_index(index), tokens).ok()
    }

    fn size(&self, layout: &Layout) -> u64 {
        (self.template.head.len() + self.template.tail.len()) as u64 + layout.bytes(LineEnd::Json)
    }

    /// The longest last line must fit the smallest context; then every prompt can be laid out.
    fn check_room(&self, cap: Option<u64>) -> Result<(), UsageError> {
        let smallest = self.context_distribution().keys().next().copied().unwrap_or(u64::MAX);
        let last = self.prompt_index(self.requests.saturating_sub(1));
        let Err(TooSmall { needed_tokens }) = self.recipe.layout(last, smallest) else { return Ok(()) };
        if cap == Some(smallest) {
            let reason = format!(
                "and --margin leave {smallest} tokens of the model's length, and the prompt's last line alone needs \
                 {needed_tokens}"
            );
            return Err(UsageError::bad("--max-tokens", reason));
        }
        let allowed =
            format!("at least {needed_tokens} here: the prompt's last line alone needs as many tokens");
        Err(UsageError::range("--ctx-tokens", allowed))
    }
}

fn no_room(NoRoom { length, taken }: NoRoom) -> UsageError {
    let reason = format!("and --margin together ({taken}) use up the model's length of {length} tokens");
    UsageError::bad("--max-tokens", reason)
}
