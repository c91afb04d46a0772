//! Why the choices of an answer ended, as the server said it: kept so that recording it allocates nothing.

/// A finish reason of up to [`FinishReason::CAPACITY`] bytes, kept inline so that recording it allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishReason {
    bytes: [u8; Self::CAPACITY],
    len: u8,
}

impl FinishReason {
    /// No finish reason in use is longer (`content_filter` is 14 bytes, `malformed_function_call` 23).
    pub const CAPACITY: usize = 23;

    /// `None` when `text` does not fit.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::CAPACITY];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self { bytes, len: u8::try_from(text.len()).ok()? })
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.bytes.get(..usize::from(self.len)).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or_default()
    }
}

/// Finish reasons by choice index, in order of arrival. The usual one or two are inline; more choices, or longer
/// texts, go to the heap.
#[derive(Debug, Clone, Default)]
pub struct FinishReasons {
    inline: [Option<(u32, FinishReason)>; 2],
    more: Vec<(u32, String)>,
}

impl FinishReasons {
    /// A peer may name any number of choices; beyond this many reasons nothing more is kept.
    pub const MAX: usize = 1024;
    /// The reference keeps 128 characters of a reason.
    pub const MAX_CHARS: usize = 128;

    /// Forgets all reasons and keeps the storage.
    pub fn clear(&mut self) {
        self.inline = [None; 2];
        self.more.clear();
    }

    /// Adds a reason.
    pub fn push(&mut self, choice: u32, text: &str) {
        if self.more.is_empty()
            && let Some(reason) = FinishReason::new(text)
            && let Some(free) = self.inline.iter_mut().find(|slot| slot.is_none())
        {
            *free = Some((choice, reason));
        } else if self.more.len() < Self::MAX {
            self.more.push((choice, text.chars().take(Self::MAX_CHARS).collect()));
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inline.iter().all(Option::is_none) && self.more.is_empty()
    }

    /// `(choice index, reason)` in order of arrival; a choice may stand more than once.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        let inline = self.inline.iter().flatten().map(|(c, r)| (*c, r.as_str()));
        inline.chain(self.more.iter().map(|(c, r)| (*c, r.as_str())))
    }
}
