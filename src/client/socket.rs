//! One non-blocking TCP socket with the kernel's stamps: made, connected, written, read. No protocol here.

use std::io::IoSliceMut;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, Timestamps, recvmsg, send, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use socket2::{Socket, Type};

use crate::client::route::{self, Route};
use crate::record::Outcome;
use crate::units::{Nanos, UnixNanos};

/// One read takes at most this much: larger than what a loopback segment burst of a token stream brings, small enough
/// to stay in the second-level cache.
pub(crate) const READ_BUFFER_BYTES: usize = 64 * 1024;

/// A connected, or connecting, stream socket.
#[derive(Debug)]
pub(crate) struct StreamSocket {
    socket: Socket,
}

/// What one receive call brought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// Bytes now in the buffer; 0 is the end of the stream.
    pub(crate) len: usize,
    /// The kernel's stamp of the last segment in it.
    pub(crate) kernel: Option<UnixNanos>,
}

/// The kernel's stamp of bytes that left the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transmitted {
    /// Place of the last of these bytes among all that were written to the socket since it was connected; counted from
    /// 0, modulo 2^32.
    pub(crate) last_byte: u32,
    /// When it was handed to the device.
    pub(crate) at: UnixNanos,
}

/// The reused buffers of a worker's receive calls.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    /// Where bytes go.
    pub(crate) bytes: Vec<u8>,
    control: Vec<u8>,
}

impl ReadBuffer {
    pub(crate) fn new() -> Self {
        // A stamp, and beside it what an error queue says with an address of either family.
        Self { bytes: vec![0; READ_BUFFER_BYTES], control: nix::cmsg_space!([TimeSpec; 3], [u8; 64]) }
    }
}

impl StreamSocket {
    /// Makes a socket and starts to connect it, from a port where one is named. The flag says whether it is connected
    /// already (loopback may be).
    ///
    /// # Errors
    /// What the kernel says; [`connect_outcome`] gives its meaning.
    pub(crate) fn connect(
        route: Route,
        port: Option<u16>,
        kernel_stamps: bool,
    ) -> Result<(Self, bool), Errno> {
        let Route { source, address } = route;
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = route::socket(address.is_ipv4(), kind).map_err(|e| errno(&e))?;
        let bound = match (port, source) {
            (Some(port), _) => route::bind_port(&socket, route, port),
            (None, Some(source)) => route::bind(&socket, source),
            (None, None) => Ok(()),
        };
        bound.map_err(|e| errno(&e))?;
        // A small request must not wait for the answer to an earlier segment.
        socket.set_tcp_nodelay(true).map_err(|e| errno(&e))?;
        if kernel_stamps {
            request_stamps(&socket)?;
        }
        let connected = match socket.connect(&address.into()) {
            Ok(()) => true,
            Err(e) if errno(&e) == Errno::EINPROGRESS => false,
            Err(e) => return Err(errno(&e)),
        };
        Ok((Self { socket }, connected))
    }

    /// The pending error of the socket, if any: after a connect in progress became writable, its result.
    pub(crate) fn take_error(&self) -> Result<(), Errno> {
        match self.socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(e)) | Err(e) => Err(errno(&e)),
        }
    }

    /// Offers bytes to the kernel; how many it took. `more_follows`: the next call brings more of the same request, and
    /// the kernel may hold these back for it.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8], more_follows: bool) -> Result<usize, Errno> {
        let mut flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        if more_follows {
            flags |= MsgFlags::from_bits_retain(nix::libc::MSG_MORE);
        }
        send(self.socket.as_raw_fd(), bytes, flags)
    }

    /// One receive call into the reused buffer, with the kernel's stamp where the socket asked for stamps.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut ReadBuffer) -> Result<Received, Errno> {
        let ReadBuffer { bytes, control } = buffer;
        let mut slices = [IoSliceMut::new(bytes)];
        let message =
            recvmsg::<()>(self.socket.as_raw_fd(), &mut slices, Some(control), MsgFlags::MSG_DONTWAIT)?;
        let kernel = message.cmsgs().ok().and_then(|mut all| {
            all.find_map(|one| match one {
                ControlMessageOwned::ScmTimestampsns(Timestamps { system, .. }) => unix(&system),
                _ => None,
            })
        });
        Ok(Received { len: message.bytes, kernel })
    }

    /// Asks for a stamp of the last byte of every send call from now on. Only a connected socket that nothing was written
    /// to may ask: the kernel counts bytes from what was acknowledged when it is asked.
    pub(crate) fn ask_transmit_stamps(&self) -> Result<(), Errno> {
        let transmit = TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            // Without the bytes themselves: nothing is copied, and no privilege is needed.
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(&self.socket, sockopt::Timestamping, &(RECEIVE_STAMPS | transmit))
    }

    /// Takes one entry from the error queue, where stamps of sent bytes come; `None` for an entry of another kind. The
    /// kernel makes such a stamp before the send call returns when the bytes go straight to the device, as over
    /// loopback, and later when they wait for it.
    ///
    /// # Errors
    /// `EAGAIN` when nothing lies there.
    pub(crate) fn transmitted(&self, buffer: &mut ReadBuffer) -> Result<Option<Transmitted>, Errno> {
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<()>(self.socket.as_raw_fd(), &mut [], Some(&mut buffer.control), flags)?;
        let (mut at, mut last_byte) = (None, None);
        for one in message.cmsgs().into_iter().flatten() {
            match one {
                ControlMessageOwned::ScmTimestampsns(Timestamps { system, .. }) => at = unix(&system),
                ControlMessageOwned::Ipv4RecvErr(told, _) | ControlMessageOwned::Ipv6RecvErr(told, _)
                    if told.ee_origin == SO_EE_ORIGIN_TIMESTAMPING && told.ee_info == SCM_TSTAMP_SND =>
                {
                    last_byte = Some(told.ee_data);
                }
                _ => {}
            }
        }
        Ok(at.zip(last_byte).map(|(at, last_byte)| Transmitted { last_byte, at }))
    }

    /// Whether a kept connection is still fit for a request: nothing to read and no end of stream.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.peek(), Err(Errno::EAGAIN))
    }

    /// Whether bytes lie there unread; an end of stream is none.
    pub(crate) fn has_bytes(&self) -> bool {
        matches!(self.peek(), Ok(1..))
    }

    fn peek(&self) -> Result<usize, Errno> {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        nix::sys::socket::recv(self.socket.as_raw_fd(), &mut [0], flags)
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The ending that a failed connect means.
pub(crate) fn connect_outcome(error: Errno) -> Outcome {
    match error {
        Errno::ECONNREFUSED => Outcome::ConnectRefused,
        Errno::ETIMEDOUT => Outcome::TimeoutConnect,
        Errno::EADDRNOTAVAIL | Errno::EADDRINUSE => Outcome::NoLocalPort,
        Errno::EMFILE | Errno::ENFILE => Outcome::NoFileDescriptor,
        _ => Outcome::ConnectFailed,
    }
}

/// Software receive stamps, and that software stamps are handed out.
const RECEIVE_STAMPS: TimestampingFlag =
    TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE.union(TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE);

/// The origin of an entry of the error queue that is a stamp (`linux/errqueue.h`).
const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;

/// The stamp was made when the bytes were handed to the device (`linux/errqueue.h`).
const SCM_TSTAMP_SND: u32 = 0;

/// Asks for software receive stamps on a socket.
pub(crate) fn request_stamps(socket: &impl AsFd) -> Result<(), Errno> {
    setsockopt(socket, sockopt::Timestamping, &RECEIVE_STAMPS)
}

fn unix(time: &TimeSpec) -> Option<UnixNanos> {
    UnixNanos::new(time.tv_sec().saturating_mul(Nanos::PER_SECOND).saturating_add(time.tv_nsec()))
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

/// Space for the three stamps of one control message is what [`ReadBuffer`] must hold at least.
const _: () = assert!(size_of::<Timestamps>() == 3 * size_of::<TimeSpec>());

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair(kernel_stamps: bool) -> (StreamSocket, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route { source: None, address: listener.local_addr().unwrap() };
        let (socket, _) = StreamSocket::connect(route, None, kernel_stamps).unwrap();
        let (peer, _) = listener.accept().unwrap();
        (socket, peer)
    }

    fn receive_soon(socket: &StreamSocket, buffer: &mut ReadBuffer) -> Received {
        for _ in 0..2_000 {
            match socket.receive(buffer) {
                Err(Errno::EAGAIN) => std::thread::sleep(std::time::Duration::from_millis(1)),
                other => return other.unwrap(),
            }
        }
        panic!("nothing came in two seconds");
    }

    #[test]
    fn bytes_and_end_of_stream_are_told_apart() {
        let (socket, mut peer) = pair(false);
        let mut buffer = ReadBuffer::new();
        assert_eq!(socket.receive(&mut buffer).unwrap_err(), Errno::EAGAIN);
        assert!(socket.is_quiet());
        peer.write_all(b"hello").unwrap();
        let got = receive_soon(&socket, &mut buffer);
        assert_eq!(&buffer.bytes[..got.len], b"hello");
        assert_eq!(got.kernel, None);
        drop(peer);
        assert_eq!(receive_soon(&socket, &mut buffer).len, 0);
        assert!(!socket.is_quiet());
    }

    /// The wall clock, by the reader that stamps are compared with.
    fn wall() -> i64 {
        let now = crate::clock::Clock::new().anchor();
        now.monotonic.0 + now.wall_offset.0
    }

    #[test]
    fn the_kernel_stamps_what_is_sent_and_names_its_last_byte() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may have one of the two only.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let route = Route { source: None, address: listener.local_addr().unwrap() };
            let (socket, _) = StreamSocket::connect(route, None, true).unwrap();
            let (_peer, _) = listener.accept().unwrap();
            socket.ask_transmit_stamps().unwrap();
            let mut buffer = ReadBuffer::new();
            assert_eq!(socket.transmitted(&mut buffer), Err(Errno::EAGAIN));
            // In one piece, then in two pieces that the kernel may join.
            for (pieces, last_byte) in [(vec![100], 99), (vec![10, 20], 129)] {
                let before = wall();
                for (n, piece) in pieces.iter().enumerate() {
                    assert_eq!(socket.send(&vec![b'x'; *piece], n + 1 < pieces.len()), Ok(*piece));
                }
                let after = wall();
                let stamp = socket.transmitted(&mut buffer).unwrap().expect("a stamp");
                assert_eq!(stamp.last_byte, last_byte, "{address}");
                // The two readings of `wall` are good to a microsecond.
                assert!((before - 1_000..=after + 1_000).contains(&stamp.at.get()), "{address}");
                assert_eq!(socket.transmitted(&mut buffer), Err(Errno::EAGAIN));
            }
        }
    }

    #[test]
    fn a_socket_that_is_not_connected_may_not_ask() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (socket, peer) = pair(true);
        drop((listener, peer));
        socket.ask_transmit_stamps().unwrap();
        let unconnected =
            StreamSocket { socket: Socket::new(socket2::Domain::IPV4, Type::STREAM, None).unwrap() };
        assert_eq!(unconnected.ask_transmit_stamps(), Err(Errno::EINVAL));
    }

    #[test]
    fn a_refused_connect_is_told_apart() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let result =
            StreamSocket::connect(Route { source: None, address }, None, false).and_then(|(s, connected)| {
                if !connected {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                s.take_error()
            });
        assert_eq!(connect_outcome(result.unwrap_err()), Outcome::ConnectRefused);
    }

    #[test]
    fn the_kernel_stamps_what_it_receives() {
        let (socket, mut peer) = pair(true);
        let mut buffer = ReadBuffer::new();
        // The first segments after the first socket asked for stamps may carry none: a job of the kernel's own
        // switches stamping on.
        let stamped = (0..1_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            peer.write_all(b"x").unwrap();
            receive_soon(&socket, &mut buffer).kernel
        });
        let clock = crate::clock::Clock::new();
        let now = clock.anchor();
        let age = now.monotonic.0 + now.wall_offset.0 - stamped.expect("a stamp within a second").get();
        assert!((0..Nanos::PER_SECOND * 10).contains(&age), "{age}");
    }
}
