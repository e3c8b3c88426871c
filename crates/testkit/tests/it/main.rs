//! Tests of the fake API server over real connections, and of the checker against it.

// Everything here is test code; clippy knows that only of functions marked so.
#![allow(clippy::unwrap_used)]

mod differential;
mod faults;
mod properties;
mod server;
mod support;
mod throughput;
