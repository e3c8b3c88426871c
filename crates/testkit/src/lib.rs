//! a fake API server with true resource versions and watches, a checker of what clients of it may rely on, a client, a
//! bad link between two sockets ([`wan`]), what is told the log, and whether a dashboard asks for what a process shows.
//!
//! Written from the Kubernetes API's contract alone: nothing here uses `kube-wire` or `watch-cache`, which are tested with
//! it. For tests only: no other crate depends on it but as a dev-dependency.

pub mod api_server;
pub mod client;
pub mod dashboard;
pub mod differential;
pub mod history;
pub mod log;
pub mod memory;
pub mod random;
pub mod selector;
pub mod wan;
