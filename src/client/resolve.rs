//! From a host name to the addresses that connections are made to.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::client::route::{self, Route};

/// A name with several addresses is tried this long per address before the run; an address that does not answer is
/// not used (a server that listens on 127.0.0.1 only is not found at ::1).
const TRIAL: Duration = Duration::from_secs(2);

/// Resolves a host, each address once. Literals are taken as they are.
///
/// # Errors
/// The resolver's error; an empty answer is an error too.
pub fn resolve(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let mut all: Vec<SocketAddr> = Vec::new();
    for address in (host, port).to_socket_addrs()? {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    if all.is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(all)
}

/// Of the addresses that routes lead to, those that accept a connection now, in order. When none does, all, so that the
/// requests report what is wrong; a single one is not asked.
#[must_use]
pub fn answering(routes: &[Route]) -> Vec<SocketAddr> {
    // An address is tried over the first route to it.
    let mut firsts: Vec<Route> = Vec::new();
    for route in routes {
        if firsts.iter().all(|first| first.address != route.address) {
            firsts.push(*route);
        }
    }
    let all = || firsts.iter().map(|route| route.address).collect();
    if firsts.len() <= 1 {
        return all();
    }
    let alive = firsts.iter().filter(|route| route::connect_blocking(**route, TRIAL).is_ok());
    let alive: Vec<SocketAddr> = alive.map(|route| route.address).collect();
    if alive.is_empty() { all() } else { alive }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_is_taken_as_it_is_and_a_name_gives_what_listens() {
        assert_eq!(resolve("127.0.0.1", 9).unwrap(), vec!["127.0.0.1:9".parse().unwrap()]);
        assert_eq!(resolve("::1", 9).unwrap(), vec!["[::1]:9".parse().unwrap()]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let named = route::routes(&[], &resolve("localhost", own.port()).unwrap());
        assert_eq!(answering(&named), vec![own]);
        // Where nobody answers, the requests are to say why.
        let nobody: Vec<SocketAddr> = ["127.0.0.2:1", "127.0.0.3:1"].map(|a| a.parse().unwrap()).into();
        assert_eq!(answering(&route::routes(&[], &nobody)), nobody);
        assert_eq!(answering(&[]), Vec::<SocketAddr>::new());
    }
}
