//! Arrows between rooms: the table of `docs/ARCHITECTURE.md` against the paths that `src` really names.
//!
//! A room may name itself and rooms of lower layers. Some lower rooms are closed to it all the same: those absences,
//! each with its reason, are [`ABSENCES`]. What this cannot see: a path that only a macro puts together.

use std::collections::BTreeMap;

use crate::source::{Kind, Source};

/// Where the table is.
pub(crate) const TABLE_FILE: &str = "docs/ARCHITECTURE.md";

/// Something a room never names.
pub(crate) struct Absence {
    /// The room.
    room: &'static str,
    /// Rooms it never names, tests included.
    rooms: &'static [&'static str],
    /// Words its product code never holds.
    words: &'static [&'static str],
    /// Why.
    reason: &'static str,
}

/// Names that bring in a socket, a clock or a runtime.
const OUTSIDE_WORLD: &[&str] = &[
    "async",
    "await",
    "clock_gettime",
    "Instant",
    "mio",
    "nix",
    "quanta",
    "socket2",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "tokio",
    "UdpSocket",
    "UnixStream",
];

/// What is absent on purpose.
pub(crate) const ABSENCES: &[Absence] = &[
    Absence {
        room: "client",
        rooms: &["sim"],
        words: &[],
        reason: "a bug that client and simulator shared would cancel itself",
    },
    Absence {
        room: "client",
        rooms: &["metrics", "aggregate", "report"],
        words: &["serde_json"],
        reason: "a worker core knows no metric, no statistic, no document",
    },
    Absence {
        room: "sim",
        rooms: &["wire"],
        words: &["httparse"],
        reason: "the witness has its own HTTP and event stream code",
    },
    Absence {
        room: "sim",
        rooms: &["clock"],
        words: &["quanta"],
        reason: "the ledger reads the kernel's clock, not our scaling of the counter",
    },
    Absence {
        room: "report",
        rooms: &["clock", "wire"],
        words: &["RequestRecord"],
        reason: "documents are made from rows and summaries, never from what a worker wrote down",
    },
    Absence {
        room: "wire",
        rooms: &["clock"],
        words: OUTSIDE_WORLD,
        reason: "parsers take bytes and give meaning; they own no socket and no clock",
    },
    Absence {
        room: "metrics",
        rooms: &["clock"],
        words: OUTSIDE_WORLD,
        reason: "formulas are pure functions of a row",
    },
    Absence {
        room: "plan",
        rooms: &["clock"],
        words: OUTSIDE_WORLD,
        reason: "a plan follows from the resolved run and its seed alone",
    },
];

/// Rooms that may derive serialized forms: `report` defines the documents, `plan` the request's body, `sim` its own
/// ledger and answers.
const MAY_SERIALIZE: [&str; 3] = ["report", "plan", "sim"];

/// Layer of each room. A directory is a room by its name, a file by its name without `.rs`.
pub(crate) type Layers = BTreeMap<String, u32>;

/// Reads the table: rows whose first cell is `` `room/` `` or `` `room.rs` `` and whose second cell is a number.
///
/// # Errors
/// A sentence when a room stands twice or there is no row at all.
pub(crate) fn layers(document: &str) -> Result<Layers, String> {
    let mut layers = Layers::new();
    for line in document.lines() {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (Some(name), Some(layer)) = (cells.next(), cells.next()) else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|n| n.strip_suffix('`')) else { continue };
        let Some(room) = name.strip_suffix('/').or_else(|| name.strip_suffix(".rs")) else { continue };
        let Ok(layer) = layer.parse() else { continue };
        if layers.insert(room.to_owned(), layer).is_some() {
            return Err(format!("{TABLE_FILE}: `{room}` stands twice in the table"));
        }
    }
    if layers.is_empty() { Err(format!("{TABLE_FILE}: no table of rooms and layers")) } else { Ok(layers) }
}

/// The table and the tree name the same rooms.
pub(crate) fn check_rooms(layers: &Layers, sources: &[Source]) -> Vec<String> {
    let mut rooms: Vec<&str> = sources.iter().filter_map(room_of).filter(|r| *r != "lib").collect();
    rooms.sort_unstable();
    rooms.dedup();
    let unlisted = rooms.iter().filter(|r| !layers.contains_key(**r));
    let unlisted = unlisted.map(|r| format!("src: room `{r}` has no row in the table of {TABLE_FILE}"));
    let empty = layers.keys().filter(|r| !rooms.contains(&r.as_str()));
    let empty = empty
        .map(|r| format!("{TABLE_FILE}: room `{r}` has a row and no code: write it, or take the row out"));
    unlisted.chain(empty).collect()
}

/// Every path that names a room points down.
pub(crate) fn check_arrows(layers: &Layers, sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        let Some(room) = room_of(source) else { continue };
        for (target, line) in named_rooms(source) {
            let at = format!("{}:{line}", source.path);
            match (layers.get(room), layers.get(&target)) {
                _ if target == room => {}
                (Some(own), Some(other)) if other < own => {}
                (Some(own), Some(other)) => {
                    faults.push(format!("{at}: `{room}` (layer {own}) names `{target}` (layer {other})"));
                }
                (_, None) => faults.push(format!("{at}: `{target}` is no room of the table in {TABLE_FILE}")),
                (None, _) => {} // check_rooms says so, once.
            }
        }
    }
    faults
}

/// Nothing names what is closed to its room.
pub(crate) fn check_absences(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        let Some(room) = room_of(source) else { continue };
        let named = named_rooms(source);
        for absence in ABSENCES.iter().filter(|a| a.room == room) {
            for (target, line) in named.iter().filter(|(t, _)| absence.rooms.contains(&t.as_str())) {
                faults.push(format!("{}:{line}: `{room}` names `{target}`: {}", source.path, absence.reason));
            }
            for token in source.product_tokens() {
                let Kind::Word(word) = &token.kind else { continue };
                if absence.words.contains(&word.as_str()) {
                    let at = format!("{}:{}", source.path, token.line);
                    faults.push(format!("{at}: `{room}` names `{word}`: {}", absence.reason));
                }
            }
        }
    }
    faults
}

/// Serialized forms are defined where [`MAY_SERIALIZE`] says.
pub(crate) fn check_serialized_forms(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|s| room_of(s).is_some_and(|r| !MAY_SERIALIZE.contains(&r))) {
        for token in source.product_tokens().filter(|t| t.is_word("Serialize")) {
            let at = format!("{}:{}", source.path, token.line);
            faults.push(format!(
                "{at}: `Serialize` outside {MAY_SERIALIZE:?}: documents have types of their own"
            ));
        }
    }
    faults
}

/// `src/lib.rs` declares the rooms and does nothing else.
pub(crate) fn check_library_root(root: &Source) -> Vec<String> {
    const CODE: [&str; 9] =
        ["fn", "struct", "enum", "trait", "impl", "const", "static", "use", "macro_rules"];
    let code = root.tokens.iter().filter(|t| matches!(&t.kind, Kind::Word(w) if CODE.contains(&w.as_str())));
    code.map(|t| format!("{}:{}: the library root only declares rooms", root.path, t.line)).collect()
}

/// The room a file belongs to: `src/ROOM/…` or `src/ROOM.rs`. `None` outside `src`.
fn room_of(source: &Source) -> Option<&str> {
    let inside = source.path.strip_prefix("src/")?;
    Some(inside.split_once('/').map_or(inside.trim_end_matches(".rs"), |(room, _)| room))
}

/// How many modules deep a file's top level is: 0 for the crate's roots, 1 for a room's.
fn depth_of(path: &str) -> usize {
    let inside = path.trim_start_matches("src/").trim_end_matches(".rs");
    inside.split('/').filter(|part| !["lib", "main", "mod"].contains(part)).count()
}

/// Every room that a path of this file names, with the line: by `crate::`, by the crate's own name, or by enough
/// `super::`.
fn named_rooms(source: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut inline = Vec::new(); // brace depths at which inline modules opened
    let mut braces = 0_usize;
    for (i, token) in source.tokens.iter().enumerate() {
        match &token.kind {
            Kind::Mark('{') => {
                braces += 1;
                if i >= 2 && source.tokens[i - 2].is_word("mod") {
                    inline.push(braces);
                }
            }
            Kind::Mark('}') => {
                if inline.last() == Some(&braces) {
                    inline.pop();
                }
                braces = braces.saturating_sub(1);
            }
            Kind::Word(_) if continues_a_path(source, i) => {}
            Kind::Word(word) if ["crate", "hammerscale"].contains(&word.as_str()) && goes_on(source, i) => {
                follow(source, i + 3, 0, &mut found);
            }
            Kind::Word(word) if word == "super" => {
                follow(source, i, depth_of(&source.path) + inline.len(), &mut found);
            }
            _ => {}
        }
    }
    found.dedup();
    found
}

/// Whether the word at `i` is not the first of its path.
fn continues_a_path(source: &Source, i: usize) -> bool {
    let Some(before) = i.checked_sub(3) else { return false };
    let joins = matches!(&source.tokens[before].kind, Kind::Word(_) | Kind::Mark('>'));
    joins && source.has_at(before + 1, &[":", ":"])
}

/// Whether the word at `i` is followed by `::`.
fn goes_on(source: &Source, i: usize) -> bool {
    source.has_at(i + 1, &[":", ":"])
}

/// Follows one path, or a tree of paths in braces, that begins at token `i` inside a module `depth` deep.
fn follow(source: &Source, i: usize, depth: usize, found: &mut Vec<(String, usize)>) {
    let Some(token) = source.tokens.get(i) else { return };
    match &token.kind {
        Kind::Word(word) if word == "super" && goes_on(source, i) => {
            follow(source, i + 3, depth.saturating_sub(1), found);
        }
        Kind::Word(word) if word == "self" && goes_on(source, i) => follow(source, i + 3, depth, found),
        Kind::Word(word) if word == "super" || word == "self" => {} // `{self, …}` names nothing new.
        Kind::Word(word) if depth == 0 => found.push((word.clone(), token.line)),
        Kind::Mark('*') if depth == 0 => found.push(("*".to_owned(), token.line)),
        Kind::Mark('{') => {
            let mut nested = 0_usize;
            for (k, token) in source.tokens.iter().enumerate().skip(i) {
                match token.kind {
                    Kind::Mark('{') => nested += 1,
                    Kind::Mark('}') => nested -= 1,
                    _ => {}
                }
                if nested == 0 {
                    return;
                }
                if nested == 1 && (token.is_mark('{') || token.is_mark(',')) {
                    follow(source, k + 1, depth, found);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
const FIXTURE_TABLE: &str = "\
| room | layer | job |
|---|---|---|
| `units/` | 0 | numbers |
| `clock/` | 1 | time |
| `wire/` | 1 | bytes |
| `sim/` | 2 | truth |
| `client/` | 6 | sockets |
| `run.rs` | 7 | all |
";

#[test]
fn the_table_is_read_as_it_stands() {
    let layers = layers(FIXTURE_TABLE).unwrap();
    assert_eq!(layers.len(), 6);
    assert_eq!(layers.get("run"), Some(&7));
    assert!(super::layers::layers("| `a/` | 1 |\n| `a.rs` | 2 |\n").is_err());
    assert!(super::layers::layers("# nothing here\n").is_err());
}

#[test]
fn an_arrow_that_points_up_is_found_however_it_is_written() {
    let layers = layers(FIXTURE_TABLE).unwrap();
    for (path, text) in [
        ("src/wire/a.rs", "use crate::run::x;"),
        ("src/wire/a.rs", "use crate::{units::Nanos, client::{x, y}};"),
        ("src/wire/a.rs", "fn f() { crate::run::go() }"),
        ("src/wire/a.rs", "fn f() { ::hammerscale::run::go() }"),
        ("src/wire/a.rs", "use crate::clock::Clock;"), // the same layer
        ("src/wire/mod.rs", "use super::client::x;"),
        ("src/wire/a.rs", "use super::super::client::x;"),
        ("src/wire/a/mod.rs", "use super::super::{units::Nanos, sim};"),
        ("src/wire/a.rs", "mod tests { use super::super::super::run; }"),
        ("src/wire/a.rs", "macro_rules! m { () => { $crate::run::x() } }"),
        ("src/wire/a.rs", "pub use crate::nowhere::x;"),
        ("src/wire/a.rs", "use crate::*;"),
    ] {
        let faults = check_arrows(&layers, &[Source::new(path, text)]);
        assert_eq!(faults.len(), 1, "{path}: {text}: {faults:?}");
    }
}

#[test]
fn arrows_that_point_down_and_mere_mentions_pass() {
    let layers = layers(FIXTURE_TABLE).unwrap();
    for (path, text) in [
        ("src/wire/a.rs", "use crate::units::{Nanos, Ticks};"),
        ("src/wire/a.rs", "//! [`crate::run`]\nconst A: &str = \"crate::run::x\"; /* crate::run::x */"),
        ("src/wire/a.rs", "pub(crate) fn f() {} pub(super) fn g() {}"),
        (
            "src/wire/a.rs",
            "use super::b::x; use crate::wire::b; mod t { use super::*; use super::super::b::y; }",
        ),
        (
            "src/wire/a/b.rs",
            "use super::super::c; use self::d::e; use crate::{self as root, units::{self, Nanos}};",
        ),
        ("src/wire/a.rs", "fn f() { other::crate_thing::run::x(); std::run::y() }"),
        ("src/run.rs", "use crate::{client, sim, units::Nanos, wire};"),
    ] {
        let faults = check_arrows(&layers, &[Source::new(path, text)]);
        assert_eq!(faults, Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn every_absence_can_be_violated() {
    for absence in ABSENCES {
        for room in absence.rooms {
            let text = format!("mod tests {{ use crate::{room}::x; }}");
            let source = Source::new(&format!("src/{}/a.rs", absence.room), &text);
            assert_eq!(check_absences(&[source]).len(), 1, "{} and {room}", absence.room);
        }
        for word in absence.words {
            let path = format!("src/{}/a.rs", absence.room);
            let source = Source::new(&path, &format!("fn f() {{ {word} }}"));
            assert_eq!(check_absences(&[source]).len(), 1, "{} and {word}", absence.room);
            let test =
                Source::new(&path, &format!("/* {word} */ #[cfg(test)] mod t {{ fn f() {{ {word} }} }}"));
            assert_eq!(check_absences(&[test]), Vec::<String>::new());
        }
    }
    let elsewhere = Source::new("src/run.rs", "use crate::{client, sim}; use tokio::x;");
    assert_eq!(check_absences(&[elsewhere]), Vec::<String>::new());
}

#[test]
fn a_room_without_a_row_and_a_row_without_a_room_are_found() {
    let layers = layers(FIXTURE_TABLE).unwrap();
    let all = [
        "units/mod.rs",
        "clock/mod.rs",
        "wire/sse/mod.rs",
        "sim/mod.rs",
        "client/mod.rs",
        "run.rs",
        "lib.rs",
    ];
    let sources: Vec<Source> = all.iter().map(|p| Source::new(&format!("src/{p}"), "")).collect();
    assert_eq!(check_rooms(&layers, &sources), Vec::<String>::new());
    assert_eq!(check_rooms(&layers, &sources[1..]).len(), 1);
    let mut more = sources;
    more.push(Source::new("src/extra.rs", ""));
    assert_eq!(check_rooms(&layers, &more).len(), 1);
}

#[test]
fn a_serialized_form_in_the_wrong_room_is_found() {
    let text = "#[derive(Debug, Serialize)] struct A;";
    assert_eq!(check_serialized_forms(&[Source::new("src/metrics/a.rs", text)]).len(), 1);
    assert_eq!(check_serialized_forms(&[Source::new("src/report/a.rs", text)]), Vec::<String>::new());
}

#[test]
fn code_in_the_library_root_is_found() {
    let root = |text| check_library_root(&Source::new("src/lib.rs", text)).len();
    assert_eq!(root("//! fn use\npub mod a;\n#[doc(hidden)] pub mod b;"), 0);
    assert_eq!(root("pub mod a; pub use a::B;"), 1);
}
