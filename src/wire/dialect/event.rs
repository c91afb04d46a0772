//! One event, read by any protocol: the terminal, the memory, the scan, the full parse, in this order.

use super::found::Scanned;
use super::full::Parsed;
use super::template::Template;
use super::{ChoiceShape, EventSink, Facts, JsonText, Malformed, ServerError, full};

/// The terminal of the older endpoints. Servers and gateways that translate between protocols end the newer ones with
/// it too, so it ends an answer everywhere.
const DONE: &[u8] = b"[DONE]";

/// The type of events that report an error.
const ERROR_EVENT: &[u8] = b"error";

/// What the events of an endpoint mean, and its answers that were not streamed.
pub(super) trait Protocol {
    /// Scans the data of one event, white space trimmed, into `found`, and forgets what was in there. `None`: not
    /// certain, and `found` means nothing.
    ///
    /// A scan that is certain says what [`read_parsed`](Self::read_parsed) says, whatever the event's type, `error`
    /// aside.
    fn scan<'a>(data: &'a [u8], found: &mut Scanned<'a>) -> Option<()>;

    /// Reads a parsed event. `event` is its type, `data` its text.
    fn read_parsed(event: &[u8], data: &[u8], parsed: &Parsed, sink: &mut impl EventSink) -> Facts;

    /// Reads the parsed body of an answer that was not streamed.
    fn read_whole(parsed: &Parsed, sink: &mut impl EventSink) -> Facts;
}

/// Reads one event.
#[inline]
pub(super) fn read<P: Protocol>(
    event: &[u8],
    data: &[u8],
    template: &mut Template,
    sink: &mut impl EventSink,
) -> Facts {
    // TensorRT-LLM and others leave a space or a carriage return behind the data, Anthropic pads with spaces.
    let data = data.trim_ascii();
    if data == DONE {
        return Facts { terminal: true, recognised: true, ..Facts::default() };
    }
    if is_error_event(event) {
        return read_in_full::<P>(event, data, sink);
    }
    if let Some((known, text)) = template.recognise(data) {
        sink.choice(known.choice, ChoiceShape::Delta);
        sink.output(known.kind, JsonText::Raw(text));
        return known.facts();
    }
    let mut found = Scanned::default();
    if P::scan(data, &mut found).is_none() {
        return read_in_full::<P>(event, data, sink);
    }
    if let Some((choice, kind, text)) = found.only_output() {
        template.learn(data, text, || found.known(choice, kind));
    }
    found.report(sink)
}

/// Reads one event (not `[DONE]`) by the full parse alone.
pub(super) fn read_in_full<P: Protocol>(event: &[u8], data: &[u8], sink: &mut impl EventSink) -> Facts {
    match full::parse(data) {
        Ok(parsed) => P::read_parsed(event, data, &parsed, sink),
        Err(refusal) => Facts {
            malformed: Some(Box::new(Malformed { reason: refusal.reason, error: error_in_a_line(data) })),
            error: is_error_event(event).then(|| Box::new(ServerError::in_error_event(data, None))),
            invalid_utf8: refusal.invalid_utf8,
            ..Facts::default()
        },
    }
}

/// Whether an event's type says that it reports an error.
pub(super) fn is_error_event(event: &[u8]) -> bool {
    event.eq_ignore_ascii_case(ERROR_EVENT)
}

/// What the parse itself says about an event.
pub(super) fn facts_of(parsed: &Parsed) -> Facts {
    Facts { not_a_number: parsed.not_a_number, invalid_utf8: parsed.invalid_utf8, ..Facts::default() }
}

/// The error in one line of data that is not JSON as a whole: the event stream joins the lines of an event, so a
/// server that writes an error into an event it had not ended makes two texts of one.
fn error_in_a_line(data: &[u8]) -> Option<ServerError> {
    /// Two are seen; more would be a hostile server's way to make us parse.
    const MAX_LINES: usize = 16;

    data.split(|b| *b == b'\n').take(MAX_LINES).filter(|line| line.len() < data.len()).find_map(|line| {
        let parsed = full::parse(line).ok()?;
        let object = parsed.value.as_object()?;
        ServerError::in_object(object, object.contains_key("choices"))
    })
}
