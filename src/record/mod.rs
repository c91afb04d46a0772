//! What a worker writes down: plain data of fixed size, raw clock readings, no metric words.
//!
//! A worker fills one [`RequestRecord`] per request and one [`ChunkStamp`] per output chunk and pushes them into
//! its rings. Ticks stay ticks here; `aggregate` scales them later, off the worker cores.

pub mod anomaly;
pub mod finish;
pub mod id;
pub mod mask;
pub mod outcome;
pub mod request;
pub mod ring;
pub mod usage;

pub use anomaly::{Anomalies, Anomaly};
pub use finish::{FinishReason, FinishReasons};
pub use id::RunId;
pub use outcome::Outcome;
pub use request::{
    CapturedText, ChunkStamp, Counters, ErrorDetail, OutputKind, Phase, RequestRecord, Stamp, StampKind,
};
pub use ring::{Inlet, Outlet, rings};
pub use usage::{MAX_TOKENS, Usage};
