//! Kinds that users write and of which there may be objects from before a rule: one that cannot be read must end no list and no watch.

use super::report;
use super::source::production;

/// Kinds of ours that users write.
const KINDS: [&str; 2] = ["NodePool", "Gateway"];

/// What lists, watches or keeps objects of a kind.
const READERS: [&str; 4] = ["Api", "ByName", "Event", "Index"];

/// Files that only write such objects: what is patched is named, and was read by others.
const WRITERS: [&str; 2] = ["apply.rs", "status.rs"];

#[test]
fn lists_and_watches_of_what_users_write_are_guarded() {
    let mut findings = Vec::new();
    let mut guarded = 0;
    for source in production().iter().filter(|source| source.path.starts_with("crates/manager/")) {
        let name = source.path.rsplit('/').next().unwrap_or_default();
        for line in source.lines() {
            let reads = [".list(", ".watch(", "watcher("].iter().any(|call| line.code.contains(call));
            guarded +=
                KINDS.iter().filter(|kind| line.code.contains(&format!("DeserializeGuard<{kind}>"))).count();
            for kind in KINDS {
                let bare = READERS.iter().any(|reader| is_bare(&line.code, reader, kind));
                if bare && (reads || !WRITERS.contains(&name)) {
                    findings.push(format!("{}:{}: {}", source.path, line.number, line.code.trim()));
                }
            }
        }
    }
    assert!(guarded > 0, "no guard was found; is it called otherwise by now?");
    report(
        &findings,
        "an object that cannot be read would end the watch of all others: read DeserializeGuard<Kind>, and tell of what it kept",
    );
}

/// Whether `code` has a `reader` of objects of `kind` without the guard.
fn is_bare(code: &str, reader: &str, kind: &str) -> bool {
    [format!("{reader}<{kind}>"), format!("{reader}::<{kind}>")].iter().any(|form| code.contains(form))
}

#[test]
fn a_guard_is_seen() {
    assert!(is_bare("let a: Api<NodePool> = all();", "Api", "NodePool"));
    assert!(is_bare("Api::<Gateway>::all(client)", "Api", "Gateway"));
    assert!(!is_bare("Api::<DeserializeGuard<Gateway>>::all(client)", "Api", "Gateway"));
}
