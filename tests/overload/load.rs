//! A run against the simulator with its ledger, and what makes a machine busy.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hammerscale::audit::{Budget, ClientRequest, Mismatches, Truth, pair};
use hammerscale::report::document::instrument::InstrumentDoc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::product::{Finished, Guarded, run_in};

/// Seconds of processor time after which a busy program ends, should nobody end it.
const HOG_LIMIT_S: u32 = 150;

/// One run after the other: these tests judge what a busy machine does.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cores that this process may use.
pub(crate) fn cores() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap()).collect()
}

/// Where the only worker of a run shall be.
pub(crate) fn worker_core() -> usize {
    *cores().last().unwrap()
}

/// Does something on a thread that has one core, and so has whatever it starts.
pub(crate) fn on_one_core<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let pinned = || {
        let mut one = CpuSet::new();
        one.set(worker_core()).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(pinned).join().unwrap())
}

/// Programs that take what they can get of a core, until this is dropped.
pub(crate) struct Hogs {
    _all: Vec<Guarded>,
}

impl Hogs {
    /// One on each of these cores.
    pub(crate) fn on(cores: &[usize]) -> Self {
        let busy = format!("ulimit -t {HOG_LIMIT_S}; while :; do :; done");
        let start = |core: &usize| {
            let mut command = Command::new("taskset");
            command.args(["-c", &core.to_string(), "sh", "-c", &busy]).stdin(Stdio::null());
            Guarded(command.spawn().expect("this test needs taskset (util-linux)"))
        };
        Self { _all: cores.iter().map(start).collect() }
    }
}

/// A run against the simulator: every stream is one request.
pub(crate) struct Load {
    pub(crate) streams: usize,
    pub(crate) events: usize,
    pub(crate) gap: &'static str,
}

/// What came of it.
pub(crate) struct Seen {
    pub(crate) code: Option<i32>,
    pub(crate) budget: Budget,
    run: Finished,
    _scratch: TempDir,
}

impl Load {
    /// Runs it, pairs everything with the ledger, and takes the differences.
    pub(crate) fn run(&self, more: &[String], env: &[(&str, &str)], meanwhile: impl FnOnce(Pid)) -> Seen {
        let Self { streams, events, gap } = self;
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("ledger");
        let flags = [
            format!("--sim=ttft=uniform:50ms,150ms;itl={gap};tokens={events};ledger={}", path.display()),
            format!("--requests={streams}"),
            format!("--concurrency={streams}"),
            format!("--max-tokens={events}"),
        ];
        let flags: Vec<&str> = flags.iter().chain(more).map(String::as_str).collect();
        let (status, run) = run_in(scratch.path(), &flags, env, meanwhile);
        let truth = Truth::read(&path).unwrap();
        assert!(truth.is_complete, "the simulator did not end in order");
        let client: Vec<ClientRequest<'_>> = run.requests().collect();
        let pairing = pair(&client, &truth, run.zero());
        assert_eq!(pairing.mismatches, Mismatches::default());
        assert_eq!((pairing.requests.len(), pairing.chunks()), (*streams, streams * events));
        let budget = Budget::of(&pairing);
        Seen { code: status.code(), budget, run, _scratch: scratch }
    }
}

impl Seen {
    pub(crate) fn instrument(&self) -> &InstrumentDoc {
        &self.run.document().instrument
    }

    pub(crate) fn assert_suspect(&self, cause: &str) {
        let InstrumentDoc { verdict, reasons, .. } = self.instrument();
        assert_ne!(verdict, "valid");
        assert!(reasons.iter().any(|reason| reason.contains(cause)), "no {cause:?} in {reasons:#?}");
    }

    pub(crate) fn assert_median(&self, limit_us: f64) {
        let median = self.budget.kernel.magnitude.median_us().unwrap();
        assert!(median <= limit_us, "median error of kernel stamps {median} µs, promised {limit_us}");
    }

    /// The lines of `requests.jsonl`.
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        let path: PathBuf = self.run.dir.join("requests.jsonl");
        fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
