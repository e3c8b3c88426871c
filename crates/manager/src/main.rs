//! The binary `isthmus-manager`.

use std::process::ExitCode;

use manager::args::Args;

fn main() -> ExitCode {
    tls::install_provider();
    match daemon::exit::parse::<Args>() {
        Ok(args) => manager::commands::run(args),
        Err(code) => code,
    }
}
