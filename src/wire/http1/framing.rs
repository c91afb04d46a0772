//! Where the body of a response ends: RFC 9112 6.3, decided from the head's fields.

use super::error::HttpError;
use super::grammar::{list_members, trim};
use super::request::Method;
use crate::record::{Anomalies, Anomaly};

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is no body, whatever the fields say: an answer to HEAD, 1xx, 204, 304, or 2xx to CONNECT.
    None,
    /// So many bytes.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// The peer closes.
    UntilEof,
}

impl Framing {
    /// The name in documents and case files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Length(_) => "length",
            Self::Chunked => "chunked",
            Self::UntilEof => "eof",
        }
    }
}

/// The verdict on a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) framing: Framing,
    /// The framing itself rules out that the connection is used again.
    pub(super) must_close: bool,
    /// A transfer coding other than chunked and identity is left on the body.
    pub(super) coded: bool,
}

/// Collects `Transfer-Encoding` and `Content-Length` in the order of the fields.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    transfer_encoding: Option<usize>,
    chunked: u32,
    chunked_is_last: bool,
    chunked_with_parameters: bool,
    other: bool,
    coded: bool,
    length: Option<Length>,
}

#[derive(Debug, Clone, Copy)]
struct Length {
    /// The first value that was read, or what is wrong with the values.
    value: Result<u64, HttpError>,
    /// The field to blame.
    field: usize,
    values: u32,
}

impl Facts {
    /// Adds the value of a `Transfer-Encoding` field.
    pub(super) fn add_transfer_encoding(&mut self, field: usize, value: &[u8]) {
        self.transfer_encoding.get_or_insert(field);
        for coding in list_members(value) {
            let mut parts = coding.splitn(2, |&b| b == b';');
            let name = trim(parts.next().unwrap_or_default());
            let chunked = name.eq_ignore_ascii_case(b"chunked");
            self.chunked_is_last = chunked;
            if chunked {
                self.chunked += 1;
                self.chunked_with_parameters |= parts.next().is_some();
            } else {
                self.other = true;
                self.coded |= !name.eq_ignore_ascii_case(b"identity");
            }
        }
    }

    /// Adds the value of a `Content-Length` field; a list counts as that many fields (RFC 9110 8.6).
    pub(super) fn add_content_length(&mut self, field: usize, value: &[u8]) {
        for text in value.split(|&b| b == b',').map(trim) {
            let read = read_length(text);
            let Some(length) = &mut self.length else {
                self.length = Some(Length { value: read, field, values: 1 });
                continue;
            };
            length.values = length.values.saturating_add(1);
            let Ok(first) = length.value else { continue };
            let broken = match read {
                Ok(same) if same == first => continue,
                Ok(_) => HttpError::ContentLengthDiffers,
                Err(error) => error,
            };
            (length.value, length.field) = (Err(broken), field);
        }
    }

    /// Decides, for the answer to `method`. The error comes with the number of the field to blame.
    pub(super) fn decide(
        &self,
        method: Method,
        status: u16,
        minor_version: u8,
        anomalies: &mut Anomalies,
    ) -> Result<Verdict, (HttpError, usize)> {
        let tunnel = method == Method::Connect && (200..300).contains(&status);
        if method == Method::Head || tunnel || matches!(status, 204 | 304) {
            return Ok(Verdict { framing: Framing::None, must_close: false, coded: false });
        }
        if let Some(field) = self.transfer_encoding {
            return self.decide_coded(field, minor_version, anomalies);
        }
        let Some(length) = self.length else {
            return Ok(Verdict { framing: Framing::UntilEof, must_close: true, coded: false });
        };
        let bytes = length.value.map_err(|error| (error, length.field))?;
        if length.values > 1 {
            anomalies.insert(Anomaly::ContentLengthRepeated);
        }
        Ok(Verdict { framing: Framing::Length(bytes), must_close: false, coded: false })
    }

    fn decide_coded(
        &self,
        field: usize,
        minor_version: u8,
        anomalies: &mut Anomalies,
    ) -> Result<Verdict, (HttpError, usize)> {
        if self.chunked > 1 {
            return Err((HttpError::ChunkedTwice, field));
        }
        if self.chunked_with_parameters {
            return Err((HttpError::ChunkedParameters, field));
        }
        let both = self.length.is_some();
        if both {
            anomalies.insert(Anomaly::TransferEncodingAndContentLength);
        }
        let old = minor_version == 0;
        if old {
            anomalies.insert(Anomaly::TransferEncodingInHttp10);
        }
        if !self.chunked_is_last {
            anomalies.insert(Anomaly::ChunkedNotLast);
            let coded = self.coded || self.chunked > 0;
            return Ok(Verdict { framing: Framing::UntilEof, must_close: true, coded });
        }
        if self.other {
            anomalies.insert(Anomaly::OtherCodingBeforeChunked);
        }
        Ok(Verdict { framing: Framing::Chunked, must_close: both || old, coded: self.coded })
    }
}

/// 1*DIGIT in 64 bits.
fn read_length(text: &[u8]) -> Result<u64, HttpError> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(HttpError::ContentLengthNotDigits);
    }
    text.iter()
        .try_fold(0u64, |value, &b| value.checked_mul(10)?.checked_add(u64::from(b - b'0')))
        .ok_or(HttpError::ContentLengthOverflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Decision = (Result<Verdict, (HttpError, usize)>, Vec<Anomaly>);

    fn decide(fields: &[(&str, &str)], minor_version: u8) -> Decision {
        let mut facts = Facts::default();
        for (i, (name, value)) in fields.iter().enumerate() {
            match *name {
                "te" => facts.add_transfer_encoding(i, value.as_bytes()),
                "cl" => facts.add_content_length(i, value.as_bytes()),
                _ => unreachable!(),
            }
        }
        let mut anomalies = Anomalies::NONE;
        let verdict = facts.decide(Method::Post, 200, minor_version, &mut anomalies);
        (verdict, anomalies.iter().collect())
    }

    fn framing(fields: &[(&str, &str)]) -> Framing {
        decide(fields, 1).0.unwrap().framing
    }

    #[test]
    fn lengths_are_digits_in_64_bits_and_agree() {
        assert_eq!(framing(&[("cl", "0")]), Framing::Length(0));
        assert_eq!(framing(&[("cl", "007")]), Framing::Length(7));
        assert_eq!(framing(&[("cl", "18446744073709551615")]), Framing::Length(u64::MAX));
        assert_eq!(decide(&[("cl", "2, 2"), ("cl", "02")], 1).1, [Anomaly::ContentLengthRepeated]);
        for (fields, error, field) in [
            (&[("cl", "18446744073709551616")][..], HttpError::ContentLengthOverflow, 0),
            (&[("cl", "")], HttpError::ContentLengthNotDigits, 0),
            (&[("cl", "2,")], HttpError::ContentLengthNotDigits, 0),
            (&[("cl", "2"), ("cl", "-2")], HttpError::ContentLengthNotDigits, 1),
            (&[("cl", "2"), ("cl", "2"), ("cl", "3"), ("cl", "x")], HttpError::ContentLengthDiffers, 2),
        ] {
            assert_eq!(decide(fields, 1).0, Err((error, field)), "{fields:?}");
        }
    }

    #[test]
    fn the_last_coding_decides() {
        assert_eq!(framing(&[("te", "CHUNKED")]), Framing::Chunked);
        assert_eq!(framing(&[("te", "gzip"), ("te", "chunked")]), Framing::Chunked);
        assert_eq!(framing(&[("te", "chunked"), ("te", "gzip")]), Framing::UntilEof);
        assert_eq!(framing(&[("te", "x;a=\",\", chunked")]), Framing::Chunked);
        assert_eq!(framing(&[("te", "")]), Framing::UntilEof);
        assert_eq!(decide(&[("te", "chunked"), ("te", "chunked")], 1).0, Err((HttpError::ChunkedTwice, 0)));
        assert_eq!(decide(&[("te", "gzip, chunked ; q=1")], 1).0, Err((HttpError::ChunkedParameters, 0)));
    }

    #[test]
    fn only_chunked_and_identity_leave_the_body_plain() {
        let coded = |value| decide(&[("te", value)], 1).0.unwrap().coded;
        assert!(!coded("chunked"));
        assert!(!coded("identity, chunked"));
        assert!(coded("gzip, chunked"));
        assert!(!coded("identity"), "old servers say so of plain bodies");
        assert!(coded("chunked, identity"), "chunk lines stay in the body");
        assert!(coded("\"chunked\""));
    }

    #[test]
    fn chunked_beside_a_length_or_in_http_1_0_closes() {
        let (verdict, anomalies) = decide(&[("cl", "x"), ("te", "chunked")], 1);
        assert_eq!(verdict, Ok(Verdict { framing: Framing::Chunked, must_close: true, coded: false }));
        assert_eq!(anomalies, [Anomaly::TransferEncodingAndContentLength]);
        let (verdict, anomalies) = decide(&[("te", "chunked")], 0);
        assert_eq!(verdict, Ok(Verdict { framing: Framing::Chunked, must_close: true, coded: false }));
        assert_eq!(anomalies, [Anomaly::TransferEncodingInHttp10]);
    }

    #[test]
    fn some_answers_have_no_body() {
        let mut facts = Facts::default();
        facts.add_content_length(0, b"nonsense");
        let mut anomalies = Anomalies::NONE;
        for (method, status) in [
            (Method::Head, 200),
            (Method::Head, 500),
            (Method::Post, 204),
            (Method::Get, 304),
            (Method::Connect, 200),
        ] {
            let verdict = facts.decide(method, status, 1, &mut anomalies);
            assert_eq!(verdict.unwrap().framing, Framing::None, "{method:?} {status}");
        }
        assert!(facts.decide(Method::Connect, 407, 1, &mut anomalies).is_err());
        assert!(anomalies.is_empty());
    }
}
