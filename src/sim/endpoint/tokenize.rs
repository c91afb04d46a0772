//! `POST /tokenize`, as vLLM has it: how many tokens a text is. The simulator's tokens are four bytes each, so that
//! this answer and the usage of a completion agree.

use std::borrow::Cow;

use serde::Deserialize;

use super::ask::{self, BYTES_PER_TOKEN, BadBody, PromptSize};
use crate::sim::framing::write_text;
use crate::sim::options::MAX_MODEL_LEN;

/// Token numbers are below this, as in common vocabularies.
const VOCABULARY: u32 = 128_000;

/// The number of the one token of an empty text: a real engine puts a beginning in front.
const BEGINNING: u32 = VOCABULARY - 1;

/// A request that will be answered.
#[derive(Debug)]
pub(crate) struct Tokenize {
    /// The model's name; empty when there is none, which is allowed here.
    pub(crate) model: String,
    /// How much text there is.
    pub(crate) prompt: PromptSize,
    tokens: Vec<u32>,
}

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    prompt: Cow<'a, str>,
}

impl Tokenize {
    /// Reads a request's body.
    ///
    /// # Errors
    /// [`BadBody`] with one sentence for the peer.
    pub(crate) fn read(body: &[u8]) -> Result<Self, BadBody> {
        let body: RawBody<'_> = ask::parse(body)?;
        let bytes = u64::try_from(body.prompt.len()).unwrap_or(u64::MAX);
        let mut tokens: Vec<u32> = body.prompt.as_bytes().chunks(BYTES_PER_TOKEN).map(token).collect();
        if tokens.is_empty() {
            tokens.push(BEGINNING);
        }
        let model = ask::model_name(body.model.unwrap_or_default())?;
        Ok(Self { model, prompt: PromptSize { bytes, ids: 0 }, tokens })
    }

    /// Appends the answer's body.
    pub(crate) fn write_body(&self, out: &mut Vec<u8>) {
        write_text(
            out,
            format_args!(r#"{{"count":{},"max_model_len":{MAX_MODEL_LEN},"tokens":["#, self.tokens.len()),
        );
        for (i, token) in self.tokens.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_text(out, format_args!("{token}"));
        }
        out.extend_from_slice(br#"],"token_strs":null}"#);
    }
}

/// The number of a piece of text: equal pieces have equal numbers.
fn token(piece: &[u8]) -> u32 {
    let number =
        piece.iter().fold(0_u32, |number, byte| number.wrapping_mul(257).wrapping_add(u32::from(*byte)));
    number % BEGINNING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_agree_with_the_usage_of_a_completion() {
        for text in ["", "a", "abcd", "abcde", "ééééé"] {
            let body = serde_json::json!({"prompt": text}).to_string();
            let request = Tokenize::read(body.as_bytes()).unwrap();
            assert_eq!(u64::try_from(request.tokens.len()).unwrap(), request.prompt.tokens(), "{text}");
        }
    }

    #[test]
    fn equal_pieces_are_equal_tokens() {
        let request = Tokenize::read(br#"{"model":"m","prompt":"abcdwxyzabcd"}"#).unwrap();
        let [a, b, c] = request.tokens[..] else { panic!() };
        assert!(a == c && a != b && a < VOCABULARY);
    }

    #[test]
    fn a_body_without_a_text_is_refused() {
        assert!(Tokenize::read(br#"{"model":"m"}"#).unwrap_err().0.contains("prompt"));
        assert!(Tokenize::read(br#"{"prompt":5}"#).is_err());
    }
}
