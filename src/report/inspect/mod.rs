//! What `hammerscale inspect` prints: one JSON object in the words of the published case files, or a listing for
//! people. Forms only: whoever read the bytes fills them in.
//!
//! Listings keep to the width of a page, but for the reason of a failure, which stays whole, and show no control
//! character of the bytes.

pub mod answer;
pub mod http;
pub mod sse;

use std::borrow::Cow;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::report::terminal::layout::{WIDTH, clean, left, right, shorten};

/// Who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A program: one JSON object on one line.
    Program,
    /// A person: a listing.
    Person,
}

/// A limit of ours that ended the reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitDoc {
    /// Always `limit`.
    pub category: &'static str,
    /// What was too long, in one sentence.
    pub message: String,
    /// Offset in the stream.
    pub offset: u64,
}

impl LimitDoc {
    /// A limit that was met at an offset of the stream.
    #[must_use]
    pub fn at(offset: u64, message: String) -> Self {
        Self { category: "limit", message, offset }
    }
}

/// Bytes as JSON carries them.
fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes as text; what is no UTF-8 becomes U+FFFD.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The type of an event: without one it is a message.
fn type_of(event: &[u8]) -> Cow<'_, str> {
    if event.is_empty() { "message".into() } else { text(event) }
}

/// How many bytes of a value are looked at for its part of a line: more never fit, and values may have megabytes.
const PREVIEW_BYTES: usize = 4 * WIDTH;

/// The beginning of a value, for the rest of a line after `used` columns.
fn preview(bytes: &[u8], used: usize) -> String {
    let start = bytes.get(..PREVIEW_BYTES).unwrap_or(bytes);
    shorten(&clean(&text(start)), WIDTH.saturating_sub(used))
}

/// Columns of the number of an event, its type, and what stands between.
const NUMBER: usize = 6;
const TYPE: usize = 14;

/// The beginning of the line of an event.
fn event_columns(number: Option<u64>, kind: &str) -> String {
    let number = number.map_or_else(String::new, |n| n.to_string());
    format!("{}  {}", right(&number, NUMBER), left(&shorten(&clean(kind), TYPE - 1), TYPE))
}

/// A name and its value, below a listing.
fn fact(out: &mut impl Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{}{value}", left(name, NAME))
}

const NAME: usize = 24;

/// A fact whose value came from the bytes.
fn said(out: &mut impl Write, name: &str, value: &[u8]) -> io::Result<()> {
    fact(out, name, &preview(value, NAME))
}
