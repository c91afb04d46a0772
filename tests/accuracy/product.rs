//! The product as a process, and its run read back.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use hammerscale::aggregate::chunk::OutputChunk;
use hammerscale::metrics::row::RequestRow;
use hammerscale::report::document::RunDocument;
use hammerscale::report::events::{Ending, RequestKey, RunEvents};
use hammerscale::report::files::{RunFile, locate};
use hammerscale::report::saved::SavedRun;
use hammerscale::units::Nanos;
use nix::unistd::Pid;

use hammerscale::audit::{ClientRequest, SeenChunk};

/// Looks whether a process has ended: 60 seconds of them, far beyond any run here on any machine.
const LOOKS: u32 = 3_000;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A child process that does not outlive the test, however the test ends.
pub(crate) struct Guarded(pub(crate) Child);

impl Guarded {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap())
    }

    /// Waits for the end; `None` when the patience is over before.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        (0..LOOKS).find_map(|_| {
            std::thread::sleep(LOOK_AGAIN);
            self.0.try_wait().unwrap()
        })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A finished run, read back.
pub(crate) struct Finished {
    pub(crate) dir: PathBuf,
    saved: SavedRun,
    rows: Vec<RequestRow>,
    events: RunEvents,
}

/// Runs the product with these flags, does something to it meanwhile, and reads its run; every request is valid, or the
/// test fails with what it printed.
pub(crate) fn run_to_its_end(scratch: &Path, flags: &[&str], meanwhile: impl FnOnce(Pid)) -> Finished {
    let (status, finished) = run_in(scratch, flags, &[], meanwhile);
    assert!(status.success(), "{status}");
    finished
}

/// The same with more in the environment; the verdict may fail the run.
pub(crate) fn run_in(
    scratch: &Path,
    flags: &[&str],
    env: &[(&str, &str)],
    meanwhile: impl FnOnce(Pid),
) -> (ExitStatus, Finished) {
    let (dir, log) = (scratch.join("run"), scratch.join("hammerscale.log"));
    let output = File::create(&log).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
        .arg("run")
        .args(flags)
        .arg("--out")
        .arg(&dir)
        .env_remove("OPENAI_BASE_URL")
        .env_remove("OPENAI_API_KEY")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let mut product = Guarded(child);
    meanwhile(product.pid());
    let printed = || fs::read_to_string(&log).unwrap_or_default();
    let status = product.end().unwrap_or_else(|| panic!("it did not end in time:\n{}", printed()));
    assert!(matches!(status.code(), Some(0 | 4)), "{status}:\n{}", printed());
    (status, Finished::read(dir))
}

impl Finished {
    fn read(dir: PathBuf) -> Self {
        let saved = SavedRun::open(&dir).unwrap();
        assert_eq!(saved.missing, [""; 0]);
        let path = locate(&dir, RunFile::Events).unwrap().path;
        let events = RunEvents::read(BufReader::new(File::open(path).unwrap())).unwrap();
        assert_eq!(events.ending(), Ending::Complete);
        let rows = saved.rows.iter().collect();
        Self { dir, saved, rows, events }
    }

    /// CLOCK_MONOTONIC at the zero of the run's axis.
    pub(crate) fn zero(&self) -> Nanos {
        Nanos(self.document().started_monotonic_ns.parse().unwrap())
    }

    /// Every request as the audit takes it.
    pub(crate) fn requests(&self) -> impl Iterator<Item = ClientRequest<'_>> {
        let run_id = &self.document().run_id;
        self.rows.iter().map(move |row| ClientRequest {
            id: format!("{run_id}-{}", row.request_index),
            row,
            chunks: self.events.of(RequestKey::of(row)).iter().map(seen).collect(),
        })
    }

    /// Writes the output chunks' instants for the audit by others.
    pub(crate) fn write_events(&self, path: &Path) {
        let file = File::create(path).unwrap();
        hammerscale::report::events::events_jsonl(&self.saved.rows, &self.events, file).unwrap();
    }

    pub(crate) fn document(&self) -> &RunDocument {
        self.saved.document.as_ref().unwrap()
    }
}

fn seen(chunk: &OutputChunk) -> SeenChunk {
    SeenChunk {
        kind: chunk.kind,
        kernel: chunk.kernel,
        user: chunk.user,
        not_before: chunk.not_before,
        ends_read: chunk.ends_read,
    }
}
