//! The ground-truth server: an OpenAI-compatible endpoint that answers on an exact schedule and keeps a ledger of what
//! it really wrote and when.
//!
//! An independent witness: it has its own HTTP parsing and framing, its own clock (the raw kernel clock) and its own
//! random numbers, and shares no code with `wire` or `clock`, so that a fault of the measuring side cannot cancel
//! itself. It runs as a process of its own, on other cores than the client.
//!
//! ```text
//! socket ─► request ─► endpoint ─► script ─► (due) ─► endpoint ─► framing ─► socket
//!                                                                      └─────► ledger
//! ```
//!
//! - [`options`], [`distribution`]: what it is told to do
//! - `request`: the request, read strictly
//! - `endpoint`: what the endpoints take and what their answers look like, a file for each
//! - `script`, `random`: which event is due when, a pure function of seed and arrival number
//! - `framing`: heads, chunks and error objects
//! - `connection`: one connection's life; `listener`, `server`, `slots`: the event loop; `timers`: deadlines and the
//!   wait for them; `turns`: the queue of requests; `stop`, `cores`: what the process gets from the system
//! - [`ledger`]: the truth file, its layout and its reader
//!
//! What it serves: `POST /v1/chat/completions`, `/v1/completions`, `/v1/responses` and `/v1/messages` (streamed and
//! whole), `POST /v1/embeddings` and `/tokenize`, `GET /v1/models` and `/health`. A connection that the peer closes or
//! half-closes while an answer is under way counts as given up, as with uvicorn and nginx.

mod clock;
mod connection;
mod cores;
pub mod distribution;
mod endpoint;
mod framing;
pub mod ledger;
mod listener;
pub mod options;
mod random;
mod request;
mod script;
mod server;
mod slots;
mod stop;
mod timers;
mod turns;

pub use distribution::{CountDistribution, DurationDistribution, Shape, ShapeError};
pub use options::SimOptions;
pub use server::{Server, SimError};
