//! Response heads: the status line, the fields, and the few facts that a client asks of every head.
//!
//! The status line is judged when its own line is complete, so that a peer that does not speak HTTP is known at
//! its first line; the fields are judged when the empty line has come. What a field means to the layer above
//! (whether a content coding is acceptable, whether to follow `Location`) is not decided here.

use std::fmt;

use super::error::{Fault, HttpError, SizeLimit};
use super::fields::{FieldSection, Line, Refused};
use super::framing::{Facts, Framing};
use super::grammar::{is_space, list_members, strip_line_end, trim};
use super::limits::HEAD_BYTES_MAX;
use super::request::Method;
use super::status_line::{MINOR_VERSION_AT, REASON_AT, StatusLine};
use crate::record::{Anomalies, Anomaly};
use crate::units::Nanos;

/// The version of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// Always 1: other major versions are errors.
    pub major: u8,
    /// As sent; above 1 the response is read as 1.1.
    pub minor: u8,
}

/// The head of the final response. Reached through
/// [`ResponseDecoder::head`](super::ResponseDecoder::head).
#[derive(Debug, Clone)]
pub struct Head {
    pub(super) section: FieldSection,
    progress: Progress,
    minor_version: u8,
    status: u16,
    reason: (usize, usize),
    framing: Framing,
    body_is_coded: bool,
    persistent: bool,
    known: Known,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing but empty lines so far.
    StatusLine,
    Fields,
    Complete,
}

/// What one call of [`Head::read`] reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadStep {
    NeedMore,
    Complete,
}

/// Positions of the fields that are asked for, of the first one where there are several, and facts read from them.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    content_type: Option<usize>,
    content_encoding: Option<usize>,
    retry_after: Option<usize>,
    location: Option<usize>,
    keep_alive_s: Option<i64>,
    close: bool,
    keep_alive: bool,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Head {
    /// The status, three digits: 0 to 999.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The version as sent.
    #[must_use]
    pub fn version(&self) -> Version {
        Version { major: 1, minor: self.minor_version }
    }

    /// The reason phrase as sent, in whatever charset; empty where there is none.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        self.section.bytes(self.reason.0, self.reason.1)
    }

    /// The fields in the order received: names as sent, values without white space around them and with each fold
    /// replaced by one space.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.section.iter()
    }

    /// The value of the first field of that name, in any case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// How the end of the body is found.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether a transfer coding other than chunked and identity is left on the body, which then is not what the
    /// content type says.
    #[must_use]
    pub fn body_is_coded(&self) -> bool {
        self.body_is_coded
    }

    /// `Content-Type`.
    #[must_use]
    pub fn content_type(&self) -> Option<&[u8]> {
        self.section.value_at(self.known.content_type?)
    }

    /// The first `Content-Encoding` that names a coding other than `identity`; `None` when the body is plain.
    #[must_use]
    pub fn content_encoding(&self) -> Option<&[u8]> {
        self.section.value_at(self.known.content_encoding?)
    }

    /// `Retry-After`: seconds or a date, as sent.
    #[must_use]
    pub fn retry_after(&self) -> Option<&[u8]> {
        self.section.value_at(self.known.retry_after?)
    }

    /// `Location`, as sent.
    #[must_use]
    pub fn location(&self) -> Option<&[u8]> {
        self.section.value_at(self.known.location?)
    }

    /// `timeout` of `Keep-Alive`: how long the server keeps an idle connection. `None` where it does not say.
    #[must_use]
    pub fn keep_alive_timeout(&self) -> Option<Nanos> {
        self.known.keep_alive_s.map(Nanos::from_secs)
    }

    /// Whether the connection may be used again once the body has been read (RFC 9112 9.3).
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Whether the head is complete and that of a final response.
    pub(super) fn is_final(&self) -> bool {
        self.progress == Progress::Complete && !(100..200).contains(&self.status)
    }

    /// Where the head begins in the response.
    pub(super) fn offset(&self) -> Option<u64> {
        self.section.offset_of(0)
    }

    /// The bytes of a complete head.
    pub(super) fn raw(&self) -> &[u8] {
        self.section.since(0)
    }

    pub(super) fn new() -> Self {
        Self {
            section: FieldSection::default(),
            progress: Progress::StatusLine,
            minor_version: 1,
            status: 0,
            reason: (0, 0),
            framing: Framing::None,
            body_is_coded: false,
            persistent: false,
            known: Known::default(),
        }
    }

    /// Forgets everything and keeps the storage. The head begins at `offset` of the response.
    pub(super) fn begin(&mut self, offset: u64) {
        self.section.begin_head(offset);
        self.progress = Progress::StatusLine;
        self.minor_version = 1;
        self.status = 0;
        self.reason = (0, 0);
        self.framing = Framing::None;
        self.body_is_coded = false;
        self.persistent = false;
        self.known = Known::default();
    }

    /// Takes a prefix of the input, up to the end of the head; returns how much.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        method: Method,
        anomalies: &mut Anomalies,
    ) -> Result<(usize, HeadStep), Fault> {
        let mut consumed = 0;
        while let Some(rest) = input.get(consumed..) {
            let (taken, line) = self.section.take_line(rest, HEAD_BYTES_MAX);
            consumed += taken;
            match line {
                Line::Partial => {
                    self.check_beginning()?;
                    break;
                }
                Line::TooLong => {
                    let offset = self.section.offset_beyond(HEAD_BYTES_MAX);
                    return Err(Fault { error: HttpError::Limit(SizeLimit::HeadBytes), offset });
                }
                Line::From(start) => {
                    if self.read_line(start, anomalies)? {
                        self.finish(method, anomalies)?;
                        return Ok((consumed, HeadStep::Complete));
                    }
                }
            }
        }
        Ok((input.len(), HeadStep::NeedMore))
    }

    /// Why a response that ends now is incomplete: the first broken rule of a complete line, or the end itself.
    pub(super) fn eof(&self, after_interim: bool) -> Fault {
        let error = match self.progress {
            Progress::StatusLine if !self.section.is_untouched() => HttpError::EofInStatusLine,
            Progress::StatusLine if after_interim => HttpError::EofAfterInterim,
            Progress::StatusLine => HttpError::EofBeforeResponse,
            Progress::Fields | Progress::Complete => {
                if let Some(refused) = self.section.diagnose() {
                    return header_fault(refused);
                }
                HttpError::EofInHeader
            }
        };
        Fault { error, offset: None }
    }

    /// Looks at an unfinished line.
    fn check_beginning(&self) -> Result<(), Fault> {
        if self.progress != Progress::StatusLine {
            return Ok(());
        }
        let offset = |at| self.section.offset_of(self.section.unfinished_start() + at);
        StatusLine::refuse_tls(self.section.unfinished())
            .map_err(|(error, at)| Fault { error, offset: offset(at) })
    }

    /// Looks at a complete line; whether it ends the head.
    fn read_line(&mut self, start: usize, anomalies: &mut Anomalies) -> Result<bool, Fault> {
        let (text, crlf) = strip_line_end(self.section.since(start));
        if self.progress == Progress::Fields {
            if !crlf {
                anomalies.insert(Anomaly::BareLfHeader);
            }
            let first = self.section.is_first(start);
            if !first && text.first().is_some_and(|&b| is_space(b)) {
                anomalies.insert(Anomaly::ObsFold);
            }
            return Ok(text.is_empty());
        }
        if text.is_empty() {
            anomalies.insert(Anomaly::LeadingEmptyLine);
            return Ok(false);
        }
        self.read_status_line(start, anomalies)?;
        if !crlf {
            anomalies.insert(Anomaly::BareLfStatusLine);
        }
        Ok(false)
    }

    /// Takes the facts out of the status line, which begins at `start`.
    fn read_status_line(&mut self, start: usize, anomalies: &mut Anomalies) -> Result<(), Fault> {
        let (text, _) = strip_line_end(self.section.since(start));
        let status_line = StatusLine::read(text)
            .map_err(|(error, at)| Fault { error, offset: self.section.offset_of(start + at) })?;
        if !status_line.has_reason {
            anomalies.insert(Anomaly::NoSpaceAfterCode);
        }
        self.reason = (start + REASON_AT.min(text.len()), start + text.len());
        self.minor_version = status_line.minor_version;
        self.status = status_line.status;
        if status_line.minor_version > 1 {
            anomalies.insert(Anomaly::NewerMinorVersion);
            // httparse knows 1.0 and 1.1 only.
            self.section.patch(start + MINOR_VERSION_AT, b'1');
        }
        if !(100..600).contains(&status_line.status) {
            anomalies.insert(Anomaly::StatusOutOfRange);
        }
        self.section.fields_begin_here();
        self.progress = Progress::Fields;
        Ok(())
    }

    fn finish(&mut self, method: Method, anomalies: &mut Anomalies) -> Result<(), Fault> {
        self.section.parse().map_err(header_fault)?;
        self.progress = Progress::Complete;
        if (100..200).contains(&self.status) {
            return Ok(());
        }
        let mut facts = Facts::default();
        for (i, (name, value)) in self.section.iter().enumerate() {
            self.known.read(&mut facts, i, name, value);
        }
        let verdict = facts
            .decide(method, self.status, self.minor_version, anomalies)
            .map_err(|(error, field)| Fault { error, offset: self.section.offset_of_value(field) })?;
        self.framing = verdict.framing;
        self.body_is_coded = verdict.coded;
        let wanted = !self.known.close && (self.minor_version >= 1 || self.known.keep_alive);
        self.persistent = wanted && !verdict.must_close;
        Ok(())
    }
}

impl Known {
    /// Reads one field, if it is among those that matter.
    fn read(&mut self, facts: &mut Facts, i: usize, name: &[u8], value: &[u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        // The lengths spare most fields any comparison.
        match name.len() {
            8 if is("location") => _ = self.location.get_or_insert(i),
            10 if is("connection") => self.read_connection(value),
            10 if is("keep-alive") => self.keep_alive_s = self.keep_alive_s.or_else(|| read_timeout_s(value)),
            11 if is("retry-after") => _ = self.retry_after.get_or_insert(i),
            12 if is("content-type") => _ = self.content_type.get_or_insert(i),
            14 if is("content-length") => facts.add_content_length(i, value),
            16 if is("content-encoding") && is_coded(value) => _ = self.content_encoding.get_or_insert(i),
            17 if is("transfer-encoding") => facts.add_transfer_encoding(i, value),
            _ => {}
        }
    }

    fn read_connection(&mut self, value: &[u8]) {
        for option in list_members(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
}

/// Whether a `Content-Encoding` names a coding that changes the body.
fn is_coded(value: &[u8]) -> bool {
    list_members(value).any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

/// `timeout=N` among the parameters of `Keep-Alive`, in seconds.
fn read_timeout_s(value: &[u8]) -> Option<i64> {
    /// Larger ones are cut: no run keeps a connection that long, and in nanoseconds a year is far from overflow.
    const YEAR_S: i64 = 366 * 24 * 3600;
    list_members(value).find_map(|parameter| {
        let (name, number) = parameter.split_at_checked("timeout".len())?;
        let number = trim(trim(number).strip_prefix(b"=")?);
        if !name.eq_ignore_ascii_case(b"timeout")
            || number.is_empty()
            || !number.iter().all(u8::is_ascii_digit)
        {
            return None;
        }
        let text = str::from_utf8(number).ok()?;
        Some(text.parse().unwrap_or(YEAR_S).min(YEAR_S))
    })
}

fn header_fault(refused: Refused) -> Fault {
    match refused {
        Refused::TooMany => Fault { error: HttpError::Limit(SizeLimit::HeadFields), offset: None },
        Refused::Rule(rule, offset) => Fault { error: HttpError::Header(rule), offset },
    }
}
