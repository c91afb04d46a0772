//! What the choices of one event carry, counted while it is read.
//!
//! Counts that are taken per choice ("deltas") and the texts kept grow here; what is counted once per event is left
//! to the account, which knows the rest of the event.

use super::capture::Texts;
use super::{ChoiceShape, EventMeaning, EventSink, JsonText};
use crate::record::{Counters, FinishReasons, OutputKind};

/// The choices seen, with output or without.
#[derive(Debug, Default)]
pub(super) struct ChoicesSeen {
    /// The index of the first.
    pub(super) first: Option<u32>,
    /// There was another index.
    pub(super) several: bool,
}

/// Takes what the choices of one event carry.
pub(super) struct Tally<'t> {
    counters: &'t mut Counters,
    finish: &'t mut FinishReasons,
    choices: &'t mut ChoicesSeen,
    texts: &'t mut Texts,
    meaning: EventMeaning,
    /// The current choice.
    choice: u32,
    /// Kinds of output of the current choice, one bit each.
    kinds: u8,
    /// The first output of the event is the current choice's.
    first_is_current: bool,
    /// The current choice repeats what was streamed before.
    repetition: bool,
}

impl<'t> Tally<'t> {
    /// For the next event of the answer that these belong to.
    #[inline]
    pub(super) fn new(
        counters: &'t mut Counters,
        finish: &'t mut FinishReasons,
        choices: &'t mut ChoicesSeen,
        texts: &'t mut Texts,
    ) -> Self {
        Self {
            counters,
            finish,
            choices,
            texts,
            meaning: EventMeaning::default(),
            choice: 0,
            kinds: 0,
            first_is_current: false,
            repetition: false,
        }
    }

    /// What the choices say about the meaning of the event.
    #[inline]
    pub(super) fn into_meaning(self) -> EventMeaning {
        self.meaning
    }
}

impl EventSink for Tally<'_> {
    #[inline]
    fn choice(&mut self, index: u32, shape: ChoiceShape) {
        let first = *self.choices.first.get_or_insert(index);
        self.choices.several |= first != index;
        self.choice = index;
        self.kinds = 0;
        self.first_is_current = false;
        // A server that streamed its answer may repeat it as a whole at the end; one that did not sends only that.
        self.repetition = shape == ChoiceShape::Message && self.counters.output_chunks > 0;
    }

    #[inline]
    fn output(&mut self, kind: OutputKind, text: JsonText<'_>) {
        if self.repetition {
            return;
        }
        match self.meaning.output {
            None => {
                self.meaning.output = Some(kind);
                self.meaning.choice = self.choice;
                self.first_is_current = true;
            }
            Some(first) if self.first_is_current && (kind as u8) < first as u8 => {
                self.meaning.output = Some(kind);
            }
            Some(_) => {}
        }
        let bit = 1_u8 << kind as u8;
        let new = u64::from(self.kinds & bit == 0);
        self.kinds |= bit;
        match kind {
            OutputKind::Reasoning => {
                self.counters.reasoning_deltas += new;
                self.meaning.reasoning = true;
            }
            OutputKind::Content => {
                self.counters.content_deltas += new;
                self.meaning.content = true;
            }
            OutputKind::ToolCall => self.meaning.tool_call = true,
            OutputKind::Refusal => self.meaning.refusal = true,
        }
        self.texts.push(kind, text);
    }

    #[inline]
    fn finish(&mut self, reason: JsonText<'_>) {
        self.meaning.finish = true;
        match reason.as_plain() {
            Some(text) => self.finish.push(self.choice, text),
            None => self.finish.push(self.choice, &reason.to_text()),
        }
    }
}
