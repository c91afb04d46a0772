//! Bytes and their meaning, sans-IO: no socket, no clock, no allocation in steady state.

pub mod dialect;
