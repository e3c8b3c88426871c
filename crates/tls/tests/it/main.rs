//! The listener with real sockets: axum behind TLS, clients good and bad.

#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, which clippy does not see")]

mod listener;
mod server;
