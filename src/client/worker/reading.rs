//! From a readable socket to the exchange's progress, and what the progress means for connection and slot.

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::open::TIMER_TOKEN;
use super::{CONNECTIONS_PER_SLOT, STOP_TOKEN, Worker};
use crate::client::connection::{Connection, State};
use crate::client::exchange::Progress;
use crate::client::setup::Reuse;
use crate::client::socket::{StreamSocket, connect_outcome};
use crate::record::Anomaly;
use crate::units::Ticks;

/// Reads of one connection in one turn before the others get theirs: 16 × 64 KiB.
const READS_PER_TURN: u32 = 16;

impl Worker {
    /// Goes on with the connections that had more bytes than a turn reads.
    pub(super) fn read_leftovers(&mut self) {
        for _ in 0..self.again.len() {
            let Some((index, to_the_end)) = self.again.pop_front() else { return };
            // Its request may have been given up meanwhile, and the place has a new socket.
            if !matches!(self.connections.state(index), State::Connecting | State::Warming) {
                self.on_readable(index, to_the_end);
            }
        }
    }

    /// Handles one readiness event.
    pub(super) fn on_event(&mut self, event: EpollEvent) {
        if event.data() == STOP_TOKEN {
            return;
        }
        if event.data() == TIMER_TOKEN {
            self.on_timer();
            return;
        }
        let Some(index) = Connection::index_of(event.data()) else { return };
        let flags = event.events();
        let Some(connection) = self.connections.get_mut(index) else { return };
        if !connection.is_token(event.data()) {
            return;
        }
        let state = connection.state;
        if state == State::Staged {
            // Nobody asked for what comes now: the request goes another way.
            self.unstage(index);
        } else if matches!(state, State::Connecting | State::Warming) {
            // A connect that failed says so: to ask every one would cost a system call per connection.
            let failed = flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
            let socket = connection.socket.as_ref().filter(|_| failed);
            if let Some(Err(error)) = socket.map(StreamSocket::take_error) {
                return self.fail(index, connect_outcome(error), error.desc());
            }
            if !flags.contains(EpollFlags::EPOLLOUT) {
                return;
            }
            if state == State::Warming { self.on_warmed(index) } else { self.on_connected(index) }
        } else if flags.contains(EpollFlags::EPOLLOUT) && connection.has_unsent() {
            self.write(index);
        }
        let mut to_the_end = flags.intersects(EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP);
        if flags.contains(EpollFlags::EPOLLERR) {
            // Stamps of sent bytes lie in the queue of errors, and are told as one. Reading tells of a real one.
            let connection = self.connections.get_mut(index);
            to_the_end |= !connection.is_some_and(|c| c.take_stamps(&mut self.buffer));
        }
        let is_same = self.connections.get(index).is_some_and(|c| c.is_token(event.data()));
        // What came may have ended the request already, and the next one may have put another socket in its place.
        if is_same && (to_the_end || flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLERR)) {
            self.on_readable(index, to_the_end);
        }
    }

    /// Reads until the socket is empty: a read that does not fill the buffer emptied it, except before an end of
    /// stream, which must be read too.
    pub(super) fn on_readable(&mut self, index: usize, to_the_end: bool) {
        for read in 0_u32.. {
            let Some(connection) = self.connections.get_mut(index) else { return };
            // What is left on an idle one would meet its next request, so that it is read to its end at once: anything
            // that comes ends it.
            if read >= READS_PER_TURN && connection.state != State::Idle {
                break;
            }
            let Some(socket) = connection.socket.as_ref() else { return };
            let before = self.now;
            let received = socket.receive(&mut self.buffer);
            self.now = self.clock.ticks();
            match received {
                Ok(received) if received.len == 0 => return self.on_end_of_stream(index),
                Ok(received) => {
                    let short = received.len < self.buffer.bytes.len();
                    self.health.reads.add(received.len, !short);
                    let bytes = self.buffer.bytes.get(..received.len).unwrap_or_default();
                    let progress = connection.on_read(bytes, received.kernel, self.now, &mut self.outlet);
                    if short {
                        connection.not_before = before;
                    }
                    let empty = short && !to_the_end;
                    self.on_progress(index, progress, empty);
                    if empty {
                        return;
                    }
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(error) => return self.on_socket_error(index, error),
            }
        }
        self.again.push_back((index, to_the_end));
    }

    /// `empty`: nothing is left to read, and the peer had not closed when the loop last waited. The next request of the slot
    /// may then go out at once, while everything about the connection is still in the caches.
    fn on_progress(&mut self, index: usize, progress: Progress, empty: bool) {
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
                if self.schedule.is_none() {
                    self.release(slot, empty);
                }
            }
            (Progress::Terminal, _) => {}
            (Progress::Complete, state) => {
                let keep =
                    connection.may_be_reused() && self.setup.reuse == Reuse::Keep && self.trust.may_keep();
                let ended = connection.finish(now, &mut self.gate, &mut self.outlet);
                if keep {
                    connection.state = State::Idle;
                    self.trust.kept(now);
                } else {
                    connection.close();
                }
                self.end_request(index, ended, state, empty);
            }
            (Progress::Failed, state) => {
                let ended = connection.finish(now, &mut self.gate, &mut self.outlet);
                connection.close();
                self.end_request(index, ended, state, false);
            }
            (Progress::Unexpected, _) => {
                connection.close();
                if let Some(schedule) = &mut self.schedule {
                    schedule.stale += 1;
                    schedule.noticed.insert(Anomaly::UnaskedBytes);
                } else if let Some(slot) = self.slots.get_mut(slot) {
                    slot.stale += 1;
                    slot.noticed.insert(Anomaly::UnaskedBytes);
                }
            }
        }
    }

    fn on_end_of_stream(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if matches!(connection.state, State::Idle) {
            let unused = connection.is_unused();
            connection.close();
            return self.on_kept_connection_closed(index / CONNECTIONS_PER_SLOT, unused);
        }
        let progress = connection.on_end_of_stream(self.now, &mut self.outlet);
        self.on_progress(index, progress, false);
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
        self.on_progress(index, progress, false);
    }
}
