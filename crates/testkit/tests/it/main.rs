//! Tests of the fake API server over real connections, and of the checker against it.

mod differential;
mod faults;
mod properties;
mod server;
mod support;
mod throughput;
