//! What the kernel says about the connection of a request when it ends.

/// Counts of the client's side of a connection over one request. `None` where the kernel was not asked, does not say, or
/// what it says cannot be told apart from what belongs to an earlier request of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransportFacts {
    /// The shortest round trip of the connection in the last minutes, in microseconds. Not the smoothed one: that holds
    /// the time for which a server that has nothing to say yet keeps an acknowledgement back.
    pub rtt_us: Option<u32>,
    /// Segments that were sent again, those of connecting included.
    pub retransmits: Option<u32>,
    /// How long bytes of the request were sent and not acknowledged, or waited for room on the way, in microseconds;
    /// without the time in which the peer's window was closed.
    pub unacked_us: Option<u32>,
}
