//! JSON texts with every freedom that the grammar leaves.

use proptest::prelude::*;
use proptest::sample::select;

#[derive(Debug, Clone)]
pub(crate) enum Json {
    /// A literal or a number, or something that only looks like one.
    Token(String),
    /// The body of a string, as it stands between the quotes.
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// How much white space stands between tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spacing {
    None,
    Python,
    Wild,
}

impl Json {
    pub(crate) fn render(&self, spacing: Spacing) -> String {
        let mut out = String::new();
        self.write(&mut out, spacing);
        out
    }

    fn write(&self, out: &mut String, spacing: Spacing) {
        let wild = |out: &mut String| {
            if let Spacing::Wild = spacing {
                let spaces = [" ", "", "\n", "\t", "", "\r\n  "];
                out.push_str(spaces[(out.len() * 7 + 3) % spaces.len()]);
            }
        };
        let after = |out: &mut String| match spacing {
            Spacing::Python => out.push(' '),
            _ => wild(out),
        };
        match self {
            Self::Token(token) => out.push_str(token),
            Self::Text(body) => {
                out.push('"');
                out.push_str(body);
                out.push('"');
            }
            Self::Array(items) => {
                out.push('[');
                wild(out);
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                        after(out);
                    }
                    item.write(out, spacing);
                    wild(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                wild(out);
                for (i, (key, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                        after(out);
                    }
                    out.push('"');
                    out.push_str(key);
                    out.push('"');
                    wild(out);
                    out.push(':');
                    after(out);
                    value.write(out, spacing);
                    wild(out);
                }
                out.push('}');
            }
        }
    }
}

pub(crate) fn spacing() -> impl Strategy<Value = Spacing> {
    prop_oneof![4 => Just(Spacing::None), 2 => Just(Spacing::Python), 2 => Just(Spacing::Wild)]
}

pub(crate) fn body() -> impl Strategy<Value = String> {
    let pieces = select(vec![
        "",
        "a",
        " ",
        "The river",
        "é",
        "😀",
        "漢字",
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\u0041",
        "\\ud83d\\ude00",
        "\\ud83d",
        "\\ude00",
        "\\u0000",
        "\u{7f}",
        "[DONE]",
        "{\\\"choices\\\":",
        "'",
        "0123456789abcdef",
    ]);
    prop_oneof![
        2 => Just(String::new()),
        8 => prop::collection::vec(pieces, 1..5).prop_map(|p| p.concat()),
        1 => "[ !#-\\[\\]-~é😀]{0,40}",
    ]
}

pub(crate) fn number() -> impl Strategy<Value = String> {
    let odd = select(vec![
        "0",
        "-0",
        "-1",
        "1.5",
        "1e3",
        "1E-2",
        "0.0",
        "18446744073709551615",
        "18446744073709551616",
        "123456789012345678901234567890",
        "1e400",
        "-1e400",
        "4294967295",
        "4294967296",
        "9999999999999999999",
    ]);
    prop_oneof![60 => (0_u64..5000).prop_map(|n| n.to_string()), 2 => odd.prop_map(str::to_owned)]
}

pub(crate) fn scalar() -> impl Strategy<Value = Json> {
    let literals = select(vec!["null", "true", "false", "NaN", "Infinity", "-Infinity"]);
    prop_oneof![
        4 => Just(Json::Token("null".into())),
        2 => literals.prop_map(|t| Json::Token(t.into())),
        3 => number().prop_map(Json::Token),
        1 => "-?[0-9]{1,3}(\\.[0-9]{1,2})?([eE][+-]?[0-9]{1,3})?".prop_map(Json::Token),
        3 => body().prop_map(Json::Text),
    ]
}

pub(crate) fn any_json() -> impl Strategy<Value = Json> {
    scalar().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::vec((any_key(), inner), 0..4).prop_map(Json::Object),
        ]
    })
}

/// Every word that some reader of some shape looks for, and a few that nobody does.
pub(crate) fn any_key() -> impl Strategy<Value = String> {
    select(vec![
        "choices",
        "usage",
        "object",
        "error",
        "detail",
        "message",
        "x_groq",
        "timings",
        "id",
        "created",
        "model",
        "index",
        "delta",
        "finish_reason",
        "text",
        "content",
        "role",
        "reasoning_content",
        "reasoning",
        "refusal",
        "tool_calls",
        "function_call",
        "function",
        "custom",
        "name",
        "arguments",
        "input",
        "type",
        "code",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "prompt_n",
        "cache_n",
        "predicted_n",
        "logprobs",
        "prompt_tokens_details",
        "completion_tokens_details",
        "cached_tokens",
        "reasoning_tokens",
        "thinking",
        "prompt_cache_hit_tokens",
        "token_ids",
        "service_tier",
        "obfuscation",
        "x",
        "",
        "cont\\u0065nt",
        "é",
        "contents",
        "choice",
        "error_type",
        "stop_reason",
    ])
    .prop_map(str::to_owned)
}

/// A member that is there sometimes, now and then with something wrong in it, now and then twice.
pub(crate) fn member(
    key: &'static str,
    often: u32,
    value: impl Strategy<Value = Json> + 'static,
) -> BoxedStrategy<Vec<(String, Json)>> {
    let value = prop_oneof![120 => value, 8 => Just(Json::Token("null".into())), 1 => any_json()].boxed();
    let one = value.clone().prop_map(move |v| vec![(key.to_owned(), v)]);
    let two = (value.clone(), value).prop_map(move |(a, b)| vec![(key.to_owned(), a), (key.to_owned(), b)]);
    prop_oneof![200 => Just(Vec::new()), 20 * often => one, 1 => two].boxed()
}

/// An object of some of the members in any order.
pub(crate) fn object(members: Vec<BoxedStrategy<Vec<(String, Json)>>>) -> BoxedStrategy<Json> {
    let junk = prop_oneof![
        40 => Just(Vec::new()),
        1 => (any_key(), any_json()).prop_map(|member| vec![member]),
    ];
    (members, junk)
        .prop_map(|(groups, junk)| groups.into_iter().flatten().chain(junk).collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(Json::Object)
        .boxed()
}

pub(crate) fn text() -> BoxedStrategy<Json> {
    body().prop_map(Json::Text).boxed()
}

pub(crate) fn count() -> BoxedStrategy<Json> {
    number().prop_map(Json::Token).boxed()
}
