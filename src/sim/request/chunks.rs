//! A request body in chunks (RFC 9112 7.1), joined.

use super::grammar::{find, read_field};
use super::{MAX_BODY_BYTES, MAX_HEAD_BYTES, Reject};

/// Longest chunk-size line, extensions included: a size has at most eight digits here, and no client is known that
/// sends extensions.
const MAX_LINE_BYTES: usize = 256;

/// A body as far as it has come.
#[derive(Debug)]
pub(super) struct ChunkedBody {
    /// The data of the whole chunks so far.
    joined: Vec<u8>,
    /// Where in the input the next line starts.
    at: usize,
    /// The last chunk has been seen; trailer fields follow.
    in_trailer: bool,
}

impl ChunkedBody {
    /// A body that starts at `at` in the input.
    pub(super) const fn new(at: usize) -> Self {
        Self { joined: Vec::new(), at, in_trailer: false }
    }

    /// Takes whole chunks and trailer fields; `Some` is the end of the body in the input.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<Option<usize>, Reject> {
        // Sizes, extensions and trailer fields count too, or one-byte chunks would be a way around the limit.
        if input.len() > MAX_HEAD_BYTES + MAX_BODY_BYTES {
            return Err(Reject::BodyTooLarge);
        }
        loop {
            let rest = input.get(self.at..).unwrap_or_default();
            let limit = if self.in_trailer { MAX_HEAD_BYTES } else { MAX_LINE_BYTES };
            let Some(line_len) = find(rest.get(..limit.min(rest.len())).unwrap_or_default(), b"\r\n") else {
                return if rest.len() >= limit { Err(Reject::Chunk) } else { Ok(None) };
            };
            let line = rest.get(..line_len).unwrap_or_default();
            let after_line = line_len + 2;
            if self.in_trailer {
                self.at += after_line;
                if line.is_empty() {
                    return Ok(Some(self.at));
                }
                read_field(line)?;
                continue;
            }
            let size = read_size(line)?;
            if self.joined.len() + size > MAX_BODY_BYTES {
                return Err(Reject::BodyTooLarge);
            }
            if size == 0 {
                self.at += after_line;
                self.in_trailer = true;
                continue;
            }
            let Some(chunk) = rest.get(after_line..after_line + size + 2) else {
                return Ok(None);
            };
            let (data, ending) = chunk.split_at(size);
            if ending != b"\r\n" {
                return Err(Reject::Chunk);
            }
            self.joined.extend_from_slice(data);
            self.at += after_line + size + 2;
        }
    }

    /// Whether the input ends where the body starts.
    pub(super) const fn is_untouched(&self, input: &[u8]) -> bool {
        input.len() == self.at
    }

    /// The data, once [`Self::read`] has come to its end.
    pub(super) fn into_joined(self) -> Vec<u8> {
        self.joined
    }
}

fn read_size(line: &[u8]) -> Result<usize, Reject> {
    let digits = line.split(|&b| b == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    // Eight digits are 4 GiB: above the body limit, and no overflow.
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Reject::Chunk);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Reject::Chunk)?;
    usize::from_str_radix(text, 16).map_err(|_| Reject::Chunk)
}
