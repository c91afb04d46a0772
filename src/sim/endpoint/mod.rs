//! What is served: a file for each endpoint, and the table of paths.
//!
//! An endpoint that generates text is a `Layout`: how its request is read, and which events frame the text. The
//! schedule, the sending and the ledger are the same for all of them. The others answer in one piece.

pub(crate) mod ask;
mod chat;
mod completions;
mod conversation;
pub(crate) mod embeddings;
mod inputs;
pub(crate) mod layout;
mod messages;
mod openai;
mod responses;
pub(crate) mod tokenize;
pub(crate) mod wish;

use ask::{Ask, BadBody};
use embeddings::Embeddings;
use layout::Layout;
use tokenize::Tokenize;

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Route {
    /// Generated text.
    Generation(&'static Layout),
    /// Vectors.
    Embeddings,
    /// Token counts.
    Tokenize,
    /// The list of models.
    Models,
    /// The health check.
    Health,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Generated text.
    Generation(&'static Layout, Ask),
    /// Vectors.
    Embeddings(Embeddings),
    /// Token counts.
    Tokenize(Tokenize),
    /// The list of models.
    Models,
    /// A sign of life.
    Health,
}

/// The form of error objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorShape {
    /// `{"error":{…,"code":400}}`, as vLLM writes it.
    OpenAi,
    /// `{"type":"error","error":{…}}`.
    Anthropic,
}

impl Route {
    /// The path's route, if there is one.
    pub(crate) fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::Generation(&chat::LAYOUT),
            "/v1/completions" => Self::Generation(&completions::LAYOUT),
            "/v1/responses" => Self::Generation(&responses::LAYOUT),
            "/v1/messages" => Self::Generation(&messages::LAYOUT),
            "/v1/embeddings" => Self::Embeddings,
            "/tokenize" => Self::Tokenize,
            "/v1/models" => Self::Models,
            "/health" => Self::Health,
            _ => return None,
        })
    }

    /// The only method it serves.
    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Generation(_) | Self::Embeddings | Self::Tokenize => "POST",
            Self::Models | Self::Health => "GET",
        }
    }

    /// Reads a request's body.
    ///
    /// # Errors
    /// [`BadBody`] with one sentence for the peer.
    pub(crate) fn read(self, body: &[u8]) -> Result<Asked, BadBody> {
        Ok(match self {
            Self::Generation(layout) => Asked::Generation(layout, (layout.read)(body)?),
            Self::Embeddings => Asked::Embeddings(Embeddings::read(body)?),
            Self::Tokenize => Asked::Tokenize(Tokenize::read(body)?),
            Self::Models => Asked::Models,
            Self::Health => Asked::Health,
        })
    }
}

impl ErrorShape {
    /// The form that clients of a path understand.
    pub(crate) fn of(path: &str) -> Self {
        if path == "/v1/messages" || path.starts_with("/v1/messages/") {
            Self::Anthropic
        } else {
            Self::OpenAi
        }
    }
}
