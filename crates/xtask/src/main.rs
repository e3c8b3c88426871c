//! `cargo xtask`: what the project does to itself: generate files, check its own rules, build what is released.
//!
//! Everything here runs on a developer's machine or in CI, never in a cluster.

// It is a tool for people at a terminal.
#![allow(clippy::print_stdout)]

mod codegen;
mod dist;
#[cfg(test)]
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};

/// Chores of the workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the generated files: CRDs, their copies in the chart, and the references of the command lines.
    Codegen {
        /// Write nothing; fail if a file is not as it would be written.
        #[arg(long)]
        check: bool,
    },
    /// Check the rules of the workspace that no compiler knows; the same as `cargo test -p xtask`.
    Tidy,
    /// Build the binaries, statically linked, and an image of each, into `dist/`.
    Dist(dist::DistArgs),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Codegen { check: true } => codegen::check(),
        Command::Codegen { check: false } => codegen::write(),
        Command::Tidy => workspace::run(workspace::cargo().args(["test", "--package", "xtask"])),
        Command::Dist(args) => dist::run(&args),
    }
}
