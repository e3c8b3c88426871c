//! What this crate reads and writes, against golden vectors that `tests/golden/capture.sh` captured from an API server 1.36.
#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, which clippy does not see")]

mod errors;
mod frames;
mod golden;
mod readers;
