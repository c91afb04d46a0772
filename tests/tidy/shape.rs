//! The shape of the tree: sizes, headers of files, the top level, the list of dependencies.

use crate::source::Source;

/// No file has more product lines than this.
const HARD_LINES: usize = 800;

/// A file above this needs a line in [`RATCHET`].
const AIM_LINES: usize = 400;

/// Files that are one table, exempt from [`HARD_LINES`] and [`AIM_LINES`], with the reason.
const TABLES: &[(&str, &str)] =
    &[("src/metrics/catalog.rs", "one row per metric, and nothing to split it by")];

/// Files above [`AIM_LINES`]: the size they must not outgrow, and why they are one job. Numbers only ever go down.
const RATCHET: &[(&str, usize, &str)] = &[];

/// A ceiling may stand this far above its file; further, and it has to come down.
const RATCHET_SLACK_LINES: usize = 25;

/// What may stand at the top level besides names that begin with a dot.
const TOP_LEVEL: [&str; 9] =
    ["Cargo.toml", "Cargo.lock", "README.md", "LICENSE", "src", "benches", "fuzz", "tests", "docs"];

/// The limit of a function's length is kept by clippy: these two lines switch it on.
const FUNCTION_LIMIT: [(&str, &str); 2] =
    [("Cargo.toml", "too_many_lines = \"deny\""), (".clippy.toml", "too-many-lines-threshold = 70")];

/// Files are small.
pub(crate) fn check_sizes(sources: &[Source]) -> Vec<String> {
    sizes(sources, TABLES, RATCHET)
}

fn sizes(sources: &[Source], tables: &[(&str, &str)], ratchet: &[(&str, usize, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    let is_table = |path: &str| tables.iter().any(|(table, _)| *table == path);
    for source in sources.iter().filter(|s| !is_table(&s.path)) {
        let (path, lines) = (&source.path, source.product_lines());
        let ceiling = ratchet.iter().find(|(p, _, _)| p == path).map(|(_, ceiling, _)| *ceiling);
        match ceiling {
            _ if lines > HARD_LINES => {
                faults.push(format!("{path}: {lines} lines without tests, the limit is {HARD_LINES}"));
            }
            None if lines > AIM_LINES => {
                faults.push(format!(
                    "{path}: {lines} lines without tests, the aim is {AIM_LINES}: split it by job, or give RATCHET \
                     a line with the reason"
                ));
            }
            Some(_) if lines <= AIM_LINES => {
                faults.push(format!("{path}: {lines} lines: take it out of RATCHET"));
            }
            Some(ceiling) if lines > ceiling => {
                faults.push(format!("{path}: grew from at most {ceiling} to {lines} lines without tests"));
            }
            Some(ceiling) if lines + RATCHET_SLACK_LINES < ceiling => {
                faults.push(format!("{path}: shrank to {lines} lines: lower its ceiling of {ceiling}"));
            }
            _ => {}
        }
    }
    let listed = tables.iter().map(|(p, _)| *p).chain(ratchet.iter().map(|(p, _, _)| *p));
    let gone = listed.filter(|p| !sources.iter().any(|s| s.path == *p));
    faults.extend(gone.map(|p| format!("{p}: has a line in tests/tidy/shape.rs and does not exist")));
    faults
}

/// Clippy keeps functions short.
pub(crate) fn check_function_limit(text_of: impl Fn(&str) -> String) -> Vec<String> {
    let missing =
        FUNCTION_LIMIT.iter().filter(|(file, line)| !text_of(file).lines().any(|l| l.trim() == *line));
    missing
        .map(|(file, line)| format!("{file}: `{line}` is missing: nothing limits a function's length"))
        .collect()
}

/// Every file says first what it is for.
pub(crate) fn check_headers(sources: &[Source]) -> Vec<String> {
    let bare =
        |s: &&Source| !s.text.lines().next().is_some_and(|l| l.starts_with("//! ") && l.len() > "//! ".len());
    sources
        .iter()
        .filter(bare)
        .map(|s| format!("{}:1: does not begin with `//! ` and what it is", s.path))
        .collect()
}

/// The top level holds the agreed set.
pub(crate) fn check_top_level(names: &[String]) -> Vec<String> {
    let strangers = names.iter().filter(|n| !n.starts_with('.') && !TOP_LEVEL.contains(&n.as_str()));
    strangers.map(|n| format!("{n}: not one of {TOP_LEVEL:?}")).collect()
}

/// Every dependency has its reason on the line above.
pub(crate) fn check_dependencies(path: &str, manifest: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut inside = false;
    let mut above = "";
    let mut open_brackets = 0_i32;
    for (number, line) in (1..).zip(manifest.lines().map(str::trim)) {
        let continued = open_brackets > 0;
        let table = line.starts_with('[') && !continued;
        let header = line.trim_matches(['[', ']']);
        if table {
            inside = header.ends_with("dependencies");
        }
        // `[dependencies.name]` is one dependency, its keys are none.
        let own_table = table && header.contains("dependencies.");
        let entry = inside && !table && !continued && line.contains('=') && !line.starts_with('#');
        if (entry || own_table) && !above.starts_with("# ") {
            faults.push(format!("{path}:{number}: no reason on the line above"));
        }
        if !line.starts_with('#') {
            open_brackets += line.chars().map(|c| i32::from(c == '[') - i32::from(c == ']')).sum::<i32>();
        }
        above = line;
    }
    faults
}

#[cfg(test)]
fn file(path: &str, lines: usize) -> Source {
    Source::new(path, &"const A: u8 = 0;\n".repeat(lines))
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let none = Vec::<String>::new();
    assert_eq!(sizes(&[file("src/a.rs", 400)], &[], &[]), none);
    assert_eq!(sizes(&[file("src/a.rs", 401)], &[], &[]).len(), 1);
    assert_eq!(sizes(&[file("src/a.rs", 500)], &[], &[("src/a.rs", 510, "why")]), none);
    assert_eq!(sizes(&[file("src/a.rs", 511)], &[], &[("src/a.rs", 510, "why")]).len(), 1);
    assert_eq!(sizes(&[file("src/a.rs", 450)], &[], &[("src/a.rs", 510, "why")]).len(), 1);
    assert_eq!(sizes(&[file("src/a.rs", 300)], &[], &[("src/a.rs", 510, "why")]).len(), 1);
    assert_eq!(sizes(&[file("src/a.rs", 801)], &[], &[("src/a.rs", 810, "why")]).len(), 1);
    assert_eq!(sizes(&[file("src/a.rs", 2000)], &[("src/a.rs", "why")], &[]), none);
    assert_eq!(sizes(&[file("src/a.rs", 1)], &[("src/b.rs", "why")], &[]).len(), 1);
    let mut tested = "fn a() {}\n#[cfg(test)]\nmod tests {\n".to_owned();
    tested.push_str(&"const A: u8 = 0;\n".repeat(2000));
    tested.push_str("}\n");
    assert_eq!(sizes(&[Source::new("src/a.rs", &tested)], &[], &[]), none);
}

#[test]
fn a_missing_function_limit_is_found() {
    let whole = |file: &str| FUNCTION_LIMIT.iter().find(|(f, _)| *f == file).unwrap().1.to_owned();
    assert_eq!(check_function_limit(whole), Vec::<String>::new());
    assert_eq!(check_function_limit(|_| "# too_many_lines = \"deny\"".to_owned()).len(), 2);
}

#[test]
fn a_file_without_a_header_is_found() {
    let faults = |text: &str| check_headers(&[Source::new("src/a.rs", text)]).len();
    assert_eq!(faults("//! What it is.\nfn f() {}"), 0);
    for bare in ["", "fn f() {}", "//!\n//! late", "// not a header", "#![allow(x)]\n//! after", "\n//! late"]
    {
        assert_eq!(faults(bare), 1, "{bare:?}");
    }
}

#[test]
fn a_stranger_at_the_top_level_is_found() {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        check_top_level(&names(&["Cargo.toml", "src", "docs", ".ci", ".gitignore"])),
        Vec::<String>::new()
    );
    assert_eq!(check_top_level(&names(&["src", "notes.txt", "scripts"])).len(), 2);
}

#[test]
fn a_dependency_without_a_reason_is_found() {
    let faults = |text: &str| check_dependencies("Cargo.toml", text).len();
    let good = "[package]\nname = \"x\"\n[dependencies]\n# Why.\na = \"1\"\n# Why.\nb = { version = \"1\", features = [\n\"x = y\",\n] }\n[lints]\nx = \"y\"\n";
    assert_eq!(faults(good), 0);
    assert_eq!(faults("[dependencies]\na = \"1\"\n"), 1);
    assert_eq!(faults("[dependencies]\n# Why.\na = \"1\"\nb = \"1\"\n"), 1);
    assert_eq!(faults("[target.'cfg(unix)'.dev-dependencies]\na = \"1\"\n"), 1);
    assert_eq!(faults("[dependencies.a]\nversion = \"1\"\n"), 1);
    assert_eq!(faults("# Why.\n[dependencies.a]\nversion = \"1\"\n"), 0);
}
