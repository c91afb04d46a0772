//! The figures of the instrument on the terminal.

use super::layout::{Piece, clean};
use crate::report::document::instrument::InstrumentDoc;
use crate::units::display;

/// What is known, in the order in which it is shown; none where nothing was received.
pub(super) fn pieces(facts: &InstrumentDoc) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if let Some(source) = &facts.stamp_source {
        pieces.push(Piece::plain(format!("{} stamps", clean(source))));
    }
    for (what, spread) in [("read delay", &facts.read_delay_us), ("send lag", &facts.send_lag_us)] {
        if let Some(spread) = spread {
            let [p50, p99] =
                [spread.p50, spread.p99].map(|us| display::span_ms(us.unwrap_or(f64::NAN) / 1e3));
            pieces.push(Piece::plain(format!("{what} p50 {p50}, p99 {p99}")));
        }
    }
    if let Some(added) = facts.client_error_us {
        pieces.push(Piece::plain(format!("client adds at most {} (p99)", display::span_ms(added / 1e3))));
    }
    if let Some(error) = facts.clock.error_us {
        pieces.push(Piece::plain(format!("clock {} off", display::span_ms(error / 1e3))));
    } else if let Some(drift) = facts.clock.drift_ppm {
        pieces.push(Piece::plain(format!("clock {} ppm off", display::significant(drift, 2))));
    }
    pieces
}
