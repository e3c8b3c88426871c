//! `edge-hub hostnet`: makes the container runtime find no network but the loopback, reversibly.
//!
//! What is going to be changed is written to a journal before anything is; each change is one atomic operation that can
//! be repeated and undone. So after a crash at any point `enable` completes the work and `disable` takes it back.

use std::{io::Write, path::Path, process::ExitCode};

use daemon::exit::CHECK_FAILED;

mod args;
mod check;
mod conf_dir;
mod disk;
mod journal;
mod kubelet;
mod plan;
mod read;
mod report;

pub use args::{HostnetArgs, HostnetCommand, OutputFormat, Paths};
pub use disk::{Disk, RealDisk};
use journal::{Journal, Lock};
use plan::Plan;

/// The file that makes the loopback the node's only network. Container runtimes take the first file by name, and this
/// sorts before those of all known network plugins.
pub const LOOPBACK_FILE: &str = "0-loopback.conf";

/// Its content. Every loopback plugin there is knows this version of the CNI specification.
pub const LOOPBACK_CONTENT: &str =
    "{\n  \"cniVersion\": \"0.3.0\",\n  \"name\": \"lo\",\n  \"type\": \"loopback\"\n}\n";

/// The end of the names of configurations that were set aside. Container runtimes read only `.conf`, `.conflist` and
/// `.json`.
pub const SET_ASIDE_SUFFIX: &str = ".isthmus-disabled";

/// Why `edge-hub hostnet` failed. Every message names the path and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The CNI configurations cannot be listed.
    #[error(transparent)]
    ConfDir(#[from] conf_dir::Error),
    /// The journal of what was changed cannot be read or written.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// What is there stands in the way.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// A change failed.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// The report cannot be printed.
    #[error("cannot print the result: {0}")]
    Output(#[source] std::io::Error),
}

/// Runs `edge-hub hostnet`. Exit code 1 only for a `check` that found a problem.
pub fn run(args: HostnetArgs, disk: &mut dyn Disk, out: &mut dyn Write) -> Result<ExitCode, Error> {
    let HostnetArgs { command, paths } = args;
    match command {
        HostnetCommand::Enable { dry_run } => {
            change(&paths, dry_run, disk, out, plan::enable)?;
            if !dry_run {
                report::advice(&check::kubelet(&paths), out).map_err(Error::Output)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        HostnetCommand::Disable { dry_run } => {
            // Without its folder there is no journal: nothing to undo, and no folder to make for a lock.
            let only_look = dry_run || !paths.state_dir.exists();
            change(&paths, only_look, disk, out, plan::disable)?;
            Ok(ExitCode::SUCCESS)
        }
        HostnetCommand::Check { output } => {
            let checks = check::all(&paths);
            report::checks(&checks, output, out).map_err(Error::Output)?;
            Ok(if check::passed(&checks) { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
        }
    }
}

/// Observes, plans and, unless it is a dry run, applies.
fn change(
    paths: &Paths,
    dry_run: bool,
    disk: &mut dyn Disk,
    out: &mut dyn Write,
    decide: fn(&conf_dir::ConfDir, &Journal) -> Result<Plan, plan::Error>,
) -> Result<(), Error> {
    let lock = if dry_run { None } else { Some(Lock::take(&paths.state_dir, disk)?) };
    let journal = Journal::load(&paths.state_dir)?;
    let plan = decide(&conf_dir::ConfDir::observe(&paths.cni_conf_dir)?, &journal)?;
    report::plan(&plan, dry_run, out).map_err(Error::Output)?;
    if !dry_run {
        apply(&plan, &journal, &paths.state_dir, disk)?;
        report::done(&plan, out).map_err(Error::Output)?;
    }
    drop(lock);
    Ok(())
}

/// Journal first, so that whatever happens afterwards can be taken back; it goes last when all is undone.
fn apply(plan: &Plan, before: &Journal, state_dir: &Path, disk: &mut dyn Disk) -> Result<(), Error> {
    let Plan { journal, operations, notes: _ } = plan;
    if !journal.is_empty() && journal != before {
        journal.save(state_dir, disk)?;
    }
    for operation in operations {
        operation.apply(disk)?;
    }
    if journal.is_empty() && !before.is_empty() {
        Journal::remove(state_dir, disk)?;
    }
    Ok(())
}
