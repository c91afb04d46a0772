//! Random responses, random cuts, random damage: what must hold for every input.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod http_reading;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hammerscale::wire::http1::{Anomaly, Category, HttpError, Method, ResponseDecoder, limits};
use http_reading::{End, Pairs, bytewise, read};
use proptest::prelude::*;
use proptest::sample::Index;

/// Inputs of the suite below this size are damaged at every byte.
const DAMAGE_BELOW: usize = 600;

/// A well-formed response and what it means.
#[derive(Debug, Clone)]
struct Message {
    bytes: Vec<u8>,
    interim: Vec<u16>,
    headers: Pairs,
    body: Vec<u8>,
    trailers: Pairs,
    /// From this length on the body is complete: behind the line of the last chunk.
    body_complete_at: usize,
}

/// A field: its name, and the words of its value, each with whether the space before it is a fold.
type Field = (String, Vec<(String, bool)>);

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn field() -> impl Strategy<Value = Field> {
    let word = "[!-~\u{a1}-\u{ff}]{1,8}";
    ("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", prop::collection::vec((word, any::<bool>()), 0..4))
        .prop_map(|(name, words)| (format!("X-{name}"), words))
}

/// Writes a field with white space and folds, and returns what it means.
fn write_field((name, words): &Field, out: &mut Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    for (i, (word, folded)) in words.iter().enumerate() {
        let space = match (i, folded) {
            (0, false) => "",
            (_, false) => " ",
            (_, true) => " \t\r\n \t",
        };
        out.extend_from_slice(space.as_bytes());
        out.extend_from_slice(word.as_bytes());
    }
    out.extend_from_slice(b" \t\r\n");
    let words: Vec<_> = words.iter().map(|(word, _)| word.as_str()).collect();
    (name.clone().into_bytes(), words.join(" ").into_bytes())
}

/// Chunk extensions by the grammar.
fn extensions() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just(String::new()),
        "[ \t]{0,2}=[ \t]{0,2}[A-Za-z0-9.]{1,6}",
        "[ \t]{0,2}=[ \t]{0,2}\"([ !#-\\[\\]-~\t]|\\\\[\"\\\\ a-z]){0,8}\"",
    ];
    let extension =
        ("[ \t]{0,2};[ \t]{0,2}", "[A-Za-z0-9!#.-]{1,6}", value).prop_map(|(a, b, c)| a + &b + &c);
    prop::collection::vec(extension, 0..3).prop_map(|all| all.concat())
}

#[derive(Debug, Clone)]
struct Chunk {
    data: Vec<u8>,
    zeros: usize,
    upper: bool,
    extensions: String,
}

fn chunk() -> impl Strategy<Value = Chunk> {
    let data = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 1..20),
        1 => prop::collection::vec(any::<u8>(), 1..300),
        1 => Just(b"\r\n0\r\n\r\n".to_vec()),
    ];
    (data, 0usize..20, any::<bool>(), extensions()).prop_map(|(data, zeros, upper, extensions)| Chunk {
        data,
        zeros,
        upper,
        extensions,
    })
}

fn message() -> impl Strategy<Value = Message> {
    let fields = || prop::collection::vec(field(), 0..4);
    let length = (fields(), prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(fields, body)| {
        let mut message = head(&fields, &format!("Content-Length: {}", body.len()));
        message.bytes.extend_from_slice(&body);
        message.body_complete_at = message.bytes.len();
        message.body = body;
        message
    });
    let chunked = (fields(), prop::collection::vec(chunk(), 0..5), extensions(), fields())
        .prop_map(|(fields, chunks, last, trailers)| chunked_message(&fields, &chunks, &last, &trailers));
    let interim = prop::collection::vec((102u16..200, fields()), 0..3);
    (interim, prop_oneof![1 => length, 3 => chunked]).prop_map(|(interim, message)| behind(&interim, message))
}

fn head(fields: &[Field], framing: &str) -> Message {
    let mut bytes = b"HTTP/1.1 200 OK\r\n".to_vec();
    let mut headers: Pairs = fields.iter().map(|field| write_field(field, &mut bytes)).collect();
    bytes.extend_from_slice(framing.as_bytes());
    bytes.extend_from_slice(b"\r\n\r\n");
    let (name, value) = framing.split_once(": ").unwrap();
    headers.push((name.into(), value.into()));
    Message {
        bytes,
        interim: Vec::new(),
        headers,
        body: Vec::new(),
        trailers: Vec::new(),
        body_complete_at: 0,
    }
}

fn chunked_message(fields: &[Field], chunks: &[Chunk], last: &str, trailers: &[Field]) -> Message {
    let mut message = head(fields, "Transfer-Encoding: chunked");
    for Chunk { data, zeros, upper, extensions } in chunks {
        let size = if *upper { format!("{:X}", data.len()) } else { format!("{:x}", data.len()) };
        let line = format!("{}{size}{extensions}\r\n", "0".repeat(*zeros));
        message.bytes.extend_from_slice(line.as_bytes());
        message.bytes.extend_from_slice(data);
        message.bytes.extend_from_slice(b"\r\n");
        message.body.extend_from_slice(data);
    }
    message.bytes.extend_from_slice(format!("0{last}\r\n").as_bytes());
    message.body_complete_at = message.bytes.len();
    message.trailers = trailers.iter().map(|field| write_field(field, &mut message.bytes)).collect();
    message.bytes.extend_from_slice(b"\r\n");
    message
}

/// The message behind interim responses.
fn behind(interim: &[(u16, Vec<Field>)], mut message: Message) -> Message {
    let mut bytes = Vec::new();
    for (status, fields) in interim {
        bytes.extend_from_slice(format!("HTTP/1.1 {status} Wait\r\n").as_bytes());
        for field in fields {
            write_field(field, &mut bytes);
        }
        bytes.extend_from_slice(b"\r\n");
    }
    message.body_complete_at += bytes.len();
    bytes.extend_from_slice(&message.bytes);
    message.bytes = bytes;
    message.interim = interim.iter().map(|(status, _)| *status).collect();
    message
}

fn cuts(indexes: &[Index], length: usize) -> Vec<usize> {
    let mut cuts: Vec<_> = indexes.iter().map(|index| index.index(length + 1)).collect();
    cuts.sort_unstable();
    cuts
}

fn suite() -> Vec<(Method, Vec<u8>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/http/cases.json");
    let all: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let input = |case: &serde_json::Value| STANDARD.decode(case["input_b64"].as_str().unwrap()).unwrap();
    all.iter()
        .map(|case| (Method::from_name(case["request_method"].as_str().unwrap()).unwrap(), input(case)))
        .collect()
}

/// What must hold for any input: no panic, the same reading under other cuts, an offset inside the input for every
/// error that has a byte to blame.
fn check_anything(method: Method, input: &[u8], other_cuts: &[usize]) {
    let mut decoder = ResponseDecoder::new();
    for eof in [false, true] {
        let whole = read(&mut decoder, method, input, &[], eof);
        let cut = read(&mut decoder, method, input, other_cuts, eof);
        assert_eq!(cut, whole, "cut at {other_cuts:?}: {:?}", String::from_utf8_lossy(input));
        let End::Error(error, offset) = whole.end else { continue };
        assert!(offset.is_none_or(|at| at < input.len() as u64), "{error:?} at {offset:?}");
        let has_byte = matches!(
            error.category(),
            Category::BadStatusLine | Category::BadHeader | Category::BadTrailer | Category::BadChunk
        );
        assert!(!has_byte || offset.is_some(), "{error:?}: {:?}", String::from_utf8_lossy(input));
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_response_reads_as_it_was_written_under_any_cut(
        message in message(),
        leftover in prop::collection::vec(any::<u8>(), 0..8),
        indexes in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        let mut input = message.bytes.clone();
        input.extend_from_slice(&leftover);
        let mut decoder = ResponseDecoder::new();
        for cuts in [cuts(&indexes, input.len()), bytewise(&input)] {
            let reading = read(&mut decoder, Method::Post, &input, &cuts, false);
            prop_assert_eq!(reading.end, End::Complete);
            prop_assert_eq!(&reading.body, &message.body);
            prop_assert_eq!(&reading.interim, &message.interim);
            prop_assert_eq!(&reading.head.unwrap().headers, &message.headers);
            prop_assert_eq!(&reading.trailers, &message.trailers);
            prop_assert_eq!(&reading.leftover, &leftover);
            prop_assert_eq!(reading.consumed, message.bytes.len() as u64);
            prop_assert!(reading.reusable);
            prop_assert!(reading.anomalies.iter().all(|&a| a == Anomaly::ObsFold), "{:?}", reading.anomalies);
        }
    }

    #[test]
    fn a_cut_response_is_no_success_before_its_last_chunk(message in message(), index in any::<Index>()) {
        let mut decoder = ResponseDecoder::new();
        let kept = &message.bytes[..index.index(message.bytes.len())];
        let open = read(&mut decoder, Method::Post, kept, &[], false);
        prop_assert_eq!(open.end, End::Waiting);
        let closed = read(&mut decoder, Method::Post, kept, &[], true);
        if kept.len() < message.body_complete_at {
            let early = closed.error().map(HttpError::category);
            prop_assert!(
                matches!(early, Some(Category::TruncatedBody | Category::UnexpectedEof)),
                "{:?} after {:?}", closed.end, String::from_utf8_lossy(kept)
            );
        } else {
            prop_assert!(closed.last_chunk_seen && !closed.reusable);
            prop_assert_eq!(&closed.body, &message.body);
        }
    }

    #[test]
    fn a_damaged_response_reads_the_same_under_any_cut(
        message in message(),
        damage in prop::collection::vec((any::<Index>(), damage()), 1..4),
        indexes in prop::collection::vec(any::<Index>(), 0..4),
    ) {
        let mut input = message.bytes;
        for (index, bytes) in damage {
            let at = index.index(input.len() + 1);
            let end = (at + bytes.len() / 2).min(input.len());
            input.splice(at..end, bytes);
        }
        check_anything(Method::Post, &input, &cuts(&indexes, input.len()));
        check_anything(Method::Post, &input, &bytewise(&input));
    }

    #[test]
    fn any_bytes_behind_a_status_line_read_the_same_under_any_cut(
        text in "(HTTP/1.1 200 ?)?[ -~\r\n\t:\0\u{80}-\u{ff}]{0,80}(\r\n){0,2}[ -~\r\n]{0,20}",
        indexes in prop::collection::vec(any::<Index>(), 0..4),
    ) {
        check_anything(Method::Get, text.as_bytes(), &cuts(&indexes, text.len()));
    }

    #[test]
    fn chunk_lines_are_judged_as_an_oracle_of_whole_lines_judges_them(
        line in prop_oneof![
            "[0-9a-fA-F]{0,18}[ \t]{0,2}(;[ \ta-c=\"\\\\;(\0]{0,10}){0,2}",
            "[0-9a-f \t;=x\"\r\n]{0,8}",
        ],
    ) {
        let input = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{line}\r\n");
        let reading = read(&mut ResponseDecoder::new(), Method::Get, input.as_bytes(), &[], true);
        match oracle(&line) {
            Err(error) => prop_assert_eq!(reading.error(), Some(error)),
            // A line that ends early is judged as a line; what is behind it is data or trailers, and not asked here.
            Ok(_) if line.contains("\r\n") => {}
            Ok((size, flags)) => {
                let expected = if size == 0 { None } else { Some(HttpError::EofInChunk) };
                prop_assert_eq!(reading.error(), expected);
                let seen: Vec<_> =
                    reading.anomalies.into_iter().filter(|&a| a != Anomaly::EofBeforeFinalCrlf).collect();
                prop_assert_eq!(seen, flags);
            }
        }
    }
}

/// Bytes to put in; about half as many are taken out there.
fn damage() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "",
        "\r",
        "\n",
        "\r\n",
        "\r\n\r\n",
        "0\r\n",
        " ",
        "\t",
        ":",
        ";",
        "\"",
        ",",
        "\0",
        "\u{7f}",
        "ffffffffffffffff",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\n",
        "Connection: close\r\n",
        "HTTP/1.1 100 \r\n\r\n",
        "HTTP/1.0 200\n",
        "\r\n folded",
    ]);
    prop_oneof![
        token.prop_map(|text| text.as_bytes().to_vec()),
        any::<u8>().prop_map(|b| vec![b]),
        any::<u8>().prop_map(|b| vec![b, b]),
    ]
}

/// Judges a chunk line, given without its CR LF, as a whole: an independent second reading of RFC 9112 7.1.
fn oracle(line: &str) -> Result<(u128, Vec<Anomaly>), HttpError> {
    let digits: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
    // A first offence is the one that counts, so each kind is looked for with its position.
    let mut offences = Vec::new();
    let overflow =
        (1..=digits.len()).find(|&n| u128::from_str_radix(&digits[..n], 16).unwrap() > u128::from(u64::MAX));
    offences.extend(overflow.map(|n| (n - 1, HttpError::ChunkSizeOverflow)));
    let lf = line.find('\n').filter(|&at| at == 0 || line.as_bytes()[at - 1] != b'\r');
    offences.extend(lf.map(|at| (at, HttpError::BareLfChunkLine)));
    let cr = line.char_indices().find(|&(at, c)| c == '\r' && !line[at + 1..].starts_with('\n'));
    // A CR at the line's very end is followed by the CR of its CR LF.
    offences.extend(cr.map(|(at, _)| (at + 1, HttpError::BareCrChunkLine)));
    let end = line.find("\r\n").unwrap_or(line.len());
    let spaces = line[digits.len()..].chars().take_while(|c| " \t".contains(*c)).count();
    let after = digits.len() + spaces;
    if digits.is_empty() {
        offences.push((0, HttpError::BadChunkSize));
    } else if after < end && !line[after..].starts_with([';', '\r', '\n']) {
        offences.push((after, HttpError::BadChunkSize));
    }
    // At the same byte the line's end is judged before the size.
    offences.sort_by_key(|&(at, error)| (at, error == HttpError::BadChunkSize));
    if let Some(&(_, error)) = offences.iter().find(|(at, _)| *at <= end) {
        return Err(error);
    }
    let size = u128::from_str_radix(&digits, 16).unwrap();
    let rest = &line[digits.len()..end];
    let flags = if rest.trim_matches([' ', '\t']).is_empty() {
        if rest.is_empty() { vec![] } else { vec![Anomaly::SpaceAfterChunkSize] }
    } else if follows_grammar(rest) {
        vec![]
    } else {
        vec![Anomaly::MalformedChunkExtension]
    };
    Ok((size, flags))
}

/// `*( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )`, by descent.
fn follows_grammar(text: &str) -> bool {
    let space = |s: &'_ str| s.len() - s.trim_start_matches([' ', '\t']).len();
    let token = |s: &str| {
        s.bytes().take_while(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b)).count()
    };
    if text.is_empty() {
        return true;
    }
    let Some(rest) = text[space(text)..].strip_prefix(';') else { return false };
    let rest = &rest[space(rest)..];
    if token(rest) == 0 {
        return false;
    }
    let rest = &rest[token(rest)..];
    let Some(value) = rest[space(rest)..].strip_prefix('=') else { return follows_grammar(rest) };
    let value = &value[space(value)..];
    if let Some(quoted) = value.strip_prefix('"') {
        let mut escaped = false;
        for (at, c) in quoted.char_indices() {
            match c {
                '\0'..='\x08' | '\x0a'..='\x1f' | '\x7f' => return false,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return follows_grammar(&quoted[at + 1..]),
                _ => {}
            }
        }
        return false;
    }
    token(value) > 0 && follows_grammar(&value[token(value)..])
}

#[test]
fn every_prefix_of_some_responses_waits_and_fails_when_closed() {
    let mut decoder = ResponseDecoder::new();
    for (text, complete_at) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 43),
        (
            "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=\"b\"\r\nok\r\n0\r\nA: b\r\n\r\n",
            81,
        ),
    ] {
        for end in 0..text.len() {
            let kept = &text.as_bytes()[..end];
            assert_eq!(read(&mut decoder, Method::Post, kept, &[], false).end, End::Waiting, "{end}");
            let closed = read(&mut decoder, Method::Post, kept, &[], true);
            if end < complete_at {
                assert!(closed.error().is_some(), "{end}");
            }
        }
        assert_eq!(read(&mut decoder, Method::Post, text.as_bytes(), &[], false).end, End::Complete);
    }
}

#[test]
fn every_small_damage_to_the_suite_reads_the_same_byte_by_byte() {
    let damages: [fn(u8) -> Vec<u8>; 9] = [
        |_| vec![],
        |b| vec![b, b],
        |b| vec![b ^ 0x20],
        |b| vec![b ^ 0x80],
        |_| vec![b'\r'],
        |_| vec![b'\n'],
        |_| vec![0],
        |b| vec![b' ', b],
        |b| vec![b, b'0'],
    ];
    let mut damaged = 0;
    for (method, input) in suite().iter().filter(|(_, input)| input.len() < DAMAGE_BELOW) {
        for at in 0..input.len() {
            for damage in damages {
                let mut input = input.clone();
                input.splice(at..=at, damage(input[at]));
                check_anything(*method, &input, &bytewise(&input));
                damaged += 1;
            }
        }
    }
    assert!(damaged > 100_000, "only {damaged}");
}

#[test]
fn heads_are_accepted_exactly_where_httparse_accepts_them() {
    // Our own line scan, our own status line and httparse must agree on what a head is; the suite's heads with one
    // byte replaced by each of these are the sample.
    let mut accepted = 0;
    let mut refused = 0;
    for (method, input) in suite().iter().filter(|(_, input)| input.len() < DAMAGE_BELOW) {
        for at in 0..input.len() {
            for byte in [b'\r', b'\n', b' ', b'\t', b':', 0, 0x7f, 0xff, b'A', b'1'] {
                let mut input = input.clone();
                input[at] = byte;
                let reading = read(&mut ResponseDecoder::new(), *method, &input, &[], false);
                let interim = reading.interim.is_empty();
                match httparse_accepts(&input) {
                    Some(true) if interim => {
                        accepted += 1;
                        let category = reading.error().map(HttpError::category);
                        let about_head =
                            matches!(category, Some(Category::BadStatusLine | Category::BadHeader));
                        assert!(!about_head, "{category:?}: {:?}", String::from_utf8_lossy(&input));
                    }
                    Some(false) if interim => {
                        refused += 1;
                        assert!(reading.head.is_none(), "{:?}", String::from_utf8_lossy(&input));
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(accepted > 10_000 && refused > 10_000, "{accepted} {refused}");
}

/// Whether httparse takes the head at the start of `input`; `None` when it waits for more, and for versions that it
/// does not know and RFC 9110 2.5 accepts.
fn httparse_accepts(input: &[u8]) -> Option<bool> {
    let mut slots = [httparse::EMPTY_HEADER; limits::FIELDS_MAX];
    let mut response = httparse::Response::new(&mut slots);
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true);
    match config.parse_response(&mut response, input) {
        Ok(status) => status.is_complete().then_some(true),
        Err(httparse::Error::Version) => None,
        Err(_) => Some(false),
    }
}

/// What a decoder remembers of the response before must not show in the next: the same again, the same as an answer to
/// another method, and another one, each as a decoder reads it that has seen nothing.
#[test]
fn a_response_reads_the_same_whatever_came_before_it() {
    let suite = suite();
    let mut decoder = ResponseDecoder::new();
    let mut repeated = 0;
    for (i, (method, input)) in suite.iter().enumerate() {
        let (next_method, next) = &suite[(i + 1) % suite.len()];
        let other = if *method == Method::Head { Method::Get } else { Method::Head };
        let turns = [
            (*method, input),
            (*method, input),
            (other, input),
            (*method, input),
            (*next_method, next),
            (*method, input),
        ];
        for (method, input) in turns.into_iter().chain([(*method, &Vec::new())]) {
            for eof in [false, true] {
                let fresh = read(&mut ResponseDecoder::new(), method, input, &[], eof);
                assert_eq!(
                    read(&mut decoder, method, input, &[], eof),
                    fresh,
                    "{:?}",
                    String::from_utf8_lossy(input)
                );
                repeated += usize::from(fresh.head.is_some());
            }
        }
    }
    assert!(repeated > suite.len(), "responses with whole heads were among them: {repeated}");
}
