//! A node's side of Isthmus: the hub, a node's one way to the API server, and the set-up of a node for a host-network pool.
//!
//! ```text
//!  Args ─► run::Config ─► run::App: listeners ─► proxy ─► serve ─► subscriptions ◄─ reflector ◄─ upstream
//!                                                                        └──► storage
//!  Args ─► hostnet::run ─► observe (conf dir, journal) ─► plan (pure) ─► journal first, then each operation
//!                       └► check (kubelet, CNI plugin, conf dir) ─► report
//! ```
//! The library prints only to the writers that it is given.

use std::{io::Write, process::ExitCode};

use daemon::exit;

pub mod admin;
mod alike;
mod args;
pub mod authenticate;
pub mod authorize;
pub mod cloud_config;
mod definitions;
pub mod filters;
mod found_out;
pub mod freshness;
pub mod hostnet;
pub mod hub;
pub mod identity;
pub mod inspect;
mod keeping;
mod last_link;
pub mod listen;
mod make_room;
pub mod manifest;
pub mod metrics;
pub mod node_metric;
pub mod offline;
pub mod own_writes;
pub mod proxy;
mod queue;
pub mod reflector;
pub mod run;
pub mod serve;
mod sock_diag;
pub mod status;
pub mod storage;
pub mod subscriptions;
pub mod tasks;
pub mod tunnel_roles;
pub mod upstream;

pub use args::{Args, Command};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command about host-network pools.
    #[error(transparent)]
    Hostnet(#[from] hostnet::Error),
    /// The hub itself.
    #[error(transparent)]
    Run(#[from] run::RunError),
    /// How the running hub is.
    #[error(transparent)]
    Status(#[from] status::StatusError),
    /// What starts the hub.
    #[error(transparent)]
    Manifest(#[from] manifest::ManifestError),
    /// What the hub keeps on disk.
    #[error(transparent)]
    Inspect(#[from] inspect::InspectError),
}

impl Error {
    /// How the process ends after it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Manifest(manifest::ManifestError::Print(_)) => exit::SOFTWARE,
            Self::Run(run::RunError::Config(_)) | Self::Manifest(_) => exit::USAGE,
            Self::Hostnet(_) | Self::Run(_) | Self::Status(_) | Self::Inspect(_) => exit::SOFTWARE,
        }
    }
}

/// Runs a command and says how the process ends. What it prints goes to `out`, a word beside that to `err`.
pub fn run(command: Command, out: &mut dyn Write, err: &mut dyn Write) -> Result<ExitCode, Error> {
    match command {
        Command::Run(args) => {
            run::run(*args)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Status(args) => {
            status::run(&args, out)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Manifest(args) => {
            manifest::run(&args, out)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Cache(args) => Ok(inspect::run(&args, out, err)?),
        Command::Hostnet(args) => Ok(hostnet::run(args, &mut hostnet::RealDisk, out)?),
    }
}
