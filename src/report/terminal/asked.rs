//! What was asked for, in the summary's first lines: how many requests, where to, and what each of them was.

use super::layout::{Piece, Style, WIDTH, clean, shorten, width, wrap_pieces};
use super::{INDENT, MARGIN};
use crate::config::spec::prompt_room;
use crate::report::document::RunDocument;
use crate::units::display;

/// What was asked for, as lines of the page's width.
pub(super) fn lines(document: &RunDocument, style: Style) -> Vec<String> {
    let load = &document.spec.load;
    let mut lines = Vec::new();
    let requests = display::counted(load.requests, "request");
    let requests = format!("{requests}, {}", clean(&load.driven()));
    let address = clean(&format!("{}{}", origin(&document.target.base_url), document.target.endpoint));
    if width(&requests) + width(&address) + 4 + MARGIN <= WIDTH {
        lines.push(format!("{requests} to {address}"));
    } else {
        lines.extend([format!("{requests} to"), format!("{}{address}", " ".repeat(INDENT))]);
    }
    let connections = match document.spec.connection.mode.as_str() {
        "fresh" => "a fresh connection each",
        _ if document.spec.connection.prewarm => "kept connections, made before",
        _ => "kept connections",
    };
    let mut pieces: Vec<Piece> = sent(document).into_iter().map(Piece::plain).collect();
    pieces.push(Piece::plain(connections));
    if document.counts.warmup > 0 {
        let warmup = display::counted(document.counts.warmup, "warm-up request");
        pieces.push(Piece::plain(format!("after {warmup}")));
    }
    lines.extend(wrap_pieces(&pieces, WIDTH - MARGIN, style));
    lines
}

/// What every request is, in a few words each.
fn sent(document: &RunDocument) -> Vec<String> {
    let spec = &document.spec;
    let mut said: Vec<String> = Vec::new();
    if let Some(plain) = &spec.plain {
        let method = clean(&plain.method);
        said.push(match plain.body_bytes {
            Some(bytes) => format!("plain {method} of {}", display::counted(bytes, "byte")),
            None => format!("plain {method}"),
        });
    }
    said.extend(document.target.model.as_ref().map(|model| shorten(&clean(model), WIDTH - MARGIN)));
    if let Some(prompt) = &spec.prompt {
        said.push(match prompt.ctx_tokens {
            Some(tokens) => match fitted(document, tokens) {
                Some(fitted) => {
                    let (fitted, tokens) = (display::counted(fitted, "token"), display::whole(tokens));
                    format!("prompts of {fitted}: {tokens} do not fit")
                }
                None => format!("prompts of {}", display::counted(tokens, "token")),
            },
            None => "prompts of sampled lengths".to_owned(),
        });
        said.extend(prompt.max_tokens.map(|most| format!("at most {} out", display::counted(most, "token"))));
    }
    let generates = spec.prompt.as_ref().is_some_and(|prompt| prompt.max_tokens.is_some());
    if generates && spec.body.as_ref().is_some_and(|body| !body.stream) {
        said.push("not streamed".to_owned());
    }
    said
}

/// What a prompt was cut to because the model's length left no more; `None` where all was sent that was asked for.
fn fitted(document: &RunDocument, asked: u64) -> Option<u64> {
    let sent = document.tokens.prompt.as_ref().and_then(|sums| sums.requested.checked_div(sums.requests));
    // Where no server counted prompts, the rule by which they were cut.
    let room = || {
        let prompt = document.spec.prompt.as_ref()?;
        prompt_room(document.target.max_model_len?, prompt.max_tokens.unwrap_or(0), prompt.margin)
    };
    sent.or_else(room).filter(|sent| *sent < asked)
}

/// Scheme and authority: the endpoint's path begins after them.
fn origin(base_url: &str) -> &str {
    let after_scheme = base_url.find("://").map_or(0, |at| at + 3);
    let path = base_url.get(after_scheme..).and_then(|rest| rest.find('/'));
    path.and_then(|at| base_url.get(..after_scheme + at)).unwrap_or(base_url)
}
