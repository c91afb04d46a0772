//! What is not shown of a run's own settings: values whose names look like credentials, in a query and in a body.

use serde_json::Value;

/// Parts of parameter names whose values are credentials on some gateway (`api-key`, `access_token`, `sig`, …).
const CREDENTIAL_WORDS: [&str; 8] = ["key", "token", "secret", "sig", "pass", "auth", "cred", "code"];
const MASK: &str = "***";

/// A request path whose query shows no credentials.
#[must_use]
pub fn path(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let mask = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_credential(name) => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    };
    format!("{path}?{}", query.split('&').map(mask).collect::<Vec<_>>().join("&"))
}

fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CREDENTIAL_WORDS.iter().any(|word| name.contains(word))
}

/// A member of the user's as documents show it. Its text was JSON when the run was resolved.
#[must_use]
pub fn member(name: &str, value: &str) -> Value {
    let mut value = serde_json::from_str(value).unwrap_or_default();
    mask_texts(&mut value, is_credential(name));
    value
}

/// Masks texts at and below a name that looks like a credential's; numbers are none, and `max_tokens` is a number.
fn mask_texts(value: &mut Value, secret: bool) {
    match value {
        Value::String(text) if secret => MASK.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_texts(item, secret)),
        Value::Object(members) => {
            members.iter_mut().for_each(|(name, value)| mask_texts(value, secret || is_credential(name)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_query_shows_no_credentials() {
        for (path, shown) in [
            ("/v1/chat/completions", "/v1/chat/completions"),
            ("/chat?api-version=2024-10-21", "/chat?api-version=2024-10-21"),
            ("/chat?api-version=1&API-Key=abc&x", "/chat?api-version=1&API-Key=***&x"),
            ("/chat?access_token=abc", "/chat?access_token=***"),
            ("/chat?key=", "/chat?key="),
            ("/chat?sig=a%3D=b&v=2", "/chat?sig=***&v=2"),
        ] {
            assert_eq!(super::path(path), shown);
        }
    }

    #[test]
    fn texts_below_a_credentials_name_are_masked_and_numbers_are_not() {
        assert_eq!(member("user", r#""u""#), json!("u"));
        assert_eq!(member("api_key", r#""u""#), json!(MASK));
        let shown = member("x", r#"{"auth": {"a": ["b", 1]}, "min_tokens": 5, "b": "c"}"#);
        assert_eq!(shown, json!({"auth": {"a": [MASK, 1]}, "min_tokens": 5, "b": "c"}));
    }
}
