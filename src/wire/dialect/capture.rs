//! Text kept for canaries, controlled output and inspection, up to a limit in characters.
//!
//! The rule is the reference's: everything is kept until a piece exceeds the remaining room; of that piece the
//! part that fits is kept, and the capture counts as truncated from then on. Storage is kept between requests.

use super::text::{JsonText, Piece, join_halves};
use crate::record::{CapturedText, OutputKind};

/// The texts of one answer, if any are kept.
#[derive(Debug, Default)]
pub(super) struct Texts {
    keep: bool,
    visible: Capture,
    reasoning: Capture,
    tool_arguments: Capture,
}

impl Texts {
    /// Forgets the texts and sets the limit of each, in characters; `None` keeps no text.
    pub(super) fn start(&mut self, limit_chars: Option<usize>) {
        self.keep = limit_chars.is_some();
        for capture in [&mut self.visible, &mut self.reasoning, &mut self.tool_arguments] {
            capture.start(limit_chars.unwrap_or(0));
        }
    }

    /// Appends what fits to the text of that kind of output. Refusals have none: nothing reads it.
    #[inline]
    pub(super) fn push(&mut self, kind: OutputKind, text: JsonText<'_>) {
        if !self.keep {
            return;
        }
        match kind {
            OutputKind::Content => self.visible.push(text),
            OutputKind::Reasoning => self.reasoning.push(text),
            OutputKind::ToolCall => self.tool_arguments.push(text),
            OutputKind::Refusal => {}
        }
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
    /// Characters that still fit.
    room: usize,
    /// The last thing appended was this leading half of a surrogate pair, kept as U+FFFD until its other half comes.
    half: Option<u16>,
}

impl Capture {
    /// Forgets the text and sets the limit in characters.
    fn start(&mut self, limit_chars: usize) {
        self.kept.text.clear();
        self.kept.truncated = false;
        self.room = limit_chars;
        self.half = None;
    }

    /// Appends what fits.
    fn push(&mut self, text: JsonText<'_>) {
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
        self.kept.text.push_str(fits);
        self.kept.truncated |= fits.len() < s.len();
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
        self.kept.text.push(c);
    }

    /// Half a pair is one character of the limit, as it is one code point in the reference's strings.
    fn push_half(&mut self, unit: u16) {
        if let Some(high) = self.half.take()
            && self.room > 0
            && let Some(c) = join_halves(high, unit)
        {
            self.room -= 1;
            self.kept.text.pop();
            self.kept.text.push(c);
            return;
        }
        let had_room = self.room > 0;
        self.push_char(char::REPLACEMENT_CHARACTER);
        self.half = had_room.then_some(unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(limit: usize, texts: &[&str]) -> (String, bool) {
        let mut capture = Capture::default();
        capture.start(limit);
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
    fn the_limit_counts_characters_not_bytes() {
        assert_eq!(capture(3, &["éé", "é"]), ("ééé".into(), false));
        assert_eq!(capture(3, &["é😀", "éx"]), ("é😀é".into(), true));
        assert_eq!(capture(3, &[r"\u00e9\n\u00e9\u00e9"]), ("é\né".into(), true));
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
        capture.start(100);
        capture.push(JsonText::Decoded(&"x".repeat(80)));
        let storage = capture.kept.text.capacity();
        capture.start(100);
        assert_eq!((capture.kept.text.as_str(), capture.kept.text.capacity()), ("", storage));
    }
}
