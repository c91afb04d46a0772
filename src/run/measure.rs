//! The measurement itself: workers, collector and feeder are started, watched and joined.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::aggregate::collector::{Collected, CollectorSetup, LiveCounts, collect};
use crate::aggregate::rows::RequestFacts;
use crate::aggregate::sink::RowSink;
use crate::client::ports::Ports;
use crate::client::transport::{Watched, is_counted};
use crate::client::{OpenLoop, Pool, Reuse, StopSignal, WorkerHealth, WorkerSetup, route};
use crate::clock::{Clock, Rate, Timeline};
use crate::config::masking;
use crate::config::spec::{ConnectionMode, Endpoint, ResolvedTarget, RunSpec};
use crate::plan::Plan;
use crate::run::cores::Cores;
use crate::run::end_at_once;
use crate::run::error::RunError;
use crate::run::feeder::{feed, supply_capacity};
use crate::run::progress::Progress;
use crate::run::request::{Render, answer_rule, own_bytes};
use crate::run::usage::MachineTime;
use crate::schedule::{Pacer, Supply};
use crate::units::{Nanos, Ticks};

/// How often the control plane looks whether the workers have ended. It does not delay them.
const WATCH_EVERY: Duration = Duration::from_millis(5);

/// What a run needs beside its plan.
pub struct Measurement<'a, S> {
    /// What was asked for.
    pub spec: &'a RunSpec,
    /// What was found out about the target.
    pub target: &'a ResolvedTarget,
    /// What is sent.
    pub plan: &'a Arc<Plan>,
    /// Renders request `index` as it goes over the wire.
    pub render: Render,
    /// Which core does what.
    pub cores: &'a Cores,
    /// Something can be sent at all.
    pub reachable: bool,
    /// The run's axis with its first anchor.
    pub timeline: Timeline,
    /// Timer rate.
    pub rate: Rate,
    /// Ask for kernel stamps.
    pub kernel_stamps: bool,
    /// Where rows go.
    pub sink: S,
}

/// What came out of it.
pub struct Measured<S> {
    /// Rows, axis, sink.
    pub collected: Collected<S>,
    /// One per worker; `None` for one that panicked.
    pub health: Vec<Option<WorkerHealth>>,
    /// When the workers began.
    pub began: Ticks,
    /// When they had all ended.
    pub ended: Ticks,
    /// An operator cut the run.
    pub interrupted: bool,
    /// The machine's time before and after.
    pub machine: (Option<MachineTime>, Option<MachineTime>),
}

/// SIGINT and SIGTERM, caught from before the first packet on.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches the two; inside a runtime.
    ///
    /// # Errors
    /// The system's reason.
    pub fn catch() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next of either.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl<S: RowSink + Send + 'static> Measurement<'_, S> {
    /// Carries the run out.
    ///
    /// # Errors
    /// When a worker cannot be started.
    pub async fn carry_out(self, signals: &mut Signals) -> Result<Measured<S>, RunError> {
        let clock = Clock::new();
        let requests = if self.reachable { self.plan.requests() } else { 0 };
        let stop =
            Arc::new(StopSignal::new().map_err(|e| system("cannot make an event descriptor", e.into()))?);
        let capacity = supply_capacity(requests, own_bytes(self.plan));
        let supply = Arc::new(Supply::new(capacity));
        let (pool, inlets) = Pool::new(self.setups(), &supply, &stop, self.rate)?;
        let live = Arc::new(LiveCounts::default());
        let finished = Arc::new(AtomicBool::new(false));
        let setup = CollectorSetup {
            inlets: (0..).zip(inlets).collect(),
            timeline: self.timeline,
            clock: clock.clone(),
            facts: facts(self.plan, self.spec),
            mask: masking::secrets(&self.spec.target),
            sink: self.sink,
            live: Arc::clone(&live),
            finished: Arc::clone(&finished),
        };
        let collector = spawn("collector", move || collect(setup))?;
        let feeder_stop = Arc::new(AtomicBool::new(false));
        let pacer = self.spec.load.arrivals.map(|arrivals| Pacer::new(arrivals, self.spec.prompt.seed));
        let feeder = start_feeder(&supply, requests, pacer, self.render, &feeder_stop)?;
        let mut progress = Progress::new(self.spec.output.progress, self.spec.output.quiet, live, requests);
        let machine = MachineTime::read();
        let released = clock.ticks();
        pool.start();
        let interrupted = watch(&pool, &stop, signals, &mut progress, &clock).await;
        let health = pool.join();
        // What was done before the first request, such as connecting ahead, is no part of the run.
        let began = health.iter().flatten().map(|h| h.started).min().unwrap_or(released);
        let ended = clock.ticks();
        let machine = (machine, MachineTime::read());
        feeder_stop.store(true, Ordering::Release);
        finished.store(true, Ordering::Release);
        progress.finish();
        let collected = collector.join().map_err(|_| panicked("the collector"))?;
        feeder.join().map_err(|_| panicked("the feeder"))?;
        Ok(Measured { collected, health, began, ended, interrupted, machine })
    }

    fn setups(&self) -> Vec<WorkerSetup> {
        let slots = usize::try_from(self.spec.load.concurrency).unwrap_or(usize::MAX);
        let workers = self.cores.workers.len().max(1);
        let connection_numbers = Arc::new(AtomicU64::new(0));
        let connection = &self.spec.connection;
        let routes: Arc<[_]> = route::routes(&connection.source_ips, &self.target.addresses).into();
        let unresolved: Option<Arc<str>> = self.target.unresolved.as_deref().map(Into::into);
        let answer_rule = answer_rule(self.spec);
        let watched = match self.spec.target.endpoint {
            _ if !is_counted() => Watched::Nothing,
            Endpoint::Http => Watched::Slowest,
            _ => Watched::Every,
        };
        // A core that also carries the collector or the server is not to be spent on looking.
        let spin = !self.cores.control.is_empty();
        let open = self.spec.load.arrivals.map(|_| OpenLoop {
            start: Arc::new(OnceLock::new()),
            spin,
            workers: u32::try_from(workers).unwrap_or(u32::MAX),
        });
        let mut first_slot = 0;
        let mut setups = Vec::with_capacity(workers);
        for (number, core) in self.cores.workers.iter().enumerate() {
            let share = slots / workers + usize::from(number < slots % workers);
            setups.push(WorkerSetup {
                worker: u32::try_from(number).unwrap_or(u32::MAX),
                core: *core,
                open: open.clone(),
                slots: share,
                first_slot,
                routes: Arc::clone(&routes),
                ports: Ports::of_system(),
                unresolved: unresolved.clone(),
                connection_numbers: Arc::clone(&connection_numbers),
                reuse: match connection.mode {
                    ConnectionMode::Keep => Reuse::Keep,
                    ConnectionMode::Fresh => Reuse::Fresh,
                },
                prewarm: connection.prewarm && self.reachable,
                kernel_stamps: self.kernel_stamps,
                // A stamp costs about a microsecond, which plain requests at full speed have no time for.
                transmit_stamps: self.kernel_stamps && self.spec.streams_text(),
                watched,
                answer_rule,
                timeout: self.spec.connection.timeout,
                idle_timeout: self.spec.connection.idle_timeout,
                connect_timeout: self.spec.connection.connect_timeout,
            });
            first_slot = first_slot.saturating_add(u32::try_from(share).unwrap_or(u32::MAX));
        }
        setups
    }
}

/// Waits for the workers; the first signal asks them to stop, the second ends the process at once.
async fn watch(
    pool: &Pool,
    stop: &StopSignal,
    signals: &mut Signals,
    progress: &mut Progress,
    clock: &Clock,
) -> bool {
    let zero = clock.monotonic();
    let mut interrupted = false;
    let mut ticker = tokio::time::interval(WATCH_EVERY);
    while !pool.is_finished() {
        tokio::select! {
            () = signals.next() => {
                if interrupted {
                    end_at_once("ended at once by a second signal: files named .part hold what was written until then");
                }
                interrupted = true;
                stop.request();
            }
            _ = ticker.tick() => progress.tick(Nanos(clock.monotonic().0.saturating_sub(zero.0))),
        }
    }
    interrupted
}

/// Starts the feeder and waits until the queue is full or holds the whole plan.
fn start_feeder(
    supply: &Arc<Supply>,
    requests: u64,
    pacer: Option<Pacer>,
    render: Render,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<()>, RunError> {
    let (supply, stop) = (Arc::clone(supply), Arc::clone(stop));
    let (ready, is_ready) = mpsc::channel();
    let feeder = spawn("feeder", move || {
        feed(&supply, requests, pacer, render, &stop, move || {
            let _ = ready.send(());
        });
    })?;
    // An error means that the feeder is gone; joining it reports that.
    let _ = is_ready.recv();
    Ok(feeder)
}

/// What the plan knows about a request and a worker does not.
fn facts(plan: &Arc<Plan>, spec: &RunSpec) -> Box<dyn Fn(u64) -> RequestFacts + Send> {
    let plan = Arc::clone(plan);
    let prompt = spec.prompt.clone();
    Box::new(move |index| RequestFacts {
        planned_context_tokens: plan.planned_context_tokens(index),
        requested_max_tokens: plan.requested_max_tokens(),
        canary_marker: plan.canary_marker(index),
        controlled_output: (prompt.response_words > 0)
            .then_some((prompt.response_words, prompt.controlled_output_strict)),
    })
}

fn spawn<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, RunError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|source| system("cannot start a thread", source))
}

fn panicked(what: &'static str) -> RunError {
    system(what, std::io::Error::other("ended by a fault of its own"))
}

fn system(what: &'static str, source: std::io::Error) -> RunError {
    RunError::System { what, source }
}
