//! From a host name to the addresses that connections are made to.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A name with several addresses is tried this long per address before the run; an address that does not answer is
/// not used (a server that listens on 127.0.0.1 only is not found at ::1).
const TRIAL: Duration = Duration::from_secs(2);

/// Resolves a host. Literals are taken as they are. Of several addresses those are used that accept a connection now;
/// when none does, all are kept, so that the requests report what is wrong.
///
/// # Errors
/// The resolver's error; an empty answer is an error too.
pub fn resolve(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let all: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    if all.is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"));
    }
    if all.len() == 1 {
        return Ok(all);
    }
    let mut alive: Vec<SocketAddr> =
        all.iter().copied().filter(|a| TcpStream::connect_timeout(a, TRIAL).is_ok()).collect();
    alive.dedup();
    Ok(if alive.is_empty() { all } else { alive })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_is_taken_as_it_is_and_a_name_gives_what_listens() {
        assert_eq!(resolve("127.0.0.1", 9).unwrap(), vec!["127.0.0.1:9".parse().unwrap()]);
        assert_eq!(resolve("::1", 9).unwrap(), vec!["[::1]:9".parse().unwrap()]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(resolve("localhost", port).unwrap(), vec![listener.local_addr().unwrap()]);
    }
}
