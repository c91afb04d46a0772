//! Why a run could not be carried out: which stage, and its cause. The only place that knows every room's errors.
//!
//! A request that fails is no error here: it is counted by its outcome, and the run goes on.

use crate::client::PoolError;
use crate::config::usage::UsageError;
use crate::exit::Exit;
use crate::report::files::FilesError;
use crate::run::sim_child::SimChildError;
use crate::wire::http1::RequestError;

/// Why a run could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What was asked for cannot be done; nothing was sent.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// A header field cannot be sent; nothing was.
    #[error("--header: {0}")]
    Header(#[from] RequestError),
    /// More slots than this process may have descriptors.
    #[error(
        "--concurrency {slots} needs {needed} file descriptors and this process may have {limit}: raise the hard limit (ulimit -Hn) or lower the concurrency"
    )]
    Descriptors {
        /// Slots asked for.
        slots: u64,
        /// Descriptors they need.
        needed: u64,
        /// Descriptors there may be.
        limit: u64,
    },
    /// A place for results cannot be made; nothing was sent.
    #[error("{flag} cannot be made: {source}")]
    Files {
        /// The flag that names it, or could.
        flag: &'static str,
        /// Why not.
        source: FilesError,
    },
    /// The results cannot be written, and requests were sent already.
    #[error("the results could not be written: {0}")]
    Results(FilesError),
    /// The result was measured and saved, and could not be shown.
    #[error("the result cannot be written to standard output: {0}")]
    Show(std::io::Error),
    /// The simulator did not start.
    #[error(transparent)]
    Sim(#[from] SimChildError),
    /// A worker did not start.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The system refused something that every program gets.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl RunError {
    /// How the process ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Sim(SimChildError::Refused(_)) => Exit::Usage,
            Self::Usage(_) | Self::Header(_) | Self::Descriptors { .. } | Self::Files { .. } => Exit::Usage,
            Self::Results(_) | Self::Show(_) | Self::Sim(_) | Self::Pool(_) | Self::System { .. } => {
                Exit::Internal
            }
        }
    }
}
