//! The protocol as both sides see it: a reporter and servers over a network that loses, doubles and reorders.
#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, which clippy does not see")]

mod model;
mod scenarios;
