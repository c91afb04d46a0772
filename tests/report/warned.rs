//! One line per warning: what makes it come, and that nothing else does.

use hammerscale::config::spec::{ArrivalProcess, Arrivals, SimSpec};
use hammerscale::metrics::row::TokenSource;
use hammerscale::record::{Anomaly, Outcome};
use hammerscale::report::validity::PrewarmFacts;
use hammerscale::report::warnings::Code;
use hammerscale::units::{Nanos, PerSecond};

use crate::fixture::{self, Run};

fn codes(run: &Run) -> Vec<(String, String)> {
    run.document().warnings.into_iter().map(|w| (w.code, w.text)).collect()
}

/// 200 good answers, none of them remarkable.
fn quiet() -> Run {
    let mut run = fixture::one_sample();
    let (row, chunks) = (run.rows[0].clone(), run.chunks[0].clone());
    run.rows = (0..200).map(|_| row.clone()).collect();
    run.chunks = (0..200).map(|_| chunks.clone()).collect();
    for row in &mut run.rows {
        (row.output_tokens, row.usage.prompt_tokens, row.role_chunk_first) = (Some(64), Some(512), false);
        row.connection_use = 1;
    }
    run.reference_ok = Some(200);
    run
}

#[test]
fn a_quiet_run_has_no_warning() {
    assert_eq!(codes(&quiet()), []);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: one warning an entry")]
fn each_warning_comes_alone_and_with_its_figures() {
    type Change = fn(&mut Run);
    let table: [(Code, Change, &str); 22] = [
        (
            Code::TargetUnreachable,
            |run| run.unreachable = Some("cannot reach http://h:1/v1: refused".to_owned()),
            "cannot reach http://h:1/v1",
        ),
        (
            Code::OutputLength,
            |run| run.rows.iter_mut().for_each(|r| r.output_tokens = Some(32)),
            "6,400 output tokens received of 12,800 asked for (50.0%); 200 answers",
        ),
        (
            Code::OutputLength,
            |run| run.rows.iter_mut().for_each(|r| r.output_tokens = Some(65)),
            "13,000 output tokens received of 12,800 asked for (102%)",
        ),
        (
            Code::PromptLength,
            |run| run.rows.iter_mut().for_each(|r| r.usage.prompt_tokens = Some(500)),
            "100,000 prompt tokens where 102,400 were asked for (97.7%)",
        ),
        (
            Code::ContextCapped,
            |run| {
                run.spec.prompt.ctx_tokens = Some(40_000);
            },
            "40,000 tokens were asked for and the model takes 32,768, output and margin included: prompts of 32,448 \
             tokens",
        ),
        (
            Code::CachedShare,
            |run| run.rows.iter_mut().for_each(|r| r.usage.cached_tokens = Some(26)),
            "5.08% of the prompt tokens came from the server's cache although prompts are unique within a run: at most \
             26 tokens of a prompt, as long as the beginning that all prompts have in common",
        ),
        (
            Code::CachedShare,
            |run| run.rows.iter_mut().for_each(|r| r.usage.cached_tokens = Some(480)),
            "up to 480 tokens of a prompt, more than all prompts have in common: an earlier run",
        ),
        (
            Code::CachedShare,
            |run| run.rows[3].usage.cached_tokens = Some(2_560),
            "1 of 200 answers told more cached tokens than prompt tokens",
        ),
        (
            Code::RepeatedPrompts,
            |run| (run.plan.repeats, run.plan.distinct_prompts) = (1, 199),
            "1 prompt had",
        ),
        (
            Code::FewSamples,
            |run| {
                run.rows.truncate(99);
                run.chunks.truncate(99);
                run.reference_ok = Some(99);
            },
            "99 samples",
        ),
        (
            Code::Redirects,
            |run| {
                run.rows[0].outcome = Outcome::Redirect;
                run.reference_ok = Some(199);
            },
            "1 answer of 200",
        ),
        (Code::RoleChunkFirst, |run| run.rows[3].role_chunk_first = true, "1 of 200 answers"),
        (
            Code::NoUsage,
            |run| run.rows[3].output_token_source = TokenSource::ContentChunks,
            "1 of 200 answers",
        ),
        (
            Code::NotCountedAsAsked,
            |run| {
                run.spec.body.continuous_usage = true;
                run.rows[3..].iter_mut().for_each(|r| r.output_token_source = TokenSource::ContinuousUsage);
            },
            "3 of 200 answers did not tell",
        ),
        (
            Code::MultiTokenChunks,
            |run| run.rows.iter_mut().for_each(|r| r.counters.output_chunks = 32),
            "1.97 tokens",
        ),
        (
            Code::StreamedUnasked,
            |run| run.rows.iter_mut().take(3).for_each(|r| r.streamed_unasked = true),
            "3 of 200 requests got an event stream",
        ),
        (
            Code::ConnectionsNotKept,
            |run| run.rows.iter_mut().for_each(|r| r.connection_use = 0),
            "each of the 200 requests",
        ),
        (
            Code::UnaskedBytes,
            |run| {
                run.rows.iter_mut().for_each(|r| r.connection_use = 0);
                run.rows[1..].iter_mut().for_each(|r| r.anomalies.insert(Anomaly::UnaskedBytes));
            },
            "this client closed 199 connections because bytes came",
        ),
        (
            Code::RateNotReached,
            |run| {
                let process = ArrivalProcess::Poisson;
                run.spec.load.arrivals = Some(Arrivals { rate: PerSecond(200.0), process });
                (run.facts.asked_concurrency, run.facts.open_loop) = (None, true);
                // 200 requests in 0.995 s, sent in 1.99 s.
                for (i, row) in (0..).zip(&mut run.rows) {
                    row.due = Nanos(i * 5_000_000);
                    row.send_start = Some(Nanos(i * 10_000_000));
                }
            },
            "100 requests a second were sent where the schedule held 200 (50.0% of it; asked for: 200/s)",
        ),
        (
            Code::PrewarmFailed,
            |run| {
                run.instrument.prewarm = Some(PrewarmFacts {
                    asked: 1_000,
                    made: 997,
                    failed: 3,
                    failure: Some("Connection timed out".to_owned()),
                    ..PrewarmFacts::default()
                });
            },
            "3 of 1,000 connections could not be made before the window (Connection timed out)",
        ),
        (Code::SimulatedTarget, |run| run.spec.target.sim = Some(SimSpec::default()), "simulator"),
        (Code::ReferenceCountsDiffer, |run| run.reference_ok = Some(198), "counts 198 requests"),
    ];
    for (code, change, figures) in table {
        let mut run = quiet();
        change(&mut run);
        let found = codes(&run);
        assert_eq!(found.iter().map(|(c, _)| c.as_str()).collect::<Vec<_>>(), [code.name()], "{found:?}");
        assert!(found[0].1.contains(figures), "{found:?}");
        assert!(!found[0].1.ends_with('.'), "{found:?}");
    }
    for code in Code::ALL {
        assert!(table.iter().any(|(tested, _, _)| *tested == code), "{code:?} is not tested");
    }
}

#[test]
fn limits_are_not_crossed_by_standing_on_them() {
    let mut run = quiet();
    for row in &mut run.rows {
        row.requested_max_tokens = Some(100);
        row.output_tokens = Some(101);
        row.counters.output_chunks = 100;
        row.usage.prompt_tokens = Some(512);
        row.usage.cached_tokens = Some(25);
    }
    assert_eq!(codes(&run), []);
    run.spec.prompt.unique = false;
    run.rows.iter_mut().for_each(|r| r.usage.cached_tokens = Some(512));
    (run.plan.repeats, run.plan.distinct_prompts) = (199, 1);
    assert_eq!(codes(&run), [], "repetition is no finding where it was asked for");
}
