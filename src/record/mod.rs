//! What a worker writes down: plain data of fixed size, raw clock readings, no metric words.
//!
//! A worker fills one [`RequestRecord`] per request and one [`ChunkStamp`] per output chunk and pushes them into
//! its rings. Ticks stay ticks here; `aggregate` scales them later, off the worker cores.

pub mod anomaly;
pub mod finish;
pub mod id;
pub mod lateness;
pub mod mask;
pub mod outcome;
pub mod plain;
pub mod request;
pub mod ring;
pub mod stamps;
pub mod transport;
pub mod usage;

pub use anomaly::{Anomalies, Anomaly};
pub use finish::{FinishReason, FinishReasons};
pub use id::RunId;
pub use lateness::Lateness;
pub use outcome::Outcome;
pub use request::{CapturedText, ChunkStamp, Counters, ErrorDetail, OutputKind, Phase, RequestRecord};
pub use ring::{Ended, Inlet, Outlet, RingFill, rings};
pub use stamps::{Stamp, StampKind};
pub use transport::TransportFacts;
pub use usage::{MAX_TOKENS, Usage};
