//! The repository as files: where it is, which files it has, what stands at its top level.
//!
//! Reads only; knows no rule.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source::Source;

/// Directories that hold products of a build or a fuzzer, never sources.
const NOT_OURS: [&str; 4] = ["target", "__pycache__", "corpus", "artifacts"];

/// The directory of `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Text of a file of the repository.
///
/// # Panics
/// When it cannot be read: a rule about a file that is not there has failed.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every Rust file below the given top-level directories, sorted by path. A directory that does not exist has none.
pub(crate) fn rust_files(directories: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for directory in directories {
        collect(&root().join(directory), "rs", &mut paths);
    }
    let sources: Vec<Source> = paths.iter().map(|p| Source::new(p, &read(p))).collect();
    Source::mark_test_files(sources)
}

/// Paths of every Markdown file: the top level's, and those below `docs` and `tests`.
pub(crate) fn markdown_files() -> Vec<String> {
    let mut paths: Vec<String> = top_level().into_iter().filter(|name| name.ends_with(".md")).collect();
    for directory in ["docs", "tests", "benches", "fuzz"] {
        collect(&root().join(directory), "md", &mut paths);
    }
    paths
}

/// Names at the top level: what git tracks or, outside a git checkout, what is there and not ignored.
pub(crate) fn top_level() -> Vec<String> {
    let tracked = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let mut names = match tracked {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let present = |path: &&str| root().join(path).exists();
            text.split('\0')
                .filter(|p| !p.is_empty())
                .filter(present)
                .filter_map(|p| p.split('/').next().map(str::to_owned))
                .collect()
        }
        _ => present_and_not_ignored(),
    };
    names.sort();
    names.dedup();
    names
}

fn present_and_not_ignored() -> Vec<String> {
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap_or_default();
    let ignored: Vec<&str> = ignored.lines().map(|l| l.trim().trim_matches('/')).collect();
    let entries = fs::read_dir(root()).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|n| !ignored.contains(&n.as_str())).collect()
}

/// Adds the paths, relative to the root and with forward slashes, of the files below `directory` with `extension`.
fn collect(directory: &Path, extension: &str, into: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut entries: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !NOT_OURS.contains(&name.as_str()) {
                collect(&path, extension, into);
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            into.push(path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/"));
        }
    }
}
