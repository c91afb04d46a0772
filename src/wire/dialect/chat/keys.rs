//! The keys of a chat chunk that matter, object by object.
//!
//! A key that servers send and nobody reads is listed too, as skipped: it is recognised in one comparison then.

use crate::wire::dialect::keys::keys;

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
