//! What a line of `requests.jsonl` says about a failure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::record::outcome::Fault;
use crate::record::{ErrorDetail, Outcome};

/// What is known about a failure: `class` is the outcome, `fault` whose it is; `body_start` the first bytes of a body
/// that was no stream, bytes that are not UTF-8 replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ErrorLine<'a> {
    class: Cow<'a, str>,
    fault: Cow<'a, str>,
    detail: Option<Cow<'a, str>>,
    offset: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<Cow<'a, str>>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    error_type: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_start: Option<Cow<'a, str>>,
}

impl ErrorLine<'_> {
    /// `None` when the line says no more than its outcome.
    pub(super) fn into_detail(self) -> Option<ErrorDetail> {
        let text = |t: Option<Cow<'_, str>>| t.map(Cow::into_owned);
        let detail = ErrorDetail {
            message: text(self.detail).unwrap_or_default(),
            offset: self.offset,
            code: text(self.code),
            error_type: text(self.error_type),
            retry_after: text(self.retry_after),
            location: text(self.location),
            body_start: text(self.body_start).unwrap_or_default().into_bytes(),
        };
        (detail != ErrorDetail::default()).then_some(detail)
    }
}

impl<'a> ErrorLine<'a> {
    /// `None` for a request without a failure and without a detail.
    pub(super) fn of(outcome: Outcome, detail: Option<&'a ErrorDetail>) -> Option<Self> {
        if !outcome.is_failed() && detail.is_none() {
            return None;
        }
        let text = |t: &'a Option<String>| t.as_deref().map(Cow::from);
        Some(Self {
            class: outcome.name().into(),
            fault: fault_name(outcome.fault()).into(),
            detail: detail.map(|d| d.message.as_str()).filter(|m| !m.is_empty()).map(Cow::from),
            offset: detail.and_then(|d| d.offset),
            code: detail.and_then(|d| text(&d.code)),
            error_type: detail.and_then(|d| text(&d.error_type)),
            retry_after: detail.and_then(|d| text(&d.retry_after)),
            location: detail.and_then(|d| text(&d.location)),
            body_start: detail
                .map(|d| d.body_start.as_slice())
                .filter(|b| !b.is_empty())
                .map(String::from_utf8_lossy),
        })
    }
}

/// Whose fault an ending is, as documents say it.
const fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::Nobody => "nobody",
        Fault::Server => "server",
        Fault::Client => "client",
    }
}
