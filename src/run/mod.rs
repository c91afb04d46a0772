//! The composition root of `hammerscale run`: the whole pipeline, top to bottom.

pub mod calibrate;
pub mod cores;
pub mod error;
pub mod feeder;
mod finish;
pub mod measure;
pub mod progress;
pub mod request;
pub mod sim_child;
pub mod target;
mod usage;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::client::limits::{OTHER_DESCRIPTORS, raise_descriptor_limit};
use crate::client::{affinity, stamps};
use crate::clock::{Clock, Rate, Timeline};
use crate::config::spec::{OutputSpec, ResolvedTarget, RunSpec};
use crate::config::usage::UsageError;
use crate::exit::Exit;
use crate::plan::{Plan, describe};
use crate::record::RunId;
use crate::report::files::{PartFile, trial};
use crate::report::recorder::RunRecorder;
use crate::run::cores::Cores;
use crate::run::error::RunError;
use crate::run::finish::Finish;
use crate::run::measure::{Measurement, Signals};
use crate::run::request::{renderer, template};
use crate::run::target::Target;
use crate::units::UnixNanos;

/// Where runs go that name no directory.
const RUNS_DIR: &str = "hammerscale-runs";

const OUT: &str = "--out";
const JSON_OUT: &str = "--json-out";

/// Carries a run out from its specification to its documents.
///
/// # Errors
/// When it cannot be carried out at all; requests that fail are no error.
pub fn execute(spec: RunSpec) -> Result<Exit, RunError> {
    if spec.dry_run {
        return dry_run(&spec);
    }
    let mut control = Control::new()?;
    let Carried { spec, target, dir, finish, beside } = carry_out(spec, &mut control)?;
    // Before anything is shown: a reader that left, or a stdout that cannot be written, takes no file away.
    if let Some(file) = beside.filter(|_| finish.has_artifact) {
        finish::write_beside(file, &dir)?;
    }
    finish::show(&spec, &finish.document, &dir)?;
    if let Some(reason) = &target.resolved.unreachable {
        // Nothing was sent, so no request can tell why.
        let _ = writeln!(std::io::stderr(), "hammerscale: {reason}");
    }
    Ok(finish.exit)
}

/// The control plane: what waits for workers and signals.
struct Control {
    runtime: tokio::runtime::Runtime,
    signals: Signals,
}

impl Control {
    fn new() -> Result<Self, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|source| RunError::System { what: "cannot make the control plane", source })?;
        let signals = runtime
            .block_on(async { Signals::catch() })
            .map_err(|source| RunError::System { what: "cannot catch signals", source })?;
        Ok(Self { runtime, signals })
    }

    /// Whether a signal came that nobody waited for.
    fn is_interrupted(&mut self) -> bool {
        let signals = &mut self.signals;
        self.runtime.block_on(async { tokio::time::timeout(Duration::ZERO, signals.next()).await.is_ok() })
    }
}

/// A run that was measured and written down.
struct Carried {
    spec: RunSpec,
    target: Target,
    dir: PathBuf,
    finish: Finish,
    /// The second place of the artifact.
    beside: Option<PartFile>,
}

/// Carries a run out and writes its files.
fn carry_out(spec: RunSpec, control: &mut Control) -> Result<Carried, RunError> {
    check_descriptors(&spec)?;
    let cores = Cores::divide(&spec)?;
    if !cores.control.is_empty() {
        // Whatever this process starts from here on inherits the cores without a worker. A refusal costs precision
        // only, and the instrument's figures show it.
        let _ = affinity::pin_to(&cores.control);
    }
    let clock = Clock::new();
    let first = clock.anchor();
    let run_id = RunId::unique(UnixNanos::at(first.monotonic.0.saturating_add(first.wall_offset.0)));
    let dir_path = spec.output.dir.clone().unwrap_or_else(|| PathBuf::from(RUNS_DIR).join(run_id.as_str()));
    // What cannot be planned whatever the server says is refused before it is asked anything.
    Plan::new(&spec, &describe::unasked(&spec))?;
    target::check_sources(&spec.connection.source_ips)?;
    check_outputs(&spec.output, &dir_path)?;
    let Control { runtime, signals } = control;
    let (spec, target) = runtime.block_on(ask_target(spec, cores.control.clone(), signals))?;
    let plan = Arc::new(Plan::new(&spec, &target.resolved)?);
    let template = template(&spec)?;
    // After everything that can be refused, so that a refusal leaves no directory behind.
    let sink = RunRecorder::open(&dir_path, spec.output.overwrite, run_id.clone());
    let sink = sink.map_err(|source| RunError::Files { flag: OUT, source })?;
    let beside = spec.output.json_out.as_deref().map(PartFile::beside).transpose();
    let beside = beside.map_err(|source| RunError::Files { flag: JSON_OUT, source })?;
    let keeper = if spec.instrument.kernel_stamps { stamps::switch_on() } else { None };

    let measured = runtime.block_on(async {
        let second = clock.anchor();
        Measurement {
            spec: &spec,
            target: &target.resolved,
            plan: &plan,
            render: renderer(&plan, template, run_id.clone()),
            cores: &cores,
            reachable: target.resolved.unreachable.is_none(),
            timeline: Timeline::new(second),
            rate: Rate::between(&first, &second),
            kernel_stamps: keeper.is_some(),
            sink,
        }
        .carry_out(signals)
        .await
    })?;
    drop(keeper);
    let finish = finish::finish(finish::Inputs {
        spec: &spec,
        target: &target,
        plan: &plan,
        run_id: &run_id,
        measured,
        dir: &dir_path,
    })?;
    Ok(Carried { spec, target, dir: dir_path, finish, beside })
}

/// Looks at the target; a signal meanwhile ends the process, because there is nothing to write yet.
async fn ask_target(
    mut spec: RunSpec,
    sim_cores: Vec<usize>,
    signals: &mut Signals,
) -> Result<(RunSpec, Target), RunError> {
    let asked = tokio::task::spawn_blocking(move || {
        let target = target::prepare(&mut spec, &sim_cores)?;
        Ok((spec, target))
    });
    tokio::select! {
        () = signals.next() => end_at_once("interrupted before the first request: nothing was measured or written"),
        asked = asked => asked.map_err(|error| RunError::System {
            what: "cannot look at the target",
            source: std::io::Error::other(error),
        })?,
    }
}

/// Ends the process for a signal, with a word about what that means. A simulator ends with it.
fn end_at_once(why: &str) -> ! {
    let _ = writeln!(std::io::stderr(), "hammerscale: {why}");
    std::process::exit(i32::from(Exit::Interrupted.code()))
}

/// Prints what would be sent.
fn dry_run(spec: &RunSpec) -> Result<Exit, RunError> {
    let target: ResolvedTarget = describe::unasked(spec);
    let plan = Plan::new(spec, &target)?;
    let text = match spec.output.format {
        crate::config::spec::OutputFormat::Text => describe::text(spec, &target, &plan),
        crate::config::spec::OutputFormat::Json => describe::json(spec, &target, &plan),
    };
    finish::print(&text)?;
    Ok(Exit::Ok)
}

/// What cannot be written is refused before the target is asked anything.
fn check_outputs(output: &OutputSpec, dir: &Path) -> Result<(), RunError> {
    refuse_inside(output.json_out.as_deref(), dir)?;
    trial::run_dir(dir, output.overwrite).map_err(|source| RunError::Files { flag: OUT, source })?;
    let beside = output.json_out.as_deref().map(trial::beside).transpose();
    beside.map(|_| ()).map_err(|source| RunError::Files { flag: JSON_OUT, source })
}

/// The second place of the artifact must not be one of the run's own files, or one that it will be renamed to.
fn refuse_inside(json_out: Option<&Path>, dir: &Path) -> Result<(), UsageError> {
    let folder = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let parent =
        json_out.and_then(Path::parent).map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let Some(parent) = parent else { return Ok(()) };
    if folder(parent).is_some() && folder(parent) == folder(dir) {
        let reason = "lies in the run's own directory, where artifact.json is written anyway";
        return Err(UsageError::bad(JSON_OUT, reason));
    }
    Ok(())
}

/// Every slot may hold a connection; a process that may not have as many descriptors says so before the first packet.
/// How many an open loop needs is for the server's speed to decide: there, running out is a counted outcome.
fn check_descriptors(spec: &RunSpec) -> Result<(), RunError> {
    let slots = u64::from(spec.load.asked_concurrency().unwrap_or(0));
    let needed = slots.saturating_add(OTHER_DESCRIPTORS);
    let limit = raise_descriptor_limit();
    if needed > limit { Err(RunError::Descriptors { slots, needed, limit }) } else { Ok(()) }
}
