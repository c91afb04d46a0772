//! Makes sure that the kernel stamps received segments before the first one that counts.
//!
//! The kernel switches its receive stamping on when the first socket asks for it, by a job of its own that may run
//! later; the first segments may carry none. So one socket asks early, stays open for the whole run, and segments go
//! through it until one comes back stamped.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nix::errno::Errno;

use crate::client::route::Route;
use crate::client::socket::{ReadBuffer, StreamSocket};

/// Exchanges before giving up: with the pause below, a second. The kernel's job takes a millisecond on an idle machine
/// and was seen to take tens on a loaded one; a run without kernel stamps would be the worse end.
const TRIES: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(1);

/// Keeps the kernel's receive stamping switched on as long as it lives.
#[derive(Debug)]
pub struct StampKeeper {
    _receiver: StreamSocket,
    _sender: TcpStream,
}

/// Switches receive stamping on; `None` when this kernel (or this sandbox) gives no stamps.
#[must_use]
pub fn switch_on() -> Option<StampKeeper> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).ok()?;
    let route = Route { source: None, address: listener.local_addr().ok()? };
    let (receiver, _) = StreamSocket::connect(route, None, true).ok()?;
    let (mut sender, _) = listener.accept().ok()?;
    sender.set_nodelay(true).ok()?;
    let mut buffer = ReadBuffer::new();
    for _ in 0..TRIES {
        sender.write_all(b"?").ok()?;
        loop {
            match receiver.receive(&mut buffer) {
                Ok(received) if received.kernel.is_some() => {
                    return Some(StampKeeper { _receiver: receiver, _sender: sender });
                }
                Ok(_) => break,
                Err(Errno::EAGAIN | Errno::EINTR) => std::thread::yield_now(),
                Err(_) => return None,
            }
        }
        std::thread::sleep(PAUSE);
    }
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_kernel_stamps() {
        assert!(super::switch_on().is_some());
    }
}
