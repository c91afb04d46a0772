//! `POST /v1/embeddings`: one vector of length 1 for each input, the same for equal inputs.

use std::borrow::Cow;

use serde::Deserialize;

use super::ask::{self, BadBody, PromptSize};
use super::inputs::Inputs;
use crate::sim::framing::{write_json_string, write_text};
use crate::sim::random::Lane;

/// Length of a vector when the request does not ask for one: that of small embedding models.
const DEFAULT_DIMENSIONS: u64 = 384;

/// Most numbers in one answer: a full batch of 2,048 inputs of the default length, about 10 MB of JSON, which takes
/// some 100 ms to compose.
const MAX_NUMBERS: u64 = 1 << 20;

/// A request that will be answered.
#[derive(Debug)]
pub(crate) struct Embeddings {
    /// The model's name, echoed.
    pub(crate) model: String,
    /// How much text there is, all inputs together.
    pub(crate) prompt: PromptSize,
    prompt_tokens: u64,
    digests: Vec<u64>,
    dimensions: u64,
    base64: bool,
}

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    input: Inputs<'a>,
    dimensions: Option<u64>,
    encoding_format: Option<Cow<'a, str>>,
}

impl Embeddings {
    /// Reads a request's body.
    ///
    /// # Errors
    /// [`BadBody`] with one sentence for the peer.
    pub(crate) fn read(body: &[u8]) -> Result<Self, BadBody> {
        let body: RawBody<'_> = ask::parse(body)?;
        let inputs = body.input.0;
        if inputs.is_empty() {
            return Err(BadBody("There must be at least one input.".to_owned()));
        }
        let dimensions = body.dimensions.unwrap_or(DEFAULT_DIMENSIONS);
        let count = u64::try_from(inputs.len()).unwrap_or(u64::MAX);
        if dimensions == 0 || dimensions.saturating_mul(count) > MAX_NUMBERS {
            return Err(BadBody(format!(
                "dimensions must be at least 1, and the answer at most {MAX_NUMBERS} numbers."
            )));
        }
        let base64 = match body.encoding_format.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(BadBody("encoding_format must be float or base64.".to_owned())),
        };
        let mut prompt = PromptSize::default();
        let mut prompt_tokens = 0_u64;
        for input in &inputs {
            prompt.add(input.size());
            input.size().check(0)?;
            prompt_tokens = prompt_tokens.saturating_add(input.size().tokens());
        }
        let digests = inputs.iter().map(super::inputs::Input::digest).collect();
        Ok(Self { model: ask::model_name(body.model)?, prompt, prompt_tokens, digests, dimensions, base64 })
    }

    /// The tokens of all inputs, each rounded up by itself.
    pub(crate) const fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// Appends the answer's body, in vLLM's layout.
    pub(crate) fn write_body(&self, id: u64, created: i64, out: &mut Vec<u8>) {
        write_text(
            out,
            format_args!(r#"{{"id":"embd-{id:016x}","object":"list","created":{created},"model":"#),
        );
        write_json_string(&self.model, out);
        out.extend_from_slice(br#","data":["#);
        for (index, digest) in self.digests.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_text(out, format_args!(r#"{{"index":{index},"object":"embedding","embedding":"#));
            self.write_vector(*digest, out);
            out.push(b'}');
        }
        let tokens = self.prompt_tokens;
        write_text(
            out,
            format_args!(
                r#"],"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens},"completion_tokens":0,"prompt_tokens_details":null}}}}"#
            ),
        );
    }

    fn write_vector(&self, digest: u64, out: &mut Vec<u8>) {
        let lane = Lane::from_bits(digest);
        let draw = |i: u64| lane.unit(i).mul_add(2.0, -1.0);
        let length = (0..self.dimensions).map(|i| draw(i).powi(2)).sum::<f64>().sqrt();
        // All draws are zero with a probability of 2^-53 for each; then there is no direction, and no division.
        let scale = if length > 0.0 { length.recip() } else { 0.0 };
        let numbers = (0..self.dimensions).map(|i| {
            #[expect(clippy::cast_possible_truncation, reason = "embeddings are single-precision numbers")]
            let number = (draw(i) * scale) as f32;
            number
        });
        if self.base64 {
            out.push(b'"');
            write_base64(numbers.flat_map(f32::to_le_bytes), out);
            out.push(b'"');
            return;
        }
        out.push(b'[');
        for (i, number) in numbers.enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_text(out, format_args!("{number}"));
        }
        out.push(b']');
    }
}

/// Appends bytes in base64 (RFC 4648 section 4), padded.
fn write_base64(mut bytes: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    while let Some(first) = bytes.next() {
        let (second, third) = (bytes.next(), bytes.next());
        let group = u32::from_be_bytes([0, first, second.unwrap_or_default(), third.unwrap_or_default()]);
        let digit = |shift: u32| {
            let place = usize::try_from((group >> shift) & 63).unwrap_or_default();
            ALPHABET.get(place).copied().unwrap_or(b'=')
        };
        out.extend_from_slice(&[
            digit(18),
            digit(12),
            if second.is_some() { digit(6) } else { b'=' },
            if third.is_some() { digit(0) } else { b'=' },
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> String {
        Embeddings::read(body.as_bytes()).map(|_| ()).unwrap_err().0
    }

    #[test]
    fn base64_is_that_of_another_implementation() {
        use base64::Engine;
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|i| i.wrapping_mul(37)).collect();
            let mut out = Vec::new();
            write_base64(bytes.iter().copied(), &mut out);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                base64::engine::general_purpose::STANDARD.encode(bytes)
            );
        }
    }

    #[test]
    fn every_input_counts_its_own_tokens() {
        let ask = Embeddings::read(br#"{"model":"m","input":["abcde","","a"]}"#).unwrap();
        assert_eq!((ask.prompt_tokens(), ask.prompt.bytes), (2 + 1 + 1, 6));
        assert_eq!(Embeddings::read(br#"{"model":"m","input":[[1,2],[3]]}"#).unwrap().prompt_tokens(), 3);
    }

    #[test]
    fn bad_bodies_are_refused_with_a_sentence() {
        for (body, word) in [
            (r#"{"model":"m"}"#, "input"),
            (r#"{"model":"m","input":[]}"#, "at least one"),
            (r#"{"model":"m","input":"a","dimensions":0}"#, "dimensions"),
            (r#"{"model":"m","input":"a","dimensions":1048577}"#, "1048576 numbers"),
            (r#"{"model":"m","input":"a","encoding_format":"hex"}"#, "base64"),
            (r#"{"input":"a"}"#, "model"),
        ] {
            assert!(refusal(body).contains(word), "{body}: {}", refusal(body));
        }
    }
}
