//! What a request is answered with: which service, which head, which schedule.

use super::{Connection, Gone, Row, Shared, State, Stream, Turn, Whole, WholeContent, Work};
use crate::sim::endpoint::ask::{Ask, BadBody, PromptSize};
use crate::sim::endpoint::embeddings::Embeddings;
use crate::sim::endpoint::layout::{Layout, Template};
use crate::sim::endpoint::tokenize::Tokenize;
use crate::sim::endpoint::{Asked, ErrorShape, Route};
use crate::sim::framing::{self, HeadFields};
use crate::sim::ledger::{EventKind, Record, RequestArrived, Service};
use crate::sim::random::{Lane, Purpose};
use crate::sim::request::{Body, Reject, Request};
use crate::sim::script::{Answer, Planned, Script, first_due};
use crate::units::Nanos;

/// An input buffer larger than this is given back after its request: ten thousand connections with long prompts
/// would otherwise keep all of them.
const KEPT_INPUT_BYTES: usize = 4 * 1024;

/// An answer that is sent at once: what the ledger says of its request, and what varies in its head. The body is
/// composed already.
struct PlainAnswer {
    service: Service,
    status: u16,
    allow: Option<&'static str>,
    prompt: Option<PromptSize>,
    model: String,
}

/// Why there is nothing to answer but an error.
struct Refusal<'a> {
    shape: ErrorShape,
    status: u16,
    allow: Option<&'static str>,
    message: &'a str,
}

impl Connection {
    /// Answers a request, or begins to.
    pub(super) fn take_up(&mut self, request: Request, shared: &mut Shared) -> Result<(), Gone> {
        let Request { head, body, consumed } = request;
        self.last = !head.keep_alive;
        let route = Route::of(&head.path);
        let asked = route.filter(|route| head.method == route.method()).map(|route| {
            route.read(match &body {
                Body::Input(range) => self.input.get(range.clone()).unwrap_or_default(),
                Body::Joined(bytes) => bytes,
            })
        });
        self.input.drain(..consumed.min(self.input.len()));
        if self.input.is_empty() && self.input.capacity() > KEPT_INPUT_BYTES {
            self.input = Vec::new();
        }
        let refusal = |status, allow, message| {
            let shape = ErrorShape::of(&head.path);
            Refusal { shape, status, allow, message }
        };
        match (asked, route) {
            (Some(Ok(asked)), _) => self.begin(asked, head.request_id, shared),
            (Some(Err(BadBody(message))), _) => {
                self.answer_refusal(&refusal(400, None, &message), head.request_id, shared)
            }
            (None, Some(route)) => {
                let refusal = refusal(405, Some(route.method()), "This path does not serve this method.");
                self.answer_refusal(&refusal, head.request_id, shared)
            }
            (None, None) => {
                let refusal = refusal(404, None, "There is nothing at this path.");
                self.answer_refusal(&refusal, head.request_id, shared)
            }
        }
    }

    fn begin(&mut self, asked: Asked, request_id: Option<String>, shared: &mut Shared) -> Result<(), Gone> {
        shared.body.clear();
        let answer = match asked {
            Asked::Generation(layout, ask) => return self.begin_text(layout, ask, request_id, shared),
            Asked::Embeddings(embeddings) => {
                self.begin_vectors(embeddings, request_id, shared);
                return Ok(());
            }
            Asked::Tokenize(tokenize) => {
                tokenize.write_body(&mut shared.body);
                let Tokenize { prompt, model, .. } = tokenize;
                PlainAnswer { prompt: Some(prompt), model, ..PlainAnswer::new(Service::Tokenize, 200) }
            }
            Asked::Models => {
                framing::write_models(shared.started.0 / Nanos::PER_SECOND, &mut shared.body);
                PlainAnswer::new(Service::Models, 200)
            }
            Asked::Health => {
                shared.body.extend_from_slice(b"{}");
                PlainAnswer::new(Service::Health, 200)
            }
        };
        self.answer(answer, request_id, shared)
    }

    fn begin_text(
        &mut self,
        layout: &'static Layout,
        ask: Ask,
        request_id: Option<String>,
        shared: &mut Shared,
    ) -> Result<(), Gone> {
        let (request, arrival, number) = (shared.next_request(), shared.now, shared.next_timed());
        let created = shared.update_date();
        let answer = Answer::new(&shared.options, layout, &ask, number);
        self.take_turn(arrival, shared);
        shared.book.enter(&Record::RequestArrived(RequestArrived {
            stream: ask.stream,
            prompt_bytes: ask.prompt.bytes,
            prompt_tokens: ask.prompt.tokens(),
            reasoning_tokens: answer.reasoning_tokens,
            content_tokens: answer.content_tokens,
            request_id: request_id.clone(),
            model: ask.model.clone(),
            ..self.arrived(request, arrival, layout.service, 200)
        }));
        let id = response_id(shared, number);
        let stream = ask.stream;
        let include_usage = ask.include_usage;
        let template = Template::new(layout, id, created, ask);
        let mut script = Script::new(&shared.options, layout, answer.clone(), number, arrival, include_usage);
        if !stream {
            let due = script.last_due(&shared.options);
            let content = WholeContent::Text { template, answer };
            self.state = answer_later(request, Whole { content, due, request_id });
            return Ok(());
        }
        let work = match script.next(&shared.options) {
            Some(next) => Work::Stream(Box::new(Stream { template, script, next })),
            None => Work::Over,
        };
        self.state = State::Answering { number: request, work };
        shared.outbox.clear();
        let fields = HeadFields { date: &shared.date, request_id: request_id.as_deref(), close: self.last };
        framing::write_stream_head(fields, &mut shared.outbox);
        self.send(0, |bytes| Row::Head { request, planned: arrival, bytes }, shared)
    }

    fn begin_vectors(&mut self, embeddings: Embeddings, request_id: Option<String>, shared: &mut Shared) {
        let (request, arrival, number) = (shared.next_request(), shared.now, shared.next_timed());
        let created = shared.update_date();
        self.take_turn(arrival, shared);
        shared.book.enter(&Record::RequestArrived(RequestArrived {
            prompt_bytes: embeddings.prompt.bytes,
            prompt_tokens: embeddings.prompt_tokens(),
            request_id: request_id.clone(),
            model: embeddings.model.clone(),
            ..self.arrived(request, arrival, Service::Embeddings, 200)
        }));
        let id = response_id(shared, number);
        let due = first_due(&shared.options, number, arrival);
        let content = WholeContent::Vectors { embeddings, id, created };
        self.state = answer_later(request, Whole { content, due, request_id });
    }

    /// For an answer that takes time: makes it one of those under way, or lets it wait.
    fn take_turn(&mut self, arrival: Nanos, shared: &mut Shared) {
        self.turn = if shared.turns.take_or_wait(self.owner) {
            Turn::Taken
        } else {
            Turn::Waiting { since: arrival }
        };
    }

    /// Sends an answer in one piece.
    pub(super) fn send_whole(
        &mut self,
        request: u64,
        whole: &Whole,
        shared: &mut Shared,
    ) -> Result<(), Gone> {
        shared.update_date();
        shared.body.clear();
        let tokens = match &whole.content {
            WholeContent::Text { template, answer } => {
                template.write_body(answer, &mut shared.body);
                answer.tokens()
            }
            WholeContent::Vectors { embeddings, id, created } => {
                embeddings.write_body(*id, *created, &mut shared.body);
                0
            }
        };
        let fields =
            HeadFields { date: &shared.date, request_id: whole.request_id.as_deref(), close: self.last };
        shared.outbox.clear();
        framing::write_response(200, None, fields, &shared.body, &mut shared.outbox);
        let planned = Planned::body(whole.due, tokens);
        self.send(0, |bytes| Row::Event { request, planned, bytes }, shared)
    }

    /// Answers a request that cannot be read. What follows it cannot be told from its rest, so the connection ends.
    pub(super) fn refuse(&mut self, reject: Reject, shared: &mut Shared) -> Result<(), Gone> {
        self.last = true;
        // The path is not known for sure: the common form of errors.
        let refusal = Refusal {
            shape: ErrorShape::OpenAi,
            status: reject.status(),
            allow: None,
            message: reject.message(),
        };
        self.answer_refusal(&refusal, None, shared)
    }

    fn answer_refusal(
        &mut self,
        refusal: &Refusal<'_>,
        request_id: Option<String>,
        shared: &mut Shared,
    ) -> Result<(), Gone> {
        shared.body.clear();
        framing::write_error(refusal.shape, refusal.status, refusal.message, &mut shared.body);
        let answer =
            PlainAnswer { allow: refusal.allow, ..PlainAnswer::new(Service::Refused, refusal.status) };
        self.answer(answer, request_id, shared)
    }

    fn answer(
        &mut self,
        answer: PlainAnswer,
        request_id: Option<String>,
        shared: &mut Shared,
    ) -> Result<(), Gone> {
        let (request, arrival) = (shared.next_request(), shared.now);
        shared.update_date();
        let fields = HeadFields { date: &shared.date, request_id: request_id.as_deref(), close: self.last };
        shared.outbox.clear();
        framing::write_response(answer.status, answer.allow, fields, &shared.body, &mut shared.outbox);
        shared.book.enter(&Record::RequestArrived(RequestArrived {
            prompt_bytes: answer.prompt.map_or(0, |prompt| prompt.bytes),
            prompt_tokens: answer.prompt.map_or(0, PromptSize::tokens),
            request_id,
            model: answer.model,
            ..self.arrived(request, arrival, answer.service, answer.status)
        }));
        self.state = State::Answering { number: request, work: Work::Over };
        let planned = Planned::body(arrival, 0);
        self.send(0, |bytes| Row::Event { request, planned, bytes }, shared)
    }

    /// The ledger's record of a request without a prompt, answered in one piece.
    const fn arrived(&self, number: u64, arrival: Nanos, service: Service, status: u16) -> RequestArrived {
        RequestArrived {
            number,
            connection: self.number,
            connection_use: self.uses,
            arrival,
            service,
            status,
            stream: false,
            prompt_bytes: 0,
            prompt_tokens: 0,
            reasoning_tokens: 0,
            content_tokens: 0,
            request_id: None,
            model: String::new(),
        }
    }
}

impl PlainAnswer {
    const fn new(service: Service, status: u16) -> Self {
        Self { service, status, allow: None, prompt: None, model: String::new() }
    }
}

impl Planned {
    /// An answer in one piece, as an event of its own.
    fn body(due: Nanos, tokens: u64) -> Self {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        Self { kind: EventKind::Body, index: 0, due, tokens }
    }
}

fn answer_later(number: u64, whole: Whole) -> State {
    State::Answering { number, work: Work::Whole(Box::new(whole)) }
}

/// The varying part of the id of the `number`-th answer.
fn response_id(shared: &Shared, number: u64) -> u64 {
    Lane::new(shared.options.seed, number, Purpose::Id).bits(0)
}
