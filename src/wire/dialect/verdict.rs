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
    /// Whether nothing that follows can change the judgement: the terminal came, or the server reported an error.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        let reported = |malformed: &MalformedEvent| malformed.what.error.is_some();
        self.done || self.error.is_some() || self.malformed.as_ref().is_some_and(reported)
    }

    /// Judges the answer. The block that was open when a body ended cleanly must have been given to
    /// [`on_tail`](Self::on_tail) before. An answer that was not streamed was taken whole, and how its body ended is
    /// no matter. `None` with [`Outcome::Ok`], a detail with everything else.
    pub fn conclude(&mut self, ending: BodyEnding) -> (Outcome, Option<ErrorDetail>) {
        if let Some(whole) = &self.whole {
            return self.conclude_whole(whole);
        }
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
        self.sentence(Outcome::EmptyResponse, &format!("{what}: no choice, no finish_reason, no usage"))
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
            _ => self.sentence(Outcome::TruncatedStream, UNFINISHED),
        }
    }

    /// With the events that another endpoint may have understood, which are how an answer can have many and nothing.
    fn sentence(&self, outcome: Outcome, message: &str) -> (Outcome, Option<ErrorDetail>) {
        let counted = match self.counters.unrecognised_events {
            0 => return sentence(outcome, message),
            1 => "1 event means".to_owned(),
            unknown => format!("{unknown} events mean"),
        };
        let first = self.unknown.name();
        sentence(outcome, &format!("{message}; {counted} nothing on this endpoint (first: {first})"))
    }
}

pub(super) fn sentence(outcome: Outcome, message: &str) -> (Outcome, Option<ErrorDetail>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dialect::{Dialect, TextRule};
    use BodyEnding::{CleanEnd, CutShort, Reset};

    const ROLE: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
    const TOKEN: &str = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
    const THOUGHT: &str = r#"{"choices":[{"index":0,"delta":{"reasoning":"a"},"finish_reason":null}]}"#;
    const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0}}"#;
    const ERROR: &str = r#"{"error":{"message":"boom","code":500,"type":"T"}}"#;
    const DONE: &str = "[DONE]";

    fn ended(events: &[&str], ending: BodyEnding) -> (Outcome, Option<ErrorDetail>, bool) {
        let mut account = StreamAccount::new(Dialect::Chat);
        account.start(TextRule::default());
        for event in events {
            account.on_event(b"", event.as_bytes());
        }
        let (outcome, detail) = account.conclude(ending);
        assert_eq!(detail.is_none(), outcome == Outcome::Ok, "{events:?}");
        (outcome, detail, account.cut_after_terminal())
    }

    #[track_caller]
    fn check(events: &[&str], ending: BodyEnding, outcome: Outcome) {
        assert_eq!(ended(events, ending).0, outcome, "{events:?} {ending:?}");
    }

    #[test]
    fn a_success_has_output_and_a_terminal_or_a_finish_and_a_clean_end() {
        check(&[ROLE, TOKEN, FINISH, USAGE, DONE], CleanEnd, Outcome::Ok);
        check(&[TOKEN, FINISH], CleanEnd, Outcome::Ok);
        check(&[TOKEN, DONE], CleanEnd, Outcome::Ok);
        check(&[THOUGHT, FINISH, DONE], CleanEnd, Outcome::Ok);
        check(&[TOKEN, "garbage", DONE], CleanEnd, Outcome::Ok);
        check(&[TOKEN, DONE, ERROR], CleanEnd, Outcome::Ok);
    }

    #[test]
    fn a_cut_after_the_terminal_is_a_success_with_a_mark() {
        for ending in [CutShort, Reset] {
            let (outcome, _, cut) = ended(&[TOKEN, FINISH, DONE], ending);
            assert_eq!((outcome, cut), (Outcome::Ok, true));
        }
        assert!(!ended(&[TOKEN, DONE], CleanEnd).2);
        assert!(!ended(&[TOKEN], CutShort).2);
    }

    #[test]
    fn a_complete_answer_without_output_is_no_success() {
        check(&[ROLE, FINISH, USAGE, DONE], CleanEnd, Outcome::NoOutput);
        check(&[ROLE, DONE], CleanEnd, Outcome::NoOutput);
        check(&[USAGE, DONE], CleanEnd, Outcome::NoOutput);
        check(&[FINISH], CleanEnd, Outcome::NoOutput);
        check(&[DONE], CleanEnd, Outcome::EmptyResponse);
        check(&[r#"{"type":"ping"}"#, DONE], CleanEnd, Outcome::EmptyResponse);
        check(&[], CleanEnd, Outcome::EmptyResponse);
    }

    #[test]
    fn an_answer_that_only_stops_is_cut_even_when_its_body_ends_well() {
        check(&[ROLE, TOKEN], CleanEnd, Outcome::TruncatedStream);
        check(&[ROLE], CleanEnd, Outcome::TruncatedStream);
        check(&[TOKEN, USAGE], CleanEnd, Outcome::TruncatedStream);
        check(&[TOKEN], CutShort, Outcome::TruncatedBody);
        check(&[TOKEN, FINISH], CutShort, Outcome::TruncatedBody);
        check(&[], CutShort, Outcome::TruncatedBody);
        check(&[TOKEN, FINISH], Reset, Outcome::ResetMidstream);
    }

    #[test]
    fn events_of_another_endpoint_are_named() {
        for (events, told) in [
            (
                &[r#"{"type":"message_start","message":{}}"#, r#"{"type":"message_stop"}"#][..],
                "; 2 events mean nothing on this endpoint (first: event type message_start)",
            ),
            (&[TOKEN, r#"{"object":"x"}"#], "; 1 event means nothing on this endpoint (first: object x)"),
            (&["[7]"], "; 1 event means nothing on this endpoint (first: data [7])"),
            (
                &[r#"{"type":"ping"}"#, DONE],
                "; 1 event means nothing on this endpoint (first: event type ping)",
            ),
            (&[TOKEN], UNFINISHED),
            (&[], UNFINISHED),
        ] {
            let message = ended(events, CleanEnd).1.unwrap().message;
            assert!(message.ends_with(told), "{message}");
        }
        for dialect in [Dialect::Messages, Dialect::Responses] {
            let mut account = StreamAccount::new(dialect);
            for (event, name) in [(&b""[..], "object chat.completion.chunk"), (b"odd", "event type odd")] {
                account.start(TextRule::default());
                let chunk = format!(r#"{{"object":"chat.completion.chunk",{}"#, &TOKEN[1..]);
                account.on_event(event, chunk.as_bytes());
                let (outcome, detail) = account.conclude(CleanEnd);
                assert_eq!(outcome, Outcome::TruncatedStream);
                assert!(
                    detail.as_ref().unwrap().message.ends_with(&format!("(first: {name})")),
                    "{detail:?}"
                );
            }
        }
    }

    #[test]
    fn an_error_is_a_failure_whatever_follows_it() {
        for ending in [CleanEnd, CutShort, Reset] {
            check(&[TOKEN, ERROR, DONE], ending, Outcome::ServerErrorInStream);
            check(&[ERROR], ending, Outcome::ServerErrorInStream);
        }
        let detail = ended(&[ERROR, DONE], CleanEnd).1.unwrap();
        assert_eq!(detail.message, "boom");
        assert_eq!((detail.code.as_deref(), detail.error_type.as_deref()), (Some("500"), Some("T")));
    }

    #[test]
    fn a_broken_event_explains_an_answer_that_only_stops() {
        check(&[TOKEN, "{broken", TOKEN], CleanEnd, Outcome::MalformedEvent);
        check(&[TOKEN, "{broken", FINISH], CleanEnd, Outcome::Ok);
        check(&[TOKEN, "{broken"], CutShort, Outcome::TruncatedBody);
        check(&[TOKEN, ": OPENROUTER PROCESSING", ""], CleanEnd, Outcome::TruncatedStream);
        let detail = ended(&["{broken"], CleanEnd).1.unwrap();
        assert_eq!(detail.body_start, b"{broken");
        assert!(detail.message.starts_with("an event is not JSON"), "{}", detail.message);
    }

    #[test]
    fn an_error_written_into_an_open_event_is_a_failure_even_with_a_terminal() {
        let both = format!("{TOKEN}\n{ERROR}");
        let half = format!("{}\n{ERROR}", &TOKEN[..20]);
        for event in [both, half] {
            for events in [&[event.as_str()][..], &[TOKEN, &event, FINISH, DONE]] {
                let (outcome, detail, _) = ended(events, CleanEnd);
                let detail = detail.unwrap();
                assert_eq!(outcome, Outcome::MalformedEvent);
                assert!(detail.message.ends_with(": boom"), "{}", detail.message);
                assert_eq!(detail.body_start, event.as_bytes());
            }
        }
    }

    #[test]
    fn the_block_that_was_open_at_a_clean_end_counts() {
        let tail = |events: &[&str], tail: &str| {
            let mut account = StreamAccount::new(Dialect::Chat);
            account.start(TextRule::default());
            for event in events {
                account.on_event(b"", event.as_bytes());
            }
            account.on_tail(b"", tail.as_bytes());
            (account.conclude(CleanEnd).0, account.counters().events, account.counters().malformed_events)
        };
        assert_eq!(tail(&[TOKEN], DONE), (Outcome::Ok, 2, 0));
        assert_eq!(tail(&[TOKEN], FINISH), (Outcome::Ok, 2, 0));
        assert_eq!(tail(&[TOKEN], ERROR), (Outcome::ServerErrorInStream, 2, 0));
        assert_eq!(tail(&[TOKEN, DONE], TOKEN), (Outcome::Ok, 2, 0));
        // Half an event is how a cut answer ends.
        assert_eq!(tail(&[TOKEN], &TOKEN[..20]), (Outcome::TruncatedStream, 2, 1));
    }
}
