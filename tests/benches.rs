//! Every bench runs at its small size and finds the answers it expects, so that none of them rots.
//!
//! An ordinary test run neither builds nor runs a bench; this gives the command that does. Figures of an unoptimised build
//! mean nothing and are not looked at.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::process::Command;

/// The names in the `[[bench]]` tables of the manifest.
fn declared() -> BTreeSet<String> {
    let manifest: toml::Table =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap().parse().unwrap();
    let tables = manifest.get("bench").and_then(toml::Value::as_array).unwrap();
    let harness = |table: &toml::Value| table.get("harness").and_then(toml::Value::as_bool);
    assert!(tables.iter().all(|table| harness(table) == Some(false)), "benches have a main of their own");
    tables.iter().map(|table| table.get("name").and_then(toml::Value::as_str).unwrap().to_owned()).collect()
}

#[test]
fn every_file_is_declared_and_described() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/benches");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let rust = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let names: BTreeSet<String> =
        rust.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, declared());
    let page = std::fs::read_to_string(format!("{folder}/README.md")).unwrap();
    let untold: Vec<&String> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(untold.is_empty(), "benches/README.md does not name {untold:?}");
}

#[test]
fn every_bench_runs_at_its_small_size() {
    let mut command = Command::new(env!("CARGO"));
    // In the profile of this test, so that what is built already is not built again.
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["bench", "--locked", "--profile", profile]);
    for name in declared() {
        command.args(["--bench", &name]);
    }
    command.args(["--no-fail-fast", "--", "--test"]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a bench failed:\n{told}\n{}", String::from_utf8_lossy(&output.stdout));
    for name in declared() {
        assert!(told.contains(&format!("benches/{name}.rs")), "{name} did not run:\n{told}");
    }
}
