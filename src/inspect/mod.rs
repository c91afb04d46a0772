//! Captured bytes through the client's own parsers, and what came out in the forms of `report`. The two never name
//! each other, so they meet here.
//!
//! How the bytes are cut into pieces never changes what comes out; the flag that cuts them is there to see that.

mod answer;
mod http;
mod sse;

use std::io::{self, Write};

use crate::report::inspect::Reader;
use crate::wire::dialect::Dialect;
use crate::wire::http1::Method;

/// How a whole response begins. No event stream that says anything does.
const HTTP_START: &[u8] = b"HTTP/1.";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// What captured bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An event stream.
    Sse,
    /// An HTTP response.
    Http,
    /// The answer of an endpoint: a bare event stream, or a whole HTTP response.
    Answer(Dialect),
}

/// Bytes and how to read them.
#[derive(Debug, Clone, Copy)]
pub struct Capture<'a> {
    /// All of them.
    pub bytes: &'a [u8],
    /// Size of the pieces they are fed in; 0 feeds them whole.
    pub cut: usize,
    /// Method of the request that was answered.
    pub method: Method,
    /// The peer closed behind the bytes. Answers of an endpoint always end with their bytes.
    pub closed: bool,
    /// An event stream was asked for, of an endpoint; else one JSON body.
    pub streamed: bool,
}

impl<'a> Capture<'a> {
    /// Reads the bytes and prints what they are.
    ///
    /// # Errors
    /// Those of `out`. Bytes that cannot be read are a result, not an error.
    pub fn print(&self, form: Form, out: impl Write, reader: Reader) -> io::Result<()> {
        match form {
            Form::Sse => sse::print(self, out, reader),
            Form::Http => http::read(self).print(out, reader),
            Form::Answer(dialect) => answer::print(self, dialect, out, reader),
        }
    }

    /// What to do about a body that breaks the rule of chunks, where it looks as if it never had any.
    fn chunk_hint(&self) -> Option<&'static str> {
        let mut body = self.bytes;
        // Interim responses have heads too.
        while body.starts_with(HTTP_START) {
            let head = body.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END)?;
            body = body.get(head + HEAD_END.len()..)?;
        }
        let size = body.split(|byte| matches!(byte, b'\r' | b'\n' | b';')).next()?;
        let is_size = !size.is_empty() && size.iter().all(u8::is_ascii_hexdigit);
        (!body.is_empty() && !is_size).then_some("curl -i takes the chunks out; capture with --raw")
    }

    fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        let size = if self.cut == 0 { self.bytes.len().max(1) } else { self.cut };
        self.bytes.chunks(size)
    }
}
