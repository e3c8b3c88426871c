//! `edge-hub run`: the hub itself, from its arguments to its orderly end.

mod app;
mod args;
mod config;
mod listeners;
mod never_kept;
mod secure;
mod serving_files;
pub(crate) mod storage_key;

pub(crate) use self::app::TUNNEL_DRAIN;
pub use self::app::{App, StartError};
pub use self::args::RunArgs;
pub use self::config::{Config, ConfigError, Filtering, Lifetimes, Listeners, Sharing};
pub use self::listeners::Network;
pub(crate) use self::secure::socket;

/// Why the hub did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The arguments about logs.
    #[error(transparent)]
    Telemetry(#[from] daemon::telemetry::TelemetryError),
    /// The arguments, or files that they name.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address, the folder or the store.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system gives no threads or signals.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Runs the hub until it is asked to end.
pub fn run(args: RunArgs) -> Result<(), RunError> {
    daemon::telemetry::init(&args.log)?;
    let config = Config::try_from(args)?;
    // Two threads keep one slow request from delaying the others; more would only cost memory.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::shutdown::signals()?;
        App::build(config, shutdown).await?.run().await;
        Ok(())
    })
}
