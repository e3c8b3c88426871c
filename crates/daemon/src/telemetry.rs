//! Logs: what is logged, and in which form. They go to standard error; standard output belongs to commands' results.

use std::io;

use clap::{Args, ValueEnum};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// Arguments about logs, to be flattened into a program's own.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// What to log: a level (error, warn, info, debug, trace), or a list of target=level, such as
    /// `info,manager::webhook=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "ISTHMUS_LOG", value_parser = filter, global = true)]
    pub log_level: String,
    /// How to write logs.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text, global = true)]
    pub log_format: LogFormat,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is malformed. Cannot happen with arguments that clap has parsed.
    #[error("malformed log filter")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// Logging was set up before.
    #[error("logging is set up already")]
    Installed(#[source] tracing_subscriber::util::TryInitError),
}

/// Sets logging up for the whole process. To be called once, from `main`.
pub fn init(args: &LogArgs) -> Result<(), TelemetryError> {
    let LogArgs { log_level, log_format } = args;
    let filter = EnvFilter::try_new(log_level).map_err(TelemetryError::Filter)?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let initialised = match log_format {
        LogFormat::Text => registry.with(layer).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
    initialised.map_err(TelemetryError::Installed)
}

/// Accepts a filter as it was typed, if it is one: a typo must stop the program and not its logs.
fn filter(typed: &str) -> Result<String, String> {
    EnvFilter::try_new(typed).map_err(|error| error.to_string())?;
    // A directive that is only a word names a target and turns everything else off: nobody means that by `infos`.
    let unknown_level = typed.split(',').map(str::trim).find(|directive| {
        !directive.is_empty()
            && !directive.contains(['=', '[', ':'])
            && directive.parse::<tracing_subscriber::filter::LevelFilter>().is_err()
    });
    unknown_level.map_or_else(
        || Ok(typed.to_owned()),
        |word| Err(format!("{word:?} is no level; a target is written as {word}=LEVEL")),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        log: LogArgs,
    }

    #[test]
    fn filters_are_checked_when_typed() {
        for good in
            ["info", "off", "WARN", "info,manager::webhook=debug", "manager=trace", "info,kube[span]=debug"]
        {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["infos", "info,manager=loud", "info,manager", "=a=b"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
        assert!(Program::try_parse_from(["x", "--log-level", "loud"]).is_err());
        let program = Program::try_parse_from(["x", "--log-level=debug", "--log-format=json"]).unwrap();
        assert_eq!((program.log.log_level.as_str(), program.log.log_format), ("debug", LogFormat::Json));
    }
}
