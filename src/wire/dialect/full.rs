//! The full parse behind the byte scan: slow, allocating, and right for everything that JSON allows.
//!
//! What servers really send goes a little beyond JSON, and losing a token event to it would be a measuring error:
//! `NaN` and `Infinity` (Python's `json.dumps`), bytes that are not UTF-8 (byte-level tokenizers), half surrogate
//! pairs (an emoji cut over two events by a server that escapes everything), and numbers beyond a double, which
//! are JSON but not a `f64`. A text that the strict parser refuses is mended in exactly these places and parsed
//! again; everything else that is refused is not JSON.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::text::{hex4, join_halves};

/// What is nested deeper is checked and then left out, so that no input can exhaust the stack: the strict parser's own
/// bound, which its recursion stays below. Nothing that is looked at stands so deep: the deepest event of the recorded
/// engines and transcripts has 9 levels.
pub const MAX_DEPTH: usize = 127;

/// A parsed event.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The value; duplicate keys: the last one wins. Objects and arrays deeper than [`MAX_DEPTH`] are null.
    pub value: Value,
    /// `NaN` or `Infinity` stood where a number should; they are null in the value.
    pub not_a_number: bool,
    /// There were bytes that are not UTF-8; they are U+FFFD in the value.
    pub invalid_utf8: bool,
}

/// Why a text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotJson {
    /// The parser's words.
    pub reason: String,
    /// There were bytes that are not UTF-8.
    pub invalid_utf8: bool,
    /// The text ends in the middle of a value.
    pub ends_early: bool,
}

impl NotJson {
    fn because(error: &serde_json::Error, invalid_utf8: bool) -> Self {
        Self { reason: error.to_string(), invalid_utf8, ends_early: error.is_eof() }
    }
}

/// Parses one JSON text.
///
/// # Errors
/// When the text is not JSON even with the tolerance described above.
pub fn parse(data: &[u8]) -> Result<Parsed, NotJson> {
    if let Ok(value) = serde_json::from_slice(data) {
        return Ok(Parsed { value, not_a_number: false, invalid_utf8: false });
    }
    let text = String::from_utf8_lossy(data);
    let invalid_utf8 = matches!(text, Cow::Owned(_));
    let mended = mend(&text);
    match parse_any_depth(mended.text.as_deref().unwrap_or(&text)) {
        Ok(value) => Ok(Parsed { value, not_a_number: mended.not_a_number, invalid_utf8 }),
        Err(error) => Err(NotJson::because(&error, invalid_utf8)),
    }
}

/// Parses a text without what is too deep in it, which is JSON too: the strict parser checks what it ignores without
/// recursion.
fn parse_any_depth(text: &str) -> serde_json::Result<Value> {
    let Some(pruned) = prune(text) else { return serde_json::from_str(text) };
    serde_json::from_str::<IgnoredAny>(text)?;
    serde_json::from_str(&pruned)
}

/// A text with null for every object and array deeper than [`MAX_DEPTH`]; `None` when there is none. Only brackets and
/// strings are looked at, so what comes of a text that is not JSON means nothing.
fn prune(text: &str) -> Option<String> {
    let mut out = String::new();
    let (mut copied, mut depth) = (0, 0_usize);
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' | b'[' => {
                depth += 1;
                if depth == MAX_DEPTH + 1 {
                    out.push_str(text.get(copied..at)?);
                    out.push_str("null");
                    copied = text.len();
                }
            }
            b'}' | b']' => {
                if depth == MAX_DEPTH + 1 {
                    copied = at + 1;
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
    }
    if out.is_empty() {
        return None;
    }
    out.push_str(text.get(copied..)?);
    Some(out)
}

/// Goes past the rest of a string.
fn skip_string(bytes: &mut impl Iterator<Item = (usize, u8)>) {
    while let Some((_, byte)) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// A text with the tolerated places replaced by what they mean.
#[derive(Debug, Default)]
struct Mended {
    /// `None` when there was nothing to mend.
    text: Option<String>,
    not_a_number: bool,
}

/// Replaces what the strict parser refuses and we do not. Only the lexical level is looked at: a text that is not
/// JSON otherwise stays so.
fn mend(text: &str) -> Mended {
    let mut out = String::with_capacity(text.len());
    let mut mended = Mended::default();
    let mut changed = false;
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let (token, replacement) = match first {
            b'"' => string_token(rest),
            b'-' | b'0'..=b'9' | b'N' | b'I' => number_token(rest),
            _ => (rest.chars().next().map_or("", |c| rest.get(..c.len_utf8()).unwrap_or("")), None),
        };
        changed |= replacement.is_some();
        mended.not_a_number |= replacement.as_deref() == Some(NOT_A_NUMBER);
        out.push_str(replacement.as_deref().unwrap_or(token));
        rest = rest.get(token.len().max(1)..).unwrap_or("");
    }
    mended.text = changed.then_some(out);
    mended
}

/// What `NaN` and the infinities become.
const NOT_A_NUMBER: &str = "null";

/// A number at the start of `text`, and its replacement if it needs one.
fn number_token(text: &str) -> (&str, Option<Cow<'static, str>>) {
    /// A finite stand-in for a number whose value nobody reads.
    const HUGE: &str = "1e308";

    for name in ["NaN", "Infinity", "-Infinity"] {
        if let Some(token) = text.get(..name.len()).filter(|token| *token == name) {
            return (token, Some(Cow::Borrowed(NOT_A_NUMBER)));
        }
    }
    let end = text
        .bytes()
        .position(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
        .unwrap_or(text.len());
    let token = text.get(..end.max(1)).unwrap_or("");
    let huge = is_json_number(token) && token.parse::<f64>().is_ok_and(f64::is_infinite);
    (token, huge.then_some(Cow::Borrowed(HUGE)))
}

/// RFC 8259 section 6: `[ minus ] int [ frac ] [ exp ]`. Rust's own parser takes more (`1.`, `01`).
fn is_json_number(token: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let token = token.strip_prefix('-').unwrap_or(token);
    let (mantissa, exponent) = match token.find(['e', 'E']) {
        Some(at) => (token.get(..at).unwrap_or(""), token.get(at + 1..)),
        None => (token, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole.len() == 1 || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

/// The string at the start of `text` (up to its end, or the end of the text), and the same with halves of
/// surrogate pairs replaced, if it has any.
fn string_token(text: &str) -> (&str, Option<Cow<'static, str>>) {
    let bytes = text.as_bytes();
    let mut mended: Option<String> = None;
    let mut copied = 0;
    let mut at = 1;
    loop {
        match bytes.get(at) {
            None => return (text, mended.map(Cow::Owned)),
            Some(b'"') => {
                let token = text.get(..=at).unwrap_or(text);
                let tail = text.get(copied..=at).unwrap_or("");
                return (token, mended.map(|m| Cow::Owned(m + tail)));
            }
            Some(b'\\') => {
                let escape = escape_kind(bytes.get(at + 1..).unwrap_or_default());
                if escape == Escape::Half {
                    let head = text.get(copied..at).unwrap_or("");
                    let mended = mended.get_or_insert_default();
                    mended.push_str(head);
                    mended.push_str("\\ufffd");
                    copied = at + 6;
                }
                at += escape.bytes();
            }
            Some(_) => at += 1,
        }
    }
}

/// What stands behind a backslash.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Escape {
    /// One character, or something that the strict parser will refuse.
    Simple,
    /// `\uXXXX`, a character of its own.
    Unit,
    /// Two units that make a character.
    Pair,
    /// One unit of a pair without the other.
    Half,
}

impl Escape {
    /// Its length with the backslash.
    const fn bytes(self) -> usize {
        match self {
            Self::Simple => 2,
            Self::Unit | Self::Half => 6,
            Self::Pair => 12,
        }
    }
}

fn escape_kind(after_backslash: &[u8]) -> Escape {
    let Some((unit, rest)) = after_backslash.strip_prefix(b"u").and_then(hex4) else {
        return Escape::Simple;
    };
    if char::from_u32(u32::from(unit)).is_some() {
        return Escape::Unit;
    }
    let low = rest.strip_prefix(b"\\u").and_then(hex4).map(|(low, _)| low);
    if low.is_some_and(|low| join_halves(unit, low).is_some()) { Escape::Pair } else { Escape::Half }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &[u8]) -> Value {
        parse(text).unwrap().value
    }

    #[test]
    fn what_python_writes_for_no_number_is_null_and_flagged() {
        let parsed = parse(br#"{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN"}"#).unwrap();
        assert_eq!(parsed.value, json!({"a": null, "b": [null, null], "c": "NaN"}));
        assert!(parsed.not_a_number && !parsed.invalid_utf8);
        assert!(parse(b"[NaN1]").is_err() && parse(b"[nan]").is_err() && parse(b"[-NaN]").is_err());
    }

    #[test]
    fn halves_of_pairs_become_replacement_characters_and_pairs_stay() {
        assert_eq!(
            value(br#"["\ud83d","\ude00x\ud83d\ude00","\ud83d\ud83d\ude00","\ud83d\u0041"]"#),
            json!(["\u{fffd}", "\u{fffd}x😀", "\u{fffd}😀", "\u{fffd}A"])
        );
        assert_eq!(value(br#"{"\ud83d":"\\ud83d"}"#), json!({"\u{fffd}": "\\ud83d"}));
    }

    #[test]
    fn numbers_beyond_a_double_are_json() {
        assert!(value(b"[1e400,-1e999,123456789012345678901234567890,0e99999]").is_array());
        assert!(parse(b"[01e400]").is_err() && parse(b"[1.e400]").is_err() && parse(b"[1e400.]").is_err());
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_tolerated_inside_strings() {
        let parsed = parse(b"{\"a\":\"x\xff\"}").unwrap();
        assert_eq!(parsed.value, json!({"a": "x\u{fffd}"}));
        assert!(parsed.invalid_utf8 && !parsed.not_a_number);
        let refused = parse(b"{\xff}").unwrap_err();
        assert!(refused.invalid_utf8);
    }

    #[test]
    fn what_is_not_json_stays_so() {
        for text in [
            "",
            " ",
            "{",
            "{}{}",
            "{\"a\":1}\n{\"b\":2}",
            "{'a':1}",
            "[1,]",
            ": OPENROUTER",
            "\"\\x\"",
            "\"a\nb\"",
            "\"",
            "\"\\ud83d",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_too_deep_is_checked_and_left_out() {
        fn depth(value: &Value) -> usize {
            match value {
                Value::Array(values) => 1 + values.first().map_or(0, depth),
                Value::Object(object) => 1 + object.get("a").map_or(0, depth),
                _ => 0,
            }
        }
        let nested = |levels: usize, inside: &str| {
            let (open, close) = (r#"{"a":["#.repeat(levels / 2), "]}".repeat(levels / 2));
            format!("{open}{inside}{close}")
        };
        for levels in [MAX_DEPTH - 1, MAX_DEPTH + 1, MAX_DEPTH + 3, 1_000_000] {
            let text = format!(r#"{{"a":{0},"b":[{0},"]}}\\\"",2],"c":3}}"#, nested(levels, r#""x]""#));
            let parsed = parse(text.as_bytes()).unwrap();
            assert_eq!(depth(&parsed.value), (levels + 1).min(MAX_DEPTH));
            assert_eq!((&parsed.value["b"][1], &parsed.value["b"][2]), (&json!("]}\\\""), &json!(2)));
            assert_eq!(parsed.value["c"], json!(3));
        }
        let mended = parse(nested(200, "NaN").as_bytes()).unwrap();
        assert!(mended.not_a_number);
        for (broken, ends_early) in [
            (nested(200, "x"), false),
            (nested(1_000_000, "1,"), false),
            (nested(200, "1") + "]", false),
            (nested(200, "1").replacen("]}", "}]", 1), false),
            ("[".repeat(1_000_000), true),
            (nested(200, "1").replacen("1", "\"", 1), true),
        ] {
            assert_eq!(parse(broken.as_bytes()).unwrap_err().ends_early, ends_early);
        }
    }
}
