//! Bytes and their meaning, without sockets and without clocks.
//!
//! Every reader here is a push parser: the caller owns the socket, stamps each read, and hands the bytes over;
//! what they mean comes back as borrowed slices. Nothing here awaits, reads time, or allocates once it is warm.

pub mod dialect;
pub mod http1;
pub mod response;
pub mod sse;
