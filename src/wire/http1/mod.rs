//! HTTP/1.x as a client speaks it: requests rendered once, responses decoded where they lie.
//!
//! ```text
//! RequestTemplate ─► head bytes ─► (socket) ─► ResponseDecoder ─► Interim* Head Data* End
//!                                              head ─► framing ─► body ─► chunk lines, trailers
//! ```
//!
//! Rules: RFC 9110 and RFC 9112. Heads and trailers go through httparse with folded lines allowed and every other
//! leniency off; lines, framing and the chunked coding are read here. What the RFC lets a client choose is accepted
//! and flagged ([`Anomaly`]) where the meaning stays certain, and refused where it does not.
//!
//! Not done here: sockets, TLS, time limits, content codings, redirects, pooling. The layer above asks [`Head`].
//!
//! Re-exports only.

mod body;
mod category;
mod chunk;
mod decoder;
mod error;
mod fields;
mod framing;
mod grammar;
mod head;
pub mod limits;
mod request;
mod status_line;

pub use crate::record::{Anomalies, Anomaly};
pub use category::Category;
pub use decoder::{Decoded, Part, ResponseDecoder};
pub use error::{FieldRule, HttpError, SizeLimit};
pub use framing::Framing;
pub use head::{Head, Version};
pub use request::{Accept, Method, RequestError, RequestParts, RequestTemplate, authority};
