//! The open loop: a request starts when it is due, whether or not others are in flight.
//!
//! A worker holds one request of the schedule at a time and waits for its due: asleep at first, then, where the core is
//! its own, awake, with a look at the sockets in every turn, so that reading never waits for pacing. Connections are a
//! pool: the one used last goes first, and where none is free a new one is made; nothing is ever put off for one. All
//! but the sending is done while the worker waits. What all of this costs is in the request's send start, never in its
//! due.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

use super::dispatch::Pending;
use super::{EVENTS_PER_TURN, STARTS_PER_TURN, Worker};
use crate::client::connection::{Connection, State};
use crate::client::setup::{OpenLoop, Reuse};
use crate::clock::{Clock, Forecast, Rate};
use crate::record::Anomalies;
use crate::schedule::wait::{SPIN, Wait, wait};
use crate::schedule::{Next, Prepared};
use crate::units::{Nanos, Ticks};

/// From the first worker's beginning to the first due: the others begin within some tenths of a millisecond, and none
/// is to be late for its first request.
const LEAD: Nanos = Nanos::from_millis(1);

/// The token of the timer among the tokens of connections.
pub(super) const TIMER_TOKEN: u64 = u64::MAX - 1;

/// The request that comes next.
#[derive(Debug)]
struct Upcoming {
    request: Prepared,
    /// On CLOCK_MONOTONIC.
    due: Nanos,
    /// The same by the counter, as far as is known.
    ticks: Ticks,
    /// The place on whose connection it is ready to be written.
    staged: Option<usize>,
    /// Whether that was tried since a connection last became idle.
    is_tried: bool,
}

/// A worker's part of a schedule, and its pool.
#[derive(Debug)]
pub(super) struct Schedule {
    setup: OpenLoop,
    start: Nanos,
    forecast: Forecast,
    timer: TimerFd,
    /// The due that the timer is set for.
    set_for: Option<Nanos>,
    next: Option<Upcoming>,
    /// The last reading that was compared with a due.
    looked: Ticks,
    /// Whether the present wait is for the next due.
    waits: bool,
    /// The core is the worker's own.
    spins: bool,
    /// Places whose request has ended, the last one on top: their connections are idle, or closed by now.
    released: Vec<usize>,
    /// Places without a connection.
    vacant: Vec<usize>,
    /// Passed over while they are only watched; empty between two requests.
    watched: Vec<usize>,
    /// Kept connections found closed, or spoiled by bytes that nobody asked for, since the last request.
    pub(super) stale: u32,
    /// What was seen on them.
    pub(super) noticed: Anomalies,
}

impl Schedule {
    pub(super) fn new(setup: OpenLoop, epoll: &Epoll, clock: &Clock, rate: Rate) -> Result<Self, Errno> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        // Edge-triggered: setting it anew takes the old expiry back, so that it is never read.
        epoll.add(timer.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER_TOKEN))?;
        Ok(Self {
            setup,
            start: Nanos(0),
            forecast: Forecast::new(clock, rate),
            timer,
            set_for: None,
            next: None,
            looked: Ticks(0),
            waits: false,
            spins: false,
            released: Vec::new(),
            vacant: Vec::new(),
            watched: Vec::new(),
            stale: 0,
            noticed: Anomalies::NONE,
        })
    }

    /// The window begins; `is_pinned` says whether the worker has the core it was given.
    pub(super) fn begin(&mut self, clock: &Clock, is_pinned: bool) {
        self.forecast.refresh(clock);
        let begins = || Nanos(clock.monotonic().0.saturating_add(LEAD.0));
        self.start = *self.setup.start.get_or_init(begins);
        self.spins = self.setup.spin && is_pinned;
    }

    /// Whether a request waits to be due.
    pub(super) const fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// A place's request has ended.
    pub(super) fn release(&mut self, place: usize) {
        self.released.push(place);
        if let Some(next) = &mut self.next {
            next.is_tried = false;
        }
    }

    fn take(&mut self, request: Prepared, clock: &Clock) {
        if self.forecast.is_stale(self.looked) {
            self.forecast.refresh(clock);
        }
        let due = request.due.unwrap_or_default();
        let due = Nanos(self.start.0.saturating_add(due.0));
        let ticks = self.forecast.ticks_at(due);
        self.next = Some(Upcoming { request, due, ticks, staged: None, is_tried: false });
    }

    /// The request whose due has come.
    fn come(&mut self, clock: &Clock) -> Option<Upcoming> {
        self.looked = clock.ticks();
        let next = self.next.take_if(|next| next.ticks <= self.looked)?;
        self.waits = false;
        Some(next)
    }

    /// Whether the request is to be made ready: before the last part of the wait, which is awake or, on a core that is
    /// not the worker's own, asleep.
    fn is_to_stage(&mut self, rate: Rate) -> bool {
        let (looked, spins) = (self.looked, self.spins);
        let waits = |next: &&mut Upcoming| next.staged.is_none() && !next.is_tried;
        let Some(next) = self.next.as_mut().filter(waits) else { return false };
        let left = rate.nanos(Ticks(next.ticks.0.saturating_sub(looked.0)));
        next.is_tried = match wait(left, spins) {
            Wait::Over => false,
            Wait::Spin => true,
            Wait::Sleep(_) => !spins,
        };
        next.is_tried
    }

    /// Prepares the wait for the next due, that was not there yet at the last look; whether the loop must not sleep.
    pub(super) fn prepare_wait(&mut self, rate: Rate) -> bool {
        let Some(next) = self.next.as_ref() else {
            self.waits = false;
            return false;
        };
        let left = rate.nanos(Ticks(next.ticks.0.saturating_sub(self.looked.0)));
        self.waits = left > Nanos(0);
        match wait(left, self.spins) {
            Wait::Over | Wait::Spin => true,
            Wait::Sleep(_) if self.set_for == Some(next.due) => false,
            Wait::Sleep(_) => {
                let early = if self.spins { SPIN.0 } else { 0 };
                // A time in the past wakes at once; zero would never.
                let at = TimeSpec::nanoseconds(next.due.0.saturating_sub(early).max(1));
                let set = self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
                self.set_for = set.is_ok().then_some(next.due);
                // Without a timer the loop stays awake: it costs processor time and no precision.
                set.is_err()
            }
        }
    }

    /// The loop is back from waiting: how late that is for the due it waited for; `None` when that has not come, or was
    /// not waited for.
    pub(super) fn back(&mut self, now: Ticks, clock: &Clock) -> Option<Ticks> {
        let next = self.next.as_mut().filter(|_| self.waits)?;
        if self.forecast.is_old(now) {
            // After a long sleep the counter is asked anew.
            self.forecast.refresh(clock);
            next.ticks = self.forecast.ticks_at(next.due);
        }
        let late = now.0.checked_sub(next.ticks.0)?;
        self.waits = false;
        Some(Ticks(late))
    }
}

impl Worker {
    /// Starts every request whose due has come, in portions: what comes for the others must be read meanwhile.
    pub(super) fn start_due(&mut self) {
        self.starved = false;
        for _ in 0..STARTS_PER_TURN.max(self.came) {
            let Some(schedule) = self.schedule.as_mut() else { return };
            if !schedule.has_next() {
                match self.supply.next() {
                    Next::Request(request) => schedule.take(request, &self.clock),
                    Next::Later => {
                        self.starved = true;
                        return;
                    }
                    Next::Done => {
                        self.exhausted = true;
                        return;
                    }
                }
            }
            let Some(next) = schedule.come(&self.clock) else {
                if schedule.is_to_stage(self.limits.rate) {
                    self.stage();
                }
                return;
            };
            self.open += 1;
            self.spun = None;
            match next.staged.filter(|place| self.connections.state(*place) == State::Staged) {
                Some(place) => self.unleash(place, next.ticks),
                None => self.begin(next),
            }
        }
    }

    /// The timer went off, and will not again by itself. Where its clock was ahead of the forecast, the due is not there
    /// yet, and it is set anew.
    pub(super) fn on_timer(&mut self) {
        if let Some(schedule) = &mut self.schedule {
            schedule.set_for = None;
        }
    }

    /// Makes the next request ready on the connection that was used last. Where there is none that is idle, it is left
    /// for the due: until then one may be.
    fn stage(&mut self) {
        let due = self.schedule.as_ref().and_then(|schedule| schedule.next.as_ref()).map(|next| next.ticks);
        let Some(place) = due.and_then(|due| self.idle_place(due)) else { return };
        let number = self.number_of(place);
        let (Some(schedule), Some(connection)) = (self.schedule.as_mut(), self.connections.get_mut(place))
        else {
            return;
        };
        let Some(next) = schedule.next.as_mut() else { return };
        next.staged = Some(place);
        let mut record = self.setup.record(number, &next.request, next.ticks);
        (record.stale_connections, record.anomalies) =
            (std::mem::take(&mut schedule.stale), std::mem::take(&mut schedule.noticed));
        (record.connection_id, record.connection_use) = (connection.id, connection.uses);
        connection.begin(next.request.bytes.clone(), record, schedule.looked);
        connection.state = State::Staged;
    }

    /// The due of the request that is ready on this place has come.
    fn unleash(&mut self, place: usize, due: Ticks) {
        self.serial += 1;
        if let (Some(connection), Some(schedule)) = (self.connections.get_mut(place), &self.schedule) {
            connection.unleash(self.serial, due, schedule.looked);
        }
        self.write(place);
        self.arm(place);
    }

    /// Something came on the connection of the request that was ready: it will find another one.
    pub(super) fn unstage(&mut self, place: usize) {
        let record = self.connections.get_mut(place).and_then(Connection::unstage);
        let Some(schedule) = self.schedule.as_mut() else { return };
        schedule.release(place);
        if let Some(next) = &mut schedule.next {
            next.staged = None;
        }
        if let Some(record) = record {
            schedule.stale += record.stale_connections;
            schedule.noticed.merge(record.anomalies);
        }
    }

    /// Forgets the request that is not due yet: it was never begun.
    pub(super) fn forget_next(&mut self) {
        let next = self.schedule.as_mut().and_then(|schedule| schedule.next.take());
        if let Some(place) = next.and_then(|next| next.staged) {
            self.unstage(place);
        }
    }

    /// Sends on the connection that was used last, or on a new one.
    fn begin(&mut self, next: Upcoming) {
        let place = self.idle_place(self.now);
        let Some(schedule) = self.schedule.as_mut() else { return };
        let pending = Pending {
            request: next.request,
            due: next.ticks,
            stale: std::mem::take(&mut schedule.stale),
            noticed: std::mem::take(&mut schedule.noticed),
        };
        if let Some(place) = place {
            return self.send_on(place, pending);
        }
        let place = schedule.vacant.pop().unwrap_or_else(|| self.connections.add());
        self.connect(place, pending);
    }

    /// The place of the idle connection that was used last and can carry a request at that instant.
    fn idle_place(&mut self, at: Ticks) -> Option<usize> {
        let schedule = self.schedule.as_mut()?;
        let is_watched = self.trust.probation_end(self.now, self.limits.probation).is_some();
        // What the server has closed, the last look at the sockets has shown, unless it was too short for all.
        let saw_all = self.came < EVENTS_PER_TURN;
        let mut found = None;
        while let Some(place) = schedule.released.pop() {
            let idle = self.connections.get_mut(place).filter(|connection| connection.state == State::Idle);
            let Some(connection) = idle else {
                schedule.vacant.push(place);
                continue;
            };
            if is_watched && !connection.is_unused() {
                schedule.watched.push(place);
                continue;
            }
            let (now, rate) = (self.now, self.limits.rate);
            let is_kept = self.setup.reuse == Reuse::Keep && self.trust.may_keep();
            let is_fit = connection.is_in_time(at, rate) && (saw_all || connection.fit_for_reuse(now, rate));
            if is_kept && is_fit {
                found = Some(place);
                break;
            }
            schedule.stale += u32::from(is_kept);
            connection.close();
            schedule.vacant.push(place);
        }
        schedule.released.extend(schedule.watched.drain(..).rev());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, OnceLock};

    use bytes::Bytes;
    use nix::sys::epoll::EpollTimeout;

    use crate::client::route::Route;
    use crate::client::setup::WorkerSetup;
    use crate::client::stop::StopSignal;
    use crate::record::{Ended, Inlet, Outcome, Phase, RequestRecord, rings};
    use crate::schedule::Supply;
    use crate::wire::dialect::Dialect;
    use crate::wire::response::AnswerRule;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    /// The second of three workers, with requests that are due so many milliseconds after the start.
    fn worker(listener: &TcpListener, dues_ms: &[i64]) -> (Worker, Inlet) {
        let setup = WorkerSetup {
            worker: 1,
            core: None,
            open: Some(OpenLoop { start: Arc::new(OnceLock::new()), spin: true, workers: 3 }),
            slots: 0,
            first_slot: 0,
            routes: [Route { source: None, address: listener.local_addr().unwrap() }].into(),
            ports: None,
            unresolved: None,
            connection_numbers: Arc::new(AtomicU64::new(0)),
            reuse: Reuse::Keep,
            prewarm: false,
            kernel_stamps: false,
            transmit_stamps: false,
            watched: crate::client::transport::Watched::Nothing,
            answer_rule: AnswerRule { dialect: Dialect::Http, streamed: false, ..AnswerRule::default() },
            timeout: Nanos::from_secs(10),
            idle_timeout: Nanos::from_secs(10),
            connect_timeout: Nanos::from_secs(10),
        };
        let supply = Supply::new(dues_ms.len());
        for (index, due) in (0..).zip(dues_ms) {
            let (due, bytes) = (Some(Nanos::from_millis(*due)), Bytes::from_static(REQUEST).into());
            supply.push(Prepared { index, phase: Phase::Measured, due, bytes }).unwrap();
        }
        supply.close();
        let clock = Clock::new();
        let first = clock.anchor();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let rate = Rate::between(&first, &clock.anchor());
        let (outlet, inlet) = rings();
        let stop = Arc::new(StopSignal::new().unwrap());
        let mut worker = Worker::new(setup, Arc::new(supply), stop, outlet, rate).unwrap();
        worker.schedule.as_mut().unwrap().begin(&clock, true);
        (worker, inlet)
    }

    /// Turns until the worker has written another record down; whoever listens answers on its first connection.
    fn next_record(worker: &mut Worker, inlet: &mut Inlet, mut peer: Option<&TcpStream>) -> RequestRecord {
        let mut events = [EpollEvent::empty(); 8];
        loop {
            if let Some(record) = inlet.pop().map(Ended::into_record) {
                return record;
            }
            worker.is_done();
            worker.turn(&mut events, EpollTimeout::ZERO);
            if let Some(mut stream) = peer.take_if(|_| worker.open > 0) {
                stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
                stream.write_all(ANSWER).unwrap();
            }
        }
    }

    fn accept_while_turning(worker: &mut Worker, listener: &TcpListener) -> TcpStream {
        listener.set_nonblocking(true).unwrap();
        let mut events = [EpollEvent::empty(); 8];
        loop {
            worker.is_done();
            worker.turn(&mut events, EpollTimeout::ZERO);
            if let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
        }
    }

    #[test]
    fn a_request_that_was_ready_goes_another_way_when_its_connection_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The second request is due long after the watch over the first kept connection.
        let (mut worker, mut inlet) = worker(&listener, &[0, 3_000]);
        let peer = accept_while_turning(&mut worker, &listener);
        let first = next_record(&mut worker, &mut inlet, Some(&peer));
        assert_eq!((first.outcome, first.slot, first.connection_use), (Outcome::Ok, 1, 0));
        std::thread::sleep(std::time::Duration::from_millis(15));
        let mut events = [EpollEvent::empty(); 8];
        worker.is_done();
        worker.turn(&mut events, EpollTimeout::ZERO);

        worker.stage();
        assert_eq!(worker.connections.state(0), State::Staged);
        assert_eq!(worker.schedule.as_ref().unwrap().next.as_ref().unwrap().staged, Some(0));
        drop(peer);
        worker.turn(&mut events, EpollTimeout::from(5_000_u16));
        let schedule = worker.schedule.as_mut().unwrap();
        assert_eq!((worker.connections.state(0), schedule.stale), (State::Closed, 1));
        // Its due comes.
        let mut next = schedule.next.take().unwrap();
        assert_eq!((next.staged, worker.open), (None, 0), "nothing was begun");
        next.ticks = worker.clock.ticks();
        schedule.next = Some(next);
        let peer = accept_while_turning(&mut worker, &listener);
        let second = next_record(&mut worker, &mut inlet, Some(&peer));
        assert_eq!((second.outcome, second.stale_connections), (Outcome::Ok, 1));
        assert_eq!((second.slot, second.connection_use, second.serial), (1, 0, 2));
        assert!(second.connect.is_some() && worker.is_done());
    }

    #[test]
    fn a_worker_that_fell_behind_goes_on_although_nothing_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dues = [0; STARTS_PER_TURN + 9];
        let (mut worker, _inlet) = worker(&listener, &dues);
        std::thread::sleep(std::time::Duration::from_millis(2));
        for begun in [STARTS_PER_TURN, dues.len()] {
            worker.is_done();
            assert_eq!(worker.open, begun);
            let is_over = begun == dues.len();
            assert_eq!(
                worker.wait_limit() != EpollTimeout::ZERO,
                is_over,
                "{begun} begun, of {}",
                dues.len()
            );
        }
    }

    #[test]
    fn a_timer_that_went_off_before_the_due_is_set_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut worker, _inlet) = worker(&listener, &[20]);
        worker.is_done();
        // As where the clock of the timer is ahead of the forecast by more than it takes to wake.
        let next = worker.schedule.as_mut().unwrap().next.as_mut().unwrap();
        next.ticks = Ticks(next.ticks.0 + worker.limits.rate.ticks(Nanos::from_millis(200)).0);
        let mut events = [EpollEvent::empty(); 8];
        worker.wait_limit();
        worker.turn(&mut events, EpollTimeout::from(5_000_u16));
        let began = worker.clock.monotonic();
        worker.wait_limit();
        worker.turn(&mut events, EpollTimeout::from(5_000_u16));
        let slept = Nanos(worker.clock.monotonic().0 - began.0);
        assert!(slept < Nanos::from_secs(1), "the loop slept past its due");
    }

    #[test]
    fn a_stop_forgets_what_was_ready_and_nothing_was_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut worker, mut inlet) = worker(&listener, &[0, 3_000]);
        let mut peer = accept_while_turning(&mut worker, &listener);
        next_record(&mut worker, &mut inlet, Some(&peer));
        std::thread::sleep(std::time::Duration::from_millis(15));
        worker.turn(&mut [EpollEvent::empty(); 8], EpollTimeout::ZERO);
        worker.is_done();
        worker.stage();
        assert_eq!(worker.connections.state(0), State::Staged);
        worker.stop.request();
        assert!(worker.is_done());
        assert!(inlet.pop().is_none(), "it was never begun");
        drop(worker);
        assert_eq!(peer.read(&mut [0]).unwrap_or(0), 0, "and not sent");
    }

    #[test]
    fn the_last_used_connection_goes_first_and_places_are_filled_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut worker, _inlet) = worker(&listener, &[60_000]);
        // Idle, closed, idle, from the bottom to the top.
        for place in 0..3 {
            assert_eq!(worker.connections.add(), place);
            let connection = worker.connections.make(place).unwrap();
            if place != 1 {
                connection.warmed(worker.now);
            }
            worker.schedule.as_mut().unwrap().release(place);
        }
        let now = worker.now;
        assert_eq!([(); 3].map(|()| worker.idle_place(now)), [Some(2), Some(0), None]);
        assert_eq!(worker.schedule.as_ref().unwrap().vacant, [1]);
    }
}
