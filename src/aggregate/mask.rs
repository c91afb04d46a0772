//! Keeps secrets out of what a server says: a peer may send our own key back in an error, and errors are stored.

use crate::record::ErrorDetail;

/// What stands in a secret's place.
const MASK: &str = "[masked]";

/// Shorter values are left alone: a header value such as `prod` is a word of ordinary messages, and a secret of five
/// characters is none.
const MIN_SECRET_CHARS: usize = 6;

/// Secrets to look for.
#[derive(Debug, Clone, Default)]
pub struct Mask {
    secrets: Vec<String>,
}

impl Mask {
    /// Looks for these values in every spelling, the longest first, so that a value that contains another
    /// is masked whole.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let secret = |value: &String| value.chars().count() >= MIN_SECRET_CHARS;
        let mut secrets: Vec<String> = values.into_iter().filter(secret).flat_map(spellings).collect();
        secrets.sort_by_key(|value| std::cmp::Reverse(value.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// Masks every secret in every text of a detail.
    pub fn apply(&self, detail: &mut ErrorDetail) {
        self.text(&mut detail.message);
        let optional =
            [&mut detail.code, &mut detail.error_type, &mut detail.retry_after, &mut detail.location];
        optional.into_iter().flatten().for_each(|text| self.text(text));
        let before = String::from_utf8_lossy(&detail.body_start).into_owned();
        let mut after = before.clone();
        self.text(&mut after);
        if after != before {
            detail.body_start = after.into_bytes();
        }
    }

    /// Masks every secret in a text.
    pub fn text(&self, text: &mut String) {
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), MASK);
            }
        }
        self.cut_end(text);
    }

    /// Texts are bounded before they get here, and the bound may have cut a secret: what the text ends with, before an
    /// ellipsis, must be no beginning of one.
    fn cut_end(&self, text: &mut String) {
        let kept = text.trim_end_matches('…');
        let ends_with_start_of = |secret: &String| {
            let starts = secret.char_indices().map(|(at, _)| at).skip(MIN_SECRET_CHARS);
            starts.filter(|at| secret.get(..*at).is_some_and(|start| kept.ends_with(start))).last()
        };
        let Some(cut) = self.secrets.iter().filter_map(ends_with_start_of).max() else { return };
        let end = kept.len() - cut;
        text.truncate(end);
        text.push_str(MASK);
    }
}

/// How a server may write a value: as it is, in a JSON string (RFC 8259 section 7) with and without an escaped solidus,
/// and percent-encoded in a path or a query (RFC 3986 section 2.1). A value of letters and digits has one spelling.
fn spellings(value: String) -> Vec<String> {
    let json = json_escaped(&value);
    let mut all = vec![json.replace('/', "\\/"), json];
    for solidus_kept in [false, true] {
        let upper = percent_encoded(&value, solidus_kept);
        all.extend([upper.to_ascii_lowercase_hex(), upper.0]);
    }
    all.push(value.replace(' ', "+"));
    all.push(value);
    all.sort_unstable();
    all.dedup();
    all
}

fn json_escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\t' => out.push_str("\\t"),
            _ => out.push(c),
        }
    }
    out
}

/// A percent-encoded text with hexadecimal digits in upper case.
struct PercentEncoded(String);

fn percent_encoded(value: &str, solidus_kept: bool) -> PercentEncoded {
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b) || (solidus_kept && b == b'/');
    let encode = |b: u8| if unreserved(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    PercentEncoded(value.bytes().map(encode).collect())
}

impl PercentEncoded {
    /// The same with digits in lower case. A percent sign stands only before two digits here.
    fn to_ascii_lowercase_hex(&self) -> String {
        let mut digits = 0;
        let lower = |c: char| {
            let is_digit = digits > 0;
            digits = if c == '%' { 2 } else { digits - i32::from(is_digit) };
            if is_digit { c.to_ascii_lowercase() } else { c }
        };
        self.0.chars().map(lower).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_wherever_a_server_puts_it() {
        let mask = Mask::new(["sk-12345678".to_owned(), "Bearer sk-12345678".to_owned(), "prod".to_owned()]);
        let mut detail = ErrorDetail {
            message: "no such key: sk-12345678 in prod".to_owned(),
            code: Some("sk-12345678".to_owned()),
            error_type: Some("auth".to_owned()),
            location: Some("/login?key=sk-12345678".to_owned()),
            retry_after: Some("sk-12345678".to_owned()),
            body_start: b"{\"authorization\":\"Bearer sk-12345678\",\"x\":\"\xff\"}".to_vec(),
            offset: Some(3),
        };
        mask.apply(&mut detail);
        assert_eq!(detail.message, "no such key: [masked] in prod");
        assert_eq!(detail.body_start, "{\"authorization\":\"[masked]\",\"x\":\"\u{fffd}\"}".as_bytes());
        assert!(!format!("{detail:?}").contains("sk-"));
        assert_eq!((detail.error_type.as_deref(), detail.offset), (Some("auth"), Some(3)));
    }

    #[test]
    fn a_secret_is_masked_in_every_spelling() {
        let mask = Mask::new(["sk-a+b/c=\"d e\\f".to_owned()]);
        for spelled in [
            r#"sk-a+b/c="d e\f"#,
            r#"sk-a+b/c=\"d e\\f"#,
            r#"sk-a+b\/c=\"d e\\f"#,
            "sk-a%2Bb%2Fc%3D%22d%20e%5Cf",
            "sk-a%2bb%2fc%3d%22d%20e%5cf",
            "sk-a%2Bb/c%3D%22d%20e%5Cf",
        ] {
            let mut text = format!("key {spelled} is unknown");
            mask.text(&mut text);
            assert_eq!(text, "key [masked] is unknown", "{spelled}");
        }
        assert_eq!(spellings("sk-12345678".to_owned()), ["sk-12345678"]);
    }

    #[test]
    fn a_secret_that_a_bound_has_cut_is_masked_too() {
        let mask = Mask::new(["sk-12345678".to_owned()]);
        for (text, masked) in [
            ("key sk-1234567", "key [masked]"),
            ("key sk-12345…", "key [masked]"),
            ("key sk-12", "key sk-12"),
            ("key sk-123456 is", "key sk-123456 is"),
            ("sk-12345678 and sk-1234", "[masked] and [masked]"),
        ] {
            let mut text = text.to_owned();
            mask.text(&mut text);
            assert_eq!(text, masked);
        }
    }

    #[test]
    fn what_holds_no_secret_is_left_as_it_is() {
        let mut detail = ErrorDetail { body_start: vec![0xff, 0xfe], ..ErrorDetail::default() };
        Mask::new(["sk-12345678".to_owned()]).apply(&mut detail);
        Mask::default().apply(&mut detail);
        assert_eq!(detail.body_start, [0xff, 0xfe]);
    }
}
