//! Pure files decide; they do not act. So a decision can be tested with any time and any world.

use super::report;
use super::source::production;

/// Names of files that hold decisions.
const PURE: [&str; 10] = [
    "plan.rs",
    "route.rs",
    "lease.rs",
    "window.rs",
    "rotation.rs",
    "elect.rs",
    "of_pod.rs",
    "ownership.rs",
    "contest.rs",
    "taint.rs",
];

/// Crates that only decide.
const PURE_CRATES: [&str; 1] = ["crates/watch-cache/src/"];

/// What acts, waits or looks at the clock.
const IMPURE: [&str; 8] =
    ["async", "await", "Client", "Instant::now", "SystemTime::now", "Timestamp::now", "Zoned::now", "tokio"];

#[test]
fn pure_files_have_no_async_no_clock_and_no_client() {
    let mut findings = Vec::new();
    let mut seen = 0;
    for source in production() {
        let name = source.path.rsplit('/').next().unwrap_or_default();
        if !PURE.contains(&name) && !PURE_CRATES.iter().any(|folder| source.path.starts_with(folder)) {
            continue;
        }
        seen += 1;
        for line in source.lines() {
            let impure = IMPURE.iter().filter(|word| has_word(&line.code, word));
            findings.extend(impure.map(|word| format!("{}:{}: {word}", source.path, line.number)));
        }
    }
    assert!(seen > 0, "no pure file was found; have they been renamed? Then rename them here, too");
    report(&findings, "these files only decide: pass times and objects in, and act in another file");
}

/// Whether `word` stands in `code` and not within a longer word.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(part_of_word) && !code[at + word.len()..].starts_with(part_of_word)
    })
}

#[test]
fn words_are_found_whole() {
    assert!(has_word("pub async fn a()", "async"));
    assert!(has_word("Timestamp::now()", "Timestamp::now"));
    assert!(!has_word("ClientConfig", "Client"));
    assert!(!has_word("is_async", "async"));
}
