//! The slowest requests in the document.

use serde::{Deserialize, Serialize};

use super::finite;
use crate::aggregate::slowest::SlowRequest;
use crate::units::Nanos;

/// One of the slowest requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowDoc {
    /// Position in the plan.
    pub request_index: u64,
    /// What was sent as `X-Request-Id`.
    pub request_id: String,
    /// End to end from due, as the metric of that name has it.
    pub e2e_from_due_ms: Option<f64>,
    /// Time that was this client's.
    pub client_ms: f64,
    /// Time that was the network's.
    pub network_ms: f64,
    /// The rest.
    pub server_ms: f64,
    /// The part that has at least half of the three: `client`, `network` or `server`; else `mixed`.
    pub label: String,
    /// Segments that were sent again; `null` where unknown.
    pub retransmits: Option<u32>,
    /// The connection's shortest round trip; `null` where unknown.
    pub rtt_us: Option<u32>,
}

impl SlowDoc {
    pub(super) fn all(slowest: &[SlowRequest], run_id: &str) -> Vec<Self> {
        slowest.iter().map(|slow| Self::of(slow, run_id)).collect()
    }

    /// No warm-up request is among them, so the name needs no phase.
    fn of(slow: &SlowRequest, run_id: &str) -> Self {
        let [client_ms, network_ms, server_ms] =
            [slow.parts.client, slow.parts.network, slow.parts.server].map(Nanos::as_millis_f64);
        Self {
            request_index: slow.request_index,
            request_id: format!("{run_id}-{}", slow.request_index),
            e2e_from_due_ms: slow.e2e_from_due_ms.and_then(finite),
            client_ms,
            network_ms,
            server_ms,
            label: slow.label.name().to_owned(),
            retransmits: slow.retransmits,
            rtt_us: slow.rtt_us,
        }
    }
}
