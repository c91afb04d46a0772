//! The chunked coding (RFC 9112 7.1): sizes, extensions that are ignored, data handed out where it lies.
//!
//! A size line that lies whole in the input, without extensions, takes a short path: a few digits and one compare.
//! Everything else goes byte by byte through a machine that needs no buffer, so that a line may be cut anywhere.
//! httparse's own size reader is not used: it reads an empty size line as the last chunk.

use super::error::{HttpError, SizeLimit};
use super::grammar::{is_control, is_space, is_token_byte};
use super::limits;
use crate::record::{Anomalies, Anomaly};

/// Hex digits that cannot overflow 64 bits.
const SHORT_SIZE_DIGITS: usize = 16;

/// What one call of [`ChunkReader::read`] found, behind the bytes it consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'i> {
    /// All of the input was consumed.
    NeedMore,
    /// Bytes of the body, never none.
    Data(&'i [u8]),
    /// The line of the last chunk is complete.
    Last,
}

/// An error and the position of its byte in the input.
pub(super) type ChunkFault = (HttpError, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// A size line is due, none of it was read.
    #[default]
    Size,
    /// In a size line.
    Line(Place),
    /// In data; `left` is not zero.
    Data,
    /// CR is due behind data.
    DataCr,
    /// LF is due behind data and CR.
    DataLf,
}

/// Where in a chunk line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Digits,
    SpaceAfterSize,
    ExtensionStart,
    Name,
    SpaceAfterName,
    ValueStart,
    Value,
    Quoted,
    Escaped,
    /// Behind the closing quote of a value.
    AfterQuoted,
    SpaceAfterValue,
    /// In extensions that broke the grammar already.
    Junk,
    Cr,
}

/// Reads a chunked body up to and including the line of its last chunk.
#[derive(Debug, Clone, Default)]
pub(super) struct ChunkReader {
    phase: Phase,
    /// Bytes of the current chunk that are still to come; in a line, the size so far.
    left: u64,
    /// Bytes of the size, then of the extensions, of the current line.
    line_bytes: u32,
    has_digit: bool,
}

impl ChunkReader {
    /// The short path: a whole size line with data behind it, or more data of the current chunk. `None` leaves
    /// everything as it was, for [`ChunkReader::read`].
    #[inline]
    pub(super) fn read_short<'i>(&mut self, input: &'i [u8]) -> Option<(usize, &'i [u8])> {
        let (left, start) = match self.phase {
            Phase::Data => (self.left, 0),
            Phase::Size => whole_size_line(input)?,
            _ => return None,
        };
        let rest = input.get(start..)?;
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        let (data, behind) = rest.split_at_checked(take)?;
        if data.is_empty() {
            return None;
        }
        self.left = left - data.len() as u64;
        let mut consumed = start + data.len();
        self.phase = if self.left > 0 {
            Phase::Data
        } else if behind.starts_with(b"\r\n") {
            consumed += 2;
            Phase::Size
        } else {
            Phase::DataCr
        };
        Some((consumed, data))
    }

    /// Takes a prefix of the input; returns how much and what it was.
    pub(super) fn read<'i>(
        &mut self,
        input: &'i [u8],
        anomalies: &mut Anomalies,
    ) -> Result<(usize, Step<'i>), ChunkFault> {
        for (at, &b) in input.iter().enumerate() {
            if matches!(self.phase, Phase::Data | Phase::Size)
                && let Some((consumed, data)) = self.read_short(input.get(at..).unwrap_or_default())
            {
                return Ok((at + consumed, Step::Data(data)));
            }
            self.phase = match self.phase {
                // Unreachable: the short path takes data wherever there is a byte of it.
                Phase::Data => break,
                Phase::DataCr => match b {
                    b'\r' => Phase::DataLf,
                    b'\n' => return Err((HttpError::BareLfChunkData, at)),
                    _ => return Err((HttpError::NoCrlfAfterChunkData, at)),
                },
                Phase::DataLf => match b {
                    b'\n' => Phase::Size,
                    _ => return Err((HttpError::NoCrlfAfterChunkData, at)),
                },
                Phase::Size => {
                    (self.left, self.line_bytes, self.has_digit) = (0, 0, false);
                    self.line_byte(Place::Digits, b, anomalies).map_err(|error| (error, at))?
                }
                Phase::Line(Place::Cr) => {
                    if b != b'\n' {
                        return Err((HttpError::BareCrChunkLine, at));
                    }
                    if self.left == 0 {
                        self.phase = Phase::Size;
                        return Ok((at + 1, Step::Last));
                    }
                    Phase::Data
                }
                Phase::Line(place) => self.line_byte(place, b, anomalies).map_err(|error| (error, at))?,
            };
        }
        Ok((input.len(), Step::NeedMore))
    }

    /// Why a body that ends now is incomplete.
    pub(super) fn eof(&self) -> HttpError {
        match self.phase {
            Phase::Size | Phase::Line(_) => HttpError::EofInChunkLine,
            Phase::Data | Phase::DataCr | Phase::DataLf => HttpError::EofInChunk,
        }
    }

    /// One byte of a size line before its CR.
    fn line_byte(&mut self, place: Place, b: u8, anomalies: &mut Anomalies) -> Result<Phase, HttpError> {
        match b {
            b'\n' => return Err(HttpError::BareLfChunkLine),
            b'\r' => return self.line_cr(place, anomalies),
            _ => {}
        }
        if place != Place::Digits && place != Place::SpaceAfterSize {
            self.line_bytes += 1;
            if self.line_bytes > limits::CHUNK_EXTENSION_BYTES_MAX {
                return Err(HttpError::Limit(SizeLimit::ChunkExtensionBytes));
            }
            let next = extension_byte(place, b);
            if next == Place::Junk {
                anomalies.insert(Anomaly::MalformedChunkExtension);
            }
            return Ok(Phase::Line(next));
        }
        if b == b';' && self.has_digit {
            self.line_bytes = 0;
            return Ok(Phase::Line(Place::ExtensionStart));
        }
        self.line_bytes += 1;
        if self.line_bytes > limits::CHUNK_SIZE_BYTES_MAX {
            return Err(HttpError::Limit(SizeLimit::ChunkSizeBytes));
        }
        if self.has_digit && is_space(b) {
            return Ok(Phase::Line(Place::SpaceAfterSize));
        }
        let (Place::Digits, Some(digit)) = (place, hex_digit(b)) else { return Err(HttpError::BadChunkSize) };
        if self.left >> (u64::BITS - 4) != 0 {
            return Err(HttpError::ChunkSizeOverflow);
        }
        self.left = (self.left << 4) | digit;
        self.has_digit = true;
        Ok(Phase::Line(Place::Digits))
    }

    /// The CR of a size line.
    fn line_cr(&self, place: Place, anomalies: &mut Anomalies) -> Result<Phase, HttpError> {
        match place {
            Place::Digits if !self.has_digit => return Err(HttpError::BadChunkSize),
            Place::SpaceAfterSize => anomalies.insert(Anomaly::SpaceAfterChunkSize),
            Place::Digits | Place::Name | Place::Value | Place::AfterQuoted | Place::Junk => {}
            _ => anomalies.insert(Anomaly::MalformedChunkExtension),
        }
        Ok(Phase::Line(Place::Cr))
    }
}

/// The size and the length of a line that is `1*16HEXDIG CRLF` and lies whole in the input.
#[inline]
fn whole_size_line(input: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0u64;
    let mut digits = 0usize;
    for &b in input.iter().take(SHORT_SIZE_DIGITS) {
        let Some(digit) = hex_digit(b) else { break };
        size = (size << 4) | digit;
        digits += 1;
    }
    (digits > 0 && input.get(digits..)?.starts_with(b"\r\n")).then_some((size, digits + 2))
}

/// The value of each hex digit; [`NO_DIGIT`] for every other byte.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated while compiling, where an index out of range is an error"
)]
static HEX_DIGITS: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0u8;
    while value < 16 {
        let digit = b"0123456789abcdef"[value as usize];
        table[digit as usize] = value;
        table[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    table
};
const NO_DIGIT: u8 = 0xff;

#[inline]
fn hex_digit(b: u8) -> Option<u64> {
    HEX_DIGITS.get(usize::from(b)).filter(|&&value| value != NO_DIGIT).map(|&value| u64::from(value))
}

/// Where a byte of the extensions leads (RFC 9112 7.1.1:
/// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`).
const fn extension_byte(place: Place, b: u8) -> Place {
    match place {
        Place::ExtensionStart if is_space(b) => Place::ExtensionStart,
        Place::ExtensionStart | Place::Name if is_token_byte(b) => Place::Name,
        Place::Name | Place::SpaceAfterName if b == b'=' => Place::ValueStart,
        Place::Name | Place::SpaceAfterName if is_space(b) => Place::SpaceAfterName,
        Place::ValueStart if is_space(b) => Place::ValueStart,
        Place::ValueStart if b == b'"' => Place::Quoted,
        Place::ValueStart | Place::Value if is_token_byte(b) => Place::Value,
        Place::Value | Place::AfterQuoted | Place::SpaceAfterValue if is_space(b) => Place::SpaceAfterValue,
        Place::Name | Place::SpaceAfterName | Place::Value | Place::AfterQuoted | Place::SpaceAfterValue
            if b == b';' =>
        {
            Place::ExtensionStart
        }
        Place::Quoted if b == b'"' => Place::AfterQuoted,
        Place::Quoted if b == b'\\' => Place::Escaped,
        Place::Quoted | Place::Escaped if !is_control(b) => Place::Quoted,
        _ => Place::Junk,
    }
}
