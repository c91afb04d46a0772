//! The bare loop: epoll_wait, recvmsg with the kernel's stamp, a clock reading, and a search for line ends. It parses
//! nothing and writes nothing down, and so is what the client is held against.

use std::io::{IoSliceMut, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use hammerscale::client::affinity::{allowed_cores, pin_to};
use hammerscale::client::limits::raise_descriptor_limit;
use hammerscale::client::stamps;
use hammerscale::clock::{Clock, Timeline};
use hammerscale::units::{Ticks, UnixNanos};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::UsageWho;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use super::answer::Answer;
use super::client::Delays;
use super::process::await_parent;
use super::{Cpu, Load, REQUEST};

/// The same as the client's: what one call may bring must not differ.
const READ_BYTES: usize = 64 * 1024;
const EVENTS_PER_TURN: usize = 512;

#[derive(Default)]
struct Counts {
    reads: u64,
    bytes: u64,
    line_ends: u64,
    /// Reads of each stream's stamps, kept when delays are asked for.
    stamps: Vec<(Option<UnixNanos>, Ticks)>,
}

/// Reads the streams of one load from their first byte to their last.
pub fn read(load: Load, address: SocketAddr) {
    let _ = raise_descriptor_limit();
    pin_to(&[*allowed_cores().last().unwrap()]).unwrap();
    let _keeper = stamps::switch_on();
    let clock = Clock::new();
    let mut timeline = Timeline::new(clock.anchor());
    let answer = Answer::new(load.tokens, load.per_send);
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let sockets: Vec<TcpStream> = (0..load.streams).map(|place| connect(address, &epoll, place)).collect();
    let paced = load.is_paced();
    let mut counts = Counts::default();
    if paced {
        counts.stamps.reserve(answer.cuts.len() * load.streams);
    }
    await_parent();
    println!("{}", nix::unistd::gettid());
    timeline.push(clock.anchor());
    let (cpu, began) = (Cpu::now(UsageWho::RUSAGE_THREAD), clock.monotonic());
    let expected = (answer.bytes.len() * load.streams) as u64;
    drain(&epoll, &sockets, &clock, expected, paced, &mut counts);
    let (cpu, took) = (Cpu::now(UsageWho::RUSAGE_THREAD) - cpu, clock.monotonic().0 - began.0);
    timeline.push(clock.anchor());
    assert_eq!(counts.bytes, expected);
    assert_eq!(counts.line_ends, answer.line_ends() * load.streams as u64);
    let mut delays = Delays::default();
    for (kernel, user) in &counts.stamps {
        let kernel = kernel.map(|kernel| timeline.kernel_at(kernel, *user));
        delays.add(kernel, timeline.at(*user));
    }
    println!(
        "seconds={} reads={} cpu_us={} user_us={}{}",
        took as f64 / 1e9,
        counts.reads,
        cpu.total_us(),
        cpu.user_us,
        delays.told()
    );
}

fn connect(address: SocketAddr, epoll: &Epoll, place: usize) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let flags = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    setsockopt(&socket, sockopt::Timestamping, &flags).unwrap();
    socket.write_all(REQUEST).unwrap();
    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    epoll.add(&socket, EpollEvent::new(flags, place as u64)).unwrap();
    socket
}

fn drain(
    epoll: &Epoll,
    sockets: &[TcpStream],
    clock: &Clock,
    expected: u64,
    keep: bool,
    counts: &mut Counts,
) {
    let mut buffer = vec![0_u8; READ_BYTES];
    let mut control = nix::cmsg_space!([TimeSpec; 3], [u8; 64]);
    let mut events = [EpollEvent::empty(); EVENTS_PER_TURN];
    while counts.bytes < expected {
        // As the client does once a turn.
        std::hint::black_box(clock.ticks());
        // A stop and its end interrupt the wait.
        let count = epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        std::hint::black_box(clock.ticks());
        for event in &events[..count] {
            let socket = &sockets[usize::try_from(event.data()).unwrap()];
            loop {
                let mut slices = [IoSliceMut::new(&mut buffer)];
                let flags = MsgFlags::MSG_DONTWAIT;
                let got = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags).unwrap();
                let now = clock.ticks();
                let length = got.bytes;
                let kernel = got.cmsgs().unwrap().find_map(|message| match message {
                    ControlMessageOwned::ScmTimestampsns(all) => {
                        UnixNanos::new(all.system.tv_sec() * 1_000_000_000 + all.system.tv_nsec())
                    }
                    _ => None,
                });
                assert!(length > 0, "the sender closed a stream");
                counts.reads += 1;
                counts.bytes += length as u64;
                counts.line_ends += memchr::memchr_iter(b'\n', &buffer[..length]).count() as u64;
                if keep {
                    counts.stamps.push((kernel, now));
                }
                std::hint::black_box((kernel, now));
                if length < READ_BYTES {
                    break;
                }
            }
        }
    }
}
