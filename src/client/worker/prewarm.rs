//! Connections made before the run begins: one per slot, so that the first requests do not pay for theirs.
//!
//! It is the run's own loop with connections instead of requests. One that fails is counted, and its slot's first
//! request makes its own; one that the server closes before its first request is a stale connection like any other.

use nix::sys::epoll::{EpollEvent, EpollTimeout};

use super::{CONNECTIONS_PER_SLOT, EVENTS_PER_TURN, Worker};
use crate::client::setup::Prewarm;

/// Connections under way at a time: a server 10 ms away gets 51,000 a second, and no server's queue of half-open
/// connections (1,024 and more on Linux) runs over.
const IN_FLIGHT: usize = 512;

/// Connections that are begun before it is seen which are there: what stands between the end of a handshake and its
/// stamp, a tenth of a millisecond. A look costs less than a tenth of one connection.
const BEGUN_PER_TURN: usize = 8;

impl Worker {
    /// Makes the connection of every slot. Returns when each is there or has failed, or when a stop was asked for.
    pub(crate) fn prewarm(&mut self) {
        let slots = self.slots.len();
        let began = self.clock.ticks();
        self.health.prewarm = Some(Prewarm {
            asked: slots as u64,
            began,
            made: Vec::with_capacity(slots),
            ..Prewarm::default()
        });
        let mut events = [EpollEvent::empty(); EVENTS_PER_TURN];
        let mut next = 0;
        while (next < slots || self.warming > 0) && !self.stop.is_requested() {
            let room = IN_FLIGHT.saturating_sub(self.warming).min(BEGUN_PER_TURN).min(slots - next);
            self.now = self.clock.ticks();
            (next..next + room).for_each(|slot| self.warm(slot * CONNECTIONS_PER_SLOT));
            next += room;
            let is_full = next == slots || self.warming >= IN_FLIGHT;
            let timeout = if is_full { self.wait_limit() } else { EpollTimeout::ZERO };
            self.turn(&mut events, timeout);
        }
        let ended = self.clock.ticks();
        if let Some(prewarm) = self.health.prewarm.as_mut() {
            prewarm.ended = ended;
        }
    }

    /// Begins one connection.
    fn warm(&mut self, index: usize) {
        let id = self.setup.next_connection();
        self.warming += 1;
        let Some(route) = self.setup.route(id) else {
            let reason = self.setup.unresolved.clone();
            return self.warming_failed(reason.as_deref().unwrap_or_default());
        };
        let began = self.clock.ticks();
        match self.dial(index, id, route, began) {
            Ok(true) => self.on_warmed(index),
            Ok(false) => self.arm(index),
            Err(error) => self.warming_failed(error.desc()),
        }
    }

    /// The handshake is done and nothing waits for it.
    pub(super) fn on_warmed(&mut self, index: usize) {
        let now = self.clock.ticks();
        self.warming = self.warming.saturating_sub(1);
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.warmed(now);
        if self.setup.transmit_stamps {
            connection.ask_transmit_stamps();
        }
        if let Some(prewarm) = self.health.prewarm.as_mut() {
            prewarm.made.push((connection.began, now));
        }
    }

    /// A connection that nothing waits for could not be made.
    pub(super) fn warming_failed(&mut self, message: &str) {
        self.warming = self.warming.saturating_sub(1);
        if let Some(prewarm) = self.health.prewarm.as_mut() {
            prewarm.failed += 1;
            prewarm.failure.get_or_insert_with(|| message.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use bytes::Bytes;

    use crate::client::ports::{LEFT_TO_THE_KERNEL, Ports};
    use crate::client::route::Route;
    use crate::client::setup::{Reuse, WorkerHealth, WorkerSetup};
    use crate::client::stop::StopSignal;
    use crate::client::transport::Watched;
    use crate::clock::{Clock, Rate};
    use crate::record::{Ended, Inlet, Outcome, Phase, RequestRecord, rings};
    use crate::schedule::{Prepared, Supply};
    use crate::units::Nanos;
    use crate::wire::response::AnswerRule;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 61\r\n\r\n\
                          data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    /// A worker with a request for each of its slots.
    fn worker(address: SocketAddr, slots: usize) -> (Worker, Inlet, Arc<StopSignal>) {
        worker_after(address, slots, 0, None)
    }

    /// The same in a run that has made so many connections before.
    fn worker_after(
        address: SocketAddr,
        slots: usize,
        connections: u64,
        ports: Option<Ports>,
    ) -> (Worker, Inlet, Arc<StopSignal>) {
        let setup = WorkerSetup {
            worker: 0,
            core: None,
            open: None,
            slots,
            first_slot: 0,
            routes: [Route { source: None, address }].into(),
            ports,
            unresolved: None,
            connection_numbers: Arc::new(AtomicU64::new(connections)),
            reuse: Reuse::Keep,
            prewarm: true,
            kernel_stamps: false,
            transmit_stamps: false,
            watched: Watched::Every,
            answer_rule: AnswerRule::default(),
            timeout: Nanos::from_secs(10),
            idle_timeout: Nanos::from_secs(10),
            connect_timeout: Nanos::from_secs(10),
        };
        let supply = Supply::new(slots);
        for index in 0..slots as u64 {
            let bytes = Bytes::from_static(REQUEST);
            supply.push(Prepared { index, phase: Phase::Measured, due: None, bytes: bytes.into() }).unwrap();
        }
        supply.close();
        let clock = Clock::new();
        let first = clock.anchor();
        std::thread::sleep(Duration::from_millis(5));
        let rate = Rate::between(&first, &clock.anchor());
        let stop = Arc::new(StopSignal::new().unwrap());
        let (outlet, inlet) = rings();
        let worker = Worker::new(setup, Arc::new(supply), Arc::clone(&stop), outlet, rate).unwrap();
        (worker, inlet, stop)
    }

    /// Runs to the end; the records, by number.
    fn records(worker: Worker, mut inlet: Inlet) -> (WorkerHealth, Vec<RequestRecord>) {
        let health = worker.run();
        let mut records: Vec<RequestRecord> =
            std::iter::from_fn(|| inlet.pop().map(Ended::into_record)).collect();
        records.sort_by_key(|record| record.index);
        (health, records)
    }

    fn answer_all(listener: TcpListener, count: usize) {
        std::thread::spawn(move || {
            let peers: Vec<TcpStream> = listener.incoming().take(count).map(Result::unwrap).collect();
            for mut peer in &peers {
                peer.read_exact(&mut [0; REQUEST.len()]).unwrap();
                peer.write_all(ANSWER.as_bytes()).unwrap();
            }
            // Open until the client has closed.
            for mut peer in peers {
                let _ = peer.read(&mut [0]);
            }
        });
    }

    #[test]
    fn connections_that_the_server_closes_before_the_run_are_stale_and_replaced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut worker, inlet, _stop) = worker(listener.local_addr().unwrap(), 3);
        worker.prewarm();
        let accepted: Vec<_> = (0..3).map(|_| listener.accept().unwrap()).collect();
        drop(accepted);
        answer_all(listener, 3);
        let (health, records) = records(worker, inlet);
        assert_eq!(health.prewarm.as_ref().map(|p| (p.asked, p.made.len(), p.failed)), Some((3, 3, 0)));
        assert_eq!(records.len(), 3);
        for record in records {
            assert_eq!(
                (record.outcome, record.stale_connections, record.connection_use),
                (Outcome::Ok, 1, 0)
            );
            assert!(record.connect.is_some() && record.connection_id >= 3);
        }
    }

    #[test]
    fn connections_on_which_the_server_speaks_before_it_is_asked_are_replaced_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut worker, inlet, _stop) = worker(listener.local_addr().unwrap(), 3);
        worker.prewarm();
        let mut accepted: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        for peer in &mut accepted {
            peer.write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
        answer_all(listener, 3);
        let (_, records) = records(worker, inlet);
        assert_eq!(records.len(), 3);
        for record in records {
            let found = (record.outcome, record.stale_connections, record.connection_use);
            assert_eq!(found, (Outcome::Ok, 1, 0));
        }
    }

    #[test]
    fn a_close_before_the_first_request_says_nothing_about_the_target() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut worker, _inlet, _stop) = worker(listener.local_addr().unwrap(), 1);
        worker.prewarm();
        drop(listener.accept().unwrap());
        // Another slot's connection has just been kept after its answer.
        let now = worker.clock.ticks();
        worker.trust.kept(now);
        worker.turn(&mut [EpollEvent::empty(); 4], EpollTimeout::from(5_000_u16));
        assert_eq!(worker.slots[0].stale, 1);
        assert!(worker.trust.may_keep());
    }

    #[test]
    fn connections_that_cannot_be_made_are_made_again_by_their_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let (mut worker, inlet, _stop) = worker(address, 2);
        worker.prewarm();
        answer_all(TcpListener::bind(address).unwrap(), 2);
        let (health, records) = records(worker, inlet);
        let prewarm = health.prewarm.unwrap();
        assert_eq!((prewarm.asked, prewarm.made.len(), prewarm.failed), (2, 0, 2));
        assert_eq!(prewarm.failure.as_deref(), Some("Connection refused"));
        assert_eq!(records.len(), 2);
        assert!(records.iter().all(|record| record.outcome == Outcome::Ok && record.connect.is_some()));
        assert!(records.iter().all(|record| record.stale_connections == 0));
    }

    #[test]
    fn what_is_made_ahead_carries_the_first_requests_and_the_spans_are_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut worker, inlet, _stop) = worker(listener.local_addr().unwrap(), 40);
        worker.prewarm();
        answer_all(listener, 40);
        let (health, records) = records(worker, inlet);
        assert_eq!(records.len(), 40);
        assert!(records.iter().all(|r| r.outcome == Outcome::Ok && r.connect.is_none()));
        let prewarm = health.prewarm.unwrap();
        assert_eq!(prewarm.made.len(), 40);
        let inside = |(from, to): &(_, _)| prewarm.began <= *from && from < to && *to <= prewarm.ended;
        assert!(prewarm.made.iter().all(inside));
        assert!(prewarm.ended <= health.started);
    }

    #[test]
    fn past_what_the_kernel_chooses_ports_are_named_and_a_taken_one_is_passed_over() {
        // Outside the usual range, so that nobody else is there by chance; a listener makes one of them taken.
        let ports = Ports::within(&(20_000..=20_999), 5).unwrap();
        let named = |n| ports.to_try(LEFT_TO_THE_KERNEL + n).next().unwrap().unwrap();
        let _taken = TcpListener::bind(("127.0.0.1", named(2))).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let (mut worker, _inlet, _stop) = worker_after(own, 5, LEFT_TO_THE_KERNEL - 1, Some(ports));
        worker.prewarm();
        let from: Vec<u16> = (0..5).map(|_| listener.accept().unwrap().1.port()).collect();
        assert_eq!(worker.health.prewarm.as_ref().map(|p| (p.made.len(), p.failed)), Some((5, 0)));
        assert!(!(20_000..=20_999).contains(&from[0]), "the kernel chose the first: {from:?}");
        assert_eq!([from[1], from[2], from[4]], [named(0), named(1), named(3)]);
        assert!(from[3] != named(2) && from[3] % 2 == 1 && (20_000..=20_999).contains(&from[3]), "{from:?}");
    }

    #[test]
    fn a_stop_ends_the_connecting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut worker, inlet, stop) = worker(listener.local_addr().unwrap(), 5);
        stop.request();
        worker.prewarm();
        let (health, records) = records(worker, inlet);
        assert_eq!(health.prewarm.map(|p| (p.asked, p.made.len(), p.failed)), Some((5, 0, 0)));
        assert!(records.is_empty());
    }
}
