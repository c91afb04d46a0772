//! One HTTP response as it was read: its head, how its body ends, and what stands behind it, or the rule it breaks.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::{Reader, fact, said};

/// A response, or the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ResponseDoc {
    /// It was read, at least up to the end of what was given.
    Read(Box<ReadDoc>),
    /// It cannot be read.
    Refused(RefusedDoc),
}

/// A response that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadDoc {
    /// Its status; `null` when the bytes ended before the head did.
    pub status: Option<u16>,
    /// `1.1`, as sent.
    pub version: Option<String>,
    /// The reason phrase, bytes as characters of ISO 8859-1.
    pub reason: Option<String>,
    /// Names and values in the order received.
    pub headers: Vec<(String, String)>,
    /// How the end of the body is found.
    pub framing: Option<&'static str>,
    /// Statuses of interim responses before it.
    pub interim: Vec<u16>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// The body, framing removed.
    #[serde(rename = "body_b64", serialize_with = "in_base64")]
    pub body: Vec<u8>,
    /// Bytes behind the response.
    #[serde(rename = "leftover_b64", serialize_with = "in_base64")]
    pub leftover: Vec<u8>,
    /// The connection could carry another request.
    pub keep_alive: bool,
    /// What was accepted although it is not quite right.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<&'static str>,
    /// The bytes ended before the response did, and nothing says that the peer closed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
}

/// A response that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedDoc {
    /// The category of the rule.
    pub error: &'static str,
    /// The rule.
    pub rule: &'static str,
    /// The rule in a sentence.
    #[serde(skip)]
    pub message: String,
    /// Offset of the first offending byte, where one is to blame.
    #[serde(skip)]
    pub offset: Option<u64>,
    /// What to do about it.
    #[serde(skip)]
    pub hint: Option<&'static str>,
}

/// Field bytes as the case files have them: each a character of ISO 8859-1.
#[must_use]
pub fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

impl ResponseDoc {
    /// Prints it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, mut out: impl Write, reader: Reader) -> io::Result<()> {
        match (reader, self) {
            (Reader::Program, _) => {
                serde_json::to_writer(&mut out, self)?;
                writeln!(out)?;
            }
            (Reader::Person, Self::Read(doc)) => doc.list(&mut out)?,
            (Reader::Person, Self::Refused(doc)) => {
                fact(&mut out, "not readable", &format!("{} ({})", doc.error, doc.rule))?;
                let hint = doc.hint.map_or_else(String::new, |hint| format!(" ({hint})"));
                fact(&mut out, "why", &format!("{}{hint}", doc.message))?;
                if let Some(offset) = doc.offset {
                    fact(&mut out, "at byte", &offset.to_string())?;
                }
            }
        }
        out.flush()
    }
}

impl ReadDoc {
    fn list(&self, out: &mut impl Write) -> io::Result<()> {
        for status in &self.interim {
            fact(out, "interim response", &status.to_string())?;
        }
        if let (Some(status), Some(version)) = (self.status, &self.version) {
            let reason = self.reason.as_deref().unwrap_or_default();
            said(out, "status", format!("{status} {reason} (HTTP/{version})").as_bytes())?;
        }
        for (name, value) in &self.headers {
            said(out, "field", format!("{name}: {value}").as_bytes())?;
        }
        if let Some(framing) = self.framing {
            fact(out, "body ends by", framing)?;
        }
        fact(out, "body bytes", &self.body.len().to_string())?;
        if !self.body.is_empty() {
            said(out, "body", &self.body)?;
        }
        for (name, value) in &self.trailers {
            said(out, "trailer field", format!("{name}: {value}").as_bytes())?;
        }
        if !self.leftover.is_empty() {
            fact(out, "bytes behind it", &self.leftover.len().to_string())?;
        }
        if self.unfinished {
            fact(out, "unfinished", "the bytes end before the response does (--eof: the peer closed there)")?;
        } else {
            fact(out, "connection", if self.keep_alive { "reusable" } else { "not reusable" })?;
        }
        for flag in &self.flags {
            fact(out, "accepted and flagged", flag)?;
        }
        Ok(())
    }
}

fn in_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&super::base64(bytes))
}
