//! Keeps secrets out of what is written down: a peer may send our own key back in an error, and errors are stored; a user
//! may have typed the key in a second place, and what was typed is echoed.

use crate::record::ErrorDetail;

/// What stands in a secret's place.
const MASK: &str = "[masked]";

/// What stands in the place of a value that is a credential by its name.
pub const NAMED_MASK: &str = "***";

/// Parts of parameter names whose values are credentials on some gateway (`api-key`, `access_token`, `sig`, …).
const CREDENTIAL_WORDS: [&str; 8] = ["key", "token", "secret", "sig", "pass", "auth", "cred", "code"];

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

    /// Masks every secret in every text of a detail, and the credentials of others in the place a redirect points to.
    pub fn apply(&self, detail: &mut ErrorDetail) {
        if let Some(location) = &mut detail.location {
            *location = link(location);
        }
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

    /// Masks every secret in a text of a peer's, also one that a bound has cut.
    pub fn text(&self, text: &mut String) {
        self.whole(text);
        self.cut_end(text);
    }

    /// Masks every secret in a text that nothing has cut.
    pub fn whole(&self, text: &mut String) {
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), MASK);
            }
        }
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

/// A path whose query shows no credentials.
#[must_use]
pub fn query(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    format!("{path}?{}", pairs(query))
}

/// A link (RFC 3986) that shows no user name, no password, and no credentials in its query and its fragment, where some
/// servers put tokens.
fn link(link: &str) -> String {
    let (rest, fragment) =
        link.split_once('#').map_or((link, None), |(rest, fragment)| (rest, Some(fragment)));
    let mut shown = query(rest);
    let authority = shown.find("//").map(|at| at + 2);
    if let Some((start, after)) = authority.and_then(|start| Some((start, shown.get(start..)?))) {
        let end = after.find(['/', '?']).unwrap_or(after.len());
        if let Some(at) = after.get(..end).and_then(|authority| authority.rfind('@')) {
            shown.replace_range(start..start + at, NAMED_MASK);
        }
    }
    fragment.map_or(shown.clone(), |fragment| format!("{shown}#{}", pairs(fragment)))
}

/// `name=value` pairs without the values of credentials.
fn pairs(query: &str) -> String {
    let mask = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_credential(name) => format!("{name}={NAMED_MASK}"),
        _ => pair.to_owned(),
    };
    query.split('&').map(mask).collect::<Vec<_>>().join("&")
}

/// Whether values of this name are credentials.
#[must_use]
pub fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CREDENTIAL_WORDS.iter().any(|word| name.contains(word))
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
            location: Some("/login?as=sk-12345678".to_owned()),
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
    fn a_query_shows_no_credentials() {
        for (path, shown) in [
            ("/v1/chat/completions", "/v1/chat/completions"),
            ("/chat?api-version=2024-10-21", "/chat?api-version=2024-10-21"),
            ("/chat?api-version=1&API-Key=abc&x", "/chat?api-version=1&API-Key=***&x"),
            ("/chat?access_token=abc", "/chat?access_token=***"),
            ("/chat?key=", "/chat?key="),
            ("/chat?sig=a%3D=b&v=2", "/chat?sig=***&v=2"),
        ] {
            assert_eq!(query(path), shown);
        }
    }

    #[test]
    fn a_link_shows_no_credentials_wherever_it_has_them() {
        for (whole, shown) in [
            ("/v1/chat/completions/", "/v1/chat/completions/"),
            ("https://h/a@b?x=c@d", "https://h/a@b?x=c@d"),
            ("https://user:pass@h/x?api_key=a&v=2", "https://***@h/x?api_key=***&v=2"),
            ("//user@h", "//***@h"),
            ("http://u:p@q@h?n=1", "http://***@h?n=1"),
            ("http://h#access_token=abc&state=1", "http://h#access_token=***&state=1"),
            ("http://u:p@h#x", "http://***@h#x"),
            ("", ""),
        ] {
            assert_eq!(link(whole), shown);
            let mut detail = ErrorDetail { location: Some(whole.to_owned()), ..ErrorDetail::default() };
            Mask::default().apply(&mut detail);
            assert_eq!(detail.location.as_deref(), Some(shown));
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
