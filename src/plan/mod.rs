//! Everything that is decided before the first packet, deterministic from the resolved run and what the target said
//! about itself: how many requests, each one's context, prompt and body, and a digest of it all. Plain requests have no
//! prompt, and share one body.
//!
//! Nothing here reads a clock, a file or a socket, and nothing here depends on the order or the thread in which it
//! is asked. It does not decide *when* a request starts (that is `schedule`), and it does not render the HTTP head
//! (that is `wire`).
//!
//! # Memory
//! A body is a pure function of its index, made at 2 to 4 GB/s, so that a plan need not hold them: whoever runs the plan
//! calls [`Plan::body`] ahead of use on a control thread, never on a worker core between a request's due instant and its
//! end.

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

use body::Template;
use context::{Contexts, NoRoom};
pub use prompt::{CHARS_PER_TOKEN, canary_marker};
use prompt::{Layout, LineEnd, Recipe, TooSmall};

use crate::config::reasoning;
use crate::config::spec::{Endpoint, ResolvedTarget, RunSpec};
use crate::config::usage::UsageError;

/// The digest covers this many leading bytes of the bodies literally: all of the default run's and of 600 requests of
/// that kind. Making and hashing as many takes about 1 ms, so that the digest never delays a start.
pub const DIGEST_BODY_BYTES: u64 = 1 << 20;

/// What will be sent, in which order.
#[derive(Debug)]
pub struct Plan {
    requests: u64,
    content: Content,
    digest: OnceLock<String>,
}

/// What the bodies hold.
#[derive(Debug)]
enum Content {
    /// A prompt each.
    Prompted(Prompted),
    /// The same bytes, which all requests share.
    Fixed(Bytes),
}

#[derive(Debug)]
struct Prompted {
    endpoint: Endpoint,
    /// `None` where nothing is generated.
    max_tokens: Option<u64>,
    /// Every request sends the prompt of request 0.
    same: bool,
    contexts: Contexts,
    recipe: Recipe,
    template: Template,
}

impl Plan {
    /// Plans a run.
    ///
    /// # Errors
    /// [`UsageError`] for what only shows once the model and its length are known: a reasoning control that the
    /// model's family does not have, no room for a context, a context without room for the prompt's last line.
    pub fn new(spec: &RunSpec, target: &ResolvedTarget) -> Result<Self, UsageError> {
        let (prompt, requests, endpoint) = (&spec.prompt, spec.load.requests, spec.target.endpoint);
        if let Some(plain) = &spec.target.plain {
            let body = plain.body.clone().unwrap_or_default();
            return Ok(Self { requests, content: Content::Fixed(body), digest: OnceLock::new() });
        }
        let max_tokens = endpoint.generates().then_some(prompt.max_tokens);
        reasoning::check(&target.model, spec.body.thinking_mode, spec.body.reasoning_effort.as_deref())?;
        let cap =
            context::cap(target.max_model_len, max_tokens.unwrap_or(0), prompt.margin).map_err(no_room)?;
        let content = Prompted {
            endpoint,
            max_tokens,
            same: prompt.same,
            contexts: Contexts::plan(prompt.ctx_tokens, prompt.seed, requests, cap),
            recipe: Recipe {
                unique: prompt.unique,
                shared_prefix_tokens: prompt.shared_prefix_tokens,
                canary_seed: prompt.request_canaries.then_some(prompt.seed),
                response_words: prompt.response_words,
            },
            template: Template::new(endpoint, &target.model, prompt.max_tokens, &spec.body),
        };
        let plan = Self { requests, content: Content::Prompted(content), digest: OnceLock::new() };
        plan.check_room(cap)?;
        Ok(plan)
    }

    /// Number of requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The body of request `index`; `None` beyond the plan. A body with a prompt is made anew at every call, for any
    /// thread but a worker; a fixed one is shared.
    #[must_use]
    pub fn body(&self, index: u64) -> Option<Bytes> {
        let prompted = match &self.content {
            Content::Fixed(body) => return (index < self.requests).then(|| body.clone()),
            Content::Prompted(prompted) => prompted,
        };
        let layout = self.layout(index)?;
        let mut out = Vec::with_capacity(usize::try_from(prompted.size(&layout)).ok()?);
        out.extend_from_slice(&prompted.template.head);
        layout.write(&mut out, LineEnd::Json);
        out.extend_from_slice(&prompted.template.tail);
        Some(Bytes::from(out))
    }

    /// The body that all requests share, for plain requests.
    #[must_use]
    pub const fn fixed_body(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Fixed(body) => Some(body),
            Content::Prompted(_) => None,
        }
    }

    /// Bytes of the body of request `index`, without making it.
    #[must_use]
    pub fn body_bytes(&self, index: u64) -> Option<u64> {
        match &self.content {
            Content::Fixed(body) => (index < self.requests).then_some(body.len() as u64),
            Content::Prompted(prompted) => Some(prompted.size(&self.layout(index)?)),
        }
    }

    /// The prompt of request `index` as the model sees it; `None` beyond the plan, and where there is none.
    #[must_use]
    pub fn prompt(&self, index: u64) -> Option<String> {
        let mut out = Vec::new();
        self.layout(index)?.write(&mut out, LineEnd::Plain);
        String::from_utf8(out).ok()
    }

    /// Planned context of request `index` in estimated tokens; `None` beyond the plan, and where there is no prompt.
    #[must_use]
    pub fn planned_context_tokens(&self, index: u64) -> Option<u64> {
        let prompted = self.prompted()?;
        (index < self.requests).then(|| prompted.contexts.tokens(prompted.index(index)))?
    }

    /// Planned contexts and how many requests have each, in ascending order.
    #[must_use]
    pub fn context_distribution(&self) -> BTreeMap<u64, u64> {
        match self.prompted() {
            None => BTreeMap::new(),
            Some(Prompted { same: true, contexts, .. }) => {
                contexts.tokens(0).map(|tokens| (tokens, self.requests)).into_iter().collect()
            }
            Some(prompted) => prompted.contexts.distribution(),
        }
    }

    /// The output limit that every request asks for; `None` where nothing is generated.
    #[must_use]
    pub fn requested_max_tokens(&self) -> Option<u64> {
        self.prompted()?.max_tokens
    }

    /// The marker that the answer to request `index` must begin with; `None` when none was asked for.
    #[must_use]
    pub fn canary_marker(&self, index: u64) -> Option<String> {
        self.prompted()?.recipe.canary_seed.map(|seed| canary_marker(seed, index))
    }

    /// How many different prompts are sent: every prompt names its index, unless all are the same. None are sent with
    /// plain requests.
    #[must_use]
    pub fn distinct_prompts(&self) -> u64 {
        self.prompted().map_or(0, |prompted| if prompted.same { 1 } else { self.requests })
    }

    /// How many requests send a prompt that was sent before.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.prompted().map_or(0, |_| self.requests - self.distinct_prompts())
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
        match &self.content {
            Content::Prompted(prompted) => self.feed_prompts(prompted, &mut hash),
            Content::Fixed(body) => {
                hash.update(format!(
                    "hammerscale.plan/1 http\nrequests {} body {}\n",
                    self.requests,
                    body.len()
                ));
                hash.update(body);
            }
        }
        hash.finalize().iter().fold(String::with_capacity(64), |hex, byte| hex + &format!("{byte:02x}"))
    }

    fn feed_prompts(&self, prompted: &Prompted, hash: &mut Sha256) {
        let Prompted { endpoint, max_tokens: _, same, contexts, recipe, template } = prompted;
        let Recipe { unique, shared_prefix_tokens, canary_seed, response_words } = recipe;
        let knobs = format!(
            "hammerscale.plan/1 {}\nrequests {} same {same} unique {unique} shared {shared_prefix_tokens} canaries \
             {canary_seed:?} words {response_words} head {} tail {}\n",
            endpoint.name(),
            self.requests,
            template.head.len(),
            template.tail.len(),
        );
        hash.update(knobs);
        hash.update(&template.head);
        hash.update(&template.tail);
        contexts.feed(|bytes| hash.update(bytes));
        let mut left = usize::try_from(DIGEST_BODY_BYTES).unwrap_or(usize::MAX);
        for body in (0..self.requests).map_while(|index| self.body(index)) {
            hash.update(body.get(..left).unwrap_or(&body));
            left = left.saturating_sub(body.len());
            if left == 0 {
                break;
            }
        }
    }

    const fn prompted(&self) -> Option<&Prompted> {
        match &self.content {
            Content::Prompted(prompted) => Some(prompted),
            Content::Fixed(_) => None,
        }
    }

    fn layout(&self, index: u64) -> Option<Layout> {
        let (prompted, tokens) = (self.prompted()?, self.planned_context_tokens(index)?);
        prompted.recipe.layout(prompted.index(index), tokens).ok()
    }

    /// The longest last line must fit the smallest context; then every prompt can be laid out.
    fn check_room(&self, cap: Option<u64>) -> Result<(), UsageError> {
        let smallest = self.context_distribution().keys().next().copied().unwrap_or(u64::MAX);
        let Some(prompted) = self.prompted() else { return Ok(()) };
        let last = prompted.index(self.requests.saturating_sub(1));
        let Err(TooSmall { needed_tokens }) = prompted.recipe.layout(last, smallest) else { return Ok(()) };
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

impl Prompted {
    fn index(&self, index: u64) -> u64 {
        if self.same { 0 } else { index }
    }

    fn size(&self, layout: &Layout) -> u64 {
        (self.template.head.len() + self.template.tail.len()) as u64 + layout.bytes(LineEnd::Json)
    }
}

fn no_room(NoRoom { length, taken }: NoRoom) -> UsageError {
    let reason = format!("and --margin together ({taken}) use up the model's length of {length} tokens");
    UsageError::bad("--max-tokens", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::args::{self, RunArgs};
    use crate::config::resolve::resolve;
    use clap::FromArgMatches as _;

    fn plan_for(line: &str, length: Option<u64>) -> Result<Plan, UsageError> {
        let line = format!("--base-url http://h/v1 {line}");
        let matches = args::command().try_get_matches_from(line.split_whitespace()).unwrap();
        let args = RunArgs::from_arg_matches(&matches).unwrap();
        let spec = resolve(&args, &|_| None).unwrap();
        let model = spec.target.model.clone().unwrap_or_else(|| "m".to_owned());
        let target = ResolvedTarget {
            addresses: Vec::new(),
            model,
            max_model_len: length,
            unresolved: None,
            unreachable: None,
        };
        Plan::new(&spec, &target)
    }

    fn plan(line: &str) -> Plan {
        plan_for(line, None).unwrap()
    }

    fn prompts(plan: &Plan) -> Vec<String> {
        (0..plan.requests()).map(|i| plan.prompt(i).unwrap()).collect()
    }

    #[test]
    fn bodies_are_json_and_hold_the_prompt() {
        let plan = plan("--requests 3 --model é --temperature 0");
        for i in 0..3 {
            let body: serde_json::Value = serde_json::from_slice(&plan.body(i).unwrap()).unwrap();
            assert_eq!(body["messages"][0]["content"], plan.prompt(i).unwrap());
            assert_eq!((&body["model"], &body["max_tokens"]), (&"é".into(), &128.into()));
            assert_eq!(plan.body(i).unwrap().len() as u64, plan.body_bytes(i).unwrap());
            assert_eq!(plan.planned_context_tokens(i), Some(512));
        }
        assert_eq!((plan.body(3), plan.body_bytes(3), plan.planned_context_tokens(3)), (None, None, None));
        assert_eq!((plan.requested_max_tokens(), plan.canary_marker(0)), (Some(128), None));
    }

    #[test]
    fn prompts_repeat_only_when_they_are_meant_to() {
        for line in
            ["--requests 40", "--requests 40 --compat anvil --ctx-tokens 64", "--burst 40 --ctx-tokens 64"]
        {
            let plan = plan(line);
            let mut all = prompts(&plan);
            all.sort();
            all.dedup();
            assert_eq!((all.len() as u64, plan.distinct_prompts(), plan.repeats()), (40, 40, 0), "{line}");
        }
        let same = plan("--requests 40 --prompts same --ctx-tokens 0");
        let all = prompts(&same);
        assert!(all.iter().all(|p| *p == all[0]));
        assert_eq!((same.distinct_prompts(), same.repeats()), (1, 39));
        assert_eq!(same.context_distribution(), BTreeMap::from([(65_536, 40)]));
        assert_eq!(same.planned_context_tokens(39), Some(65_536));
    }

    #[test]
    fn canaries_have_their_marker_in_the_prompt() {
        let plan = plan("--requests 3 --request-canaries --seed -7");
        assert_eq!(plan.canary_marker(2).as_deref(), Some("ANVIL_REQ_-7_00002"));
        assert_eq!(plan.prompt(2).unwrap().matches("ANVIL_REQ_-7_00002").count(), 2);
    }

    #[test]
    fn the_digest_changes_with_what_is_sent_and_with_nothing_else() {
        let digest = |line: &str| plan(line).digest().to_owned();
        let base = digest("--requests 5");
        assert!(base.len() == 64 && base.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        for alike in [
            "--requests 5 --concurrency 3",
            "--requests 5 --timeout 1s",
            "--requests 5 --header X:1",
            "--num-prompts 5",
        ] {
            assert_eq!(digest(alike), base, "{alike}");
        }
        let lines = [
            "--requests 6",
            "--requests 5 --model n",
            "--requests 5 --ctx-tokens 513",
            "--requests 5 --ctx-tokens 0",
            "--requests 5 --ctx-tokens 0 --seed 1",
            "--requests 5 --max-tokens 1",
            "--requests 5 --temperature 0",
            "--requests 5 --temperature 0.5",
            "--requests 5 --top-p 1",
            "--requests 5 --prompts same",
            "--requests 5 --prompt-cache-mode shared",
            "--requests 5 --shared-prefix-tokens 9",
            "--requests 5 --shared-prefix-tokens 10",
            "--requests 5 --request-canaries",
            "--requests 5 --request-canaries --seed 1",
            "--requests 5 --response-words 1",
            "--requests 5 --no-thinking",
            "--requests 5 --reasoning-effort low",
            "--requests 5 --compat anvil",
        ];
        let mut digests: Vec<String> = lines.iter().map(|line| digest(line)).collect();
        digests.push(base);
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), lines.len() + 1);
    }

    #[test]
    fn what_only_the_servers_answer_shows_is_refused_before_anything_is_sent() {
        let refused = |line: &str, length| plan_for(line, length).unwrap_err().to_string();
        assert_eq!(
            refused("", Some(1_152)),
            "--max-tokens and --margin together (1152) use up the model's length of 1152 tokens"
        );
        assert_eq!(
            refused("", Some(1_160)),
            "--max-tokens and --margin leave 8 tokens of the model's length, and the prompt's last line alone needs 16"
        );
        let words = "--ctx-tokens 32 --request-canaries --response-words 5 --capture-limit 100";
        let want = "--ctx-tokens must be at least 73 here: the prompt's last line alone needs as many tokens";
        assert_eq!(refused(words, None), want);
        assert!(plan_for(&words.replace("32", "73"), None).is_ok());
        let clamped = plan_for("--ctx-tokens 8000", Some(4_096)).unwrap();
        assert_eq!(clamped.planned_context_tokens(0), Some(4_096 - 128 - 1_024));
        // The model's name may come from the server.
        let spec_then_name = "--reasoning-effort low";
        let line = format!("--base-url http://h/v1 {spec_then_name}");
        let matches = args::command().try_get_matches_from(line.split_whitespace()).unwrap();
        let spec = resolve(&RunArgs::from_arg_matches(&matches).unwrap(), &|_| None).unwrap();
        let target = ResolvedTarget {
            addresses: Vec::new(),
            model: "Qwen3-8B".to_owned(),
            max_model_len: None,
            unresolved: None,
            unreachable: None,
        };
        assert!(Plan::new(&spec, &target).unwrap_err().to_string().starts_with("--reasoning-effort "));
    }

    #[test]
    fn a_dry_run_shows_the_plan_and_no_secret() {
        let line = "--base-url http://h/v1 --requests 3 --ctx-tokens 512";
        let words: Vec<&str> = line.split(' ').chain(["--header", "X-Team: TEAMSECRET-42"]).collect();
        let matches = args::command().try_get_matches_from(words).unwrap();
        let args = RunArgs::from_arg_matches(&matches).unwrap();
        let spec = resolve(&args, &|name| (name == "OPENAI_API_KEY").then(|| "TESTKEY-1".into())).unwrap();
        let target = describe::unasked(&spec);
        let plan = Plan::new(&spec, &target).unwrap();
        let (text, json) = (describe::text(&spec, &target, &plan), describe::json(&spec, &target, &plan));
        for out in [&text, &json] {
            assert!(!out.contains("TEAMSECRET") && !out.contains("TESTKEY"), "{out}");
            assert!(out.contains(plan.digest()) && out.contains("X-Team") && out.contains("Authorization"));
        }
        assert!(text.contains("POST http://h/v1/chat/completions\n"), "{text}");
        assert!(text.contains("closed loop: 3 requests, 20 at a time"), "{text}");
        assert!(text.contains("512 × 3 (estimated tokens × requests)"), "{text}");
        let document: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(document["requests"], 3);
        assert_eq!(document["target"]["model"], serde_json::Value::Null);
        assert_eq!(document["context_distribution"]["512"], 3);
        assert_eq!(document["body_bytes"]["min"].as_u64(), plan.body_bytes(0));
        let head = document["first_body_head"].as_str().unwrap();
        assert!(head.starts_with("{\"model\": \"<asked from the server>\""), "{head}");
    }
}
