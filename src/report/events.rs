//! `events.bin`: the stamps of every output chunk of every request, compact. For readers in other languages the same is
//! told at length in `docs/EVENTS.md`, and a test reads files with one that was written from that page.
//!
//! ```text
//! file    = header block* ; a finished file ends with an end block
//! header  = "HSEVENTS" major:u16 minor:u16 zero:u32                        little endian, like every fixed-width number
//! block   = length:u32 crc:u32 payload                                     CRC-32/ISO-HDLC of the payload, `length` bytes
//! payload = 1 key count chunk*                                             chunks of one request
//!         | 2 blocks chunks                                                the end: how many blocks of chunks, how many chunks
//!         | 3 count tokens*                                                since 1.1: tokens of the chunks of the next block
//! key     = request_index warmup:byte                                      1 for a warm-up request, else 0
//! chunk   = flags:byte [choice] user [kernel] not_before
//! flags     bits 0-1 kind (0 reasoning, 1 content, 2 tool call, 3 refusal), bit 2 ends its read, bit 3 has a kernel stamp,
//!           bit 4 has a choice (absent: that of the chunk before, in the first one 0); the other bits are zero
//! user      signed: user stamp − user stamp of the chunk before (in the first one of a block: − 0)
//! kernel    signed: user stamp − kernel stamp
//! not_before signed: bound − user stamp of the chunk before (in the first one of a block: − 0)
//! tokens    0: not known; n + 1: n tokens came with the chunk
//! ```
//!
//! Numbers without a width are LEB128, signed ones zigzag-mapped. Stamps are nanoseconds since the run's zero. A chunk
//! takes about 9 bytes, 10 with its tokens. Tokens stand before a block only where some are known. A request with many
//! chunks has several blocks, one after the other; a request without output has none. Payloads that begin with another
//! byte are of a newer minor version and are skipped. A file that ends early, or whose last block was torn, is read up to
//! there ([`Ending`]). Whether a stamp is exact is in the file (`ends its read`); what a gap means is not.

mod coding;
pub mod read;
pub mod walk;

use std::borrow::Borrow;
use std::io::{self, Write};

use serde::Serialize;

use self::coding::crc32;
use crate::aggregate::chunk::OutputChunk;
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::metrics::varint::{put_signed, put_unsigned};
use crate::record::{OutputKind, Phase};

pub use self::read::{Block, Ending, EventsError, EventsReader, RunEvents};
pub use self::walk::Walk;

/// First bytes of the file.
const MAGIC: &[u8; 8] = b"HSEVENTS";
/// Version of the layout. A new minor version may only add kinds of payload.
///
/// * 1.0: the first one.
/// * 1.1: tokens of chunks.
const VERSION: (u16, u16) = (1, 1);
const HEADER_BYTES: usize = 16;
const BLOCK_HEAD_BYTES: usize = 8;
/// Chunks of one block at most: a block is checked as a whole, so that a torn one loses no more than these.
const CHUNKS_PER_BLOCK: usize = 16_384;
/// Longest payload that is read. A chunk takes at most 1 + 10 + 3 × 10 bytes, so that a written block stays below.
const MAX_PAYLOAD_BYTES: usize = 1 << 20;

const TAG_CHUNKS: u8 = 1;
const TAG_END: u8 = 2;
const TAG_TOKENS: u8 = 3;

const FLAG_KIND: u8 = 0b11;
const FLAG_ENDS_READ: u8 = 1 << 2;
const FLAG_KERNEL: u8 = 1 << 3;
const FLAG_CHOICE: u8 = 1 << 4;
const FLAGS: u8 = FLAG_KIND | FLAG_ENDS_READ | FLAG_KERNEL | FLAG_CHOICE;

const KINDS: [OutputKind; 4] =
    [OutputKind::Reasoning, OutputKind::Content, OutputKind::ToolCall, OutputKind::Refusal];

/// Which request a block belongs to. Warm-up requests are numbered apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    /// Position in the plan.
    pub request_index: u64,
    /// It is a warm-up request.
    pub warmup: bool,
}

impl RequestKey {
    /// The key of a row.
    #[must_use]
    pub fn of(row: &RequestRow) -> Self {
        Self { request_index: row.request_index, warmup: row.phase == Phase::Warmup }
    }
}

/// Writes `events.bin`.
#[derive(Debug)]
pub struct EventsWriter<W> {
    out: W,
    payload: Vec<u8>,
    blocks: u64,
    chunks: u64,
}

impl<W: Write> EventsWriter<W> {
    /// Begins a file. `out` should be buffered.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.0.to_le_bytes())?;
        out.write_all(&VERSION.1.to_le_bytes())?;
        out.write_all(&[0; 4])?;
        Ok(Self { out, payload: Vec::new(), blocks: 0, chunks: 0 })
    }

    /// Writes all chunks of a request, in order of arrival.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn write(&mut self, key: RequestKey, chunks: &[OutputChunk]) -> io::Result<()> {
        for part in chunks.chunks(CHUNKS_PER_BLOCK) {
            if part.iter().any(|chunk| chunk.tokens.is_some()) {
                encode_tokens(&mut self.payload, part);
                self.write_block()?;
            }
            encode_chunks(&mut self.payload, key, part);
            self.write_block()?;
            self.blocks += 1;
            self.chunks += part.len() as u64;
        }
        Ok(())
    }

    /// Hands everything written so far to the system.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the end and gives the underlying writer back, not flushed.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.payload.clear();
        self.payload.push(TAG_END);
        put_unsigned(&mut self.payload, self.blocks);
        put_unsigned(&mut self.payload, self.chunks);
        self.write_block()?;
        Ok(self.out)
    }

    fn write_block(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.payload.len()).map_err(io::Error::other)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&crc32(&self.payload).to_le_bytes())?;
        self.out.write_all(&self.payload)
    }
}

fn encode_chunks(payload: &mut Vec<u8>, key: RequestKey, chunks: &[OutputChunk]) {
    payload.clear();
    payload.push(TAG_CHUNKS);
    put_unsigned(payload, key.request_index);
    payload.push(u8::from(key.warmup));
    put_unsigned(payload, chunks.len() as u64);
    let (mut before, mut choice) = (0_i64, 0);
    for chunk in chunks {
        let mut flags = kind_bits(chunk.kind);
        flags |= if chunk.ends_read { FLAG_ENDS_READ } else { 0 };
        flags |= if chunk.kernel.is_some() { FLAG_KERNEL } else { 0 };
        flags |= if chunk.choice == choice { 0 } else { FLAG_CHOICE };
        payload.push(flags);
        if chunk.choice != choice {
            put_unsigned(payload, u64::from(chunk.choice));
            choice = chunk.choice;
        }
        // Differences wrap, and wrap back when they are added: every stamp survives, however odd.
        put_signed(payload, chunk.user.0.wrapping_sub(before));
        if let Some(kernel) = chunk.kernel {
            put_signed(payload, chunk.user.0.wrapping_sub(kernel.0));
        }
        put_signed(payload, chunk.not_before.0.wrapping_sub(before));
        before = chunk.user.0;
    }
}

fn encode_tokens(payload: &mut Vec<u8>, chunks: &[OutputChunk]) {
    payload.clear();
    payload.push(TAG_TOKENS);
    put_unsigned(payload, chunks.len() as u64);
    for chunk in chunks {
        put_unsigned(payload, chunk.tokens.map_or(0, |tokens| u64::from(tokens) + 1));
    }
}

const fn kind_bits(kind: OutputKind) -> u8 {
    match kind {
        OutputKind::Reasoning => 0,
        OutputKind::Content => 1,
        OutputKind::ToolCall => 2,
        OutputKind::Refusal => 3,
    }
}

/// Writes one line per request that is no warm-up, `{"request_index", "at_ns": […], "exact": […]}`: the instants of its
/// output chunks by the request's own clock, and whether each is its chunk's own. A request without output has empty
/// lists. Where the server counted the tokens of chunks, `"tokens": […]` follows, `null` for a chunk without a count.
///
/// # Errors
/// Those of the underlying writer.
pub fn events_jsonl(rows: impl RowSource, events: &RunEvents, mut out: impl Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line {
        request_index: u64,
        at_ns: Vec<i64>,
        exact: Vec<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tokens: Option<Vec<Option<u32>>>,
    }
    for row in rows.measured() {
        let row: &RequestRow = row.borrow();
        let chunks = events.of(RequestKey::of(row));
        let is_counted = chunks.iter().any(|c| c.tokens.is_some());
        let line = Line {
            request_index: row.request_index,
            at_ns: chunks.iter().map(|c| c.at(row.stamp_source).0).collect(),
            exact: chunks.iter().map(|c| c.ends_read).collect(),
            tokens: is_counted.then(|| chunks.iter().map(|c| c.tokens).collect()),
        };
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
