//! The stamp of a request leaving the host, between the client's own readings around its send call and the instant at
//! which the simulator had read it.

use hammerscale::audit::Pairing;
use hammerscale::units::Nanos;

use crate::{AXIS_TOLERANCE_US, say};

/// Of a thousand requests, how many may have a stamp after their send call returned: over loopback the device is in the
/// call, unless the kernel was overloaded and put the sending off.
const AFTER_THE_CALL_PER_MILLE: usize = 10;

/// Every request has such a stamp, and it lies where it must.
pub(crate) fn judge(pairing: &Pairing<'_>) {
    let micros = |later: Nanos, earlier: Nanos| Nanos(later.0 - earlier.0).as_micros_f64();
    let (mut from_start, mut before_end, mut to_arrival) = (Vec::new(), Vec::new(), Vec::new());
    for request in &pairing.requests {
        let row = request.row;
        let left = row.sent_wire.expect("a request without a stamp of leaving the host");
        from_start.push(micros(left, row.send_start.unwrap()));
        before_end.push(micros(row.send_end.unwrap(), left));
        to_arrival.push(micros(request.truth.arrived.arrival, Nanos(left.0 + pairing.zero.0)));
    }
    for (what, spans) in [
        ("send start to device", &mut from_start),
        ("device to send end", &mut before_end),
        ("device to arrival", &mut to_arrival),
    ] {
        spans.sort_by(f64::total_cmp);
        let at = |part: f64| spans[((spans.len() - 1) as f64 * part) as usize];
        say(&format!("  {what:<22} min {:>7.2}  p50 {:>7.2}  p99 {:>8.2}", spans[0], at(0.5), at(0.99)));
    }
    assert!(from_start[0] >= -AXIS_TOLERANCE_US, "left {} µs before it was sent", -from_start[0]);
    assert!(to_arrival[0] >= -AXIS_TOLERANCE_US, "arrived {} µs before it left", -to_arrival[0]);
    let late = before_end.iter().filter(|us| **us < -AXIS_TOLERANCE_US).count();
    assert!(late * 1_000 <= before_end.len() * AFTER_THE_CALL_PER_MILLE, "{late} of {}", before_end.len());
}
