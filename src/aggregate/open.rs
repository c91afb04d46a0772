//! The output chunks of requests that have not ended: on the run's axis, and packed, because ten thousand streams may
//! have ten million of them. A chunk takes about 8 bytes.
//!
//! The layout is that of memory alone. A chunk that looks like the one before it (the usual case) is three numbers:
//! how much later its read returned, how much its read delay differs, and how long before that read its bound lies.

use crate::aggregate::chunk::OutputChunk;
use crate::metrics::varint::{put_signed, put_unsigned, take_signed, take_unsigned};
use crate::record::OutputKind;
use crate::units::Nanos;

/// The chunks of one request, in order of arrival.
#[derive(Debug, Clone)]
pub struct OpenChunks {
    bytes: Vec<u8>,
    before: OutputChunk,
    totals: ChunkTotals,
}

/// What the row of a request needs to know of its chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkTotals {
    /// How many.
    pub count: u64,
    /// Tokens of the first one; `None` without a count.
    pub first_tokens: Option<u32>,
    /// Tokens of all; `None` unless each came with its count.
    pub tokens: Option<u64>,
}

/// What the first chunk is compared with.
const NOTHING: OutputChunk = OutputChunk {
    choice: 0,
    kind: OutputKind::Content,
    kernel: Some(Nanos(0)),
    user: Nanos(0),
    not_before: Nanos(0),
    ends_read: true,
    tokens: None,
};

/// Storage grows by a quarter: doubling would waste as much as it holds.
const GROWTH: usize = 4;
/// Smallest growth.
const GROWTH_BYTES: usize = 64;
/// Room of one chunk at most: nine numbers of up to 10 bytes.
const CHUNK_BYTES: usize = 90;

const KINDS: [OutputKind; 4] =
    [OutputKind::Reasoning, OutputKind::Content, OutputKind::ToolCall, OutputKind::Refusal];

impl Default for OpenChunks {
    fn default() -> Self {
        Self { bytes: Vec::new(), before: NOTHING, totals: ChunkTotals::default() }
    }
}

impl OpenChunks {
    /// Adds a chunk.
    pub fn push(&mut self, chunk: OutputChunk) {
        if self.bytes.capacity() - self.bytes.len() < CHUNK_BYTES {
            self.bytes.reserve_exact(CHUNK_BYTES + (self.bytes.len() / GROWTH).max(GROWTH_BYTES));
        }
        let OutputChunk { choice, kind, kernel, user, not_before, ends_read, tokens } = chunk;
        let later = user.0.wrapping_sub(self.before.user.0).cast_unsigned();
        // The lowest bit says that the chunk is a usual one; a distance that has no room for it is not.
        if is_alike(&chunk, &self.before) && later >> (u64::BITS - 1) == 0 {
            put_unsigned(&mut self.bytes, later << 1);
        } else {
            put_unsigned(&mut self.bytes, 1);
            put_unsigned(&mut self.bytes, u64::from(choice));
            put_unsigned(&mut self.bytes, kind as u64);
            put_unsigned(&mut self.bytes, u64::from(kernel.is_some()));
            put_unsigned(&mut self.bytes, u64::from(ends_read));
            put_unsigned(&mut self.bytes, tokens.map_or(0, |tokens| u64::from(tokens) + 1));
            put_unsigned(&mut self.bytes, later);
        }
        if kernel.is_some() {
            put_signed(&mut self.bytes, delay(&chunk).wrapping_sub(delay(&self.before)));
        }
        put_signed(&mut self.bytes, self.before.user.0.wrapping_sub(not_before.0));
        let totals = &mut self.totals;
        let (sum, own) = (totals.tokens, tokens.map(u64::from));
        if totals.count == 0 {
            (totals.first_tokens, totals.tokens) = (tokens, own);
        } else {
            totals.tokens = sum.zip(own).map(|(sum, own)| sum.saturating_add(own));
        }
        totals.count += 1;
        self.before = chunk;
    }

    /// What they come to.
    #[must_use]
    pub fn totals(&self) -> ChunkTotals {
        self.totals
    }

    /// Appends them to `chunks`, as they were.
    pub fn unpack_into(&self, chunks: &mut Vec<OutputChunk>) {
        let (mut bytes, mut before) = (&self.bytes[..], NOTHING);
        while let Some(chunk) = take(&mut bytes, &before) {
            chunks.push(chunk);
            before = chunk;
        }
    }

    /// Bytes that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

fn take(bytes: &mut &[u8], before: &OutputChunk) -> Option<OutputChunk> {
    let head = take_unsigned(bytes)?;
    let mut chunk = OutputChunk { ..*before };
    let later = if head & 1 == 0 {
        head >> 1
    } else {
        chunk.choice = u32::try_from(take_unsigned(bytes)?).ok()?;
        chunk.kind = *KINDS.get(usize::try_from(take_unsigned(bytes)?).ok()?)?;
        chunk.kernel = (take_unsigned(bytes)? != 0).then_some(Nanos(0));
        chunk.ends_read = take_unsigned(bytes)? != 0;
        chunk.tokens = take_unsigned(bytes)?.checked_sub(1).and_then(|tokens| u32::try_from(tokens).ok());
        take_unsigned(bytes)?
    };
    chunk.user = Nanos(before.user.0.wrapping_add(later.cast_signed()));
    if chunk.kernel.is_some() {
        let delay = delay(before).wrapping_add(take_signed(bytes)?);
        chunk.kernel = Some(Nanos(chunk.user.0.wrapping_sub(delay)));
    }
    chunk.not_before = Nanos(before.user.0.wrapping_sub(take_signed(bytes)?));
    Some(chunk)
}

/// Whether the two differ in their instants alone.
fn is_alike(a: &OutputChunk, b: &OutputChunk) -> bool {
    a.choice == b.choice
        && a.kind == b.kind
        && a.kernel.is_some() == b.kernel.is_some()
        && a.ends_read == b.ends_read
        && a.tokens == b.tokens
}

/// From the kernel's stamp to the return of the read.
fn delay(chunk: &OutputChunk) -> i64 {
    chunk.kernel.map_or(0, |kernel| chunk.user.0.wrapping_sub(kernel.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn instant() -> impl Strategy<Value = Nanos> {
        prop_oneof![0..10_000_000_000_i64, any::<i64>()].prop_map(Nanos)
    }

    fn chunk() -> impl Strategy<Value = OutputChunk> {
        let what = (prop_oneof![Just(0_u32), any::<u32>()], 0..4_usize, any::<bool>());
        let tokens = prop_oneof![Just(None), Just(Some(1)), any::<u32>().prop_map(Some)];
        (what, prop::option::of(instant()), instant(), instant(), tokens).prop_map(
            |((choice, kind, ends_read), kernel, user, not_before, tokens)| OutputChunk {
                choice,
                kind: KINDS[kind],
                kernel,
                user,
                not_before,
                ends_read,
                tokens,
            },
        )
    }

    proptest! {
        #[test]
        fn chunks_come_back_as_they_were(chunks in prop::collection::vec(chunk(), 0..20)) {
            let mut open = OpenChunks::default();
            chunks.iter().for_each(|chunk| open.push(*chunk));
            let mut again = Vec::new();
            open.unpack_into(&mut again);
            prop_assert_eq!(&again, &chunks);
            let tokens: Option<Vec<u32>> = chunks.iter().map(|chunk| chunk.tokens).collect();
            let sum = tokens.filter(|t| !t.is_empty()).map(|t| t.iter().map(|n| u64::from(*n)).sum());
            let first_tokens = chunks.first().and_then(|chunk| chunk.tokens);
            prop_assert_eq!(open.totals(), ChunkTotals { count: chunks.len() as u64, first_tokens, tokens: sum });
        }
    }

    #[test]
    fn a_usual_chunk_takes_eight_bytes() {
        let mut open = OpenChunks::default();
        // Every 20 to 100 ms, read 6 to 14 µs after it came; the read before it began 3 µs before its end.
        let (mut user, count) = (5_000_000_000_i64, 10_000_u16);
        for i in (0..count).map(i64::from) {
            let before = user;
            user += 20_000_000 + (i * 7_919) % 80_000_000;
            open.push(OutputChunk {
                user: Nanos(user),
                kernel: Some(Nanos(user - 6_000 - (i * 31) % 8_000)),
                not_before: Nanos(before - 3_000),
                tokens: Some(1),
                ..NOTHING
            });
        }
        assert!(open.bytes.len() <= 8 * usize::from(count) + 20, "{}", open.bytes.len());
        assert!(open.bytes() <= 10 * usize::from(count), "{}", open.bytes());
    }
}
