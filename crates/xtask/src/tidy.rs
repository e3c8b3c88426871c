//! The rules of the workspace that no compiler knows, each a test whose failure names file, line and remedy.
//!
//! They read sources as text, without comments and literals (see [`source`]): coarse, but every rule here is about words
//! that do not occur by accident.

mod dependencies;
mod disk;
mod files;
mod generated;
mod guarded;
mod purity;
mod source;
mod words;

/// Fails with all of `findings`, one a line, and what to do about them.
fn report(findings: &[String], remedy: &str) {
    assert!(findings.is_empty(), "{remedy}:\n  {}\n", findings.join("\n  "));
}
