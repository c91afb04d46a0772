//! The rules applied to an artifact that exists: derived row fields, verdicts of observations, every metric, the counts
//! and the population are computed again from `request_timings`, `failures` and `wall_clock_ms`, labels of instants from
//! their nanoseconds, and compared with what is stored.
//!
//! A stored value that agrees is kept, so a correct file of any generation comes out as it went in, byte for byte; one
//! that does not is replaced and named. Only keys that are present are looked at: no generation is upgraded. What rows
//! cannot tell is copied and named: the prefix cache share (raw usage is not in the file), the chunk count of
//! generation 3, keys of other writers, and all metrics of files without rows. Labels (the model, the flags) follow from
//! nothing; they are copied too, and naming them would tell nobody anything.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::report::anvil::SCHEMA;
use crate::report::anvil::document::{MetricPopulation, measurement_protocol};
use crate::report::anvil::older::as_older_generations_had_it;
use crate::report::anvil::settle::{Check, exactly};
use crate::report::anvil::statistics::{Population, metrics};
use crate::report::anvil::timing::{Canary, ControlledOutput, Policy, Timing};
use crate::units::{UnixNanos, calendar};

pub use crate::report::anvil::settle::Disagreement;

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Recomputation {
    /// The artifact with every disagreement replaced.
    pub artifact: Value,
    /// Paths that could not be computed and are copied, in order.
    pub copied: Vec<String>,
    /// Stored values that do not follow from the file, in order.
    pub disagreements: Vec<Disagreement>,
}

/// Why a value is no artifact that can be computed again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No JSON, or more than is read of it.
    #[error("not JSON that can be read: {0}")]
    NotJson(String),
    /// Another document, or none.
    #[error("not an object with schema {SCHEMA}")]
    NotAnArtifact,
    /// A field that is needed is missing or of another type.
    #[error("{path}: {problem}")]
    Field {
        /// Where it stands.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

/// Metrics that divide by a wall time the reference had in more digits than the file.
const PER_WALL_CLOCK: [&str; 2] = ["throughput_tok_s", "content_chunks_s"];
/// Failures of these classes had no response to speak of.
const WITHOUT_RESPONSE: [&str; 2] = ["request_error", "runner_error"];
/// What the reference's names of runs begin with.
const RUN_ID: &str = "benchmark-";
/// How many units in the last place those may differ by.
const WALL_CLOCK_ULPS: f64 = 4.0;
/// The reference computes differences from seconds since boot; the file's milliseconds may differ from that by this
/// many units in the last place of `e2e_ms`.
const DIFFERENCE_ULPS: f64 = 4.0;
/// Rates and times per token follow from such a difference; they may differ by at least this much, relatively.
const RATE_RELATIVE: f64 = 1e-9;

/// Computes an artifact again.
///
/// # Errors
/// When it is no artifact, or a row, the failures or the wall time cannot be read.
pub fn recompute(artifact: &Value) -> Result<Recomputation, Unreadable> {
    let mut check = Check::default();
    let mut artifact = artifact.clone();
    let fields = artifact.as_object_mut().ok_or(Unreadable::NotAnArtifact)?;
    if fields.get("schema").and_then(Value::as_str) != Some(SCHEMA) {
        return Err(Unreadable::NotAnArtifact);
    }
    if fields.contains_key("request_timings") {
        check.with_rows(fields)?;
    } else {
        check.without_rows(fields);
    }
    Ok(Recomputation { artifact, copied: check.copied, disagreements: check.disagreements })
}

impl Check {
    fn with_rows(&mut self, fields: &mut Map<String, Value>) -> Result<(), Unreadable> {
        let mut rows = Vec::new();
        let mut every_row_counts_chunks = true;
        for (i, row) in array_mut(fields, "request_timings")?.iter_mut().enumerate() {
            every_row_counts_chunks &= row.get("content_chunks").is_some();
            rows.push(self.row(&format!("request_timings.{i}"), row)?);
        }
        let mut failed = Failed::default();
        if fields.contains_key("failures") {
            for (i, failure) in array_mut(fields, "failures")?.iter_mut().enumerate() {
                self.failure(&format!("failures.{i}"), failure, &mut failed)?;
            }
        }
        let all_valid = failed.count == 0
            && (fields.contains_key("failures")
                || stored_count(fields, "requests").is_none_or(|n| n == rows.len()));
        // Before generation 5, throughput was given whether or not requests had failed.
        let withheld_on_failure = fields.contains_key("metric_population");
        let wall_clock_ms = match fields.get("wall_clock_ms") {
            Some(wall) => Some(wall.as_f64().ok_or_else(|| field("wall_clock_ms", "not a number"))?),
            None => None,
        };
        let population = Population {
            rows: &rows,
            performance_eligible: all_valid || !withheld_on_failure,
            wall_clock_ms: wall_clock_ms.unwrap_or(f64::NAN),
            prefix_cache_hits: &[],
        };
        let mut computed = metrics(&population);
        self.counts(fields, &population, all_valid, &failed, &computed);
        self.instants(fields);
        let stored = fields.get("metrics").and_then(Value::as_object);
        if !withheld_on_failure && let Some(stored) = stored {
            as_older_generations_had_it(&mut computed, stored, &population, every_row_counts_chunks);
        }
        if wall_clock_ms.is_none() {
            computed.retain(|key, _| {
                !PER_WALL_CLOCK.contains(&key.as_str()) && key != "throughput_performance_eligible"
            });
        }
        self.metrics(fields, computed);
        Ok(())
    }

    /// Generations 0 and 2: metrics are copied, failures can be counted.
    fn without_rows(&mut self, fields: &mut Map<String, Value>) {
        if let Some(failures) = fields.get("failures").and_then(Value::as_array) {
            let failed = Value::from(failures.len());
            self.settle(|| "failed".to_owned(), fields.get_mut("failed"), failed, exactly);
        }
        if let Some(Value::Object(stored)) = fields.get("metrics") {
            self.copied.extend(stored.keys().map(|key| metric_path(key)));
        }
    }

    /// Settles what is derived in a failure, and counts it.
    fn failure(&mut self, path: &str, failure: &mut Value, failed: &mut Failed) -> Result<(), Unreadable> {
        failed.count += 1;
        let class = failure.get("failure_class").and_then(Value::as_str);
        let received = class.map(|class| !WITHOUT_RESPONSE.contains(&class));
        let planned = failure.get("planned_context_tokens").and_then(Value::as_u64);
        failed.planned.push(planned);
        let mut observed = None;
        if let Some(row) = failure.get_mut("response_timing").filter(|row| !row.is_null()) {
            self.row(&format!("{path}.response_timing"), row)?;
            observed = truncated(row);
        }
        if let Some(fields) = failure.as_object_mut() {
            if let Some(received) = received {
                let stored = fields.get_mut("response_received");
                self.settle(|| format!("{path}.response_received"), stored, received.into(), exactly);
            }
            let eligible = fields.get_mut("performance_eligible");
            self.settle(|| format!("{path}.performance_eligible"), eligible, false.into(), exactly);
            if let Some(truncated) = observed {
                self.observations(path, fields, truncated)?;
            }
        }
        failed.received += usize::from(failure.get("response_received") == Some(&Value::Bool(true)));
        Ok(())
    }

    /// Settles what a canary and controlled output say of themselves.
    fn observations(
        &mut self,
        path: &str,
        fields: &mut Map<String, Value>,
        truncated: bool,
    ) -> Result<(), Unreadable> {
        let complete = !truncated;
        if let Some(stored) = fields.get_mut("request_canary").filter(|seen| !seen.is_null()) {
            let path = format!("{path}.request_canary");
            let mut seen: Canary = read(&path, stored)?;
            seen.capture_complete = complete;
            seen.passed = seen.marker_at_start && seen.foreign_marker_count == 0 && complete;
            self.settle_all(&path, stored, &seen);
        }
        if let Some(stored) = fields.get_mut("controlled_output").filter(|seen| !seen.is_null()) {
            let path = format!("{path}.controlled_output");
            let mut seen: ControlledOutput = read(&path, stored)?;
            let exact = seen.observed_code_words == seen.requested_words && seen.observed_extra_words == 0;
            seen.capture_complete = complete;
            seen.exact_adherence = complete.then_some(exact);
            seen.passed = seen.policy == Policy::Observe || seen.exact_adherence == Some(true);
            self.settle_all(&path, stored, &seen);
        }
        Ok(())
    }

    /// Settles the labels of the two instants, and the name that is made from the first.
    fn instants(&mut self, fields: &mut Map<String, Value>) {
        for (nanoseconds, label) in
            [("started_at_unix_ns", "started_at"), ("finished_at_unix_ns", "finished_at")]
        {
            let at = fields.get(nanoseconds).and_then(Value::as_i64).and_then(UnixNanos::new);
            if let Some(at) = at {
                self.settle(
                    || label.to_owned(),
                    fields.get_mut(label),
                    calendar::rfc3339(at).into(),
                    exactly,
                );
            }
        }
        // A name that somebody gave by hand follows from nothing.
        let start = fields.get("started_at_unix_ns").and_then(Value::as_i64).and_then(UnixNanos::new);
        let named = fields.get("run_id").and_then(Value::as_str).is_some_and(|id| id.starts_with(RUN_ID));
        if let Some(start) = start.filter(|_| named) {
            let id = format!("{RUN_ID}{}", calendar::basic(start));
            self.settle(|| "run_id".to_owned(), fields.get_mut("run_id"), id.into(), exactly);
        }
    }

    /// Settles the derived fields of one row and reads it.
    fn row(&mut self, path: &str, row: &mut Value) -> Result<Timing, Unreadable> {
        let timing: Timing = read(path, row)?;
        let is_truncated = truncated(row);
        let derived = timing.derived();
        let ulps = DIFFERENCE_ULPS * ulp(timing.e2e_ms);
        let relative = if derived.generation_ms > 0.0 { ulps / derived.generation_ms } else { 0.0 };
        let difference = |a: f64, b: f64| (a - b).abs() <= ulps;
        let rate = |a: f64, b: f64| (a - b).abs() <= relative.max(RATE_RELATIVE) * b.abs();
        if let Some(fields) = row.as_object_mut() {
            for (key, value) in [
                ("generation_ms", derived.generation_ms),
                ("visible_generation_ms", derived.visible_generation_ms),
            ] {
                self.settle(|| format!("{path}.{key}"), fields.get_mut(key), value.into(), difference);
            }
            for (key, value) in [
                ("effective_prefill_tok_s", derived.effective_prefill_tok_s),
                ("decode_tok_s", derived.decode_tok_s),
                ("mean_inter_token_latency_ms", derived.tpot_ms),
                ("mean_time_per_output_token_ms", derived.tpot_ms),
                ("tpot_ms", derived.tpot_ms),
            ] {
                self.settle(|| format!("{path}.{key}"), fields.get_mut(key), value.into(), rate);
            }
            if let Some(truncated) = is_truncated {
                self.observations(path, fields, truncated)?;
            }
        }
        read(path, row)
    }

    /// Settles the fields that count requests.
    fn counts(
        &mut self,
        fields: &mut Map<String, Value>,
        population: &Population<'_>,
        all_valid: bool,
        failed: &Failed,
        metrics: &BTreeMap<String, Value>,
    ) {
        let completed = population.rows.len();
        for (key, value) in [
            ("completed", Value::from(completed)),
            ("failed", Value::from(failed.count)),
            ("responses_received", Value::from(completed + failed.received)),
            ("performance_eligible", Value::from(all_valid)),
            ("measurement_protocol", Value::from(measurement_protocol(population.rows))),
        ] {
            self.settle(|| key.to_owned(), fields.get_mut(key), value, exactly);
        }
        if fields.contains_key("failures") {
            let requests = Value::from(completed + failed.count);
            self.settle(|| "requests".to_owned(), fields.get_mut("requests"), requests, exactly);
        }
        // Older failures do not say what was planned for them.
        let planned: Option<Vec<u64>> = population
            .rows
            .iter()
            .map(|row| row.planned_context_tokens)
            .chain(failed.planned.iter().copied())
            .collect();
        if let Some(planned) = planned {
            let mut distribution = BTreeMap::<String, u64>::new();
            for tokens in planned {
                *distribution.entry(tokens.to_string()).or_default() += 1;
            }
            let distribution: Value = distribution.into_iter().map(|(k, n)| (k, Value::from(n))).collect();
            let stored = fields.get_mut("context_distribution");
            self.settle(|| "context_distribution".to_owned(), stored, distribution, exactly);
        }
        if let Some(stored) = fields.get_mut("metric_population") {
            let computed = MetricPopulation::of(population, completed, failed.count, metrics);
            self.settle_all("metric_population", stored, &computed);
        }
    }

    fn metrics(&mut self, fields: &mut Map<String, Value>, mut computed: BTreeMap<String, Value>) {
        computed.remove("prefix_cache_hit_avg");
        let Some(Value::Object(stored)) = fields.get_mut("metrics") else { return };
        for (key, stored) in stored {
            let Some(value) = computed.remove(key) else {
                self.copied.push(metric_path(key));
                continue;
            };
            let by_wall_clock = PER_WALL_CLOCK.contains(&key.as_str());
            let agree = |a: f64, b: f64| by_wall_clock && (a - b).abs() <= WALL_CLOCK_ULPS * ulp(b);
            self.settle(|| metric_path(key), Some(stored), value, agree);
        }
    }
}

/// What is known of the failures.
#[derive(Default)]
struct Failed {
    count: usize,
    /// Those with a response.
    received: usize,
    /// The context target of each; `None` where it is not in the file.
    planned: Vec<Option<u64>>,
}

/// The distance to the next double.
fn ulp(value: f64) -> f64 {
    let size = value.abs();
    size.next_up() - size
}

fn read<T: DeserializeOwned>(path: &str, value: &Value) -> Result<T, Unreadable> {
    T::deserialize(value).map_err(|e| field(path, &e.to_string()))
}

fn truncated(row: &Value) -> Option<bool> {
    row.get("visible_content_truncated")?.as_bool()
}

fn stored_count(fields: &Map<String, Value>, key: &str) -> Option<usize> {
    fields.get(key)?.as_u64().and_then(|n| usize::try_from(n).ok())
}

fn array_mut<'a>(fields: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Vec<Value>, Unreadable> {
    fields.get_mut(key).and_then(Value::as_array_mut).ok_or_else(|| field(key, "not a list"))
}

fn field(path: &str, problem: &str) -> Unreadable {
    Unreadable::Field { path: path.to_owned(), problem: problem.to_owned() }
}

fn metric_path(key: &str) -> String {
    format!("metrics.{key}")
}
