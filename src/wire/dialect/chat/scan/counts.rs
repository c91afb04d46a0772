//! The token counts of a chunk: where servers put them, and which of several are believed.

use super::Scan;
use crate::record::Usage;
use crate::wire::dialect::chat::keys::{GroqKey, TimingsKey, UsageKey};
use crate::wire::dialect::chat::value::usage_of_timings;
use crate::wire::dialect::keys::Seen;
use crate::wire::dialect::walk::Walk;

/// Where token counts stand, in the order in which they are believed: Groq repeats the top level in `x_groq`,
/// llama.cpp repeats it in `timings`, and of several choices the first counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Top,
    Choice,
    Groq,
    Timings,
    Nowhere,
}

impl Scan<'_, '_> {
    #[inline]
    pub(super) fn usage(&mut self, place: Place) -> Option<()> {
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

    /// Groq's own object: a copy of the counts, and errors.
    pub(super) fn groq(&mut self) -> Option<()> {
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

    /// llama.cpp's own object.
    pub(super) fn timings(&mut self) -> Option<()> {
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
