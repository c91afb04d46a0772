//! One pinned thread with one bare epoll loop over its own connections.
//!
//! Before the run it may make its connections ahead ([`prewarm`]). The loop waits, reads every socket that has bytes ([`reading`]), lets the exchanges take the bytes in, starts the
//! next request of every slot that became free ([`dispatch`]) or every request that is due ([`open`]), and looks at its
//! deadlines ([`deadlines`]). Between the
//! due instant and the end of a request it takes no lock, logs nothing and draws nothing. It is edge-triggered: one
//! `epoll_ctl` per connection for its whole life.

mod deadlines;
mod dispatch;
mod open;
mod prewarm;
mod reading;

use std::collections::VecDeque;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use self::deadlines::Limits;
use self::dispatch::Slot;
use self::open::Schedule;
use crate::client::affinity;
use crate::client::connection::State;
use crate::client::connections::Connections;
use crate::client::setup::{WorkerHealth, WorkerSetup};
use crate::client::socket::ReadBuffer;
use crate::client::stop::StopSignal;
use crate::client::timers::Timers;
use crate::client::transport::Gate;
use crate::client::trust::Trust;
use crate::clock::{Clock, Rate, Scheduling};
use crate::record::{Outcome, Outlet};
use crate::schedule::Supply;
use crate::units::{Nanos, Ticks};

/// Events taken from the kernel at once: enough to see a whole burst, small enough to stay in the first-level cache.
const EVENTS_PER_TURN: usize = 512;

/// Slots that start a request before the sockets are looked at again: ten thousand slots that are free at once take a
/// tenth of a second to start, and the first answers come before that. This many take a third of a millisecond, and the
/// look costs a hundredth of it.
///
/// Where the last look found more than that, as many slots start as sockets had something: a worker that cannot keep up
/// with reading would otherwise never come to start them all.
const STARTS_PER_TURN: usize = 32;

/// Connections of a slot: one that carries the request, and one that may still wait for the last bytes of the answer
/// before.
const CONNECTIONS_PER_SLOT: usize = 2;

/// The token of the stop signal among the tokens of connections.
const STOP_TOKEN: u64 = u64::MAX;

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
    connections: Connections,
    /// Of a closed loop; empty in an open one.
    slots: Vec<Slot>,
    /// Of an open loop.
    schedule: Option<Schedule>,
    timers: Timers,
    /// Slots that are free, and since when.
    free: VecDeque<(usize, Ticks)>,
    /// A free slot found no rendered request.
    starved: bool,
    /// Connections with bytes left over from a turn, and whether the end of the stream is behind them.
    again: VecDeque<(usize, bool)>,
    /// Requests begun and not written down yet.
    open: usize,
    exhausted: bool,
    trust: Trust,
    /// Of which requests the kernel's counts are read.
    gate: Gate,
    /// Sockets that had something at the last look.
    came: usize,
    /// Connections under way for which no request waits.
    warming: usize,
    now: Ticks,
    /// When the last wait of an open loop ended, if nothing came and nothing was begun since: it and the next are one.
    spun: Option<Ticks>,
    serial: u64,
    health: WorkerHealth,
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
            .add(stop.descriptor(), EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, STOP_TOKEN))?;
        // The places of a pool are made as they are needed.
        let slots = if setup.open.is_some() { 0 } else { setup.slots };
        let connections = Connections::new(slots * CONNECTIONS_PER_SLOT, setup.answer_rule);
        let limits = Limits::of(&setup, rate);
        let clock = Clock::new();
        let open = setup.open.clone();
        let schedule = open.map(|open| Schedule::new(open, &epoll, &clock, rate)).transpose()?;
        Ok(Self {
            supply,
            stop,
            outlet,
            clock,
            schedule,
            spun: None,
            limits,
            epoll,
            buffer: ReadBuffer::new(),
            connections,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            timers: Timers::with_capacity(slots * CONNECTIONS_PER_SLOT),
            free: VecDeque::with_capacity(slots),
            starved: false,
            again: VecDeque::with_capacity(slots),
            open: 0,
            exhausted: false,
            trust: Trust::Unknown(None),
            gate: Gate::new(setup.watched),
            came: 0,
            warming: 0,
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
        let scheduling = Scheduling::read();
        let now = self.clock.ticks();
        (self.now, self.health.started, self.health.waited) = (now, now, Ticks(0));
        let cpu = self.clock.thread_cpu();
        self.free.extend((0..self.slots.len()).map(|slot| (slot, now)));
        if let Some(schedule) = &mut self.schedule {
            schedule.begin(&self.clock, self.health.pinned_core.is_some());
        }
        let mut events = [EpollEvent::empty(); EVENTS_PER_TURN];
        while !self.is_done() {
            let timeout = self.wait_limit();
            self.turn(&mut events, timeout);
        }
        self.health.ended = self.clock.ticks();
        self.health.cpu = Nanos(self.clock.thread_cpu().0.saturating_sub(cpu.0));
        self.health.scheduling = Scheduling::read().since(scheduling);
        self.health.lost_records = self.outlet.lost_records();
        self.health.lost_chunks = self.outlet.lost_chunks();
        self.health
    }

    /// Waits, reads what came, and looks at the deadlines.
    fn turn(&mut self, events: &mut [EpollEvent], timeout: EpollTimeout) {
        let before = self.spun.take().unwrap_or_else(|| self.clock.ticks());
        let count = self.epoll.wait(events, timeout).unwrap_or(0);
        self.now = self.clock.ticks();
        self.health.waited = Ticks(self.health.waited.0 + self.now.0.saturating_sub(before.0));
        self.came = count;
        if let Some(schedule) = &mut self.schedule {
            if let Some(late) = schedule.back(self.now, &self.clock) {
                self.health.timer_lateness.add(self.limits.rate.nanos(late));
            }
            self.spun = (count == 0).then_some(self.now);
        }
        self.read_leftovers();
        for event in events.iter().take(count) {
            self.on_event(*event);
        }
        self.on_deadlines();
    }

    /// Starts what is free to start, cuts when a stop is asked for, and says whether anything is left to do.
    fn is_done(&mut self) -> bool {
        if self.stop.is_requested() {
            self.exhausted = true;
            self.free.clear();
            self.forget_next();
            self.cut_all();
        }
        let Some(schedule) = &self.schedule else {
            self.start_free_slots();
            return self.open == 0 && self.free.is_empty();
        };
        if !self.exhausted || schedule.has_next() {
            self.start_due();
        }
        self.open == 0 && self.exhausted && self.schedule.as_ref().is_none_or(|schedule| !schedule.has_next())
    }

    /// Cuts everything in flight: the run is over.
    fn cut_all(&mut self) {
        for slot in &mut self.slots {
            // A request that was not sent was never begun.
            self.open -= usize::from(slot.waiting.take().is_some());
        }
        for index in 0..self.connections.len() {
            match self.connections.state(index) {
                State::Connecting | State::Busy => self.fail(index, Outcome::Incomplete, ""),
                State::Draining { .. } => self.end_tail(index),
                State::Warming | State::Idle | State::Staged | State::Closed => {}
            }
        }
        self.free.clear();
    }

    /// Ends a request with an outcome that no byte of its answer decided.
    fn fail(&mut self, index: usize, outcome: Outcome, message: &str) {
        self.now = self.clock.ticks();
        let Some(connection) = self.connections.get_mut(index) else { return };
        let state = connection.state;
        let ended = connection.give_up(outcome, message, self.now, &mut self.gate, &mut self.outlet);
        connection.close();
        if state == State::Warming {
            return self.warming_failed(message);
        }
        self.end_request(index, ended, state, false);
    }

    /// Gives up the last bytes of an answer whose terminal was read.
    fn end_tail(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let ended = connection.finish(self.now, &mut self.gate, &mut self.outlet);
        connection.close();
        if ended {
            self.open = self.open.saturating_sub(1);
            if let Some(schedule) = &mut self.schedule {
                schedule.release(index);
            }
        }
    }

    /// A request was written down, if there was one: its slot is free, unless its terminal made it so already.
    fn end_request(&mut self, index: usize, ended: bool, state: State, at_once: bool) {
        if !ended {
            return;
        }
        self.open = self.open.saturating_sub(1);
        if let Some(schedule) = &mut self.schedule {
            return schedule.release(index);
        }
        let slot = index / CONNECTIONS_PER_SLOT;
        if matches!(state, State::Draining { .. }) {
            self.resume(slot);
        } else {
            self.release(slot, at_once);
        }
    }

    /// The number of a connection's place: its slot, or in an open loop its place in the pool.
    const fn number_of(&self, index: usize) -> usize {
        if self.schedule.is_some() { index } else { index / CONNECTIONS_PER_SLOT }
    }
}
