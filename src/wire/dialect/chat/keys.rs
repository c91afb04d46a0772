//! The keys of a chat chunk that matter, object by object, and how they are found.
//!
//! A key that servers send and nobody reads is listed too, as skipped: it is recognised in one comparison then.

use crate::wire::dialect::cursor::Cursor;
use crate::wire::dialect::word::Prefix;

/// Keys seen so far in one object, so that a second one of the same name is noticed.
#[derive(Default)]
pub(super) struct Seen(u32);

impl Seen {
    /// `None` when `key` stood before.
    #[inline]
    pub(super) fn once(&mut self, key: u32) -> Option<()> {
        let bit = 1_u32.wrapping_shl(key);
        if self.0 & bit != 0 {
            return None;
        }
        self.0 |= bit;
        Some(())
    }
}

/// Declares the keys of one object that matter (the rest is skipped) as an enum with a reader: first the usual
/// spelling `"key":` by one comparison each, then whatever white space allows. A key with escapes is not certain.
macro_rules! keys {
    ($name:ident { $($key:ident = $text:literal,)+ } skipped { $($skipped:literal,)* }) => {
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($key,)+ Other }

        impl $name {
            /// Goes past the key and its colon, up to the value.
            #[inline(always)]
            pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
                let key = Self::usual(cursor).or_else(|| Self::unusual(cursor))?;
                cursor.skip_space();
                Some(key)
            }

            #[inline(always)]
            fn usual(cursor: &mut Cursor<'_>) -> Option<Self> {
                let window = cursor.window()?;
                $({
                    const KEY: &[u8] = concat!("\"", $text, "\":").as_bytes();
                    if cursor.eat_key(window, KEY, const { Prefix::of(KEY) }) {
                        return Some(Self::$key);
                    }
                })+
                $({
                    const KEY: &[u8] = concat!("\"", $skipped, "\":").as_bytes();
                    if cursor.eat_key(window, KEY, const { Prefix::of(KEY) }) {
                        return Some(Self::Other);
                    }
                })*
                None
            }

            fn unusual(cursor: &mut Cursor<'_>) -> Option<Self> {
                let text = cursor.plain_string()?;
                cursor.colon()?;
                $(if text == $text.as_bytes() { return Some(Self::$key); })+
                Some(Self::Other)
            }
        }
    };
}

keys!(TopKey {
    Choices = "choices", Object = "object", Usage = "usage", XGroq = "x_groq", Timings = "timings",
    Error = "error", Detail = "detail", Message = "message",
} skipped { "id", "created", "model", "system_fingerprint", "service_tier", "obfuscation", });

keys!(ChoiceKey {
    Index = "index", Delta = "delta", FinishReason = "finish_reason", Text = "text", Message = "message",
    Usage = "usage", Error = "error",
} skipped { "logprobs", "token_ids", "stop_reason", "matched_stop", });

keys!(DeltaKey {
    Content = "content", Role = "role", ReasoningContent = "reasoning_content", Reasoning = "reasoning",
    ToolCalls = "tool_calls", FunctionCall = "function_call", Refusal = "refusal",
} skipped {});

keys!(ToolKey { Function = "function", Custom = "custom", } skipped { "index", "id", "type", });

keys!(FunctionKey { Name = "name", Arguments = "arguments", Input = "input", } skipped {});

keys!(UsageKey {
    Prompt = "prompt_tokens", Completion = "completion_tokens", Total = "total_tokens",
    PromptDetails = "prompt_tokens_details", CompletionDetails = "completion_tokens_details",
    Reasoning = "reasoning_tokens", Cached = "cached_tokens", CacheHit = "prompt_cache_hit_tokens",
} skipped {});

keys!(GroqKey { Usage = "usage", Error = "error", } skipped { "id", });

keys!(TimingsKey { Prompt = "prompt_n", Cached = "cache_n", Predicted = "predicted_n", } skipped {});
