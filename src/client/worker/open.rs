//! The open loop: a request starts when it is due, whether or not others are in flight.
//!
//! A worker holds one request of the schedule at a time and waits for its due: asleep at first, then, where the core is
//! its own, awake, with a look at the sockets in every turn, so that reading never waits for pacing. Connections are a
//! pool: the one used last goes first, and where none is free a new one is made; nothing is ever put off for one. What
//! all of this costs is in the request's send start, never in its due.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

use super::dispatch::Pending;
use super::{EVENTS_PER_TURN, STARTS_PER_TURN, Worker};
use crate::client::connection::State;
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
const TIMER_TOKEN: u64 = u64::MAX - 1;

/// The request that comes next.
#[derive(Debug)]
struct Upcoming {
    request: Prepared,
    /// On CLOCK_MONOTONIC.
    due: Nanos,
    /// The same by the counter, as far as is known.
    ticks: Ticks,
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

    /// Forgets the request that is not due yet: it was never begun.
    pub(super) fn forget_next(&mut self) {
        self.next = None;
    }

    /// A place's request has ended.
    pub(super) fn release(&mut self, place: usize) {
        self.released.push(place);
    }

    fn take(&mut self, request: Prepared, clock: &Clock) {
        if self.forecast.is_stale(self.looked) {
            self.forecast.refresh(clock);
        }
        let due = request.due.unwrap_or_default();
        let due = Nanos(self.start.0.saturating_add(due.0));
        self.next = Some(Upcoming { request, due, ticks: self.forecast.ticks_at(due) });
    }

    /// The request whose due has come.
    fn come(&mut self, clock: &Clock) -> Option<(Prepared, Ticks)> {
        self.looked = clock.ticks();
        let next = self.next.take_if(|next| next.ticks <= self.looked)?;
        self.waits = false;
        Some((next.request, next.ticks))
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
            let Some((request, due)) = schedule.come(&self.clock) else { return };
            let (stale, noticed) =
                (std::mem::take(&mut schedule.stale), std::mem::take(&mut schedule.noticed));
            self.open += 1;
            self.spun = None;
            self.begin(Pending { request, due, stale, noticed });
        }
    }

    /// Sends on the connection that was used last, or on a new one.
    fn begin(&mut self, mut pending: Pending) {
        if let Some(place) = self.idle_place(&mut pending) {
            return self.send_on(place, pending);
        }
        let vacant = self.schedule.as_mut().and_then(|schedule| schedule.vacant.pop());
        let place = vacant.unwrap_or_else(|| self.connections.add());
        self.connect(place, pending);
    }

    /// The place of the idle connection that was used last and can carry a request.
    fn idle_place(&mut self, pending: &mut Pending) -> Option<usize> {
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
            let is_fit = connection.is_in_time(now, rate) && (saw_all || connection.fit_for_reuse(now, rate));
            if is_kept && is_fit {
                found = Some(place);
                break;
            }
            pending.stale += u32::from(is_kept);
            connection.close();
            schedule.vacant.push(place);
        }
        schedule.released.extend(schedule.watched.drain(..).rev());
        found
    }
}
