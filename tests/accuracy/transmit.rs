//! The stamp of a request leaving the host, between the client's own readings around its send call and the instant at
//! which the simulator had read it.

use std::sync::PoisonError;

use hammerscale::audit::{Deviation, Pairing};
use hammerscale::units::Nanos;

use crate::product::run_to_its_end;
use crate::{ALONE, AXIS_TOLERANCE_US, say, say_spread};

/// Of a thousand requests, how many may have a stamp after their send call returned: over loopback the device is in the
/// call, unless the kernel was overloaded and put the sending off.
const AFTER_THE_CALL_PER_MILLE: usize = 10;

/// Every request has such a stamp, and it lies where it must.
pub(crate) fn judge(pairing: &Pairing<'_>) {
    let (mut from_start, mut to_end, mut to_arrival) = (Vec::new(), Vec::new(), Vec::new());
    for request in &pairing.requests {
        let row = request.row;
        let left = row.sent_wire.expect("a request without a stamp of leaving the host").0;
        from_start.push(Nanos(left - row.send_start.unwrap().0));
        to_end.push(Nanos(row.send_end.unwrap().0 - left));
        to_arrival.push(Nanos(request.truth.arrival.0 - pairing.zero.0 - left));
    }
    let earliest = |spans: &[Nanos]| spans.iter().min().unwrap().as_micros_f64();
    for (what, spans) in [
        ("send start to device", &from_start),
        ("device to send end", &to_end),
        ("device to arrival", &to_arrival),
    ] {
        say_spread(what, &Deviation::of(spans));
    }
    assert!(
        earliest(&from_start) >= -AXIS_TOLERANCE_US,
        "left {} µs after it was sent",
        earliest(&from_start)
    );
    assert!(
        earliest(&to_arrival) >= -AXIS_TOLERANCE_US,
        "arrived {} µs after it left",
        earliest(&to_arrival)
    );
    let late = to_end.iter().filter(|span| span.as_micros_f64() < -AXIS_TOLERANCE_US).count();
    assert!(late * 1_000 <= to_end.len() * AFTER_THE_CALL_PER_MILLE, "{late} of {}", to_end.len());
}

/// What does not fit into the peer's window leaves later, and its stamp comes when the loop is elsewhere: it must not be
/// taken for the end of the connection, and it is the stamp of the last byte all the same.
#[test]
fn a_large_request_is_stamped_when_its_last_byte_leaves() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = tempfile::tempdir().unwrap();
    let flags = [
        "--sim=ttft=20ms;itl=1ms;tokens=2",
        "--ctx-tokens=400000",
        "--max-model-len=1000000",
        "--requests=8",
        "--concurrency=2",
        "--max-tokens=2",
    ];
    let run = run_to_its_end(scratch.path(), &flags, |_| ());
    assert_eq!(run.document().instrument.tx_stamp_share, Some(1.0));
    for request in run.requests() {
        let row = request.row;
        assert!(row.counters.bytes_sent > 1_000_000);
        let (left, first_byte) = (row.sent_wire.unwrap(), row.at.first_byte.unwrap());
        assert!(row.send_start.unwrap() <= left && left < first_byte, "{row:?}");
    }
    say("large requests");
    let late = run.requests().filter(|request| request.row.sent_wire > request.row.send_end).count();
    say(&format!("  {late} of 8 left after their last send call had returned"));
}
