//! Answers that were not streamed: one JSON body, read when it is complete.
//!
//! Such an answer has texts, token counts, finish reasons and an outcome, and no events: nothing in it arrived at an
//! instant of its own, so its counts of events and chunks are zero, and there is nothing to stamp.

use super::full::NotJson;
use super::plain::{error_in_body, without_mark};
use super::stream::drop_impossible;
use super::tally::Tally;
use super::verdict::sentence;
use super::{Dialect, Facts, StreamAccount, embeddings, full};
use crate::record::{Counters, ErrorDetail, Outcome};

/// There was not even a part of an answer.
pub const EMPTY_BODY: &str = "the body is empty";

/// What a whole answer turned out to be.
#[derive(Debug)]
pub(super) enum Whole {
    /// Nothing but white space.
    Empty,
    NotJson(NotJson),
    /// JSON without anything that answers of this endpoint have.
    Foreign,
    /// An answer in which nothing was generated.
    WithoutOutput,
    WithOutput,
}

impl StreamAccount {
    /// Takes the complete body of an answer that was not streamed, in place of events.
    pub fn on_whole(&mut self, body: &[u8]) {
        let body = without_mark(body).trim_ascii();
        if body.is_empty() {
            self.whole = Some(Whole::Empty);
            return;
        }
        let read = if self.dialect() == Dialect::Embeddings {
            embeddings::read_whole(body)
        } else {
            full::parse(body).map(|parsed| self.read_whole(&parsed))
        };
        let (output, mut facts) = match read {
            Ok(read) => read,
            Err(refusal) => {
                self.whole = Some(Whole::NotJson(refusal));
                return;
            }
        };
        self.whole = Some(match output {
            _ if !facts.recognised => Whole::Foreign,
            Some(true) => Whole::WithOutput,
            Some(false) | None => Whole::WithoutOutput,
        });
        let impossible = drop_impossible(&mut facts.usage);
        self.counters.tolerated_events += u64::from(facts.not_a_number || impossible);
        self.counters.invalid_utf8_events += u64::from(facts.invalid_utf8);
        self.usage = facts.usage.unwrap_or_default();
        self.error = facts.error;
        if !facts.recognised {
            self.error = error_in_body(body).map(Box::new);
        }
    }

    /// Reads a body; says whether something was generated.
    fn read_whole(&mut self, parsed: &full::Parsed) -> (Option<bool>, Facts) {
        let mut uncounted = Counters::default();
        let dialect = self.dialect();
        let mut tally = Tally::new(&mut uncounted, &mut self.finish, &mut self.choices, &mut self.texts);
        let facts = dialect.read_whole(parsed, &mut tally);
        self.first_output_kind = tally.into_meaning().output;
        (Some(self.first_output_kind.is_some()), facts)
    }

    /// Judges a whole answer.
    pub(super) fn conclude_whole(&self, whole: &Whole) -> (Outcome, Option<ErrorDetail>) {
        if let Some(error) = &self.error {
            return (Outcome::JsonErrorBody, Some(error.to_detail()));
        }
        match whole {
            Whole::WithOutput => (Outcome::Ok, None),
            Whole::WithoutOutput => {
                sentence(Outcome::NoOutput, "the answer is complete, but nothing was generated")
            }
            Whole::Foreign => {
                sentence(Outcome::EmptyResponse, "the answer is JSON without anything of an answer")
            }
            Whole::Empty => sentence(Outcome::EmptyResponse, EMPTY_BODY),
            // Whatever its framing says, what came is the beginning of an answer.
            Whole::NotJson(refusal) if refusal.ends_early => sentence(
                Outcome::TruncatedBody,
                &format!("the answer ends in its middle: {}", refusal.reason),
            ),
            Whole::NotJson(refusal) => {
                sentence(Outcome::MalformedEvent, &format!("the answer is not JSON: {}", refusal.reason))
            }
        }
    }
}
