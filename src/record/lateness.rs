//! Counts of spans by their length: as much memory for a billion of them as for one.
//!
//! Log-linear: a power of two is divided into 128 parts, so a span is known to 0.4%. Count, mean, smallest and largest
//! are exact.

use crate::units::Nanos;

/// Parts of a power of two, as a power of two.
const PARTS_LOG: u32 = 7;
const PARTS: usize = 1 << PARTS_LOG;

/// Spans from 2^40 ns (18 minutes) on share a place: no wait of a loop is that late.
const TOP_LOG: u32 = 40;

/// 4,480 places, 35 KiB.
const PLACES: usize = (TOP_LOG - PARTS_LOG + 2) as usize * PARTS;

/// Spans by which something was late, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lateness {
    places: Vec<u64>,
    count: u64,
    sum_ns: u128,
    min: u64,
    max: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { places: vec![0; PLACES], count: 0, sum_ns: 0, min: u64::MAX, max: 0 }
    }
}

impl Lateness {
    /// Counts a span; a negative one as zero. Allocates nothing.
    #[inline]
    pub fn add(&mut self, span: Nanos) {
        let ns = span.0.max(0).unsigned_abs();
        if let Some(place) = self.places.get_mut(place_of(ns)) {
            *place += 1;
        }
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds all spans of another.
    pub fn merge(&mut self, other: &Self) {
        for (own, more) in self.places.iter_mut().zip(&other.places) {
            *own += more;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their mean in nanoseconds; `None` without any.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a mean of clock readings needs no more digits")]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The `index`-th in ascending order, from 0: the middle of its place, within the smallest and the largest. `None`
    /// beyond them.
    #[must_use]
    pub fn nth(&self, index: u64) -> Option<Nanos> {
        if index >= self.count {
            return None;
        }
        if index == 0 || index + 1 == self.count {
            return i64::try_from(if index == 0 { self.min } else { self.max }).ok().map(Nanos);
        }
        let mut before = 0_u64;
        let place = self.places.iter().position(|count| {
            before += count;
            before > index
        })?;
        i64::try_from(middle_of(place).clamp(self.min, self.max)).ok().map(Nanos)
    }
}

/// The place of a span.
fn place_of(ns: u64) -> usize {
    let ns = ns.min(1 << TOP_LOG);
    let shift = ns.checked_ilog2().unwrap_or(0).saturating_sub(PARTS_LOG);
    // Below 2^7 a place holds one span; from there on the leading bit moves the place up by a power of two.
    let places = u64::from(shift) * PARTS as u64 + (ns >> shift);
    usize::try_from(places).unwrap_or(PLACES)
}

/// The middle of the spans of a place.
fn middle_of(place: usize) -> u64 {
    let shift = (place / PARTS).saturating_sub(1);
    let lowest = ((place - shift * PARTS) as u64) << shift;
    lowest + ((1_u64 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_is_known_to_less_than_half_a_percent() {
        let mut last = 0;
        for ns in
            (0..100_000).chain((17..40).flat_map(|log| [(1_u64 << log) - 1, 1 << log, (1 << log) + 12_345]))
        {
            let place = place_of(ns);
            assert!(place < PLACES && (place >= last || ns < 100_000), "{ns}");
            last = place;
            let off = middle_of(place).abs_diff(ns);
            assert!(off * 250 <= ns, "{ns}: {}", middle_of(place));
        }
        assert_eq!(place_of(u64::MAX), place_of(1 << TOP_LOG));
        assert!(place_of(u64::MAX) < PLACES);
    }

    #[test]
    fn order_statistics_are_those_of_the_sorted_spans() {
        let spans: Vec<i64> = (0..5_000_i64).map(|i| (i * 7_919) % 5_003 * (i % 977)).collect();
        let (mut one, mut two) = (Lateness::default(), Lateness::default());
        for (i, ns) in spans.iter().enumerate() {
            if i % 3 == 0 { one.add(Nanos(*ns)) } else { two.add(Nanos(*ns)) }
        }
        one.merge(&two);
        let mut sorted = spans.clone();
        sorted.sort_unstable();
        assert_eq!(one.count(), 5_000);
        assert_eq!(one.mean_ns(), Some(spans.iter().sum::<i64>() as f64 / 5_000.0));
        for index in [0_usize, 1, 49, 2_499, 4_949, 4_994, 4_999] {
            let (got, want) = (one.nth(index as u64).unwrap().0, sorted[index]);
            assert!((got - want).abs() * 250 <= want, "{index}: {got} {want}");
        }
        assert_eq!(
            (one.nth(0).unwrap().0, one.nth(4_999).unwrap().0),
            (sorted[0], sorted[4_999]),
            "the ends are exact"
        );
        assert_eq!(one.nth(5_000), None);
    }

    #[test]
    fn nothing_is_none_and_early_is_not_late() {
        let mut spans = Lateness::default();
        assert_eq!((spans.count(), spans.mean_ns(), spans.nth(0)), (0, None, None));
        spans.add(Nanos(-5));
        assert_eq!((spans.mean_ns(), spans.nth(0)), (Some(0.0), Some(Nanos(0))));
    }
}
