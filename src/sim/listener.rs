//! The listening socket: taking connections from it, and leaving it alone while there is no descriptor for another.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use socket2::{Domain, Protocol, Socket, Type};

use crate::sim::cores;

/// Handshakes that may wait to be accepted. The kernel cuts this down to `net.core.somaxconn`; a burst of ten thousand
/// connections must not be refused for a smaller number of ours.
const LISTEN_BACKLOG: i32 = 65_535;

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    /// The word that epoll gives for it.
    token: u64,
    accepting: bool,
    /// Whether it was said that connections have to wait.
    has_complained: bool,
}

impl Listener {
    /// Listens; connections wait in the socket's queue until they are taken.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) fn bind(address: SocketAddr, token: u64) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(LISTEN_BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: socket.into(), token, accepting: true, has_complained: false })
    }

    /// Where it listens, with the port that was picked.
    ///
    /// # Errors
    /// Whatever the system says.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Puts the socket under watch.
    ///
    /// # Errors
    /// Whatever the system says.
    pub(crate) fn register(&self, epoll: &Epoll) -> Result<(), Errno> {
        epoll.add(&self.socket, EpollEvent::new(EpollFlags::EPOLLIN, self.token))
    }

    /// The next connection of the queue, ready for use; `None` when the queue is empty, or when no connection can be
    /// taken: then the queue is left alone until [`Self::resume`], and that is said once on standard error. `open` is
    /// the number of connections there are.
    ///
    /// # Errors
    /// Whatever epoll says.
    pub(crate) fn accept(
        &mut self,
        epoll: &Epoll,
        open: usize,
    ) -> Result<Option<(TcpStream, SocketAddr)>, Errno> {
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) => {
                    if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok() {
                        return Ok(Some((stream, peer)));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                // No descriptor or no memory: the queue stays readable, and looking at it would be all we do.
                Err(e) => {
                    self.complain(&e, open);
                    self.set_accepting(epoll, false)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Whether the queue is looked at.
    pub(crate) const fn is_accepting(&self) -> bool {
        self.accepting
    }

    /// Looks at the queue again, if it was left alone.
    ///
    /// # Errors
    /// Whatever epoll says.
    pub(crate) fn resume(&mut self, epoll: &Epoll) -> Result<(), Errno> {
        if self.accepting { Ok(()) } else { self.set_accepting(epoll, true) }
    }

    fn set_accepting(&mut self, epoll: &Epoll, accepting: bool) -> Result<(), Errno> {
        self.accepting = accepting;
        let interest = if accepting { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
        epoll.modify(&self.socket, &mut EpollEvent::new(interest, self.token))
    }

    /// A client would see only that connecting takes long.
    fn complain(&mut self, error: &io::Error, open: usize) {
        if self.has_complained {
            return;
        }
        self.has_complained = true;
        let limit =
            cores::descriptor_limit().map_or_else(|_| "unknown".to_owned(), |limit| limit.to_string());
        // Nobody reading is no reason not to serve.
        let _ = writeln!(
            io::stderr(),
            "hammerscale sim: connections wait, because none can be accepted before one closes: {error} ({open} are \
             open, and the limit of descriptors, ulimit -Hn, is {limit})",
        );
    }
}
