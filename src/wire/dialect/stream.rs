//! The running account of one answer: what its events carried, in the order in which they came.
//!
//! An account is reused from request to request and keeps its storage, so that an ordinary event costs no
//! allocation. It knows no clock: the caller stamps the events, using the [`EventMeaning`] of each. How the answer
//! ended is judged in the neighbouring `verdict`.

use super::capture::{TextRule, Texts};
use super::server_error::bounded;
use super::tally::{ChoicesSeen, Tally};
use super::whole::Whole;
use super::{Dialect, EventReader, Facts, MAX_IDENTIFIER_CHARS, Malformed, ServerError, full};
use crate::record::{CapturedText, Counters, FinishReasons, OutputKind, RequestRecord, Usage};

/// Bytes kept of an event that is not JSON: enough to recognise what it is.
const MAX_MALFORMED_BYTES: usize = 512;

/// What one event meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventMeaning {
    /// The kind of output it carried; of several kinds in one choice, the first in the order reasoning, content,
    /// tool call, refusal. `None`: it is no output chunk.
    pub output: Option<OutputKind>,
    /// The choice of that output (the first in the event); 0 where there is none.
    pub choice: u32,
    /// Some choice carried visible content.
    pub content: bool,
    /// Some choice carried reasoning.
    pub reasoning: bool,
    /// Some choice carried a tool call.
    pub tool_call: bool,
    /// Some choice carried a refusal.
    pub refusal: bool,
    /// Some choice carried a finish reason.
    pub finish: bool,
    /// It ends the answer.
    pub terminal: bool,
    /// It announced a role and carried nothing else.
    pub role_only: bool,
    /// It is no output, and a delta in it has an empty content and no role, or a choice of completions an empty text: a
    /// token without text of its own.
    pub textless: bool,
    /// It reported an error.
    pub error: bool,
    /// It is not JSON.
    pub malformed: bool,
    /// It is JSON without a meaning we know.
    pub unrecognised: bool,
    /// It came after the terminal and was not read.
    pub after_terminal: bool,
    /// The count of completion tokens so far, where the event carried one.
    pub completion_tokens: Option<u64>,
    /// How far that count rose since the output chunk before this one, or since the start: the tokens that came with
    /// this chunk, those included whose text an event without text held back. `None` where this chunk or the one before
    /// carries no count, where the count falls, in an answer with several choices, and in dialects without counts in
    /// their output chunks. 0 is possible: a server may cut the text of one token over two chunks.
    pub new_tokens: Option<u32>,
}

/// The account of one answer.
#[derive(Debug, Default)]
pub struct StreamAccount {
    reader: EventReader,
    pub(super) counters: Counters,
    pub(super) usage: Usage,
    pub(super) finish: FinishReasons,
    pub(super) done: bool,
    pub(super) choices: ChoicesSeen,
    pub(super) first_output_kind: Option<OutputKind>,
    role_chunk_first: bool,
    /// The count of completion tokens on the last output chunk; `None` when it had none.
    counted: Option<u64>,
    /// The answer was not streamed, and this is what it was.
    pub(super) whole: Option<Whole>,
    pub(super) error: Option<Box<ServerError>>,
    pub(super) malformed: Option<MalformedEvent>,
    /// The beginning of the first event without a meaning we know, and its type; the storage is reused.
    pub(super) unknown: UnknownEvent,
    pub(super) cut_after_terminal: bool,
    pub(super) texts: Texts,
}

/// The first event that was not JSON and no keep-alive either.
#[derive(Debug)]
pub(super) struct MalformedEvent {
    pub(super) what: Malformed,
    /// Its first bytes.
    pub(super) start: Vec<u8>,
    /// It was not ended by an empty line: an answer that was cut, rather than one that is broken.
    pub(super) unterminated: bool,
}

/// The first event that means nothing to us.
#[derive(Debug, Default)]
pub(super) struct UnknownEvent {
    event: Vec<u8>,
    start: Vec<u8>,
}

impl UnknownEvent {
    fn clear(&mut self) {
        self.event.clear();
        self.start.clear();
    }

    fn keep(&mut self, event: &[u8], data: &[u8]) {
        for (kept, whole) in [(&mut self.event, event), (&mut self.start, data)] {
            kept.extend_from_slice(whole.get(..MAX_MALFORMED_BYTES).unwrap_or(whole));
        }
    }

    /// What it calls itself: its type, else what its data name, else how they begin.
    pub(super) fn name(&self) -> String {
        let parsed = full::parse(&self.start).ok().map(|parsed| parsed.value);
        let said = |key: &str| parsed.as_ref()?.get(key)?.as_str();
        let (what, name) = if let Some(name) = said("type") {
            ("event type", name.to_owned())
        } else if !self.event.is_empty() {
            ("event type", String::from_utf8_lossy(&self.event).into_owned())
        } else if let Some(name) = said("object") {
            ("object", name.to_owned())
        } else {
            ("data", String::from_utf8_lossy(&self.start).into_owned())
        };
        format!("{what} {}", bounded(&name, MAX_IDENTIFIER_CHARS))
    }
}

impl StreamAccount {
    /// An account for answers in `dialect`.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self { reader: EventReader::new(dialect), ..Self::default() }
    }

    /// Begins the account of a new answer. Where texts are kept, these are visible text, reasoning and tool arguments,
    /// each up to the limit.
    pub fn start(&mut self, rule: TextRule) {
        self.reader.start();
        self.counters = Counters::default();
        self.usage = Usage::default();
        self.finish.clear();
        self.done = false;
        self.choices = ChoicesSeen::default();
        self.first_output_kind = None;
        self.role_chunk_first = false;
        self.counted = Some(0);
        self.whole = None;
        self.error = None;
        self.malformed = None;
        self.unknown.clear();
        self.cut_after_terminal = false;
        self.texts.start(rule);
    }

    /// Takes the next event. `event` is its type (empty: a plain message), `data` its data.
    pub fn on_event(&mut self, event: &[u8], data: &[u8]) -> EventMeaning {
        self.take(event, data, false)
    }

    /// Takes the block that was still open when the body ended cleanly. It counts as an event: old llama.cpp ends
    /// with a `[DONE]` like that.
    pub fn on_tail(&mut self, event: &[u8], data: &[u8]) -> EventMeaning {
        self.take(event, data, true)
    }

    /// Takes a comment line.
    pub fn on_comment(&mut self) {
        self.counters.keepalive_comments += 1;
    }

    /// Takes the value of a field named `error`. The standard ignores unknown fields; older llama.cpp servers
    /// report their errors in one.
    pub fn on_error_field(&mut self, value: &[u8]) {
        if self.done || self.error.is_some() {
            return;
        }
        let parsed = full::parse(value).ok().map(|parsed| parsed.value);
        self.error = Some(Box::new(ServerError::in_error_event(value, parsed.as_ref())));
    }

    /// How answers are read.
    pub(super) const fn dialect(&self) -> Dialect {
        self.reader.dialect()
    }

    /// The counts of events and chunks so far. Reads and bytes are the caller's and stay zero here.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The token counts so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The finish reasons so far.
    #[must_use]
    pub fn finish_reasons(&self) -> &FinishReasons {
        &self.finish
    }

    /// Whether the terminal came.
    #[must_use]
    pub fn done(&self) -> bool {
        self.done
    }

    /// What the first output chunk carried; of an answer that was not streamed, what it begins with.
    #[must_use]
    pub fn first_output_kind(&self) -> Option<OutputKind> {
        self.first_output_kind
    }

    /// Whether more than one choice index was seen.
    #[must_use]
    pub fn several_choices(&self) -> bool {
        self.choices.several
    }

    /// Whether the first event announced only a role.
    #[must_use]
    pub fn role_chunk_first(&self) -> bool {
        self.role_chunk_first
    }

    /// The first error that the server reported.
    #[must_use]
    pub fn server_error(&self) -> Option<&ServerError> {
        self.error.as_deref()
    }

    /// Whether the body was cut after the terminal; known once the account is concluded.
    #[must_use]
    pub fn cut_after_terminal(&self) -> bool {
        self.cut_after_terminal
    }

    /// The visible text, if text is kept. Several choices: in order of arrival.
    #[must_use]
    pub fn visible_text(&self) -> Option<&CapturedText> {
        self.texts.visible()
    }

    /// The reasoning text, if text is kept.
    #[must_use]
    pub fn reasoning_text(&self) -> Option<&CapturedText> {
        self.texts.reasoning()
    }

    /// The arguments of all tool calls, one after the other, if text is kept.
    #[must_use]
    pub fn tool_arguments(&self) -> Option<&CapturedText> {
        self.texts.tool_arguments()
    }

    /// Writes the account into a record. The record's own counts of reads, bytes and coalesced chunks stay, as do
    /// its outcome and its error.
    pub fn write_to(&self, record: &mut RequestRecord) {
        let own = record.counters;
        record.counters = Counters {
            reads: own.reads,
            coalesced_chunks: own.coalesced_chunks,
            bytes_sent: own.bytes_sent,
            bytes_received: own.bytes_received,
            body_bytes: own.body_bytes,
            ..self.counters
        };
        record.usage = self.usage;
        record.finish = self.finish.clone();
        record.first_output_kind = self.first_output_kind;
        record.several_choices = self.choices.several;
        record.role_chunk_first = self.role_chunk_first;
        record.cut_after_terminal = self.cut_after_terminal;
        record.text_truncated = self.texts.is_truncated();
        record.text = self.visible_text().map(|text| Box::new(text.clone()));
    }

    fn take(&mut self, event: &[u8], data: &[u8], unterminated: bool) -> EventMeaning {
        if self.done {
            self.counters.events_after_done += 1;
            return EventMeaning { after_terminal: true, ..EventMeaning::default() };
        }
        let mut tally = Tally::new(&mut self.counters, &mut self.finish, &mut self.choices, &mut self.texts);
        let mut facts = self.reader.read(event, data, &mut tally);
        let impossible = drop_impossible(&mut facts.usage);
        let mut meaning = tally.into_meaning();
        meaning.terminal = facts.terminal;
        meaning.error = facts.error.is_some();
        meaning.malformed = facts.malformed.is_some();
        meaning.unrecognised = !facts.recognised && meaning.output.is_none() && !meaning.malformed;
        meaning.role_only = facts.role && meaning.output.is_none() && !meaning.finish && !meaning.error;
        meaning.textless = facts.empty_content && meaning.output.is_none() && !meaning.error;
        meaning.completion_tokens = facts.usage.and_then(|usage| usage.completion_tokens);
        meaning.new_tokens = self.new_tokens(&meaning);
        if meaning.unrecognised && self.counters.unrecognised_events == 0 {
            self.unknown.keep(event, data);
        }
        self.count(&meaning, &facts);
        self.counters.tolerated_events += u64::from(impossible && !facts.not_a_number);
        self.keep(facts, data, unterminated);
        meaning
    }

    #[inline]
    fn new_tokens(&mut self, meaning: &EventMeaning) -> Option<u32> {
        meaning.output?;
        let before = std::mem::replace(&mut self.counted, meaning.completion_tokens);
        if self.choices.several || !matches!(self.dialect(), Dialect::Chat | Dialect::Completions) {
            return None;
        }
        u32::try_from(meaning.completion_tokens?.checked_sub(before?)?).ok()
    }

    #[inline]
    fn count(&mut self, meaning: &EventMeaning, facts: &Facts) {
        self.role_chunk_first |= meaning.role_only && self.counters.events == 0;
        if self.first_output_kind.is_none() {
            self.first_output_kind = meaning.output;
        }
        self.done = meaning.terminal;
        let counters = &mut self.counters;
        counters.events += 1;
        counters.output_chunks += u64::from(meaning.output.is_some());
        counters.content_chunks += u64::from(meaning.content);
        counters.reasoning_chunks += u64::from(meaning.reasoning);
        counters.tool_call_chunks += u64::from(meaning.tool_call);
        counters.refusal_chunks += u64::from(meaning.refusal);
        counters.textless_chunks += u64::from(meaning.textless);
        counters.usage_events += u64::from(facts.usage.is_some());
        counters.malformed_events += u64::from(meaning.malformed);
        counters.unrecognised_events += u64::from(meaning.unrecognised);
        counters.tolerated_events += u64::from(facts.not_a_number);
        counters.invalid_utf8_events += u64::from(facts.invalid_utf8);
    }

    #[inline]
    fn keep(&mut self, facts: Facts, data: &[u8], unterminated: bool) {
        if let Some(usage) = facts.usage {
            let cumulative = self.dialect() == Dialect::Messages;
            self.usage = later_usage(self.usage, usage, cumulative);
        }
        if let Some(error) = facts.error {
            self.error.get_or_insert(error);
        }
        if let Some(what) = facts.malformed
            && !is_keep_alive(data)
        {
            self.malformed.get_or_insert_with(|| MalformedEvent {
                what: *what,
                start: data.get(..MAX_MALFORMED_BYTES).unwrap_or(data).to_vec(),
                unterminated,
            });
        }
    }
}

/// Takes away what cannot be a count of tokens, and a report that says nothing else; whether there was any.
pub(super) fn drop_impossible(usage: &mut Option<Usage>) -> bool {
    let dropped = usage.as_mut().is_some_and(Usage::drop_impossible);
    if dropped {
        usage.take_if(|left| Usage { cache_counted_apart: false, ..*left } == Usage::default());
    }
    dropped
}

/// Gateways write their keep-alives into data: nothing, or a comment (`data: : OPENROUTER PROCESSING`). They are no
/// JSON and are counted as such, but they do not explain why an answer ended.
fn is_keep_alive(data: &[u8]) -> bool {
    matches!(data.trim_ascii_start().first(), None | Some(b':'))
}

/// The last report wins and nothing is ever added up. A report without completion tokens is a partial one and
/// changes only what it names, as does every report of a dialect whose reports are cumulative count by count.
fn later_usage(earlier: Usage, later: Usage, cumulative: bool) -> Usage {
    if later.completion_tokens.is_some() && !cumulative {
        return later;
    }
    Usage {
        prompt_tokens: later.prompt_tokens.or(earlier.prompt_tokens),
        completion_tokens: later.completion_tokens.or(earlier.completion_tokens),
        total_tokens: later.total_tokens.or(earlier.total_tokens),
        reasoning_tokens: later.reasoning_tokens.or(earlier.reasoning_tokens),
        cached_tokens: later.cached_tokens.or(earlier.cached_tokens),
        cache_creation_tokens: later.cache_creation_tokens.or(earlier.cache_creation_tokens),
        cache_counted_apart: later.cache_counted_apart || earlier.cache_counted_apart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Phase;
    use crate::units::Ticks;

    fn account(capture: Option<usize>) -> StreamAccount {
        let mut account = StreamAccount::new(Dialect::Chat);
        account.start(capture.map(TextRule::keep).unwrap_or_default());
        account
    }

    fn delta(account: &mut StreamAccount, choice: u32, delta: &str) -> EventMeaning {
        let json = format!(r#"{{"choices":[{{"index":{choice},"delta":{delta},"finish_reason":null}}]}}"#);
        account.on_event(b"", json.as_bytes())
    }

    #[test]
    fn a_token_without_text_is_told_from_a_role_and_from_nothing() {
        for (event, textless) in [
            (r#"{"choices":[{"index":0,"delta":{"content":""}}]}"#, true),
            (r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}"#, true),
            (r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#, false),
            (r#"{"choices":[{"index":0,"delta":{"role":null,"content":""}}]}"#, false),
            (r#"{"choices":[{"index":0,"delta":{"content":null}}]}"#, false),
            (r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#, false),
            (r#"{"choices":[{"index":0,"delta":{"content":"","reasoning":"a"}}]}"#, false),
            (r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#, false),
            (r#"{"choices":[{"index":0,"text":"","finish_reason":"stop"}]}"#, true),
            (r#"{"choices":[],"usage":{"completion_tokens":1}}"#, false),
        ] {
            // The second one has a key twice behind it, so that the full parse has to decide.
            for event in [event.to_owned(), event.replacen('{', r#"{"object":1,"object":2,"#, 1)] {
                let mut account = account(None);
                assert_eq!(account.on_event(b"", event.as_bytes()).textless, textless, "{event}");
                assert_eq!(account.counters().textless_chunks, u64::from(textless), "{event}");
            }
        }
    }

    #[test]
    fn a_number_that_cannot_be_a_count_of_tokens_is_none_and_is_told() {
        const HUGE: u64 = u64::MAX;
        // The second one has a key twice, so that the full parse has to decide.
        for start in ["{", r#"{"object":1,"object":2,"#] {
            let mut account = account(None);
            let event =
                format!(r#"{start}"choices":[],"usage":{{"prompt_tokens":7,"completion_tokens":{HUGE}}}}}"#);
            assert_eq!(account.on_event(b"", event.as_bytes()).completion_tokens, None);
            assert_eq!(account.usage(), Usage { prompt_tokens: Some(7), ..Usage::default() });
            let event = format!(r#"{start}"choices":[],"usage":{{"completion_tokens":{HUGE}}}}}"#);
            account.on_event(b"", event.as_bytes());
            assert_eq!((account.counters().usage_events, account.counters().tolerated_events), (1, 2));
            account.start(TextRule::default());
            account.on_whole(event.as_bytes());
            assert_eq!((account.usage(), account.counters().tolerated_events), (Usage::default(), 1));
        }
    }

    #[test]
    fn one_event_counts_once_per_kind_and_its_deltas_count_per_choice() {
        let mut account = account(Some(100));
        let meaning = account.on_event(
            b"message",
            br#"{"choices":[{"index":1,"delta":{"content":"a","reasoning":"b"}},{"index":0,"delta":{"content":"c"}}]}"#,
        );
        assert_eq!(meaning.output, Some(OutputKind::Reasoning));
        assert_eq!(meaning.choice, 1);
        assert!(meaning.content && meaning.reasoning && !meaning.tool_call && !meaning.refusal);
        let counters = account.counters();
        assert_eq!((counters.events, counters.output_chunks), (1, 1));
        assert_eq!((counters.content_chunks, counters.content_deltas), (1, 2));
        assert_eq!((counters.reasoning_chunks, counters.reasoning_deltas), (1, 1));
        assert!(account.several_choices());
        assert_eq!(account.visible_text().unwrap().text, "ac");
        assert_eq!(account.reasoning_text().unwrap().text, "b");
    }

    #[test]
    fn output_beside_something_deep_is_output() {
        for levels in [50, 100, 200, 100_000] {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            let event = format!(
                r#"{{"choices":[{{"index":0,"logprobs":{open}{close},"delta":{{"content":"a"}}}}]}}"#
            );
            let mut account = account(Some(100));
            let meaning = account.on_event(b"", event.as_bytes());
            assert_eq!((meaning.output, meaning.malformed), (Some(OutputKind::Content), false), "{levels}");
            assert_eq!(account.visible_text().unwrap().text, "a");
        }
    }

    #[test]
    fn parts_of_content_are_one_delta() {
        let mut account = account(Some(100));
        let meaning = delta(
            &mut account,
            0,
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"},{"type":"text","text":"m"}]},
                {"type":"text","text":"a"},"b",{"type":"text","text":""},{"type":"image_url","image_url":{}}]}"#,
        );
        assert_eq!(meaning.output, Some(OutputKind::Reasoning));
        assert_eq!(account.counters().content_deltas, 1);
        assert_eq!(account.counters().reasoning_deltas, 1);
        assert_eq!(account.visible_text().unwrap().text, "ab");
        assert_eq!(account.reasoning_text().unwrap().text, "hm");
    }

    #[test]
    fn white_space_is_output_and_nothing_is_not() {
        let mut account = account(None);
        assert_eq!(delta(&mut account, 0, r#"{"content":"\n"}"#).output, Some(OutputKind::Content));
        for nothing in [
            r#"{"content":""}"#,
            r#"{"content":null,"reasoning":"","tool_calls":[],"function_call":null}"#,
            r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"","arguments":""}}]}"#,
            r#"{"content":[]}"#,
            r#"{"content":7}"#,
            "{}",
        ] {
            let meaning = delta(&mut account, 0, nothing);
            assert_eq!(meaning.output, None, "{nothing}");
            assert!(!meaning.unrecognised && !meaning.role_only, "{nothing}");
        }
        assert_eq!(account.counters().output_chunks, 1);
        assert_eq!(account.visible_text(), None);
    }

    #[test]
    fn tool_calls_count_by_name_or_arguments_in_every_shape() {
        let mut account = account(Some(100));
        for call in [
            r#"{"tool_calls":[{"function":{"name":"f"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}"#,
            r#"{"tool_calls":[{"function":{"name":"g","arguments":{"b":1}}}]}"#,
            r#"{"tool_calls":[{"type":"custom","custom":{"name":"h","input":"x"}}]}"#,
            r#"{"function_call":{"name":"f","arguments":""}}"#,
        ] {
            assert_eq!(delta(&mut account, 0, call).output, Some(OutputKind::ToolCall), "{call}");
        }
        assert_eq!(account.counters().tool_call_chunks, 5);
        assert_eq!(account.tool_arguments().unwrap().text, r#"{"a":{"b":1}x"#);
        assert_eq!(account.first_output_kind(), Some(OutputKind::ToolCall));
    }

    #[test]
    fn the_last_usage_wins_whole_and_a_partial_one_changes_only_what_it_names() {
        let mut account = account(None);
        let usage = |account: &mut StreamAccount, json: &str| {
            account.on_event(b"", format!(r#"{{"choices":[],"usage":{json}}}"#).as_bytes()).completion_tokens
        };
        assert_eq!(
            usage(&mut account, r#"{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}"#),
            Some(1)
        );
        assert_eq!(usage(&mut account, "null"), None);
        assert_eq!(usage(&mut account, "{}"), None);
        assert_eq!(usage(&mut account, r#"{"cached_tokens":4}"#), None);
        assert_eq!(account.usage().completion_tokens, Some(1));
        assert_eq!(account.usage().cached_tokens, Some(4));
        assert_eq!(usage(&mut account, r#"{"prompt_tokens":9,"completion_tokens":3}"#), Some(3));
        assert_eq!(account.usage().total_tokens, None);
        assert_eq!(account.counters().usage_events, 3);
    }

    #[test]
    fn usage_is_looked_for_in_four_places_in_order() {
        let tokens = |json: &str| account(None).on_event(b"", json.as_bytes()).completion_tokens;
        let choice =
            r#""choices":[{"delta":{},"usage":{"completion_tokens":2}},{"usage":{"completion_tokens":9}}]"#;
        let groq = r#""x_groq":{"id":"r","usage":{"completion_tokens":3}}"#;
        let timings = r#""timings":{"cache_n":1,"prompt_n":2,"predicted_n":4}"#;
        let top = r#""usage":{"completion_tokens":1}"#;
        assert_eq!(tokens(&format!("{{{timings},{groq},{choice},{top}}}")), Some(1));
        assert_eq!(tokens(&format!("{{{timings},{groq},{choice},\"usage\":null}}")), Some(2));
        assert_eq!(tokens(&format!("{{{timings},{groq},\"usage\":{{}}}}")), Some(3));
        assert_eq!(tokens(&format!("{{{timings}}}")), Some(4));
        for odd in [
            "4294967296",
            "18446744073709551615",
            "-1",
            "1.0",
            "true",
            "\"1\"",
            "null",
            "1e2",
            "99999999999999999999",
        ] {
            assert_eq!(tokens(&format!(r#"{{"usage":{{"completion_tokens":{odd}}}}}"#)), None, "{odd}");
        }
        assert_eq!(tokens(r#"{"usage":{"completion_tokens":4294967295}}"#), Some(crate::record::MAX_TOKENS));
    }

    #[test]
    fn only_the_terminal_ends_and_nothing_after_it_counts() {
        let mut account = account(Some(9));
        assert!(!delta(&mut account, 0, r#"{"content":"a"}"#).terminal);
        assert!(account.on_event(b"", b" [DONE] \r").terminal);
        let late = delta(&mut account, 5, r#"{"content":"b"}"#);
        assert_eq!(late, EventMeaning { after_terminal: true, ..EventMeaning::default() });
        account.on_event(b"error", b"late");
        account.on_error_field(b"later");
        assert_eq!(account.counters().events, 2);
        assert_eq!(account.counters().events_after_done, 2);
        assert_eq!(account.visible_text().unwrap().text, "a");
        assert!(account.server_error().is_none() && !account.several_choices());
    }

    #[test]
    fn a_role_counts_as_role_chunk_only_alone_and_first() {
        let role = r#"{"role":"assistant","content":""}"#;
        let mut account = account(None);
        assert!(delta(&mut account, 0, role).role_only);
        assert!(account.role_chunk_first());
        account.start(TextRule::default());
        assert!(!delta(&mut account, 0, r#"{"role":"assistant","content":"a"}"#).role_only);
        assert!(delta(&mut account, 0, role).role_only);
        assert!(!account.role_chunk_first());
    }

    #[test]
    fn a_whole_message_counts_when_nothing_was_streamed_and_is_a_repetition_otherwise() {
        let whole = br#"{"choices":[{"index":0,"message":{"role":"assistant","content":"all"},"finish_reason":"stop"}]}"#;
        let mut account = account(Some(9));
        assert_eq!(account.on_event(b"", whole).output, Some(OutputKind::Content));
        account.start(TextRule::keep(9));
        delta(&mut account, 0, r#"{"content":"all"}"#);
        let repeated = account.on_event(b"", whole);
        assert_eq!((repeated.output, repeated.finish), (None, true));
        assert_eq!(account.visible_text().unwrap().text, "all");
        // Perplexity repeats the whole message beside every delta.
        let beside = br#"{"choices":[{"delta":{"content":"x"},"message":{"content":"allx"}}]}"#;
        account.on_event(b"", beside);
        assert_eq!(account.visible_text().unwrap().text, "allx");
    }

    #[test]
    fn what_is_not_quite_json_is_tolerated_and_counted() {
        let mut account = account(Some(99));
        let chunk = |content: &str| {
            format!(r#"{{"choices":[{{"delta":{{"content":"{content}"}},"logprobs":{{"l":-Infinity}}}}]}}"#)
        };
        for _ in 0..2 {
            account.on_event(b"", chunk("a").as_bytes());
        }
        let mut bytes = chunk("b?").into_bytes();
        let at = bytes.iter().position(|b| *b == b'?').unwrap();
        bytes[at] = 0xff;
        account.on_event(b"", &bytes);
        account.on_event(b"", br#"{"choices":[{"delta":{"content":"\ud83d"}}]}"#);
        account.on_event(b"", br#"{"choices":[{"delta":{"content":"\ude00"}}]}"#);
        let counters = account.counters();
        assert_eq!((counters.content_chunks, counters.malformed_events), (5, 0));
        assert_eq!((counters.tolerated_events, counters.invalid_utf8_events), (3, 1));
        assert_eq!(account.visible_text().unwrap().text, "aab\u{fffd}😀");
    }

    #[test]
    fn what_is_not_json_at_all_is_malformed_and_what_says_nothing_is_unrecognised() {
        let mut account = account(None);
        for text in ["", " ", ": OPENROUTER PROCESSING", "{", "hello", "{}{}"] {
            assert!(account.on_event(b"", text.as_bytes()).malformed, "{text:?}");
        }
        for text in ["{}", "[]", "1", "null", r#"{"ping":1}"#, r#"{"choices":null}"#, r#"{"choices":[null]}"#]
        {
            let meaning = account.on_event(b"ping", text.as_bytes());
            assert!(meaning.unrecognised && !meaning.malformed, "{text:?}");
        }
        // A chunk with nothing but filter results or usage has an empty array.
        assert!(!account.on_event(b"", br#"{"choices":[],"prompt_filter_results":[]}"#).unrecognised);
        assert_eq!(account.counters().malformed_events, 6);
        assert_eq!(account.counters().unrecognised_events, 7);
    }

    #[test]
    fn the_first_error_is_kept_and_output_beside_it_counts() {
        let mut account = account(None);
        let meaning = account.on_event(
            b"",
            br#"{"error":{"code":502,"message":"first"},"choices":[{"delta":{"content":"x"},"finish_reason":"error"}]}"#,
        );
        assert!(meaning.error && meaning.content && meaning.finish);
        account.on_event(b"error", b"second");
        assert_eq!(account.server_error().unwrap().message, "first");
        for (json, message) in [
            (r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#, "the finish reason is \"error\""),
            (r#"{"choices":[{"delta":{},"error":{"message":"c"},"finish_reason":"error"}]}"#, "c"),
            (r#"{"choices":[],"x_groq":{"id":"r","error":"g"}}"#, "g"),
            (r#"{"object":"error","message":"o"}"#, "o"),
        ] {
            account.start(TextRule::default());
            assert!(account.on_event(b"", json.as_bytes()).error, "{json}");
            assert_eq!(account.server_error().unwrap().message, message);
        }
        account.start(TextRule::default());
        account.on_error_field(br#"{"code":500,"message":"field","type":"server_error"}"#);
        assert_eq!(account.server_error().unwrap().message, "field");
    }

    #[test]
    fn a_record_keeps_its_own_counts() {
        let mut account = account(Some(5));
        delta(&mut account, 0, r#"{"content":"abc"}"#);
        account.on_comment();
        let mut record = RequestRecord::new(1, Phase::Measured, 0, Ticks(0));
        record.counters.reads = 7;
        record.counters.bytes_received = 8;
        account.write_to(&mut record);
        assert_eq!((record.counters.reads, record.counters.bytes_received), (7, 8));
        assert_eq!((record.counters.events, record.counters.keepalive_comments), (1, 1));
        assert_eq!(record.first_output_kind, Some(OutputKind::Content));
        assert_eq!(record.text.unwrap().text, "abc");
    }

    #[test]
    fn an_output_chunk_has_the_tokens_by_which_the_count_rose_since_the_one_before() {
        let event = |account: &mut StreamAccount, content: &str, count: &str| {
            let json =
                format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{content}"}}}}],"usage":{count}}}"#);
            account.on_event(b"", json.as_bytes()).new_tokens
        };
        let tokens = |count: u64| format!(r#"{{"prompt_tokens":9,"completion_tokens":{count}}}"#);
        let mut account = account(None);
        for (content, count, rise) in [
            ("", tokens(0), None),
            ("", tokens(1), None),
            ("ab", tokens(2), Some(2)),
            ("c", tokens(2), Some(0)),
            ("d", tokens(7), Some(5)),
            // Without a count, neither this chunk's tokens are known nor the next one's.
            ("e", "null".to_owned(), None),
            ("f", tokens(9), None),
            ("g", tokens(10), Some(1)),
            // A count that falls says nothing, and counting goes on from there.
            ("h", tokens(4), None),
            ("i", tokens(5), Some(1)),
            ("j", tokens(u64::MAX), None),
        ] {
            assert_eq!(event(&mut account, content, &count), rise, "{content} {count}");
        }
        let usage = format!(r#"{{"choices":[],"usage":{}}}"#, tokens(60));
        assert_eq!(account.on_event(b"", usage.as_bytes()).new_tokens, None);
        account.start(TextRule::default());
        assert_eq!(event(&mut account, "a", &tokens(1)), Some(1), "a new answer counts from zero");
        delta(&mut account, 1, r#"{"content":"b"}"#);
        assert_eq!(event(&mut account, "c", &tokens(3)), None, "two choices share the count");
    }

    #[test]
    fn only_dialects_that_count_as_they_go_tell_the_tokens_of_a_chunk() {
        let mut completions = StreamAccount::new(Dialect::Completions);
        completions.start(TextRule::default());
        let text = br#"{"choices":[{"text":"a"}],"usage":{"completion_tokens":3}}"#;
        assert_eq!(completions.on_event(b"", text).new_tokens, Some(3));
        let mut messages = StreamAccount::new(Dialect::Messages);
        messages.start(TextRule::default());
        let block = br#"{"type":"content_block_start","content_block":{"type":"text","text":"a"},"usage":{"output_tokens":3}}"#;
        let meaning = messages.on_event(b"", block);
        assert_eq!((meaning.completion_tokens, meaning.new_tokens), (Some(3), None));
    }
}
