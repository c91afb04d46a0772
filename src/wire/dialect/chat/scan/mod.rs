//! The direct scan of one chat chunk: one pass over the bytes, no tree, no allocation.
//!
//! It is certain or it says so: `None` means that the full parse has to decide. Not certain are, besides
//! everything that is broken: any sign of an error (the full parse reads its shapes), a key that matters and
//! stands twice or is written with escapes, content in parts, counts that are no plain integers, choices that are
//! no objects, and more pieces than fit [`Scanned`]. None of these stands in the chunks that vLLM, SGLang,
//! llama.cpp, OpenAI or TensorRT-LLM send while they generate.

mod counts;

use super::keys::{ChoiceKey, DeltaKey, FunctionKey, ToolKey, TopKey};
use crate::record::OutputKind;
use crate::wire::dialect::cursor::Cursor;
use crate::wire::dialect::found::Scanned;
use crate::wire::dialect::keys::Seen;
use crate::wire::dialect::walk::Walk;
use counts::Place;

/// See [`Protocol::scan`](crate::wire::dialect::event::Protocol::scan).
pub(super) fn scan<'a>(data: &'a [u8], found: &mut Scanned<'a>) -> Option<()> {
    found.clear();
    let mut scan = Scan { cursor: Cursor::new(data), found, usage_place: Place::Nowhere };
    scan.top()?;
    scan.cursor.finish()?;
    scan.found.recognised |= scan.found.usage.is_some();
    scan.found.not_a_number = scan.cursor.not_a_number();
    // What is no chunk may be one of another protocol, which only the full parse looks for.
    scan.found.recognised.then_some(())
}

/// A scan under way.
struct Scan<'a, 'f> {
    cursor: Cursor<'a>,
    found: &'f mut Scanned<'a>,
    /// Where `found.usage` stood.
    usage_place: Place,
}

impl<'a> Scan<'a, '_> {
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
        let place = self.found.begin_choice(position)?;
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
                    scan.found.set_choice(place, index)
                }
                ChoiceKey::Delta => scan.delta(),
                ChoiceKey::FinishReason => scan.finish_reason(),
                ChoiceKey::Text => {
                    if !scan.cursor.null() {
                        text = scan.cursor.string()?;
                        scan.found.recognised = true;
                        scan.found.empty_content |= text.is_empty();
                    }
                    Some(())
                }
                ChoiceKey::Usage => scan.usage(Place::Choice),
                ChoiceKey::Message | ChoiceKey::Error => scan.only_null(),
                ChoiceKey::Other => None,
            }
        })?;
        if text.is_empty() || self.found.has_content_since(place) {
            return Some(());
        }
        self.found.push_text(OutputKind::Content, text)
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
                self.found.push_finish(reason)
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
        let (mut role_key, mut empty_content) = (false, false);
        // A delta has one of the two kinds of call; the order of two would not be certain.
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
                    role_key = true;
                    let role = scan.text_or_null()?;
                    scan.found.role |= !role.is_empty();
                    Some(())
                }
                DeltaKey::Content if scan.cursor.null() => Some(()),
                DeltaKey::Content => {
                    let text = scan.cursor.string()?;
                    empty_content = text.is_empty();
                    scan.found.push_text(OutputKind::Content, text)
                }
                DeltaKey::Refusal => {
                    let text = scan.text_or_null()?;
                    scan.found.push_text(OutputKind::Refusal, text)
                }
                DeltaKey::ReasoningContent => scan.text_or_null().map(|text| reasoning_content = text),
                DeltaKey::Reasoning => scan.text_or_null().map(|text| reasoning = text),
                DeltaKey::Other => None,
            }
        })?;
        self.found.empty_content |= empty_content && !role_key;
        let reasoning = if reasoning_content.is_empty() { reasoning } else { reasoning_content };
        self.found.push_text(OutputKind::Reasoning, reasoning)
    }

    fn tool_calls(&mut self) -> Option<()> {
        self.array(|scan, _| scan.tool_call()).map(|_| ())
    }

    fn tool_call(&mut self) -> Option<()> {
        let mut seen = Seen::default();
        self.object(|scan| match ToolKey::read(&mut scan.cursor)? {
            ToolKey::Other => scan.cursor.skip_value(),
            ToolKey::Function | ToolKey::Custom if scan.cursor.null() => Some(()),
            // As in a delta: one of the two, since the order of two would not be certain.
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
        self.found.push_call(text)
    }
}

impl<'a> Walk<'a> for Scan<'a, '_> {
    #[inline(always)]
    fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }
}
