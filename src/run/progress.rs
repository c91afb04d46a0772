//! What a person sees while a run goes on: one live line on a terminal, plain lines elsewhere. On stderr, drawn by the
//! control plane and never by a worker.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::aggregate::collector::LiveCounts;
use crate::config::spec::ProgressMode;
use crate::units::Nanos;
use crate::units::text::format_duration_short;

/// Distance of live redraws.
const LIVE_EVERY: Nanos = Nanos::from_millis(250);

/// Distance of plain lines: at most one a second and at least one in ten was asked; two seconds are readable in a log.
const PLAIN_EVERY: Nanos = Nanos::from_secs(2);

/// Draws progress.
#[derive(Debug)]
pub struct Progress {
    style: Style,
    live: Arc<LiveCounts>,
    planned: u64,
    next: Nanos,
    /// Columns of the last live line, to wipe what a shorter one leaves.
    width: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Live,
    Plain,
    Silent,
}

impl Progress {
    /// Chooses the style: `auto` is live on a terminal and plain elsewhere.
    #[must_use]
    pub fn new(mode: ProgressMode, quiet: bool, live: Arc<LiveCounts>, planned: u64) -> Self {
        let style = match mode {
            _ if quiet => Style::Silent,
            ProgressMode::None => Style::Silent,
            ProgressMode::Plain => Style::Plain,
            ProgressMode::Auto if std::io::stderr().is_terminal() => Style::Live,
            ProgressMode::Auto => Style::Plain,
        };
        Self { style, live, planned, next: Nanos(0), width: 0 }
    }

    /// Draws when it is time to.
    pub fn tick(&mut self, elapsed: Nanos) {
        if elapsed < self.next {
            return;
        }
        let every = if self.style == Style::Live { LIVE_EVERY } else { PLAIN_EVERY };
        self.next = Nanos(elapsed.0.saturating_add(every.0));
        if self.style == Style::Plain && elapsed < PLAIN_EVERY {
            // A run that is over at once needs no log of its progress.
            self.next = PLAIN_EVERY;
            return;
        }
        self.draw(elapsed);
    }

    /// Ends the live line.
    pub fn finish(&mut self) {
        if self.style == Style::Live && self.width > 0 {
            // The whole line: an interrupt leaves its own two characters behind it.
            self.write("\r\x1b[K");
            self.width = 0;
        }
    }

    fn draw(&mut self, elapsed: Nanos) {
        let line = line(&self.live, self.planned, elapsed);
        match self.style {
            Style::Silent => {}
            Style::Plain => self.write(&format!("{line}\n")),
            Style::Live => {
                // A line as wide as the terminal would wrap, and every redraw would add a line.
                let line: String = line.chars().take(columns().saturating_sub(1)).collect();
                let width = line.chars().count();
                self.write(&format!("\r{line}{:pad$}", "", pad = self.width.saturating_sub(width)));
                self.width = width;
            }
        }
    }

    /// Progress is a courtesy: a closed stderr must not end a measurement.
    fn write(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// Columns of the terminal at this moment; 80 where it does not say.
fn columns() -> usize {
    terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0))
}

fn line(live: &LiveCounts, planned: u64, elapsed: Nanos) -> String {
    let ended = live.ended.load(Ordering::Relaxed);
    let ok = live.ok.load(Ordering::Relaxed);
    let failed = live.failed.load(Ordering::Relaxed);
    let chunks = live.chunks.load(Ordering::Relaxed);
    format!(
        "{}  {ended}/{planned} requests  {ok} ok  {failed} failed  {chunks} output chunks",
        format_duration_short(elapsed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_the_run_is() {
        let live = LiveCounts::default();
        live.ended.store(12, Ordering::Relaxed);
        live.ok.store(11, Ordering::Relaxed);
        live.failed.store(1, Ordering::Relaxed);
        live.chunks.store(345, Ordering::Relaxed);
        let text = line(&live, 60, Nanos::from_secs(3));
        assert!(text.ends_with("12/60 requests  11 ok  1 failed  345 output chunks"), "{text}");
    }
}
