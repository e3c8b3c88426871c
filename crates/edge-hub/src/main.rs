//! The binary `edge-hub`: parses the command line and hands it to the library.

use std::{io, process::ExitCode};

use daemon::{exit, print};
use edge_hub::Args;

fn main() -> ExitCode {
    heap::keep_little();
    tls::install_provider();
    let Args { command } = match exit::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    edge_hub::run(command, &mut print::stdout(), &mut io::stderr())
        .unwrap_or_else(|error| exit::fail("edge-hub", error.exit_code(), &error))
}
