//! The workers of a run: started together, joined together.

use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use nix::errno::Errno;

use crate::client::setup::{WorkerHealth, WorkerSetup};
use crate::client::stop::StopSignal;
use crate::client::worker::Worker;
use crate::clock::Rate;
use crate::record::{Inlet, rings};
use crate::schedule::Supply;

/// The kernel refused something a worker cannot be without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No epoll descriptor.
    #[error("cannot make the event queue of worker {worker}: {}", errno.desc())]
    Epoll {
        /// The worker.
        worker: u32,
        /// What the kernel said.
        errno: Errno,
    },
    /// No thread.
    #[error("cannot start the thread of worker {worker}")]
    Thread {
        /// The worker.
        worker: u32,
    },
}

/// Running workers that wait for [`Pool::start`].
#[derive(Debug)]
pub struct Pool {
    threads: Vec<JoinHandle<WorkerHealth>>,
    barrier: Arc<Barrier>,
}

impl Pool {
    /// Makes a thread per setup, pinned and with everything allocated; they wait for [`Pool::start`]. Returns the
    /// collector's ends of their rings in the same order.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn new(
        setups: Vec<WorkerSetup>,
        supply: &Arc<Supply>,
        stop: &Arc<StopSignal>,
        rate: Rate,
    ) -> Result<(Self, Vec<Inlet>), PoolError> {
        let barrier = Arc::new(Barrier::new(setups.len() + 1));
        let together = setups.iter().any(|s| s.prewarm).then(|| Arc::new(Barrier::new(setups.len())));
        let mut inlets = Vec::with_capacity(setups.len());
        let mut workers = Vec::with_capacity(setups.len());
        for setup in setups {
            let (outlet, inlet) = rings();
            let id = setup.worker;
            let made = Worker::new(setup, Arc::clone(supply), Arc::clone(stop), outlet, rate);
            workers.push((id, made.map_err(|errno| PoolError::Epoll { worker: id, errno })?));
            inlets.push(inlet);
        }
        let mut threads = Vec::with_capacity(workers.len());
        for (id, mut worker) in workers {
            let (gate, together) = (Arc::clone(&barrier), together.clone());
            let body = move || {
                worker.pin();
                gate.wait();
                if let Some(together) = together {
                    worker.prewarm();
                    // One window for all: nobody sends while another worker still connects.
                    together.wait();
                }
                worker.run()
            };
            let thread = std::thread::Builder::new().name(format!("worker-{id}")).spawn(body);
            threads.push(thread.map_err(|_| PoolError::Thread { worker: id })?);
        }
        Ok((Self { threads, barrier }, inlets))
    }

    /// Lets all workers begin at once: first to connect, where connections are made ahead, then to send.
    pub fn start(&self) {
        self.barrier.wait();
    }

    /// Whether every worker has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all workers. A worker that panicked has no health: `None` in its place.
    #[must_use]
    pub fn join(self) -> Vec<Option<WorkerHealth>> {
        self.threads.into_iter().map(|t| t.join().ok()).collect()
    }
}
