//! Python's JSON text: what `json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True)` gives, byte for byte,
//! plus a final line feed. The reference is written that way, and files are compared as bytes.
//!
//! Whole numbers and doubles stay apart (`852` and `852.0`), doubles are Python's `repr`, `-0.0` is kept. Keys come in
//! the order in which the value serializes them: `serde_json` maps are sorted, and the structs of this room declare
//! their fields in order (a test checks it). A number that is not finite is written as `null`, never as `NaN`.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

/// The text of a value, with the final line feed.
///
/// # Errors
/// When the value cannot be serialized (a map key that is no string).
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    to_writer(&mut bytes, value)?;
    // The formatter writes ASCII only.
    String::from_utf8(bytes).map_err(|e| serde::ser::Error::custom(e.utf8_error()))
}

/// Writes the text of a value, with the final line feed.
///
/// # Errors
/// When writing fails, or the value cannot be serialized (a map key that is no string).
pub fn to_writer<W: Write, T: Serialize + ?Sized>(mut writer: W, value: &T) -> serde_json::Result<()> {
    let formatter = Python { pretty: PrettyFormatter::new() };
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut writer, formatter))?;
    writer.write_all(b"\n").map_err(serde_json::Error::io)
}

/// The layout is that of `serde_json`'s pretty printer; doubles and characters differ.
struct Python {
    pretty: PrettyFormatter<'static>,
}

impl Formatter for Python {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(repr(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // Python leaves only ' ' to '~' as they are: 0x7f is escaped too.
        for plain in fragment.split_inclusive(|c: char| !(' '..='~').contains(&c)) {
            let last = plain.chars().next_back().filter(|c| !(' '..='~').contains(c));
            let kept = plain.len() - last.map_or(0, char::len_utf8);
            writer.write_all(plain.as_bytes().get(..kept).unwrap_or_default())?;
            for unit in last.map(|c| c.encode_utf16(&mut [0; 2]).to_vec()).unwrap_or_default() {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.pretty.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.pretty.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.pretty.end_object_value(writer)
    }
}

/// Python's `repr` of a double: the shortest digits that read back as the same double, an exponent below 1e-4 and
/// from 1e16 on, signed and of at least two digits. Rust's `Debug` has the same digits and thresholds.
fn repr(value: f64) -> String {
    let text = format!("{value:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, size) = exponent.strip_prefix('-').map_or(('+', exponent), |size| ('-', size));
    format!("{digits}e{sign}{size:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn doubles_are_pythons_repr() {
        for (value, want) in [
            (852.0, "852.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e-4, "0.0001"),
            (0.000_099_999, "9.9999e-05"),
            (1.5e-7, "1.5e-07"),
            (-1e-300, "-1e-300"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (0.1 + 0.2, "0.30000000000000004"),
        ] {
            assert_eq!(repr(value), want);
        }
    }

    #[test]
    fn layout_and_characters() {
        let value = json!({
            "b": [], "a": {}, "c": [1, -2, 18_446_744_073_709_551_615_u64, 3.0, null, true],
            "d": {"text": "\"\\/\n\r\t\u{8}\u{c}\u{1}\u{1f}~\u{7f}\u{80}é中😀"},
        });
        let want = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    -2,\n    18446744073709551615,\n    3.0,\n    null,\n    true\n  ],\n  \"d\": {\n    \"text\": \"\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u001f~\\u007f\\u0080\\u00e9\\u4e2d\\ud83d\\ude00\"\n  }\n}\n";
        assert_eq!(to_string(&value).unwrap(), want);
    }
}
