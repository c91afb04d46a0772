//! What the simulator is told to do, resolved and checked; and the limits it works within.
//!
//! Parsing of flags is `config::sim_args`; this is plain data.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use crate::sim::distribution::{CountDistribution, DurationDistribution};

/// Context length that `/v1/models` announces and requests are held to, in tokens: the largest context the
/// reference's prompts can ask for.
pub const MAX_MODEL_LEN: u64 = 1_048_576;

/// Tokens generated when a request names no limit and no distribution is set: an answer of ordinary length, where
/// real servers would go on to the end of the context.
pub const DEFAULT_TOKENS: u64 = 128;

/// The id of the one model in the list. Requests may name any model; the name is echoed.
pub const MODEL_ID: &str = "sim";

/// Everything about one simulator.
#[derive(Debug, Clone, PartialEq)]
pub struct SimOptions {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// From the complete request to the first output event.
    pub ttft: DurationDistribution,
    /// From one output event to the next.
    pub itl: DurationDistribution,
    /// Tokens of visible content; `None` is the number the request asks for.
    pub tokens: Option<CountDistribution>,
    /// Tokens of reasoning before the content.
    pub reasoning_tokens: CountDistribution,
    /// Tokens in one output event; a draw of 0 counts as 1.
    pub tokens_per_chunk: CountDistribution,
    /// Answers under way at once; later requests wait for their turn, and their time to first token begins with it.
    /// `None` is no limit.
    pub max_in_flight: Option<NonZeroUsize>,
    /// Where the truth is written; `None` keeps no ledger.
    pub ledger: Option<PathBuf>,
    /// Cores: the first runs the event loop, the others (or the same one) the ledger's writer. Empty leaves the
    /// choice to the scheduler.
    pub cores: Vec<usize>,
    /// Fixes every draw of every request.
    pub seed: u64,
    /// End when standard input reaches its end: the parent is gone.
    pub exit_with_stdin: bool,
}
