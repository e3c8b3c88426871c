//! The binary `edge-hub`: parses the command line and hands it to the library.

use std::{io, process::ExitCode};

use clap::Parser;
use edge_hub::Args;

fn main() -> anyhow::Result<ExitCode> {
    let Args { command } = Args::parse();
    edge_hub::run(command, &mut io::stdout().lock())
}
