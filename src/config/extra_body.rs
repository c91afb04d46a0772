//! `--extra-body`: members that are added to every body as they were typed. What would make the run measure something
//! else than its documents say is refused: the prompt, the model, the stream, the output limit.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::args::RunArgs;
use super::spec::Endpoint;
use super::usage::UsageError;

const FLAG: &str = "--extra-body";

/// The members, in their order: name, and value in JSON as it was typed.
pub(super) fn extra_body(args: &RunArgs, endpoint: Endpoint) -> Result<Vec<(String, String)>, UsageError> {
    let Some(text) = &args.request.extra_body else { return Ok(Vec::new()) };
    let members = members(text)?;
    for (at, (name, _)) in members.iter().enumerate() {
        if members.iter().take(at).any(|(earlier, _)| earlier == name) {
            return Err(UsageError::bad(FLAG, format!("sets {name:?} twice")));
        }
        if let Some(instead) = reserved(endpoint, name) {
            return Err(UsageError::bad(FLAG, format!("must not set {name:?}: {instead}")));
        }
        if let Some(flag) = set_by_flag(args, endpoint, name) {
            return Err(UsageError::clash(FLAG, flag, format!("both set {name:?}")));
        }
    }
    Ok(members)
}

/// Why a member is not the user's to set; `None` for one that is.
fn reserved(endpoint: Endpoint, name: &str) -> Option<&'static str> {
    let prompt = match endpoint {
        Endpoint::Chat | Endpoint::Messages => "messages",
        Endpoint::Completions => "prompt",
        Endpoint::Responses | Endpoint::Embeddings | Endpoint::Http => "input",
    };
    let limits: &[&str] = match endpoint {
        Endpoint::Chat => &["max_tokens", "max_completion_tokens"],
        Endpoint::Completions | Endpoint::Messages => &["max_tokens"],
        Endpoint::Responses => &["max_output_tokens"],
        Endpoint::Embeddings | Endpoint::Http => &[],
    };
    match name {
        "model" => Some("use --model"),
        "stream" => Some("use --stream or --no-stream"),
        _ if name == prompt => Some("it holds the prompt"),
        _ if limits.contains(&name) => Some("use --max-tokens"),
        _ => None,
    }
}

/// The flag that was given for the same member.
fn set_by_flag(args: &RunArgs, endpoint: Endpoint, name: &str) -> Option<&'static str> {
    let thinking = if args.no_thinking { "--no-thinking" } else { "--thinking-mode" };
    let thinking_given = args.no_thinking || args.thinking_mode.is_some();
    let table = [
        ("temperature", "--temperature", args.temperature.is_some()),
        ("top_p", "--top-p", args.top_p.is_some()),
        ("chat_template_kwargs", thinking, thinking_given && endpoint == Endpoint::Chat),
        ("thinking", thinking, thinking_given && endpoint == Endpoint::Messages),
        ("reasoning_effort", "--reasoning-effort", args.reasoning_effort.is_some()),
        ("reasoning", "--reasoning-effort", args.reasoning_effort.is_some()),
        ("ignore_eos", "--ignore-eos", args.request.ignore_eos),
        ("stream_options", "--continuous-usage", args.request.continuous_usage),
    ];
    table.into_iter().find(|(member, _, given)| *given && *member == name).map(|(_, flag, _)| flag)
}

fn members(text: &str) -> Result<Vec<(String, String)>, UsageError> {
    // Read whole first: that also refuses what no document could show, such as numbers beyond a double.
    match serde_json::from_str(text) {
        Ok(Value::Object(_)) => {}
        Ok(_) => return Err(UsageError::bad(FLAG, "must be a JSON object")),
        Err(error) => return Err(UsageError::bad(FLAG, format!("is no JSON: {error}"))),
    }
    let mut parser = serde_json::Deserializer::from_str(text);
    let Members(members) = Members::deserialize(&mut parser)
        .map_err(|error| UsageError::bad(FLAG, format!("is no JSON: {error}")))?;
    Ok(members)
}

/// An object's members in their order, each value as it was typed.
struct Members(Vec<(String, String)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collector;
        impl<'de> Visitor<'de> for Collector {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.push((name, value.get().to_owned()));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collector)
    }
}
