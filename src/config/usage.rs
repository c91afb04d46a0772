//! What is wrong with what the user typed: one sentence that names the flag, or the file and line. The process then
//! ends with [`Exit::Usage`](crate::exit::Exit::Usage) and nothing was sent.
//!
//! No sentence repeats a value that may be a secret: not a URL, not a header field, not a stray argument.

use std::path::PathBuf;

/// A command line, a configuration file or a combination of flags that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// A value that cannot be read, or that is not what the flag takes.
    #[error("{flag} {reason}")]
    BadValue {
        /// The flag with its dashes.
        flag: String,
        /// What is wrong, as a predicate.
        reason: String,
    },
    /// A value outside what the flag allows.
    #[error("{flag} must be {allowed}")]
    OutOfRange {
        /// The flag with its dashes.
        flag: String,
        /// What is allowed.
        allowed: String,
    },
    /// Two flags that do not go together.
    #[error("{flag} does not go together with {other}: {reason}")]
    Contradiction {
        /// The flag with its dashes.
        flag: String,
        /// The other one.
        other: String,
        /// Why not.
        reason: String,
    },
    /// A flag, or what it names, is missing.
    #[error("{flag} is missing: {reason}")]
    Missing {
        /// The flag with its dashes.
        flag: String,
        /// What it is needed for.
        reason: String,
    },
    /// No such flag, or an argument without a flag.
    #[error("{0}")]
    Unknown(String),
    /// A configuration file that cannot be read or understood.
    #[error("{}{}: {reason}", path.display(), line.map(|n| format!(" line {n}")).unwrap_or_default())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, where there is one.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
}

impl UsageError {
    /// A value that cannot be read, or that is not what the flag takes; `reason` is a predicate.
    pub fn bad(flag: &str, reason: impl Into<String>) -> Self {
        Self::BadValue { flag: flag.to_owned(), reason: reason.into() }
    }

    /// A value outside of `allowed`.
    pub fn range(flag: &str, allowed: impl Into<String>) -> Self {
        Self::OutOfRange { flag: flag.to_owned(), allowed: allowed.into() }
    }

    /// Two flags that do not go together.
    pub fn clash(flag: &str, other: &str, reason: impl Into<String>) -> Self {
        Self::Contradiction { flag: flag.to_owned(), other: other.to_owned(), reason: reason.into() }
    }

    /// The flag that the sentence names first, with its dashes and without a value.
    #[must_use]
    pub fn flag(&self) -> Option<&str> {
        let named = match self {
            Self::BadValue { flag, .. }
            | Self::OutOfRange { flag, .. }
            | Self::Contradiction { flag, .. }
            | Self::Missing { flag, .. } => flag,
            Self::Unknown(_) | Self::File { .. } => return None,
        };
        named.split(' ').find(|word| word.starts_with("--"))
    }

    /// A flag, or what it names, is missing.
    pub fn missing(flag: &str, reason: impl Into<String>) -> Self {
        Self::Missing { flag: flag.to_owned(), reason: reason.into() }
    }
}
