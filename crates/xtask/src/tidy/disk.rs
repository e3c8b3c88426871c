//! Who writes to the disk: what is kept is whole or not there at all, and only a few files know how.

use super::report;
use super::source::{production, sources};

/// What writes a file, or puts one in the place of another.
const WRITES: [&str; 6] =
    ["fs::write(", "fs::rename(", "fs::copy(", "File::create", "OpenOptions::new", "fs::hard_link("];

/// Crates that write objects, and keys and certificates (invariant 20).
const WRITERS: [&str; 2] = ["crates/object-store/src/", "crates/tls/src/"];

/// Files beside them that may write, each with the reason.
const MAY_WRITE: [(&str, &str); 1] = [(
    "crates/edge-hub/src/hostnet/disk.rs",
    "a node's CNI configuration, by a journal of its own (invariant 13)",
)];

#[test]
fn only_a_few_files_write_to_the_disk() {
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for source in production() {
        let is_writer = WRITERS.iter().any(|folder| source.path.starts_with(folder))
            || source.path.starts_with("crates/testkit/");
        for line in source.lines() {
            if is_writer || !WRITES.iter().any(|call| line.code.contains(call)) {
                continue;
            }
            match MAY_WRITE.iter().find(|(path, _)| *path == source.path) {
                Some((path, _)) => used.push(*path),
                None => findings.push(format!("{}:{}: {}", source.path, line.number, line.code.trim())),
            }
        }
    }
    report(
        &findings,
        "objects reach the disk through object-store, keys and certificates through tls, whole or not at all; for anything else \
         add the file with a reason to MAY_WRITE",
    );
    let idle: Vec<_> = MAY_WRITE.iter().filter(|(path, _)| !used.contains(path)).collect();
    assert!(idle.is_empty(), "MAY_WRITE names files that write nothing; remove them: {idle:?}");
    assert!(sources().iter().any(|source| source.path.starts_with(WRITERS[0])), "object-store has moved");
}
