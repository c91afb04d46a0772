//! The page of every key, outcome, warning and metric: whatever a document or a line holds has its row there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hammerscale::metrics::catalog::{CATALOG, Scope};
use hammerscale::record::outcome::Fault;
use hammerscale::record::{Anomaly, Outcome};
use hammerscale::report::requests::{self, RequestsWriter};
use hammerscale::report::warnings::Code;
use serde_json::Value;

use crate::fixture;
use crate::peers::counted;

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The rows of the page below a heading, as they stand.
fn rows(heading: &str) -> Vec<String> {
    let page = fs::read_to_string(at("docs/RESULTS.md")).unwrap();
    let part = page.split("\n## ").find(|part| part.lines().next() == Some(heading)).expect(heading);
    part.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
}

/// The names in the first column.
fn names(heading: &str) -> BTreeSet<String> {
    let rows = rows(heading);
    let names: BTreeSet<String> = rows.iter().map(|row| row.split('`').nth(1).unwrap().to_owned()).collect();
    assert_eq!(names.len(), rows.len(), "{heading}: a name stands twice");
    names
}

/// The paths of every key below a value. A key of a map whose keys are data is `*`.
fn paths(value: &Value, path: &str, maps: &[&str], found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = if maps.contains(&path) { "*" } else { key };
                let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                paths(value, &path, maps, found);
                // A block is there by its keys.
                if !(value.is_object() && maps.contains(&path.as_str())) {
                    found.insert(path);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, path, maps, found)),
        _ => {}
    }
}

/// Objects of `run.json` whose keys are names of something.
const MAPS: [&str; 13] = [
    "counts.by_outcome",
    "counts.by_status",
    "compat",
    "compat.*.definitions",
    "compat.*.metrics",
    "compat.*.metrics.*",
    "failures",
    "metrics",
    "spec.body.extra_body",
    "spec.labels.labels",
    "spec.target.sim",
    "stream.anomalies",
    "tokens.sources",
];

#[test]
fn every_key_of_a_document_has_its_row() {
    let (listed, metrics) = (names("`run.json`"), names("Metrics"));
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(at("tests/golden")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "json") {
            let document: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
            paths(&document, "", &MAPS, &mut found);
        }
    }
    assert!(found.len() > 200, "{}", found.len());
    for path in &found {
        let (block, key) = path.rsplit_once('.').unwrap_or(("", path));
        let is_listed = listed.contains(path)
            || listed.contains(&format!("{path}.*"))
            // One row for what stands at every spread, at both bounds, and below another tool's name.
            || block.ends_with("_us") && listed.contains(&format!("*_us.{key}"))
            || block.starts_with("metrics.*.bounds.") && listed.contains(&format!("metrics.*.{key}"))
            || block.ends_with("rates") && metrics.contains(key)
            || path.starts_with("compat.*.") && listed.contains("compat.*");
        assert!(is_listed, "{path} is not in docs/RESULTS.md");
    }
    // And no row for what is nowhere, but for what the made-up runs do not have.
    let optional = [
        "prewarm",
        "spec.load.arrival",
        "spec.load.rate",
        "spec.plain",
        "spec.body.extra_body.*",
        "spec.target.sim.*",
        "stream.anomalies.*",
        "target.unreachable",
        "*_us.",
        "metrics.*.first_chunk_counts",
    ];
    let is_known = |name: &String| found.contains(name) || optional.iter().any(|rest| name.starts_with(rest));
    let stale: Vec<&String> = listed.iter().filter(|name| !is_known(name)).collect();
    assert!(stale.is_empty(), "in docs/RESULTS.md and nowhere else: {stale:?}");
}

#[test]
fn every_key_of_a_line_has_its_row() {
    let listed = names("A line of `requests.jsonl`");
    let mut found: BTreeSet<String> = requests::keys().iter().map(|key| (*key).to_owned()).collect();
    found.extend(requests::user_keys().iter().map(|key| format!("user.{key}")));
    let own = found.len();
    for run in [fixture::normal(), fixture::wide(), fixture::all_failed(), counted()] {
        let mut writer = RequestsWriter::new(Vec::new(), run.id());
        run.rows.iter().for_each(|row| writer.write(row).unwrap());
        writer.write(&fixture::full_row()).unwrap();
        for line in writer.into_inner().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            paths(&serde_json::from_slice(line).unwrap(), "", &["finish_reasons"], &mut found);
        }
    }
    found.remove("finish_reasons.*");
    found.insert("finish_reasons".to_owned());
    assert!(found.len() > own, "the lines have objects");
    let missing: Vec<&String> = found.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/RESULTS.md: {missing:?}");
    // Objects that the made-up runs do not have: a row more is no key of another name.
    let objects = ["canary.", "controlled_output.", "error."];
    let stale: Vec<&String> =
        listed.difference(&found).filter(|name| !objects.iter().any(|own| name.starts_with(own))).collect();
    assert!(stale.is_empty(), "in docs/RESULTS.md and nowhere else: {stale:?}");
}

#[test]
fn every_outcome_warning_and_anomaly_has_its_row() {
    let of = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(names("Warnings"), of(Code::ALL.iter().map(|code| code.name()).collect()));
    assert_eq!(names("Anomalies"), of(Anomaly::ALL.iter().map(|anomaly| anomaly.name()).collect()));
    assert_eq!(names("Outcomes"), of(Outcome::ALL.iter().map(|outcome| outcome.name()).collect()));
    let rows = rows("Outcomes");
    for outcome in Outcome::ALL {
        let fault = match outcome.fault() {
            Fault::Nobody => "nobody",
            Fault::Server => "server",
            Fault::Client => "client",
        };
        let begin = format!("| `{}` | {fault} | ", outcome.name());
        assert!(rows.iter().any(|row| row.starts_with(&begin)), "{begin}");
    }
}

#[test]
fn every_metric_has_the_row_that_the_catalog_gives_it() {
    let expected: Vec<String> = CATALOG
        .iter()
        .map(|metric| {
            let scope = match metric.scope {
                Scope::Request => "request",
                Scope::Gap => "gap",
                Scope::Run => "run",
            };
            let (name, title, unit) = (metric.name, metric.title, metric.unit.name());
            let (definition, excluded) = (metric.definition, metric.excluded_when);
            format!("| `{name}` | {title} | {unit} | {scope} | {definition} | {excluded} |")
        })
        .collect();
    assert_eq!(rows("Metrics"), expected);
}
