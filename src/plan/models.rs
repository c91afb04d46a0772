//! Reading a server's list of models: which ones there are, and how long their context is.
//!
//! Servers spell the length in three ways, and some do not say it; whatever cannot be read is simply unknown, as in
//! the reference's own look-up, because the list is a convenience and not part of the measurement. This room does not
//! fetch the list: it gets the bytes of the answer's body.

use serde_json::Value;

use crate::config::usage::UsageError;

/// The spellings of the context length, in the order they are tried: vLLM and SGLang say the first, gateways the
/// others.
const LENGTH_FIELDS: [&str; 3] = ["max_model_len", "max_context_length", "context_length"];

/// Names listed in a message; a gateway may list thousands.
const MAX_NAMES_SHOWN: usize = 5;

/// Characters shown of one name: the server chose it.
const MAX_NAME_SHOWN: usize = 80;

/// A list of models, in the server's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelList {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    id: Option<String>,
    length: Option<u64>,
}

impl ModelList {
    /// Reads the body of `GET <base>/models`; `None` when it is no list of objects.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(body).ok()?;
        let data = document.get("data")?.as_array()?;
        let entries = data.iter().map(Entry::read).collect::<Option<_>>()?;
        Some(Self { entries })
    }

    /// Names, in order; entries without one are left out.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| entry.id.as_deref())
    }

    /// The context length of `model`, or of the first entry when the server does not list that name (an alias, a
    /// gateway); `None` when that entry does not say.
    #[must_use]
    pub fn max_model_len(&self, model: &str) -> Option<u64> {
        let named = self.entries.iter().find(|entry| entry.id.as_deref() == Some(model));
        named.or_else(|| self.entries.first())?.length
    }

    /// The one model that is listed.
    ///
    /// # Errors
    /// [`UsageError`] naming `--model`, with the first names, when there are several, or none.
    pub fn only_model(&self) -> Result<&str, UsageError> {
        let mut ids: Vec<&str> = self.ids().collect();
        ids.dedup();
        match ids.as_slice() {
            [] => Err(UsageError::missing("--model", "the server's list names no model")),
            [one] => Ok(one),
            [..] => {
                let shown: Vec<String> = ids.iter().take(MAX_NAMES_SHOWN).map(|id| presentable(id)).collect();
                let more = if ids.len() > MAX_NAMES_SHOWN { ", …" } else { "" };
                let reason = format!("the server lists {}: {}{more}", ids.len(), shown.join(", "));
                Err(UsageError::missing("--model", reason))
            }
        }
    }
}

/// The error for a server whose list could not be had: where it was asked for, and what came instead (after "there was").
#[must_use]
pub fn no_list(url: &str, came: &str) -> UsageError {
    UsageError::missing("--model", format!("{url} was asked for it, and there was {came}; give --model"))
}

impl Entry {
    fn read(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let id = object.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned);
        let length =
            LENGTH_FIELDS.iter().filter_map(|field| object.get(*field)?.as_u64()).find(|length| *length > 0);
        Some(Self { id, length })
    }
}

/// A name without control characters and of bounded length.
fn presentable(name: &str) -> String {
    let cut: String = name.chars().take(MAX_NAME_SHOWN).collect();
    let cut = cut.escape_debug().to_string();
    if name.chars().nth(MAX_NAME_SHOWN).is_some() { cut + "…" } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(body: &str) -> ModelList {
        ModelList::parse(body.as_bytes()).unwrap()
    }

    #[test]
    fn the_length_is_the_named_models_or_the_first_ones() {
        let two = list(
            r#"{"object": "list", "data": [{"id": "a", "max_model_len": 4096}, {"id": "b", "context_length": 8192}]}"#,
        );
        assert_eq!(two.max_model_len("a"), Some(4_096));
        assert_eq!(two.max_model_len("b"), Some(8_192));
        assert_eq!(two.max_model_len("c"), Some(4_096));
        assert_eq!(two.ids().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn the_first_positive_integer_of_the_three_spellings_counts() {
        for (fields, want) in [
            (r#""max_model_len": 0, "max_context_length": 7, "context_length": 9"#, Some(7)),
            (r#""max_model_len": null, "context_length": 9"#, Some(9)),
            (r#""max_model_len": -5"#, None),
            (r#""max_model_len": 1.5, "max_context_length": "8192""#, None),
            (r#""max_model_len": true"#, None),
            (r#""max_model_len": 1e999"#, None),
            (r#""other": 1"#, None),
        ] {
            let body = format!(r#"{{"data": [{{"id": "m", {fields}}}]}}"#);
            let found = ModelList::parse(body.as_bytes()).and_then(|l| l.max_model_len("m"));
            assert_eq!(found, want, "{fields}");
        }
        assert_eq!(list(r#"{"data": []}"#).max_model_len("m"), None);
    }

    #[test]
    fn what_is_no_list_is_unknown() {
        for body in
            ["", "{", "[]", "null", r#"{"data": {}}"#, r#"{"data": [1]}"#, r#"{"models": []}"#, "\u{0}"]
        {
            assert_eq!(ModelList::parse(body.as_bytes()), None, "{body}");
        }
        let deep = format!("{}{}", r#"{"data": "#.repeat(100_000), "1");
        assert_eq!(ModelList::parse(deep.as_bytes()), None);
    }

    #[test]
    fn a_missing_model_name_needs_exactly_one_in_the_list() {
        assert_eq!(list(r#"{"data": [{"id": "m"}]}"#).only_model(), Ok("m"));
        assert_eq!(list(r#"{"data": [{"id": "m"}, {"object": "model"}]}"#).only_model(), Ok("m"));
        let none = list(r#"{"data": []}"#).only_model().unwrap_err().to_string();
        assert_eq!(none, "--model is missing: the server's list names no model");
        let seven: Vec<String> = (0..7).map(|i| format!(r#"{{"id": "m{i}"}}"#)).collect();
        let body = format!(r#"{{"data": [{}]}}"#, seven.join(","));
        let error = list(&body).only_model().unwrap_err().to_string();
        assert_eq!(error, "--model is missing: the server lists 7: m0, m1, m2, m3, m4, …");
    }

    #[test]
    fn a_servers_names_cannot_write_to_the_terminal() {
        let body = format!(r#"{{"data": [{{"id": "\u001b[2J"}}, {{"id": "{}"}}]}}"#, "x".repeat(1_000));
        let error = list(&body).only_model().unwrap_err().to_string();
        assert!(!error.contains('\u{1b}') && error.len() < 300, "{error}");
    }
}
