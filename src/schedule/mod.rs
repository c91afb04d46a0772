//! Due or not due: what a worker may send next.
//!
//! A closed loop knows one rule: a slot that is free takes the next request of the plan. In an open loop the [`pacer`]
//! says when each request is due. [`supply`] holds the requests, rendered before they are needed.

pub mod outgoing;
pub mod pacer;
pub mod supply;
pub mod wait;

pub use outgoing::Outgoing;
pub use pacer::Pacer;
pub use supply::{Next, Prepared, Supply};
