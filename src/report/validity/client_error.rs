//! What the client may have added to the latencies of a run: a bound, from what the run itself measured.
//!
//! A latency is a receive stamp minus send start. The client can make it longer in three ways, and the bound is their
//! sum:
//!
//! * **Sending.** Send start is read before the call that gives the request to the kernel, and the request leaves at some
//!   moment before that call is done. A client that loses its core in between makes every latency of the request longer
//!   by that. The bound is the 99th percentile of send end − send start. It holds what the call itself takes; for a
//!   request that does not fit the socket's buffer it also holds the wait for the peer, and is wide then.
//! * **Receiving.** The kernel stamps bytes when they arrive, however late the client reads them, so a kernel stamp adds
//!   nothing. A request that is timed by the user-space clock is later by its read delay: where there is one, the 99th
//!   percentile of the read delay is part of the sum.
//! * **The axis.** The two stamps come from two clocks: the error of the axis against CLOCK_MONOTONIC, and half the
//!   widest bracket around the wall clock, of which kernel stamps are.
//!
//! Not in it: how late a request was sent (the latencies from due hold that, openly), and events that share a read (they
//! have bounds of their own and enter no percentile).

use crate::aggregate::summary::Summary;
use crate::metrics::MetricId;
use crate::report::document::instrument::InstrumentDoc;

/// The bound in microseconds; `None` where one of its parts is not known, so in a run without a valid request too.
pub(in crate::report) fn bound_us(instrument: &InstrumentDoc, summary: &Summary) -> Option<f64> {
    let sending_ms = summary.metric(MetricId::RequestWrite)?.percentiles?.p99;
    let late_us = match summary.stamps.user_requests {
        0 => 0.0,
        _ => summary.stamps.read_delay_us?.percentiles.p99,
    };
    let clock = &instrument.clock;
    Some(sending_ms * 1e3 + late_us + clock.error_us? + clock.wall_bracket_us?)
}
