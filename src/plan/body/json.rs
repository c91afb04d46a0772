//! Texts and numbers as Python's `json.dumps` writes them.

use std::fmt::Write as _;

/// A JSON string as `json.dumps` writes it: everything but printable ASCII is escaped.
pub(super) fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
    out
}

/// A finite double as Python's `repr` writes it: shortest digits, always a float, exponents signed and of two digits.
pub(super) fn float(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |e| ("-", e));
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_those_of_python() {
        for (value, text) in
            [(0.0, "0.0"), (1.0, "1.0"), (0.7, "0.7"), (0.0001, "0.0001"), (0.00001, "1e-05")]
        {
            assert_eq!(float(value), text);
        }
        assert_eq!(float(1.5e-10), "1.5e-10");
        assert_eq!(float(5e-324), "5e-324");
        assert_eq!(float(1e16), "1e+16");
    }

    #[test]
    fn strings_are_escaped_to_ascii() {
        assert_eq!(string("a\"b\\c/\n\t\r\u{8}\u{c}"), r#""a\"b\\c/\n\t\r\b\f""#);
        assert_eq!(string("\0\u{1f}\u{7f}\u{80}é😀"), r#""\u0000\u001f\u007f\u0080\u00e9\ud83d\ude00""#);
    }
}
