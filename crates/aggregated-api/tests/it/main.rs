//! The API as its clients see it: over its router, and over TLS.
#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, which clippy does not see")]

mod api;
mod authentication;
mod generated;
mod limits;
mod lists;
mod meta;
mod reviews;
mod rotation;
mod shares;
mod watching;
mod writing;
