//! Reading `events.bin` back. The file may be cut or damaged anywhere; what stands before the damage is read, and the
//! [`Ending`] says where it is. No length that a file states is believed before its bytes are there.

use std::collections::HashMap;
use std::io::{self, Read};

use thiserror::Error;

use super::coding::crc32;
use super::{
    BLOCK_HEAD_BYTES, FLAG_CHOICE, FLAG_ENDS_READ, FLAG_KERNEL, FLAG_KIND, FLAGS, HEADER_BYTES, KINDS, MAGIC,
    MAX_PAYLOAD_BYTES, RequestKey, TAG_CHUNKS, TAG_END, TAG_TOKENS, VERSION,
};
use crate::aggregate::chunk::OutputChunk;
use crate::metrics::varint::{take_byte, take_signed, take_unsigned};
use crate::units::Nanos;

/// Why a file cannot be read as `events.bin` at all.
#[derive(Debug, Error)]
pub enum EventsError {
    /// The system cannot read it.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as one.
    #[error("not an events file")]
    NotEvents,
    /// Its layout has another major version.
    #[error("layout {major}.{minor}; this version reads {}.x", VERSION.0)]
    Version {
        /// Major version of the file.
        major: u16,
        /// Minor version of the file.
        minor: u16,
    },
}

/// How a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With its end block, and the totals agree.
    Complete,
    /// Without an end block: the process ended before the run did. Offset of the first byte that was not used.
    Cut {
        /// Bytes from the start of the file.
        offset: u64,
    },
    /// With bytes that are no block. Offset of the block.
    Damaged {
        /// Bytes from the start of the file.
        offset: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Chunks of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The request.
    pub key: RequestKey,
    /// In order of arrival; those of a long request go on in the next block.
    pub chunks: Vec<OutputChunk>,
}

/// Reads a file block by block. `input` should be buffered.
#[derive(Debug)]
pub struct EventsReader<R> {
    input: R,
    offset: u64,
    blocks: u64,
    chunks: u64,
    /// Tokens of the chunks of the next block.
    tokens: Option<Vec<Option<u32>>>,
    /// Bytes of those tokens: not used until their chunks are there.
    unused: u64,
    ending: Option<Ending>,
    /// Of the block that is read, kept for the next one.
    payload: Vec<u8>,
}

/// All chunks of a run, by request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEvents {
    chunks: HashMap<RequestKey, Vec<OutputChunk>>,
    ending: Ending,
}

impl RunEvents {
    /// Reads a whole file.
    ///
    /// # Errors
    /// [`EventsError`]; damage after the header is no error but an [`Ending`].
    pub fn read(input: impl Read) -> Result<Self, EventsError> {
        Ok(Self::rest(EventsReader::new(input)?)?)
    }

    /// What is left of a file that was begun.
    ///
    /// # Errors
    /// Those of the underlying reader.
    pub(super) fn rest(mut reader: EventsReader<impl Read>) -> io::Result<Self> {
        let mut chunks: HashMap<RequestKey, Vec<OutputChunk>> = HashMap::new();
        while let Some(block) = reader.next_block()? {
            chunks.entry(block.key).or_default().extend(block.chunks);
        }
        Ok(Self { chunks, ending: reader.end() })
    }

    /// The chunks of a request in order of arrival; none for a request without output.
    #[must_use]
    pub fn of(&self, key: RequestKey) -> &[OutputChunk] {
        self.chunks.get(&key).map_or(&[], Vec::as_slice)
    }

    /// How the file ended.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        self.ending
    }
}

impl<R: Read> EventsReader<R> {
    /// Reads the header. A file that ends in it, which the first moments of a run or a full disk leave, is one that ends
    /// early like any other: it has no blocks.
    ///
    /// # Errors
    /// [`EventsError`].
    pub fn new(mut input: R) -> Result<Self, EventsError> {
        let mut header = [0; HEADER_BYTES];
        let taken = read_up_to(&mut input, &mut header)?;
        if taken < HEADER_BYTES {
            let begun = header.get(..taken.min(MAGIC.len())).unwrap_or_default();
            let cut = Ending::Cut { offset: taken as u64 };
            return if MAGIC.starts_with(begun) {
                Ok(Self::at(input, taken, Some(cut)))
            } else {
                Err(EventsError::NotEvents)
            };
        }
        let [magic @ .., a, b, c, d, _, _, _, _] = header;
        if magic != *MAGIC {
            return Err(EventsError::NotEvents);
        }
        let (major, minor) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        if major != VERSION.0 {
            return Err(EventsError::Version { major, minor });
        }
        Ok(Self::at(input, HEADER_BYTES, None))
    }

    const fn at(input: R, offset: usize, ending: Option<Ending>) -> Self {
        Self {
            input,
            offset: offset as u64,
            blocks: 0,
            chunks: 0,
            tokens: None,
            unused: 0,
            ending,
            payload: Vec::new(),
        }
    }

    /// The next block; `None` at the end, whatever it is like: see [`EventsReader::ending`].
    ///
    /// # Errors
    /// Those of the underlying reader.
    pub fn next_block(&mut self) -> io::Result<Option<Block>> {
        while self.ending.is_none() {
            let mut head = [0; BLOCK_HEAD_BYTES];
            if read_up_to(&mut self.input, &mut head)? < BLOCK_HEAD_BYTES {
                self.ending = Some(Ending::Cut { offset: self.offset });
                break;
            }
            let [a, b, c, d, crc @ ..] = head;
            let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
            if length == 0 || length > MAX_PAYLOAD_BYTES {
                return Ok(self.damaged("impossible length"));
            }
            let mut payload = std::mem::take(&mut self.payload);
            payload.resize(length, 0);
            if read_up_to(&mut self.input, &mut payload)? < length {
                self.ending = Some(Ending::Cut { offset: self.offset });
                break;
            }
            if crc32(&payload) != u32::from_le_bytes(crc) {
                return Ok(self.damaged("wrong checksum"));
            }
            let decoded = self.decode(&payload);
            self.payload = payload;
            match decoded {
                Ok(Some(block)) => {
                    self.pass(length);
                    return Ok(Some(block));
                }
                Ok(None) => self.pass(length),
                Err(reason) => return Ok(self.damaged(reason)),
            }
        }
        Ok(None)
    }

    /// How the file ended, for one that was read to its end.
    pub(super) fn end(&self) -> Ending {
        self.ending.unwrap_or(Ending::Cut { offset: self.offset })
    }

    /// How the file ended; `None` until [`EventsReader::next_block`] returned `None`.
    #[must_use]
    pub const fn ending(&self) -> Option<Ending> {
        self.ending
    }

    fn pass(&mut self, length: usize) {
        self.unused += (BLOCK_HEAD_BYTES + length) as u64;
        if self.tokens.is_none() {
            self.offset += std::mem::take(&mut self.unused);
        }
    }

    fn damaged(&mut self, reason: &'static str) -> Option<Block> {
        self.ending = Some(Ending::Damaged { offset: self.offset + self.unused, reason });
        None
    }

    fn decode(&mut self, mut payload: &[u8]) -> Result<Option<Block>, &'static str> {
        match take_byte(&mut payload) {
            Some(TAG_CHUNKS) => {
                let mut block = decode_chunks(payload).ok_or("unreadable chunks")?;
                if let Some(tokens) = self.tokens.take() {
                    if tokens.len() != block.chunks.len() {
                        return Err("tokens of other chunks");
                    }
                    for (chunk, tokens) in block.chunks.iter_mut().zip(tokens) {
                        chunk.tokens = tokens;
                    }
                }
                self.blocks += 1;
                self.chunks += block.chunks.len() as u64;
                Ok(Some(block))
            }
            Some(TAG_TOKENS) => {
                self.tokens = Some(decode_tokens(payload).ok_or("unreadable tokens")?);
                Ok(None)
            }
            Some(TAG_END) if self.tokens.is_some() => Err("tokens of no chunks"),
            Some(TAG_END) => {
                let totals = (take_unsigned(&mut payload), take_unsigned(&mut payload));
                if totals != (Some(self.blocks), Some(self.chunks)) {
                    return Err("the totals at the end do not agree");
                }
                self.ending = Some(Ending::Complete);
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

fn decode_chunks(mut payload: &[u8]) -> Option<Block> {
    let bytes = &mut payload;
    let request_index = take_unsigned(bytes)?;
    let warmup = match take_byte(bytes)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let count = take_unsigned(bytes)?;
    let mut chunks = Vec::new();
    let (mut before, mut choice) = (0_i64, 0);
    for _ in 0..count {
        let flags = take_byte(bytes)?;
        if flags & !FLAGS != 0 {
            return None;
        }
        if flags & FLAG_CHOICE != 0 {
            choice = u32::try_from(take_unsigned(bytes)?).ok()?;
        }
        let user = take_signed(bytes)?.wrapping_add(before);
        let kernel =
            if flags & FLAG_KERNEL == 0 { None } else { Some(Nanos(user.wrapping_sub(take_signed(bytes)?))) };
        let not_before = take_signed(bytes)?.wrapping_add(before);
        chunks.push(OutputChunk {
            choice,
            kind: *KINDS.get(usize::from(flags & FLAG_KIND))?,
            kernel,
            user: Nanos(user),
            not_before: Nanos(not_before),
            ends_read: flags & FLAG_ENDS_READ != 0,
            tokens: None,
        });
        before = user;
    }
    bytes.is_empty().then_some(Block { key: RequestKey { request_index, warmup }, chunks })
}

fn decode_tokens(mut payload: &[u8]) -> Option<Vec<Option<u32>>> {
    let bytes = &mut payload;
    let count = take_unsigned(bytes)?;
    let mut tokens = Vec::new();
    for _ in 0..count {
        tokens.push(match take_unsigned(bytes)? {
            0 => None,
            above => Some(u32::try_from(above - 1).ok()?),
        });
    }
    bytes.is_empty().then_some(tokens)
}

/// Fills `buffer` as far as the input goes; fewer bytes mean that it ended.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::super::{EventsWriter, events_jsonl};
    use super::*;
    use crate::record::OutputKind;
    use proptest::prelude::*;

    fn chunk() -> impl Strategy<Value = OutputChunk> {
        let stamp = prop_oneof![0..10_000_000_000_i64, any::<i64>()].prop_map(Nanos);
        let kind = proptest::sample::select(KINDS.to_vec());
        let choice = prop_oneof![Just(0), any::<u32>()];
        let tokens = prop_oneof![Just(None), (0..9_u32).prop_map(Some), Just(Some(u32::MAX))];
        (choice, kind, proptest::option::of(stamp.clone()), stamp.clone(), stamp, any::<bool>(), tokens)
            .prop_map(|(choice, kind, kernel, user, not_before, ends_read, tokens)| OutputChunk {
                choice,
                kind,
                kernel,
                user,
                not_before,
                ends_read,
                tokens,
            })
    }

    fn blocks() -> impl Strategy<Value = Vec<Block>> {
        let key = (0..4_u64, any::<bool>())
            .prop_map(|(request_index, warmup)| RequestKey { request_index, warmup });
        let block =
            (key, proptest::collection::vec(chunk(), 1..5)).prop_map(|(key, chunks)| Block { key, chunks });
        proptest::collection::vec(block, 0..8)
    }

    /// The file, and the offset after its header and after each block.
    fn file(blocks: &[Block]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut writer = EventsWriter::new(&mut bytes).unwrap();
        let mut ends = vec![writer.out.len()];
        for block in blocks {
            writer.write(block.key, &block.chunks).unwrap();
            ends.push(writer.out.len());
        }
        writer.finish().unwrap();
        (bytes, ends)
    }

    fn read(bytes: &[u8]) -> (Vec<Block>, Ending) {
        let mut reader = EventsReader::new(bytes).unwrap();
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block().unwrap() {
            blocks.push(block);
        }
        (blocks, reader.ending().unwrap())
    }

    proptest! {
        #[test]
        fn a_file_comes_back_as_it_was_written(written in blocks()) {
            let (bytes, _) = file(&written);
            prop_assert_eq!(read(&bytes), (written, Ending::Complete));
        }

        #[test]
        fn a_cut_file_is_read_up_to_the_cut(written in blocks(), cut: proptest::sample::Index) {
            let (bytes, ends) = file(&written);
            let cut = HEADER_BYTES + cut.index(bytes.len() - HEADER_BYTES);
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let offset = ends[whole] as u64;
            prop_assert_eq!(read(&bytes[..cut]), (written[..whole].to_vec(), Ending::Cut { offset }));
        }

        #[test]
        fn a_flipped_bit_is_seen_and_what_stands_before_it_is_read(
            written in blocks(), at: proptest::sample::Index, bit in 0..8_u8,
        ) {
            let (mut bytes, ends) = file(&written);
            let at = HEADER_BYTES + at.index(bytes.len() - HEADER_BYTES);
            bytes[at] ^= 1 << bit;
            let intact = ends.iter().filter(|end| **end <= at).count() - 1;
            let (blocks, ending) = read(&bytes);
            prop_assert_eq!(blocks, written[..intact].to_vec());
            prop_assert_ne!(ending, Ending::Complete);
        }

        #[test]
        fn anything_may_be_a_file(bytes: Vec<u8>) {
            let mut disguised = file(&[]).0[..HEADER_BYTES].to_vec();
            disguised.extend_from_slice(&bytes);
            let (_, ending) = read(&disguised);
            prop_assert_ne!(ending, Ending::Complete);
            let begun = bytes.len() < HEADER_BYTES && MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]);
            prop_assert_eq!(EventsReader::new(&bytes[..]).is_ok(), begun);
        }
    }

    #[test]
    fn a_tail_of_zeros_is_no_end() {
        let (bytes, ends) = file(&[]);
        let mut torn = bytes[..ends[0]].to_vec();
        torn.extend_from_slice(&[0; 64]);
        assert_eq!(read(&torn).1, Ending::Damaged { offset: 16, reason: "impossible length" });
    }

    #[test]
    fn a_payload_of_a_newer_minor_version_is_skipped_and_a_newer_major_is_refused() {
        let (bytes, ends) = file(&[]);
        let payload = [200, 1, 2, 3];
        let mut newer = bytes[..ends[0]].to_vec();
        newer.extend_from_slice(&4_u32.to_le_bytes());
        newer.extend_from_slice(&crc32(&payload).to_le_bytes());
        newer.extend_from_slice(&payload);
        newer.extend_from_slice(&bytes[ends[0]..]);
        assert_eq!(read(&newer), (vec![], Ending::Complete));
        newer[8] = 2;
        assert!(matches!(EventsReader::new(&newer[..]), Err(EventsError::Version { major: 2, minor: 1 })));
    }

    /// Minor version 0 has no tokens; everything else of it is as today.
    #[test]
    fn a_file_of_version_1_0_is_read() {
        let chunk = OutputChunk {
            choice: 0,
            kind: OutputKind::Content,
            kernel: None,
            user: Nanos(1),
            not_before: Nanos(0),
            ends_read: true,
            tokens: None,
        };
        let blocks = vec![Block { key: RequestKey { request_index: 0, warmup: false }, chunks: vec![chunk] }];
        let (written, _) = file(&blocks);
        let payload = [TAG_CHUNKS, 0, 0, 1, 0b101, 2, 0];
        let end = [TAG_END, 1, 1];
        let mut old = [&b"HSEVENTS"[..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
        for payload in [&payload[..], &end] {
            old.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
            old.extend_from_slice(&crc32(payload).to_le_bytes());
            old.extend_from_slice(payload);
        }
        assert_eq!(read(&old), (blocks, Ending::Complete));
        assert_eq!((&written[HEADER_BYTES..], written[10]), (&old[HEADER_BYTES..], 1));
    }

    #[test]
    fn tokens_of_other_chunks_are_damage() {
        let blocks = |chunks| vec![Block { key: RequestKey { request_index: 0, warmup: false }, chunks }];
        let chunk = |tokens| OutputChunk {
            choice: 0,
            kind: OutputKind::Content,
            kernel: None,
            user: Nanos(1),
            not_before: Nanos(0),
            ends_read: true,
            tokens,
        };
        let (one, _) = file(&blocks(vec![chunk(Some(1))]));
        let (two, _) = file(&blocks(vec![chunk(None), chunk(None)]));
        // The tokens of the first file, then the chunks of the second.
        let tokens_end = HEADER_BYTES + BLOCK_HEAD_BYTES + 3;
        let mixed = [&one[..tokens_end], &two[HEADER_BYTES..]].concat();
        let reason = "tokens of other chunks";
        assert_eq!(read(&mixed), (vec![], Ending::Damaged { offset: tokens_end as u64, reason }));
    }

    #[test]
    fn a_long_request_is_split_and_stays_compact() {
        let at = |i: i64| Nanos(1_000_000_000 + i * 20_000_000);
        let chunks: Vec<_> = (0..40_000)
            .map(|i| OutputChunk {
                choice: 0,
                kind: OutputKind::Content,
                kernel: Some(Nanos(at(i).0 - 8_000)),
                user: at(i),
                not_before: Nanos(at(i - 1).0 + 2_000),
                ends_read: true,
                tokens: None,
            })
            .collect();
        let key = RequestKey { request_index: 7, warmup: false };
        let (bytes, _) = file(&[Block { key, chunks: chunks.clone() }]);
        assert!(bytes.len() < 10 * chunks.len(), "{} bytes", bytes.len());
        let counted = chunks.iter().map(|chunk| OutputChunk { tokens: Some(4), ..*chunk }).collect();
        let (longer, _) = file(&[Block { key, chunks: counted }]);
        assert!(longer.len() - bytes.len() < chunks.len() + 100, "{} bytes", longer.len());
        let events = RunEvents::read(&bytes[..]).unwrap();
        assert_eq!((events.of(key), events.ending()), (&chunks[..], Ending::Complete));
        assert_eq!(events.of(RequestKey { request_index: 7, warmup: true }), []);
    }

    #[test]
    fn no_requests_give_no_lines() {
        let events = RunEvents::read(&file(&[]).0[..]).unwrap();
        let mut out = Vec::new();
        events_jsonl(&[], &events, &mut out).unwrap();
        assert!(out.is_empty());
    }
}
