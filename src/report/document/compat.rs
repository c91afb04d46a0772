//! What other tools would have reported of this run: `compat`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::finite;
use crate::metrics::compat::{Definition, Peer, PeerValues, Value};
use crate::report::anvil;
use crate::report::ordered::OrderedMap;

/// One tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerDoc {
    /// Version of the tool, or of the format, whose definitions these are.
    pub version: String,
    /// Where they were read.
    pub source: String,
    /// Which requests count.
    pub population: String,
    /// How statistics are made.
    pub statistics: String,
    /// Values by the tool's names; `null` where it computes one from something that was not measured.
    pub metrics: OrderedMap<PeerMetricDoc>,
    /// Definitions by name, unit first; a `*` stands for the name of a statistic.
    pub definitions: OrderedMap<String>,
}

/// The value of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PeerMetricDoc {
    /// Statistics under the tool's names, with `unit` and `count`.
    Statistics(OrderedMap<Json>),
    /// A number, or `null`.
    Plain(Json),
}

impl PeerDoc {
    /// Every tool: the reference where its artifact was made, then the others.
    pub(super) fn all(
        reference: Option<&BTreeMap<String, Json>>,
        values: &[PeerValues],
    ) -> OrderedMap<PeerDoc> {
        let reference = reference.map(|metrics| ("anvil", Self::of_reference(metrics)));
        let others = values.iter().map(|values| (values.peer.name, Self::of(values)));
        reference.into_iter().chain(others).collect()
    }

    fn of_reference(metrics: &BTreeMap<String, Json>) -> Self {
        let plain = |(name, value): (&String, &Json)| (name.clone(), PeerMetricDoc::Plain(value.clone()));
        Self {
            version: anvil::SCHEMA.to_owned(),
            source: "fakoli/anvil-serving".to_owned(),
            population: "as `artifact.json` counts: valid requests have visible content, an end, and what else was asked \
                         for"
            .to_owned(),
            statistics: "nearest rank, sample deviation, a normal interval of the mean".to_owned(),
            metrics: metrics.iter().map(plain).collect(),
            definitions: [("*", "`metrics` of `artifact.json`; its `timing_methodology` defines them".to_owned())]
                .into_iter()
                .collect(),
        }
    }

    fn of(values: &PeerValues) -> Self {
        let peer = values.peer;
        let metrics = peer.metrics.iter().zip(&values.values);
        Self {
            version: peer.version.to_owned(),
            source: peer.source.to_owned(),
            population: peer.population.to_owned(),
            statistics: peer.method.to_owned(),
            metrics: metrics.flat_map(|(metric, value)| entries(peer, metric, value)).collect(),
            definitions: peer.metrics.iter().map(|m| (m.name, definition(m))).collect(),
        }
    }
}

fn definition(metric: &Definition) -> String {
    format!("{}: {} ({})", metric.unit, metric.definition, metric.file)
}

/// The keys of one metric: one, or one per statistic where its name has a star.
fn entries(peer: &Peer, metric: &Definition, value: &Value) -> Vec<(String, PeerMetricDoc)> {
    let plain = |value: Json| PeerMetricDoc::Plain(value);
    if metric.name.contains('*') {
        let found = |name: &str| match value {
            Value::Statistics(s) => s.values.iter().find(|(own, _)| *own == name).map(|(_, v)| *v),
            _ => None,
        };
        let entry = |name: &str| (metric.name.replace('*', name), plain(number(found(name))));
        return peer.statistics.iter().map(|(name, _)| entry(name)).collect();
    }
    let doc = match value {
        Value::Unknown => plain(Json::Null),
        Value::Count(n) => plain(Json::from(*n)),
        Value::Number(v) => plain(number(Some(*v))),
        Value::Statistics(found) => {
            let mut doc = OrderedMap::new();
            doc.set("unit", Json::from(metric.unit));
            doc.set("count", Json::from(found.count));
            for (name, value) in &found.values {
                doc.set(*name, number(Some(*value)));
            }
            PeerMetricDoc::Statistics(doc)
        }
    };
    vec![(metric.name.to_owned(), doc)]
}

fn number(value: Option<f64>) -> Json {
    value.and_then(finite).map_or(Json::Null, Json::from)
}
