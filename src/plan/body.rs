//! The request body of a chat completion: the reference's bytes with `--compat anvil`, the same layout without the
//! unasked temperature otherwise.
//!
//! The layout is that of Python's `json.dumps` (`", "` and `": "`, ASCII escapes, shortest floats), because servers
//! and caches see bytes: a body that differs by a space is another experiment. Everything but the prompt is the same
//! in all bodies of a run and is rendered once.

use std::fmt::Write as _;

use crate::config::spec::{BodySpec, ThinkingMode};

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
    /// Renders what all bodies share.
    #[must_use]
    pub(super) fn chat(model: &str, max_tokens: u64, spec: &BodySpec) -> Self {
        let head = format!(
            "{{\"model\": {}, \"messages\": [{{\"role\": \"user\", \"content\": \"",
            json_string(model)
        );
        let mut tail = format!("\"}}], \"max_tokens\": {max_tokens}");
        let default_temperature = spec.compat_anvil.then_some(REFERENCE_TEMPERATURE);
        if let Some(temperature) = spec.temperature.or(default_temperature) {
            tail.push_str(", \"temperature\": ");
            tail.push_str(&json_float(temperature));
        }
        tail.push_str(", \"stream\": true, \"stream_options\": {\"include_usage\": true}");
        let thinking = match spec.thinking_mode {
            ThinkingMode::Enabled => Some(true),
            ThinkingMode::Disabled => Some(false),
            ThinkingMode::Default | ThinkingMode::Unsupported => None,
        };
        if let Some(on) = thinking {
            let _ = write!(tail, ", \"chat_template_kwargs\": {{\"enable_thinking\": {on}}}");
        }
        if let Some(effort) = &spec.reasoning_effort {
            tail.push_str(", \"reasoning_effort\": ");
            tail.push_str(&json_string(effort));
        }
        if let Some(top_p) = spec.top_p {
            tail.push_str(", \"top_p\": ");
            tail.push_str(&json_float(top_p));
        }
        tail.push('}');
        Self { head: head.into_bytes(), tail: tail.into_bytes() }
    }
}

/// A JSON string as `json.dumps` writes it: everything but printable ASCII is escaped.
fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
    out
}

/// A finite double as Python's `repr` writes it: shortest digits, always a float, exponents signed and of two digits.
fn json_float(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |e| ("-", e));
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: BodySpec = BodySpec {
        compat_anvil: false,
        temperature: None,
        top_p: None,
        thinking_mode: ThinkingMode::Default,
        no_thinking: false,
        reasoning_effort: None,
    };

    fn body(model: &str, max_tokens: u64, spec: &BodySpec) -> String {
        let Template { head, tail } = Template::chat(model, max_tokens, spec);
        String::from_utf8([head, b"hi".to_vec(), tail].concat()).unwrap()
    }

    #[test]
    fn nothing_is_sent_that_was_not_asked_for() {
        let want = r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 128, "stream": true, "stream_options": {"include_usage": true}}"#;
        assert_eq!(body("m", 128, &NOTHING), want);
    }

    #[test]
    fn the_reference_sends_a_temperature_of_zero() {
        let spec = BodySpec { compat_anvil: true, ..NOTHING };
        let want = r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 64, "temperature": 0.0, "stream": true, "stream_options": {"include_usage": true}}"#;
        assert_eq!(body("m", 64, &spec), want);
    }

    #[test]
    fn what_was_asked_for_stands_in_the_references_order() {
        let spec = BodySpec {
            compat_anvil: false,
            temperature: Some(1.0),
            top_p: Some(0.95),
            thinking_mode: ThinkingMode::Disabled,
            no_thinking: true,
            reasoning_effort: Some("low".to_owned()),
        };
        let want = r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "temperature": 1.0, "stream": true, "stream_options": {"include_usage": true}, "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low", "top_p": 0.95}"#;
        assert_eq!(body("m", 1, &spec), want);
        let enabled = BodySpec { thinking_mode: ThinkingMode::Enabled, ..NOTHING };
        assert!(body("m", 1, &enabled).ends_with(r#", "chat_template_kwargs": {"enable_thinking": true}}"#));
        let unsupported = BodySpec { thinking_mode: ThinkingMode::Unsupported, ..NOTHING };
        assert_eq!(body("m", 1, &unsupported), body("m", 1, &NOTHING));
    }

    #[test]
    fn floats_are_those_of_python() {
        for (value, text) in
            [(0.0, "0.0"), (1.0, "1.0"), (0.7, "0.7"), (0.0001, "0.0001"), (0.00001, "1e-05")]
        {
            assert_eq!(json_float(value), text);
        }
        assert_eq!(json_float(1.5e-10), "1.5e-10");
        assert_eq!(json_float(5e-324), "5e-324");
        assert_eq!(json_float(1e16), "1e+16");
    }

    #[test]
    fn strings_are_escaped_to_ascii() {
        assert_eq!(json_string("a\"b\\c/\n\t\r\u{8}\u{c}"), r#""a\"b\\c/\n\t\r\b\f""#);
        assert_eq!(json_string("\0\u{1f}\u{7f}\u{80}é😀"), r#""\u0000\u001f\u007f\u0080\u00e9\ud83d\ude00""#);
    }
}
