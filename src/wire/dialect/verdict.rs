//! How an answer ended, judged from its account and from the way its body ended. The first cause wins.
//!
//! This judges answers that were read as an event stream to some end of their body. What happens before (status,
//! head, framing) and what we do ourselves (time-outs, limits, cancellation) is judged where it happens.

use super::stream::MalformedEvent;
use super::{ServerError, StreamAccount};
use crate::record::{ErrorDetail, Outcome};

/// How the body of an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnding {
    /// Complete by its length or its last chunk, or ended by the close of a connection that delimits it.
    CleanEnd,
    /// Closed before the declared length or the last chunk.
    CutShort,
    /// The connection was reset.
    Reset,
}

/// The server ended the answer without saying that it was complete.
const UNFINISHED: &str = "ended without finish_reason and without terminal event";

impl StreamAccount {
    /// Judges the answer. The block that was open when a body ended cleanly must have been given to
    /// [`on_tail`](Self::on_tail) before. `None` with [`Outcome::Ok`], a detail with everything else.
    pub fn conclude(&mut self, ending: BodyEnding) -> (Outcome, Option<ErrorDetail>) {
        self.cut_after_terminal = self.done && ending != BodyEnding::CleanEnd;
        if let Some(error) = &self.error {
            return (Outcome::ServerErrorInStream, Some(error.to_detail()));
        }
        if let Some(malformed) = &self.malformed
            && let Some(error) = &malformed.what.error
        {
            return (Outcome::MalformedEvent, Some(detail_of_error_in_event(malformed, error)));
        }
        if self.done || ending == BodyEnding::CleanEnd && !self.finish.is_empty() {
            return self.conclude_complete();
        }
        match ending {
            BodyEnding::CleanEnd => self.conclude_unfinished(),
            BodyEnding::CutShort => {
                sentence(Outcome::TruncatedBody, "the body was cut short before the answer was complete")
            }
            BodyEnding::Reset => {
                sentence(Outcome::ResetMidstream, "the connection was reset before the answer was complete")
            }
        }
    }

    fn conclude_complete(&self) -> (Outcome, Option<ErrorDetail>) {
        if self.counters.output_chunks > 0 {
            return (Outcome::Ok, None);
        }
        if self.choices.first.is_some() || self.counters.usage_events > 0 || !self.finish.is_empty() {
            return sentence(Outcome::NoOutput, "the answer is complete, but nothing was generated");
        }
        let only_done = self.counters.events == 1;
        let what = if only_done { "only [DONE]" } else { "nothing of meaning before [DONE]" };
        sentence(Outcome::EmptyResponse, &format!("{what}: no choice, no finish_reason, no usage"))
    }

    fn conclude_unfinished(&self) -> (Outcome, Option<ErrorDetail>) {
        match &self.malformed {
            _ if self.counters.events == 0 => sentence(Outcome::EmptyResponse, UNFINISHED),
            Some(malformed) if !malformed.unterminated => {
                let detail = ErrorDetail {
                    message: format!("an event is not JSON: {}", malformed.what.reason),
                    body_start: malformed.start.clone(),
                    ..ErrorDetail::default()
                };
                (Outcome::MalformedEvent, Some(detail))
            }
            // An event that is broken because the answer ends in its middle is a cut answer, not a broken event.
            _ => sentence(Outcome::TruncatedStream, UNFINISHED),
        }
    }
}

fn sentence(outcome: Outcome, message: &str) -> (Outcome, Option<ErrorDetail>) {
    (outcome, Some(ErrorDetail { message: message.to_owned(), ..ErrorDetail::default() }))
}

fn detail_of_error_in_event(malformed: &MalformedEvent, error: &ServerError) -> ErrorDetail {
    let detail = error.to_detail();
    ErrorDetail {
        message: format!("an error was written into an event that was still open: {}", detail.message),
        body_start: malformed.start.clone(),
        ..detail
    }
}
