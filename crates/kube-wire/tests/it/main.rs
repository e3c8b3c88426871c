//! What this crate reads and writes, against golden vectors that `tests/golden/capture.sh` captured from an API server 1.36.

mod errors;
mod frames;
mod golden;
mod readers;
