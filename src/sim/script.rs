//! The emission schedule of one answer: which event is due when, and which tokens it carries.
//!
//! Pure and deterministic: the schedule follows from the options, the request, its arrival number and its arrival
//! instant. Every instant is absolute (arrival + time to first token + the gaps so far), so a late event does not
//! delay those after it. Does not know how events look on the wire (see `framing`) or whether they were sent.

use crate::sim::chat::{ChatRequest, Wish};
use crate::sim::ledger::EventKind;
use crate::sim::options::SimOptions;
use crate::sim::random::{Lane, Purpose};
use crate::units::Nanos;

/// One event to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// What it is.
    pub(crate) kind: EventKind,
    /// Position among the answer's events, from 0.
    pub(crate) index: u32,
    /// When it is due, on CLOCK_MONOTONIC.
    pub(crate) due: Nanos,
    /// First token of its text, counted within the reasoning or the content.
    pub(crate) first_token: u64,
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
    answer: Answer,
    gaps: Lane,
    chunks: Lane,
    stage: Stage,
    due: Nanos,
    index: u32,
    /// Output events so far: the counter of gaps and chunk sizes.
    outputs: u64,
    /// Tokens of the current stage already handed out.
    emitted: u64,
    include_usage: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Role,
    Reasoning,
    Content,
    Finish,
    Usage,
    Done,
    Over,
}

impl Answer {
    /// The answer to the `number`-th chat completion (from 0).
    pub(crate) fn new(options: &SimOptions, request: &ChatRequest, number: u64) -> Self {
        let lane = |purpose| Lane::new(options.seed, number, purpose);
        let limit = request.limit_or_default();
        let reasoning = options.reasoning_tokens.draw(lane(Purpose::ReasoningTokens), number).min(limit);
        let wanted = match (&request.wish, &options.tokens) {
            // The prompt dictates the answer: the marker counts as one token, each word as one.
            (Wish { code_words: Some(words), marker }, _) => {
                words.saturating_add(u64::from(marker.is_some()))
            }
            (_, Some(tokens)) => tokens.draw(lane(Purpose::Tokens), number),
            (_, None) => limit - reasoning,
        };
        let content = wanted.min(limit - reasoning);
        let cut_by_limit = request.limit == Some(reasoning + content) || content < wanted;
        Self {
            words: lane(Purpose::Words),
            wish: request.wish.clone(),
            reasoning_tokens: reasoning,
            content_tokens: content,
            cut_by_limit,
        }
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
        answer: Answer,
        number: u64,
        arrival: Nanos,
        include_usage: bool,
    ) -> Self {
        let first = options.ttft.draw(Lane::new(options.seed, number, Purpose::FirstToken), number);
        Self {
            answer,
            gaps: Lane::new(options.seed, number, Purpose::Gap),
            chunks: Lane::new(options.seed, number, Purpose::ChunkTokens),
            stage: Stage::Role,
            due: Nanos(arrival.0.saturating_add(first.0)),
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

    /// The next event, `None` after the last. The role is due together with the first output; finish, usage and the
    /// terminal are due together with the last one.
    pub(crate) fn next(&mut self, options: &SimOptions) -> Option<Step> {
        if self.stage == Stage::Reasoning && self.emitted == self.answer.reasoning_tokens {
            self.stage = Stage::Content;
            self.emitted = 0;
        }
        if self.stage == Stage::Content && self.emitted == self.answer.content_tokens {
            self.stage = Stage::Finish;
        }
        let (kind, next) = match self.stage {
            Stage::Role => (EventKind::Role, Stage::Reasoning),
            Stage::Reasoning => (EventKind::Reasoning, Stage::Reasoning),
            Stage::Content => (EventKind::Content, Stage::Content),
            Stage::Finish => (EventKind::Finish, if self.include_usage { Stage::Usage } else { Stage::Done }),
            Stage::Usage => (EventKind::Usage, Stage::Done),
            Stage::Done => (EventKind::Done, Stage::Over),
            Stage::Over => return None,
        };
        self.stage = next;
        let (first_token, tokens) = match kind {
            EventKind::Reasoning => self.take_tokens(options, self.answer.reasoning_tokens),
            EventKind::Content => self.take_tokens(options, self.answer.content_tokens),
            _ => (0, 0),
        };
        let step = Step { kind, index: self.index, due: self.due, first_token, tokens };
        self.index = self.index.saturating_add(1);
        Some(step)
    }

    /// When the last event is due, and thus when an answer in one piece is. Walks through the whole schedule.
    pub(crate) fn last_due(mut self, options: &SimOptions) -> Nanos {
        while self.next(options).is_some() {}
        self.due
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
            ledger: None,
            cores: Vec::new(),
            seed: 1,
            exit_with_stdin: false,
        }
    }

    fn request(limit: Option<u64>, wish: Wish) -> ChatRequest {
        ChatRequest { model: "m".to_owned(), prompt_bytes: 4, limit, stream: true, include_usage: true, wish }
    }

    fn steps(options: &SimOptions, request: &ChatRequest, number: u64) -> (Vec<Step>, Answer) {
        let answer = Answer::new(options, request, number);
        let mut script = Script::new(options, answer.clone(), number, Nanos(5), request.include_usage);
        (std::iter::from_fn(|| script.next(options)).collect(), answer)
    }

    fn text(steps: &[Step], answer: &Answer, kind: EventKind) -> String {
        let mut out = Vec::new();
        for step in steps.iter().filter(|s| s.kind == kind) {
            answer.write_text(kind, step.first_token, step.tokens, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn instants_are_arrival_plus_first_token_plus_gaps() {
        use EventKind::{Content, Done, Finish, Role, Usage};
        let (steps, answer) = steps(&options(), &request(Some(4), Wish::default()), 0);
        let seen: Vec<_> = steps.iter().map(|s| (s.kind, s.index, s.due.0, s.tokens)).collect();
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
        let script = Script::new(&options(), answer, 0, Nanos(5), false);
        assert_eq!(script.last_due(&options()), Nanos(1065));
    }

    #[test]
    fn reasoning_comes_first_and_counts_against_the_limit() {
        let mut options = options();
        options.reasoning_tokens = count(Shape::constant(3.0).unwrap());
        options.tokens_per_chunk = count(Shape::constant(2.0).unwrap());
        let (steps, answer) = steps(&options, &request(Some(8), Wish::default()), 0);
        let outputs: Vec<_> =
            steps.iter().filter(|s| s.tokens > 0).map(|s| (s.kind, s.first_token, s.tokens)).collect();
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
            let answer = Answer::new(&options, &request(Some(10), Wish::default()), number);
            assert!((5..=10).contains(&answer.content_tokens));
            if answer.cut_by_limit {
                cut += 1;
            } else {
                own_end += 1;
            }
            assert_eq!(answer.cut_by_limit, answer.content_tokens == 10);
        }
        assert!(own_end > 50 && cut > 50, "{own_end} {cut}");
        let answer = Answer::new(&options, &request(None, Wish::default()), 0);
        assert!(!answer.cut_by_limit);
    }

    #[test]
    fn an_empty_answer_still_has_its_frame() {
        let mut options = options();
        options.tokens = Some(count(Shape::constant(0.0).unwrap()));
        let (steps, _) = steps(&options, &request(Some(10), Wish::default()), 0);
        let kinds: Vec<_> = steps.iter().map(|s| s.kind).collect();
        assert_eq!(kinds, [EventKind::Role, EventKind::Finish, EventKind::Usage, EventKind::Done]);
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
        assert_eq!(first, again);
        assert_eq!(text(&first, &answer, EventKind::Content), text(&again, &same, EventKind::Content));
        assert_ne!(first, steps(&options, &request, 8).0);
        options.seed = 2;
        assert_ne!(first, steps(&options, &request, 7).0);
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
