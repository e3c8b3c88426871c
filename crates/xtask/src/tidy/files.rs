//! How files are named, begun and bounded.

use super::report;
use super::source::{Source, sources};

/// Names that say nothing about what is in a file.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "common", "helpers", "types", "misc"];

/// The longest file, in lines without its tests: beyond it a file holds more than one idea.
const LINES_MAX: usize = 400;

#[test]
fn names_of_files_say_what_is_in_them() {
    let empty = |source: &&Source| {
        // A folder of tests shares its support code by that name, as cargo asks for.
        source.path.split('/').any(|part| EMPTY_NAMES.contains(&part.trim_end_matches(".rs")))
            && !source.is_test()
    };
    let findings: Vec<_> = sources().iter().filter(empty).map(|source| source.path.clone()).collect();
    report(&findings, "name the file after the one idea in it");
}

#[test]
fn a_module_stands_beside_its_folder() {
    let findings: Vec<_> = sources()
        .iter()
        .filter(|source| source.path.ends_with("/mod.rs"))
        .map(|source| source.path.clone())
        .collect();
    report(&findings, "name it foo.rs, beside the folder foo/");
}

#[test]
fn every_module_begins_with_its_role() {
    // The role of `foo/tests.rs` is in its name.
    let begun = |source: &Source| source.text.starts_with("//!") || source.path.ends_with("/tests.rs");
    let findings: Vec<_> =
        sources().iter().filter(|source| !begun(source)).map(|source| format!("{}:1", source.path)).collect();
    report(&findings, "begin the file with `//!`: its role, what comes in, what it must not do");
}

#[test]
fn files_hold_one_idea() {
    let length = |source: &Source| source.lines().len();
    let findings: Vec<_> = sources()
        .iter()
        .filter(|source| !source.is_test() && length(source) > LINES_MAX)
        .map(|source| format!("{}: {} lines", source.path, length(source)))
        .collect();
    report(&findings, &format!("split these files by idea; {LINES_MAX} lines without tests is the most"));
}
