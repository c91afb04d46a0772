//! The messages of a request: how much text they hold, and what the last one wishes. Folded while they are read, so
//! that a million empty messages cost no memory.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::ask::PromptSize;
use super::wish::Wish;

/// A list of messages.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// How many there are.
    pub(super) messages: u64,
    /// All their text.
    pub(super) content: Content,
}

/// A list of messages, or one text that stands for one.
#[derive(Debug, Default)]
pub(super) struct ConversationOrText(pub(super) Conversation);

/// What is kept of a message's content: a text, a list of parts, or null.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// How much text it is.
    pub(super) size: PromptSize,
    /// What its end wishes.
    pub(super) wish: Wish,
}

impl Content {
    /// A plain text.
    pub(super) fn from_text(text: &str) -> Self {
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        Self { size: PromptSize { bytes, ids: 0 }, wish: Wish::from_text(text) }
    }

    /// Appends a later text, whose wish is then the one that holds.
    pub(super) fn append(&mut self, later: Self) {
        self.size.add(later.size);
        self.wish = later.wish;
    }
}

#[derive(Deserialize)]
struct RawMessage {
    #[serde(default)]
    content: Content,
}

/// One part of a content list; parts that are no text (images, audio, tool results) count nothing.
#[derive(Deserialize)]
struct RawPart {
    text: Option<Content>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

impl<'de> Deserialize<'de> for Conversation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ConversationVisitor { or_text: false })
    }
}

impl<'de> Deserialize<'de> for ConversationOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ConversationVisitor { or_text: true }).map(Self)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message text, a list of parts, or null")
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::from_text(text))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content, A::Error> {
        let mut all = Content::default();
        while let Some(part) = parts.next_element::<RawPart>()? {
            if let Some(text) = part.text {
                all.append(text);
            }
        }
        Ok(all)
    }
}

struct ConversationVisitor {
    or_text: bool,
}

impl<'de> Visitor<'de> for ConversationVisitor {
    type Value = Conversation;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.or_text { "a text or a list of messages" } else { "a list of messages" })
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Conversation, E> {
        if !self.or_text {
            return Err(E::invalid_type(serde::de::Unexpected::Str(text), &self));
        }
        Ok(Conversation { messages: 1, content: Content::from_text(text) })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut messages: A) -> Result<Conversation, A::Error> {
        let mut all = Conversation::default();
        while let Some(message) = messages.next_element::<RawMessage>()? {
            all.messages = all.messages.saturating_add(1);
            all.content.append(message.content);
        }
        Ok(all)
    }
}
