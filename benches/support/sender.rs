//! The process that answers: it accepts every connection, reads every request, and then writes one send of each stream
//! in turn, from bytes made before, waiting for nobody.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use hammerscale::client::affinity::{allowed_cores, pin_to};
use hammerscale::client::limits::raise_descriptor_limit;
use hammerscale::clock::Clock;
use hammerscale::units::Nanos;
use nix::errno::Errno;
use nix::sys::resource::UsageWho;
use nix::sys::socket::MsgFlags;
use socket2::{Domain, SockRef, Socket, Type};

use super::answer::Answer;
use super::hold::Hold;
use super::process::await_parent;
use super::{Cpu, Load, Pace, REQUEST};

/// What the kernel may hold of a stream that its reader does not take; bounded, so that ten thousand of them fit.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Connections that were not taken yet: the kernel's usual largest.
const QUEUE: i32 = 4_096;

struct Stream {
    socket: TcpStream,
    /// Bytes written.
    at: usize,
    /// The send that is under way.
    send: usize,
}

/// Answers the streams of one load.
pub fn send(load: Load) {
    let _ = raise_descriptor_limit();
    pin_to(&allowed_cores()[..1]).unwrap();
    let answer = Answer::new(load.tokens, load.per_send);
    let mut streams = accept(load.streams);
    println!("asked");
    let numbers: Vec<i32> = await_parent().split_whitespace().map(|n| n.parse().unwrap()).collect();
    let hold = Hold::new(numbers[0], numbers[1]);
    let clock = Clock::new();
    let (cpu, began) = (Cpu::now(UsageWho::RUSAGE_SELF), clock.monotonic());
    let mut refused = 0_u64;
    match load.pace {
        Pace::Free => refused = write_all(&mut streams, &answer),
        Pace::Held => write_held(&mut streams, &answer, &hold),
        Pace::Even(gap) => {
            write_paced(&mut streams, &answer, &clock, |send, stream| {
                gap.0 * send as i64 + gap.0 * stream as i64 / load.streams as i64
            });
        }
        Pace::Bursts(gap) => write_paced(&mut streams, &answer, &clock, |send, _| gap.0 * send as i64),
    }
    let took = clock.monotonic().0 - began.0;
    let cpu = Cpu::now(UsageWho::RUSAGE_SELF) - cpu;
    let sends = answer.cuts.len() * load.streams;
    println!("seconds={} cpu_us={} sends={sends} refused={refused}", took as f64 / 1e9, cpu.total_us());
    // Open until the parent has heard the reader, and ends this process.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn accept(count: usize) -> Vec<Stream> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(QUEUE).unwrap();
    // What it accepts inherits these. A close is a reset, and leaves nothing that waits for a minute.
    listener.set_linger(Some(Duration::ZERO)).unwrap();
    listener.set_send_buffer_size(SEND_BUFFER_BYTES).unwrap();
    let listener = TcpListener::from(listener);
    println!("{}", listener.local_addr().unwrap());
    let sockets: Vec<TcpStream> = listener.incoming().take(count).map(Result::unwrap).collect();
    let asked = |mut socket: TcpStream| {
        socket.read_exact(&mut [0; REQUEST.len()]).unwrap();
        SockRef::from(&socket).set_tcp_nodelay(true).unwrap();
        Stream { socket, at: 0, send: 0 }
    };
    sockets.into_iter().map(asked).collect()
}

/// Writes as fast as the streams take it; how many sends were refused because a stream was full.
fn write_all(streams: &mut [Stream], answer: &Answer) -> u64 {
    let (mut open, mut refused) = (streams.len(), 0);
    while open > 0 {
        for stream in &mut *streams {
            if stream.send == answer.cuts.len() {
                continue;
            }
            if !stream.write(answer) {
                refused += 1;
            } else if stream.send == answer.cuts.len() {
                open -= 1;
            }
        }
    }
    refused
}

/// Writes a send of every stream while the reader stands still, and the next when it has read them.
fn write_held(streams: &mut [Stream], answer: &Answer, hold: &Hold) {
    for _ in 0..answer.cuts.len() {
        hold.stop();
        streams.iter_mut().for_each(|stream| while !stream.write(answer) {});
        hold.run();
    }
}

/// Writes each send when it is due, in nanoseconds after the beginning; never early.
fn write_paced(streams: &mut [Stream], answer: &Answer, clock: &Clock, due: impl Fn(usize, usize) -> i64) {
    let zero: Nanos = clock.monotonic();
    for send in 0..answer.cuts.len() {
        for (number, stream) in streams.iter_mut().enumerate() {
            while clock.monotonic().0 - zero.0 < due(send, number) {
                std::hint::spin_loop();
            }
            while !stream.write(answer) {
                std::hint::spin_loop();
            }
        }
    }
}

impl Stream {
    /// Writes the next send; whether all of it was taken.
    fn write(&mut self, answer: &Answer) -> bool {
        let end = answer.cuts[self.send];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match nix::sys::socket::send(self.socket.as_raw_fd(), &answer.bytes[self.at..end], flags) {
            Ok(taken) => self.at += taken,
            Err(Errno::EAGAIN) => return false,
            Err(error) => panic!("a reader is gone: {error}"),
        }
        self.send += usize::from(self.at == end);
        self.at == end
    }
}
