//! The catalog: one row per metric, and everything that names, labels, explains or judges a metric reads the row.
//!
//! The metric ids that stand in documents are string literals of this file and of no other. A row without a formula
//! does not compile ([`crate::metrics::formula::value`] matches every id). Statistics of a metric are
//! [`crate::metrics::Statistic`]; how values are made is not here.

/// What a metric's numbers count in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Tokens.
    Tokens,
    /// Tokens per second.
    TokensPerSecond,
    /// Requests.
    Requests,
    /// Requests per second.
    RequestsPerSecond,
    /// A share between 0 and 1.
    Ratio,
}

/// What stands in a document for a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Many values, told by their [`crate::metrics::Distribution`].
    Distribution,
    /// One number for the whole run.
    RunRate,
}

/// What one value of a metric belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One request: [`crate::metrics::formula::value`].
    Request,
    /// One gap between two output chunks, pooled over requests: [`crate::metrics::gaps`].
    Gap,
    /// The run: [`crate::metrics::rates`].
    Run,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smaller numbers are better.
    LowerIsBetter,
    /// Larger numbers are better.
    HigherIsBetter,
    /// A description, not a merit.
    Neither,
}

/// One row of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The metric in code.
    pub id: MetricId,
    /// The metric in documents, flags and expressions.
    pub name: &'static str,
    /// The metric for people.
    pub title: &'static str,
    /// What its numbers count in.
    pub unit: Unit,
    /// Distribution or one number.
    pub kind: Kind,
    /// What one value belongs to.
    pub scope: Scope,
    /// Which way is better.
    pub direction: Direction,
    /// How a value is made, one sentence.
    pub definition: &'static str,
    /// When there is no value, one sentence. Failed and warm-up requests never have one and are not repeated here.
    pub excluded_when: &'static str,
    /// Version of the run document that first carried it.
    pub since: &'static str,
}

macro_rules! catalog {
    ($($id:ident: $name:literal, $title:literal, $unit:ident, $kind:ident, $scope:ident, $direction:ident;
       $definition:literal; $excluded_when:literal; $since:literal.)*) => {
        /// A metric in code; its row is [`MetricId::metric`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum MetricId {
            $(#[doc = $definition] $id,)*
        }

        /// Every metric, in the order in which documents show them.
        pub const CATALOG: &[Metric] = &[$(*MetricId::$id.metric(),)*];

        impl MetricId {
            /// The row of this metric.
            #[must_use]
            pub const fn metric(self) -> &'static Metric {
                match self {
                    $(Self::$id => &Metric {
                        id: Self::$id,
                        name: $name,
                        title: $title,
                        unit: Unit::$unit,
                        kind: Kind::$kind,
                        scope: Scope::$scope,
                        direction: Direction::$direction,
                        definition: $definition,
                        excluded_when: $excluded_when,
                        since: $since,
                    },)*
                }
            }
        }
    };
}

catalog! {
    TimeToFirstByte: "time_to_first_byte_ms", "Time to first byte", Milliseconds, Distribution, Request, LowerIsBetter;
        "first byte of the response minus send start"; "no byte came"; "1.0".
    TimeToFirstByteFromDue: "time_to_first_byte_from_due_ms", "Time to first byte, from due", Milliseconds, Distribution, Request, LowerIsBetter;
        "first byte of the response minus due"; "no byte came"; "1.0".
    TimeToFirstEvent: "time_to_first_event_ms", "Time to first event", Milliseconds, Distribution, Request, LowerIsBetter;
        "first event of any kind minus send start; role chunks count: this is what some tools call TTFT"; "no event came"; "1.0".
    TimeToFirstEventFromDue: "time_to_first_event_from_due_ms", "Time to first event, from due", Milliseconds, Distribution, Request, LowerIsBetter;
        "first event of any kind minus due; role chunks count"; "no event came"; "1.0".
    TimeToFirstOutput: "time_to_first_output_ms", "Time to first output", Milliseconds, Distribution, Request, LowerIsBetter;
        "first output chunk minus send start; reasoning counts"; "no output came"; "1.0".
    TimeToFirstOutputFromDue: "time_to_first_output_from_due_ms", "Time to first output, from due", Milliseconds, Distribution, Request, LowerIsBetter;
        "first output chunk minus due; reasoning counts"; "no output came"; "1.0".
    TimeToFirstOutputWire: "time_to_first_output_wire_ms", "Time to first output, on the wire", Milliseconds, Distribution, Request, LowerIsBetter;
        "first output chunk minus the instant at which the last byte of the request left this host, both by the kernel's stamps"; "no output came, or one of the two has no kernel stamp"; "1.1".
    Ttft: "ttft_ms", "Time to first token (visible)", Milliseconds, Distribution, Request, LowerIsBetter;
        "first visible content minus send start"; "no visible content came"; "1.0".
    TtftFromDue: "ttft_from_due_ms", "Time to first token (visible), from due", Milliseconds, Distribution, Request, LowerIsBetter;
        "first visible content minus due"; "no visible content came"; "1.0".
    TimeToFirstUsageToken: "time_to_first_usage_token_ms", "Time to first token (usage)", Milliseconds, Distribution, Request, LowerIsBetter;
        "first event whose count of completion tokens is above zero minus send start; it may come before any text"; "the server had counted no token when the first output came"; "1.1".
    TimeToFirstUsageTokenFromDue: "time_to_first_usage_token_from_due_ms", "Time to first token (usage), from due", Milliseconds, Distribution, Request, LowerIsBetter;
        "first event whose count of completion tokens is above zero minus due"; "the server had counted no token when the first output came"; "1.1".
    TimeToLastOutput: "time_to_last_output_ms", "Time to last output", Milliseconds, Distribution, Request, LowerIsBetter;
        "last output chunk minus send start"; "no output came"; "1.0".
    TimeToLastOutputFromDue: "time_to_last_output_from_due_ms", "Time to last output, from due", Milliseconds, Distribution, Request, LowerIsBetter;
        "last output chunk minus due"; "no output came"; "1.0".
    E2e: "e2e_ms", "End to end", Milliseconds, Distribution, Request, LowerIsBetter;
        "end of stream minus send start: the terminal event where one was read, else the end of the body"; "never"; "1.0".
    E2eFromDue: "e2e_from_due_ms", "End to end, from due", Milliseconds, Distribution, Request, LowerIsBetter;
        "end of stream minus due: the terminal event where one was read, else the end of the body"; "never"; "1.0".
    Generation: "generation_ms", "Generation", Milliseconds, Distribution, Request, LowerIsBetter;
        "end to end minus time to first output"; "no output came"; "1.0".
    VisibleGeneration: "visible_generation_ms", "Visible generation", Milliseconds, Distribution, Request, LowerIsBetter;
        "end to end minus time to first token"; "no visible content came"; "1.0".
    InterChunkLatency: "inter_chunk_latency_ms", "Inter-chunk latency", Milliseconds, Distribution, Gap, LowerIsBetter;
        "time between consecutive output chunks of one choice, pooled over requests; the mean is the sum of (last output minus first output) over the number of gaps";
        "one of the two chunks does not end its read: such a gap is counted apart and bounds the percentiles"; "1.0".
    InterTokenLatency: "inter_token_latency_ms", "Inter-token latency", Milliseconds, Distribution, Gap, LowerIsBetter;
        "time since the output chunk before that brought a token, over the tokens of the chunk, pooled over requests; the mean is the sum of these times over the sum of the tokens";
        "the server did not count the tokens of every output chunk, or there was more than one choice; a gap of which a chunk does not end its read is counted apart and bounds the percentiles"; "1.1".
    Tpot: "tpot_ms", "Time per output token", Milliseconds, Distribution, Request, LowerIsBetter;
        "(last output minus first output) over (output tokens minus the tokens of the first chunk, 1 where they are not known)";
        "fewer than two tokens or chunks, first and last output in one read, or more than one choice"; "1.0".
    DecodeTokS: "decode_tok_s", "Decode speed", TokensPerSecond, Distribution, Request, HigherIsBetter;
        "1000 over the time per output token in milliseconds"; "there is no time per output token, or it is zero"; "1.0".
    EffectivePrefillTokS: "effective_prefill_tok_s", "Effective prefill speed", TokensPerSecond, Distribution, Request, HigherIsBetter;
        "prompt tokens over time to first output"; "the server counted no prompt tokens, or no output came"; "1.0".
    OutputTokSPerUser: "output_tok_s_per_user", "Output speed per user", TokensPerSecond, Distribution, Request, HigherIsBetter;
        "output tokens over end to end"; "output tokens are unknown"; "1.0".
    PromptTokens: "prompt_tokens", "Prompt tokens", Tokens, Distribution, Request, Neither;
        "tokens of the whole prompt as the server counted them, those of its cache included"; "the server sent no count"; "1.0".
    OutputTokens: "output_tokens", "Output tokens", Tokens, Distribution, Request, Neither;
        "output tokens by the best source there is, reasoning included where the server includes it"; "no source knows the count"; "1.0".
    ReasoningTokens: "reasoning_tokens", "Reasoning tokens", Tokens, Distribution, Request, Neither;
        "reasoning tokens as the server counted them"; "the server sent no count"; "1.0".
    CachedTokens: "cached_tokens", "Cached tokens", Tokens, Distribution, Request, Neither;
        "prompt tokens that the server took from its prefix cache"; "the server sent no count"; "1.0".
    PrefixCacheHit: "prefix_cache_hit", "Prefix cache hit", Ratio, Distribution, Request, Neither;
        "cached tokens over prompt tokens"; "the server sent no count, counted no prompt tokens, or fewer of them than cached ones"; "1.0".
    SendLag: "send_lag_ms", "Send lag", Milliseconds, Distribution, Request, LowerIsBetter;
        "send start minus due"; "never"; "1.0".
    RequestWrite: "request_write_ms", "Request write", Milliseconds, Distribution, Request, LowerIsBetter;
        "last byte accepted by the kernel minus send start"; "the answer came before the request was written"; "1.0".
    Connect: "connect_ms", "Connect", Milliseconds, Distribution, Request, LowerIsBetter;
        "span of making the connection"; "the request used a connection that was there"; "1.0".
    RequestRate: "request_rate", "Request rate", RequestsPerSecond, RunRate, Run, HigherIsBetter;
        "ok requests over the measured time"; "nothing was measured"; "1.0".
    AttemptRate: "attempt_rate", "Attempt rate", RequestsPerSecond, RunRate, Run, Neither;
        "requests of any outcome over the measured time"; "nothing was measured"; "1.0".
    OutputTokS: "output_tok_s", "Output token rate", TokensPerSecond, RunRate, Run, HigherIsBetter;
        "output tokens of ok and of cut requests over the measured time"; "the output tokens of an ok request are unknown"; "1.0".
    TotalTokS: "total_tok_s", "Total token rate", TokensPerSecond, RunRate, Run, HigherIsBetter;
        "prompt and output tokens of ok and of cut requests over the measured time"; "the tokens of an ok request are unknown"; "1.0".
    PeakOutputTokS: "peak_output_tok_s", "Peak output token rate", TokensPerSecond, RunRate, Run, HigherIsBetter;
        "output tokens of the best second of the window, wherever it begins (in steps of 0.1 s), the tokens of a chunk spread over the gap before it"; "no output tokens are known"; "1.0".
    ConcurrencyMean: "concurrency_mean", "Mean concurrency", Requests, RunRate, Run, Neither;
        "requests in flight (send start to end), averaged over the measured time"; "nothing was measured"; "1.0".
    ConcurrencyMax: "concurrency_max", "Maximum concurrency", Requests, RunRate, Run, Neither;
        "most requests in flight at one instant"; "nothing was measured"; "1.0".
}

impl MetricId {
    /// The same latency from due; the metric itself where it has no such twin.
    #[must_use]
    pub const fn from_due(self) -> Self {
        match self {
            Self::TimeToFirstByte => Self::TimeToFirstByteFromDue,
            Self::TimeToFirstEvent => Self::TimeToFirstEventFromDue,
            Self::TimeToFirstOutput => Self::TimeToFirstOutputFromDue,
            Self::Ttft => Self::TtftFromDue,
            Self::TimeToFirstUsageToken => Self::TimeToFirstUsageTokenFromDue,
            Self::TimeToLastOutput => Self::TimeToLastOutputFromDue,
            Self::E2e => Self::E2eFromDue,
            other => other,
        }
    }
}

/// The row with this name in documents; `None` when there is none.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Metric> {
    CATALOG.iter().find(|metric| metric.name == name)
}

impl Unit {
    /// The unit in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Tokens => "tokens",
            Self::TokensPerSecond => "tok/s",
            Self::Requests => "requests",
            Self::RequestsPerSecond => "requests/s",
            Self::Ratio => "ratio",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let mut names: Vec<_> = CATALOG.iter().map(|m| m.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CATALOG.len());
        for metric in CATALOG {
            assert_eq!(by_name(metric.name), Some(metric));
            assert_eq!(metric.id.metric(), metric);
        }
        assert_eq!(by_name("TTFT_MS"), None);
    }

    #[test]
    fn a_name_ends_in_its_unit() {
        for m in CATALOG {
            let fits = match m.unit {
                Unit::Milliseconds => m.name.ends_with("_ms"),
                Unit::TokensPerSecond => m.name.contains("_tok_s"),
                Unit::Tokens => m.name.ends_with("_tokens"),
                Unit::RequestsPerSecond => m.name.ends_with("_rate"),
                Unit::Requests | Unit::Ratio => !m.name.ends_with("_ms") && !m.name.contains("_tok_s"),
            };
            assert!(fits, "{}", m.name);
        }
    }

    #[test]
    fn every_latency_from_send_start_has_its_twin_from_due() {
        let from_send = CATALOG.iter().filter(|m| {
            m.scope == Scope::Request
                && m.definition.contains("minus send start")
                && m.id != MetricId::RequestWrite
        });
        let mut twins = 0;
        for m in from_send {
            let stem = m.name.strip_suffix("_ms").unwrap();
            let twin =
                by_name(&format!("{stem}_from_due_ms")).unwrap_or_else(|| panic!("{} has no twin", m.name));
            assert_eq!((twin.unit, twin.kind, twin.scope), (m.unit, m.kind, m.scope));
            assert_eq!((m.id.from_due(), twin.id.from_due()), (twin.id, twin.id));
            twins += 1;
        }
        assert_eq!(twins, CATALOG.iter().filter(|m| m.name.ends_with("_from_due_ms")).count());
        assert_eq!(twins, 7);
    }

    #[test]
    fn run_scope_and_run_rates_are_the_same_rows_and_no_text_is_empty() {
        for m in CATALOG {
            assert_eq!(m.scope == Scope::Run, m.kind == Kind::RunRate, "{}", m.name);
            for text in [m.title, m.definition, m.excluded_when, m.since] {
                assert!(!text.is_empty() && !text.ends_with('.'), "{}: {text:?}", m.name);
            }
        }
    }
}
