//! The text of an artifact, read so that nothing is lost that its writer can write: Python's whole numbers have no
//! largest one, and those beyond 64 bits keep their digits.
//!
//! What Python reads and JSON does not have (`NaN`, `Infinity`), and what says two things at once (a key that stands
//! twice), is refused in one sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::report::anvil::SCHEMA;
use crate::report::anvil::recompute::Unreadable;

/// What Python writes for numbers that are not finite.
const NOT_FINITE: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

/// An artifact as it is stored.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Everything; whole numbers beyond 64 bits as the nearest double.
    pub value: Value,
    /// What those numbers are.
    pub digits: Digits,
}

/// The whole numbers beyond 64 bits in a value, by where they stand.
#[derive(Debug, Clone)]
pub enum Digits {
    /// There are none.
    None,
    /// The number itself.
    Number(Box<RawValue>),
    /// In an object.
    Object(BTreeMap<String, Self>),
    /// In a list.
    Array(BTreeMap<usize, Self>),
}

/// A value with its whole numbers in full.
#[derive(Debug, Clone, Copy)]
pub struct InFull<'a>(pub &'a Value, pub &'a Digits);

impl Stored {
    /// Reads an artifact.
    ///
    /// # Errors
    /// [`Unreadable`], also of JSON that is no artifact, of which no tree is made.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        if bytes.starts_with(b"\xef\xbb\xbf") {
            return Err(Unreadable::NotJson("it begins with a byte order mark".to_owned()));
        }
        if !may_be_object(bytes) {
            return Err(Unreadable::NotAnArtifact);
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Unreadable::NotJson(format!("byte {} is no UTF-8", e.valid_up_to())))?;
        // A file of another kind may be as large as it likes: only this key is kept of it.
        let head: Result<Head<'_>, _> = serde_json::from_str(text);
        match head {
            Ok(Head { schema: Some(schema) }) if is_text(schema, SCHEMA) => {}
            Err(e) if e.classify() != Category::Data => return Err(not_json(text, &e)),
            _ => return Err(Unreadable::NotAnArtifact),
        }
        let value = serde_json::from_str(text).map_err(|e| not_json(text, &e))?;
        let raw: &RawValue = serde_json::from_str(text).map_err(|e| not_json(text, &e))?;
        Ok(Self { value, digits: Digits::of("", raw)? })
    }
}

/// Whether a text that begins so can be an object: its first word is a brace, or has not come yet.
#[must_use]
pub fn may_be_object(beginning: &[u8]) -> bool {
    beginning.iter().find(|byte| !byte.is_ascii_whitespace()).is_none_or(|byte| *byte == b'{')
}

impl Digits {
    fn of(path: &str, raw: &RawValue) -> Result<Self, Unreadable> {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let unreadable = |e: serde_json::Error| Unreadable::NotJson(e.to_string());
        match raw.get().as_bytes().first() {
            Some(b'{') => {
                let Pairs(pairs) = serde_json::from_str(raw.get()).map_err(unreadable)?;
                let (mut seen, mut found) = (BTreeSet::new(), BTreeMap::new());
                for (key, raw) in pairs {
                    let path = below(&key);
                    let digits = Self::of(&path, raw)?;
                    if !digits.is_none() {
                        found.insert(key.clone(), digits);
                    }
                    if !seen.insert(key) {
                        return Err(Unreadable::Field { path, problem: "stands twice".to_owned() });
                    }
                }
                Ok(if found.is_empty() { Self::None } else { Self::Object(found) })
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(unreadable)?;
                let mut found = BTreeMap::new();
                for (i, raw) in items.into_iter().enumerate() {
                    let digits = Self::of(&below(&i.to_string()), raw)?;
                    if !digits.is_none() {
                        found.insert(i, digits);
                    }
                }
                Ok(if found.is_empty() { Self::None } else { Self::Array(found) })
            }
            Some(b'-' | b'0'..=b'9') => Ok(Self::of_number(raw)),
            _ => Ok(Self::None),
        }
    }

    fn of_number(raw: &RawValue) -> Self {
        let text = raw.get();
        let is_whole = !text.contains(['.', 'e', 'E']);
        // Python has no negative zero among whole numbers.
        let digits = if text == "-0" { "0" } else { text };
        let fits = digits == text && (text.parse::<u64>().is_ok() || text.parse::<i64>().is_ok());
        if !is_whole || fits {
            return Self::None;
        }
        RawValue::from_string(digits.to_owned()).map_or(Self::None, Self::Number)
    }

    const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl Serialize for InFull<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const NONE: &Digits = &Digits::None;
        match *self {
            Self(Value::Object(fields), Digits::Object(digits)) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(key, &Self(value, digits.get(key).unwrap_or(NONE)))?;
                }
                map.end()
            }
            Self(Value::Array(items), Digits::Array(digits)) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for (i, value) in items.iter().enumerate() {
                    list.serialize_element(&Self(value, digits.get(&i).unwrap_or(NONE)))?;
                }
                list.end()
            }
            // Any other number has been put in its place.
            Self(Value::Number(number), Digits::Number(raw))
                if number.is_f64() && number.as_f64() == raw.get().parse().ok() =>
            {
                raw.serialize(serializer)
            }
            Self(value, _) => value.serialize(serializer),
        }
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
}

/// The keys of an object as often as they stand there.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let pairs = std::iter::from_fn(|| map.next_entry().transpose());
                pairs.collect::<Result<_, _>>().map(Pairs)
            }
        }
        deserializer.deserialize_map(All)
    }
}

fn is_text(raw: &RawValue, text: &str) -> bool {
    serde_json::from_str::<String>(raw.get()).is_ok_and(|read| read == text)
}

/// Why a text is not JSON: a number that is not finite is said by its name.
fn not_json(text: &str, error: &serde_json::Error) -> Unreadable {
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    // The place that the parser gives is at the word, or within it.
    let starts = error.column().saturating_sub(2)..=error.column();
    let word = NOT_FINITE.iter().find(|word| {
        starts
            .clone()
            .any(|at| line.as_bytes().get(at..).is_some_and(|rest| rest.starts_with(word.as_bytes())))
    });
    Unreadable::NotJson(match word {
        Some(word) => format!("line {} holds {word}, which JSON does not have", error.line()),
        None => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::anvil::encode;

    fn stored(keys: &str) -> Result<Stored, Unreadable> {
        Stored::read(format!("{{\"schema\": \"{SCHEMA}\", {keys}}}").as_bytes())
    }

    #[test]
    fn whole_numbers_keep_their_digits() {
        let huge = "123456789012345678901234567890";
        let read = stored(&format!(
            r#""a": {huge}, "b": [1, -{huge}, {{"c": {huge}, "d": 18446744073709551616}}], "e": -0, "f": -0.0,
            "g": 18446744073709551615, "h": -9223372036854775808, "i": -9223372036854775809, "j": 1e29"#
        ))
        .unwrap();
        let text = encode::to_string(&InFull(&read.value, &read.digits)).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.trim().trim_end_matches(',')).collect();
        for line in [
            "\"a\": 123456789012345678901234567890",
            "-123456789012345678901234567890",
            "\"c\": 123456789012345678901234567890",
            "\"d\": 18446744073709551616",
            "\"e\": 0",
            "\"f\": -0.0",
            "\"g\": 18446744073709551615",
            "\"h\": -9223372036854775808",
            "\"i\": -9223372036854775809",
            "\"j\": 1e+29",
        ] {
            assert!(lines.contains(&line), "{line}: {text}");
        }
        // A number that was put in its place is the one that is written.
        let mut value = read.value;
        value["a"] = 7.into();
        value["b"] = Value::Null;
        let text = encode::to_string(&InFull(&value, &read.digits)).unwrap();
        assert!(text.contains("\"a\": 7,\n  \"b\": null,"), "{text}");
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let problem = |keys: &str| stored(keys).unwrap_err().to_string();
        assert_eq!(problem("\"a\": 1, \"a\": 1"), "a: stands twice");
        assert_eq!(problem(r#""b": [{"a": {"\u0061": 1, "a": 2}}]"#), "b.0.a.a: stands twice");
        for word in NOT_FINITE {
            assert!(
                problem(&format!("\"a\":\n {word}")).contains(&format!("line 2 holds {word},")),
                "{word}"
            );
            assert!(problem(&format!("\"a\": [{word}]")).contains(&format!("holds {word},")), "{word}");
        }
        assert!(problem("\"a\": 1e400").contains("out of range"), "{}", problem("\"a\": 1e400"));
        assert!(
            problem(&format!("\"a\": {}", "[".repeat(200) + &"]".repeat(200))).contains("recursion limit")
        );
        for (bytes, word) in [
            (&b"\xef\xbb\xbf{}"[..], "byte order mark"),
            (b"{\"a\": \"\xff\"}", "byte 7"),
            (b"", "not JSON"),
            (b"[]", "not an object"),
            (b"{\"schema\": 7}", "not an object"),
            (b"{\"schema\": \"anvil-serving.benchmark/v1\"", "not JSON"),
        ] {
            let problem = Stored::read(bytes).unwrap_err().to_string();
            assert!(problem.contains(word), "{problem}");
        }
    }
}
