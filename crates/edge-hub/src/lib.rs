//! A node's side of Isthmus. For now: setting a node up for a host-network pool, and undoing it.
//!
//! ```text
//!  Args ─► hostnet::run ─► observe (conf dir, journal) ─► plan (pure) ─► journal first, then each operation
//!                       └► check (kubelet, CNI plugin, conf dir) ─► report
//! ```
//! The library prints only to the writer that it is given.

use std::{io::Write, process::ExitCode};

mod args;
pub mod authenticate;
pub mod hostnet;
pub mod listen;
pub mod upstream;

pub use args::{Args, Command};

/// Runs a command and says how the process ends.
pub fn run(command: Command, out: &mut dyn Write) -> Result<ExitCode, hostnet::Error> {
    match command {
        Command::Hostnet(args) => hostnet::run(args, &mut hostnet::RealDisk, out),
    }
}
