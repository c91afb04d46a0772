//! The request body of each endpoint: for chat completions the reference's bytes with `--compat anvil`, the same layout
//! without the unasked temperature otherwise.
//!
//! The layout is that of Python's `json.dumps` (`", "` and `": "`, ASCII escapes, shortest floats), because servers
//! and caches see bytes: a body that differs by a space is another experiment. Members that the user adds keep their
//! own. Everything but the prompt is the same in all bodies of a run and is rendered once.

mod json;

use crate::config::spec::{BodySpec, Endpoint, ThinkingMode};

/// The temperature the reference sends when none was asked for.
const REFERENCE_TEMPERATURE: f64 = 0.0;

/// All of a body except the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    /// Up to and with the quotation mark before the prompt.
    pub(super) head: Vec<u8>,
    /// From the quotation mark after the prompt on.
    pub(super) tail: Vec<u8>,
}

impl Template {
    /// Renders what all bodies share. Plain requests have none of it: their body is a file's.
    #[must_use]
    pub(super) fn new(endpoint: Endpoint, model: &str, max_tokens: u64, spec: &BodySpec) -> Self {
        let (before, after) = match endpoint {
            Endpoint::Chat | Endpoint::Messages => {
                ("\"messages\": [{\"role\": \"user\", \"content\": \"", "\"}]")
            }
            Endpoint::Completions => ("\"prompt\": \"", "\""),
            Endpoint::Responses | Endpoint::Embeddings | Endpoint::Http => ("\"input\": \"", "\""),
        };
        let head = format!("{{\"model\": {}, {before}", json::string(model));
        let mut tail = after.to_owned();
        for (name, value) in members(endpoint, max_tokens, spec) {
            tail.push_str(&format!(", {}: {value}", json::string(&name)));
        }
        tail.push('}');
        Self { head: head.into_bytes(), tail: tail.into_bytes() }
    }
}

/// What follows the prompt, names and values, in the reference's order; the user's members replace ours in their place
/// and follow them otherwise.
fn members(endpoint: Endpoint, max_tokens: u64, spec: &BodySpec) -> Vec<(String, String)> {
    let mut members = Vec::new();
    if endpoint.generates() {
        generation(endpoint, max_tokens, spec, &mut members);
    }
    let mut members: Vec<(String, String)> =
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, value) in &spec.extra {
        match members.iter_mut().find(|(ours, _)| ours == name) {
            Some((_, ours)) => ours.clone_from(value),
            None => members.push((name.clone(), value.clone())),
        }
    }
    members
}

/// Limit, sampling, stream and reasoning.
fn generation(
    endpoint: Endpoint,
    max_tokens: u64,
    spec: &BodySpec,
    members: &mut Vec<(&'static str, String)>,
) {
    let has_usage_options = matches!(endpoint, Endpoint::Chat | Endpoint::Completions);
    let limit = match endpoint {
        Endpoint::Chat => spec.max_tokens_field.name(),
        Endpoint::Responses => "max_output_tokens",
        _ => "max_tokens",
    };
    members.push((limit, max_tokens.to_string()));
    let default_temperature = spec.compat_anvil.then_some(REFERENCE_TEMPERATURE);
    if let Some(temperature) = spec.temperature.or(default_temperature) {
        members.push(("temperature", json::float(temperature)));
    }
    members.push(("stream", spec.streamed.to_string()));
    if spec.streamed && has_usage_options {
        let more = if spec.continuous_usage { ", \"continuous_usage_stats\": true" } else { "" };
        members.push(("stream_options", format!("{{\"include_usage\": true{more}}}")));
    }
    members.extend(thinking(endpoint, spec.thinking_mode));
    if let Some(effort) = &spec.reasoning_effort {
        let effort = json::string(effort);
        members.push(match endpoint {
            Endpoint::Responses => ("reasoning", format!("{{\"effort\": {effort}}}")),
            _ => ("reasoning_effort", effort),
        });
    }
    if let Some(top_p) = spec.top_p {
        members.push(("top_p", json::float(top_p)));
    }
    if spec.ignore_eos {
        members.push(("ignore_eos", "true".to_owned()));
    }
}

fn thinking(endpoint: Endpoint, mode: ThinkingMode) -> Option<(&'static str, String)> {
    let on = match mode {
        ThinkingMode::Enabled => true,
        ThinkingMode::Disabled => false,
        ThinkingMode::Default | ThinkingMode::Unsupported => return None,
    };
    match endpoint {
        Endpoint::Chat => Some(("chat_template_kwargs", format!("{{\"enable_thinking\": {on}}}"))),
        // Switching it on takes a budget, which only the user's own members can name.
        Endpoint::Messages if !on => Some(("thinking", "{\"type\": \"disabled\"}".to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::MaxTokensField;

    fn body_of(endpoint: Endpoint, model: &str, max_tokens: u64, spec: &BodySpec) -> String {
        let Template { head, tail } = Template::new(endpoint, model, max_tokens, spec);
        String::from_utf8([head, b"hi".to_vec(), tail].concat()).unwrap()
    }

    fn body(model: &str, max_tokens: u64, spec: &BodySpec) -> String {
        body_of(Endpoint::Chat, model, max_tokens, spec)
    }

    #[test]
    fn nothing_is_sent_that_was_not_asked_for() {
        for (endpoint, want) in [
            (
                Endpoint::Chat,
                r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 128, "stream": true, "stream_options": {"include_usage": true}}"#,
            ),
            (
                Endpoint::Completions,
                r#"{"model": "m", "prompt": "hi", "max_tokens": 128, "stream": true, "stream_options": {"include_usage": true}}"#,
            ),
            (
                Endpoint::Responses,
                r#"{"model": "m", "input": "hi", "max_output_tokens": 128, "stream": true}"#,
            ),
            (
                Endpoint::Messages,
                r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 128, "stream": true}"#,
            ),
            (Endpoint::Embeddings, r#"{"model": "m", "input": "hi"}"#),
        ] {
            assert_eq!(body_of(endpoint, "m", 128, &BodySpec::default()), want);
        }
    }

    #[test]
    fn a_body_that_is_not_streamed_says_so_and_has_no_stream_options() {
        let spec = BodySpec { streamed: false, ..BodySpec::default() };
        let tail = |endpoint| {
            let body = body_of(endpoint, "m", 1, &spec);
            body.split_once("hi").unwrap().1.to_owned()
        };
        assert_eq!(tail(Endpoint::Chat), r#""}], "max_tokens": 1, "stream": false}"#);
        assert_eq!(tail(Endpoint::Completions), r#"", "max_tokens": 1, "stream": false}"#);
        assert_eq!(tail(Endpoint::Responses), r#"", "max_output_tokens": 1, "stream": false}"#);
        assert_eq!(tail(Endpoint::Messages), r#""}], "max_tokens": 1, "stream": false}"#);
        assert_eq!(tail(Endpoint::Embeddings), r#""}"#);
    }

    #[test]
    fn the_reference_sends_a_temperature_of_zero() {
        let spec = BodySpec { compat_anvil: true, ..BodySpec::default() };
        let want = r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 64, "temperature": 0.0, "stream": true, "stream_options": {"include_usage": true}}"#;
        assert_eq!(body("m", 64, &spec), want);
    }

    #[test]
    fn what_was_asked_for_stands_in_the_references_order() {
        let spec = BodySpec {
            temperature: Some(1.0),
            top_p: Some(0.95),
            thinking_mode: ThinkingMode::Disabled,
            no_thinking: true,
            reasoning_effort: Some("low".to_owned()),
            ..BodySpec::default()
        };
        let want = r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "temperature": 1.0, "stream": true, "stream_options": {"include_usage": true}, "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low", "top_p": 0.95}"#;
        assert_eq!(body("m", 1, &spec), want);
        let enabled = BodySpec { thinking_mode: ThinkingMode::Enabled, ..BodySpec::default() };
        assert!(body("m", 1, &enabled).ends_with(r#", "chat_template_kwargs": {"enable_thinking": true}}"#));
        let unsupported = BodySpec { thinking_mode: ThinkingMode::Unsupported, ..BodySpec::default() };
        assert_eq!(body("m", 1, &unsupported), body("m", 1, &BodySpec::default()));
    }

    #[test]
    fn each_endpoint_says_effort_and_thinking_in_its_own_words() {
        let effort = BodySpec { reasoning_effort: Some("high".to_owned()), ..BodySpec::default() };
        let body = body_of(Endpoint::Responses, "m", 1, &effort);
        assert!(body.ends_with(r#""stream": true, "reasoning": {"effort": "high"}}"#), "{body}");
        let off = BodySpec { thinking_mode: ThinkingMode::Disabled, ..BodySpec::default() };
        let body = body_of(Endpoint::Messages, "m", 1, &off);
        assert!(body.ends_with(r#""stream": true, "thinking": {"type": "disabled"}}"#), "{body}");
    }

    #[test]
    fn further_members_replace_ours_in_their_place_and_are_sent_as_typed() {
        let extra = [
            ("stream_options", r#"{"include_usage":false}"#),
            ("seed", "12345678901234567890"),
            ("é", "[1.50,  \"ü\"]"),
        ];
        let spec = BodySpec {
            continuous_usage: true,
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            ignore_eos: true,
            ..BodySpec::default()
        };
        let plain = body("m", 5, &spec);
        let want = r#", "max_completion_tokens": 5, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "ignore_eos": true}"#;
        assert!(plain.ends_with(want), "{plain}");
        let extra = extra.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let merged = body("m", 5, &BodySpec { extra, ..spec });
        let want = r#", "stream_options": {"include_usage":false}, "ignore_eos": true, "seed": 12345678901234567890, "\u00e9": [1.50,  "ü"]}"#;
        assert!(merged.ends_with(want), "{merged}");
    }
}
