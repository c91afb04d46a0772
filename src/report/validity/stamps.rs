//! How good the stamps are: how late reading was, what that did to them, and what the client may have added in all.

use super::{Asked, Findings, Verdict, share};
use crate::aggregate::summary::{LATE_READ, Summary};
use crate::report::document::instrument::InstrumentDoc;
use crate::units::display;

/// Largest 99th percentile of (user stamp − kernel stamp), in microseconds. An idle reader stays below 20, a loaded one
/// below 50; a millisecond means that the reading core was taken away or saturated.
pub const MAX_READ_DELAY_P99_US: f64 = 1_000.0;
/// Longest read delay, in microseconds, that is not told. Machines stop a process for tens of milliseconds now and then;
/// a quarter of a second is a client that stood still, however few reads it hit.
pub const MAX_READ_DELAY_US: f64 = 250_000.0;
/// Largest share of output chunks that share a read with an earlier one and were read
/// [late](crate::aggregate::summary::LATE_READ), so that the client may have merged them. Beyond it the gaps that are
/// known are a selection; what a server sends together is only told.
pub const MAX_COALESCED_SHARE: f64 = 0.05;
/// Whether the client may have added more than was allowed.
pub(super) fn added(instrument: &InstrumentDoc, asked: Asked, summary: &Summary, findings: &mut Findings) {
    let Some(limit) = asked.max_client_error_us.filter(|_| summary.counts.ok > 0) else { return };
    let allowed = display::span_ms(limit / 1e3);
    match instrument.client_error_us {
        Some(error) if error <= limit => {}
        Some(error) => findings.push((
            Verdict::Invalid,
            format!(
                "the client may have added {} to a latency (p99), more than the {allowed} of --max-client-error",
                display::span_ms(error / 1e3)
            ),
        )),
        None => findings.push((
            Verdict::Invalid,
            format!(
                "what the client added to a latency is unknown, and --max-client-error allows no more than {allowed}"
            ),
        )),
    }
}

/// How late reading was, and what that did to the stamps; whether it fell behind the kernel.
pub(super) fn late(instrument: &InstrumentDoc, summary: &Summary, findings: &mut Findings) -> bool {
    let stamps = &summary.stamps;
    let received = stamps.kernel_requests + stamps.user_requests;
    if instrument.kernel_stamps_missing > 0 {
        let (missing, all) = (display::whole(instrument.kernel_stamps_missing), display::whole(received));
        findings.push((
            Verdict::Suspect,
            format!("{missing} of {all} requests came without kernel stamps and are timed by the user clock"),
        ));
    }
    if let Some(max) = stamps.read_delay_us.map(|d| d.percentiles.max).filter(|max| *max > MAX_READ_DELAY_US)
    {
        let max = display::span_ms(max / 1e3);
        findings
            .push((Verdict::Suspect, format!("the client stood still: something waited {max} to be read")));
    }
    let p99 = stamps.read_delay_us.map(|delay| delay.percentiles.p99);
    match p99 {
        Some(p99) if p99 > MAX_READ_DELAY_P99_US => {
            let (p99, limit) = (display::span_ms(p99 / 1e3), display::span_ms(MAX_READ_DELAY_P99_US / 1e3));
            findings.push((
                Verdict::Suspect,
                format!("reading fell behind the kernel: p99 of the read delay is {p99}, above {limit}"),
            ));
        }
        None if received > 0 => findings.push((
            Verdict::Suspect,
            "how late reading was is unknown: there is no kernel stamp to compare with".to_owned(),
        )),
        _ => {}
    }
    let late =
        share(stamps.coalesced.late, stamps.output_chunks).filter(|share| *share > MAX_COALESCED_SHARE);
    if let Some(share) = late {
        let (share, limit) = (display::percent(share), display::percent(MAX_COALESCED_SHARE));
        let delay = display::span_ms(LATE_READ.as_millis_f64());
        findings.push((
            Verdict::Suspect,
            format!(
                "{share} of the output chunks (above {limit}) share a read with an earlier one that came over {delay} \
                 after the kernel's stamp: this side may have merged them"
            ),
        ));
    }
    if let Some(share) =
        share(stamps.coalesced.sent, stamps.output_chunks).filter(|share| *share > MAX_COALESCED_SHARE)
    {
        let share = display::percent(share);
        findings.push((
            Verdict::Valid,
            format!("{share} of the output chunks share a read with an earlier one: they were sent so"),
        ));
    }
    late.is_some() || p99.is_some_and(|p99| p99 > MAX_READ_DELAY_P99_US)
}
