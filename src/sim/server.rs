//! The event loop: one thread, one epoll instance, all connections and their deadlines.
//!
//! Between two deadlines it sleeps in epoll until [`SPIN_WINDOW`] before the next one and then asks epoll without
//! waiting, so that reading and accepting never delay an event by more than one call. Overdue events are sent in order
//! of their instants, a few at a time, with a look at the sockets in between.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::sim::clock;
use crate::sim::connection::{Connection, Fate, Shared};
use crate::sim::cores;
use crate::sim::ledger::{
    Book, ClosedBy, ConnectionClosed, ConnectionOpened, Header, LedgerWriter, Record, Totals, VERSION,
};
use crate::sim::listener::Listener;
use crate::sim::options::SimOptions;
use crate::sim::slots::Connections;
use crate::sim::stop::StopSources;
use crate::sim::timers::{Alarm, Deadline, SPIN_WINDOW, Timers};
use crate::units::Nanos;

/// Ready descriptors taken per call of epoll.
const EVENTS_PER_WAIT: usize = 128;

/// Connections accepted in a row, at about 10 µs each. The kernel's queue holds 4,096 by default and refuses what
/// comes on top, for a second; so ten thousand at once must be taken faster than they come, also while events are
/// overdue.
const ACCEPTS_IN_A_ROW: usize = 64;

/// Overdue events sent in a row before the sockets are looked at again.
const SENDS_IN_A_ROW: usize = 32;

/// Overdue events sent after each socket that was served: one send call costs about as much as one receive call, and
/// neither the requests nor the events may wait long for the others.
const SENDS_PER_SOCKET: usize = 4;

/// How often the ledger's last block is handed over, and accepting is tried again after descriptors ran out.
const TICK: Nanos = Nanos::from_millis(100);

const TOKEN_LISTENER: u64 = u64::MAX;
const TOKEN_ALARM: u64 = u64::MAX - 1;
const TOKEN_SIGNALS: u64 = u64::MAX - 2;
const TOKEN_STDIN: u64 = u64::MAX - 3;

/// Why the simulator cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The address cannot be listened on.
    #[error("--listen {address}: {source}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The ledger cannot be created.
    #[error("--ledger {path}: {source}", path = path.display())]
    Ledger {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The cores cannot be used.
    #[error("--cores names one that this process may not use: {0}")]
    Cores(Errno),
    /// Standard input is a file, whose end is no sign of life.
    #[error("--exit-with-stdin needs a pipe or a terminal as standard input")]
    Stdin,
    /// The ledger could not be written to its end: what was served is not all in it.
    #[error("the ledger could not be written: {0}")]
    LedgerWrite(io::Error),
    /// A system call failed that must not.
    #[error("the simulator's event loop failed: {0}")]
    System(#[from] Errno),
}

/// A simulator that listens. Made for a process of its own: it takes the process's SIGINT and SIGTERM and pins the
/// calling thread.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: SocketAddr,
    epoll: Epoll,
    alarm: Alarm,
    stop: StopSources,
    shared: Shared,
    connections: Connections,
    timers: Timers,
    next_tick: Nanos,
}

impl Server {
    /// Listens, creates the ledger, takes the signals and the cores. Connections wait in the listening socket until
    /// [`Self::run`].
    ///
    /// # Errors
    /// [`SimError`], naming the flag to change.
    pub fn bind(options: SimOptions) -> Result<Self, SimError> {
        // Not having more descriptors shows when connections are not accepted; starting is still right.
        let _ = cores::raise_descriptor_limit();
        let address = options.listen;
        let listener =
            Listener::bind(address, TOKEN_LISTENER).map_err(|source| SimError::Listen { address, source })?;
        let address = listener.address().map_err(|source| SimError::Listen { address, source })?;
        let stop = StopSources::new(options.exit_with_stdin)?;
        let writer = open_ledger(&options)?;
        cores::pin(options.cores.get(..1).unwrap_or_default()).map_err(SimError::Cores)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let alarm = Alarm::new()?;
        listener.register(&epoll)?;
        // Edge-triggered, because an alarm that has rung stays readable until it is set again.
        epoll.add(alarm.timer(), EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TOKEN_ALARM))?;
        epoll.add(stop.signals(), EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_SIGNALS))?;
        if let Some(stdin) = stop.stdin() {
            epoll.add(stdin, EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_STDIN)).map_err(|e| match e {
                Errno::EPERM => SimError::Stdin,
                e => SimError::System(e),
            })?;
        }
        Ok(Self {
            listener,
            address,
            epoll,
            alarm,
            stop,
            shared: Shared::new(options, Book::new(writer)),
            connections: Connections::default(),
            timers: Timers::default(),
            next_tick: Nanos(0),
        })
    }

    /// Where it listens, with the port that was picked.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until SIGINT, SIGTERM or the end of standard input, then closes the ledger. Returns what was served.
    ///
    /// # Errors
    /// [`SimError::LedgerWrite`] and [`SimError::System`].
    pub fn run(mut self) -> Result<Totals, SimError> {
        let mut events = [EpollEvent::empty(); EVENTS_PER_WAIT];
        let mut stopping = false;
        while !stopping && !self.shared.book.has_failed() {
            let ready = self.wait(&mut events)?;
            self.shared.update_now();
            for event in events.iter().take(ready) {
                stopping |= self.dispatch(*event)?;
                self.send_due(SENDS_PER_SOCKET)?;
            }
            self.send_due(SENDS_IN_A_ROW)?;
            self.admit()?;
            self.tick()?;
        }
        self.shared.update_now();
        for mut connection in self.connections.take_all() {
            connection.stop(&mut self.shared);
            enter_close(&mut self.shared, connection.number(), ClosedBy::Simulator);
        }
        self.shared.book.finish().map_err(SimError::LedgerWrite)
    }

    /// Waits for a socket or until shortly before the next deadline; not at all when that is near.
    fn wait(&mut self, events: &mut [EpollEvent]) -> Result<usize, SimError> {
        let deadline = self.timers.earliest().map(|d| Nanos(d.at.0.saturating_sub(SPIN_WINDOW.0)));
        let tick = self.needs_tick().then_some(self.next_tick);
        let wake = match (deadline, tick) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let timeout = if wake.is_some_and(|at| at <= self.shared.now) {
            EpollTimeout::ZERO
        } else {
            self.alarm.set(wake)?;
            EpollTimeout::NONE
        };
        match self.epoll.wait(events, timeout) {
            Err(Errno::EINTR) => Ok(0),
            result => Ok(result?),
        }
    }

    /// Handles one readiness; `true` is the order to stop.
    fn dispatch(&mut self, event: EpollEvent) -> Result<bool, SimError> {
        match event.data() {
            TOKEN_LISTENER => self.accept()?,
            TOKEN_ALARM => {}
            TOKEN_SIGNALS => return Ok(true),
            TOKEN_STDIN => return Ok(self.stop.stdin_has_ended()),
            owner => self.serve(owner, event.events())?,
        }
        Ok(false)
    }

    fn accept(&mut self) -> Result<(), SimError> {
        for _ in 0..ACCEPTS_IN_A_ROW {
            let Some((stream, peer)) = self.listener.accept(&self.epoll, self.connections.open())? else {
                return Ok(());
            };
            self.shared.update_now();
            let number = self.connections.opened;
            let opened = ConnectionOpened { number, at: self.shared.now, peer };
            let owner = self.connections.insert(|owner| Connection::new(stream, number, owner));
            self.shared.book.enter(&Record::ConnectionOpened(opened));
            if let Some((_, connection)) = self.connections.get_mut(owner) {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, owner);
                self.epoll.add(connection.stream(), event)?;
            }
            self.send_due(SENDS_PER_SOCKET)?;
        }
        Ok(())
    }

    fn serve(&mut self, owner: u64, ready: EpollFlags) -> Result<(), SimError> {
        let Some((_, connection)) = self.connections.get_mut(owner) else { return Ok(()) };
        let fate = if ready.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            connection.lose_peer(&mut self.shared)
        } else {
            let mut fate = Fate::Open;
            if ready.contains(EpollFlags::EPOLLOUT) {
                fate = connection.on_writable(&mut self.shared);
            }
            if fate == Fate::Open && ready.contains(EpollFlags::EPOLLIN) {
                fate = connection.on_readable(&mut self.shared);
            }
            fate
        };
        match fate {
            Fate::Open => self.settle(owner),
            Fate::Closed(by) => self.close(owner, by),
        }
    }

    /// Sends what is due, earliest first, up to a bound.
    fn send_due(&mut self, most: usize) -> Result<(), SimError> {
        for _ in 0..most {
            let Some(deadline) = self.timers.earliest() else { return Ok(()) };
            if deadline.at > self.shared.now {
                return Ok(());
            }
            let owner = deadline.owner;
            let Some((armed, connection)) = self.connections.get_mut(owner) else {
                self.timers.remove_dead();
                continue;
            };
            if *armed != Some(deadline.at) {
                self.timers.remove_dead();
                continue;
            }
            let fate = connection.on_deadline(&mut self.shared);
            *armed = connection.deadline();
            match (fate, *armed) {
                (Fate::Open, Some(at)) => self.timers.replace_earliest(Deadline { at, owner }),
                (Fate::Open, None) => self.timers.remove_earliest(),
                (Fate::Closed(by), _) => {
                    *armed = None;
                    self.timers.remove_earliest();
                    self.close(owner, by)?;
                    continue;
                }
            }
            self.settle_interest(owner)?;
        }
        Ok(())
    }

    /// Gives free turns to the answers that wait for one.
    fn admit(&mut self) -> Result<(), SimError> {
        while let Some(owner) = self.shared.turns.call_next() {
            match self.connections.get_mut(owner) {
                Some((_, connection)) => connection.begin_turn(&self.shared),
                None => self.shared.turns.give_back(),
            }
            self.settle(owner)?;
        }
        Ok(())
    }

    /// Brings the timers and the interest in line with what the connection wants now.
    fn settle(&mut self, owner: u64) -> Result<(), SimError> {
        if let Some((armed, connection)) = self.connections.get_mut(owner) {
            let wanted = connection.deadline();
            if *armed != wanted {
                if armed.is_some() {
                    self.timers.forget_one();
                }
                if let Some(at) = wanted {
                    self.timers.add(Deadline { at, owner });
                }
                *armed = wanted;
            }
        }
        self.settle_interest(owner)
    }

    fn settle_interest(&mut self, owner: u64) -> Result<(), SimError> {
        let Some(slot) = self.connections.slot_mut(owner) else { return Ok(()) };
        let Some(connection) = &slot.connection else { return Ok(()) };
        let mut wanted = EpollFlags::empty();
        wanted.set(EpollFlags::EPOLLIN, connection.wants_input());
        wanted.set(EpollFlags::EPOLLOUT, connection.wants_output());
        if slot.interest != wanted {
            slot.interest = wanted;
            self.epoll.modify(connection.stream(), &mut EpollEvent::new(wanted, owner))?;
        }
        Ok(())
    }

    /// Drops a connection; closing the socket takes it out of epoll, and its descriptor is one for the next.
    fn close(&mut self, owner: u64, by: ClosedBy) -> Result<(), SimError> {
        let Some((connection, was_armed)) = self.connections.remove(owner) else { return Ok(()) };
        enter_close(&mut self.shared, connection.number(), by);
        drop(connection);
        if was_armed {
            self.timers.forget_one();
        }
        let connections = &self.connections;
        self.timers.sweep(|d| connections.armed(d.owner) == Some(d.at));
        Ok(self.listener.resume(&self.epoll)?)
    }

    fn needs_tick(&self) -> bool {
        !self.listener.is_accepting() || self.shared.book.has_unwritten()
    }

    fn tick(&mut self) -> Result<(), SimError> {
        if self.shared.now < self.next_tick {
            return Ok(());
        }
        self.next_tick = Nanos(self.shared.now.0.saturating_add(TICK.0));
        self.shared.book.flush();
        Ok(self.listener.resume(&self.epoll)?)
    }
}

fn enter_close(shared: &mut Shared, number: u64, by: ClosedBy) {
    let closed = ConnectionClosed { number, at: shared.now, by };
    shared.book.enter(&Record::ConnectionClosed(closed));
}

/// Creates the ledger, if one is asked for. Its writer thread gets all cores but the event loop's, or the same one when
/// there is only that.
fn open_ledger(options: &SimOptions) -> Result<Option<LedgerWriter>, SimError> {
    let Some(path) = &options.ledger else { return Ok(None) };
    let writer_cores = match options.cores.as_slice() {
        [_, others @ ..] if !others.is_empty() => others,
        all => all,
    };
    // The thread inherits the cores of this one, which then moves to its own.
    cores::pin(writer_cores).map_err(SimError::Cores)?;
    let header = Header {
        version: VERSION,
        seed: options.seed,
        pid: std::process::id(),
        monotonic: clock::monotonic(),
        realtime: clock::realtime(),
    };
    let writer = LedgerWriter::create(path, &header)
        .map_err(|source| SimError::Ledger { path: path.clone(), source })?;
    Ok(Some(writer))
}
