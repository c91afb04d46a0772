//! The summary of a run for a person who has five seconds: what was asked for, whether it worked, whether the
//! instrument can be trusted, how fast it was, and what to know before quoting it. A pure function from the document.
//!
//! Latencies are all in milliseconds with four significant digits and the same decimals along a row, so that rows and
//! columns can be compared by eye. Everything fits 80 columns, except words that must stay whole (addresses, paths) and
//! numbers beyond a day.

mod asked;
mod instrument;
pub mod layout;
mod slowest;

use self::layout::{Ink, Piece, Style, WIDTH, clean, left, right, shorten, width, wrap, wrap_pieces};
use crate::metrics::MetricId;
use crate::metrics::catalog::Unit;
use crate::report::document::RunDocument;
use crate::report::document::measured::RatesDoc;
use crate::report::document::metric::{BoundsDoc, MetricDoc};
use crate::report::validity::Verdict;
use crate::units::display;

/// Where the files of the run are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesNote {
    /// The directory.
    pub dir: String,
    /// Names in it.
    pub names: Vec<String>,
    /// Further files, by path.
    pub beside: Vec<String>,
}

/// The latencies that are shown, in this order. Those of an open loop are told from due, with how late the client was as
/// the last row: it is part of them.
const LATENCIES: [MetricId; 8] = [
    MetricId::TimeToFirstByte,
    MetricId::TimeToFirstOutput,
    MetricId::Ttft,
    MetricId::InterChunkLatency,
    MetricId::InterTokenLatency,
    MetricId::Tpot,
    MetricId::E2e,
    MetricId::SendLag,
];
/// The rates that are shown, in this order.
const RATES: [MetricId; 5] = [
    MetricId::RequestRate,
    MetricId::OutputTokS,
    MetricId::PeakOutputTokS,
    MetricId::TotalTokS,
    MetricId::ConcurrencyMean,
];
/// Significant digits of a latency's median; the other columns have its decimals.
const LATENCY_DIGITS: usize = 4;
/// Significant digits of a rate.
const RATE_DIGITS: usize = 3;

/// From this share of gaps of which only bounds are known on, the bounds are shown: the row above them is a selection.
const SHOWN_BOUNDS_SHARE: f64 = 0.05;

const MARGIN: usize = 1;
const TITLE: usize = 31;
const CELL: usize = 10;
const SAMPLES: usize = 8;
const INDENT: usize = 3;
const CODE: usize = 25;
/// Three lines of an example are enough to know it again; the whole text is in `run.json`.
const EXAMPLE: usize = 3 * (WIDTH - MARGIN - INDENT - CODE);

/// The summary. `files` is `None` where nothing was written.
#[must_use]
pub fn render(document: &RunDocument, files: Option<&FilesNote>, style: Style) -> String {
    let mut page = Page { style, lines: Vec::new() };
    head(&mut page, document);
    result(&mut page, document);
    latencies(&mut page, document);
    rates(&mut page, document);
    slowest(&mut page, document);
    instrument(&mut page, document);
    failures(&mut page, document);
    warnings(&mut page, document);
    if let Some(files) = files {
        note_files(&mut page, files);
    }
    page.finish()
}

struct Page {
    style: Style,
    lines: Vec<String>,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.lines.push(format!("{}{text}", " ".repeat(MARGIN)));
    }

    fn gap(&mut self) {
        self.lines.push(String::new());
    }

    fn heading(&mut self, text: &str) {
        let text = self.style.paint(Ink::Strong, text);
        self.line(&text);
    }

    /// A first column that is `columns` wide, then text that is wrapped behind it.
    fn entry(&mut self, first: &str, columns: usize, text: &str) {
        let room = WIDTH.saturating_sub(MARGIN + columns);
        let mut lines = wrap(&clean(text), room).into_iter();
        self.line(&format!("{first}{}", lines.next().unwrap_or_default()));
        for more in lines {
            self.line(&format!("{}{more}", " ".repeat(columns)));
        }
    }

    fn finish(self) -> String {
        let mut text = String::new();
        for line in self.lines {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn head(page: &mut Page, document: &RunDocument) {
    let title = page.style.paint(Ink::Strong, &clean(&document.tool.name));
    let run = page.style.paint(Ink::Dim, &format!("run {}", clean(&document.run_id)));
    page.line(&format!("{title} {}  {run}", clean(&document.tool.version)));
    page.gap();
    for line in asked::lines(document, page.style) {
        page.line(&line);
    }
}

fn result(page: &mut Page, document: &RunDocument) {
    let counts = &document.counts;
    let started = counts.ok + counts.failed + counts.incomplete + counts.cancelled;
    let ink = match (counts.ok, counts.failed) {
        (0, _) => Ink::Bad,
        (_, 0) => Ink::Good,
        _ => Ink::Doubtful,
    };
    let ok = format!("{} of {} ok", display::whole(counts.ok), display::counted(started, "request"));
    let mut pieces = vec![Piece::inked(ink, ok)];
    for (count, what, ink) in [
        (counts.failed, "failed", Ink::Bad),
        (counts.incomplete, "incomplete", Ink::Doubtful),
        (counts.cancelled, "cancelled", Ink::Dim),
    ] {
        if count > 0 {
            pieces.push(Piece::inked(ink, format!("{} {what}", display::whole(count))));
        }
    }
    if document.interrupted {
        pieces.push(Piece::inked(Ink::Doubtful, "interrupted"));
    }
    if let Some(window) = &document.window {
        pieces.push(Piece::plain(format!("{} measured", display::span_ms(window.measured_s * 1e3))));
    }
    let verdict = document.instrument.verdict.as_str();
    // An instrument that had nothing to do has not shown that it is good; that it is not, it can show.
    if counts.sent > 0 || verdict != Verdict::Valid.name() {
        pieces.push(Piece::inked(verdict_ink(verdict), format!("instrument {}", clean(verdict))));
    }
    page.gap();
    for line in wrap_pieces(&pieces, WIDTH - MARGIN, page.style) {
        page.line(&line);
    }
    if let Some(prewarm) = &document.prewarm {
        let (made, took) =
            (display::counted(prewarm.made, "connection"), display::span_ms(prewarm.took_s * 1e3));
        let failed = match prewarm.failed {
            0 => String::new(),
            failed => format!("; {} failed", display::whole(failed)),
        };
        page.line(&format!("{made} made before, in {took}{failed}"));
    }
}

pub(in crate::report) fn verdict_ink(verdict: &str) -> Ink {
    match verdict {
        "valid" => Ink::Good,
        "suspect" => Ink::Doubtful,
        _ => Ink::Bad,
    }
}

/// Title of the row that stands for time to first output and for time to first token, where the two are the same.
const BOTH_FIRSTS: &str = "Time to first token (TTFT)";

fn latencies(page: &mut Page, document: &RunDocument) {
    let is_open = document.spec.load.rate.is_some();
    let told = |id: MetricId| document.metrics.get(if is_open { id.from_due() } else { id }.metric().name);
    let latencies = LATENCIES.iter().filter(|id| is_open || **id != MetricId::SendLag);
    let shown = latencies.filter_map(|id| Some((*id, told(*id)?)));
    let first_output = told(MetricId::TimeToFirstOutput);
    // Where the first output is always visible, the two rows would be the same numbers twice.
    let shown = shown.filter(|(id, metric)| *id != MetricId::Ttft || first_output != Some(*metric));
    // The first byte is what there is to tell of an answer that does not come bit by bit.
    let shown: Vec<_> =
        shown.filter(|(id, _)| *id != MetricId::TimeToFirstByte || first_output.is_none()).collect();
    page.gap();
    if shown.is_empty() {
        page.line(&page.style.paint(Ink::Bad, "Nothing valid was measured."));
        return;
    }
    let from = if is_open { " from due" } else { "" };
    let heading = format!("Latency{from}, {}", Unit::Milliseconds.name());
    let without_ttft = shown.iter().all(|(id, _)| *id != MetricId::Ttft) && told(MetricId::Ttft).is_some();
    let title = |id: MetricId| match id {
        MetricId::TimeToFirstOutput if without_ttft => BOTH_FIRSTS,
        _ => id.metric().title,
    };
    let rows = shown.iter().map(|(id, metric)| latency_row(title(*id), metric));
    table(
        page,
        &[&heading, "p50", "p90", "p99", "max", "samples"].map(str::to_owned),
        &rows.collect::<Vec<_>>(),
    );
    note_bounds(page, &shown);
}

/// What is not known of the gaps. Those between chunks and those between tokens are the same: their share is said once.
fn note_bounds(page: &mut Page, shown: &[(MetricId, &MetricDoc)]) {
    let mut is_said = false;
    for (id, metric) in shown {
        let Some(gaps) = metric.coalesced_gaps.as_ref().filter(|gaps| gaps.count > 0) else { continue };
        let share = gaps.share.unwrap_or(f64::NAN);
        let bounds = metric.bounds.as_ref().filter(|_| share > SHOWN_BOUNDS_SHARE);
        let mut notes = Vec::new();
        if !is_said {
            let rest = if bounds.is_some() { "bounds known" } else { "bounds known (run.json)" };
            let share = display::percent(share);
            notes.push(format!("{share} of the gaps share a read with another event: only {rest}"));
            is_said = true;
        }
        if let Some(BoundsDoc { lower, upper }) = bounds {
            let between = |low: Option<f64>, high: Option<f64>| {
                let [low, high] = [low, high].map(|ms| display::span_ms(ms.unwrap_or(f64::NAN)));
                format!("{low} to {high}")
            };
            let (p50, p99) = (between(lower.p50, upper.p50), between(lower.p99, upper.p99));
            notes.push(format!("with them, {}: p50 {p50}, p99 {p99}", id.metric().title.to_lowercase()));
        }
        for note in notes.iter().flat_map(|note| wrap(note, WIDTH - MARGIN)) {
            page.line(&page.style.paint(Ink::Dim, &note));
        }
    }
}

fn latency_row(title: &str, metric: &MetricDoc) -> [String; 6] {
    let decimals = metric.p50.map_or(0, |p50| display::decimals_for(p50, LATENCY_DIGITS));
    let cell = |value: Option<f64>| display::fixed(value.unwrap_or(f64::NAN), decimals);
    let [p50, p90, p99, max] = [metric.p50, metric.p90, metric.p99, metric.max].map(cell);
    let samples = u64::try_from(metric.count).map_or_else(|_| String::new(), display::whole);
    [title.to_owned(), p50, p90, p99, max, samples]
}

/// A heading and rows: the first column to the left, the others to the right, each as wide as the page has it or as its
/// widest cell and the space before it.
fn table(page: &mut Page, heading: &[String; 6], rows: &[[String; 6]]) {
    let mut columns = [TITLE, CELL, CELL, CELL, CELL, SAMPLES];
    for row in rows.iter().chain([heading]) {
        for (column, cell) in columns.iter_mut().zip(row) {
            *column = (*column).max(width(cell) + 1);
        }
    }
    let text = |row: &[String; 6]| -> String {
        let cells = row.iter().zip(columns).enumerate();
        cells
            .map(|(i, (cell, column))| if i == 0 { left(cell, column) } else { right(cell, column) })
            .collect()
    };
    page.heading(&text(heading));
    for row in rows {
        page.line(&text(row));
    }
}

fn rates(page: &mut Page, document: &RunDocument) {
    let Some(window) = &document.window else { return };
    if document.counts.ok == 0 {
        return;
    }
    let steady = window.steady_state.as_ref();
    page.gap();
    let heading = steady.map_or_else(String::new, |_| right("steady", CELL + 2));
    page.heading(&format!("{}{}{heading}", left("Rates", TITLE), right("whole run", CELL)));
    for id in RATES.into_iter().filter(|id| can_exist(*id, document)) {
        let metric = id.metric();
        let rate = |rates: &RatesDoc, columns| {
            let rate = rates.get(metric.name).copied().flatten();
            right(&display::significant(rate.unwrap_or(f64::NAN), RATE_DIGITS), columns)
        };
        let steady = steady.map_or_else(String::new, |s| rate(&s.rates, CELL + 2));
        let whole = rate(&document.rates, CELL);
        page.line(&format!("{}{whole}{steady}  {}", left(metric.title, TITLE), metric.unit.name()));
    }
    if let Some(steady) = steady {
        let asked = document.spec.load.concurrency.map_or_else(String::new, |n| display::whole(u64::from(n)));
        let (span, held) =
            (display::span_ms(steady.span_s * 1e3), display::percent(steady.held_share.unwrap_or(f64::NAN)));
        let text =
            format!("steady: the {span} from first to last moment with {asked} in flight ({held} held)");
        page.line(&page.style.paint(Ink::Dim, &text));
    }
}

/// Whether a run of this kind can have a rate at all: a row of dashes for what was never asked for is noise.
fn can_exist(id: MetricId, document: &RunDocument) -> bool {
    let streams = document.spec.body.as_ref().is_some_and(|body| body.stream);
    match id {
        MetricId::OutputTokS => {
            document.spec.prompt.as_ref().is_some_and(|prompt| prompt.max_tokens.is_some())
        }
        MetricId::TotalTokS => document.spec.prompt.is_some(),
        MetricId::PeakOutputTokS => streams,
        _ => true,
    }
}

fn slowest(page: &mut Page, document: &RunDocument) {
    let Some((heading, worst)) = slowest::lines(&document.slowest) else { return };
    page.gap();
    page.heading(&heading);
    page.entry(&" ".repeat(INDENT), INDENT, &worst);
}

fn instrument(page: &mut Page, document: &RunDocument) {
    let facts = &document.instrument;
    let pieces = instrument::pieces(facts);
    if pieces.is_empty() && facts.reasons.is_empty() {
        return;
    }
    page.gap();
    page.heading("Instrument");
    for line in wrap_pieces(&pieces, WIDTH - MARGIN - INDENT, page.style) {
        page.line(&format!("{}{line}", " ".repeat(INDENT)));
    }
    if let Some(calibration) = &facts.calibration {
        page.entry(&" ".repeat(INDENT), INDENT, &calibration.sentence());
    }
    for reason in &facts.reasons {
        let mark = page.style.paint(verdict_ink(&facts.verdict), "!");
        page.entry(&format!(" {mark} "), INDENT, reason);
    }
    for note in &facts.notes {
        page.entry(&" ".repeat(INDENT), INDENT, note);
    }
}

fn failures(page: &mut Page, document: &RunDocument) {
    if document.failures.is_empty() {
        return;
    }
    page.gap();
    page.heading("Failures");
    for (outcome, failure) in document.failures.iter() {
        let detail = failure.detail.as_deref().unwrap_or("no detail");
        let status = failure.http_status.filter(|status| !(200..300).contains(status));
        let status = status.map_or_else(String::new, |status| format!("status {status}"));
        // An answer without a word of its own is told by its status line.
        let status = if detail.starts_with(&status) { String::new() } else { format!("{status}, ") };
        let (count, index) = (display::whole(failure.count), failure.request_index);
        let text = format!("{count} · request {index}: {status}{detail}");
        let first = format!("{}{}", " ".repeat(INDENT), left(&clean(outcome), CODE));
        page.entry(&first, INDENT + CODE, &shorten(&text, EXAMPLE));
    }
}

fn warnings(page: &mut Page, document: &RunDocument) {
    if document.warnings.is_empty() {
        return;
    }
    page.gap();
    page.heading("Warnings");
    for warning in &document.warnings {
        let code = format!("{}{}", " ".repeat(INDENT), left(&clean(&warning.code), CODE));
        page.entry(&code, INDENT + CODE, &warning.text);
    }
}

fn note_files(page: &mut Page, files: &FilesNote) {
    page.gap();
    page.line(&page.style.paint(Ink::Strong, &clean(&files.dir)));
    let names: Vec<String> = files.names.iter().map(|name| clean(name)).collect();
    page.line(&format!("{}{}", " ".repeat(INDENT), names.join("  ")));
    for path in &files.beside {
        page.line(&clean(path));
    }
}
