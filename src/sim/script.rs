//! The emission schedule of one answer: which event is due when, and which tokens it carries.
//!
//! Pure and deterministic: the schedule follows from the options, the request, its arrival number and its arrival
//! instant. Every instant is absolute (arrival + time to first token + the gaps so far), so a late event does not
//! delay those after it. Does not know how events look on the wire (see `endpoint`) or whether they were sent.

use crate::sim::endpoint::ask::Ask;
use crate::sim::endpoint::layout::{Frame, Layout, Write};
use crate::sim::endpoint::wish::Wish;
use crate::sim::ledger::EventKind;
use crate::sim::options::SimOptions;
use crate::sim::random::{Lane, Purpose};
use crate::units::Nanos;

/// One event to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// What the ledger says of it.
    pub(crate) planned: Planned,
    /// First token of its text, counted within the reasoning or the content.
    pub(crate) first_token: u64,
    /// How it is written.
    pub(crate) write: Write,
}

/// An event as the ledger names it before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    /// What it is.
    pub(crate) kind: EventKind,
    /// Position among the answer's events, from 0.
    pub(crate) index: u32,
    /// When it is due, on CLOCK_MONOTONIC.
    pub(crate) due: Nanos,
    /// How many tokens its text has; 0 for events without text.
    pub(crate) tokens: u32,
}

/// The words of an answer, and how many of them.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    words: Lane,
    wish: Wish,
    /// Tokens of reasoning.
    pub(crate) reasoning_tokens: u64,
    /// Tokens of visible content.
    pub(crate) content_tokens: u64,
    /// Whether the limit, not the answer's own end, ends it.
    pub(crate) cut_by_limit: bool,
}

/// The schedule of one answer.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    layout: &'static Layout,
    answer: Answer,
    gaps: Lane,
    chunks: Lane,
    stage: Stage,
    /// Events of the current stage already handed out.
    place: usize,
    arrival: Nanos,
    /// When the latest output is due, or the first one.
    due: Nanos,
    index: u32,
    /// Output events so far: the counter of gaps and chunk sizes.
    outputs: u64,
    /// Tokens of the current stage already handed out.
    emitted: u64,
    include_usage: bool,
}

/// Where a schedule is in its layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    AtOnce,
    Opening,
    ReasoningOpen,
    Reasoning,
    ReasoningClose,
    ContentOpen,
    Content,
    ContentClose,
    Closing,
    Over,
}

impl Answer {
    /// The `number`-th answer (from 0), to a request at an endpoint with this layout.
    pub(crate) fn new(options: &SimOptions, layout: &Layout, ask: &Ask, number: u64) -> Self {
        let lane = |purpose| Lane::new(options.seed, number, purpose);
        let limit = ask.limit_or_default();
        let reasoning = match layout.reasoning {
            Some(_) => options.reasoning_tokens.draw(lane(Purpose::ReasoningTokens), number).min(limit),
            None => 0,
        };
        let room = limit - reasoning;
        let own_end = match (&ask.wish, &options.tokens) {
            // The prompt dictates the answer: the marker counts as one token, each word as one.
            (Wish { code_words: Some(words), marker }, _) => {
                Some(words.saturating_add(u64::from(marker.is_some())))
            }
            (_, Some(tokens)) => Some(tokens.draw(lane(Purpose::Tokens), number)),
            (_, None) => None,
        };
        // As an engine does: the end of the answer is not looked at before there are `min_tokens`, or not at all.
        let own_end = own_end.filter(|_| !ask.ignore_eos);
        let wanted = own_end.map_or(room, |own| own.max(ask.min_tokens.saturating_sub(reasoning)));
        let content = wanted.min(room);
        let cut_by_limit = ask.limit == Some(reasoning + content) || content < wanted || ask.ignore_eos;
        Self {
            words: lane(Purpose::Words),
            wish: ask.wish.clone(),
            reasoning_tokens: reasoning,
            content_tokens: content,
            cut_by_limit,
        }
    }

    /// All tokens.
    pub(crate) const fn tokens(&self) -> u64 {
        self.reasoning_tokens + self.content_tokens
    }

    /// Appends the text of some tokens. The text of consecutive tokens joined is the whole answer: words separated by
    /// single spaces, none at either end. Plain ASCII without quotes and backslashes, so it is its own JSON form.
    pub(crate) fn write_text(&self, kind: EventKind, first: u64, count: u32, out: &mut Vec<u8>) {
        for token in first..first.saturating_add(u64::from(count)) {
            if token > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(self.word(kind, token));
        }
    }

    fn word(&self, kind: EventKind, token: u64) -> &[u8] {
        if kind == EventKind::Content {
            if token == 0
                && let Some(marker) = &self.wish.marker
            {
                return marker.as_bytes();
            }
            if self.wish.code_words.is_some() {
                return b"code";
            }
        }
        // Reasoning and content draw from the two halves of the counter range, so that they differ.
        let counter = if kind == EventKind::Reasoning { token ^ (1 << 63) } else { token };
        let place = self.words.bits(counter) % (LEXICON.len() as u64);
        usize::try_from(place).ok().and_then(|place| LEXICON.get(place)).copied().unwrap_or("word").as_bytes()
    }
}

impl Script {
    /// The schedule of an answer to a request that was complete at `arrival`.
    pub(crate) fn new(
        options: &SimOptions,
        layout: &'static Layout,
        answer: Answer,
        number: u64,
        arrival: Nanos,
        include_usage: bool,
    ) -> Self {
        Self {
            layout,
            answer,
            gaps: Lane::new(options.seed, number, Purpose::Gap),
            chunks: Lane::new(options.seed, number, Purpose::ChunkTokens),
            stage: Stage::AtOnce,
            place: 0,
            arrival,
            due: first_due(options, number, arrival),
            index: 0,
            outputs: 0,
            emitted: 0,
            include_usage,
        }
    }

    /// The answer.
    pub(crate) const fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The next event, `None` after the last. What frames the output is due together with the output before it, or
    /// with the first one; only what the layout sends at once is due at the arrival.
    pub(crate) fn next(&mut self, options: &SimOptions) -> Option<Step> {
        let layout = self.layout;
        loop {
            let frames = match (self.stage, &layout.reasoning) {
                (Stage::Reasoning, Some(block)) if self.emitted < self.answer.reasoning_tokens => {
                    return Some(self.output(&block.delta, self.answer.reasoning_tokens, options));
                }
                (Stage::Content, _) if self.emitted < self.answer.content_tokens => {
                    return Some(self.output(&layout.content.delta, self.answer.content_tokens, options));
                }
                (Stage::AtOnce, _) => layout.at_once,
                (Stage::Opening, _) => layout.opening,
                (Stage::ReasoningOpen, Some(block)) if self.answer.reasoning_tokens > 0 => block.open,
                (Stage::ReasoningClose, Some(block)) if self.answer.reasoning_tokens > 0 => block.close,
                (Stage::ContentOpen, _) if self.answer.content_tokens > 0 => layout.content.open,
                (Stage::ContentClose, _) if self.answer.content_tokens > 0 => layout.content.close,
                (Stage::Closing, _) => layout.closing,
                (Stage::Over, _) => return None,
                _ => &[],
            };
            match frames.get(self.place) {
                Some(frame) => {
                    self.place += 1;
                    if frame.kind != EventKind::Usage || self.include_usage {
                        let due = if self.stage == Stage::AtOnce { self.arrival } else { self.due };
                        return Some(self.step(frame, due, 0, 0));
                    }
                }
                None => {
                    self.stage = self.stage.next();
                    self.place = 0;
                    self.emitted = 0;
                }
            }
        }
    }

    /// Moves all that is to come.
    pub(crate) const fn postpone(&mut self, by: Nanos) {
        self.arrival = Nanos(self.arrival.0.saturating_add(by.0));
        self.due = Nanos(self.due.0.saturating_add(by.0));
    }

    /// When the last event is due, and thus when an answer in one piece is. Walks through the whole schedule.
    pub(crate) fn last_due(mut self, options: &SimOptions) -> Nanos {
        while self.next(options).is_some() {}
        self.due
    }

    fn output(&mut self, frame: &Frame, total: u64, options: &SimOptions) -> Step {
        let (first_token, tokens) = self.take_tokens(options, total);
        self.step(frame, self.due, first_token, tokens)
    }

    fn step(&mut self, frame: &Frame, due: Nanos, first_token: u64, tokens: u32) -> Step {
        let planned = Planned { kind: frame.kind, index: self.index, due, tokens };
        self.index = self.index.saturating_add(1);
        Step { planned, first_token, write: frame.write }
    }

    /// Takes the tokens of one output event out of `total` and moves the due instant on, except before the first.
    fn take_tokens(&mut self, options: &SimOptions, total: u64) -> (u64, u32) {
        if self.outputs > 0 {
            let gap = options.itl.draw(self.gaps, self.outputs - 1);
            self.due = Nanos(self.due.0.saturating_add(gap.0));
        }
        let size = options.tokens_per_chunk.draw(self.chunks, self.outputs).max(1);
        let size = size.min(total - self.emitted);
        self.outputs += 1;
        let first = self.emitted;
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.emitted += u64::from(size);
        (first, size)
    }
}

impl Stage {
    const fn next(self) -> Self {
        match self {
            Self::AtOnce => Self::Opening,
            Self::Opening => Self::ReasoningOpen,
            Self::ReasoningOpen => Self::Reasoning,
            Self::Reasoning => Self::ReasoningClose,
            Self::ReasoningClose => Self::ContentOpen,
            Self::ContentOpen => Self::Content,
            Self::Content => Self::ContentClose,
            Self::ContentClose => Self::Closing,
            Self::Closing | Self::Over => Self::Over,
        }
    }
}

/// When the first output of the `number`-th answer is due; an answer without text is then due as a whole.
pub(crate) fn first_due(options: &SimOptions, number: u64, arrival: Nanos) -> Nanos {
    let wait = options.ttft.draw(Lane::new(options.seed, number, Purpose::FirstToken), number);
    Nanos(arrival.0.saturating_add(wait.0))
}

/// Words of the made-up text: short, common, and of different lengths, as tokens are.
const LEXICON: [&str; 64] = [
    "the", "river", "bends", "north", "of", "a", "small", "town", "where", "people", "mend", "their", "nets",
    "in", "early", "light", "and", "talk", "about", "weather", "boats", "or", "children", "who", "left",
    "for", "cities", "long", "ago", "every", "autumn", "geese", "cross", "grey", "water", "while", "old",
    "men", "count", "them", "from", "wooden", "bridge", "that", "nobody", "has", "painted", "since", "war",
    "ended", "its", "rails", "are", "warm", "at", "noon", "cold", "by", "evening", "we", "walk", "there",
    "often", "together",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::distribution::{CountDistribution, DurationDistribution, Shape};
    use crate::sim::endpoint::Route;
    use crate::sim::options::DEFAULT_TOKENS;

    fn span(shape: Shape) -> DurationDistribution {
        DurationDistribution::from_nanos(shape).unwrap()
    }

    fn count(shape: Shape) -> CountDistribution {
        CountDistribution::new(shape).unwrap()
    }

    fn options() -> SimOptions {
        SimOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            ttft: span(Shape::constant(1000.0).unwrap()),
            itl: span(Shape::trace(&[10.0, 20.0, 30.0]).unwrap()),
            tokens: None,
            reasoning_tokens: count(Shape::constant(0.0).unwrap()),
            tokens_per_chunk: count(Shape::constant(1.0).unwrap()),
            max_in_flight: None,
            ledger: None,
            cores: Vec::new(),
            seed: 1,
            exit_with_stdin: false,
        }
    }

    fn layout(path: &str) -> &'static Layout {
        let Some(Route::Generation(layout)) = Route::of(path) else { panic!("{path}") };
        layout
    }

    fn chat() -> &'static Layout {
        layout("/v1/chat/completions")
    }

    fn request(limit: Option<u64>, wish: Wish) -> Ask {
        Ask { model: "m".to_owned(), limit, stream: true, include_usage: true, wish, ..Ask::default() }
    }

    fn steps(options: &SimOptions, request: &Ask, number: u64) -> (Vec<Step>, Answer) {
        steps_of(chat(), options, request, number)
    }

    fn steps_of(
        layout: &'static Layout,
        options: &SimOptions,
        request: &Ask,
        number: u64,
    ) -> (Vec<Step>, Answer) {
        let answer = Answer::new(options, layout, request, number);
        let mut script =
            Script::new(options, layout, answer.clone(), number, Nanos(5), request.include_usage);
        (std::iter::from_fn(|| script.next(options)).collect(), answer)
    }

    fn text(steps: &[Step], answer: &Answer, kind: EventKind) -> String {
        let mut out = Vec::new();
        for step in steps.iter().filter(|s| s.planned.kind == kind) {
            answer.write_text(kind, step.first_token, step.planned.tokens, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn instants_are_arrival_plus_first_token_plus_gaps() {
        use EventKind::{Content, Done, Finish, Role, Usage};
        let (steps, answer) = steps(&options(), &request(Some(4), Wish::default()), 0);
        let seen: Vec<_> = steps
            .iter()
            .map(|s| (s.planned.kind, s.planned.index, s.planned.due.0, s.planned.tokens))
            .collect();
        assert_eq!(
            seen,
            [
                (Role, 0, 1005, 0),
                (Content, 1, 1005, 1),
                (Content, 2, 1015, 1),
                (Content, 3, 1035, 1),
                (Content, 4, 1065, 1),
                (Finish, 5, 1065, 0),
                (Usage, 6, 1065, 0),
                (Done, 7, 1065, 0)
            ]
        );
        assert!(answer.cut_by_limit);
        assert_eq!(text(&steps, &answer, Content).split(' ').count(), 4);
        let script = Script::new(&options(), chat(), answer, 0, Nanos(5), false);
        assert_eq!(script.last_due(&options()), Nanos(1065));
    }

    #[test]
    fn reasoning_comes_first_and_counts_against_the_limit() {
        let mut options = options();
        options.reasoning_tokens = count(Shape::constant(3.0).unwrap());
        options.tokens_per_chunk = count(Shape::constant(2.0).unwrap());
        let (steps, answer) = steps(&options, &request(Some(8), Wish::default()), 0);
        let outputs: Vec<_> = steps
            .iter()
            .filter(|s| s.planned.tokens > 0)
            .map(|s| (s.planned.kind, s.first_token, s.planned.tokens))
            .collect();
        use EventKind::{Content, Reasoning};
        assert_eq!(
            outputs,
            [(Reasoning, 0, 2), (Reasoning, 2, 1), (Content, 0, 2), (Content, 2, 2), (Content, 4, 1)]
        );
        assert_eq!((answer.reasoning_tokens, answer.content_tokens), (3, 5));
        assert_ne!(text(&steps, &answer, Reasoning), text(&steps, &answer, Content));
    }

    #[test]
    fn the_prompts_wishes_rule_the_text() {
        let wish = Wish { marker: Some("M_1".to_owned()), code_words: Some(3) };
        let (s, answer) = steps(&options(), &request(Some(64), wish.clone()), 0);
        assert_eq!(text(&s, &answer, EventKind::Content), "M_1 code code code");
        assert!(!answer.cut_by_limit);
        let (s, answer) = steps(&options(), &request(Some(3), wish), 0);
        assert_eq!(text(&s, &answer, EventKind::Content), "M_1 code code");
        assert!(answer.cut_by_limit);
        let words = Wish { marker: None, code_words: Some(2) };
        let (s, answer) = steps(&options(), &request(None, words), 0);
        assert_eq!(text(&s, &answer, EventKind::Content), "code code");
        let marker = Wish { marker: Some("M_2".to_owned()), code_words: None };
        let (s, answer) = steps(&options(), &request(Some(16), marker), 0);
        let all = text(&s, &answer, EventKind::Content);
        assert!(all.starts_with("M_2 ") && all.split(' ').count() == 16, "{all}");
    }

    #[test]
    fn drawn_lengths_end_by_themselves_or_by_the_limit() {
        let mut options = options();
        options.tokens = Some(count(Shape::uniform(5.0, 15.0).unwrap()));
        let (mut own_end, mut cut) = (0, 0);
        for number in 0..200 {
            let answer = Answer::new(&options, chat(), &request(Some(10), Wish::default()), number);
            assert!((5..=10).contains(&answer.content_tokens));
            if answer.cut_by_limit {
                cut += 1;
            } else {
                own_end += 1;
            }
            assert_eq!(answer.cut_by_limit, answer.content_tokens == 10);
        }
        assert!(own_end > 50 && cut > 50, "{own_end} {cut}");
        let answer = Answer::new(&options, chat(), &request(None, Wish::default()), 0);
        assert!(!answer.cut_by_limit);
    }

    #[test]
    fn an_empty_answer_still_has_its_frame() {
        let mut options = options();
        options.tokens = Some(count(Shape::constant(0.0).unwrap()));
        let (steps, _) = steps(&options, &request(Some(10), Wish::default()), 0);
        let kinds: Vec<_> = steps.iter().map(|s| s.planned.kind).collect();
        assert_eq!(kinds, [EventKind::Role, EventKind::Finish, EventKind::Usage, EventKind::Done]);
    }

    #[test]
    fn an_answer_may_have_to_go_on() {
        let mut options = options();
        options.tokens = Some(count(Shape::constant(3.0).unwrap()));
        let answer = |ask: Ask| {
            let answer = Answer::new(&options, chat(), &ask, 0);
            (answer.content_tokens, answer.cut_by_limit)
        };
        let ask = request(Some(10), Wish::default());
        assert_eq!(answer(ask.clone()), (3, false));
        assert_eq!(answer(Ask { min_tokens: 7, ..ask.clone() }), (7, false));
        assert_eq!(answer(Ask { min_tokens: 70, ..ask.clone() }), (10, true));
        assert_eq!(answer(Ask { ignore_eos: true, ..ask.clone() }), (10, true));
        assert_eq!(answer(Ask { ignore_eos: true, limit: None, ..ask }), (DEFAULT_TOKENS, true));
    }

    #[test]
    fn every_layout_frames_its_blocks_and_ends_with_its_terminal() {
        use EventKind::{Content, Done, Finish, Frame, Reasoning, Role, Usage};
        let mut options = options();
        options.reasoning_tokens = count(Shape::constant(1.0).unwrap());
        let kinds = |path: &str, limit: u64| {
            let (steps, answer) = steps_of(layout(path), &options, &request(Some(limit), Wish::default()), 0);
            assert_eq!(answer.tokens(), limit, "{path}");
            for (index, step) in (0..).zip(&steps) {
                assert_eq!(step.planned.index, index, "{path}");
            }
            steps.iter().map(|s| (s.planned.kind, s.planned.due.0)).collect::<Vec<_>>()
        };
        assert_eq!(
            kinds("/v1/completions", 2),
            [(Content, 1005), (Content, 1015), (Finish, 1015), (Usage, 1015), (Done, 1015)]
        );
        let (first, second) = (1005, 1015);
        assert_eq!(
            kinds("/v1/messages", 2),
            [
                (Role, first),
                (Frame, first),
                (Frame, first),
                (Reasoning, first),
                (Frame, first),
                (Frame, first),
                (Frame, first),
                (Content, second),
                (Frame, second),
                (Finish, second),
                (Done, second)
            ]
        );
        // What is not there is not framed: only the reasoning fits the limit.
        assert_eq!(
            kinds("/v1/responses", 1),
            [
                (Role, 5),
                (Frame, 5),
                (Frame, first),
                (Frame, first),
                (Reasoning, first),
                (Frame, first),
                (Frame, first),
                (Frame, first),
                (Done, first)
            ]
        );
    }

    #[test]
    fn the_seed_and_the_number_fix_everything() {
        let mut options = options();
        options.ttft = span(Shape::log_normal(8e7, 2e7).unwrap());
        options.itl = span(Shape::exponential(2e7).unwrap());
        options.tokens = Some(count(Shape::uniform(1.0, 50.0).unwrap()));
        options.tokens_per_chunk = count(Shape::uniform(1.0, 4.0).unwrap());
        let request = request(Some(60), Wish::default());
        let (first, answer) = steps(&options, &request, 7);
        let (again, same) = steps(&options, &request, 7);
        let planned = |steps: &[Step]| steps.iter().map(|s| (s.planned, s.first_token)).collect::<Vec<_>>();
        assert_eq!(planned(&first), planned(&again));
        assert_eq!(text(&first, &answer, EventKind::Content), text(&again, &same, EventKind::Content));
        assert_ne!(planned(&first), planned(&steps(&options, &request, 8).0));
        options.seed = 2;
        assert_ne!(planned(&first), planned(&steps(&options, &request, 7).0));
    }

    #[test]
    fn the_lexicon_is_plain() {
        assert!(
            LEXICON
                .iter()
                .all(|w| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase()) && *w != "code")
        );
    }
}
