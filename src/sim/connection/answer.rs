//! What a request is answered with: which service, which head, which schedule.

use super::{Connection, Gone, Row, Shared, State, Stream, Whole, Work};
use crate::sim::chat::ChatRequest;
use crate::sim::framing::{self, HeadFields, Template};
use crate::sim::ledger::{EventKind, Record, RequestArrived, Service};
use crate::sim::random::{Lane, Purpose};
use crate::sim::request::{Body, Head, Reject, Request};
use crate::sim::script::{Answer, Script, Step};
use crate::units::Nanos;

/// An input buffer larger than this is given back after its request: ten thousand connections with long prompts
/// would otherwise keep all of them.
const KEPT_INPUT_BYTES: usize = 4 * 1024;

/// What varies in an answer that is sent at once.
struct PlainAnswer<'a> {
    service: Service,
    status: u16,
    allow: Option<&'static str>,
    request_id: Option<String>,
    message: Option<&'a str>,
}

impl Connection {
    /// Answers a request, or begins to.
    pub(super) fn take_up(&mut self, request: Request, shared: &mut Shared) -> Result<(), Gone> {
        let Request { head, body, consumed } = request;
        self.last = !head.keep_alive;
        let chat = match (head.path.as_str(), head.method.as_str()) {
            ("/v1/chat/completions", "POST") => Some(ChatRequest::from_body(match &body {
                Body::Input(range) => self.input.get(range.clone()).unwrap_or_default(),
                Body::Joined(bytes) => bytes,
            })),
            _ => None,
        };
        self.input.drain(..consumed.min(self.input.len()));
        if self.input.is_empty() && self.input.capacity() > KEPT_INPUT_BYTES {
            self.input = Vec::new();
        }
        match chat {
            Some(Ok(chat)) => self.begin_chat(chat, head.request_id, shared),
            Some(Err(bad)) => self.answer(PlainAnswer::error(400, &bad.0, head.request_id), shared),
            None => self.answer_other(head, shared),
        }
    }

    fn begin_chat(
        &mut self,
        chat: ChatRequest,
        request_id: Option<String>,
        shared: &mut Shared,
    ) -> Result<(), Gone> {
        let (request, arrival) = (shared.next_request(), shared.now);
        let number = shared.chats;
        shared.chats += 1;
        let created = shared.update_date();
        let answer = Answer::new(&shared.options, &chat, number);
        let record = RequestArrived {
            number: request,
            connection: self.number,
            connection_use: self.uses,
            arrival,
            service: Service::Chat,
            status: 200,
            stream: chat.stream,
            prompt_bytes: chat.prompt_bytes,
            prompt_tokens: chat.prompt_tokens(),
            reasoning_tokens: answer.reasoning_tokens,
            content_tokens: answer.content_tokens,
            request_id: request_id.clone(),
            model: chat.model.clone(),
        };
        shared.book.enter(&Record::RequestArrived(record));
        let id = Lane::new(shared.options.seed, number, Purpose::Id).bits(0);
        let prompt_tokens = chat.prompt_tokens();
        let template = Template::new(id, created, chat.model, prompt_tokens);
        let mut script = Script::new(&shared.options, answer.clone(), number, arrival, chat.include_usage);
        if !chat.stream {
            let due = script.last_due(&shared.options);
            let whole = Box::new(Whole { template, answer, due, request_id });
            self.state = State::Answering { number: request, work: Work::Whole(whole) };
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

    /// Sends an answer in one piece.
    pub(super) fn send_whole(
        &mut self,
        request: u64,
        whole: &Whole,
        shared: &mut Shared,
    ) -> Result<(), Gone> {
        shared.update_date();
        shared.body.clear();
        whole.template.write_body(&whole.answer, &mut shared.body);
        let fields =
            HeadFields { date: &shared.date, request_id: whole.request_id.as_deref(), close: self.last };
        shared.outbox.clear();
        framing::write_response(200, None, fields, &shared.body, &mut shared.outbox);
        let tokens = whole.answer.reasoning_tokens + whole.answer.content_tokens;
        let step = Step::body(whole.due, tokens);
        self.send(0, |bytes| Row::Event { request, step, bytes }, shared)
    }

    fn answer_other(&mut self, head: Head, shared: &mut Shared) -> Result<(), Gone> {
        let Head { method, path, request_id, .. } = head;
        let (service, allow) = match path.as_str() {
            "/v1/models" => (Service::Models, "GET"),
            "/health" => (Service::Health, "GET"),
            "/v1/chat/completions" => (Service::Chat, "POST"),
            _ => {
                return self
                    .answer(PlainAnswer::error(404, "There is nothing at this path.", request_id), shared);
            }
        };
        if method == allow {
            let answer = PlainAnswer { service, status: 200, allow: None, request_id, message: None };
            return self.answer(answer, shared);
        }
        let refusal = PlainAnswer::error(405, "This path does not serve this method.", request_id);
        self.answer(PlainAnswer { allow: Some(allow), ..refusal }, shared)
    }

    /// Answers a request that cannot be read. What follows it cannot be told from its rest, so the connection ends.
    pub(super) fn refuse(&mut self, reject: Reject, shared: &mut Shared) -> Result<(), Gone> {
        self.last = true;
        self.answer(PlainAnswer::error(reject.status(), reject.message(), None), shared)
    }

    fn answer(&mut self, answer: PlainAnswer<'_>, shared: &mut Shared) -> Result<(), Gone> {
        let (request, arrival) = (shared.next_request(), shared.now);
        shared.update_date();
        shared.body.clear();
        match (answer.message, answer.service) {
            (Some(message), _) => framing::write_error(answer.status, message, &mut shared.body),
            (None, Service::Models) => {
                framing::write_models(shared.started.0 / Nanos::PER_SECOND, &mut shared.body);
            }
            (None, _) => shared.body.extend_from_slice(b"{}"),
        }
        let fields =
            HeadFields { date: &shared.date, request_id: answer.request_id.as_deref(), close: self.last };
        shared.outbox.clear();
        framing::write_response(answer.status, answer.allow, fields, &shared.body, &mut shared.outbox);
        shared.book.enter(&Record::RequestArrived(RequestArrived {
            number: request,
            connection: self.number,
            connection_use: self.uses,
            arrival,
            service: answer.service,
            status: answer.status,
            stream: false,
            prompt_bytes: 0,
            prompt_tokens: 0,
            reasoning_tokens: 0,
            content_tokens: 0,
            request_id: answer.request_id,
            model: String::new(),
        }));
        self.state = State::Answering { number: request, work: Work::Over };
        let step = Step::body(arrival, 0);
        self.send(0, |bytes| Row::Event { request, step, bytes }, shared)
    }
}

impl<'a> PlainAnswer<'a> {
    const fn error(status: u16, message: &'a str, request_id: Option<String>) -> Self {
        Self { service: Service::Refused, status, allow: None, request_id, message: Some(message) }
    }
}

impl Step {
    /// An answer in one piece, as an event of its own.
    fn body(due: Nanos, tokens: u64) -> Self {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        Self { kind: EventKind::Body, index: 0, due, first_token: 0, tokens }
    }
}
