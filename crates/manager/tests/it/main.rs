//! Integration tests of the manager.
#![allow(clippy::unwrap_used, reason = "clippy.toml allows it in tests, but not in what tests share")]

mod chart;
