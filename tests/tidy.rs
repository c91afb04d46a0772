//! House rules that a compiler does not know, each checked against the tree as it is.
//!
//! One test per rule here; the rule itself, and the fixtures that prove it can fail, stand in `tests/tidy/`. A
//! failing rule lists every place at once. What this does not judge: style that `rustfmt` and `clippy` already keep.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

/// Directories with Rust files.
const RUST: [&str; 4] = ["src", "tests", "benches", "fuzz"];

/// Directories whose files have a size limit: tests are as long as their cases.
const SIZED: [&str; 3] = ["src", "benches", "fuzz"];

#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_room_stands_in_the_table() {
    let layers = layers::layers(&tree::read(layers::TABLE_FILE)).unwrap();
    assert_none(&layers::check_rooms(&layers, &tree::rust_files(&["src"])));
}

#[test]
fn rooms_name_only_lower_layers() {
    let layers = layers::layers(&tree::read(layers::TABLE_FILE)).unwrap();
    assert_none(&layers::check_arrows(&layers, &tree::rust_files(&["src"])));
}

#[test]
fn absences_are_kept() {
    assert_none(&layers::check_absences(&tree::rust_files(&["src"])));
}

#[test]
fn documents_are_defined_in_one_room() {
    assert_none(&layers::check_serialized_forms(&tree::rust_files(&["src"])));
}

#[test]
fn the_library_root_only_declares_rooms() {
    let root = source::Source::new("src/lib.rs", &tree::read("src/lib.rs"));
    assert_none(&layers::check_library_root(&root));
}

#[test]
fn files_are_small() {
    assert_none(&shape::check_sizes(&tree::rust_files(&SIZED)));
}

#[test]
fn functions_are_kept_short_by_clippy() {
    assert_none(&shape::check_function_limit(tree::read));
}

#[test]
fn every_file_says_what_it_is_for() {
    assert_none(&shape::check_headers(&tree::rust_files(&RUST)));
}

#[test]
fn metric_ids_stand_only_in_the_catalog() {
    let sources = tree::rust_files(&["src"]);
    let ids = words::metric_ids(&sources).unwrap();
    assert_none(&words::check_metric_ids(&ids, &sources));
}

#[test]
fn only_the_clocks_read_time() {
    assert_none(&words::check_time(&tree::rust_files(&["src"])));
}

#[test]
fn only_units_formats_durations() {
    assert_none(&words::check_durations(&tree::rust_files(&["src"])));
}

#[test]
fn nothing_is_unfinished_or_unsafe() {
    assert_none(&words::check_banned(&tree::rust_files(&RUST)));
}

#[test]
fn documents_have_one_title() {
    let files = tree::markdown_files();
    assert!(files.contains(&"README.md".to_owned()), "{files:?}");
    let faults: Vec<String> = files.iter().flat_map(|f| documents::check_title(f, &tree::read(f))).collect();
    assert_none(&faults);
}

#[test]
fn links_lead_somewhere() {
    let exists = |path: &str| tree::root().join(path).exists();
    let files = tree::markdown_files();
    let faults: Vec<String> =
        files.iter().flat_map(|f| documents::check_links(f, &tree::read(f), exists)).collect();
    assert_none(&faults);
}

#[test]
fn documents_name_what_is_there() {
    let text_of = |path: &str| {
        let file = tree::root().join(path);
        if file.is_dir() { Some(String::new()) } else { std::fs::read_to_string(file).ok() }
    };
    let files = tree::markdown_files();
    let faults: Vec<String> =
        files.iter().flat_map(|f| documents::check_references(f, &tree::read(f), text_of)).collect();
    assert_none(&faults);
}

#[test]
fn the_readme_has_the_exit_codes() {
    let codes = hammerscale::exit::TABLE.map(|row| (row.code, row.meaning));
    assert_none(&documents::check_exit_codes("README.md", &tree::read("README.md"), &codes));
}

#[test]
fn the_top_level_holds_the_agreed_set() {
    assert_none(&shape::check_top_level(&tree::top_level()));
}

#[test]
fn every_dependency_has_a_reason() {
    let mut faults = shape::check_dependencies("Cargo.toml", &tree::read("Cargo.toml"));
    if tree::root().join("fuzz/Cargo.toml").exists() {
        faults.extend(shape::check_dependencies("fuzz/Cargo.toml", &tree::read("fuzz/Cargo.toml")));
    }
    assert_none(&faults);
}
