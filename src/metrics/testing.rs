//! A request's row for unit tests: a plain success, to be changed where a test needs it.

use crate::metrics::row::{ReceiveStamps, RequestRow, StampSource, TokenSource};
use crate::record::{Anomalies, Counters, Outcome, OutputKind, Phase, TransportFacts, Usage};
use crate::units::Nanos;

/// An `ok` request: due at 0 ms, sent at 1, first byte 10, first event 11, reasoning 20, content 30, last output 130,
/// `[DONE]` 131, end 132; 100 prompt tokens (40 cached), 11 output tokens (4 reasoning) in 6 chunks.
pub(crate) fn row(request_index: u64) -> RequestRow {
    let ms = |ms| Some(Nanos::from_millis(ms));
    let at = ReceiveStamps {
        first_byte: ms(10),
        head_done: ms(10),
        first_event: ms(11),
        first_output: ms(20),
        first_reasoning: ms(20),
        first_content: ms(30),
        first_tool_call: None,
        last_output: ms(130),
        first_usage_token: None,
        first_textless: None,
        last_textless: None,
        terminal: ms(131),
        end: ms(132),
    };
    RequestRow {
        request_index,
        slot: 0,
        worker: 0,
        connection_id: 0,
        connection_use: 1,
        stale_connections: 0,
        phase: Phase::Measured,
        outcome: Outcome::Ok,
        http_status: Some(200),
        due: Nanos(0),
        dns: None,
        connect_start: None,
        connect: None,
        tls: None,
        send_start: ms(1),
        send_end: ms(2),
        sent_wire: None,
        transport: TransportFacts::default(),
        at,
        user: at,
        stamp_source: StampSource::Kernel,
        first_output_kind: Some(OutputKind::Reasoning),
        several_choices: false,
        one_output_read: false,
        counters: Counters {
            events: 9,
            output_chunks: 6,
            reasoning_chunks: 2,
            content_chunks: 4,
            content_deltas: 4,
            reasoning_deltas: 2,
            ..Counters::default()
        },
        usage: usage(),
        output_tokens: Some(11),
        output_token_source: TokenSource::Usage,
        first_chunk_tokens: None,
        chunk_tokens: None,
        finish_reasons: vec![(0, "stop".to_owned())],
        planned_context_tokens: Some(512),
        requested_max_tokens: Some(128),
        canary: None,
        controlled_output: None,
        visible_content_truncated: false,
        cut_after_terminal: false,
        role_chunk_first: false,
        streamed_unasked: false,
        anomalies: Anomalies::NONE,
        error: None,
    }
}

fn usage() -> Usage {
    Usage {
        prompt_tokens: Some(100),
        completion_tokens: Some(11),
        total_tokens: Some(111),
        reasoning_tokens: Some(4),
        cached_tokens: Some(40),
        ..Usage::default()
    }
}
