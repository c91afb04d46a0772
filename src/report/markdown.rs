//! The summary of a run as Markdown tables, for an issue or a report. Also of a run that was killed, of which there is
//! no document: then without what was asked for.

use crate::aggregate::summary::Summary;
use crate::metrics::catalog::CATALOG;
use crate::report::document::RunDocument;
use crate::report::document::measured::{self, RatesDoc};
use crate::report::document::metric::MetricDoc;
use crate::report::ordered::OrderedMap;
use crate::report::terminal::layout::clean;
use crate::units::display;

/// Significant digits: enough to compare, and `--format json` has the others.
const DIGITS: usize = 4;

/// The tables.
#[must_use]
pub fn render(document: Option<&RunDocument>, summary: &Summary) -> String {
    let mut text = String::new();
    if let Some(document) = document {
        head(&mut text, document);
    }
    counts(&mut text, summary);
    metrics(&mut text, &MetricDoc::all(summary));
    rates(&mut text, &measured::rates(&summary.rates));
    for warning in document.map(|document| document.warnings.as_slice()).unwrap_or_default() {
        line(&mut text, &format!("- {}: {}", inline(&warning.code), inline(&warning.text)));
    }
    text
}

fn head(text: &mut String, document: &RunDocument) {
    line(text, &format!("### {}", inline(&document.run_id)));
    line(text, "");
    let load = &document.spec.load;
    let requests = display::counted(load.requests, "request");
    let target = document.target.model.as_ref().unwrap_or(&document.target.base_url);
    let verdict = inline(&document.instrument.verdict);
    let driven = inline(&load.driven());
    line(text, &format!("{requests}, {driven}, {}; instrument {verdict}", inline(target)));
    line(text, "");
}

fn counts(text: &mut String, summary: &Summary) {
    let counts = &summary.counts;
    row(text, &["requests", "ok", "failed", "incomplete", "cancelled"].map(str::to_owned));
    line(text, "|--:|--:|--:|--:|--:|");
    let cells = [counts.started, counts.ok, counts.failed, counts.incomplete, counts.cancelled];
    row(text, &cells.map(display::whole));
    line(text, "");
}

fn metrics(text: &mut String, metrics: &OrderedMap<MetricDoc>) {
    if metrics.is_empty() {
        line(text, "Nothing valid was measured.");
        line(text, "");
        return;
    }
    row(text, &["metric", "unit", "mean", "p50", "p90", "p99", "max", "samples"].map(str::to_owned));
    line(text, "|---|---|--:|--:|--:|--:|--:|--:|");
    for (name, metric) in metrics.iter() {
        let decimals = metric.p50.map_or(0, |p50| display::decimals_for(p50, DIGITS));
        let cell = |value: Option<f64>| display::fixed(value.unwrap_or(f64::NAN), decimals);
        let [mean, p50, p90, p99, max] =
            [metric.mean, metric.p50, metric.p90, metric.p99, metric.max].map(cell);
        let samples = u64::try_from(metric.count).map_or_else(|_| String::new(), display::whole);
        row(text, &[inline(name), inline(&metric.unit), mean, p50, p90, p99, max, samples]);
    }
    line(text, "");
}

fn rates(text: &mut String, rates: &RatesDoc) {
    if rates.iter().all(|(_, rate)| rate.is_none()) {
        return;
    }
    row(text, &["rate", "unit", "value"].map(str::to_owned));
    line(text, "|---|---|--:|");
    for (name, rate) in rates.iter() {
        let metric = CATALOG.iter().find(|metric| metric.name == name);
        let unit = metric.map_or("", |metric| metric.unit.name());
        let rate = display::significant(rate.unwrap_or(f64::NAN), DIGITS);
        row(text, &[inline(name), unit.to_owned(), rate]);
    }
    line(text, "");
}

fn row(text: &mut String, cells: &[String]) {
    line(text, &format!("| {} |", cells.join(" | ")));
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// A text of a document within a line: nothing in it may look like a table, a tag or a control character.
fn inline(text: &str) -> String {
    clean(text).replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}
