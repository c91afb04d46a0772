//! Bodies: so many bytes, chunks with a trailer section, until the peer closes, or none.

use super::chunk::{ChunkReader, Step};
use super::decoder::{Decoded, Part};
use super::error::{Fault, HttpError, SizeLimit};
use super::fields::{FieldSection, Line, Refused};
use super::framing::Framing;
use super::grammar::{is_space, strip_line_end};
use super::limits::TRAILER_BYTES_MAX;
use crate::record::{Anomalies, Anomaly};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Nothing more belongs to the response.
    #[default]
    Complete,
    /// So many bytes are to come, at least one.
    Length(u64),
    UntilEof,
    Chunks,
    Trailers,
}

/// Reads one body; keeps its storage from one to the next.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    state: State,
    chunks: ChunkReader,
    pub(super) trailers: FieldSection,
    last_chunk_seen: bool,
}

impl Body {
    /// Forgets the last body.
    pub(super) fn clear(&mut self) {
        self.begin(Framing::None);
    }

    /// Begins a body with the framing that its head declared.
    pub(super) fn begin(&mut self, framing: Framing) {
        self.trailers.begin_trailers(0);
        self.last_chunk_seen = false;
        self.state = match framing {
            Framing::None | Framing::Length(0) => State::Complete,
            Framing::Length(bytes) => State::Length(bytes),
            Framing::UntilEof => State::UntilEof,
            Framing::Chunked => {
                self.chunks = ChunkReader::default();
                State::Chunks
            }
        };
    }

    /// The short path of a chunked body: see [`ChunkReader::read_short`].
    #[inline]
    pub(super) fn read_short<'i>(&mut self, input: &'i [u8]) -> Option<(usize, &'i [u8])> {
        if self.state == State::Chunks { self.chunks.read_short(input) } else { None }
    }

    /// Takes a prefix of the input, which begins at `offset` of the response.
    pub(super) fn read<'i>(
        &mut self,
        input: &'i [u8],
        offset: u64,
        anomalies: &mut Anomalies,
    ) -> Result<Decoded<'i>, Fault> {
        match self.state {
            State::Chunks => match self.chunks.read(input, anomalies) {
                Ok((consumed, Step::Data(data))) => Ok(Decoded { consumed, part: Part::Data(data) }),
                Ok((consumed, Step::NeedMore)) => Ok(Decoded { consumed, part: Part::NeedMore }),
                Ok((consumed, Step::Last)) => self.after_last_chunk(input, consumed, offset, anomalies),
                Err((error, at)) => Err(Fault { error, offset: Some(offset + at as u64) }),
            },
            State::Length(left) => Ok(self.read_length(input, left)),
            State::UntilEof if input.is_empty() => Ok(Decoded { consumed: 0, part: Part::NeedMore }),
            State::UntilEof => Ok(Decoded { consumed: input.len(), part: Part::Data(input) }),
            State::Trailers => self.read_trailers(input, anomalies),
            State::Complete => Ok(Decoded { consumed: 0, part: Part::End }),
        }
    }

    /// The peer closed: whether the body is complete by that.
    pub(super) fn eof(&mut self, anomalies: &mut Anomalies) -> Result<(), Fault> {
        let error = match self.state {
            State::Complete | State::UntilEof => return Ok(()),
            State::Length(_) => HttpError::EofInBody,
            State::Chunks => self.chunks.eof(),
            State::Trailers => {
                if let Some(refused) = self.trailers.diagnose() {
                    return Err(trailer_fault(refused));
                }
                // RFC 9112 8: a chunked body is complete once its zero-sized chunk has been received.
                if matches!(self.trailers.unfinished(), b"" | b"\r") {
                    anomalies.insert(Anomaly::EofBeforeFinalCrlf);
                    return Ok(());
                }
                HttpError::EofInTrailer
            }
        };
        Err(Fault { error, offset: None })
    }

    /// Whether the line of the last chunk has been read.
    pub(super) fn last_chunk_seen(&self) -> bool {
        self.last_chunk_seen
    }

    /// The trailer fields; empty before the end.
    pub(super) fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.trailers.iter()
    }

    fn read_length<'i>(&mut self, input: &'i [u8], left: u64) -> Decoded<'i> {
        let take = usize::try_from(left).unwrap_or(usize::MAX);
        let data = input.get(..take).unwrap_or(input);
        if data.is_empty() {
            return Decoded { consumed: 0, part: Part::NeedMore };
        }
        let left = left - data.len() as u64;
        self.state = if left == 0 { State::Complete } else { State::Length(left) };
        Decoded { consumed: data.len(), part: Part::Data(data) }
    }

    fn after_last_chunk<'i>(
        &mut self,
        input: &'i [u8],
        consumed: usize,
        offset: u64,
        anomalies: &mut Anomalies,
    ) -> Result<Decoded<'i>, Fault> {
        self.last_chunk_seen = true;
        self.state = State::Trailers;
        self.trailers.begin_trailers(offset + consumed as u64);
        let decoded = self.read_trailers(input.get(consumed..).unwrap_or_default(), anomalies)?;
        Ok(Decoded { consumed: consumed + decoded.consumed, part: decoded.part })
    }

    fn read_trailers<'i>(
        &mut self,
        input: &'i [u8],
        anomalies: &mut Anomalies,
    ) -> Result<Decoded<'i>, Fault> {
        if self.trailers.is_untouched() && input.starts_with(b"\r\n") {
            self.state = State::Complete;
            return Ok(Decoded { consumed: 2, part: Part::End });
        }
        let mut consumed = 0;
        while let Some(rest) = input.get(consumed..) {
            let (taken, line) = self.trailers.take_line(rest, TRAILER_BYTES_MAX);
            consumed += taken;
            match line {
                Line::Partial => break,
                Line::TooLong => {
                    let offset = self.trailers.offset_beyond(TRAILER_BYTES_MAX);
                    return Err(Fault { error: HttpError::Limit(SizeLimit::TrailerBytes), offset });
                }
                Line::From(start) => {
                    let (text, crlf) = strip_line_end(self.trailers.since(start));
                    if !crlf {
                        anomalies.insert(Anomaly::BareLfTrailer);
                    }
                    if text.is_empty() {
                        self.trailers.parse().map_err(trailer_fault)?;
                        self.state = State::Complete;
                        return Ok(Decoded { consumed, part: Part::End });
                    }
                    if !self.trailers.is_first(start) && text.first().is_some_and(|&b| is_space(b)) {
                        anomalies.insert(Anomaly::ObsFold);
                    }
                }
            }
        }
        Ok(Decoded { consumed: input.len(), part: Part::NeedMore })
    }
}

fn trailer_fault(refused: Refused) -> Fault {
    match refused {
        Refused::TooMany => Fault { error: HttpError::Limit(SizeLimit::TrailerFields), offset: None },
        Refused::Rule(rule, offset) => Fault { error: HttpError::Trailer(rule), offset },
    }
}
