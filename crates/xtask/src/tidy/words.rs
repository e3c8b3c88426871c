//! Words that have a place: well-known names in crate `api`, spawning where tasks are owned, a reason beside every
//! silenced lint.

use super::report;
use super::source::{Line, production, sources};

/// Groups of labels, annotations and kinds, and names of objects, that peers or other parts of us know.
const WELL_KNOWN: [&str; 8] = [
    "openyurt.io/",
    "isthmus.dev/",
    "raven-",
    "leader-hub-",
    "yurt-hub-cfg",
    "edge-tunnel-nodes",
    "isthmus-gateway-",
    "koordinator.sh",
];

/// Files that may start tasks outside a `JoinSet`, each with the reason.
const MAY_SPAWN: [(&str, &str); 1] =
    [("crates/daemon/src/shutdown.rs", "waits for signals, and so for as long as there is a process")];

#[test]
fn well_known_names_stand_only_in_crate_api() {
    let mut findings = Vec::new();
    for source in production().iter().filter(|source| !source.path.starts_with("crates/api/")) {
        for line in source.lines() {
            let named = WELL_KNOWN.iter().filter(|name| line.literals.contains(*name));
            findings.extend(named.map(|_| format!("{}:{}: {}", source.path, line.number, line.literals)));
        }
    }
    report(
        &findings,
        "well-known names stand in crate api (labels, annotations, names): add a constant there and use it",
    );
}

#[test]
fn every_task_is_owned() {
    let mut findings = Vec::new();
    for source in production() {
        if MAY_SPAWN.iter().any(|(path, _)| *path == source.path) {
            continue;
        }
        for line in source.lines() {
            if ["tokio::spawn(", "task::spawn(", "thread::spawn("].iter().any(|call| line.code.contains(call))
            {
                findings.push(format!("{}:{}: {}", source.path, line.number, line.code.trim()));
            }
        }
    }
    report(
        &findings,
        "a task that nobody owns outlives its purpose and hides its panic: spawn it in a JoinSet, or add the file with a \
         reason to MAY_SPAWN",
    );
    let missing: Vec<_> =
        MAY_SPAWN.iter().filter(|(path, _)| !sources().iter().any(|s| s.path == *path)).collect();
    assert!(missing.is_empty(), "MAY_SPAWN names files that are not there; remove them: {missing:?}");
}

#[test]
fn every_silenced_lint_has_a_reason() {
    let mut findings = Vec::new();
    for source in sources() {
        let lines = super::source::split(&source.text);
        for (index, line) in lines.iter().enumerate() {
            let silences =
                ["#[allow(", "#![allow(", "#[expect(", "#![expect("].iter().any(|a| line.code.contains(a));
            let above = index.checked_sub(1).and_then(|index| lines.get(index));
            if silences && !has_reason(&lines[index..], above) {
                findings.push(format!("{}:{}: {}", source.path, line.number, line.code.trim()));
            }
        }
    }
    report(&findings, "say in a comment beside or above it, or with `reason =`, why the lint is wrong here");
}

/// Whether the attribute that begins in the first of `lines` says why, or the line above does.
fn has_reason(lines: &[Line], above: Option<&Line>) -> bool {
    // A comment of its own line; documentation is about the item, not about the lint.
    let explains = |line: &Line| {
        let comment = line.comment.trim();
        comment.starts_with("//") && !comment.starts_with("///") && !comment.starts_with("//!")
    };
    let end = lines.iter().position(|line| line.code.contains(")]")).unwrap_or(0);
    let attribute = &lines[..=end];
    attribute.iter().any(|line| explains(line) || line.code.contains("reason ="))
        || above.is_some_and(|above| above.code.trim().is_empty() && explains(above))
}

#[test]
fn a_reason_is_a_comment_beside_or_above() {
    let check = |text: &str| {
        let lines = super::source::split(text);
        let at = lines.iter().position(|line| line.code.contains("#[allow(")).unwrap();
        has_reason(&lines[at..], at.checked_sub(1).map(|above| &lines[above]))
    };
    assert!(check("#[allow(dead_code)] // read by tests"));
    assert!(check("// Read by tests.\n#[allow(dead_code)]"));
    assert!(check("#[allow(dead_code, reason = \"read by tests\")]"));
    assert!(check("#[allow(\n    dead_code,\n    reason = \"read by tests\"\n)]\nfn a() {}"));
    assert!(!check("#[allow(\n    dead_code,\n)]\n// What follows is another matter.\nfn a() {}"));
    assert!(!check("/// What it is.\n#[allow(dead_code)]"));
    assert!(!check("let a = 1; // one\n#[allow(dead_code)]"));
    assert!(!check("#[allow(dead_code)]"));
}
