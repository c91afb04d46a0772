//! What a server says went wrong, in every shape it is said with a status of 200.
//!
//! The shapes, each seen in the wild: `{"error": …}` with an object, a string, a number or `true` (OpenAI, vLLM,
//! llama.cpp, TGI, Ollama); `{"object":"error", …}` (older vLLM, Mistral); `{"detail": …}` (FastAPI); the flat
//! `{"message", "type", "code"}` (Dynamo); an event named `error` whose data is any of these or no JSON at all.
//! Errors beside choices (OpenRouter, Groq) are found by the dialect, which knows where choices are.
//!
//! This runs on the failure path only and allocates; every text kept is bounded.

use serde_json::{Map, Value};

use crate::record::ErrorDetail;

/// The reference keeps 2,048 characters of an error message; so do we.
pub const MAX_MESSAGE_CHARS: usize = 2048;

/// Codes and types are identifiers of some 20 to 40 characters; a longer one is a message in the wrong place, and cut.
pub const MAX_IDENTIFIER_CHARS: usize = 128;

/// An error code, as a number or as text, whichever the server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorCode {
    /// `"code": 503`
    Number(i64),
    /// `"code": "rate_limit_exceeded"`, or a number that is no integer, as its text.
    Text(String),
}

/// What a server said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerError {
    /// The message, at most [`MAX_MESSAGE_CHARS`]; empty when the server gave none.
    pub message: String,
    /// The code, where there is one.
    pub code: Option<ErrorCode>,
    /// The type, where there is one.
    pub error_type: Option<String>,
}

impl ServerError {
    /// An error that is only a message.
    #[must_use]
    pub fn of_message(message: &str) -> Self {
        Self { message: bounded(message, MAX_MESSAGE_CHARS), ..Self::default() }
    }

    /// As a record keeps it.
    #[must_use]
    pub fn to_detail(&self) -> ErrorDetail {
        let code = self.code.as_ref().map(|code| match code {
            ErrorCode::Number(n) => n.to_string(),
            ErrorCode::Text(text) => text.clone(),
        });
        ErrorDetail {
            message: self.message.clone(),
            code,
            error_type: self.error_type.clone(),
            ..ErrorDetail::default()
        }
    }

    /// The error that a JSON object reports, if it reports one. `has_choices` says that the object is a chunk or
    /// a completion, in which words like `message` and `detail` may mean something else.
    #[must_use]
    pub fn in_object(object: &Map<String, Value>, has_choices: bool) -> Option<Self> {
        if let Some(error) = object.get("error").filter(|error| says_something(error)) {
            return Some(Self::of_value(error, object));
        }
        if object.get("object").and_then(Value::as_str) == Some("error") {
            return Some(Self::of_object(object));
        }
        if has_choices {
            return None;
        }
        if let Some(detail) = object.get("detail").filter(|detail| says_something(detail)) {
            return Some(Self::of_value(detail, object));
        }
        is_flat_error(object).then(|| Self::of_object(object))
    }

    /// The error that an event named `error` reports. There always is one, whatever the data say.
    #[must_use]
    pub fn in_error_event(data: &[u8], value: Option<&Value>) -> Self {
        match value {
            None if data.trim_ascii().is_empty() => Self::of_message("an error event without data"),
            Some(Value::Object(object)) => {
                Self::in_object(object, false).unwrap_or_else(|| Self::of_object(object))
            }
            Some(Value::String(text)) => Self::of_message(text),
            _ => Self::of_message(&String::from_utf8_lossy(data)),
        }
    }

    /// An error in the value of a key `error` or `detail`; `beside` is the object that holds the key.
    #[must_use]
    pub fn of_value(error: &Value, beside: &Map<String, Value>) -> Self {
        let text = match error {
            Value::Object(object) => return Self::of_object(object),
            Value::String(text) => text.clone(),
            Value::Array(problems) => of_problems(problems),
            // A bare `true` or a number says that something is wrong and leaves the rest to its neighbours.
            _ => message_of(beside).unwrap_or_else(|| error.to_string()),
        };
        let code = if error.is_number() { code_of(error) } else { beside.get("code").and_then(code_of) };
        let error_type = beside.get("error_type").or_else(|| beside.get("type")).and_then(identifier);
        Self { message: bounded(&text, MAX_MESSAGE_CHARS), code, error_type }
    }

    /// An error in an object that is known to report one: its message, or all of it.
    #[must_use]
    pub(super) fn of_object(object: &Map<String, Value>) -> Self {
        let message = message_of(object).unwrap_or_else(|| Value::Object(object.clone()).to_string());
        Self {
            message: bounded(&message, MAX_MESSAGE_CHARS),
            code: object.get("code").and_then(code_of),
            error_type: object.get("type").and_then(identifier),
        }
    }

    /// The error of an event of an endpoint whose events have types, if it reports one. `own_type` is the type that its
    /// data give it, where the endpoint knows that: a word of the protocol, and not the error's type.
    #[must_use]
    pub(super) fn in_typed_event(
        data: &[u8],
        value: &Value,
        is_error: bool,
        is_known: bool,
        own_type: Option<&str>,
    ) -> Option<Self> {
        let mut error = if is_error {
            Self::in_error_event(data, Some(value))
        } else {
            Self::in_object(value.as_object()?, is_known)?
        };
        error.error_type = error.error_type.filter(|name| own_type != Some(name.as_str()));
        Some(error)
    }
}

/// `text`, cut after `chars` characters.
#[must_use]
pub(super) fn bounded(text: &str, chars: usize) -> String {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Servers that marshal every field of a struct send `"error": null`, `""`, `{}` or `0` when all is well.
pub(super) fn says_something(error: &Value) -> bool {
    match error {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(o) => !o.is_empty(),
    }
}

/// Dynamo's shape. A message alone is no error; a code or a type that names one makes it one.
fn is_flat_error(object: &Map<String, Value>) -> bool {
    /// Gateways wrap good answers as `{"code":200,"message":"success"}` or with code 0.
    const GOOD_CODES: std::ops::RangeInclusive<i64> = 200..=299;

    if !object.get("message").is_some_and(Value::is_string) {
        return false;
    }
    let bad_code = match object.get("code") {
        Some(Value::Number(n)) => n.as_i64().is_none_or(|n| n != 0 && !GOOD_CODES.contains(&n)),
        Some(Value::String(s)) => !s.is_empty(),
        _ => false,
    };
    let named =
        object.get("type").and_then(Value::as_str).is_some_and(|t| t.to_ascii_lowercase().contains("error"));
    bad_code || named
}

fn message_of(object: &Map<String, Value>) -> Option<String> {
    ["message", "msg", "detail", "error"].iter().find_map(|key| match object.get(*key)? {
        Value::String(text) => Some(text.clone()),
        Value::Array(problems) if !problems.is_empty() => Some(of_problems(problems)),
        Value::Object(inner) => inner.get("message").and_then(Value::as_str).map(str::to_owned),
        _ => None,
    })
}

/// FastAPI's list of what is wrong with a request.
fn of_problems(problems: &[Value]) -> String {
    /// Enough to see what is wrong; the message is bounded anyway.
    const MAX_PROBLEMS: usize = 8;

    let texts: Vec<String> = problems
        .iter()
        .take(MAX_PROBLEMS)
        .map(|problem| match problem {
            Value::String(text) => text.clone(),
            Value::Object(object) => message_of(object).unwrap_or_else(|| problem.to_string()),
            _ => problem.to_string(),
        })
        .collect();
    texts.join("; ")
}

fn code_of(code: &Value) -> Option<ErrorCode> {
    match code {
        Value::Number(n) => {
            Some(n.as_i64().map_or_else(|| ErrorCode::Text(n.to_string()), ErrorCode::Number))
        }
        Value::String(text) if !text.is_empty() => Some(ErrorCode::Text(bounded(text, MAX_IDENTIFIER_CHARS))),
        _ => None,
    }
}

fn identifier(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(|text| bounded(text, MAX_IDENTIFIER_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str) -> Option<(String, Option<ErrorCode>, Option<String>)> {
        let value: Value = serde_json::from_str(json).unwrap();
        let error = ServerError::in_object(value.as_object().unwrap(), value.get("choices").is_some())?;
        Some((error.message, error.code, error.error_type))
    }

    #[track_caller]
    fn check(json: &str, message: &str, code: Option<ErrorCode>, error_type: Option<&str>) {
        assert_eq!(found(json), Some((message.into(), code, error_type.map(str::to_owned))), "{json}");
    }

    #[test]
    fn every_shape_of_an_error_is_read() {
        use ErrorCode::{Number, Text};
        check(r#"{"error":{"message":"m","type":"t","code":504}}"#, "m", Some(Number(504)), Some("t"));
        check(r#"{"error":{"message":"m","code":"rate"}}"#, "m", Some(Text("rate".into())), None);
        check(r#"{"error":"m","error_type":"generation"}"#, "m", None, Some("generation"));
        check(r#"{"error":"m","code":500}"#, "m", Some(Number(500)), None);
        check(r#"{"error":503}"#, "503", Some(Number(503)), None);
        check(r#"{"error":503,"message":"busy"}"#, "busy", Some(Number(503)), None);
        check(r#"{"error":true,"message":"busy"}"#, "busy", None, None);
        check(
            r#"{"object":"error","message":"m","type":"T","code":40303}"#,
            "m",
            Some(Number(40303)),
            Some("T"),
        );
        check(r#"{"detail":"Not Found"}"#, "Not Found", None, None);
        check(
            r#"{"detail":[{"loc":["body"],"msg":"Field required","type":"missing"},{"msg":"x"}]}"#,
            "Field required; x",
            None,
            None,
        );
        check(r#"{"message":"m","type":"Internal Server Error","code":500}"#, "m", Some(Number(500)), {
            Some("Internal Server Error")
        });
        check(r#"{"message":"m","type":"invalid_request_error","code":null}"#, "m", None, {
            Some("invalid_request_error")
        });
        check(r#"{"type":"error","error":{"type":"overloaded_error","message":"O"}}"#, "O", None, {
            Some("overloaded_error")
        });
        check(r#"{"error":{"reason":"x"}}"#, r#"{"reason":"x"}"#, None, None);
        check(r#"{"error":{"message":"m"},"choices":[]}"#, "m", None, None);
    }

    #[test]
    fn what_is_no_error_is_none() {
        for json in [
            r#"{}"#,
            r#"{"error":null,"choices":[]}"#,
            r#"{"error":""}"#,
            r#"{"error":{}}"#,
            r#"{"error":false}"#,
            r#"{"error":0}"#,
            r#"{"message":"loading","type":"status"}"#,
            r#"{"code":200,"message":"success"}"#,
            r#"{"code":0,"message":"ok"}"#,
            r#"{"type":"message_start","message":{"id":"m"}}"#,
            r#"{"detail":"high","choices":[]}"#,
            r#"{"message":"m","code":500,"choices":[]}"#,
        ] {
            assert_eq!(found(json), None, "{json}");
        }
    }

    #[test]
    fn an_error_event_is_an_error_whatever_it_holds() {
        let message = |data: &str| {
            let value = serde_json::from_str(data).ok();
            ServerError::in_error_event(data.as_bytes(), value.as_ref()).message
        };
        assert_eq!(message("upstream timed out"), "upstream timed out");
        assert_eq!(message(r#""quoted""#), "quoted");
        assert_eq!(message(r#"{"message":"m"}"#), "m");
        assert_eq!(message(r#"{"error":{"message":"in"},"message":"out"}"#), "in");
        assert_eq!(message(r#"{"a":1}"#), r#"{"a":1}"#);
        assert_eq!(message(""), "an error event without data");
    }

    #[test]
    fn texts_are_bounded_on_a_character() {
        let long = "é".repeat(MAX_MESSAGE_CHARS + 5);
        let error = ServerError::of_message(&long);
        assert_eq!(error.message.chars().count(), MAX_MESSAGE_CHARS);
        check(
            &format!(r#"{{"error":{{"message":"m","type":"{}"}}}}"#, "t".repeat(500)),
            "m",
            None,
            Some(&"t".repeat(MAX_IDENTIFIER_CHARS)),
        );
    }
}
