//! Text kept for canaries, controlled output and inspection, up to a limit in characters.
//!
//! The rule is the reference's: everything is kept until a piece exceeds the remaining room; of that piece the
//! part that fits is kept, and the capture counts as truncated from then on. Storage is kept between requests.

use super::text::{JsonText, Piece, join_halves};
use crate::record::{CapturedText, OutputKind};

/// The reference's limit of a text, in characters.
const REFERENCE_LIMIT_CHARS: usize = 8_192;

/// What is done with the texts of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRule {
    /// Characters from which on a text counts as truncated.
    pub limit_chars: usize,
    /// Keep texts up to the limit; otherwise the characters of the visible text are only counted, because whether it
    /// went beyond the limit stands in the reference artifact of every request.
    pub keep: bool,
}

impl TextRule {
    /// Keeps texts of up to this many characters.
    #[must_use]
    pub const fn keep(limit_chars: usize) -> Self {
        Self { limit_chars, keep: true }
    }
}

/// Nothing is kept, and the limit is the reference's.
impl Default for TextRule {
    fn default() -> Self {
        Self { limit_chars: REFERENCE_LIMIT_CHARS, keep: false }
    }
}

/// The texts of one answer, if any are kept.
#[derive(Debug, Default)]
pub(super) struct Texts {
    keep: bool,
    visible: Capture,
    reasoning: Capture,
    tool_arguments: Capture,
}

impl Texts {
    /// Forgets the texts and sets the rule for the next ones.
    pub(super) fn start(&mut self, rule: TextRule) {
        self.keep = rule.keep;
        for capture in [&mut self.visible, &mut self.reasoning, &mut self.tool_arguments] {
            capture.start(rule);
        }
    }

    /// Appends what fits to the text of that kind of output. Refusals have none: nothing reads it.
    #[inline]
    pub(super) fn push(&mut self, kind: OutputKind, text: JsonText<'_>) {
        match kind {
            OutputKind::Content => self.visible.push(text),
            OutputKind::Reasoning if self.keep => self.reasoning.push(text),
            OutputKind::ToolCall if self.keep => self.tool_arguments.push(text),
            OutputKind::Reasoning | OutputKind::ToolCall | OutputKind::Refusal => {}
        }
    }

    /// Whether the visible text went beyond the limit, kept or not.
    pub(super) fn is_truncated(&self) -> bool {
        self.visible.kept.truncated
    }

    /// The visible text, if texts are kept.
    pub(super) fn visible(&self) -> Option<&CapturedText> {
        self.keep.then(|| self.visible.kept())
    }

    /// The reasoning, if texts are kept.
    pub(super) fn reasoning(&self) -> Option<&CapturedText> {
        self.keep.then(|| self.reasoning.kept())
    }

    /// The arguments of all tool calls, one after the other, if texts are kept.
    pub(super) fn tool_arguments(&self) -> Option<&CapturedText> {
        self.keep.then(|| self.tool_arguments.kept())
    }
}

/// A text with a limit.
#[derive(Debug, Default)]
struct Capture {
    kept: CapturedText,
    /// Characters are kept and not only counted.
    keep: bool,
    /// Characters that still fit.
    room: usize,
    /// The last thing appended was this leading half of a surrogate pair, kept as U+FFFD until its other half comes.
    half: Option<u16>,
}

impl Capture {
    /// Forgets the text and sets the rule.
    fn start(&mut self, rule: TextRule) {
        self.kept.text.clear();
        self.kept.truncated = false;
        self.keep = rule.keep;
        self.room = rule.limit_chars;
        self.half = None;
    }

    /// Appends what fits.
    fn push(&mut self, text: JsonText<'_>) {
        if !self.keep {
            if self.kept.truncated {
                return;
            }
            // Most texts are a few such bytes; to count them needs no decoding.
            if let JsonText::Raw(bytes) = text
                && is_plain_ascii(bytes)
            {
                return self.count_plain(bytes.len());
            }
        }
        for piece in text.pieces() {
            match piece {
                Piece::Str(s) => self.push_str(s),
                Piece::Char(c) => self.push_char(c),
                Piece::Half(unit) => self.push_half(unit),
            }
        }
    }

    /// What was kept.
    fn kept(&self) -> &CapturedText {
        &self.kept
    }

    fn push_str(&mut self, s: &str) {
        if s.is_empty() {
            return;
        }
        self.half = None;
        // A character has at least one byte, so most pieces fit without being counted first.
        let fits = if s.len() <= self.room { s } else { self.fitting(s) };
        self.room -= fits.chars().count();
        if self.keep {
            self.kept.text.push_str(fits);
        }
        self.kept.truncated |= fits.len() < s.len();
    }

    /// What [`push_str`](Self::push_str) does with so many characters when none is kept.
    #[inline]
    fn count_plain(&mut self, chars: usize) {
        if chars == 0 {
            return;
        }
        self.half = None;
        let fits = chars.min(self.room);
        self.room -= fits;
        self.kept.truncated |= fits < chars;
    }

    /// The part of `s` that still fits.
    fn fitting<'s>(&self, s: &'s str) -> &'s str {
        let end = s.char_indices().nth(self.room).map_or(s.len(), |(at, _)| at);
        s.get(..end).unwrap_or_default()
    }

    fn push_char(&mut self, c: char) {
        self.half = None;
        if self.room == 0 {
            self.kept.truncated = true;
            return;
        }
        self.room -= 1;
        if self.keep {
            self.kept.text.push(c);
        }
    }

    /// Half a pair is one character of the limit, as it is one code point in the reference's strings.
    fn push_half(&mut self, unit: u16) {
        if let Some(high) = self.half.take()
            && self.room > 0
            && let Some(c) = join_halves(high, unit)
        {
            self.room -= 1;
            if self.keep {
                self.kept.text.pop();
                self.kept.text.push(c);
            }
            return;
        }
        let had_room = self.room > 0;
        self.push_char(char::REPLACEMENT_CHARACTER);
        self.half = had_room.then_some(unit);
    }
}

/// Whether every byte between the quotes of a string is a character of its own: ASCII and no escape.
#[inline]
fn is_plain_ascii(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |plain, byte| plain & (byte.is_ascii() & (*byte != b'\\')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(limit: usize, texts: &[&str]) -> (String, bool) {
        let mut capture = Capture::default();
        capture.start(TextRule::keep(limit));
        for text in texts {
            capture.push(JsonText::Raw(text.as_bytes()));
        }
        (capture.kept.text, capture.kept.truncated)
    }

    #[test]
    fn a_text_of_exactly_the_limit_is_complete() {
        assert_eq!(capture(5, &["ab", "cde"]), ("abcde".into(), false));
        assert_eq!(capture(5, &["ab", "cdef"]), ("abcde".into(), true));
        assert_eq!(capture(5, &["abcde", "", "f"]), ("abcde".into(), true));
        assert_eq!(capture(0, &[""]), (String::new(), false));
        assert_eq!(capture(0, &["x"]), (String::new(), true));
    }

    #[test]
    fn what_is_only_counted_is_truncated_where_what_is_kept_would_be() {
        let texts =
            ["ab", "", r"\n", "é", r"\ud83d", r"\ude00", "c", r"\ud83d", "d", "\u{1f600}e", r"x\u00e9"];
        for from in 0..texts.len() {
            for limit in 0..20 {
                let mut counted = Capture::default();
                counted.start(TextRule { limit_chars: limit, keep: false });
                for (number, text) in texts.iter().enumerate().skip(from) {
                    counted.push(JsonText::Raw(text.as_bytes()));
                    let kept = capture(limit, &texts[from..=number]);
                    assert_eq!(counted.kept.truncated, kept.1, "{from} {number} {limit}");
                }
            }
        }
    }

    #[test]
    fn the_limit_counts_characters_not_bytes() {
        assert_eq!(capture(3, &["éé", "é"]), ("ééé".into(), false));
        assert_eq!(capture(3, &["é😀", "éx"]), ("é😀é".into(), true));
        assert_eq!(capture(3, &[r"\u00e9\n\u00e9\u00e9"]), ("é\né".into(), true));
    }

    #[test]
    fn counting_says_what_keeping_says() {
        for texts in
            [&["ab", "cde"][..], &["ab", "cdef"], &[r"\u00e9\n", "é😀"], &[r"\ud83d", r"\ude00", "xyzw"], &[]]
        {
            let mut counted = Capture::default();
            counted.start(TextRule { limit_chars: 5, keep: false });
            texts.iter().for_each(|text| counted.push(JsonText::Raw(text.as_bytes())));
            assert_eq!(
                (counted.kept.text.as_str(), counted.kept.truncated),
                ("", capture(5, texts).1),
                "{texts:?}"
            );
        }
    }

    #[test]
    fn the_halves_of_a_pair_meet_again_over_two_events() {
        assert_eq!(capture(9, &[r"a\ud83d", r"\ude00b"]), ("a😀b".into(), false));
        assert_eq!(capture(9, &[r"\ud83d", "x", r"\ude00"]), ("\u{fffd}x\u{fffd}".into(), false));
        assert_eq!(capture(9, &[r"\ude00", r"\ud83d"]), ("\u{fffd}\u{fffd}".into(), false));
        assert_eq!(capture(1, &[r"\ud83d", r"\ude00"]), ("\u{fffd}".into(), true));
    }

    #[test]
    fn starting_again_keeps_the_storage() {
        let mut capture = Capture::default();
        capture.start(TextRule::keep(100));
        capture.push(JsonText::Decoded(&"x".repeat(80)));
        let storage = capture.kept.text.capacity();
        capture.start(TextRule::keep(100));
        assert_eq!((capture.kept.text.as_str(), capture.kept.text.capacity()), ("", storage));
    }
}
