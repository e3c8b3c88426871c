//! Where the workspace is, and how to run commands in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    // Of the time of the build: the tool is run by cargo, from the sources it was built from.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// The cargo that runs this, in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command =
        Command::new(std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from));
    command.current_dir(root());
    command
}

/// Runs a command to its end; fails if it does.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// Runs a command to its end and returns what it printed; its errors go to the terminal.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no UTF-8"))
}
