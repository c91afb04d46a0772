//! Metrics of artifacts before generation 5, where their rules were others.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::report::anvil::statistics::{Population, output_tokens, per_second};
use crate::report::anvil::timing::Timing;

/// What was different before generation 5: rows of generation 3 do not count chunks, and where usage was missing the
/// sum of output tokens could hold chunk counts, which the stored value shows by not being null.
pub(super) fn as_older_generations_had_it(
    computed: &mut BTreeMap<String, Value>,
    stored: &Map<String, Value>,
    population: &Population<'_>,
    every_row_counts_chunks: bool,
) {
    let per_second = |n| Value::from(per_second(n, population.wall_clock_ms));
    if !every_row_counts_chunks {
        computed.remove("content_chunks");
        if computed.get("content_chunks_s").is_some_and(|rate| !rate.is_null()) {
            let chunks = stored.get("content_chunks").and_then(Value::as_u64);
            computed.remove("content_chunks_s");
            computed.extend(chunks.map(|n| ("content_chunks_s".to_owned(), per_second(n))));
        }
    }
    let counted = stored.get("output_tokens").is_some_and(|tokens| !tokens.is_null());
    if counted && output_tokens(population.rows).is_none() {
        computed.insert("content_chunks_s".to_owned(), Value::Null);
        for key in ["output_tokens", "throughput_tok_s"] {
            computed.remove(key);
        }
        if every_row_counts_chunks {
            let sum = population.rows.iter().map(Timing::counted_tokens).fold(0, u64::saturating_add);
            computed.insert("output_tokens".to_owned(), sum.into());
            computed.insert("throughput_tok_s".to_owned(), per_second(sum));
        }
    }
}
