//! How the end of a prompt wants the answer to look: controlled output and request markers, recognised by the
//! reference's own wording. Nothing else of a prompt's text is understood.

use crate::sim::options::MAX_MODEL_LEN;

/// Longest marker that is obeyed; the reference's are 20 to 40 bytes.
const MAX_MARKER_BYTES: usize = 64;

/// The wishes stand at the very end of a prompt, within fewer bytes than this.
const TAIL_BYTES: usize = 512;

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

impl Wish {
    /// Reads the wishes from the end of a message.
    pub(crate) fn from_text(text: &str) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
