//! Everything a parser said about a stream, in a form that can be compared.

use hammerscale::wire::sse::{Event, Parser, Sink, SseError, Tail};

/// One event with owned bytes; an empty type stays empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) event: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) id: Vec<u8>,
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Self {
        Seen { event: event.event.to_vec(), data: event.data.to_vec(), id: event.id.to_vec() }
    }
}

/// What came through the sink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recorder {
    pub(crate) events: Vec<Seen>,
    pub(crate) comments: Vec<Vec<u8>>,
    pub(crate) retry: Vec<u64>,
}

impl Sink for Recorder {
    fn event(&mut self, event: Event<'_>) {
        self.events.push(event.into());
    }

    fn comment(&mut self, text: &[u8]) {
        self.comments.push(text.to_vec());
    }

    fn retry(&mut self, ms: u64) {
        self.retry.push(ms);
    }
}

/// A whole stream: the sink's view, the error, and what was left at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) said: Recorder,
    pub(crate) error: Option<SseError>,
    pub(crate) pending: Option<Seen>,
    pub(crate) block_open: bool,
    pub(crate) unterminated: Vec<u8>,
    pub(crate) last_event_id: Vec<u8>,
}

/// Feeds the pieces in order to a reset parser and takes everything down.
pub(crate) fn observe_with<'a>(parser: &mut Parser, pieces: impl IntoIterator<Item = &'a [u8]>) -> Observed {
    parser.reset();
    let mut said = Recorder::default();
    let mut error = None;
    for piece in pieces {
        let result = parser.feed(piece, &mut said);
        assert!(error.is_none() || result.err() == error, "an error must repeat: {error:?} then {result:?}");
        error = result.err();
    }
    assert_eq!(parser.comments(), said.comments.len() as u64);
    let Tail { pending, error: _, block_open, unterminated, last_event_id } = parser.finish();
    Observed {
        said,
        error,
        pending: pending.map(Seen::from),
        block_open,
        unterminated: unterminated.to_vec(),
        last_event_id: last_event_id.to_vec(),
    }
}
