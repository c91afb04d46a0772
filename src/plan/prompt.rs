//! The reference's prompts: filler that looks like source code around a shared prefix, a unique header and a tail
//! that asks for the answer. Byte for byte as the reference writes them (its published hashes are the test).
//!
//! A prompt is laid out first ([`Layout`], a few numbers and two short texts) and written second, straight into its
//! JSON escape when wanted: prompts are ASCII without quotes or backslashes, so the line end is the only character
//! that JSON escapes, and the escaped length is known before a byte is written. It does not tokenize: the budget is
//! the reference's fixed three characters per token.

use std::fmt::Write as _;

/// The reference's estimate of characters per token. Real tokenizers see about 4.05 on this text, so prompts come
/// out a quarter shorter than planned; the artifact's readers know that, and other numbers would not compare.
pub const CHARS_PER_TOKEN: u64 = 3;

/// What all prompts of a run have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    /// A header of its own in front of every prompt, so that no two share a prefix.
    pub(super) unique: bool,
    /// Estimated tokens of the shared prefix; 0 with `unique`.
    pub(super) shared_prefix_tokens: u64,
    /// The seed in the canary markers, when markers are asked for.
    pub(super) canary_seed: Option<i64>,
    /// Words of controlled output, 0 for none.
    pub(super) response_words: u64,
}

/// How line ends are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// As the model sees it.
    Plain,
    /// As it stands inside a JSON string.
    Json,
}

/// The marker that the answer to request `index` must begin with.
#[must_use]
pub fn canary_marker(seed: i64, index: u64) -> String {
    format!("ANVIL_REQ_{seed}_{index:05}")
}

/// The context has no room for the tail, which is always kept whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooSmall {
    /// Tokens that the context needs at least.
    pub(super) needed_tokens: u64,
}

/// One prompt, before it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    index: u64,
    header: String,
    shared_chars: u64,
    /// Characters of own filler after a line end; `None` when prefix and tail use up the budget.
    filler_chars: Option<u64>,
    tail: String,
}

impl Recipe {
    /// Lays out the prompt of request `index` within `tokens` estimated tokens.
    ///
    /// # Errors
    /// [`TooSmall`] when the tail alone does not fit.
    pub(super) fn layout(&self, index: u64, tokens: u64) -> Result<Layout, TooSmall> {
        let total = tokens.saturating_mul(CHARS_PER_TOKEN);
        let marker = self.canary_seed.map(|seed| canary_marker(seed, index));
        let tail = self.tail(index, marker.as_deref());
        let tail_chars = chars(&tail);
        if total <= tail_chars {
            return Err(TooSmall { needed_tokens: tail_chars / CHARS_PER_TOKEN + 1 });
        }
        let mut header = match (self.unique, marker) {
            (false, _) => String::new(),
            (true, Some(marker)) => format!("# unique benchmark request {marker}\n"),
            (true, None) => format!("# unique benchmark request {index}\n"),
        };
        let shared = if self.unique { 0 } else { self.shared_prefix_tokens.saturating_mul(CHARS_PER_TOKEN) };
        let prefix = chars(&header).saturating_add(shared);
        let room = total - tail_chars;
        // One character goes to the line end between prefix and filler.
        if room > prefix.saturating_add(1) {
            let filler_chars = Some(room - prefix - 1);
            return Ok(Layout { index, header, shared_chars: shared, filler_chars, tail });
        }
        header.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let shared_chars = shared.min(room - chars(&header));
        Ok(Layout { index, header, shared_chars, filler_chars: None, tail })
    }

    fn tail(&self, index: u64, marker: Option<&str>) -> String {
        let mut tail = format!("\n# request {index}:");
        if let Some(marker) = marker {
            let _ = write!(tail, " Begin with the exact marker {marker}, followed by one space.");
        }
        match (self.response_words, marker) {
            (0, None) => tail.push_str(" summarize the above in one line."),
            (0, Some(_)) => tail.push_str(" Summarize the above in one line."),
            (words, _) => {
                let _ = write!(
                    tail,
                    " Then emit exactly {words} repetitions of the lowercase word code, separated by single \
                     spaces. Do not add other text and do not stop early."
                );
            }
        }
        tail
    }
}

impl Layout {
    /// Characters of the prompt.
    #[must_use]
    pub(super) fn chars(&self) -> u64 {
        let filler = self.filler_chars.map_or(0, |n| n + 1);
        chars(&self.header) + self.shared_chars + filler + chars(&self.tail)
    }

    /// Bytes that [`Layout::write`] appends.
    #[must_use]
    pub(super) fn bytes(&self, line_end: LineEnd) -> u64 {
        match line_end {
            LineEnd::Plain => self.chars(),
            LineEnd::Json => {
                let own = self.filler_chars.map_or(0, |n| 1 + line_ends(self.index, n));
                let texts = [&self.header, &self.tail].map(|t| u64::from(t.contains('\n')));
                self.chars() + own + line_ends(0, self.shared_chars) + texts.iter().sum::<u64>()
            }
        }
    }

    /// Appends the prompt.
    pub(super) fn write(&self, out: &mut Vec<u8>, line_end: LineEnd) {
        push_text(out, self.header.as_bytes(), line_end);
        push_filler(out, 0, self.shared_chars, line_end);
        if let Some(n) = self.filler_chars {
            push_text(out, b"\n", line_end);
            push_filler(out, self.index, n, line_end);
        }
        push_text(out, self.tail.as_bytes(), line_end);
    }
}

impl LineEnd {
    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Plain => b"\n",
            Self::Json => b"\\n",
        }
    }
}

// A filler line k with offset o is two lines of source text: FIRST (o + k) MIDDLE, line end, SECOND (k) LAST, line end.
const FIRST: &[u8] = b"def helper_";
const MIDDLE: &[u8] = b"():";
const SECOND: &[u8] = b"    return compute(";
const LAST: &[u8] = b")  # routine specialist context";
/// Characters of a filler line beside its two numbers, line ends included.
const FIXED_CHARS: u64 = (FIRST.len() + MIDDLE.len() + SECOND.len() + LAST.len() + 2) as u64;

/// Appends the first `n` characters of the filler with this offset.
fn push_filler(out: &mut Vec<u8>, offset: u64, n: u64, line_end: LineEnd) {
    let (mut helper, mut compute) = (Counter::new(offset), Counter::new(0));
    let end = line_end.bytes();
    let mut left = n;
    loop {
        let line = FIXED_CHARS + helper.width() + compute.width();
        if left < line {
            break;
        }
        for piece in [FIRST, helper.digits(), MIDDLE, end, SECOND, compute.digits(), LAST, end] {
            out.extend_from_slice(piece);
        }
        helper.increment();
        compute.increment();
        left -= line;
    }
    for piece in [FIRST, helper.digits(), MIDDLE, b"\n", SECOND, compute.digits(), LAST, b"\n"] {
        let take = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        push_text(out, piece.get(..take).unwrap_or(piece), line_end);
        left -= take as u64;
    }
}

/// Line ends among the first `n` characters of the filler with this offset, without writing it: whole blocks of
/// lines whose two numbers keep their widths, then the line that is cut.
fn line_ends(offset: u64, n: u64) -> u64 {
    let (mut left, mut k, mut ends) = (n, 0_u64, 0_u64);
    loop {
        let (helper, compute) = (width(offset.saturating_add(k)), width(k));
        let line = FIXED_CHARS + helper + compute;
        let same_width = (ten_to(helper) - offset.saturating_add(k)).min(ten_to(compute) - k);
        let lines = same_width.min(left / line);
        ends += 2 * lines;
        left -= lines * line;
        k += lines;
        if lines < same_width {
            // The rest is shorter than a line; it holds the first of the line's two ends or none.
            let to_first_end = (FIRST.len() + MIDDLE.len() + 1) as u64 + helper;
            return ends + u64::from(left >= to_first_end);
        }
    }
}

fn push_text(out: &mut Vec<u8>, text: &[u8], line_end: LineEnd) {
    for part in text.split_inclusive(|b| *b == b'\n') {
        match part.strip_suffix(b"\n") {
            Some(line) => {
                out.extend_from_slice(line);
                out.extend_from_slice(line_end.bytes());
            }
            None => out.extend_from_slice(part),
        }
    }
}

/// Characters of an ASCII text.
const fn chars(ascii: &str) -> u64 {
    ascii.len() as u64
}

/// Decimal digits of a number.
fn width(n: u64) -> u64 {
    u64::from(n.checked_ilog10().unwrap_or(0)) + 1
}

/// The first number wider than `digits`, or the largest there is.
fn ten_to(digits: u64) -> u64 {
    u32::try_from(digits).ok().and_then(|d| 10_u64.checked_pow(d)).unwrap_or(u64::MAX)
}

/// A decimal number that counts up in its own digits: formatting it anew for every line took most of the time of
/// building a prompt.
struct Counter {
    /// Right-aligned ASCII digits.
    digits: [u8; Self::MAX_WIDTH],
    start: usize,
}

impl Counter {
    /// `u64::MAX` has 20 digits; one more, so that counting past it cannot leave the buffer.
    const MAX_WIDTH: usize = 21;

    fn new(mut n: u64) -> Self {
        let mut digits = [b'0'; Self::MAX_WIDTH];
        let mut start = Self::MAX_WIDTH;
        for place in digits.iter_mut().rev() {
            start -= 1;
            *place = b'0' + u8::try_from(n % 10).unwrap_or(0);
            n /= 10;
            if n == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    fn increment(&mut self) {
        for (at, digit) in self.digits.iter_mut().enumerate().rev() {
            if *digit != b'9' {
                *digit += 1;
                self.start = self.start.min(at);
                return;
            }
            *digit = b'0';
        }
    }

    fn digits(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or(&[])
    }

    const fn width(&self) -> u64 {
        (Self::MAX_WIDTH - self.start) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::{Digest as _, Sha256};

    use super::*;

    const PLAIN: Recipe =
        Recipe { unique: false, shared_prefix_tokens: 0, canary_seed: None, response_words: 0 };

    fn text(recipe: &Recipe, index: u64, tokens: u64) -> String {
        let mut out = Vec::new();
        recipe.layout(index, tokens).unwrap().write(&mut out, LineEnd::Plain);
        String::from_utf8(out).unwrap()
    }

    fn hash(recipe: &Recipe, index: u64, tokens: u64) -> String {
        let digest = Sha256::digest(text(recipe, index, tokens));
        digest.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn prompts_without_prefix_have_the_published_hashes() {
        // The reference's own prompt-equivalence vectors: (context, index).
        for (tokens, index, want) in [
            (4_096, 0, "e3b70456eb65868e323771562466cd399682ad1dbb795259228e0614cbb51acc"),
            (4_096, 1, "d410697d70b485f192569b27257277c163088d0053ddcfb8519b6118f3fee8d8"),
            (4_096, 2, "df16820b1884ab5fa9d528ff4326c25c9876462ed7842306ef11e25fb98e1351"),
            (120_000, 0, "7d3f9682e9c49e0c04f1afc754bbbaacd0245e94ff83ff71481ce0ab5d6f5e09"),
            (262_144, 0, "528ccc39eb0f0eeb9e1ab29248373fa3c826eea355b552ea14f491055ab63f7c"),
            (380_000, 0, "1bbb3aa142b7d80822da9e82da5bbdc5bef9bfcfcbc8f82025b709d683f1cb5e"),
        ] {
            assert_eq!(hash(&PLAIN, index, tokens), want, "{tokens}/{index}");
        }
    }

    #[test]
    fn the_seed_artifacts_prompts_have_the_published_hashes() {
        let recipe = Recipe { unique: true, canary_seed: Some(0), response_words: 64, ..PLAIN };
        for (index, want) in [
            (0, "62b66063630ae37b4e2d78a3cfd1ba0ba82bfc9c9ec8460056d4fa2654f8e096"),
            (1, "69ddd70fe2f7fe04d5939827865555048229cc12e1e61c03a49fbf43e33068cc"),
            (2, "8042257093d3b4da9e8cc9ba01977dcc152957866dc19dbfd7e29b3b9477e6cd"),
            (3, "d6b7da524823dfe1d67f9c72797cc70b23ec206d07c20f79da797274a326c08e"),
        ] {
            assert_eq!(hash(&recipe, index, 8_192), want, "{index}");
            assert_eq!(text(&recipe, index, 8_192).len(), 24_576);
        }
    }

    #[test]
    fn the_other_branches_have_the_published_hashes() {
        let unique = Recipe { unique: true, ..PLAIN };
        let shared = Recipe { shared_prefix_tokens: 1_000, ..PLAIN };
        let marked = Recipe { canary_seed: Some(7), ..shared };
        let long = Recipe { shared_prefix_tokens: 8_000, ..PLAIN };
        for (recipe, index, want) in [
            (&unique, 5, "9b998238a5aa09ea3c1e83ac982c0108af82d0388f1771bf14745211d8ad2c1e"),
            (&shared, 5, "53c25845555f174dc72fc7e81f03bec8bd0c71bec91670327a5c50439c2ceabb"),
            (&marked, 5, "e351028e9b2544c48e638841ea51d09260d9472d56321141e94865c83d046e0c"),
            (&long, 0, "3dd6475e918b2d66e969e0e0344f93f706a174fcdd74cb6b01b062bdf99ad5fd"),
        ] {
            assert_eq!(hash(recipe, index, 4_096), want, "{recipe:?}");
        }
    }

    #[test]
    fn unique_prompts_differ_from_their_first_line_on_and_shared_ones_do_not() {
        let unique = Recipe { unique: true, ..PLAIN };
        assert!(text(&unique, 3, 64).starts_with("# unique benchmark request 3\n\ndef helper_3():\n"));
        let shared = Recipe { shared_prefix_tokens: 40, ..PLAIN };
        let (a, b) = (text(&shared, 0, 512), text(&shared, 1, 512));
        assert_eq!(a[..120], b[..120]);
        assert_ne!(a[120..140], b[120..140]);
        // The prefix alone uses up the context: only the tail tells the prompts apart.
        let (a, b) = (text(&shared, 0, 40), text(&shared, 1, 40));
        assert_eq!(a[..70], b[..70]);
        assert_eq!(a.replace("# request 0:", "# request 1:"), b);
    }

    #[test]
    fn a_context_without_room_for_its_tail_says_what_it_needs() {
        let Err(TooSmall { needed_tokens }) = PLAIN.layout(0, 15) else {
            panic!("45 characters fit no tail")
        };
        assert!(PLAIN.layout(0, needed_tokens).is_ok());
        assert!(PLAIN.layout(0, needed_tokens - 1).is_err());
        assert!(PLAIN.layout(0, 0).is_err());
    }

    #[test]
    fn markers_have_five_digits_and_the_sign() {
        assert_eq!(canary_marker(0, 3), "ANVIL_REQ_0_00003");
        assert_eq!(canary_marker(-3, 12_345), "ANVIL_REQ_-3_12345");
    }

    fn recipes() -> impl Strategy<Value = Recipe> {
        (any::<bool>(), 0_u64..400, proptest::option::of(-9_i64..99), prop_oneof![Just(0), 1_u64..999])
            .prop_map(|(unique, shared_prefix_tokens, canary_seed, response_words)| Recipe {
                unique,
                shared_prefix_tokens,
                canary_seed,
                response_words,
            })
    }

    proptest! {
        #[test]
        fn the_lengths_are_known_before_writing(recipe in recipes(), index in 0_u64..20_000, tokens in 1_u64..3_000) {
            let Ok(layout) = recipe.layout(index, tokens) else {
                prop_assert!(tokens < 100);
                return Ok(());
            };
            for end in [LineEnd::Plain, LineEnd::Json] {
                let mut out = Vec::new();
                layout.write(&mut out, end);
                prop_assert_eq!(out.len() as u64, layout.bytes(end));
            }
            // The reference loses one character when prefix and tail leave room for the line end alone.
            prop_assert!((tokens * 3 - layout.chars()) <= 1);
        }

        #[test]
        fn line_ends_are_counted_across_every_change_of_width(
            offset in prop_oneof![0_u64..12, 90_u64..1_100, 99_000_u64..101_000], n in 0_u64..90_000
        ) {
            let mut out = Vec::new();
            push_filler(&mut out, offset, n, LineEnd::Plain);
            prop_assert_eq!(out.len() as u64, n);
            let counted = out.iter().filter(|b| **b == b'\n').count() as u64;
            prop_assert_eq!(line_ends(offset, n), counted);
        }

        #[test]
        fn the_escaped_prompt_is_the_json_of_the_plain_one(recipe in recipes(), index in 0_u64..200, tokens in 100_u64..600) {
            let layout = recipe.layout(index, tokens).unwrap();
            let (mut plain, mut json) = (Vec::new(), vec![b'"']);
            layout.write(&mut plain, LineEnd::Plain);
            layout.write(&mut json, LineEnd::Json);
            json.push(b'"');
            let read: String = serde_json::from_slice(&json).unwrap();
            prop_assert_eq!(read.as_bytes(), plain.as_slice());
        }
    }
}
