//! What an answer's visible text shows: whether it is the answer to its own request (canary), and whether it is the
//! text that was asked for (controlled output).
//!
//! The rules are the reference's, with Python's idea of white space, because the same text must get the same verdict
//! in its artifact. Deciding an outcome from an observation is not here.

use crate::metrics::row::{CanaryObservation, ControlledOutputObservation};
use crate::record::CapturedText;

/// The word that controlled output consists of.
const CODE_WORD: &str = "code";
/// How every marker begins.
const MARKER_STEM: &str = "ANVIL_REQ_";
/// Digits of the index in a marker that the search for markers accepts.
const MARKER_INDEX_DIGITS: usize = 5;

/// The marker of one request.
///
/// ```
/// assert_eq!(hammerscale::metrics::observe::marker(-3, 7), "ANVIL_REQ_-3_00007");
/// ```
#[must_use]
pub fn marker(seed: i64, request_index: u64) -> String {
    format!("{MARKER_STEM}{seed}_{request_index:0width$}", width = MARKER_INDEX_DIGITS)
}

/// Observes whether a text begins with its own marker and holds no other request's.
///
/// The marker must end the text or be followed by white space; a leading line break or a following colon fails. From
/// index 100,000 on, a marker has six digits: it can still be at the start, but is not among the markers found.
#[must_use]
pub fn canary(captured: &CapturedText, marker: &str) -> CanaryObservation {
    let marker_at_start = after_marker(&captured.text, marker).is_some();
    let mut observed_marker_count = 0;
    let mut foreign_marker_count = 0;
    for found in Markers(&captured.text) {
        observed_marker_count += 1;
        foreign_marker_count += u64::from(found != marker);
    }
    let capture_complete = !captured.truncated;
    CanaryObservation {
        marker: marker.to_owned(),
        marker_at_start,
        observed_marker_count,
        foreign_marker_count,
        capture_complete,
        passed: marker_at_start && foreign_marker_count == 0 && capture_complete,
    }
}

/// Observes whether a text is exactly `requested_words` times the word `code`, after its marker where it begins with
/// one (`marker` is `None` when canaries are off; a marker that is not stripped counts as an extra word).
#[must_use]
pub fn controlled_output(
    captured: &CapturedText,
    marker: Option<&str>,
    requested_words: u64,
    strict: bool,
) -> ControlledOutputObservation {
    let body = marker.and_then(|marker| after_marker(&captured.text, marker)).unwrap_or(&captured.text);
    let mut observed_code_words = 0;
    let mut observed_extra_words = 0;
    for word in body.split(is_python_space).filter(|word| !word.is_empty()) {
        *if word == CODE_WORD { &mut observed_code_words } else { &mut observed_extra_words } += 1;
    }
    let capture_complete = !captured.truncated;
    let exact = observed_code_words == requested_words && observed_extra_words == 0;
    let exact_adherence = capture_complete.then_some(exact);
    ControlledOutputObservation {
        requested_words,
        strict,
        observed_code_words,
        observed_extra_words,
        capture_complete,
        exact_adherence,
        passed: !strict || exact_adherence == Some(true),
    }
}

/// What follows the marker at the start of a text; `None` when it does not start with it as a word.
fn after_marker<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(marker)?;
    rest.chars().next().is_none_or(is_python_space).then_some(rest)
}

/// Python's `str.isspace`: Unicode white space and the four information separators U+001C to U+001F.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// All matches of `ANVIL_REQ_-?[0-9]+_[0-9]{5}\b` in a text, from left to right, without overlap.
struct Markers<'a>(&'a str);

impl<'a> Iterator for Markers<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let start = self.0.find(MARKER_STEM)?;
            let found = self.0.get(start..)?;
            if let Some(length) = marker_length(found) {
                let (marker, rest) = found.split_at_checked(length)?;
                self.0 = rest;
                return Some(marker);
            }
            // A match may begin inside what did not match, but not before the next stem.
            self.0 = found.get(MARKER_STEM.len()..)?;
        }
    }
}

/// Length of the marker at the start of a text.
fn marker_length(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(MARKER_STEM)?;
    let rest = rest.strip_prefix('-').unwrap_or(rest);
    let after_seed = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    if after_seed.len() == rest.len() {
        return None;
    }
    let index = after_seed.strip_prefix('_')?;
    let digits = index.chars().take_while(char::is_ascii_digit).take(MARKER_INDEX_DIGITS).count();
    let after = index.get(digits..)?;
    // \b after a digit: no word character follows.
    let ends_a_word = after.chars().next().is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
    (digits == MARKER_INDEX_DIGITS && ends_a_word).then(|| text.len() - after.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> CapturedText {
        CapturedText { text: text.to_owned(), truncated: false }
    }

    const OWN: &str = "ANVIL_REQ_0_00001";

    #[test]
    fn a_marker_at_the_start() {
        for (answer, at_start, observed, foreign) in [
            ("ANVIL_REQ_0_00001", true, 1, 0),
            ("ANVIL_REQ_0_00001 code", true, 1, 0),
            ("ANVIL_REQ_0_00001\ncode", true, 1, 0),
            ("ANVIL_REQ_0_00001\u{1f}code", true, 1, 0),
            ("ANVIL_REQ_0_00001\u{2003}code", true, 1, 0),
            ("ANVIL_REQ_0_00001: code", false, 1, 0),
            ("\nANVIL_REQ_0_00001 code", false, 1, 0),
            ("ANVIL_REQ_0_000012 code", false, 0, 0),
            ("ANVIL_REQ_0_00001_ code", false, 0, 0),
            ("ANVIL_REQ_0_00001é", false, 0, 0),
            ("ANVIL_REQ_0_00001 ANVIL_REQ_0_00002", true, 2, 1),
            ("ANVIL_REQ_0_00001 ANVIL_REQ_0_00001", true, 2, 0),
            ("ANVIL_REQ_0_00001 ANVIL_REQ_-7_00001.", true, 2, 1),
            ("ANVIL_REQ_0_00001 ANVIL_REQ__00001 ANVIL_REQ_0_0001 ANVIL_REQ_x_00001", true, 1, 0),
            ("ANVIL_REQ_ANVIL_REQ_0_00001", false, 1, 0),
            ("ANVIL_REQ_0_00002 code", false, 1, 1),
            ("anvil_req_0_00001 code", false, 0, 0),
            ("", false, 0, 0),
        ] {
            let seen = canary(&text(answer), OWN);
            assert_eq!(
                (seen.marker_at_start, seen.observed_marker_count, seen.foreign_marker_count),
                (at_start, observed, foreign),
                "{answer:?}"
            );
            assert_eq!(seen.passed, at_start && foreign == 0, "{answer:?}");
            assert_eq!(seen.marker, OWN);
        }
    }

    #[test]
    fn a_truncated_capture_fails_the_canary_and_leaves_adherence_open() {
        let captured = CapturedText { text: format!("{OWN} code code"), truncated: true };
        let seen = canary(&captured, OWN);
        assert!(seen.marker_at_start && !seen.capture_complete && !seen.passed);
        let seen = controlled_output(&captured, Some(OWN), 2, true);
        assert_eq!((seen.exact_adherence, seen.passed, seen.capture_complete), (None, false, false));
        assert!(controlled_output(&captured, Some(OWN), 2, false).passed);
    }

    #[test]
    fn six_digit_indices_have_markers_that_the_search_does_not_find() {
        let own = marker(0, 123_456);
        assert_eq!(own, "ANVIL_REQ_0_123456");
        let seen = canary(&text(&own), &own);
        assert!(seen.passed);
        assert_eq!(seen.observed_marker_count, 0);
    }

    #[test]
    fn words_are_counted_after_the_marker() {
        for (answer, marker, code, extra) in [
            ("ANVIL_REQ_0_00001 code code", Some(OWN), 2, 0),
            ("ANVIL_REQ_0_00001\n\n code\tcode ", Some(OWN), 2, 0),
            ("ANVIL_REQ_0_00001", Some(OWN), 0, 0),
            ("ANVIL_REQ_0_00001: code code", Some(OWN), 2, 1),
            ("code code", Some(OWN), 2, 0),
            ("ANVIL_REQ_0_00001 code code", None, 2, 1),
            ("code Code code. codes", None, 1, 3),
            ("code\u{1c}code\u{a0}code\u{200b}code", None, 2, 1),
            ("", None, 0, 0),
        ] {
            let seen = controlled_output(&text(answer), marker, 2, true);
            assert_eq!((seen.observed_code_words, seen.observed_extra_words), (code, extra), "{answer:?}");
            let exact = code == 2 && extra == 0;
            assert_eq!((seen.exact_adherence, seen.passed), (Some(exact), exact), "{answer:?}");
            assert!(controlled_output(&text(answer), marker, 2, false).passed);
        }
    }
}
