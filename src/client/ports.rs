//! Which local port a connection takes, where leaving it to the kernel would be slow.
//!
//! For a connection the kernel tries every second port of its range first, and the others only when all of those are
//! taken for this pair of addresses; from about 14,000 connections on each one pays for that search (a millisecond
//! instead of 17 µs). So the kernel chooses for the first connections of a route, and after them we name ports of the
//! half that it has not touched. Where the named ones are taken too, the kernel chooses again: it finds what is left.

use std::ops::RangeInclusive;
use std::path::Path;

/// Connections of a route for which the kernel chooses: below half of its usual range (28,232), with room for what
/// other programs hold.
pub(super) const LEFT_TO_THE_KERNEL: u64 = 12_000;

/// Named ports that are tried before the kernel chooses again. They are taken only in a run that makes more connections
/// than there are ports, and the kernel's search is the cheaper one when all are.
const TRIES: u32 = 4;

/// The half of the local port range that the kernel takes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    count: u32,
    /// Where this process begins, so that it does not meet the ports that another one just left.
    start: u32,
}

impl Ports {
    /// The ports of this system; `None` where its range is not known, or where some of it is reserved: then only the
    /// kernel knows what may be taken.
    #[must_use]
    pub fn of_system() -> Option<Self> {
        Self::read(Path::new("/proc/sys/net/ipv4"), std::process::id())
    }

    fn read(dir: &Path, seed: u32) -> Option<Self> {
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
        if !text("ip_local_reserved_ports")?.trim().is_empty() {
            return None;
        }
        let range = text("ip_local_port_range")?;
        let mut ends = range.split_whitespace().map(str::parse::<u16>);
        let range = ends.next()?.ok()?..=ends.next()?.ok()?;
        Self::within(&range, seed)
    }

    pub(super) fn within(range: &RangeInclusive<u16>, seed: u32) -> Option<Self> {
        // The kernel begins with every second port from the lower end on.
        let first = range.start().checked_add(1)?;
        let count = u32::from(range.end().checked_sub(first)?) / 2 + 1;
        // A prime beyond every count: neighbouring process numbers begin far from each other.
        Some(Self { first, count, start: seed.wrapping_mul(65_537) % count })
    }

    /// What the `nth` connection of a route (from 0) tries: ports, and then `None` for the kernel's choice.
    pub(super) fn to_try(self, nth: u64) -> impl Iterator<Item = Option<u16>> {
        let named =
            nth.checked_sub(LEFT_TO_THE_KERNEL).map(move |n| (0..TRIES).filter_map(move |k| self.port(n, k)));
        named.into_iter().flatten().map(Some).chain([None])
    }

    /// The `n`-th port of our own, at the `k`-th try. A try jumps ahead by its share of all ports: the next one would be
    /// the next connection's first choice, and from there on every one would miss.
    fn port(self, n: u64, k: u32) -> Option<u16> {
        let ahead = u64::from(self.start) + n + u64::from(k) * u64::from(self.count / TRIES);
        let place = u16::try_from(ahead % u64::from(self.count)).ok()?;
        place.checked_mul(2)?.checked_add(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn usual() -> Ports {
        Ports::within(&(32_768..=60_999), 4_711).unwrap()
    }

    fn firsts(ports: Ports, connections: std::ops::Range<u64>) -> Vec<Option<u16>> {
        connections.map(|nth| ports.to_try(nth).next().unwrap()).collect()
    }

    #[test]
    fn the_kernel_chooses_first_and_then_every_other_port_comes_once() {
        assert!(firsts(usual(), 0..LEFT_TO_THE_KERNEL).iter().all(Option::is_none));
        let named = firsts(usual(), LEFT_TO_THE_KERNEL..LEFT_TO_THE_KERNEL + 14_116);
        let named: BTreeSet<u16> = named.into_iter().map(Option::unwrap).collect();
        assert_eq!(named, (32_769..=60_999).step_by(2).collect());
        assert_eq!(named.len(), 14_116);
        let again = LEFT_TO_THE_KERNEL + 14_116;
        assert_eq!(
            firsts(usual(), again..again + 1),
            firsts(usual(), LEFT_TO_THE_KERNEL..LEFT_TO_THE_KERNEL + 1)
        );
    }

    #[test]
    fn a_connection_tries_ports_far_apart_and_then_leaves_it_to_the_kernel() {
        let tries: Vec<Option<u16>> = usual().to_try(u64::MAX / 2).collect();
        assert_eq!(tries.len(), TRIES as usize + 1);
        assert_eq!(tries.last(), Some(&None));
        let named: BTreeSet<u16> = tries.into_iter().flatten().collect();
        assert_eq!(named.len(), TRIES as usize);
        assert!(named.iter().zip(named.iter().skip(1)).all(|(a, b)| b - a > 1_000), "{named:?}");
    }

    #[test]
    fn odd_and_empty_ranges_are_understood() {
        for (range, expected) in [(5..=9, vec![6, 8]), (5..=10, vec![6, 8, 10]), (5..=6, vec![6])] {
            let ports = Ports::within(&range, 1).unwrap();
            let named = firsts(ports, LEFT_TO_THE_KERNEL..LEFT_TO_THE_KERNEL + expected.len() as u64);
            assert_eq!(
                named.into_iter().flatten().collect::<BTreeSet<u16>>(),
                expected.into_iter().collect()
            );
        }
        for empty in [5..=5, 65_535..=65_535, RangeInclusive::new(9, 5)] {
            assert_eq!(Ports::within(&empty, 1), None);
        }
    }

    #[test]
    fn a_system_that_reserves_ports_or_says_nothing_has_none_for_us() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(Ports::read(dir.path(), 1), None);
        write("ip_local_reserved_ports", "\n");
        write("ip_local_port_range", "32768\t60999\n");
        assert_eq!(Ports::read(dir.path(), 4_711), Some(usual()));
        write("ip_local_port_range", "32768\n");
        assert_eq!(Ports::read(dir.path(), 1), None);
        write("ip_local_port_range", "32768\t60999\n");
        write("ip_local_reserved_ports", "40000-40010\n");
        assert_eq!(Ports::read(dir.path(), 1), None);
    }
}
