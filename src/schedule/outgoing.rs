//! The bytes of one request on their way to a socket.

use bytes::Bytes;

/// A head of its own with a small body in one piece, or a head and a body that requests share. Nothing is copied by
/// whoever writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outgoing {
    head: Bytes,
    shared: Bytes,
}

impl Outgoing {
    /// A request in two pieces.
    #[must_use]
    pub const fn sharing(head: Bytes, shared: Bytes) -> Self {
        Self { head, shared }
    }

    /// The piece that is to be written next; empty when all is written.
    #[must_use]
    pub const fn next(&self) -> &Bytes {
        if self.head.is_empty() { &self.shared } else { &self.head }
    }

    /// Whether another piece follows [`Outgoing::next`].
    #[must_use]
    pub const fn more_follows(&self) -> bool {
        !self.head.is_empty() && !self.shared.is_empty()
    }

    /// Whether all is written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head.is_empty() && self.shared.is_empty()
    }

    /// Drops what was written of the next piece, at most all of it; the last view of the bytes goes with them. How many
    /// bytes that were.
    pub fn written(&mut self, count: usize) -> usize {
        let piece = if self.head.is_empty() { &mut self.shared } else { &mut self.head };
        let count = count.min(piece.len());
        drop(piece.split_to(count));
        if piece.is_empty() {
            *piece = Bytes::new();
        }
        count
    }
}

/// A request in one piece.
impl From<Bytes> for Outgoing {
    fn from(head: Bytes) -> Self {
        Self { head, shared: Bytes::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_written_one_after_the_other_in_any_portions() {
        for portion in 1..=8 {
            let mut outgoing =
                Outgoing::sharing(Bytes::from_static(b"head"), Bytes::from_static(b"the body"));
            let (mut seen, mut flags) = (Vec::new(), Vec::new());
            while !outgoing.is_empty() {
                flags.push(outgoing.more_follows());
                let piece = outgoing.next().clone();
                let count = outgoing.written(portion);
                seen.extend_from_slice(&piece[..count]);
            }
            assert_eq!(seen, b"headthe body", "{portion}");
            assert!(flags.is_sorted_by(|a, b| a >= b) && flags.first() == Some(&true), "{flags:?}");
            assert_eq!(outgoing, Outgoing::default());
        }
        assert!(!Outgoing::from(Bytes::from_static(b"one")).more_follows());
    }
}
