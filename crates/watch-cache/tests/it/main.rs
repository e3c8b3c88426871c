//! The cache against an independent model, over random histories.
#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, which clippy does not see")]

mod client;
mod history;
mod model;
mod world;
