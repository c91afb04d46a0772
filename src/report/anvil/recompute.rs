//! The rules applied to an artifact that exists: derived row fields, every metric, the counts and the population are
//! computed again from `request_timings`, `failures` and `wall_clock_ms`, and compared with what is stored.
//!
//! A stored value that agrees is kept, so a correct file of any generation comes out as it went in, byte for byte; one
//! that does not is replaced and named. Only keys that are present are looked at: no generation is upgraded. What rows
//! cannot tell is copied and named: the prefix cache share (raw usage is not in the file), the chunk count of
//! generation 3, keys of other writers, and all metrics of files without rows.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::report::anvil::SCHEMA;
use crate::report::anvil::document::{MetricPopulation, measurement_protocol};
use crate::report::anvil::statistics::{Population, metrics};
use crate::report::anvil::timing::Timing;

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

/// A stored value that does not follow from the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Disagreement {
    /// Where it stands, keys joined by dots.
    pub path: String,
    /// What the file says.
    pub stored: Value,
    /// What follows.
    pub recomputed: Value,
}

/// Why a value is no artifact that can be computed again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
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
    } else if let Some(Value::Object(stored)) = fields.get("metrics") {
        check.copied.extend(stored.keys().map(|key| metric_path(key)));
    }
    Ok(Recomputation { artifact, copied: check.copied, disagreements: check.disagreements })
}

/// Collects what does not agree.
#[derive(Default)]
struct Check {
    copied: Vec<String>,
    disagreements: Vec<Disagreement>,
}

impl Check {
    fn with_rows(&mut self, fields: &mut Map<String, Value>) -> Result<(), Unreadable> {
        let mut rows = Vec::new();
        let mut every_row_counts_chunks = true;
        for (i, row) in array_mut(fields, "request_timings")?.iter_mut().enumerate() {
            every_row_counts_chunks &= row.get("content_chunks").is_some();
            rows.push(self.row(&format!("request_timings.{i}"), row)?);
        }
        let mut received = 0;
        let mut failed = 0;
        if fields.contains_key("failures") {
            let failures = array_mut(fields, "failures")?;
            failed = failures.len();
            for (i, failure) in failures.iter_mut().enumerate() {
                received += usize::from(failure.get("response_received") == Some(&Value::Bool(true)));
                if let Some(row) = failure.get_mut("response_timing").filter(|row| !row.is_null()) {
                    self.row(&format!("failures.{i}.response_timing"), row)?;
                }
            }
        }
        // Before generation 5, throughput was given whether or not requests had failed.
        let withheld_on_failure = fields.contains_key("metric_population");
        let all_valid = failed == 0
            && fields.get("requests").is_none_or(|n| n.as_u64() == u64::try_from(rows.len()).ok());
        let wall_clock_ms = fields.get("wall_clock_ms").and_then(Value::as_f64);
        let population = Population {
            rows: &rows,
            performance_eligible: all_valid || !withheld_on_failure,
            wall_clock_ms: wall_clock_ms.ok_or_else(|| field("wall_clock_ms", "not a number"))?,
            prefix_cache_hits: &[],
        };
        let metrics = metrics(&population);
        self.counts(fields, &population, failed, received, &metrics);
        self.metrics(fields, metrics, every_row_counts_chunks);
        Ok(())
    }

    /// Settles the derived fields of one row and reads it.
    fn row(&mut self, path: &str, row: &mut Value) -> Result<Timing, Unreadable> {
        let unreadable = |e: serde_json::Error| field(path, &e.to_string());
        let timing = Timing::deserialize(&*row).map_err(unreadable)?;
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
        }
        Timing::deserialize(&*row).map_err(unreadable)
    }

    /// Settles the fields that count requests.
    fn counts(
        &mut self,
        fields: &mut Map<String, Value>,
        population: &Population<'_>,
        failed: usize,
        received: usize,
        metrics: &BTreeMap<String, Value>,
    ) {
        let completed = population.rows.len();
        for (key, value) in [
            ("completed", Value::from(completed)),
            ("failed", Value::from(failed)),
            ("responses_received", Value::from(completed + received)),
            ("performance_eligible", Value::from(population.performance_eligible)),
            ("measurement_protocol", Value::from(measurement_protocol(population.rows))),
        ] {
            self.settle(|| key.to_owned(), fields.get_mut(key), value, exactly);
        }
        let computed = serde_json::to_value(MetricPopulation::of(population, completed, failed, metrics));
        if let (Some(Value::Object(stored)), Ok(Value::Object(computed))) =
            (fields.get_mut("metric_population"), computed)
        {
            for (key, value) in computed {
                self.settle(|| format!("metric_population.{key}"), stored.get_mut(&key), value, exactly);
            }
        }
    }

    fn metrics(
        &mut self,
        fields: &mut Map<String, Value>,
        mut computed: BTreeMap<String, Value>,
        every_row_counts_chunks: bool,
    ) {
        computed.remove("prefix_cache_hit_avg");
        if !every_row_counts_chunks {
            computed.remove("content_chunks");
            computed.remove("content_chunks_s");
        }
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

    /// Keeps a stored value that is the same (type and digits), or that `agree` accepts; replaces and names any other.
    /// A field that is not there stays so.
    fn settle(
        &mut self,
        path: impl FnOnce() -> String,
        stored: Option<&mut Value>,
        recomputed: Value,
        agree: impl Fn(f64, f64) -> bool,
    ) {
        let Some(stored) = stored else { return };
        let close = match (double(stored), double(&recomputed)) {
            (Some(a), Some(b)) => a.to_bits() == b.to_bits() || agree(a, b),
            _ => *stored == recomputed,
        };
        if !close {
            let stored = std::mem::replace(stored, recomputed.clone());
            self.disagreements.push(Disagreement { path: path(), stored, recomputed });
        }
    }
}

/// No tolerance beyond being the same.
const fn exactly(_: f64, _: f64) -> bool {
    false
}

/// The number, when it is written as a double and not as a whole number.
fn double(value: &Value) -> Option<f64> {
    value.as_number().filter(|number| number.is_f64()).and_then(serde_json::Number::as_f64)
}

/// The distance to the next double.
fn ulp(value: f64) -> f64 {
    let size = value.abs();
    size.next_up() - size
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
