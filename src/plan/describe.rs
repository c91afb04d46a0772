//! What a dry run prints: what would be sent, without sending it and without any secret. Pure: specification and
//! plan in, text out.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Plan;
use crate::config::masking;
use crate::config::spec::{Arrivals, ConnectionMode, PlainSpec, ResolvedTarget, RunSpec, TargetSpec};
use crate::record::mask::Mask;
use crate::units::Bytes;
use crate::units::text::{format_bytes, format_duration, format_rate};
use crate::wire::http1::Method;

/// Version of the JSON form. 1.0: the first, with `rate` and `arrival` (`null` in a closed loop).
pub const SCHEMA: &str = "hammerscale.plan/1.0";

/// Stands for a model name that only the server can tell.
pub const UNKNOWN_MODEL: &str = "<asked from the server>";

/// Bytes of the first body that are shown.
const HEAD_BYTES: usize = 400;

/// The target as far as it is known without asking it.
#[must_use]
pub fn unasked(spec: &RunSpec) -> ResolvedTarget {
    ResolvedTarget {
        addresses: Vec::new(),
        model: unasked_model(&spec.target),
        max_model_len: spec.prompt.max_model_len,
        unresolved: None,
        unreachable: None,
    }
}

/// Plain requests name no model.
fn unasked_model(target: &TargetSpec) -> String {
    let unknown = if target.endpoint.takes_prompts() { UNKNOWN_MODEL } else { "" };
    target.model.clone().unwrap_or_else(|| unknown.to_owned())
}

/// The plan for people, line by line.
#[must_use]
pub fn text(spec: &RunSpec, target: &ResolvedTarget, plan: &Plan) -> String {
    let secrets = masking::typed_secrets(&spec.target);
    let spec = &masking::shown(spec);
    let model = masking::masked(target.model.clone(), &secrets);
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<12}{value}");
    };
    let (smallest, largest) = body_range(plan);
    let contexts: Vec<String> =
        plan.context_distribution().iter().map(|(tokens, n)| format!("{tokens} × {n}")).collect();
    let length = target.max_model_len.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
    line("dry run", "nothing is sent".to_owned());
    line("target", format!("{} {}", method(spec), endpoint(spec)));
    let prompted = spec.target.endpoint.takes_prompts();
    if prompted {
        line("model", format!("{model} (context length {length})"));
    }
    line(
        "load",
        match spec.load.arrivals {
            Some(Arrivals { rate, process }) => {
                format!(
                    "open loop: {} requests at {} ({})",
                    plan.requests(),
                    format_rate(rate),
                    process.name()
                )
            }
            None => {
                let (requests, slots) = (plan.requests(), spec.load.concurrency);
                format!("closed loop: {requests} requests, {slots} at a time{}", burst(spec))
            }
        },
    );
    if prompted {
        let (distinct, repeats) = (plan.distinct_prompts(), plan.repeats());
        line("prompts", format!("{}, {distinct} distinct, {repeats} repeated", mode(spec)));
        let cut = spec.cut_context(target.max_model_len);
        let cut = cut.map_or_else(String::new, |(asked, _)| format!("; {asked} do not fit the model"));
        line("contexts", format!("{} (estimated tokens × requests){cut}", contexts.join(", ")));
    }
    let limit = plan.requested_max_tokens().map_or_else(String::new, |n| format!(", max_tokens {n}"));
    let bodies = match plan.fixed_body() {
        Some(body) => format!("{} bytes each", body.len()),
        None => format!("{smallest} to {largest} bytes{limit}"),
    };
    line("bodies", bodies);
    line("fields", fields(spec).join(", "));
    let limits = &spec.connection;
    line(
        "connections",
        format!(
            "{}; timeout {}, idle {}, connect {}",
            connection(limits.mode),
            format_duration(limits.timeout),
            format_duration(limits.idle_timeout),
            format_duration(limits.connect_timeout)
        ),
    );
    line("digest", plan.digest().to_owned());
    line("first body", head(plan, &secrets));
    out
}

/// The same as one JSON document, without a trailing line end.
#[must_use]
pub fn json(spec: &RunSpec, target: &ResolvedTarget, plan: &Plan) -> String {
    let secrets = masking::typed_secrets(&spec.target);
    let spec = &masking::shown(spec);
    let model = masking::masked(target.model.clone(), &secrets);
    let (smallest, largest) = body_range(plan);
    let prompted = spec.target.endpoint.takes_prompts();
    let contexts: serde_json::Map<String, Value> =
        plan.context_distribution().iter().map(|(tokens, n)| (tokens.to_string(), json!(n))).collect();
    let document = json!({
        "schema": SCHEMA,
        "target": {
            "base_url": spec.target.base_url,
            "simulated": spec.target.sim.is_some(),
            "endpoint": spec.target.endpoint.name(),
            "method": method(spec),
            "path": spec.target.path,
            "model": (prompted && target.model != UNKNOWN_MODEL).then_some(model),
            "max_model_len": target.max_model_len,
        },
        "loop": if spec.load.arrivals.is_some() { "open" } else { "closed" },
        "requests": plan.requests(),
        "concurrency": spec.load.asked_concurrency(),
        "burst": spec.load.burst,
        "rate": spec.load.arrivals.map(|arrivals| arrivals.rate.0),
        "arrival": spec.load.arrivals.map(|arrivals| arrivals.process.name()),
        "seed": prompted.then_some(spec.prompt.seed),
        "prompt_source": prompted.then(|| mode(spec)),
        "distinct_prompts": plan.distinct_prompts(),
        "repeats": plan.repeats(),
        "context_distribution": contexts,
        "max_tokens": plan.requested_max_tokens(),
        "body_bytes": { "min": smallest, "max": largest },
        "header_fields": fields(spec),
        "connection": {
            "mode": connection(spec.connection.mode),
            "timeout_s": spec.connection.timeout.as_secs_f64(),
            "idle_timeout_s": spec.connection.idle_timeout.as_secs_f64(),
            "connect_timeout_s": spec.connection.connect_timeout.as_secs_f64(),
        },
        "digest": plan.digest(),
        "first_body_head": head(plan, &secrets),
    });
    // A map with texts for keys and finite numbers always has a JSON form.
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

fn endpoint(spec: &RunSpec) -> String {
    match &spec.target.sim {
        Some(_) => format!("{} of the embedded simulator", spec.target.path),
        None => {
            let host = crate::config::url::host_header(&spec.target.host, spec.target.port);
            format!("http://{host}{}", spec.target.path)
        }
    }
}

fn method(spec: &RunSpec) -> &'static str {
    spec.target.plain.as_ref().map_or(Method::Post, |plain: &PlainSpec| plain.method).name()
}

fn burst(spec: &RunSpec) -> &'static str {
    if spec.load.burst > 0 { ", as one burst" } else { "" }
}

fn mode(spec: &RunSpec) -> String {
    match (spec.prompt.same, spec.prompt.unique, spec.prompt.shared_prefix_tokens) {
        (true, _, _) => "one prompt for all requests".to_owned(),
        (false, true, _) => "unique from the first line on".to_owned(),
        (false, false, 0) => "unique from the filler on".to_owned(),
        (false, false, tokens) => format!("shared prefix of {tokens} estimated tokens"),
    }
}

/// Names only: values may be secret.
fn fields(spec: &RunSpec) -> Vec<String> {
    let id = spec.target.request_id_header.then(|| "X-Request-Id".to_owned());
    id.into_iter().chain(spec.target.fields().into_iter().map(|(name, _)| name.to_owned())).collect()
}

const fn connection(mode: ConnectionMode) -> &'static str {
    match mode {
        ConnectionMode::Keep => "keep",
        ConnectionMode::Fresh => "fresh",
    }
}

/// Bytes of the smallest and of the largest body.
fn body_range(plan: &Plan) -> (u64, u64) {
    if let Some(body) = plan.fixed_body() {
        return (body.len() as u64, body.len() as u64);
    }
    let sizes = (0..plan.requests()).filter_map(|index| plan.body_bytes(index));
    let (smallest, largest) = sizes.fold((u64::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
    (smallest.min(largest), largest)
}

fn head(plan: &Plan, secrets: &Mask) -> String {
    let body = plan.body(0).unwrap_or_default();
    let head = String::from_utf8_lossy(body.get(..HEAD_BYTES).unwrap_or(&body));
    // A file's bytes may be anything, also what a terminal obeys; a prompt's are printable.
    let head = if plan.fixed_body().is_some() { head.escape_debug().to_string() } else { head.into_owned() };
    let head = masking::masked(head, secrets);
    let left = body.len().saturating_sub(HEAD_BYTES);
    if left == 0 { head } else { format!("{head}… ({} more)", format_bytes(Bytes(left as u64))) }
}
