//! What a chat completion request asks for, as far as the simulator obeys it.
//!
//! The body is read by `serde_json` and its prompt is looked at where it lies: only its length and the asked-for
//! form of the answer are kept, never the text. Controlled output and request markers are recognised by the
//! reference's own wording at the end of the last message (see [`Wish`]).

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::sim::options::{DEFAULT_TOKENS, MAX_MODEL_LEN};

/// Longest model name that is echoed: it is repeated in every event.
pub(crate) const MAX_MODEL_BYTES: usize = 256;

/// Longest marker that is obeyed; the reference's are 20 to 40 bytes.
const MAX_MARKER_BYTES: usize = 64;

/// The wishes stand at the very end of a prompt, within fewer bytes than this.
const TAIL_BYTES: usize = 512;

/// Bytes of prompt text that count as one token: the common rule of thumb for English text and code.
const BYTES_PER_TOKEN: u64 = 4;

/// A request that will be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChatRequest {
    /// The model's name, echoed.
    pub(crate) model: String,
    /// UTF-8 bytes of all message texts.
    pub(crate) prompt_bytes: u64,
    /// The most tokens to generate, reasoning included; at least 1.
    pub(crate) limit: Option<u64>,
    /// Whether the answer is a stream of events.
    pub(crate) stream: bool,
    /// Whether the stream ends with a usage chunk.
    pub(crate) include_usage: bool,
    /// The form of the answer.
    pub(crate) wish: Wish,
}

/// How the prompt wants the answer to look. The wording is the reference's:
/// `Begin with the exact marker M, followed by one space.` and
/// `Then emit exactly N repetitions of the lowercase word code, separated by single spaces.`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Wish {
    /// The answer starts with this text and one space.
    pub(crate) marker: Option<String>,
    /// After the marker, exactly so many words `code` and nothing else.
    pub(crate) code_words: Option<u64>,
}

/// Why a body is refused. Always answered with status 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadBody(pub(crate) String);

impl ChatRequest {
    /// Reads a request body.
    ///
    /// # Errors
    /// [`BadBody`] with one sentence for the peer.
    pub(crate) fn from_body(body: &[u8]) -> Result<Self, BadBody> {
        // A struct may be written as an array for serde; for a chat completion it may not.
        if body.trim_ascii_start().first().is_some_and(|&b| b != b'{') {
            return Err(BadBody("The body is not a JSON object.".to_owned()));
        }
        let body: RawBody<'_> =
            serde_json::from_slice(body).map_err(|e| BadBody(format!("The body cannot be used: {e}.")))?;
        if body.model.len() > MAX_MODEL_BYTES {
            return Err(BadBody(format!("The model's name is longer than {MAX_MODEL_BYTES} bytes.")));
        }
        if body.messages.is_empty() {
            return Err(BadBody("There must be at least one message.".to_owned()));
        }
        if body.n.is_some_and(|n| n != 1) {
            return Err(BadBody("The only supported value of n is 1.".to_owned()));
        }
        // The newer name wins where both are given, as in vLLM.
        let limit = body.max_completion_tokens.or(body.max_tokens);
        if limit == Some(0) {
            return Err(BadBody("max_tokens must be at least 1.".to_owned()));
        }
        let prompt_bytes = body.messages.iter().fold(0_u64, |sum, m| sum.saturating_add(m.content.bytes));
        let request = Self {
            model: body.model.into_owned(),
            prompt_bytes,
            limit,
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.and_then(|o| o.include_usage).unwrap_or(false),
            wish: body.messages.into_iter().next_back().map(|m| m.content.wish).unwrap_or_default(),
        };
        let needed = request.prompt_tokens().saturating_add(limit.unwrap_or(1));
        if needed > MAX_MODEL_LEN {
            return Err(BadBody(format!(
                "This model's maximum context length is {MAX_MODEL_LEN} tokens, and the request needs {needed} \
                 (about {} of prompt).",
                request.prompt_tokens()
            )));
        }
        Ok(request)
    }

    /// Estimated tokens of the prompt: UTF-8 bytes of all message texts divided by four, rounded up, at least 1.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.prompt_bytes.div_ceil(BYTES_PER_TOKEN).max(1)
    }

    /// The limit, or what is generated when none is given.
    pub(crate) fn limit_or_default(&self) -> u64 {
        self.limit.unwrap_or(DEFAULT_TOKENS)
    }
}

impl Wish {
    /// Reads the wishes from the end of a message.
    fn from_text(text: &str) -> Self {
        let mut start = text.len().saturating_sub(TAIL_BYTES);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        let tail = text.get(start..).unwrap_or_default();
        // The request line opens the tail; filler before it may say anything.
        let tail = tail.rsplit_once("\n# request ").map_or(tail, |(_, tail)| tail);
        let marker = between(tail, " Begin with the exact marker ", ", followed by one space.")
            .filter(|m| !m.is_empty() && m.len() <= MAX_MARKER_BYTES && m.bytes().all(is_marker_byte))
            .map(str::to_owned);
        let code_words = between(
            tail,
            " Then emit exactly ",
            " repetitions of the lowercase word code, separated by single spaces.",
        )
        .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|n| n.parse().ok())
        .filter(|&n| n <= MAX_MODEL_LEN);
        Self { marker, code_words }
    }
}

/// Printable ASCII that needs no escape in JSON.
const fn is_marker_byte(b: u8) -> bool {
    b.is_ascii_graphic() && b != b'"' && b != b'\\'
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    messages: Vec<RawMessage>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    stream: Option<bool>,
    stream_options: Option<RawStreamOptions>,
    n: Option<u64>,
}

#[derive(Deserialize)]
struct RawStreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct RawMessage {
    #[serde(default)]
    content: Content,
}

/// What is kept of a message's content: a text, a list of parts, or null.
#[derive(Default)]
struct Content {
    bytes: u64,
    wish: Wish,
}

impl Content {
    fn from_text(text: &str) -> Self {
        Self { bytes: u64::try_from(text.len()).unwrap_or(u64::MAX), wish: Wish::from_text(text) }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message text, a list of parts, or null")
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::from_text(text))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content, A::Error> {
        let mut all = Content::default();
        while let Some(part) = parts.next_element::<RawPart>()? {
            let Some(text) = part.text else { continue };
            all.bytes = all.bytes.saturating_add(text.bytes);
            all.wish = text.wish;
        }
        Ok(all)
    }
}

/// One part of a content list; parts that are no text (images, audio) count nothing.
#[derive(Deserialize)]
struct RawPart {
    text: Option<Content>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<ChatRequest, BadBody> {
        ChatRequest::from_body(body.as_bytes())
    }

    #[test]
    fn the_references_body_is_understood() {
        let tail = "\n# request 3: Begin with the exact marker ANVIL_REQ_-7_00003, followed by one space. Then emit \
                    exactly 64 repetitions of the lowercase word code, separated by single spaces. Do not add other \
                    text and do not stop early.";
        let prompt = format!("{}{tail}", "def helper_1():\n    return compute(1)  # routine\n".repeat(40));
        let body = serde_json::json!({
            "model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 99, "temperature": 0.0,
            "stream": true, "stream_options": {"include_usage": true}, "reasoning_effort": "max"
        });
        let request = read(&body.to_string()).unwrap();
        assert_eq!(request.prompt_bytes, u64::try_from(prompt.len()).unwrap());
        assert_eq!(request.prompt_tokens(), u64::try_from(prompt.len()).unwrap().div_ceil(4));
        assert_eq!(
            (request.model.as_str(), request.limit, request.stream, request.include_usage),
            ("m", Some(99), true, true)
        );
        assert_eq!(request.wish.marker.as_deref(), Some("ANVIL_REQ_-7_00003"));
        assert_eq!(request.wish.code_words, Some(64));
    }

    #[test]
    fn the_references_other_tails() {
        let marker_only = Wish::from_text(
            "x\n# request 0: Begin with the exact marker ANVIL_REQ_0_00000, followed by one space. Summarize the above in one line.",
        );
        assert_eq!(marker_only, Wish { marker: Some("ANVIL_REQ_0_00000".to_owned()), code_words: None });
        let words_only = Wish::from_text(
            "x\n# request 0: Then emit exactly 5 repetitions of the lowercase word code, separated by single spaces. Do not add other text and do not stop early.",
        );
        assert_eq!(words_only, Wish { marker: None, code_words: Some(5) });
        assert_eq!(Wish::from_text("x\n# request 0: summarize the above in one line."), Wish::default());
        assert_eq!(Wish::from_text(""), Wish::default());
    }

    #[test]
    fn a_marker_that_would_break_the_json_is_ignored() {
        let wish =
            Wish::from_text("\n# request 0: Begin with the exact marker a\"b, followed by one space. x");
        assert_eq!(wish.marker, None);
        let long =
            format!("\n# request 0: Begin with the exact marker {}, followed by one space.", "m".repeat(65));
        assert_eq!(Wish::from_text(&long).marker, None);
        let multibyte = format!(
            "{}\n# request 0: Begin with the exact marker m, followed by one space.",
            "é".repeat(600)
        );
        assert_eq!(Wish::from_text(&multibyte).marker.as_deref(), Some("m"));
    }

    #[test]
    fn contents_may_be_parts_or_null() {
        let request = read(
            r##"{"model":"m","messages":[{"role":"system","content":"abcd"},{"role":"assistant","content":null},
               {"role":"user","content":[{"type":"text","text":"12"},{"type":"image_url","image_url":{"url":"x"}},
               {"type":"text","text":"é\n# request 0: Begin with the exact marker k, followed by one space. x"}]}]}"##,
        )
        .unwrap();
        assert_eq!(request.prompt_bytes, 4 + 2 + 71);
        assert_eq!(request.wish.marker.as_deref(), Some("k"));
        assert!(!request.stream && request.limit.is_none());
    }

    #[test]
    fn the_newer_limit_wins() {
        let request =
            read(r#"{"model":"m","messages":[{"content":"a"}],"max_tokens":5,"max_completion_tokens":7}"#)
                .unwrap();
        assert_eq!(request.limit, Some(7));
        assert_eq!(request.prompt_tokens(), 1);
    }

    #[test]
    fn bad_bodies_are_refused_with_a_sentence() {
        for (body, word) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "object"),
            (r#"{"messages":[{"content":"a"}]}"#, "model"),
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","messages":[]}"#, "message"),
            (r#"{"model":"m","messages":[{"content":5}]}"#, "message text"),
            (r#"{"model":"m","messages":[{"content":"a"}],"max_tokens":0}"#, "max_tokens"),
            (r#"{"model":"m","messages":[{"content":"a"}],"max_tokens":-1}"#, "-1"),
            (r#"{"model":"m","messages":[{"content":"a"}],"max_tokens":2000000}"#, "context length"),
            (r#"{"model":"m","messages":[{"content":"a"}],"n":2}"#, "n is 1"),
            (r#"{"model":"m","messages":[{"content":"a"}]} x"#, "trailing"),
        ] {
            let BadBody(message) = read(body).unwrap_err();
            assert!(message.contains(word), "{body}: {message}");
        }
        assert!(ChatRequest::from_body(b"{\"model\":\"\xff\",\"messages\":[{}]}").is_err());
    }
}
