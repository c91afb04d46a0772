//! What authenticates a request: the key and header fields of one's own. No message repeats a value, not
//! even a wrong one, and not even the name a user gave for a variable: a key is often pasted in its place.

use std::path::Path;

use super::args::RunArgs;
use super::defaults::{API_KEY_VARIABLE, MAX_HEADER_BYTES, MAX_HEADER_FIELDS, MAX_KEY_BYTES};
use super::input;
use super::resolve::Environment;
use super::spec::{Endpoint, Secret};
use super::usage::UsageError;

const HEADER: &str = "--header";
const REQUEST_ID: &str = "x-request-id";

/// Fields that the client itself decides, because framing, reuse or parsing depend on them. RFC 9110 section 7.6.1
/// lists those that belong to the connection.
const OWN_FIELDS: [&str; 14] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept",
    "accept-encoding",
];

/// Those of them that a plain request's user decides: its body is theirs, and no answer's parsing depends on them.
const PLAIN_FIELDS: [&str; 3] = ["content-type", "content-encoding", "accept"];

/// The key: from the variable or the file that is named, else from `OPENAI_API_KEY` if that is set, unless a field
/// that authenticates is given, or requests are plain: they may go to anybody.
pub(super) fn api_key(
    args: &RunArgs,
    endpoint: Endpoint,
    env: Environment<'_>,
) -> Result<Option<Secret>, UsageError> {
    let given = |wanted: &str| {
        let mut names = args.header.iter().filter_map(|field| field.reveal().split(':').next());
        names.any(|name| name.trim().eq_ignore_ascii_case(wanted))
    };
    let own_field = if endpoint == Endpoint::Messages { "x-api-key" } else { "Authorization" };
    let no_default = given("authorization") || given(own_field) || endpoint == Endpoint::Http;
    let key = match (&args.api_key_env, &args.api_key_file) {
        (Some(_), Some(_)) => {
            return Err(UsageError::clash("--api-key-env", "--api-key-file", "there is one key"));
        }
        (Some(name), None) => {
            let flag = "--api-key-env";
            // The environment's own rule for names; others would make the look-up meaningless.
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(UsageError::bad(flag, "must be the name of an environment variable"));
            }
            let Some(value) = env(name) else {
                return Err(UsageError::bad(flag, "names an environment variable that is not set"));
            };
            let Ok(value) = value.into_string() else {
                return Err(UsageError::bad(flag, "names an environment variable that is not UTF-8"));
            };
            Some(token(flag, &value)?)
        }
        (None, Some(path)) => Some(token("--api-key-file", &read_key(path)?)?),
        (None, None) if no_default => None,
        (None, None) => match env(API_KEY_VARIABLE).and_then(|value| value.into_string().ok()) {
            Some(value) if !value.trim().is_empty() => {
                Some(token(&format!("--api-key-env {API_KEY_VARIABLE}"), &value)?)
            }
            _ => None,
        },
    };
    if given(own_field) && key.is_some() {
        return Err(UsageError::clash(HEADER, "a key", format!("both set the {own_field} field")));
    }
    Ok(key)
}

/// Further header fields, in the order given.
pub(super) fn headers(args: &RunArgs, endpoint: Endpoint) -> Result<Vec<(String, Secret)>, UsageError> {
    if args.header.len() > MAX_HEADER_FIELDS {
        return Err(UsageError::range(HEADER, format!("given at most {MAX_HEADER_FIELDS} times")));
    }
    let fields = args.header.iter().map(|field| header(field.reveal(), endpoint, args.no_request_id));
    fields.collect()
}

fn header(field: &str, endpoint: Endpoint, no_request_id: bool) -> Result<(String, Secret), UsageError> {
    let bad = |reason: String| Err(UsageError::bad(HEADER, reason));
    let Some((name, value)) = field.split_once(':') else {
        return bad("must have a colon after its name".to_owned());
    };
    // RFC 9110 section 5.6.2: a field name is a token; no white space before the colon.
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return bad("has a name that no header field can have".to_owned());
    }
    if field.len() > MAX_HEADER_BYTES {
        return bad(format!("must be at most {MAX_HEADER_BYTES} bytes long"));
    }
    let value = value.trim_matches([' ', '\t']);
    // RFC 9110 section 5.5: visible characters, spaces and tabs; anything else could end the field.
    if value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
        return bad("has a control character in its value".to_owned());
    }
    let lower = name.to_ascii_lowercase();
    let is_theirs = endpoint == Endpoint::Http && PLAIN_FIELDS.contains(&lower.as_str());
    if OWN_FIELDS.contains(&lower.as_str()) && !is_theirs {
        return bad(format!("cannot set {lower}: the client decides it"));
    }
    if lower == REQUEST_ID && !no_request_id {
        return bad(format!("cannot set {lower} unless --no-request-id is given"));
    }
    Ok((name.to_owned(), Secret::new(value.to_owned())))
}

/// A key as it goes into its field: one word of visible ASCII, white space around it dropped.
fn token(flag: &str, text: &str) -> Result<Secret, UsageError> {
    let key = text.trim();
    if key.is_empty() {
        return Err(UsageError::bad(flag, "holds a blank key"));
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(UsageError::bad(flag, format!("holds a key of more than {MAX_KEY_BYTES} bytes")));
    }
    if !key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(UsageError::bad(flag, "holds a key with spaces, line ends or other unusual characters"));
    }
    Ok(Secret::new(key.to_owned()))
}

fn read_key(path: &Path) -> Result<String, UsageError> {
    let flag = "--api-key-file";
    let fail = |error: std::io::Error| UsageError::bad(flag, format!("cannot be read: {error}"));
    // White space around the key is allowed for, and a file of the wrong kind is not read to its end.
    let bytes = input::read(path, 2 * MAX_KEY_BYTES as u64).map_err(fail)?;
    String::from_utf8(bytes).map_err(|_| UsageError::bad(flag, "holds a key that is not UTF-8"))
}

/// `tchar` of RFC 9110 section 5.6.2.
fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}
