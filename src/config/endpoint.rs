//! The endpoints that can be measured, and what tells them apart.

/// What is sent and how the answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Endpoint {
    /// `/chat/completions`.
    #[default]
    Chat,
    /// `/completions`.
    Completions,
    /// `/responses`.
    Responses,
    /// `/messages`, Anthropic's.
    Messages,
    /// `/embeddings`.
    Embeddings,
    /// Plain requests to the base URL as it stands.
    Http,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 6] =
        [Self::Chat, Self::Completions, Self::Responses, Self::Messages, Self::Embeddings, Self::Http];

    /// The name on the command line and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Embeddings => "embeddings",
            Self::Http => "http",
        }
    }

    /// Its path below the base; `None` where the base is the whole of it.
    #[must_use]
    pub const fn path(self) -> Option<&'static str> {
        Some(match self {
            Self::Chat => "/chat/completions",
            Self::Completions => "/completions",
            Self::Responses => "/responses",
            Self::Messages => "/messages",
            Self::Embeddings => "/embeddings",
            Self::Http => return None,
        })
    }

    /// Whether a model is named and given a prompt.
    #[must_use]
    pub const fn takes_prompts(self) -> bool {
        !matches!(self, Self::Http)
    }

    /// Whether a model generates text for it.
    #[must_use]
    pub const fn generates(self) -> bool {
        !matches!(self, Self::Embeddings | Self::Http)
    }
}
