//! The direct scan of one chat chunk: one pass over the bytes, no tree, no allocation.
//!
//! It is certain or it says so: `None` means that the full parse has to decide. Not certain are, besides
//! everything that is broken: any sign of an error (the full parse reads its shapes), a key that matters and
//! stands twice or is written with escapes, content in parts, counts that are no plain integers, choices that are
//! no objects, and more pieces than fit [`Scanned`]. None of these stands in the chunks that vLLM, SGLang,
//! llama.cpp, OpenAI or TensorRT-LLM send while they generate.

use super::keys::{ChoiceKey, DeltaKey, FunctionKey, GroqKey, Seen, TimingsKey, ToolKey, TopKey, UsageKey};
use super::value::usage_of_timings;
use crate::record::{OutputKind, Usage};
use crate::wire::dialect::cursor::Cursor;
use crate::wire::dialect::text::JsonText;
use crate::wire::dialect::{ChoiceShape, EventSink, Facts};

/// Choices, outputs and finish reasons of one event that fit. Servers send one choice per event, with one or two
/// kinds of output; an event with more is left to the full parse.
const MAX_PARTS: usize = 8;

/// What the scan found in an event.
#[derive(Debug, Clone, Copy)]
pub struct Scanned<'a> {
    parts: [Part<'a>; MAX_PARTS],
    used: usize,
    usage: Option<Usage>,
    role: bool,
    recognised: bool,
    not_a_number: bool,
}

#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Choice(u32),
    Output(OutputKind, &'a [u8]),
    Finish(&'a [u8]),
}

/// Scans the data of one event, white space trimmed, into `found`, and forgets what was in there. `None`: not
/// certain, and `found` means nothing.
#[must_use]
pub fn scan<'a>(data: &'a [u8], found: &mut Scanned<'a>) -> Option<()> {
    found.used = 0;
    found.usage = None;
    found.role = false;
    found.recognised = false;
    let mut scan = Scan { cursor: Cursor::new(data), found, usage_place: Place::Nowhere };
    scan.top()?;
    scan.cursor.finish()?;
    scan.found.recognised |= scan.found.usage.is_some();
    scan.found.not_a_number = scan.cursor.not_a_number();
    Some(())
}

impl Default for Scanned<'_> {
    fn default() -> Self {
        Self {
            parts: [Part::Choice(0); MAX_PARTS],
            used: 0,
            usage: None,
            role: false,
            recognised: false,
            not_a_number: false,
        }
    }
}

impl<'a> Scanned<'a> {
    /// The one output of an event that has one choice and nothing else: its choice, kind and text.
    pub(super) fn only_output(&self) -> Option<(u32, OutputKind, &'a [u8])> {
        match self.parts.get(..self.used)? {
            [Part::Choice(choice), Part::Output(kind, text)] => Some((*choice, *kind, text)),
            _ => None,
        }
    }

    /// Reports what was found.
    pub fn report(&self, sink: &mut impl EventSink) -> Facts {
        for part in self.parts.iter().take(self.used) {
            match *part {
                Part::Choice(index) => sink.choice(index, ChoiceShape::Delta),
                Part::Output(kind, text) => sink.output(kind, JsonText::Raw(text)),
                Part::Finish(reason) => sink.finish(JsonText::Raw(reason)),
            }
        }
        self.facts()
    }

    pub(super) fn facts(&self) -> Facts {
        Facts {
            recognised: self.recognised,
            role: self.role,
            usage: self.usage,
            not_a_number: self.not_a_number,
            ..Facts::default()
        }
    }

    #[inline]
    fn push(&mut self, part: Part<'a>) -> Option<()> {
        *self.parts.get_mut(self.used)? = part;
        self.used += 1;
        Some(())
    }

    /// Adds an output unless its text is empty.
    #[inline]
    fn push_output(&mut self, kind: OutputKind, text: &'a [u8]) -> Option<()> {
        if text.is_empty() { Some(()) } else { self.push(Part::Output(kind, text)) }
    }
}

/// Where token counts stand, in the order in which they are believed: Groq repeats the top level in `x_groq`,
/// llama.cpp repeats it in `timings`, and of several choices the first counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Top,
    Choice,
    Groq,
    Timings,
    Nowhere,
}

struct Scan<'a, 'f> {
    cursor: Cursor<'a>,
    found: &'f mut Scanned<'a>,
    /// Where `found.usage` stood.
    usage_place: Place,
}

impl<'a> Scan<'a, '_> {
    /// Walks the members of an object that begins at the cursor.
    #[inline(always)]
    fn object(&mut self, mut member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.cursor.eat(b'{')?;
        if !self.cursor.first(b'}') {
            return Some(());
        }
        loop {
            member(self)?;
            if !self.cursor.next(b'}')? {
                return Some(());
            }
        }
    }

    /// Walks the elements of an array that begins at the cursor; says how many there were.
    #[inline(always)]
    fn array(&mut self, mut element: impl FnMut(&mut Self, u32) -> Option<()>) -> Option<u32> {
        self.cursor.eat(b'[')?;
        let mut count = 0_u32;
        if !self.cursor.first(b']') {
            return Some(count);
        }
        loop {
            element(self, count)?;
            count += 1;
            if !self.cursor.next(b']')? {
                return Some(count);
            }
        }
    }

    /// Nothing but null is certain here.
    #[inline]
    fn only_null(&mut self) -> Option<()> {
        self.cursor.null().then_some(())
    }

    #[inline]
    fn top(&mut self) -> Option<()> {
        let mut seen = Seen::default();
        self.object(|scan| {
            let key = TopKey::read(&mut scan.cursor)?;
            if key == TopKey::Other {
                return scan.cursor.skip_value();
            }
            seen.once(key as u32)?;
            match key {
                TopKey::Choices => scan.choices(),
                TopKey::Usage => scan.usage(Place::Top),
                TopKey::Object => scan.object_name(),
                TopKey::XGroq => scan.groq(),
                TopKey::Timings => scan.timings(),
                TopKey::Error | TopKey::Detail | TopKey::Message => scan.only_null(),
                TopKey::Other => None,
            }
        })
    }

    /// `"object": "error"` makes the whole object an error.
    #[inline]
    fn object_name(&mut self) -> Option<()> {
        if self.cursor.eat_text(b"\"chat.completion.chunk\"") {
            return Some(());
        }
        if self.cursor.peek() != b'"' {
            return self.cursor.skip_value();
        }
        (self.cursor.plain_string()? != b"error").then_some(())
    }

    #[inline]
    fn choices(&mut self) -> Option<()> {
        if self.cursor.null() {
            return Some(());
        }
        let count = self.array(|scan, position| scan.choice(position))?;
        // An empty array is how a chunk with nothing but usage or filter results looks.
        self.found.recognised |= count == 0;
        Some(())
    }

    #[inline]
    fn choice(&mut self, position: u32) -> Option<()> {
        let begin = self.found.used;
        self.found.push(Part::Choice(position))?;
        let mut seen = Seen::default();
        let mut text: &[u8] = b"";
        self.object(|scan| {
            let key = ChoiceKey::read(&mut scan.cursor)?;
            if key == ChoiceKey::Other {
                return scan.cursor.skip_value();
            }
            seen.once(key as u32)?;
            match key {
                ChoiceKey::Index => {
                    let index = u32::try_from(scan.cursor.count()??).ok()?;
                    *scan.found.parts.get_mut(begin)? = Part::Choice(index);
                    Some(())
                }
                ChoiceKey::Delta => scan.delta(),
                ChoiceKey::FinishReason => scan.finish_reason(),
                ChoiceKey::Text => {
                    if !scan.cursor.null() {
                        text = scan.cursor.string()?;
                        scan.found.recognised = true;
                    }
                    Some(())
                }
                ChoiceKey::Usage => scan.usage(Place::Choice),
                ChoiceKey::Message | ChoiceKey::Error => scan.only_null(),
                ChoiceKey::Other => None,
            }
        })?;
        if text.is_empty() || self.has_content_since(begin) {
            return Some(());
        }
        self.found.push(Part::Output(OutputKind::Content, text))
    }

    /// Whether the choice that began at part `begin` has content in its delta.
    fn has_content_since(&self, begin: usize) -> bool {
        let parts = self.found.parts.get(begin..self.found.used).unwrap_or_default();
        parts.iter().any(|part| matches!(part, Part::Output(OutputKind::Content, _)))
    }

    #[inline]
    fn finish_reason(&mut self) -> Option<()> {
        if self.cursor.null() {
            return Some(());
        }
        match self.cursor.plain_string()? {
            b"" => Some(()),
            b"error" => None,
            reason => {
                self.found.recognised = true;
                self.found.push(Part::Finish(reason))
            }
        }
    }

    #[inline]
    fn delta(&mut self) -> Option<()> {
        if self.cursor.null() {
            return Some(());
        }
        self.found.recognised = true;
        let mut seen = Seen::default();
        let (mut reasoning_content, mut reasoning): (&[u8], &[u8]) = (b"", b"");
        let mut calls = Seen::default();
        self.object(|scan| {
            let key = DeltaKey::read(&mut scan.cursor)?;
            if key == DeltaKey::Other {
                return scan.cursor.skip_value();
            }
            seen.once(key as u32)?;
            match key {
                DeltaKey::ToolCalls | DeltaKey::FunctionCall if scan.cursor.null() => Some(()),
                DeltaKey::ToolCalls => calls.once(0).and_then(|()| scan.tool_calls()),
                DeltaKey::FunctionCall => calls.once(0).and_then(|()| scan.function()),
                DeltaKey::Role => {
                    let role = scan.text_or_null()?;
                    scan.found.role |= !role.is_empty();
                    Some(())
                }
                DeltaKey::Content => {
                    let text = scan.text_or_null()?;
                    scan.found.push_output(OutputKind::Content, text)
                }
                DeltaKey::Refusal => {
                    let text = scan.text_or_null()?;
                    scan.found.push_output(OutputKind::Refusal, text)
                }
                DeltaKey::ReasoningContent => scan.text_or_null().map(|text| reasoning_content = text),
                DeltaKey::Reasoning => scan.text_or_null().map(|text| reasoning = text),
                DeltaKey::Other => None,
            }
        })?;
        let reasoning = if reasoning_content.is_empty() { reasoning } else { reasoning_content };
        self.found.push_output(OutputKind::Reasoning, reasoning)
    }

    /// A string, or empty for null.
    #[inline]
    fn text_or_null(&mut self) -> Option<&'a [u8]> {
        if self.cursor.null() { Some(b"") } else { self.cursor.string() }
    }

    fn tool_calls(&mut self) -> Option<()> {
        self.array(|scan, _| scan.tool_call()).map(|_| ())
    }

    fn tool_call(&mut self) -> Option<()> {
        let mut seen = Seen::default();
        self.object(|scan| match ToolKey::read(&mut scan.cursor)? {
            ToolKey::Other => scan.cursor.skip_value(),
            ToolKey::Function | ToolKey::Custom if scan.cursor.null() => Some(()),
            // One call has one of the two; the order of two would not be certain.
            ToolKey::Function | ToolKey::Custom => seen.once(0).and_then(|()| scan.function()),
        })
    }

    /// A function's name and arguments. Arguments that are an object are left to the full parse.
    fn function(&mut self) -> Option<()> {
        let mut seen = Seen::default();
        let (mut name, mut arguments, mut input): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        self.object(|scan| {
            let key = FunctionKey::read(&mut scan.cursor)?;
            if key == FunctionKey::Other {
                return scan.cursor.skip_value();
            }
            seen.once(key as u32)?;
            let text = scan.text_or_null()?;
            match key {
                FunctionKey::Name => name = text,
                FunctionKey::Arguments => arguments = text,
                FunctionKey::Input => input = text,
                FunctionKey::Other => {}
            }
            Some(())
        })?;
        let text = if arguments.is_empty() { input } else { arguments };
        if name.is_empty() && text.is_empty() {
            return Some(());
        }
        self.found.push(Part::Output(OutputKind::ToolCall, text))
    }

    #[inline]
    fn usage(&mut self, place: Place) -> Option<()> {
        if self.cursor.null() {
            return Some(());
        }
        self.usage_object(place)
    }

    fn usage_object(&mut self, place: Place) -> Option<()> {
        let mut usage = Usage::default();
        let (mut reasoning, mut cached, mut cache_hit) = (None, None, None);
        let mut seen = Seen::default();
        self.object(|scan| {
            let key = UsageKey::read(&mut scan.cursor)?;
            if key == UsageKey::Other {
                return scan.cursor.skip_value();
            }
            seen.once(key as u32)?;
            match key {
                UsageKey::Prompt => usage.prompt_tokens = scan.cursor.count()?,
                UsageKey::Completion => usage.completion_tokens = scan.cursor.count()?,
                UsageKey::Total => usage.total_tokens = scan.cursor.count()?,
                UsageKey::PromptDetails => usage.cached_tokens = scan.detail(UsageKey::Cached)?,
                UsageKey::CompletionDetails => usage.reasoning_tokens = scan.detail(UsageKey::Reasoning)?,
                UsageKey::Reasoning => reasoning = scan.cursor.count()?,
                UsageKey::Cached => cached = scan.cursor.count()?,
                UsageKey::CacheHit => cache_hit = scan.cursor.count()?,
                UsageKey::Other => {}
            }
            Some(())
        })?;
        usage.reasoning_tokens = usage.reasoning_tokens.or(reasoning);
        usage.cached_tokens = usage.cached_tokens.or(cached).or(cache_hit);
        self.keep_usage(place, usage);
        Some(())
    }

    /// Keeps counts unless there are none in them, or some from a better place.
    fn keep_usage(&mut self, place: Place, usage: Usage) {
        if place < self.usage_place && usage != Usage::default() {
            self.usage_place = place;
            self.found.usage = Some(usage);
        }
    }

    /// The count `wanted` in a details object.
    fn detail(&mut self, wanted: UsageKey) -> Option<Option<u64>> {
        if self.cursor.null() {
            return Some(None);
        }
        let mut count = None;
        let mut seen = Seen::default();
        self.object(|scan| {
            let key = UsageKey::read(&mut scan.cursor)?;
            if key != wanted {
                return scan.cursor.skip_value();
            }
            seen.once(key as u32)?;
            count = scan.cursor.count()?;
            Some(())
        })?;
        Some(count)
    }

    fn groq(&mut self) -> Option<()> {
        if self.cursor.null() {
            return Some(());
        }
        let mut seen = Seen::default();
        self.object(|scan| {
            let key = GroqKey::read(&mut scan.cursor)?;
            if key == GroqKey::Other {
                return scan.cursor.skip_value();
            }
            seen.once(key as u32)?;
            if key == GroqKey::Usage { scan.usage(Place::Groq) } else { scan.only_null() }
        })
    }

    fn timings(&mut self) -> Option<()> {
        if self.cursor.null() {
            return Some(());
        }
        let (mut prompt, mut cached, mut predicted) = (None, None, None);
        let mut seen = Seen::default();
        self.object(|scan| {
            let key = TimingsKey::read(&mut scan.cursor)?;
            if key == TimingsKey::Other {
                return scan.cursor.skip_value();
            }
            seen.once(key as u32)?;
            let count = scan.cursor.count()?;
            match key {
                TimingsKey::Prompt => prompt = count,
                TimingsKey::Cached => cached = count,
                TimingsKey::Predicted => predicted = count,
                TimingsKey::Other => {}
            }
            Some(())
        })?;
        self.keep_usage(Place::Timings, usage_of_timings(prompt, cached, predicted));
        Some(())
    }
}
