//! Bytes to meaning and back, sans-IO: no sockets, no clock, no allocation in steady state.
//!
//! `http1` renders requests and reads responses. A room here is handed bytes and hands out parts of them; who read
//! them, when, and from where is not its business.

pub mod http1;
