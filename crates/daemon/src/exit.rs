//! Exit codes, as `sysexits.h` has them, so that whoever supervises can tell a wrong flag from a failure.

use std::process::ExitCode;

use clap::Parser;

/// The command line or the configuration is wrong: to start again will not help (`EX_USAGE`).
pub const USAGE: u8 = 64;

/// Something failed inside (`EX_SOFTWARE`).
pub const SOFTWARE: u8 = 70;

/// Reads the command line. What is wrong with it, or the help that was asked for, is printed; the code to exit with
/// comes back: 0 after help, [`USAGE`] after a mistake.
pub fn parse<A: Parser>() -> Result<A, ExitCode> {
    A::try_parse().map_err(|error| {
        // With nowhere left to print to, the code must say it.
        let _ = error.print();
        code_of(&error)
    })
}

fn code_of(error: &clap::Error) -> ExitCode {
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(version)]
    struct Args {
        #[arg(long)]
        number: u8,
    }

    #[test]
    fn a_mistake_is_a_usage_error_and_help_is_none() {
        let code = |line: &[&str]| format!("{:?}", code_of(&Args::try_parse_from(line).unwrap_err()));
        let usage = format!("{:?}", ExitCode::from(64));
        let success = format!("{:?}", ExitCode::SUCCESS);
        assert_eq!(code(&["x", "--number", "many"]), usage);
        assert_eq!(code(&["x", "--unknown"]), usage);
        assert_eq!(code(&["x"]), usage);
        assert_eq!(code(&["x", "--help"]), success);
        assert_eq!(code(&["x", "--version"]), success);
        assert_eq!(Args::try_parse_from(["x", "--number", "3"]).unwrap().number, 3);
    }
}
