//! Receive stamps of a response.

use crate::units::{Ticks, UnixNanos};

/// One receive instant: the user-space reading taken right after the receive call returned, and the kernel's
/// own stamp of the last segment in the read where it gave one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Raw counter right after the receive call.
    pub user: Ticks,
    /// The kernel's receive stamp; `None` where the read came without one, and for ends that are no read (end of
    /// stream, timeout).
    pub kernel: Option<UnixNanos>,
}

/// The receive stamps of a response, in order of meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampKind {
    /// First byte of the final response (1xx answers do not count).
    FirstByte,
    /// Head complete.
    HeadDone,
    /// First event of any kind.
    FirstEvent,
    /// First output chunk of any kind.
    FirstOutput,
    /// First reasoning chunk.
    FirstReasoning,
    /// First visible content chunk.
    FirstContent,
    /// First tool call chunk.
    FirstToolCall,
    /// Last output chunk.
    LastOutput,
    /// First event whose count of completion tokens is above zero, where such counts came before the first output or
    /// with it.
    FirstUsageToken,
    /// First textless chunk.
    FirstTextless,
    /// Last textless chunk.
    LastTextless,
    /// `[DONE]`, or the endpoint's own terminal.
    Terminal,
    /// Body complete, or the moment the request was given up.
    End,
}

impl StampKind {
    /// How many kinds there are.
    pub const COUNT: usize = 13;
}

/// The stamps of one response by kind. Which of them are set is told by one word: an event in the middle of a stream looks
/// at it and writes the one stamp that changes, where a place for each kind would cost it a cache line per question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamps {
    set: u16,
    at: [Stamp; StampKind::COUNT],
}

const _: () = assert!(StampKind::COUNT <= u16::BITS as usize, "every kind has its bit");

impl Default for Stamps {
    fn default() -> Self {
        Self { set: 0, at: [Stamp { user: Ticks(0), kernel: None }; StampKind::COUNT] }
    }
}

impl Stamps {
    #[inline]
    pub(super) fn has(&self, kind: StampKind) -> bool {
        self.set & kind.bit() != 0
    }

    pub(super) fn get(&self, kind: StampKind) -> Option<Stamp> {
        self.at.get(kind as usize).copied().filter(|_| self.has(kind))
    }

    #[inline]
    pub(super) fn set(&mut self, kind: StampKind, stamp: Stamp) {
        if let Some(place) = self.at.get_mut(kind as usize) {
            *place = stamp;
            self.set |= kind.bit();
        }
    }

    /// Whether these kinds are set and no other.
    pub(super) fn are_just(&self, kinds: &[StampKind]) -> bool {
        self.set == kinds.iter().fold(0, |set, kind| set | kind.bit())
    }

    pub(super) fn unset(&mut self, kind: StampKind) {
        self.set &= !kind.bit();
    }
}

impl StampKind {
    const fn bit(self) -> u16 {
        1 << self as u16
    }
}
