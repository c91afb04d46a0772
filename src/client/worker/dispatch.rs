//! From a free slot to a request on the wire: which connection carries it, when one is made, what is put off.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::{CONNECTIONS_PER_SLOT, STARTS_PER_TURN, Worker};
use crate::client::connection::{Connection, State};
use crate::client::route::Route;
use crate::client::setup::Reuse;
use crate::client::socket::{StreamSocket, connect_outcome};
use crate::record::{Anomalies, ErrorDetail, Outcome, RequestRecord, Stamp, StampKind};
use crate::schedule::{Next, Prepared};
use crate::units::Ticks;

/// A request that has no connection yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) request: Prepared,
    pub(super) due: Ticks,
    /// Kept connections found closed on its way.
    pub(super) stale: u32,
    /// What was seen on them.
    pub(super) noticed: Anomalies,
}

/// A place in the closed loop.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// A request that waits for the last bytes of the answer before it, or for the end of the probation, and until
    /// when.
    pub(super) waiting: Option<(Pending, Ticks)>,
    /// Kept connections found closed, or spoiled by bytes that nobody asked for, since its last request.
    pub(super) stale: u32,
    /// What was seen on them.
    pub(super) noticed: Anomalies,
}

impl Worker {
    /// Starts the next request of every free slot.
    pub(super) fn start_free_slots(&mut self) {
        self.starved = false;
        // Not all of them: what comes for the others must be read meanwhile. A request that fails at once, such as a
        // refused connect, frees its slot again.
        for _ in 0..self.free.len().min(STARTS_PER_TURN.max(self.came)) {
            if self.starved {
                return;
            }
            let Some((slot, due)) = self.free.pop_front() else { return };
            self.start(slot, due);
        }
    }

    /// A slot became free: its next request starts now where that can be and no other slot has waited longer, else in
    /// its turn. Reading all that came first would make a slot wait for the others' answers, and that shows in no
    /// kernel stamp.
    pub(super) fn release(&mut self, slot: usize, at_once: bool) {
        if at_once && self.free.is_empty() {
            self.start(slot, self.now);
        } else {
            self.free.push_back((slot, self.now));
        }
    }

    fn start(&mut self, slot: usize, due: Ticks) {
        if self.exhausted {
            return;
        }
        match self.supply.next() {
            Next::Request(request) => {
                self.open += 1;
                let place = self.slots.get_mut(slot);
                let (stale, noticed) = place.map_or_else(Default::default, |s| {
                    (std::mem::take(&mut s.stale), std::mem::take(&mut s.noticed))
                });
                self.place(slot, Pending { request, due, stale, noticed });
            }
            Next::Later => {
                self.starved = true;
                self.free.push_front((slot, due));
            }
            Next::Done => self.exhausted = true,
        }
    }

    /// A slot whose request waited goes on.
    pub(super) fn resume(&mut self, slot: usize) {
        if let Some((pending, _)) = self.slots.get_mut(slot).and_then(|s| s.waiting.take()) {
            self.place(slot, pending);
        }
    }

    /// The peer closed a kept connection. In the probation that is news for all slots, unless it had not carried any
    /// request: then it says nothing about what becomes of one after its answer.
    pub(super) fn on_kept_connection_closed(&mut self, slot: usize, unused: bool) {
        if let Some(schedule) = &mut self.schedule {
            schedule.stale += 1;
        } else if let Some(slot) = self.slots.get_mut(slot) {
            slot.stale += 1;
        }
        if !unused && self.trust.closed(self.now, self.limits.probation) {
            (0..self.slots.len()).for_each(|slot| self.resume(slot));
        }
    }

    /// Finds the connection for a request: the kept one, or the one whose tail is about to come, or a new one.
    fn place(&mut self, slot: usize, mut pending: Pending) {
        let first = slot * CONNECTIONS_PER_SLOT;
        let range = first..first + CONNECTIONS_PER_SLOT;
        let probation_end = self.trust.probation_end(self.now, self.limits.probation);
        let mut tail = None;
        let mut oldest = (Ticks(u64::MAX), first);
        for index in range.clone() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            match connection.state {
                State::Idle => {
                    // Whether the target keeps connections after an answer does not matter to one without any.
                    let unused = connection.is_unused();
                    if let Some(until) = probation_end.filter(|_| !unused) {
                        return self.wait(slot, pending, until);
                    }
                    if unused || self.trust.may_keep() {
                        if connection.fit_for_reuse(self.now, self.limits.rate) {
                            return self.send_on(index, pending);
                        }
                        pending.stale += 1;
                    }
                    connection.close();
                }
                State::Draining { since, .. } => {
                    oldest = oldest.min((since, index));
                    if connection.may_be_reused() && self.setup.reuse == Reuse::Keep && self.trust.may_keep()
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
        let is_vacant = |i: &usize| self.connections.state(*i) == State::Closed;
        let index = { range }.find(is_vacant).unwrap_or_else(|| {
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

    pub(super) fn connect(&mut self, index: usize, pending: Pending) {
        let mut record = self.setup.record(self.number_of(index), &pending.request, pending.due);
        (record.stale_connections, record.anomalies) = (pending.stale, pending.noticed);
        self.serial += 1;
        record.serial = self.serial;
        let id = self.setup.next_connection();
        record.connection_id = id;
        let began = self.clock.ticks();
        record.connect = Some((began, None));
        let Some(route) = self.setup.route(id) else {
            record.outcome = Outcome::Dns;
            record.error = Some(Box::new(ErrorDetail {
                message: self.setup.unresolved.as_deref().unwrap_or_default().to_owned(),
                ..ErrorDetail::default()
            }));
            return self.failed_before_connection(index, record);
        };
        match self.dial(index, id, route, began) {
            Ok(connected) => {
                let Some(connection) = self.connections.get_mut(index) else { return };
                connection.begin(pending.request.bytes, record, began);
                connection.state = State::Connecting;
                self.arm(index);
                if connected {
                    self.on_connected(index);
                }
            }
            Err(error) => {
                record.outcome = connect_outcome(error);
                record.error =
                    Some(Box::new(ErrorDetail { message: error.desc().to_owned(), ..Default::default() }));
                self.failed_before_connection(index, record);
            }
        }
    }

    /// Begins to connect and to watch the connection of a place; whether it is connected already.
    pub(super) fn dial(
        &mut self,
        index: usize,
        id: u64,
        route: (Route, u64),
        began: Ticks,
    ) -> Result<bool, Errno> {
        let (socket, connected) = self.socket_to(route)?;
        let Some(connection) = self.connections.make(index) else { return Err(Errno::EBADF) };
        let token = connection.open(socket, id, index, began);
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        let socket = connection.socket.as_ref();
        let watched =
            socket.map_or(Err(Errno::EBADF), |s| self.epoll.add(s.as_fd(), EpollEvent::new(flags, token)));
        if watched.is_err() {
            connection.close();
        }
        watched.map(|()| connected)
    }

    /// Makes the socket of the `nth` connection on a route. Where the process has no descriptor left, connections that
    /// only wait for the last bytes of an answer give theirs.
    fn socket_to(&mut self, (route, nth): (Route, u64)) -> Result<(StreamSocket, bool), Errno> {
        let mut ports = self.setup.ports.into_iter().flat_map(|ports| ports.to_try(nth));
        let mut port = ports.next().flatten();
        loop {
            match StreamSocket::connect(route, port, self.setup.kernel_stamps) {
                Err(Errno::EMFILE | Errno::ENFILE) if self.end_oldest_tail() => {}
                Err(Errno::EADDRINUSE | Errno::EADDRNOTAVAIL) if port.is_some() => {
                    port = ports.next().flatten();
                }
                made => return made,
            }
        }
    }

    /// Ends the tail that has waited longest; whether there was one.
    fn end_oldest_tail(&mut self) -> bool {
        let since = |connection: &Connection| match connection.state {
            State::Draining { since, .. } => Some(since),
            _ => None,
        };
        let tails = self.connections.iter().filter_map(|(index, c)| Some((since(c)?, index)));
        let oldest = tails.min();
        if let Some((_, index)) = oldest {
            self.end_tail(index);
        }
        oldest.is_some()
    }

    fn failed_before_connection(&mut self, index: usize, mut record: RequestRecord) {
        let now = self.clock.ticks();
        record.set(StampKind::End, Stamp { user: now, kernel: None });
        self.open = self.open.saturating_sub(1);
        self.outlet.record(record);
        match &mut self.schedule {
            Some(schedule) => schedule.release(index),
            None => self.free.push_back((index / CONNECTIONS_PER_SLOT, now)),
        }
    }

    /// The handshake is done: the request goes out, unless the peer has spoken already. A server that answers `408` on
    /// accept would have its answer taken for the one of this request, and every later answer for that of the next.
    pub(super) fn on_connected(&mut self, index: usize) {
        let now = self.clock.ticks();
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.connected(now);
        if self.setup.transmit_stamps {
            connection.ask_transmit_stamps();
        }
        let early = connection.has_early_answer();
        if early {
            connection.withhold();
        }
        self.arm(index);
        if early { self.on_readable(index, false) } else { self.write(index) }
    }

    /// Sends on a kept connection.
    pub(super) fn send_on(&mut self, index: usize, pending: Pending) {
        self.serial += 1;
        let mut record = self.setup.record(self.number_of(index), &pending.request, pending.due);
        (record.stale_connections, record.anomalies) = (pending.stale, pending.noticed);
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
    pub(super) fn write(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        match connection.write(&self.clock, &mut self.buffer) {
            Ok(()) | Err(Errno::EAGAIN) => {}
            // The answer may be there already (a refusal of a large body): read it before giving up.
            Err(_) => self.on_readable(index, true),
        }
    }
}
