//! Laying out text for a terminal of 80 columns: colours, columns, wrapping, and the removal of what could write
//! elsewhere on the screen. Knows nothing about runs.
//!
//! Widths are counted in characters. That is right for everything this program says itself; a wide character in a name
//! that a user chose shifts the rest of its line and breaks nothing.

use std::ffi::OsStr;

/// Columns of a line.
pub const WIDTH: usize = 80;
/// What replaces a character that is not for printing.
const REPLACEMENT: char = '\u{fffd}';

/// Whether text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    colour: bool,
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::report) enum Ink {
    /// A heading.
    Strong,
    /// Less important than the rest.
    Dim,
    /// Good news.
    Good,
    /// To be looked at.
    Doubtful,
    /// Bad news.
    Bad,
}

impl Style {
    /// Without colours.
    pub const PLAIN: Self = Self { colour: false };
    /// With colours.
    pub const COLOUR: Self = Self { colour: true };

    /// Colours only on a terminal, and only where `NO_COLOR` is unset or empty (no-color.org) and `TERM` is not `dumb`.
    #[must_use]
    pub fn of(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Self {
        let forbidden =
            no_color.is_some_and(|value| !value.is_empty()) || term.is_some_and(|term| term == "dumb");
        Self { colour: is_terminal && !forbidden }
    }

    /// The text in this ink.
    pub(in crate::report) fn paint(self, ink: Ink, text: &str) -> String {
        // Select graphic rendition, ECMA-48 section 8.3.117: bold, faint, green, yellow, red.
        let code = match ink {
            Ink::Strong => "1",
            Ink::Dim => "2",
            Ink::Good => "32",
            Ink::Doubtful => "33",
            Ink::Bad => "31",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Text without control characters and without characters that turn the direction of writing: names and messages come
/// from servers and command lines.
pub(in crate::report) fn clean(text: &str) -> String {
    let unprintable = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if unprintable(c) { REPLACEMENT } else { c }).collect()
}

/// Width of a text in columns.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// The text, or its beginning and `…` where it is wider than `most`.
pub(in crate::report) fn shorten(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// `text` filled up with spaces on the right.
pub(in crate::report) fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// `text` filled up with spaces on the left.
pub(in crate::report) fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Breaks text at spaces into lines of at most `columns`. A longer word has a line of its own: a path or an address
/// stays whole, so that it can be copied.
pub(in crate::report) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A piece of a line that is not broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    text: String,
    ink: Option<Ink>,
}

impl Piece {
    /// A piece in the colour of the rest.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ink: None }
    }

    /// A piece in a colour of its own.
    pub(super) fn inked(ink: Ink, text: impl Into<String>) -> Self {
        Self { text: text.into(), ink: Some(ink) }
    }
}

/// Joins pieces with ` · ` and breaks only between pieces.
pub(super) fn wrap_pieces(pieces: &[Piece], columns: usize, style: Style) -> Vec<String> {
    const BETWEEN: &str = " · ";
    let mut lines: Vec<(usize, String)> = Vec::new();
    for Piece { text, ink } in pieces {
        let painted = ink.map_or_else(|| text.clone(), |ink| style.paint(ink, text));
        match lines.last_mut() {
            Some((used, line)) if *used + width(BETWEEN) + width(text) <= columns => {
                *used += width(BETWEEN) + width(text);
                line.push_str(BETWEEN);
                line.push_str(&painted);
            }
            _ => lines.push((width(text), painted)),
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_and_no_objection() {
        let of = |terminal, no_color: Option<&str>, term: Option<&str>| {
            Style::of(terminal, no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert_eq!(of(true, None, Some("xterm")), Style::COLOUR);
        assert_eq!(of(true, Some(""), None), Style::COLOUR);
        assert_eq!(of(true, Some("0"), None), Style::PLAIN);
        assert_eq!(of(true, None, Some("dumb")), Style::PLAIN);
        assert_eq!(of(false, None, Some("xterm")), Style::PLAIN);
        assert_eq!(Style::PLAIN.paint(Ink::Bad, "x"), "x");
        assert_eq!(Style::COLOUR.paint(Ink::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }

    #[test]
    fn nothing_can_move_the_cursor_or_turn_the_line() {
        assert_eq!(
            clean("a\u{1b}[2J\r\n\u{7}b\u{202e}c\u{9b}"),
            "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b\u{fffd}c\u{fffd}"
        );
        assert_eq!(clean("µ–·é漢"), "µ–·é漢");
    }

    #[test]
    fn wrapping_keeps_words_whole() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("a http://very.long/path b", 6), ["a", "http://very.long/path", "b"]);
        assert!(wrap("  ", 5).is_empty());
        let pieces = [Piece::plain("a b"), Piece::inked(Ink::Bad, "c d"), Piece::plain("e")];
        assert_eq!(wrap_pieces(&pieces, 9, Style::PLAIN), ["a b · c d", "e"]);
        assert_eq!(wrap_pieces(&pieces, 9, Style::COLOUR), ["a b · \u{1b}[31mc d\u{1b}[0m", "e"]);
        assert_eq!(shorten("abcdef", 4), "abc…");
        assert_eq!(shorten("abcd", 4), "abcd");
        assert_eq!((left("µ", 3), right("µ", 3)), ("µ  ".to_owned(), "  µ".to_owned()));
    }
}
