//! The base URL: what the user types becomes host, port and the exact request paths.
//!
//! RFC 3986 is read strictly and narrowly: `http`, a host, an optional port, an optional path. Userinfo, query and
//! fragment are refused. `/v1` is added unless the last path segment is `v1`, and nothing is ever doubled. The URL of
//! plain requests is used as it is, and may have a query. No message repeats any part of the URL, because it may hold a
//! password.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::defaults::HTTP_PORT;
use super::spec::{self, TargetSpec};
use super::usage::UsageError;

const FLAG: &str = "--base-url";
const PATH_FLAG: &str = "--endpoint-path";

/// The path of the list of models below the base.
const MODELS: &str = "/models";
/// The version segment that every base ends with.
const VERSION: &str = "/v1";

/// RFC 1035 section 2.3.4: a name has at most 255 octets on the wire, 253 as text; a label 63.
const MAX_NAME_CHARS: usize = 253;
const MAX_LABEL_CHARS: usize = 63;
/// Servers commonly stop reading a request line at 8 KiB; a longer path is a mistake.
const MAX_PATH_CHARS: usize = 4_096;

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The base as documents record it: scheme, authority and path as typed, with `/v1`, without a trailing slash.
    pub base_url: String,
    /// Host name in lowercase, or an address literal without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Request path of the endpoint.
    pub path: String,
    /// Request path of the list of models; `None` when an own endpoint path does not tell where it is, and for plain
    /// requests.
    pub models_path: Option<String>,
}

impl Endpoint {
    /// Makes this the place where a target's requests go.
    pub fn point(self, target: &mut TargetSpec) {
        let Self { base_url, host, port, path, models_path } = self;
        (target.base_url, target.host, target.port) = (base_url, host, port);
        (target.path, target.models_path) = (path, models_path);
    }
}

/// Reads a base URL, with an endpoint path of one's own if there is one: that one replaces everything after the
/// origin, and no `/v1` is added then.
///
/// # Errors
/// [`UsageError`] for anything that is not a plain `http` base; the message repeats nothing of it.
pub fn parse(
    base: &str,
    endpoint_path: Option<&str>,
    endpoint: spec::Endpoint,
) -> Result<Endpoint, UsageError> {
    let rest = strip_scheme(base)?;
    let (authority, base_path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return bad("must not hold a user name or password; use --api-key-env or --header");
    }
    match endpoint.path() {
        Some(_) if base_path.contains(['?', '#']) => return bad("must not have a query or a fragment"),
        None if base_path.contains('#') => return bad("must not have a fragment"),
        _ => {}
    }
    let (host, port) = host_and_port(authority)?;
    check_path(FLAG, base_path)?;
    let paths = match (endpoint_path, endpoint.path()) {
        (Some(own), suffix) => own_paths(own, suffix)?,
        (None, Some(suffix)) => base_paths(base_path.trim_end_matches('/'), suffix)?,
        (None, None) if base_path.starts_with('/') => endpoint_paths(base_path, None),
        // RFC 9112 section 3.2.1: an empty path is sent as a slash.
        (None, None) => endpoint_paths(&format!("/{base_path}"), None),
    };
    let base_url = format!("http://{}{}", authority.to_ascii_lowercase(), paths.prefix);
    Ok(Endpoint { base_url, host, port, path: paths.endpoint, models_path: paths.models })
}

/// The request path of an endpoint without a base: the embedded simulator's, before it has a port.
#[must_use]
pub fn simulated_paths(endpoint: spec::Endpoint) -> (String, String) {
    (format!("{VERSION}{}", endpoint.path().unwrap_or_default()), format!("{VERSION}{MODELS}"))
}

/// The value of the `Host` field (RFC 9110 section 7.2): the authority, an IPv6 literal in brackets, the port unless
/// it is the scheme's own.
#[must_use]
pub fn host_header(host: &str, port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == HTTP_PORT { host } else { format!("{host}:{port}") }
}

struct Paths {
    prefix: String,
    endpoint: String,
    models: Option<String>,
}

/// Paths below a base path that has no trailing slash; `suffix` is the endpoint's path below the base.
fn base_paths(base: &str, suffix: &str) -> Result<Paths, UsageError> {
    // `/completions` ends another endpoint's path too.
    let chat = spec::Endpoint::Chat.path().unwrap_or_default();
    if base.ends_with(chat) && chat != suffix && chat.ends_with(suffix) {
        return bad("ends with the path of --endpoint chat, and another endpoint is asked for");
    }
    // A full endpoint URL is typed often enough, and appending to it would double what is there.
    if base.ends_with(suffix) {
        return Ok(endpoint_paths(base, Some(suffix)));
    }
    let versioned = base.rsplit('/').next() == Some("v1");
    let prefix = if versioned { base.to_owned() } else { format!("{base}{VERSION}") };
    Ok(Paths { endpoint: format!("{prefix}{suffix}"), models: Some(format!("{prefix}{MODELS}")), prefix })
}

fn own_paths(own: &str, suffix: Option<&str>) -> Result<Paths, UsageError> {
    if !own.starts_with('/') {
        return Err(UsageError::bad(PATH_FLAG, "must begin with a slash"));
    }
    if own.contains('#') {
        return Err(UsageError::bad(PATH_FLAG, "must not have a fragment"));
    }
    check_path(PATH_FLAG, own)?;
    Ok(endpoint_paths(own, suffix))
}

/// A path that is used exactly as typed; the models are looked for beside it where it ends as usual.
fn endpoint_paths(path: &str, suffix: Option<&str>) -> Paths {
    let prefix = suffix.and_then(|suffix| path.strip_suffix(suffix));
    Paths {
        prefix: prefix.unwrap_or_default().to_owned(),
        endpoint: path.to_owned(),
        models: prefix.map(|prefix| format!("{prefix}{MODELS}")),
    }
}

fn strip_scheme(base: &str) -> Result<&str, UsageError> {
    let Some((scheme, rest)) = base.split_once("://") else {
        return bad("must be an absolute URL (like http://127.0.0.1:8000/v1)");
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok(rest),
        "https" => bad("asks for https, but TLS is not built in yet; use http"),
        _ => bad("must begin with http://"),
    }
}

fn host_and_port(authority: &str) -> Result<(String, u16), UsageError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(literal) => {
            let Some((address, after)) = literal.split_once(']') else {
                return bad("has an IPv6 address without its closing bracket");
            };
            if address.contains('%') {
                return bad("has an IPv6 address with a zone, which is not supported");
            }
            let Ok(address) = address.parse::<Ipv6Addr>() else {
                return bad("has no valid IPv6 address between its brackets");
            };
            match after.strip_prefix(':') {
                None if !after.is_empty() => {
                    return bad("must go on with a port or a path after the bracket");
                }
                port => (address.to_string(), port),
            }
        }
        None => {
            if authority.matches(':').count() > 1 {
                return bad("must have an IPv6 address in brackets (like http://[::1]:8000/v1)");
            }
            match authority.split_once(':') {
                Some((host, port)) => (host_name(host)?, Some(port)),
                None => (host_name(authority)?, None),
            }
        }
    };
    let port = match port {
        None => HTTP_PORT,
        // Digits only: `parse` alone would take a plus sign.
        Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => match text.parse() {
            Ok(port) if port > 0 => port,
            _ => return bad("must have a port between 1 and 65535"),
        },
        Some(_) => return bad("must have a port between 1 and 65535"),
    };
    Ok((host, port))
}

fn host_name(host: &str) -> Result<String, UsageError> {
    if host.is_empty() {
        return bad("must name a host");
    }
    if !host.is_ascii() {
        return bad("must have an ASCII host name; write an international one in its xn-- form");
    }
    // RFC 3986 section 3.2.2: what looks like an IPv4 address is one; "127.1" or "1.2.3.999" would go to the resolver.
    if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') && host.parse::<Ipv4Addr>().is_err() {
        return bad("has no valid IPv4 address as its host");
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let label_is_fine = |label: &str| {
        !label.is_empty()
            && label.len() <= MAX_LABEL_CHARS
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > MAX_NAME_CHARS || !name.split('.').all(label_is_fine) {
        return bad("must have a host of letters, digits, hyphens and dots");
    }
    Ok(host.to_ascii_lowercase())
}

/// RFC 3986 section 3.3 (and 3.4, where a query is allowed): escapes are left as they are, everything else that is
/// not allowed is refused instead of guessed at.
fn check_path(flag: &str, path: &str) -> Result<(), UsageError> {
    if path.len() > MAX_PATH_CHARS {
        return Err(UsageError::range(flag, format!("at most {MAX_PATH_CHARS} characters")));
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%?".contains(&b);
    if !path.bytes().all(allowed) {
        return Err(UsageError::bad(flag, "has a character in its path that must be percent-encoded"));
    }
    let whole = |escape: &str| {
        let mut two = escape.bytes().take(2).filter(u8::is_ascii_hexdigit);
        two.next().is_some() && two.next().is_some()
    };
    if !path.split('%').skip(1).all(whole) {
        return Err(UsageError::bad(flag, "has a percent sign without two hexadecimal digits"));
    }
    Ok(())
}

fn bad<T>(reason: &str) -> Result<T, UsageError> {
    Err(UsageError::bad(FLAG, reason))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(base: &str, endpoint_path: Option<&str>) -> Result<Endpoint, UsageError> {
        super::parse(base, endpoint_path, spec::Endpoint::Chat)
    }

    fn ok(base: &str) -> Endpoint {
        parse(base, None).unwrap()
    }

    #[test]
    fn bases_become_exact_paths() {
        for (base, recorded, host, port, path) in [
            ("http://127.0.0.1:30002/v1", "http://127.0.0.1:30002/v1", "127.0.0.1", 30_002, "/v1"),
            ("http://127.0.0.1:30002/v1/", "http://127.0.0.1:30002/v1", "127.0.0.1", 30_002, "/v1"),
            ("http://127.0.0.1:30002", "http://127.0.0.1:30002/v1", "127.0.0.1", 30_002, "/v1"),
            ("http://127.0.0.1:30002/", "http://127.0.0.1:30002/v1", "127.0.0.1", 30_002, "/v1"),
            ("http://127.0.0.1:30002//", "http://127.0.0.1:30002/v1", "127.0.0.1", 30_002, "/v1"),
            ("http://localhost", "http://localhost/v1", "localhost", 80, "/v1"),
            (
                "HTTP://Gpu-7.Lab.example./V1",
                "http://gpu-7.lab.example./V1/v1",
                "gpu-7.lab.example.",
                80,
                "/V1/v1",
            ),
            ("http://h/v1beta", "http://h/v1beta/v1", "h", 80, "/v1beta/v1"),
            ("http://h/v1/openai", "http://h/v1/openai/v1", "h", 80, "/v1/openai/v1"),
            ("http://h/a%2Fb%20c/v1", "http://h/a%2Fb%20c/v1", "h", 80, "/a%2Fb%20c/v1"),
            ("http://h/x@y:z", "http://h/x@y:z/v1", "h", 80, "/x@y:z/v1"),
            ("http://my_service:8000/v1", "http://my_service:8000/v1", "my_service", 8_000, "/v1"),
            ("http://h:80/v1", "http://h:80/v1", "h", 80, "/v1"),
            ("http://h:00080/v1", "http://h:00080/v1", "h", 80, "/v1"),
            ("http://[2001:DB8:0::1]", "http://[2001:db8:0::1]/v1", "2001:db8::1", 80, "/v1"),
            ("http://[::ffff:1.2.3.4]:9", "http://[::ffff:1.2.3.4]:9/v1", "::ffff:1.2.3.4", 9, "/v1"),
        ] {
            let got = ok(base);
            assert_eq!(
                (got.base_url.as_str(), got.host.as_str(), got.port, got.path.as_str()),
                (recorded, host, port, format!("{path}/chat/completions").as_str()),
                "{base}"
            );
            assert_eq!(got.models_path.as_deref(), Some(format!("{path}/models").as_str()), "{base}");
        }
    }

    /// vllm-project/vllm#28679, vllm-project/guidellm#474, sgl-project/genai-bench#101: IPv6 literals, path prefixes
    /// and trailing slashes gave invalid URLs or doubled paths.
    #[test]
    fn a_gateway_behind_an_ipv6_literal_is_reached_by_every_spelling() {
        for (base, own) in [
            ("http://[::1]:8123/gw/v3.1", None),
            ("http://[::1]:8123/gw/v3.1/", None),
            ("http://[::1]:8123/gw/v3.1/v1", None),
            ("http://[::1]:8123/gw/v3.1/v1/", None),
            ("http://[::1]:8123", Some("/gw/v3.1/v1/chat/completions")),
            ("http://[::1]:8123/ignored/v1", Some("/gw/v3.1/v1/chat/completions")),
            ("http://[::1]:8123/gw/v3.1/v1/chat/completions", None),
            ("http://[::1]:8123/gw/v3.1/v1/chat/completions/", None),
        ] {
            let got = parse(base, own).unwrap();
            assert_eq!(got.path, "/gw/v3.1/v1/chat/completions", "{base}");
            assert_eq!(got.models_path.as_deref(), Some("/gw/v3.1/v1/models"), "{base}");
            assert_eq!(got.base_url, "http://[::1]:8123/gw/v3.1/v1", "{base}");
            assert_eq!((got.host.as_str(), got.port), ("::1", 8_123));
            assert_eq!(host_header(&got.host, got.port), "[::1]:8123");
        }
    }

    #[test]
    fn an_own_endpoint_path_is_used_as_it_is() {
        let got = parse("http://h:8/v1", Some("/openai/deployments/x/chat?api-version=2")).unwrap();
        assert_eq!(got.path, "/openai/deployments/x/chat?api-version=2");
        assert_eq!((got.models_path, got.base_url.as_str()), (None, "http://h:8"));
        for (own, why) in [
            ("v1/chat", "must begin with a slash"),
            ("", "must begin with a slash"),
            ("/a#b", "must not have a fragment"),
            ("/a b", "has a character in its path that must be percent-encoded"),
            ("/a\r\nX: y", "has a character in its path that must be percent-encoded"),
            ("/%zz", "has a percent sign without two hexadecimal digits"),
        ] {
            let error = parse("http://h", Some(own)).unwrap_err().to_string();
            assert_eq!(error, format!("--endpoint-path {why}"), "{own}");
        }
    }

    #[test]
    fn the_host_field_has_brackets_and_a_port_where_they_belong() {
        assert_eq!(host_header("h", 80), "h");
        assert_eq!(host_header("h", 8_000), "h:8000");
        assert_eq!(host_header("::1", 80), "[::1]");
        assert_eq!(host_header("::1", 81), "[::1]:81");
    }

    #[test]
    fn what_is_no_plain_base_is_refused_with_its_reason() {
        for (base, why) in [
            ("", "must be an absolute URL (like http://127.0.0.1:8000/v1)"),
            ("127.0.0.1:8000/v1", "must be an absolute URL (like http://127.0.0.1:8000/v1)"),
            ("http:/h/v1", "must be an absolute URL (like http://127.0.0.1:8000/v1)"),
            ("https://h/v1", "asks for https, but TLS is not built in yet; use http"),
            ("ftp://h", "must begin with http://"),
            (" http://h", "must begin with http://"),
            ("http://", "must name a host"),
            ("http:///v1", "must name a host"),
            ("http://:8000/v1", "must name a host"),
            ("http://h?x=1", "must not have a query or a fragment"),
            ("http://h/v1?x=1", "must not have a query or a fragment"),
            ("http://h/v1#f", "must not have a query or a fragment"),
            ("http://h:0/v1", "must have a port between 1 and 65535"),
            ("http://h:65536/v1", "must have a port between 1 and 65535"),
            ("http://h:/v1", "must have a port between 1 and 65535"),
            ("http://h:+80/v1", "must have a port between 1 and 65535"),
            ("http://h:80x/v1", "must have a port between 1 and 65535"),
            ("http://[::1/v1", "has an IPv6 address without its closing bracket"),
            ("http://[::1]x/v1", "must go on with a port or a path after the bracket"),
            ("http://[::g]/v1", "has no valid IPv6 address between its brackets"),
            ("http://[127.0.0.1]/v1", "has no valid IPv6 address between its brackets"),
            ("http://[fe80::1%25eth0]/v1", "has an IPv6 address with a zone, which is not supported"),
            ("http://::1:8000/v1", "must have an IPv6 address in brackets (like http://[::1]:8000/v1)"),
            ("http://1.2.3.999/v1", "has no valid IPv4 address as its host"),
            ("http://127.1/v1", "has no valid IPv4 address as its host"),
            ("http://a..b/v1", "must have a host of letters, digits, hyphens and dots"),
            ("http://-a/v1", "must have a host of letters, digits, hyphens and dots"),
            ("http://a b/v1", "must have a host of letters, digits, hyphens and dots"),
            ("http://a\\b/v1", "must have a host of letters, digits, hyphens and dots"),
            ("http://a%41/v1", "must have a host of letters, digits, hyphens and dots"),
            ("http://höst/v1", "must have an ASCII host name; write an international one in its xn-- form"),
            ("http://h/a b", "has a character in its path that must be percent-encoded"),
            ("http://h/\u{e9}", "has a character in its path that must be percent-encoded"),
            ("http://h/v1\r\n", "has a character in its path that must be percent-encoded"),
            ("http://h/%4", "has a percent sign without two hexadecimal digits"),
        ] {
            assert_eq!(parse(base, None).unwrap_err().to_string(), format!("--base-url {why}"), "{base:?}");
        }
        let long = format!("http://{}/v1", ["a".repeat(63).as_str(); 4].join("."));
        assert!(parse(&long, None).is_err());
        assert!(parse(&format!("http://{}/v1", "a".repeat(64)), None).is_err());
        assert!(parse(&format!("http://h/{}", "a".repeat(5_000)), None).is_err());
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        for base in [
            "http://user:URLPASS-77@127.0.0.1:8000/v1",
            "http://user:URLPASS-77@/v1",
            "http://URLPASS-77@[::1]/v1",
            "http://user:URLPASS/77@h/v1",
            "http://user:URLPASS?77@h/v1",
            "https://user:URLPASS-77@h/v1",
            "//user:URLPASS-77@h/v1",
        ] {
            let error = parse(base, None).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("URLPASS"), "{base}: {error:?}");
        }
        let error = parse("http://u:p@h/v1", None).unwrap_err().to_string();
        assert!(error.starts_with("--base-url must not hold a user name or password"), "{error}");
    }

    proptest! {
        #[test]
        fn reading_a_recorded_base_again_changes_nothing(
            host in "([a-z][a-z0-9]{0,8}|127\\.0\\.0\\.1|\\[::1\\])", port in proptest::option::of(1_u16..), path in "(/[a-z0-9.]{1,6}){0,3}/?"
        ) {
            let port = port.map(|p| format!(":{p}")).unwrap_or_default();
            let first = parse(&format!("http://{host}{port}{path}"), None).unwrap();
            prop_assert_eq!(&parse(&first.base_url, None).unwrap(), &first);
            prop_assert!(!first.path.contains("//") && !first.path.contains("/v1/v1"));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,20}|(http://)?[\\]\\[@:/%?#a-z0-9.]{0,30}") {
            let _ = (parse(&text, None), parse("http://h", Some(&text)));
        }
    }
}
