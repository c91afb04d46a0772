//! A remembered event: most events of a stream are the previous one with another text in the same place.
//!
//! An event that the scan was certain of is kept as what stood before its only output text (`head`, with the
//! opening quote) and behind it (`tail`, with the closing quote). A later event that is `head`, a string body that
//! is not empty, and `tail` again takes a parser through the same states, since a string body ends at the first
//! quote that is not escaped whatever it holds: so it means the same with the new text, and neither scan nor full
//! parse would say otherwise. Comparing two runs of bytes costs a tenth of scanning them.
//!
//! A stream whose events differ elsewhere (padding of random length, counts in every event) pays for a few vain
//! comparisons and then for none.

use super::Facts;
use super::cursor::Cursor;
use crate::record::{OutputKind, Usage};

/// Vain comparisons in a row after which a stream is held to have no template. A server that changes its time
/// stamp every second loses one event in as many seconds and never comes near.
const MAX_MISSES: u8 = 8;

/// Longer events are not remembered: what repeats is short, and the memory is one per connection.
const MAX_BYTES: usize = 4096;

/// What is remembered of the previous events of a stream.
#[derive(Debug, Default)]
pub(super) struct Template {
    head: Vec<u8>,
    tail: Vec<u8>,
    known: Option<Known>,
    misses: u8,
}

/// What an event with the same head and tail means.
#[derive(Debug)]
pub(super) struct Known {
    /// The choice of the output.
    pub(super) choice: u32,
    /// The kind of the output.
    pub(super) kind: OutputKind,
    /// The token counts.
    pub(super) usage: Option<Usage>,
    /// It announces a role.
    pub(super) role: bool,
    /// A delta has an empty content.
    pub(super) empty_content: bool,
    /// It has a meaning we know.
    pub(super) recognised: bool,
    /// `NaN` or `Infinity` stood where a number should.
    pub(super) not_a_number: bool,
}

impl Known {
    /// Everything but the output. What a scan is certain of has no error, and nothing in it is broken.
    #[inline]
    pub(super) fn facts(&self) -> Facts {
        Facts {
            recognised: self.recognised,
            role: self.role,
            empty_content: self.empty_content,
            usage: self.usage,
            not_a_number: self.not_a_number,
            ..Facts::default()
        }
    }
}

impl Template {
    /// Forgets everything and keeps the storage: a new stream has another id in its events.
    pub(super) fn start(&mut self) {
        self.known = None;
        self.misses = 0;
    }

    /// The meaning of an event like the remembered one, and its text between the quotes.
    #[inline]
    pub(super) fn recognise<'a>(&mut self, data: &'a [u8]) -> Option<(&Known, &'a [u8])> {
        self.known.as_ref()?;
        let Some(text) = text_between(&self.head, data, &self.tail) else {
            self.misses += 1;
            if self.misses == MAX_MISSES {
                self.known = None;
            }
            return None;
        };
        self.misses = 0;
        Some((self.known.as_ref()?, text))
    }

    /// Remembers an event whose only output is `text`, a part of `data`.
    #[inline]
    pub(super) fn learn(&mut self, data: &[u8], text: &[u8], known: impl FnOnce() -> Known) {
        if self.misses >= MAX_MISSES || text.is_empty() || data.len() > MAX_BYTES {
            return;
        }
        let Some(start) = text.as_ptr().addr().checked_sub(data.as_ptr().addr()) else { return };
        let Some((head, rest)) = data.split_at_checked(start) else { return };
        let Some((_, tail)) = rest.split_at_checked(text.len()) else { return };
        self.head.clear();
        self.head.extend_from_slice(head);
        self.tail.clear();
        self.tail.extend_from_slice(tail);
        self.known = Some(known());
    }
}

/// The string body between `head` and `tail`, if `data` is the three together and the body is a good one.
#[inline]
fn text_between<'a>(head: &[u8], data: &'a [u8], tail: &[u8]) -> Option<&'a [u8]> {
    let rest = data.strip_prefix(head)?;
    let mut cursor = Cursor::new(rest);
    let text = cursor.string_body()?;
    if text.is_empty() || rest.get(text.len()..) != Some(tail) {
        return None;
    }
    if cursor.beyond_ascii() {
        std::str::from_utf8(text).ok()?;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &[u8] = br#"{"a":"one","b":2}"#;

    fn known() -> Known {
        Known {
            choice: 3,
            kind: OutputKind::Content,
            usage: None,
            role: false,
            empty_content: false,
            recognised: true,
            not_a_number: false,
        }
    }

    fn learned() -> Template {
        let mut template = Template::default();
        template.learn(EVENT, &EVENT[6..9], known);
        template
    }

    #[test]
    fn an_event_with_another_text_is_recognised() {
        let mut template = learned();
        for text in ["one", "two and more", r#"\"\\\n\u00e9"#, "é😀"] {
            let event = format!(r#"{{"a":"{text}","b":2}}"#);
            let (known, found) = template.recognise(event.as_bytes()).unwrap();
            assert_eq!((known.choice, found), (3, text.as_bytes()));
        }
    }

    #[test]
    fn anything_else_is_not() {
        for event in [
            &br#"{"a":"","b":2}"#[..],
            br#"{"a":"one","b":3}"#,
            br#"{"a":"one","b":2}}"#,
            br#"{"a":"one","b":2"#,
            br#"{"a":"one"}"#,
            br#"{"a":"one"#,
            br#"{"a":"o"e","b":2}"#,
            br#"{"a":"o\xe","b":2}"#,
            br#"{"a":"one\","b":2}"#,
            b"{\"a\":\"o\ne\",\"b\":2}",
            b"{\"a\":\"o\xffe\",\"b\":2}",
            br#"{"c":"one","b":2}"#,
            b"",
        ] {
            assert!(learned().recognise(event).is_none(), "{}", String::from_utf8_lossy(event));
        }
        assert!(Template::default().recognise(EVENT).is_none());
    }

    #[test]
    fn a_stream_without_a_template_is_left_alone_until_the_next_one() {
        let mut template = learned();
        for _ in 0..MAX_MISSES {
            assert!(template.recognise(b"{}").is_none());
            template.learn(EVENT, &EVENT[6..9], known);
        }
        assert!(template.recognise(EVENT).is_none());
        template.start();
        template.learn(EVENT, &EVENT[6..9], known);
        for _ in 0..3 {
            for _ in 1..MAX_MISSES {
                assert!(template.recognise(b"{}").is_none());
            }
            assert!(template.recognise(EVENT).is_some(), "a hit starts the count anew");
        }
    }

    #[test]
    fn what_cannot_be_a_template_is_not_learned() {
        let mut template = Template::default();
        template.learn(EVENT, b"", known);
        template.learn(EVENT, b"elsewhere", known);
        let long = vec![b'x'; MAX_BYTES + 1];
        template.learn(&long, &long[1..2], known);
        assert!(template.known.is_none());
    }
}
