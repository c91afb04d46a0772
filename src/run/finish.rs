//! After the last packet: summary, documents, files, what a person sees, and the exit code.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use crate::aggregate::summary::{Facts, Spread, Summary};
use crate::aggregate::{lateness, window};
use crate::client::{Prewarm, WorkerHealth};
use crate::clock::Timeline;
use crate::config::masking;
use crate::config::spec::{Endpoint, OutputFormat, RunSpec};
use crate::exit::Exit;
use crate::metrics::rows::Rows;
use crate::plan::Plan;
use crate::record::RunId;
use crate::report::anvil::encode::to_writer;
use crate::report::anvil::{self, Artifact};
use crate::report::calibration::lookup::{self, CalibrationNote};
use crate::report::document::provenance::TargetDoc;
use crate::report::document::spec::SpecDoc;
use crate::report::document::{PlanFacts, RunDocument, RunFacts, Span};
use crate::report::files::{FilesError, PartFile, RunFile};
use crate::report::host::{self, Host, Tool};
use crate::report::recorder::RunRecorder;
use crate::report::terminal::layout::Style;
use crate::report::terminal::{self, FilesNote};
use crate::report::validity::{
    self, Asked, ClockFacts, InstrumentFacts, PrewarmFacts, ReadFacts, Verdict, WorkerFacts,
};
use crate::run::error::RunError;
use crate::run::measure::Measured;
use crate::run::target::Target;
use crate::run::usage;
use crate::units::{Nanos, Ticks, UnixNanos};

/// Everything a run left behind.
pub(super) struct Inputs<'a> {
    pub(super) spec: &'a RunSpec,
    pub(super) target: &'a Target,
    pub(super) plan: &'a Arc<Plan>,
    pub(super) run_id: &'a RunId,
    pub(super) measured: Measured<RunRecorder>,
    pub(super) dir: &'a Path,
}

/// What it comes to.
pub(super) struct Finish {
    pub(super) exit: Exit,
    pub(super) document: RunDocument,
    /// There is a reference artifact.
    pub(super) has_artifact: bool,
    /// Processor time of the workers' threads.
    pub(super) worker_cpu: Nanos,
}

/// Computes and writes every document.
pub(super) fn finish(inputs: Inputs<'_>) -> Result<Finish, RunError> {
    let Inputs { spec, target, plan, run_id, measured, dir } = inputs;
    let mut instrument = instrument(spec, &measured);
    let worker_cpu = Nanos(measured.health.iter().flatten().map(|h| h.cpu.0).sum());
    let Measured { collected, began, ended, interrupted, .. } = measured;
    let (rows, timeline) = (collected.rows, collected.timeline);
    let unwritten = |e: std::io::Error| {
        RunError::Results(FilesError::of("write", &dir.join(RunFile::Requests.name()), e))
    };
    if let Some(error) = collected.sink_error {
        return Err(unwritten(error));
    }
    let mut recorded = collected.sink.close().map_err(RunError::Results)?;
    let facts = Facts {
        planned: plan.requests(),
        asked_concurrency: spec.load.asked_concurrency(),
        open_loop: spec.load.arrivals.is_some(),
        stop: interrupted.then(|| timeline.at(ended)),
    };
    let chunks = recorded.chunk_facts(&rows, &facts).map_err(|e| unwritten(std::io::Error::other(e)))?;
    let summary = Summary::of(&rows, chunks, facts);
    let zero = UnixNanos::at(timeline.zero_unix().0);
    // The last answer's end, not the end of the wait for the last bytes of its connection.
    let last = rows.iter().map(|row| window::end_of(&row)).max().unwrap_or_else(|| timeline.at(ended));
    let stopped_ns = facts.stop.map(|stop| stop.0);
    let span = Span { began_ns: timeline.at(began).0, ended_ns: last.0, stopped_ns };
    let spec_doc = SpecDoc::of(spec);
    let target_doc = TargetDoc::of(&spec_doc, &target.resolved, &masking::typed_secrets(&spec.target));
    let reference_run = anvil::RunFacts::of(&spec_doc, &target_doc, zero, span);
    let artifact = reference_run.map(|run| Artifact::of(&rows, &run));
    // After everything that takes memory.
    (instrument.peak_rss, instrument.cpu_time) = (usage::peak_rss(), usage::cpu_time());
    let streams = spec.load.asked_concurrency().map(f64::from).or(summary.rates.concurrency_max);
    instrument.calibration = streams.and_then(calibration);
    let document = RunDocument::of(&RunFacts {
        run_id,
        started_unix: zero,
        started_monotonic: timeline.zero_monotonic(),
        span,
        interrupted,
        tool: Tool::THIS,
        host: &Host::read(),
        spec,
        target: &target.resolved,
        plan: &plan_facts(spec, plan),
        summary: &summary,
        instrument: &instrument,
        reference_ok: artifact.as_ref().map(|artifact| artifact.completed() as u64),
        reference_metrics: artifact.as_ref().map(Artifact::metrics),
    });
    let has_artifact = artifact.is_some();
    if let Some(artifact) = artifact {
        let write = |file: &mut PartFile| to_writer(file, &artifact).map_err(Into::into);
        recorded.add(RunFile::Artifact, write).map_err(RunError::Results)?;
    }
    let json = document.to_json().map_err(|e| unwritten(e.into()))?;
    recorded.finish(&[(RunFile::Run, json.as_bytes())]).map_err(RunError::Results)?;
    let asked = Asked::of(&document.spec);
    let lost = document.counts.dropped_stamps;
    let verdict = validity::judge(&document.instrument, asked, lost, &summary).verdict;
    let exit = exit(spec, verdict, &summary, &rows, interrupted);
    Ok(Finish { exit, document, has_artifact, worker_cpu })
}

/// Writes the artifact of the run in `dir` to its second place.
pub(super) fn write_beside(mut file: PartFile, dir: &Path) -> Result<(), RunError> {
    let path = file.target().to_owned();
    let artifact = File::open(dir.join(RunFile::Artifact.name()));
    let written = artifact.and_then(|mut artifact| std::io::copy(&mut artifact, &mut file));
    written.map_err(|e| RunError::Results(FilesError::of("write", &path, e)))?;
    file.commit().map_err(RunError::Results)
}

/// Shows the result on stdout; files are written already, so a reader that left early takes nothing away.
pub(super) fn show(spec: &RunSpec, document: &RunDocument, dir: &Path) -> Result<(), RunError> {
    if spec.output.quiet {
        return Ok(());
    }
    match spec.output.format {
        OutputFormat::Json => {
            let text = document
                .to_json()
                .map_err(|e| RunError::System { what: "cannot write the document", source: e.into() })?;
            print(&text)
        }
        OutputFormat::Text => {
            let style = Style::of(
                std::io::stdout().is_terminal(),
                std::env::var_os("NO_COLOR").as_deref(),
                std::env::var_os("TERM").as_deref(),
            );
            let secrets = masking::typed_secrets(&spec.target);
            let shown = |path: &Path| masking::masked(path.display().to_string(), &secrets);
            let note = FilesNote {
                dir: shown(dir),
                names: [RunFile::Artifact, RunFile::Run, RunFile::Requests, RunFile::Events]
                    .iter()
                    .filter(|file| **file != RunFile::Artifact || spec.has_reference_artifact())
                    .map(|f| f.name().to_owned())
                    .collect(),
                beside: spec.output.json_out.iter().map(|p| shown(p)).collect(),
            };
            print(&terminal::render(document, Some(&note), style))
        }
    }
}

/// Writes to stdout; a reader that has seen enough is no error.
pub(super) fn print(text: &str) -> Result<(), RunError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(RunError::Show(error)),
        _ => Ok(()),
    }
}

fn plan_facts(spec: &RunSpec, plan: &Plan) -> PlanFacts {
    PlanFacts {
        digest: plan.digest().to_owned(),
        prompt_source: match spec.target.endpoint {
            Endpoint::Http => "none",
            _ if spec.prompt.unique => "synthetic, unique",
            _ => "synthetic, shared prefix",
        }
        .to_owned(),
        distinct_prompts: plan.distinct_prompts(),
        repeats: plan.repeats(),
    }
}

/// What the run knows about its own instrument beside the rows.
fn instrument(spec: &RunSpec, measured: &Measured<RunRecorder>) -> InstrumentFacts {
    let timeline = &measured.collected.timeline;
    let total = |of: fn(&WorkerHealth) -> u64| measured.health.iter().flatten().map(of).sum::<u64>();
    let lost_workers = measured.health.iter().filter(|h| h.is_none()).count() as u64;
    InstrumentFacts {
        kernel_stamps: spec.instrument.kernel_stamps,
        ring_drops: total(|h| h.lost_records),
        dropped_stamps: total(|h| h.lost_chunks),
        unresolved: lost_workers + measured.collected.orphan_chunks,
        workers: measured.health.iter().flatten().map(|h| worker(h, timeline)).collect(),
        timer_lateness_us: lateness::spread(measured.health.iter().flatten().map(|h| &h.timer_lateness)),
        steal: measured.machine.0.zip(measured.machine.1).and_then(|(a, b)| b.stolen_since(a)),
        ring_fill: Some(measured.collected.ring_fill),
        stood_still: measured.collected.stood_still,
        reads: Some(ReadFacts {
            count: total(|h| h.reads.count),
            filled: total(|h| h.reads.filled),
            largest: measured
                .health
                .iter()
                .flatten()
                .map(|h| h.reads.largest as u64)
                .max()
                .unwrap_or_default(),
        }),
        peak_rss: None,
        cpu_time: None,
        prewarm: prewarm(measured),
        clock: clock(timeline),
        calibration: None,
    }
}

/// What this machine's latest calibration says about as many streams.
fn calibration(streams: f64) -> Option<CalibrationNote> {
    let path = lookup::place(&host::mark(), &|name| std::env::var_os(name))?;
    lookup::find(&path, &Host::read(), streams)
}

/// The connections made before the window, of all workers together; `None` where no worker made any.
fn prewarm(measured: &Measured<RunRecorder>) -> Option<PrewarmFacts> {
    let timeline = &measured.collected.timeline;
    let all: Vec<&Prewarm> = measured.health.iter().flatten().filter_map(|h| h.prewarm.as_ref()).collect();
    let (began, ended) = (all.iter().map(|p| p.began).min()?, all.iter().map(|p| p.ended).max()?);
    let span = |(start, end): (Ticks, Ticks)| timeline.at(end).since(timeline.at(start));
    let spans: Vec<Nanos> = all.iter().flat_map(|p| &p.made).filter_map(|made| span(*made)).collect();
    Some(PrewarmFacts {
        asked: all.iter().map(|p| p.asked).sum(),
        made: spans.len() as u64,
        failed: all.iter().map(|p| p.failed).sum(),
        failure: all.iter().find_map(|p| p.failure.clone()),
        took: span((began, ended)).unwrap_or_default(),
        connect_us: Spread::of_micros(spans),
    })
}

fn worker(health: &WorkerHealth, timeline: &Timeline) -> WorkerFacts {
    let span = timeline.at(health.ended).since(timeline.at(health.started)).unwrap_or_default();
    let waited = timeline.at(Ticks(health.started.0.saturating_add(health.waited.0)));
    let waited = waited.since(timeline.at(health.started)).unwrap_or_default();
    let share = (span.0 > 0).then(|| (1.0 - waited.as_secs_f64() / span.as_secs_f64()).clamp(0.0, 1.0));
    WorkerFacts {
        core: health.pinned_core.and_then(|c| u32::try_from(c).ok()),
        busy_share: share,
        span: Some(span),
        run_queue_wait: health.scheduling.run_queue_wait,
        involuntary_switches: health.scheduling.involuntary_switches,
    }
}

fn clock(timeline: &Timeline) -> ClockFacts {
    let check = timeline.check();
    ClockFacts {
        source: Some("tsc".to_owned()),
        drift_ppm: check.drift_ppm,
        error: check.error,
        bracket: check.bracket,
        wall_bracket: check.wall_bracket,
        compared_over: check.compared_over,
        inversions: check.inversions,
        wall_steps: check.wall_steps,
    }
}

/// The first that applies in the order of the table's page: 130, 6, 3, 4, 1, 0.
fn exit(spec: &RunSpec, verdict: Verdict, summary: &Summary, rows: &Rows, interrupted: bool) -> Exit {
    let not_good_enough =
        verdict == Verdict::Invalid || (spec.instrument.strict && verdict == Verdict::Suspect);
    if interrupted {
        Exit::Interrupted
    } else if rows.iter().all(|row| row.send_start.is_none() && row.at.first_byte.is_none()) {
        Exit::Unreachable
    } else if summary.counts.ok == 0 {
        Exit::NothingValid
    } else if not_good_enough {
        Exit::Instrument
    } else if summary.counts.failed > 0 {
        Exit::SomeFailed
    } else {
        Exit::Ok
    }
}
