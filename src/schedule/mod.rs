//! Due or not due: what a worker may send next.
//!
//! A closed loop knows one rule: a slot that is free takes the next request of the plan. [`supply`] holds those
//! requests, rendered before they are needed.

pub mod outgoing;
pub mod supply;

pub use outgoing::Outgoing;
pub use supply::{Next, Prepared, Supply};
