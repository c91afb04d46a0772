//! One output chunk on the run's axis: what the collector hands on beside the rows. Nothing here is a clock reading
//! any more, and nothing is computed.

use crate::metrics::row::StampSource;
use crate::record::OutputKind;
use crate::units::Nanos;

/// One output chunk of a request. The chunks of a request come in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputChunk {
    /// The choice it belongs to.
    pub choice: u32,
    /// What it carried.
    pub kind: OutputKind,
    /// When the kernel received the read's last segment, on the run's axis; `None` where the read came without a stamp.
    pub kernel: Option<Nanos>,
    /// When the read returned, by the user-space clock.
    pub user: Nanos,
    /// The chunk cannot have arrived before this: the socket's queue was empty at or after it.
    pub not_before: Nanos,
    /// It was the last event of its read, so that the stamp is its own.
    pub ends_read: bool,
    /// Tokens that came with it, by the server's count as it goes; `None` where there is no such count.
    pub tokens: Option<u32>,
}

impl OutputChunk {
    /// The instant by the clock of its request: one source per request, so that gaps never mix two clocks.
    #[must_use]
    pub fn at(&self, source: StampSource) -> Nanos {
        match source {
            StampSource::Kernel => self.kernel.unwrap_or(self.user),
            StampSource::User => self.user,
        }
    }
}
