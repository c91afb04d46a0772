//! What goes over the wire for one request of the plan, and how its answer is to be read.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::config::spec::{ConnectionMode, Endpoint, RunSpec};
use crate::config::url::host_header;
use crate::plan::Plan;
use crate::record::{Phase, RunId};
use crate::run::error::RunError;
use crate::schedule::Outgoing;
use crate::wire::dialect::{Dialect, TextRule};
use crate::wire::http1::{Accept, Method, RequestParts, RequestTemplate};
use crate::wire::response::AnswerRule;

/// From this size on, requests share the bytes of a fixed body: a second call to write it costs less than a copy per
/// request, and ten thousand prepared requests hold one body.
pub const SHARED_BODY_BYTES: usize = 4_096;

/// Rendered requests that are smaller share an allocation of this size: a worker that gives one back per request pays a
/// tenth of its own time for that, and this many bytes are soon sent.
const BLOCK_BYTES: usize = 64 * 1024;

/// The type of a plain body whose user names none.
const UNNAMED_TYPE: &str = "application/octet-stream";

/// Renders request `index` as it goes over the wire.
pub type Render = Box<dyn FnMut(u64) -> Outgoing + Send>;

/// The head that all requests share.
///
/// # Errors
/// [`RunError::Header`] for a field that cannot be sent.
pub fn template(spec: &RunSpec) -> Result<RequestTemplate, RunError> {
    let target = &spec.target;
    let host = host_header(&target.host, target.port);
    let fields = target.fields();
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.reveal())).collect();
    let content_type = match &target.plain {
        None => Some("application/json"),
        Some(plain) => plain.body.as_ref().map(|_| UNNAMED_TYPE),
    };
    Ok(RequestTemplate::new(&RequestParts {
        method: method(spec),
        target: &target.path,
        host: &host,
        accept: match target.endpoint {
            Endpoint::Http => Accept::Anything,
            _ if spec.body.streamed => Accept::EventStream,
            _ => Accept::Json,
        },
        content_type,
        close: spec.connection.mode == ConnectionMode::Fresh,
        request_ids: target.request_id_header,
        fields: &fields,
    })?)
}

/// Renders requests. The feeder calls it ahead of use: for a plan that fits in its queue, before the first packet.
#[must_use]
pub fn renderer(plan: &Arc<Plan>, template: RequestTemplate, run_id: RunId) -> Render {
    let plan = Arc::clone(plan);
    let mut block = BytesMut::with_capacity(BLOCK_BYTES);
    Box::new(move |index| {
        let id = run_id.request_id(Phase::Measured, index);
        // A template that was made renders every body; an id of ours is a valid field value.
        if let Some(body) = plan.fixed_body().filter(|body| body.len() >= SHARED_BODY_BYTES) {
            let head = template.render_head(&id, body.len() as u64, &mut block).unwrap_or_default();
            return Outgoing::sharing(head, body.clone());
        }
        let body = plan.body(index).unwrap_or_default();
        template.render(&id, &body, &mut block).unwrap_or_default().into()
    })
}

/// Bytes that one prepared request holds for itself, about: its head is small beside the queue's budget.
#[must_use]
pub fn own_bytes(plan: &Plan) -> u64 {
    let shared = plan.fixed_body().map_or(0, Bytes::len) >= SHARED_BODY_BYTES;
    if shared { 0 } else { plan.body_bytes(0).unwrap_or(0) }
}

/// How answers are read.
#[must_use]
pub fn answer_rule(spec: &RunSpec) -> AnswerRule {
    let wants_text = spec.prompt.request_canaries || spec.prompt.response_words > 0;
    AnswerRule {
        dialect: match spec.target.endpoint {
            Endpoint::Chat => Dialect::Chat,
            Endpoint::Completions => Dialect::Completions,
            Endpoint::Responses => Dialect::Responses,
            Endpoint::Messages => Dialect::Messages,
            Endpoint::Embeddings => Dialect::Embeddings,
            Endpoint::Http => Dialect::Http,
        },
        streamed: spec.body.streamed,
        method: method(spec),
        text: TextRule { limit_chars: spec.prompt.capture_limit, keep: wants_text },
    }
}

fn method(spec: &RunSpec) -> Method {
    spec.target.plain.as_ref().map_or(Method::Post, |plain| plain.method)
}
