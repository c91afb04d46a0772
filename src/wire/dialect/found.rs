//! What a scan found in one event, in a fixed number of places and without a copy of any text.

use super::template::Known;
use super::{ChoiceShape, EventSink, Facts, JsonText};
use crate::record::{OutputKind, Usage};

/// Choices, outputs and finish reasons of one event that fit. Servers send one choice per event, with one or two
/// kinds of output; an event with more is left to the full parse.
const MAX_PARTS: usize = 8;

/// What a scan found in an event.
#[derive(Debug, Clone, Copy)]
pub struct Scanned<'a> {
    parts: [Part<'a>; MAX_PARTS],
    /// How many of the parts count.
    used: usize,
    pub(super) usage: Option<Usage>,
    pub(super) role: bool,
    pub(super) empty_content: bool,
    pub(super) recognised: bool,
    pub(super) not_a_number: bool,
}

/// Something that goes to the sink; what follows a choice is the choice's.
#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Choice(u32),
    Output(OutputKind, &'a [u8]),
    Finish(&'a [u8]),
}

impl Default for Scanned<'_> {
    fn default() -> Self {
        Self {
            parts: [Part::Choice(0); MAX_PARTS],
            used: 0,
            usage: None,
            role: false,
            empty_content: false,
            recognised: false,
            not_a_number: false,
        }
    }
}

impl<'a> Scanned<'a> {
    /// Reports what was found.
    #[inline]
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

    /// Everything that goes to no sink.
    #[inline]
    pub(super) fn facts(&self) -> Facts {
        Facts {
            recognised: self.recognised,
            role: self.role,
            empty_content: self.empty_content,
            usage: self.usage,
            not_a_number: self.not_a_number,
            ..Facts::default()
        }
    }

    /// What is to be remembered of an event whose one output this is.
    pub(super) fn known(&self, choice: u32, kind: OutputKind) -> Known {
        let Self { usage, role, empty_content, recognised, not_a_number, .. } = *self;
        Known { choice, kind, usage, role, empty_content, recognised, not_a_number }
    }

    /// The one output of an event that has one choice and nothing else: its choice, kind and text.
    #[inline]
    pub(super) fn only_output(&self) -> Option<(u32, OutputKind, &'a [u8])> {
        match self.parts.get(..self.used)? {
            [Part::Choice(choice), Part::Output(kind, text)] => Some((*choice, *kind, text)),
            _ => None,
        }
    }

    /// Forgets what was found. The parts stay where they are, uncounted: clearing them costs more than a short event.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.usage = None;
        self.role = false;
        self.empty_content = false;
        self.recognised = false;
        self.not_a_number = false;
    }

    /// Begins a choice; `None` here and below: there is no room. Says where it stands.
    #[inline]
    pub(super) fn begin_choice(&mut self, index: u32) -> Option<usize> {
        let place = self.used;
        self.push(Part::Choice(index))?;
        Some(place)
    }

    /// Corrects the index of the choice at `place`.
    #[inline]
    pub(super) fn set_choice(&mut self, place: usize, index: u32) -> Option<()> {
        *self.parts.get_mut(place)? = Part::Choice(index);
        Some(())
    }

    /// Adds an output unless its text is empty.
    #[inline]
    pub(super) fn push_text(&mut self, kind: OutputKind, text: &'a [u8]) -> Option<()> {
        if text.is_empty() { Some(()) } else { self.push(Part::Output(kind, text)) }
    }

    /// Adds the output of the only choice unless its text is empty.
    #[inline]
    pub(super) fn push_only(&mut self, kind: OutputKind, text: &'a [u8]) -> Option<()> {
        if text.is_empty() {
            return Some(());
        }
        self.begin_choice(0)?;
        self.push_text(kind, text)
    }

    /// Adds a tool call, which is output by its name alone.
    #[inline]
    pub(super) fn push_call(&mut self, arguments: &'a [u8]) -> Option<()> {
        self.push(Part::Output(OutputKind::ToolCall, arguments))
    }

    /// Adds a finish reason.
    #[inline]
    pub(super) fn push_finish(&mut self, reason: &'a [u8]) -> Option<()> {
        self.push(Part::Finish(reason))
    }

    /// Whether there is content behind the choice at `place`.
    #[inline]
    pub(super) fn has_content_since(&self, place: usize) -> bool {
        let parts = self.parts.get(place..self.used).unwrap_or_default();
        parts.iter().any(|part| matches!(part, Part::Output(OutputKind::Content, _)))
    }

    #[inline]
    fn push(&mut self, part: Part<'a>) -> Option<()> {
        *self.parts.get_mut(self.used)? = part;
        self.used += 1;
        Some(())
    }
}
