//! One pinned thread with one bare epoll loop over its own connections.
//!
//! The loop waits, reads every socket that has bytes, lets the exchanges take the bytes in, starts the next request of
//! every slot that became free, and looks at its deadlines. Between the due instant and the end of a request it takes
//! no lock, logs nothing and draws nothing. It is edge-triggered: one `epoll_ctl` per connection for its whole life.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;

use crate::client::affinity;
use crate::client::connection::{Connection, State};
use crate::client::exchange::Progress;
use crate::client::setup::{Reuse, WorkerHealth, WorkerSetup};
use crate::client::socket::{ReadBuffer, StreamSocket, connect_outcome};
use crate::client::timers::Timers;
use crate::clock::{Clock, Rate};
use crate::record::{Outcome, Outlet, RequestRecord};
use crate::schedule::{Next, Prepared, Supply};
use crate::units::{Nanos, Ticks};

/// Events taken from the kernel at once: enough to see a whole burst, small enough to stay in the first-level cache.
const EVENTS_PER_TURN: usize = 512;

/// Reads of one connection in one turn before the others get theirs: 16 × 64 KiB.
const READS_PER_TURN: u32 = 16;

/// How long a finished answer may take to bring its last chunk while the next request waits for its connection. After
/// that a new connection costs less than the wait.
const TAIL_PATIENCE: Nanos = Nanos::from_millis(1);

/// How long a connection may stay open for its last chunk after the terminal event, to be reused later.
const TAIL_LIMIT: Nanos = Nanos::from_millis(100);

/// How long the first kept connection is watched before any is used again. llama.cpp announces `Keep-Alive` and closes
/// every connection after a streamed answer all the same, 3–40 µs after the last chunk and 6 ms at worst; a request that
/// is already on its way then is lost.
const PROBATION: Nanos = Nanos::from_millis(20);

/// How soon a slot asks again when the next request is not rendered yet.
const STARVED_RETRY_MS: u16 = 1;

/// Connections of a slot: one that carries the request, and one that may still wait for the last chunk of the answer
/// before.
const CONNECTIONS_PER_SLOT: usize = 2;

/// The token of the stop signal among the tokens of connections.
const STOP_TOKEN: u64 = u64::MAX;

/// Asks all workers to stop, from any thread.
#[derive(Debug)]
pub struct StopSignal {
    requested: AtomicBool,
    wake: EventFd,
}

/// Whether this target keeps a connection that it says it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// No answer was complete yet, or the first one was at this instant.
    Unknown(Option<Ticks>),
    /// A connection outlived the probation.
    Keeps,
    /// The first connection was closed in the probation: every request gets a new one.
    Closes,
}

/// What is known about a request before its connection is there.
#[derive(Debug)]
struct Pending {
    request: Prepared,
    due: Ticks,
    stale: u32,
}

#[derive(Debug, Default)]
struct Slot {
    /// A request that waits for the tail of the answer before it, or for the end of the probation, and until when.
    waiting: Option<(Pending, Ticks)>,
    stale: u32,
}

/// A worker: everything its thread owns.
#[derive(Debug)]
pub(crate) struct Worker {
    setup: WorkerSetup,
    supply: Arc<Supply>,
    stop: Arc<StopSignal>,
    outlet: Outlet,
    clock: Clock,
    limits: Limits,
    epoll: Epoll,
    buffer: ReadBuffer,
    connections: Vec<Connection>,
    slots: Vec<Slot>,
    timers: Timers,
    /// Slots that are free, and since when.
    free: Vec<(usize, Ticks)>,
    /// Connections with bytes left over from a turn.
    again: Vec<usize>,
    /// Requests begun and not written down yet.
    open: usize,
    exhausted: bool,
    trust: Trust,
    now: Ticks,
    serial: u64,
    health: WorkerHealth,
}

/// Time limits in ticks.
#[derive(Debug, Clone, Copy)]
struct Limits {
    total: Ticks,
    idle: Ticks,
    connect: Ticks,
    tail: Ticks,
    patience: Ticks,
    probation: Ticks,
    rate: Rate,
}

impl StopSignal {
    /// A signal that is not given yet.
    ///
    /// # Errors
    /// What the kernel says when it has no descriptor left.
    pub fn new() -> Result<Self, Errno> {
        let wake = EventFd::from_flags(nix::sys::eventfd::EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { requested: AtomicBool::new(false), wake })
    }

    /// Asks all workers to cut what is in flight and to end.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        // A failed write can only mean that the counter is full: then everybody was woken already.
        let _ = self.wake.write(1);
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}

impl Worker {
    pub(crate) fn new(
        setup: WorkerSetup,
        supply: Arc<Supply>,
        stop: Arc<StopSignal>,
        outlet: Outlet,
        rate: Rate,
    ) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll
            .add(stop.wake.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, STOP_TOKEN))?;
        let slots = setup.slots;
        let connections =
            (0..slots * CONNECTIONS_PER_SLOT).map(|_| Connection::new(setup.capture_limit)).collect();
        let limits = Limits {
            total: rate.ticks(setup.timeout),
            idle: rate.ticks(setup.idle_timeout),
            connect: rate.ticks(setup.connect_timeout),
            tail: rate.ticks(TAIL_LIMIT),
            patience: rate.ticks(TAIL_PATIENCE),
            probation: rate.ticks(PROBATION),
            rate,
        };
        Ok(Self {
            supply,
            stop,
            outlet,
            clock: Clock::new(),
            limits,
            epoll,
            buffer: ReadBuffer::new(),
            connections,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            timers: Timers::with_capacity(slots * CONNECTIONS_PER_SLOT),
            free: Vec::with_capacity(slots),
            again: Vec::with_capacity(slots),
            open: 0,
            exhausted: false,
            trust: Trust::Unknown(None),
            now: Ticks(0),
            serial: 0,
            health: WorkerHealth { worker: setup.worker, ..WorkerHealth::default() },
            setup,
        })
    }

    /// Pins the calling thread; before [`Worker::run`], so that the start waits for nothing.
    pub(crate) fn pin(&mut self) {
        if let Some(core) = self.setup.core {
            self.health.pinned_core = affinity::pin_to(&[core]).is_ok().then_some(core);
        }
    }

    /// Carries requests until the plan is exhausted or a stop is asked for.
    pub(crate) fn run(mut self) -> WorkerHealth {
        self.now = self.clock.ticks();
        self.health.started = self.now;
        self.free.extend((0..self.slots.len()).map(|slot| (slot, self.now)));
        let mut events = [EpollEvent::empty(); EVENTS_PER_TURN];
        while !self.is_done() {
            let timeout = self.wait_limit();
            let before = self.clock.ticks();
            let count = self.epoll.wait(&mut events, timeout).unwrap_or(0);
            self.now = self.clock.ticks();
            self.health.waited = Ticks(self.health.waited.0 + self.now.0.saturating_sub(before.0));
            self.health.turns += 1;
            for index in std::mem::take(&mut self.again) {
                self.on_readable(index, false);
            }
            for event in events.iter().take(count) {
                self.on_event(*event);
            }
            self.on_deadlines();
        }
        self.health.ended = self.clock.ticks();
        self.health.ring_drops = self.outlet.drops();
        self.health
    }

    /// Starts what is free to start, cuts when a stop is asked for, and says whether anything is left to do.
    fn is_done(&mut self) -> bool {
        if self.stop.is_requested() {
            self.exhausted = true;
            self.free.clear();
            self.cut_all();
        }
        self.start_free_slots();
        self.open == 0 && self.free.is_empty()
    }

    fn start_free_slots(&mut self) {
        // A request that fails at once (a refused connect) frees its slot again, so this is a loop and no recursion.
        while let Some((slot, due)) = self.free.pop() {
            if self.exhausted {
                continue;
            }
            match self.supply.next() {
                Next::Request(request) => {
                    self.open += 1;
                    let stale = self.slots.get_mut(slot).map_or(0, |s| std::mem::take(&mut s.stale));
                    self.place(slot, Pending { request, due, stale });
                }
                Next::Later => {
                    self.health.starved += 1;
                    self.free.push((slot, due));
                    return;
                }
                Next::Done => self.exhausted = true,
            }
        }
    }

    /// Finds the connection for a request: the kept one, or the one whose tail is about to come, or a new one.
    fn place(&mut self, slot: usize, mut pending: Pending) {
        let first = slot * CONNECTIONS_PER_SLOT;
        let range = first..first + CONNECTIONS_PER_SLOT;
        let probation_end = self.probation_end();
        let mut tail = None;
        let mut oldest = (Ticks(u64::MAX), first);
        for index in range.clone() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            match connection.state {
                State::Idle => {
                    if let Some(until) = probation_end {
                        return self.wait(slot, pending, until);
                    }
                    if connection.fit_for_reuse(self.now, self.limits.rate) {
                        return self.send_on(index, pending);
                    }
                    connection.close();
                    pending.stale += 1;
                }
                State::Draining { since, .. } => {
                    oldest = oldest.min((since, index));
                    if connection.may_be_reused()
                        && self.setup.reuse == Reuse::Keep
                        && self.trust != Trust::Closes
                    {
                        tail = Some(since);
                    }
                }
                _ => {}
            }
        }
        if let Some(since) = tail {
            let until = Ticks(since.0 + self.limits.patience.0);
            if self.now < until {
                return self.wait(slot, pending, until);
            }
        }
        // Where both places wait for their last bytes, the older tail is given up.
        let is_vacant =
            |i: &usize| self.connections.get(*i).is_some_and(|c| matches!(c.state, State::Closed));
        let index = range.clone().find(is_vacant).unwrap_or_else(|| {
            self.end_tail(oldest.1);
            oldest.1
        });
        self.connect(index, pending);
    }

    /// Puts a request off: until then something about its connection may be known.
    fn wait(&mut self, slot: usize, pending: Pending, until: Ticks) {
        if let Some(place) = self.slots.get_mut(slot) {
            place.waiting = Some((pending, until));
            self.timers.arm(until, slot * CONNECTIONS_PER_SLOT);
        }
    }

    /// When the probation ends; `None` when it is over, and then the target has passed it.
    fn probation_end(&mut self) -> Option<Ticks> {
        let Trust::Unknown(since) = self.trust else { return None };
        let until = Ticks(since.unwrap_or(self.now).0.saturating_add(self.limits.probation.0));
        if self.now < until {
            return Some(until);
        }
        self.trust = Trust::Keeps;
        None
    }

    /// A kept connection was closed by the peer. In the probation that decides for all that come after.
    fn on_kept_connection_closed(&mut self) {
        if matches!(self.trust, Trust::Unknown(_)) {
            self.trust = Trust::Closes;
            (0..self.slots.len()).for_each(|slot| self.resume_waiting(slot));
        }
    }

    fn connect(&mut self, index: usize, pending: Pending) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let mut record = self.setup.record(index / CONNECTIONS_PER_SLOT, &pending.request, pending.due);
        record.stale_connections = pending.stale;
        self.serial += 1;
        record.serial = self.serial;
        let id = self.setup.next_connection();
        record.connection_id = id;
        let began = self.clock.ticks();
        record.connect = Some((began, None));
        let Some(address) = self.setup.address(id) else {
            record.outcome = Outcome::Dns;
            return self.failed_before_connection(index, record);
        };
        match StreamSocket::connect(address, self.setup.kernel_stamps) {
            Ok((socket, connected)) => {
                let flags =
                    EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
                let token = connection.open(socket, id, index);
                connection.begin(pending.request.bytes, record, began);
                let added = connection
                    .socket
                    .as_ref()
                    .map_or(Err(Errno::EBADF), |s| self.epoll.add(s.as_fd(), EpollEvent::new(flags, token)));
                if let Err(error) = added {
                    return self.fail(index, connect_outcome(error), error.desc());
                }
                self.arm(index);
                if connected {
                    self.on_connected(index);
                }
            }
            Err(error) => {
                record.outcome = connect_outcome(error);
                record.error = Some(Box::new(crate::record::ErrorDetail {
                    message: error.desc().to_owned(),
                    ..Default::default()
                }));
                self.failed_before_connection(index, record);
            }
        }
    }

    fn failed_before_connection(&mut self, index: usize, mut record: RequestRecord) {
        let now = self.clock.ticks();
        record.set(crate::record::StampKind::End, crate::record::Stamp { user: now, kernel: None });
        self.write_down(record);
        self.free.push((index / CONNECTIONS_PER_SLOT, now));
    }

    fn on_connected(&mut self, index: usize) {
        let now = self.clock.ticks();
        if let Some(connection) = self.connections.get_mut(index) {
            connection.connected(now);
        }
        self.write(index);
    }

    /// Sends on a kept connection.
    fn send_on(&mut self, index: usize, pending: Pending) {
        self.serial += 1;
        let mut record = self.setup.record(index / CONNECTIONS_PER_SLOT, &pending.request, pending.due);
        record.stale_connections = pending.stale;
        record.serial = self.serial;
        let now = self.clock.ticks();
        if let Some(connection) = self.connections.get_mut(index) {
            record.connection_id = connection.id;
            record.connection_use = connection.uses;
            connection.begin(pending.request.bytes, record, now);
            connection.state = State::Busy;
        }
        self.arm(index);
        self.write(index);
    }

    /// Writes as much of the request as the kernel takes.
    fn write(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        match connection.write(&self.clock) {
            Ok(()) | Err(Errno::EAGAIN) => {}
            // The answer may be there already (a refusal of a large body): read it before giving up.
            Err(_) => self.on_readable(index, true),
        }
    }

    fn on_event(&mut self, event: EpollEvent) {
        if event.data() == STOP_TOKEN {
            return;
        }
        let Some(index) = Connection::index_of(event.data()) else { return };
        let flags = event.events();
        let Some(connection) = self.connections.get_mut(index) else { return };
        if !connection.is_token(event.data()) {
            return;
        }
        if matches!(connection.state, State::Connecting) {
            let result = connection.socket.as_ref().map_or(Ok(()), StreamSocket::take_error);
            if let Err(error) = result {
                return self.fail(index, connect_outcome(error), error.desc());
            }
            if !flags.contains(EpollFlags::EPOLLOUT) {
                return;
            }
            self.on_connected(index);
        } else if flags.contains(EpollFlags::EPOLLOUT) && connection.has_unsent() {
            self.write(index);
        }
        let end = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if flags.intersects(EpollFlags::EPOLLIN | end) {
            self.on_readable(index, flags.intersects(end));
        }
    }

    /// Reads until the socket is empty: a read that does not fill the buffer emptied it, except before an end of
    /// stream, which must be read too.
    fn on_readable(&mut self, index: usize, to_the_end: bool) {
        for _ in 0..READS_PER_TURN {
            let Some(connection) = self.connections.get_mut(index) else { return };
            let Some(socket) = connection.socket.as_ref() else { return };
            let before = self.now;
            let received = socket.receive(&mut self.buffer);
            self.now = self.clock.ticks();
            match received {
                Ok(received) if received.len == 0 => return self.on_end_of_stream(index),
                Ok(received) => {
                    let short = received.len < self.buffer.bytes.len();
                    let bytes = self.buffer.bytes.get(..received.len).unwrap_or_default();
                    let progress = connection.on_read(bytes, received.kernel, self.now, &mut self.outlet);
                    if short {
                        connection.not_before = before;
                    }
                    self.on_progress(index, progress);
                    if short && !to_the_end {
                        return;
                    }
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(error) => return self.on_socket_error(index, error),
            }
        }
        self.again.push(index);
    }

    fn on_progress(&mut self, index: usize, progress: Progress) {
        let slot = index / CONNECTIONS_PER_SLOT;
        let now = self.now;
        let Some(connection) = self.connections.get_mut(index) else { return };
        match (progress, connection.state) {
            (Progress::Going, _) => {}
            (Progress::Terminal, State::Busy) => {
                // Even a connection that will not be used again gets the time for its last bytes: closing on them
                // would reset it, and a server may take that for a client that gave up.
                connection.state = State::Draining { since: now, until: Ticks(now.0 + self.limits.tail.0) };
                self.arm(index);
                self.free.push((slot, now));
            }
            (Progress::Terminal, _) => {}
            (Progress::Complete, state) => {
                let keep = connection.may_be_reused()
                    && self.setup.reuse == Reuse::Keep
                    && self.trust != Trust::Closes;
                let record = connection.finish(now);
                if keep {
                    connection.state = State::Idle;
                    if let Trust::Unknown(since) = &mut self.trust {
                        since.get_or_insert(now);
                    }
                } else {
                    connection.close();
                }
                self.end_request(slot, record, state);
            }
            (Progress::Failed, state) => {
                let record = connection.finish(now);
                connection.close();
                self.end_request(slot, record, state);
            }
            (Progress::Unexpected, _) => connection.close(),
        }
    }

    /// Writes a request down and frees its slot, unless its terminal did so already.
    fn end_request(&mut self, slot: usize, record: Option<RequestRecord>, state: State) {
        let now = self.now;
        let Some(record) = record else { return };
        self.write_down(record);
        if matches!(state, State::Draining { .. }) {
            self.resume_waiting(slot);
        } else {
            self.free.push((slot, now));
        }
    }

    /// A slot whose request waited for the tail of the answer before it goes on.
    fn resume_waiting(&mut self, slot: usize) {
        if let Some((pending, _)) = self.slots.get_mut(slot).and_then(|s| s.waiting.take()) {
            self.place(slot, pending);
        }
    }

    fn on_end_of_stream(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if matches!(connection.state, State::Idle) {
            connection.close();
            if let Some(slot) = self.slots.get_mut(index / CONNECTIONS_PER_SLOT) {
                slot.stale += 1;
            }
            return self.on_kept_connection_closed();
        }
        let progress = connection.on_end_of_stream(self.now, &mut self.outlet);
        self.on_progress(index, progress);
        // Whatever the answer was, this connection is at its end.
        if let Some(connection) = self.connections.get_mut(index)
            && matches!(connection.state, State::Idle)
        {
            connection.close();
        }
    }

    fn on_socket_error(&mut self, index: usize, error: Errno) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if matches!(connection.state, State::Idle) {
            return self.on_end_of_stream(index);
        }
        let progress = connection.on_reset(error, self.now);
        self.on_progress(index, progress);
    }

    /// Ends a request with an outcome that no byte of the answer decided.
    fn fail(&mut self, index: usize, outcome: Outcome, message: &str) {
        self.now = self.clock.ticks();
        let Some(connection) = self.connections.get_mut(index) else { return };
        let state = connection.state;
        let record = connection.give_up(outcome, message, self.now);
        connection.close();
        self.end_request(index / CONNECTIONS_PER_SLOT, record, state);
    }

    /// Gives up the tail of an answer whose terminal was seen.
    fn end_tail(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let record = connection.finish(self.now);
        connection.close();
        if let Some(record) = record {
            self.write_down(record);
        }
    }

    fn write_down(&mut self, record: RequestRecord) {
        self.open = self.open.saturating_sub(1);
        self.outlet.record(record);
    }

    fn on_deadlines(&mut self) {
        while let Some(index) = self.timers.pop_due(self.now) {
            let slot = index / CONNECTIONS_PER_SLOT;
            if let Some(connection) = self.connections.get_mut(index) {
                connection.armed = None;
            }
            if self
                .slots
                .get(slot)
                .and_then(|s| s.waiting.as_ref())
                .is_some_and(|(_, until)| *until <= self.now)
            {
                self.resume_waiting(slot);
            }
            let Some((deadline, outcome)) = self.deadline(index) else { continue };
            if deadline > self.now {
                self.arm(index);
            } else if let Some(outcome) = outcome {
                self.fail(index, outcome, "");
            } else {
                self.end_tail(index);
            }
        }
    }

    /// When a connection's patience ends, and what it then means; `None` as the outcome is the end of a tail.
    fn deadline(&self, index: usize) -> Option<(Ticks, Option<Outcome>)> {
        let connection = self.connections.get(index)?;
        let after =
            |start: Ticks, span: Ticks, outcome| (Ticks(start.0.saturating_add(span.0)), Some(outcome));
        let total = after(connection.began, self.limits.total, Outcome::TimeoutTotal);
        match connection.state {
            State::Closed | State::Idle => None,
            State::Draining { until, .. } => Some((until, None)),
            State::Connecting => {
                Some(total.min_by_time(after(connection.began, self.limits.connect, Outcome::TimeoutConnect)))
            }
            State::Busy => {
                Some(total.min_by_time(after(connection.last_byte, self.limits.idle, Outcome::TimeoutIdle)))
            }
        }
    }

    fn arm(&mut self, index: usize) {
        let Some((deadline, _)) = self.deadline(index) else { return };
        let Some(connection) = self.connections.get_mut(index) else { return };
        // An earlier entry will look at the deadline when it comes up.
        if connection.armed.is_none_or(|armed| deadline < armed) {
            connection.armed = Some(deadline);
            self.timers.arm(deadline, index);
        }
    }

    /// How long the loop may wait: until the next deadline, a moment when a slot is starved, else without limit.
    fn wait_limit(&self) -> EpollTimeout {
        if !self.again.is_empty() {
            return EpollTimeout::ZERO;
        }
        if !self.free.is_empty() {
            return EpollTimeout::from(STARVED_RETRY_MS);
        }
        let Some(next) = self.timers.next() else { return EpollTimeout::NONE };
        let ns = self.limits.rate.nanos(Ticks(next.0.saturating_sub(self.now.0)));
        // Rounded up, so that the loop does not turn idly through the last millisecond.
        let ms = ns.0 / Nanos::PER_MILLI + 1;
        EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::MAX)
    }

    /// Cuts everything in flight: the run is over.
    fn cut_all(&mut self) {
        for slot in &mut self.slots {
            // A request that was not sent was never begun.
            self.open -= usize::from(slot.waiting.take().is_some());
        }
        for index in 0..self.connections.len() {
            let state = self.connections.get(index).map_or(State::Closed, |c| c.state);
            match state {
                State::Connecting | State::Busy => self.fail(index, Outcome::Incomplete, ""),
                State::Draining { .. } => self.end_tail(index),
                State::Idle | State::Closed => {}
            }
        }
        self.free.clear();
    }
}

trait MinByTime {
    fn min_by_time(self, other: Self) -> Self;
}

impl MinByTime for (Ticks, Option<Outcome>) {
    fn min_by_time(self, other: Self) -> Self {
        if other.0 < self.0 { other } else { self }
    }
}
