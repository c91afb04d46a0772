//! The slowest requests on the terminal: how many by where their time went, and the worst of them.

use super::layout::clean;
use crate::metrics::parts::Label;
use crate::report::document::slowest::SlowDoc;
use crate::units::display;

/// The heading and the line below it; `None` where there is nothing to tell.
pub(super) fn lines(slowest: &[SlowDoc]) -> Option<(String, String)> {
    let worst = slowest.first()?;
    let labels = [Label::Server, Label::Network, Label::Client, Label::Mixed].into_iter().map(Label::name);
    let counted = labels.map(|label| (slowest.iter().filter(|slow| slow.label == label).count(), label));
    let shares: Vec<String> =
        counted.filter(|(count, _)| *count > 0).map(|(count, label)| format!("{count} {label}")).collect();
    let heading = match slowest.len() {
        1 => format!("Slowest request: {}", clean(&worst.label)),
        several => format!("Slowest {several} requests: {}", shares.join(", ")),
    };
    let SlowDoc { client_ms, network_ms, server_ms, .. } = worst;
    let [took, client, network, server] =
        [client_ms + network_ms + server_ms, *client_ms, *network_ms, *server_ms].map(display::span_ms);
    let sent_again = match worst.retransmits {
        None | Some(0) => String::new(),
        Some(n) => format!(", {} sent again", display::counted(u64::from(n), "segment")),
    };
    let index = worst.request_index;
    Some((
        heading,
        format!(
            "request {index} took {took}: client {client}, network {network}, server {server}{sent_again}"
        ),
    ))
}
