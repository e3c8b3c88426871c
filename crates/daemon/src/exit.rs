//! Exit codes, as `sysexits.h` has them, so that whoever supervises can tell a wrong flag from a failure.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// What was to be checked is not as it should be; nothing failed.
pub const CHECK_FAILED: u8 = 1;

/// The command line or the configuration is wrong: to start again will not help (`EX_USAGE`).
pub const USAGE: u8 = 64;

/// Something failed inside (`EX_SOFTWARE`).
pub const SOFTWARE: u8 = 70;

/// What `--help` says of the exit codes.
pub const HELP: &str = "Exit codes: 0 done, or the check passed; 1 the check found a problem; 64 the command line is wrong; \
    70 something failed, and the message says what.";

/// Says on standard error what failed, and gives the code to exit with.
pub fn fail(program: &str, code: u8, error: &dyn Error) -> ExitCode {
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(std::io::stderr(), "{program}: {}", in_one_line(error));
    ExitCode::from(code)
}

/// The error and its causes. Messages that quote their cause, as many do, do not say it twice.
fn in_one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

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

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("cannot start; {0}")]
        Quoting(#[source] std::io::Error),
        #[error("cannot start")]
        Silent(#[source] std::io::Error),
    }

    #[test]
    fn causes_are_told_once_and_in_one_line() {
        let cause = || std::io::Error::other("no room:\n  buy a disk");
        assert_eq!(in_one_line(&Failed::Quoting(cause())), "cannot start; no room: buy a disk");
        assert_eq!(in_one_line(&Failed::Silent(cause())), "cannot start: no room: buy a disk");
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
