//! What is not shown of a run's own settings: its secrets, wherever they were typed a second time, and values whose names
//! look like credentials, in a query and in a body.

use std::path::PathBuf;

use serde_json::Value;

use super::spec::{BodySpec, LabelSpec, OutputSpec, PlainSpec, RunSpec, SimSpec, TargetSpec};
use crate::record::mask::{self, Mask, NAMED_MASK, is_credential};

/// What a server's words are searched for: the run's key and the values of all its header fields. Which of these are
/// secret is the user's business, and a server has no reason to repeat any.
#[must_use]
pub fn secrets(target: &TargetSpec) -> Mask {
    mask_of(target, |_, _| true)
}

/// What the user's own settings are searched for: the run's key, and the values of header fields that are credentials by
/// their name or their scheme. The value of another field may well be a model's name or a host, which is no secret.
#[must_use]
pub fn typed_secrets(target: &TargetSpec) -> Mask {
    // RFC 7235 section 2.1: a scheme, a space, the credentials.
    let scheme = |value: &str| {
        let name = value.split(' ').next().unwrap_or_default();
        ["bearer", "basic", "digest"].iter().any(|scheme| name.eq_ignore_ascii_case(scheme))
    };
    mask_of(target, |name, value| is_credential(name) || scheme(value))
}

fn mask_of(target: &TargetSpec, counts: impl Fn(&str, &str) -> bool) -> Mask {
    let key = target.api_key.iter().map(|key| key.reveal().to_owned());
    let fields = target.headers.iter().map(|(name, value)| (name.as_str(), value.reveal()));
    // Of `Bearer KEY` the key alone must not be shown either.
    let values = fields
        .filter(|(name, value)| counts(name, value))
        .flat_map(|(_, value)| [Some(value), value.split_whitespace().last()]);
    Mask::new(key.chain(values.flatten().map(str::to_owned)))
}

/// A run as it may be shown and stored. Every struct that holds texts of the user's is written out in full, so that a new
/// field does not compile before it was thought of here.
#[must_use]
pub fn shown(spec: &RunSpec) -> RunSpec {
    let mask = typed_secrets(&spec.target);
    let RunSpec { target, load, prompt, body, connection, instrument, output, labels, dry_run } =
        spec.clone();
    RunSpec {
        target: shown_target(target, &mask),
        load,
        prompt,
        body: shown_body(body, &mask),
        connection,
        instrument,
        output: shown_output(output, &mask),
        labels: shown_labels(labels, &mask),
        dry_run,
    }
}

fn shown_target(target: TargetSpec, mask: &Mask) -> TargetSpec {
    let TargetSpec {
        endpoint,
        plain,
        base_url,
        host,
        port,
        path,
        models_path,
        sim,
        model,
        api_key,
        headers,
        request_id_header,
    } = target;
    let masked_path = |path: String| self::path(&masked(path, mask));
    TargetSpec {
        endpoint,
        plain: plain.map(|PlainSpec { method, body, body_file }| PlainSpec {
            method,
            body,
            body_file: body_file.map(|file| file_name(file, mask)),
        }),
        base_url: masked(base_url, mask),
        host: masked(host, mask),
        port,
        path: masked_path(path),
        models_path: models_path.map(masked_path),
        sim: sim.map(|SimSpec { settings }| SimSpec { settings: texts(settings, mask) }),
        model: model.map(|model| masked(model, mask)),
        api_key,
        headers: headers.into_iter().map(|(name, value)| (masked(name, mask), value)).collect(),
        request_id_header,
    }
}

fn shown_body(body: BodySpec, mask: &Mask) -> BodySpec {
    let extra = body.extra.into_iter().map(|(name, value)| {
        let value = member(&name, &value, mask).to_string();
        (masked(name, mask), value)
    });
    BodySpec {
        extra: extra.collect(),
        reasoning_effort: body.reasoning_effort.map(|effort| masked(effort, mask)),
        ..body
    }
}

fn shown_output(output: OutputSpec, mask: &Mask) -> OutputSpec {
    let OutputSpec { dir, json_out, overwrite, quiet, progress, format } = output;
    let (dir, json_out) = (dir.map(|p| file_name(p, mask)), json_out.map(|p| file_name(p, mask)));
    OutputSpec { dir, json_out, overwrite, quiet, progress, format }
}

fn shown_labels(labels: LabelSpec, mask: &Mask) -> LabelSpec {
    let text = |text: Option<String>| text.map(|text| masked(text, mask));
    let LabelSpec {
        engine,
        gpu,
        tier,
        manifest,
        source_recipe,
        clock_domain_id,
        configuration_fingerprint,
        labels,
    } = labels;
    LabelSpec {
        engine: text(engine),
        gpu: text(gpu),
        tier: text(tier),
        manifest: text(manifest),
        source_recipe: text(source_recipe),
        clock_domain_id: text(clock_domain_id),
        configuration_fingerprint: text(configuration_fingerprint),
        labels: texts(labels, mask),
    }
}

fn texts(pairs: Vec<(String, String)>, mask: &Mask) -> Vec<(String, String)> {
    pairs.into_iter().map(|(name, value)| (masked(name, mask), masked(value, mask))).collect()
}

/// A text of the user's without the secrets.
#[must_use]
pub fn masked(mut text: String, mask: &Mask) -> String {
    mask.whole(&mut text);
    text
}

/// The name of a file without the secrets; one that is no UTF-8 holds none, because a key is.
fn file_name(path: PathBuf, mask: &Mask) -> PathBuf {
    match path.into_os_string().into_string() {
        Ok(text) => masked(text, mask).into(),
        Err(other) => other.into(),
    }
}

/// A request path whose query shows no credentials.
#[must_use]
pub fn path(path: &str) -> String {
    mask::query(path)
}

/// A member of the user's as it is shown. Its text was JSON when the run was resolved.
fn member(name: &str, value: &str, mask: &Mask) -> Value {
    let value = serde_json::from_str(value).unwrap_or_default();
    mask_texts(value, is_credential(name), mask)
}

/// Masks texts at and below a name that looks like a credential's, and the secrets everywhere. Other numbers are none:
/// `max_tokens` is a number.
fn mask_texts(value: Value, secret: bool, mask: &Mask) -> Value {
    match value {
        Value::String(_) if secret => Value::String(NAMED_MASK.to_owned()),
        Value::String(text) => Value::String(masked(text, mask)),
        Value::Number(number) => {
            let text = masked(number.to_string(), mask);
            if text == number.to_string() { Value::Number(number) } else { Value::String(text) }
        }
        Value::Array(items) => items.into_iter().map(|item| mask_texts(item, secret, mask)).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| {
                let value = mask_texts(value, secret || is_credential(&name), mask);
                (masked(name, mask), value)
            });
            Value::Object(members.collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::spec::{Endpoint, Secret};

    #[test]
    fn texts_below_a_credentials_name_are_masked_and_numbers_are_not() {
        let member = |name, value| super::member(name, value, &Mask::default());
        assert_eq!(member("user", r#""u""#), json!("u"));
        assert_eq!(member("api_key", r#""u""#), json!(NAMED_MASK));
        let shown = member("x", r#"{"auth": {"a": ["b", 1]}, "min_tokens": 5, "b": "c"}"#);
        assert_eq!(shown, json!({"auth": {"a": [NAMED_MASK, 1]}, "min_tokens": 5, "b": "c"}));
    }

    #[test]
    fn only_fields_that_authenticate_are_secrets_in_what_was_typed() {
        let field = |name: &str, value: &str| (name.to_owned(), Secret::new(value.to_owned()));
        let target = TargetSpec {
            endpoint: Endpoint::Chat,
            plain: None,
            base_url: String::new(),
            host: String::new(),
            port: 0,
            path: String::new(),
            models_path: None,
            sim: None,
            model: None,
            api_key: Some(Secret::new("sk-0123456789".to_owned())),
            headers: vec![
                field("X-Model", "llama-3.1-8b-instruct"),
                field("X-Team-Token", "team-secret-42"),
                field("Proxy", "Basic dXNlcjpwYXNz"),
            ],
            request_id_header: true,
        };
        let text = "llama-3.1-8b-instruct llama-3.1-8b sk-0123456789 team-secret-42 dXNlcjpwYXNz";
        let typed = masked(text.to_owned(), &typed_secrets(&target));
        assert_eq!(typed, "llama-3.1-8b-instruct llama-3.1-8b [masked] [masked] [masked]");
        let mut said = format!("{text} llama-3.1-8b");
        secrets(&target).text(&mut said);
        assert_eq!(said, "[masked] llama-3.1-8b [masked] [masked] [masked] [masked]");
    }

    #[test]
    fn the_secrets_are_masked_in_a_body_whatever_holds_them() {
        let mask = Mask::new(["123456".to_owned()]);
        let member = |value| super::member("x", value, &mask);
        assert_eq!(
            member(r#"{"a123456": ["is 123456", 123456, 12345, true]}"#),
            json!({
                "a[masked]": ["is [masked]", "[masked]", 12345, true]
            })
        );
        // Another spelling of the same text.
        assert_eq!(member(r#""\u0031\u00323456""#), json!("[masked]"));
    }
}
