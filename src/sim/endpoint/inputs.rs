//! Prompts without messages: a text, a list of texts, the numbers of tokens, or a list of such lists. Completions and
//! embeddings take them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::ask::PromptSize;
use crate::sim::random::Lane;

/// Most prompts in one request: what the reference API of embeddings takes.
pub(super) const MAX_INPUTS: usize = 2048;

/// All prompts of a request, in their order.
#[derive(Debug, Default)]
pub(super) struct Inputs<'a>(pub(super) Vec<Input<'a>>);

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// Numbered tokens: how many, and a digest of their numbers.
    Ids { count: u64, digest: u64 },
}

impl Input<'_> {
    const NO_IDS: Self = Self::Ids { count: 0, digest: 0 };

    /// How much prompt it is.
    pub(super) fn size(&self) -> PromptSize {
        match self {
            Self::Text(text) => PromptSize { bytes: u64::try_from(text.len()).unwrap_or(u64::MAX), ids: 0 },
            Self::Ids { count, .. } => PromptSize { bytes: 0, ids: *count },
        }
    }

    /// A number that equal prompts share. Not for secrets.
    pub(super) fn digest(&self) -> u64 {
        match self {
            Self::Text(text) => text.as_bytes().chunks(8).fold(0, |digest, piece| {
                let mut word = [0_u8; 8];
                for (place, byte) in word.iter_mut().zip(piece) {
                    *place = *byte;
                }
                mix(digest, u64::from_le_bytes(word))
            }),
            Self::Ids { digest, .. } => *digest,
        }
    }

    fn push_id(&mut self, id: u64) {
        if let Self::Ids { count, digest } = self {
            *count = count.saturating_add(1);
            *digest = mix(*digest, id);
        }
    }
}

/// One step of a digest.
fn mix(digest: u64, word: u64) -> u64 {
    Lane::from_bits(digest).bits(word)
}

impl<'de: 'a, 'a> Deserialize<'de> for Inputs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputsVisitor)
    }
}

struct InputsVisitor;

impl<'de> Visitor<'de> for InputsVisitor {
    type Value = Inputs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list of texts, a list of token numbers, or a list of such lists")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Inputs(vec![Input::Text(Cow::Borrowed(text))]))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Inputs(vec![Input::Text(Cow::Owned(text.to_owned()))]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut inputs: Vec<Input<'de>> = Vec::new();
        let mut ids: Option<Input<'de>> = None;
        while let Some(element) = elements.next_element()? {
            match element {
                Element::Id(id) if inputs.is_empty() => ids.get_or_insert(Input::NO_IDS).push_id(id),
                Element::Input(input) if ids.is_none() && inputs.len() < MAX_INPUTS => inputs.push(input),
                Element::Input(_) if ids.is_none() => {
                    return Err(Error::custom(format_args!("there are more than {MAX_INPUTS} inputs")));
                }
                _ => return Err(Error::custom("prompts and token numbers stand in one list")),
            }
        }
        inputs.extend(ids);
        Ok(Inputs(inputs))
    }
}

/// What can stand in the outer list.
enum Element<'a> {
    Id(u64),
    Input(Input<'a>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Element<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a token number, or a list of token numbers")
    }

    fn visit_u64<E>(self, id: u64) -> Result<Self::Value, E> {
        Ok(Element::Id(id))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Element::Input(Input::Text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Element::Input(Input::Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Self::Value, A::Error> {
        let mut input = Input::NO_IDS;
        while let Some(id) = numbers.next_element()? {
            input.push_id(id);
        }
        Ok(Element::Input(input))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<Input<'_>>, String> {
        serde_json::from_str::<Inputs<'_>>(json).map(|i| i.0).map_err(|e| e.to_string())
    }

    fn sizes(json: &str) -> Vec<(u64, u64)> {
        read(json).unwrap().iter().map(|i| (i.size().bytes, i.size().ids)).collect()
    }

    #[test]
    fn the_four_forms() {
        assert_eq!(sizes(r#""abc""#), [(3, 0)]);
        assert_eq!(sizes(r#"["a\n","é"]"#), [(2, 0), (2, 0)]);
        assert_eq!(sizes("[5,6,7]"), [(0, 3)]);
        assert_eq!(sizes("[[5],[6,7],[]]"), [(0, 1), (0, 2), (0, 0)]);
        assert_eq!(sizes("[]"), []);
    }

    #[test]
    fn mixtures_and_other_things_are_refused() {
        for json in [r#"["a",1]"#, r#"[1,"a"]"#, "[1,[2]]", "[-1]", "[[\"a\"]]", "5", "null", "{}", "[{}]"] {
            assert!(read(json).is_err(), "{json}");
        }
        let many = format!("[{}\"\"]", "\"\",".repeat(MAX_INPUTS));
        assert!(read(&many).unwrap_err().contains("more than 2048"));
    }

    #[test]
    fn equal_prompts_share_their_digest_and_others_do_not() {
        let digest = |json: &str| read(json).unwrap()[0].digest();
        assert_eq!(digest(r#""some text of some length""#), digest(r#"["some text of some length"]"#));
        assert_eq!(digest("[1,2]"), digest("[[1,2]]"));
        let all =
            [r#""a""#, r#""b""#, r#""aaaaaaaaa""#, r#""aaaaaaaab""#, "[1,2]", "[2,1]", "[1]"].map(digest);
        for (i, a) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|b| a != b), "{i}");
        }
    }
}
