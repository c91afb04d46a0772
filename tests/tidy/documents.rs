//! Markdown: one title per file, links and names of files that lead somewhere, tables that say what the code says.

/// A document's lines outside fenced code, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// A document has exactly one title, and it comes before any other heading.
pub(crate) fn check_title(path: &str, text: &str) -> Vec<String> {
    let titles = prose(text).filter(|(_, line)| line.starts_with("# ")).count();
    let first =
        prose(text).find(|(_, line)| line.trim_start_matches('#').starts_with(' ') && line.starts_with('#'));
    let mut faults = Vec::new();
    if titles != 1 {
        faults.push(format!("{path}: {titles} titles, there must be one"));
    }
    if let Some((number, line)) = first
        && !line.starts_with("# ")
    {
        faults.push(format!("{path}:{number}: a heading before the title"));
    }
    faults
}

/// Every relative link leads to a file of the repository. `exists` gets paths from the root, with forward slashes.
pub(crate) fn check_links(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in prose(text) {
        for target in link_targets(line) {
            let target = target.split(['#', '?']).next().unwrap_or_default();
            let elsewhere = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if elsewhere {
                continue;
            }
            match resolve(path, target) {
                Some(file) if exists(&file) => {}
                _ => faults.push(format!("{path}:{number}: dead link to {target}")),
            }
        }
    }
    faults
}

/// Every path in backticks leads to a file of the repository; in `FILE.rs::NAME`, the file has a function of that
/// name. `text_of` gets paths from the root and gives a file's text, empty for a directory, `None` for nothing.
pub(crate) fn check_references(
    path: &str,
    text: &str,
    text_of: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    const TREES: [&str; 6] = ["src/", "tests/", "docs/", "benches/", "fuzz/", ".ci/"];
    let mut faults = Vec::new();
    for (number, line) in prose(text) {
        for span in line.split('`').skip(1).step_by(2) {
            let pattern = span.contains([' ', '*', '<', '{', '…']);
            if pattern || !TREES.iter().any(|tree| span.starts_with(tree)) {
                continue;
            }
            let (file, function) =
                span.split_once("::").map_or((span, None), |(file, name)| (file, Some(name)));
            let at = format!("{path}:{number}");
            match (text_of(file.trim_end_matches('/')), function) {
                (None, _) => faults.push(format!("{at}: there is no {file}")),
                (Some(code), Some(name)) if !code.contains(&format!("fn {name}(")) => {
                    faults.push(format!("{at}: there is no {name} in {file}"));
                }
                _ => {}
            }
        }
    }
    faults
}

/// A document's table of exit codes has exactly these rows: code and meaning.
pub(crate) fn check_exit_codes(path: &str, text: &str, codes: &[(u8, &str)]) -> Vec<String> {
    let row = |(code, meaning): &(u8, &str)| format!("| {code} | {meaning} |");
    let expected: Vec<String> = codes.iter().map(row).collect();
    let first_cell_is_a_number = |line: &&str| {
        let cell = line.strip_prefix("| ").and_then(|l| l.split(" |").next());
        cell.is_some_and(|c| c.parse::<u8>().is_ok())
    };
    let found: Vec<&str> = prose(text).map(|(_, line)| line).filter(first_cell_is_a_number).collect();
    let missing = expected.iter().filter(|e| !found.contains(&e.as_str()));
    let missing = missing.map(|e| format!("{path}: the table of exit codes lacks the row: {e}"));
    let extra = found.iter().filter(|f| !expected.iter().any(|e| e == *f));
    missing.chain(extra.map(|f| format!("{path}: not in the table of src/exit.rs: {f}"))).collect()
}

/// Targets of the inline links and images of a line, text in backticks left out.
fn link_targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for code_or_prose in line.split('`').step_by(2) {
        let mut rest = code_or_prose;
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let end = rest.find([')', ' ']).unwrap_or(rest.len());
            targets.push(&rest[..end]);
        }
    }
    targets
}

/// The path from the root of a link in the document at `path`; `None` when it leaves the repository.
fn resolve(path: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    if let Some(absolute) = target.strip_prefix('/') {
        return Some(absolute.to_owned());
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[test]
fn a_document_without_exactly_one_title_is_found() {
    assert_eq!(check_title("a.md", "# One\n\n## Two\n\n```sh\n# a comment\n```\n"), Vec::<String>::new());
    assert_eq!(check_title("a.md", "## Two\n").len(), 2);
    assert_eq!(check_title("a.md", "# One\n# Two\n").len(), 1);
    assert_eq!(check_title("a.md", "## Two\n# One\n").len(), 1);
    assert_eq!(check_title("a.md", "text\n").len(), 1);
}

#[test]
fn a_dead_link_is_found() {
    let exists = |path: &str| ["docs/A.md", "README.md", "tests/x/B.md"].contains(&path);
    let faults = |text: &str| check_links("docs/C.md", text, exists).len();
    assert_eq!(
        faults("[a](A.md) [b](../README.md#top) [c](#here) [d](https://example.org/x) [e](../tests/x/B.md)"),
        0
    );
    assert_eq!(faults("[a](B.md)"), 1);
    assert_eq!(faults("[a](A.md) and [b](nowhere/A.md \"title\")"), 1);
    assert_eq!(faults("[a](../../README.md)"), 1);
    assert_eq!(faults("`[a](B.md)`\n```\n[a](B.md)\n```\n"), 0);
}

#[test]
fn a_name_of_something_that_is_not_there_is_found() {
    let text_of = |path: &str| match path {
        "src/a.rs" => Some("fn b() {}".to_owned()),
        "src/a" => Some(String::new()),
        _ => None,
    };
    let faults = |text: &str| check_references("docs/C.md", text, text_of).len();
    assert_eq!(
        faults("`src/a.rs`, `src/a/`, `src/a.rs::b`, `src/*.rs`, `a src/x.rs`, src/x.rs, `other/x.rs`"),
        0
    );
    assert_eq!(faults("`src/x.rs`"), 1);
    assert_eq!(faults("`src/a.rs` and `src/a.rs::c`"), 1);
    assert_eq!(faults("```\n`src/x.rs`\n```"), 0);
}

#[test]
fn a_table_of_exit_codes_that_differs_is_found() {
    let faults = |text: &str| check_exit_codes("a.md", text, &[(0, "good"), (2, "usage")]).len();
    assert_eq!(faults("| code | meaning |\n|---|---|\n| 0 | good |\n| 2 | usage |\n| x | y |\n"), 0);
    assert_eq!(faults("| 0 | good |\n"), 1);
    assert_eq!(faults("| 0 | good |\n| 2 | use |\n"), 2);
    assert_eq!(faults("| 0 | good |\n| 2 | usage |\n| 3 | more |\n"), 1);
}
