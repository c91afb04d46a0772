//! Which local address connects to which address of the target: connections take the pairs in turn.
//!
//! The ports of a local address are counted per address and port of the target, about 28,000 of them with the kernel's
//! usual range, so several local addresses carry more connections than one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

/// Where a connection comes from and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The local address; `None` lets the system choose.
    pub source: Option<IpAddr>,
    /// The target's address.
    pub address: SocketAddr,
}

/// Every pair of one family once, sources and addresses both in turn; without sources every address once.
///
/// Taking both lists in turn by the same counter would leave out pairs wherever their lengths have a common divisor
/// (two and two: half of them). So each time both lists come to their ends together, the addresses go one further.
#[must_use]
pub fn routes(sources: &[IpAddr], addresses: &[SocketAddr]) -> Vec<Route> {
    if sources.is_empty() {
        return addresses.iter().map(|address| Route { source: None, address: *address }).collect();
    }
    if addresses.is_empty() {
        return Vec::new();
    }
    let rounds = common_divisor(sources.len(), addresses.len());
    let round = sources.len() / rounds * addresses.len();
    let pairs = (0..rounds).flat_map(|shift| {
        let sources = sources.iter().cycle();
        sources.zip(addresses.iter().cycle().skip(shift)).take(round)
    });
    let fitting = pairs.filter(|(source, address)| source.is_ipv4() == address.is_ipv4());
    fitting.map(|(source, address)| Route { source: Some(*source), address: *address }).collect()
}

/// The local addresses that have no address of the target to go to.
pub fn stranded<'a>(
    sources: &'a [IpAddr],
    addresses: &'a [SocketAddr],
) -> impl Iterator<Item = &'a IpAddr> + 'a {
    sources.iter().filter(|source| addresses.iter().all(|a| a.is_ipv4() != source.is_ipv4()))
}

/// Tries whether this machine has a local address.
///
/// # Errors
/// What the system says when it cannot be bound.
pub fn try_source(source: IpAddr) -> std::io::Result<()> {
    bind(&socket(source.is_ipv4(), Type::STREAM.cloexec())?, source)
}

/// A blocking connection over a route, for the control plane.
///
/// # Errors
/// What the system says; `TimedOut` after `limit`.
pub fn connect_blocking(route: Route, limit: Duration) -> std::io::Result<TcpStream> {
    let socket = socket(route.address.is_ipv4(), Type::STREAM.cloexec())?;
    if let Some(source) = route.source {
        bind(&socket, source)?;
    }
    socket.connect_timeout(&route.address.into(), limit)?;
    Ok(socket.into())
}

/// A TCP socket of a family.
pub(super) fn socket(ipv4: bool, kind: Type) -> std::io::Result<Socket> {
    Socket::new(if ipv4 { Domain::IPV4 } else { Domain::IPV6 }, kind, Some(Protocol::TCP))
}

/// Binds a socket to a local address. The port is chosen when it connects, among those that are free for that target;
/// chosen here it would have to be free for all of them.
pub(super) fn bind(socket: &Socket, source: IpAddr) -> std::io::Result<()> {
    setsockopt(socket, sockopt::IpBindAddressNoPort, &true)?;
    socket.bind(&SocketAddr::new(source, 0).into())
}

/// Binds a socket to a port, which other targets may be connected from already.
pub(super) fn bind_port(socket: &Socket, route: Route, port: u16) -> std::io::Result<()> {
    let any =
        if route.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(route.source.unwrap_or(any), port).into())
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::net::TcpListener;

    fn sources(count: u8) -> Vec<IpAddr> {
        (1..=count).map(|n| IpAddr::from([127, 0, 0, n])).collect()
    }

    fn addresses(count: u8) -> Vec<SocketAddr> {
        (1..=count).map(|n| SocketAddr::from(([10, 0, 0, n], 80))).collect()
    }

    #[test]
    fn every_pair_comes_once_and_both_lists_go_in_turn() {
        for (s, a) in [(1, 1), (1, 3), (3, 1), (2, 2), (2, 4), (3, 2), (4, 6), (6, 4), (5, 5)] {
            let routes = routes(&sources(s), &addresses(a));
            let mut seen = BTreeMap::new();
            for (n, route) in routes.iter().enumerate() {
                assert_eq!(route.source, Some(sources(s)[n % usize::from(s)]), "sources go in turn");
                *seen.entry((route.source, route.address)).or_insert(0) += 1;
            }
            assert_eq!(seen.len(), usize::from(s) * usize::from(a), "{s} x {a}");
            assert!(seen.values().all(|count| *count == 1), "{s} x {a}");
            // However few connections there are, no address of the target has more than a share and the step aside.
            for prefix in 1..=routes.len() {
                let count = |address| routes[..prefix].iter().filter(|r| r.address == address).count();
                let counts: Vec<usize> = addresses(a).into_iter().map(count).collect();
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 2, "{s} x {a}, {prefix}: {counts:?}");
            }
        }
    }

    #[test]
    fn families_do_not_mix_and_what_has_no_partner_is_named() {
        let mixed: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        let both: Vec<SocketAddr> = vec!["10.0.0.1:80".parse().unwrap(), "[fe80::1]:80".parse().unwrap()];
        let found = routes(&mixed, &both);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|r| r.source.unwrap().is_ipv4() == r.address.is_ipv4()));
        assert_eq!(stranded(&mixed, &both).count(), 0);
        assert_eq!(stranded(&mixed, &both[..1]).collect::<Vec<_>>(), [&mixed[1]]);
        assert_eq!(routes(&[], &both).len(), 2);
        assert_eq!(routes(&mixed, &[]), []);
    }

    #[test]
    fn only_an_address_of_this_machine_can_be_bound() {
        assert!(try_source([127, 0, 0, 7].into()).is_ok());
        // TEST-NET-1 (RFC 5737) belongs to no machine.
        let error = try_source([192, 0, 2, 1].into()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn a_blocking_connection_comes_from_its_source() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route { source: Some([127, 0, 0, 3].into()), address: listener.local_addr().unwrap() };
        let stream = connect_blocking(route, Duration::from_secs(5)).unwrap();
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
        assert_eq!(stream.local_addr().unwrap().ip(), route.source.unwrap());
    }
}
