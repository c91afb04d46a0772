//! A calibration for a person: what was asked of each number of streams and held, how large the error was, and which
//! promises that keeps. Everything fits 80 columns; all errors are in microseconds, so that columns compare by eye.

use super::promise::{self, Figure};
use super::{CalibrationDoc, RowDoc};
use crate::report::terminal::layout::{Ink, Style, WIDTH, clean, left, right, wrap};
use crate::report::terminal::verdict_ink;
use crate::units::display;

const MARGIN: &str = " ";
const STREAMS: usize = 7;
const FIGURE: usize = 8;
const RATE: usize = 10;
/// Significant digits of errors and rates.
const DIGITS: usize = 3;
/// Decimals of these at most: ten nanoseconds are below what any of it means.
const DECIMALS: usize = 2;

/// What stands beside the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Sentences about what is missing or limits the figures.
    pub remarks: Vec<String>,
    /// Files that were written.
    pub files: Vec<String>,
}

/// The table. A number that does not exist is a dash.
#[must_use]
pub fn render(doc: &CalibrationDoc, notes: &Notes, style: Style) -> String {
    let mut lines = Vec::new();
    let title = style.paint(Ink::Strong, &clean(&doc.tool.name));
    lines.push(format!("{title} {}  calibration of {}", clean(&doc.tool.version), clean(&doc.created_at)));
    lines.push(machine(doc));
    lines.push(String::new());
    load(&mut lines, doc, style);
    lines.push(String::new());
    errors(&mut lines, doc, style);
    lines.push(String::new());
    promises(&mut lines, doc, style);
    if let Some(ceiling) = &doc.ceiling {
        let (rate, streams) =
            (display::significant(ceiling.event_rate, DIGITS), display::counted(ceiling.streams, "stream"));
        lines.push(String::new());
        lines.push(format!("Highest rate held: {rate} events/s over {streams}"));
    }
    for remark in &notes.remarks {
        lines.push(String::new());
        let mark = style.paint(Ink::Doubtful, "!");
        let text = wrap(&clean(remark), WIDTH - 3);
        let marks = std::iter::once(mark.as_str()).chain(std::iter::repeat(" "));
        lines.extend(marks.zip(&text).map(|(mark, text)| format!("{mark} {text}")));
    }
    if !notes.files.is_empty() {
        lines.push(String::new());
        lines.extend(notes.files.iter().map(|file| clean(file)));
    }
    lines.iter().fold(String::new(), |page, line| page + format!("{MARGIN}{line}").trim_end() + "\n")
}

fn machine(doc: &CalibrationDoc) -> String {
    let list = |cores: &[u32]| {
        let numbers: Vec<String> = cores.iter().map(ToString::to_string).collect();
        if numbers.is_empty() { "any core".to_owned() } else { format!("core {}", numbers.join(",")) }
    };
    let bytes = display::significant(doc.event_bytes.unwrap_or(f64::NAN), DIGITS);
    let (client, server) = (list(&doc.cores.client), list(&doc.cores.server));
    format!("workers on {client}, simulator on {server} · {bytes} bytes an event")
}

fn load(lines: &mut Vec<String>, doc: &CalibrationDoc, style: Style) {
    let cells = |row: [&str; 7], verdict: &str| {
        let columns = [STREAMS, RATE, RATE, RATE, 11, 9, 9];
        let cells = row.iter().zip(columns).map(|(cell, columns)| right(cell, columns));
        format!("{}  {verdict}", cells.collect::<String>())
    };
    let names = ["streams", "asked/s", "held/s", "events", "coalesced", "CPU µs", "lag µs"];
    lines.push(style.paint(Ink::Strong, &cells(names, "verdict")));
    for row in &doc.rows {
        let figures = [
            display::whole(row.streams),
            display::significant(row.event_rate_asked, DIGITS),
            figure(row.event_rate_held),
            display::whole(row.events),
            display::percent(row.coalesced_share.unwrap_or(f64::NAN)),
            figure(row.cpu_us_per_event),
            figure(row.send_lag_us.and_then(|lag| lag.p50)),
        ];
        let verdict = style.paint(verdict_ink(&row.verdict), &clean(&row.verdict));
        lines.push(cells(figures.each_ref().map(String::as_str), &verdict));
    }
}

fn errors(lines: &mut Vec<String>, doc: &CalibrationDoc, style: Style) {
    let (kernel, user) = (4 * FIGURE, 3 * FIGURE);
    let groups = format!(
        "{}{}{}",
        left("Error, µs", STREAMS + 3),
        left("  kernel stamps", kernel),
        left("user stamps", user)
    );
    lines.push(style.paint(Ink::Strong, &format!("{groups}bias (p50)")));
    let cells = |streams: &str, figures: [&str; 9]| {
        figures.iter().fold(right(streams, STREAMS), |line, cell| line + &right(cell, FIGURE))
    };
    let names = ["p50", "p99", "p99.9", "max", "p50", "p99", "p99.9", "TTFT", "gaps"];
    lines.push(style.paint(Ink::Strong, &cells("streams", names)));
    for row in &doc.rows {
        let RowDoc { kernel_us, user_us, ttft_bias_us, gap_bias_us, .. } = row;
        let figures = [
            kernel_us.p50,
            kernel_us.p99,
            kernel_us.p99_9,
            kernel_us.max,
            user_us.p50,
            user_us.p99,
            user_us.p99_9,
            ttft_bias_us.p50,
            gap_bias_us.p50,
        ]
        .map(figure);
        lines.push(cells(&display::whole(row.streams), figures.each_ref().map(String::as_str)));
    }
}

fn promises(lines: &mut Vec<String>, doc: &CalibrationDoc, style: Style) {
    lines.push(style.paint(Ink::Strong, "Promises: A1 kernel stamps, A2 differences of them; figures in µs"));
    for row in &doc.rows {
        let mut streams = display::whole(row.streams);
        for (name, figures) in [("A1", promise::stamps(row)), ("A2", promise::differences(row))] {
            let (word, ink) = match figures.iter().all(Figure::is_kept) {
                true => ("kept", Ink::Good),
                false => ("missed", Ink::Bad),
            };
            let told: Vec<String> = figures.iter().map(tell).collect();
            let word = style.paint(ink, &left(word, 8));
            lines.push(format!("{}  {name} {word}{}", right(&streams, STREAMS), told.join(", ")));
            streams.clear();
        }
    }
}

fn tell(told: &Figure) -> String {
    format!("{} {} of {}", told.name, figure(told.value), display::significant(told.limit, 1))
}

fn figure(value: Option<f64>) -> String {
    let value = value.unwrap_or(f64::NAN);
    display::fixed(value, display::decimals_for(value, DIGITS).min(DECIMALS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::calibration::testing::{calibration, row};

    fn page(rows: Vec<RowDoc>, notes: &Notes) -> String {
        render(&calibration(rows), notes, Style::PLAIN)
    }

    #[test]
    fn every_row_is_in_every_part_and_everything_fits() {
        let mut missed = row(10_000);
        missed.kernel_us.max = Some(123_456.7);
        missed.user_us.p99_9 = Some(98_765.4);
        missed.gap_bias_us.p50 = Some(-2.5);
        missed.event_rate_asked = 400_000.0;
        let notes = Notes {
            remarks: vec![
                "100,000 streams are left out: they need 100,048 file descriptors and there may be 20,000"
                    .into(),
            ],
            files: vec!["somewhere/calibration.json".into()],
        };
        let text = page(vec![row(1), row(100), missed], &notes);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
            assert_eq!(line.trim_end(), line);
        }
        for streams in ["1", "100", "10,000"] {
            let begins = |line: &&str| line.split_whitespace().next() == Some(streams);
            assert_eq!(text.lines().filter(begins).count(), 3, "{streams}:\n{text}");
        }
        assert_eq!(text.matches("A1 kept").count(), 3, "{text}");
        assert_eq!(text.matches("A2 missed  TTFT 1.70 of 2, gaps -2.50 of 2").count(), 1, "{text}");
        assert!(text.contains("! 100,000 streams are left out") && text.contains("\n somewhere/"), "{text}");
        assert!(text.contains("Highest rate held: 49,990 events/s over"), "{text}");
    }

    #[test]
    fn what_is_not_there_is_a_dash() {
        let mut bare = row(1);
        (bare.event_rate_held, bare.cpu_us_per_event, bare.kernel_us) =
            (None, None, super::super::ErrorDoc::default());
        let text = page(vec![bare], &Notes::default());
        assert!(text.contains("A1 missed  p99 – of 40"), "{text}");
        assert!(!text.contains("Highest rate held"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
        assert!(page(Vec::new(), &Notes::default()).contains("streams"));
    }
}
