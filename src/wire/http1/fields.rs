//! A section of field lines, a response head or a trailer section: collected line by line, parsed once.
//!
//! Lines are copied into one reused buffer as they arrive, each byte looked at once for its line's end; httparse
//! runs over the whole section when its empty line has come. So a head that trickles in costs the same work as a
//! head in one piece. What httparse refuses is looked at again, line by line, to name the rule and the byte.

use std::mem::MaybeUninit;

use memchr::memchr;

use super::error::FieldRule;
use super::grammar::{is_control, is_space, is_token_byte, strip_line_end};
use super::limits;

/// A line that httparse reads as the status line of a section that has none: trailers. Only in a whole head does
/// httparse allow folded lines.
const STAND_IN_STATUS_LINE: &[u8] = b"HTTP/1.1 200\r\n";

/// A part of [`FieldSection::raw`] or [`FieldSection::unfolded`].
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    name: Span,
    value: Span,
    /// The value lies in `unfolded`.
    folded: bool,
}

/// One step of [`FieldSection::take_line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// The input ended before the line did; all of it was taken.
    Partial,
    /// A line is complete and begins here in [`FieldSection::raw`].
    From(usize),
    /// The section would grow beyond its limit.
    TooLong,
}

/// Why [`FieldSection::parse`] refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// More than [`limits::FIELDS_MAX`] fields.
    TooMany,
    /// A damaged line, and where in the response.
    Rule(FieldRule, Option<u64>),
}

/// The lines of one section and, after [`FieldSection::parse`], its fields.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldSection {
    raw: Vec<u8>,
    unfolded: Vec<u8>,
    fields: Vec<Field>,
    /// Where the unfinished line begins.
    line_start: usize,
    /// Where the first field line begins.
    fields_start: usize,
    /// Length of the stand-in line, zero in a head; it counts toward no limit.
    stand_in: usize,
    /// How far a position in `raw` is from its offset in the response; the stand-in line may make it negative.
    shift: i64,
    /// Bytes examined, for the proof that work is linear.
    #[cfg(test)]
    pub(super) work: u64,
}

impl FieldSection {
    /// Forgets everything and keeps the storage. The section begins at `offset` of the response.
    pub(super) fn begin_head(&mut self, offset: u64) {
        self.raw.clear();
        self.unfolded.clear();
        self.fields.clear();
        self.line_start = 0;
        self.fields_start = 0;
        self.stand_in = 0;
        self.shift = i64::try_from(offset).unwrap_or(i64::MAX);
    }

    /// As [`FieldSection::begin_head`], for a section without a status line.
    pub(super) fn begin_trailers(&mut self, offset: u64) {
        self.begin_head(offset);
        self.raw.extend_from_slice(STAND_IN_STATUS_LINE);
        self.stand_in = STAND_IN_STATUS_LINE.len();
        self.line_start = self.stand_in;
        self.fields_start = self.stand_in;
        self.shift = self.shift.saturating_sub_unsigned(self.stand_in as u64);
    }

    /// Takes bytes up to and including the next LF. Returns how many. A section may have `limit` bytes.
    pub(super) fn take_line(&mut self, input: &[u8], limit: usize) -> (usize, Line) {
        let room = (self.stand_in + limit).saturating_sub(self.raw.len());
        let within = input.get(..room).unwrap_or(input);
        let line = memchr(b'\n', within).and_then(|end| within.get(..=end));
        #[cfg(test)]
        {
            self.work += line.unwrap_or(within).len() as u64;
        }
        let Some(line) = line else {
            if within.len() < input.len() {
                return (0, Line::TooLong);
            }
            self.raw.extend_from_slice(input);
            return (input.len(), Line::Partial);
        };
        self.raw.extend_from_slice(line);
        let start = std::mem::replace(&mut self.line_start, self.raw.len());
        (line.len(), Line::From(start))
    }

    /// The bytes from a position on: a line, when it was the last one taken.
    pub(super) fn since(&self, start: usize) -> &[u8] {
        self.raw.get(start..).unwrap_or_default()
    }

    /// What there is of the unfinished line.
    pub(super) fn unfinished(&self) -> &[u8] {
        self.since(self.line_start)
    }

    /// Where the unfinished line begins.
    pub(super) fn unfinished_start(&self) -> usize {
        self.line_start
    }

    /// Declares that the field lines begin behind the last taken line.
    pub(super) fn fields_begin_here(&mut self) {
        self.fields_start = self.line_start;
    }

    /// Whether the line at `start` would be the first field line.
    pub(super) fn is_first(&self, start: usize) -> bool {
        start == self.fields_start
    }

    /// Replaces one byte, if it is there.
    pub(super) fn patch(&mut self, position: usize, byte: u8) {
        if let Some(place) = self.raw.get_mut(position) {
            *place = byte;
        }
    }

    /// A part of the section.
    pub(super) fn bytes(&self, start: usize, end: usize) -> &[u8] {
        self.raw.get(start..end).unwrap_or_default()
    }

    /// Whether nothing was taken since the section began.
    pub(super) fn is_untouched(&self) -> bool {
        self.raw.len() == self.fields_start && self.line_start == self.fields_start
    }

    /// The offset in the response of a position in the section.
    pub(super) fn offset_of(&self, position: usize) -> Option<u64> {
        u64::try_from(self.shift.checked_add_unsigned(position as u64)?).ok()
    }

    /// The offset in the response of the first byte beyond a limit of the section's bytes.
    pub(super) fn offset_beyond(&self, limit: usize) -> Option<u64> {
        self.offset_of(self.stand_in + limit)
    }

    /// Reads the fields, once the empty line has been taken.
    pub(super) fn parse(&mut self) -> Result<(), Refused> {
        #[cfg(test)]
        {
            self.work += self.raw.len() as u64;
        }
        let mut slots = [const { MaybeUninit::uninit() }; limits::FIELDS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let mut config = httparse::ParserConfig::default();
        config.allow_obsolete_multiline_headers_in_responses(true);
        match config.parse_response_with_uninit_headers(&mut response, &self.raw, &mut slots) {
            Ok(httparse::Status::Complete(length)) if length == self.raw.len() => {}
            Err(httparse::Error::TooManyHeaders) => return Err(Refused::TooMany),
            // The section ends in its one empty line, so that anything but a full parse is a refusal.
            _ => return Err(self.diagnose().unwrap_or(Refused::Rule(FieldRule::BadName, None))),
        }
        for header in response.headers.iter() {
            let name = span_within(&self.raw, header.name.as_bytes());
            let folded = memchr(b'\n', header.value).is_some();
            let value = if folded {
                unfold(header.value, &mut self.unfolded)
            } else {
                span_within(&self.raw, header.value)
            };
            self.fields.push(Field { name, value, folded });
        }
        Ok(())
    }

    /// The first broken rule among the complete field lines.
    pub(super) fn diagnose(&self) -> Option<Refused> {
        let mut start = self.fields_start;
        for line in self.bytes(self.fields_start, self.line_start).split_inclusive(|&b| b == b'\n') {
            if let Err((rule, position)) = check_line(line, self.is_first(start)) {
                return Some(Refused::Rule(rule, self.offset_of(start + position)));
            }
            start += line.len();
        }
        None
    }

    /// The fields in the order received: names as sent, values without white space around them and with each fold
    /// replaced by one space. Empty before [`FieldSection::parse`].
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (self.name(field), self.value(field)))
    }

    /// The value of the field at a position of [`FieldSection::iter`].
    pub(super) fn value_at(&self, index: usize) -> Option<&[u8]> {
        self.fields.get(index).map(|field| self.value(field))
    }

    /// The offset in the response at which the value of a field begins; `None` for folded values.
    pub(super) fn offset_of_value(&self, index: usize) -> Option<u64> {
        let field = self.fields.get(index)?;
        if field.folded { None } else { self.offset_of(field.value.start) }
    }

    /// How much room the buffers have.
    #[cfg(test)]
    pub(super) fn capacities(&self) -> [usize; 3] {
        [self.raw.capacity(), self.unfolded.capacity(), self.fields.capacity()]
    }

    fn name(&self, field: &Field) -> &[u8] {
        self.bytes(field.name.start, field.name.end)
    }

    fn value(&self, field: &Field) -> &[u8] {
        let Span { start, end } = field.value;
        if field.folded { self.unfolded.get(start..end).unwrap_or_default() } else { self.bytes(start, end) }
    }
}

/// Where `part`, a slice of `whole`, lies in it.
fn span_within(whole: &[u8], part: &[u8]) -> Span {
    let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    Span { start, end: start.saturating_add(part.len()) }
}

/// Appends a folded value as one line (RFC 9112 5.2).
fn unfold(value: &[u8], out: &mut Vec<u8>) -> Span {
    let start = out.len();
    for line in value.split(|b| matches!(b, b'\r' | b'\n')).map(super::grammar::trim) {
        if line.is_empty() {
            continue;
        }
        if out.len() > start {
            out.push(b' ');
        }
        out.extend_from_slice(line);
    }
    Span { start, end: out.len() }
}

/// The rule a complete field line breaks, and at which of its bytes.
fn check_line(line: &[u8], first: bool) -> Result<(), (FieldRule, usize)> {
    let (text, _) = strip_line_end(line);
    let Some(&lead) = text.first() else { return Ok(()) };
    let value_start = if is_space(lead) {
        if first {
            return Err((FieldRule::SpaceBeforeFirst, 0));
        }
        0
    } else {
        check_name(text)?
    };
    let value = text.get(value_start..).unwrap_or_default();
    match value.iter().position(|&b| is_control(b)) {
        None => Ok(()),
        Some(at) => {
            let rule = match value.get(at) {
                Some(b'\r') => FieldRule::BareCr,
                Some(0) => FieldRule::NulInValue,
                _ => FieldRule::ControlInValue,
            };
            Err((rule, value_start + at))
        }
    }
}

/// Checks the name of a field line; returns where its value begins.
fn check_name(text: &[u8]) -> Result<usize, (FieldRule, usize)> {
    let Some(colon) = memchr(b':', text) else {
        return Err(match memchr(b'\r', text) {
            Some(at) => (FieldRule::BareCr, at),
            None => (FieldRule::NoColon, text.len()),
        });
    };
    if colon == 0 {
        return Err((FieldRule::EmptyName, 0));
    }
    let name = text.get(..colon).unwrap_or_default();
    match name.iter().position(|&b| !is_token_byte(b)) {
        None => Ok(colon + 1),
        Some(at) => {
            let only_space = name.get(at..).unwrap_or_default().iter().all(|&b| is_space(b));
            Err((if only_space && at > 0 { FieldRule::SpaceBeforeColon } else { FieldRule::BadName }, at))
        }
    }
}
