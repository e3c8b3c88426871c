//! `edge-hub status`: asks the hub that runs on this node how it is, and prints that.
//!
//! ```text
//!  admin listener: GET /v1/status ─► view (what the hub says of itself) ─► JSON ─► table, or JSON as it is
//! ```

mod ask;
mod configuration;
mod table;
mod view;

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
};

pub(crate) use self::table::columns;
pub use self::view::{
    HubView, LinkView, ServerConnection, ServerView, State, StoreView, SubscriptionView, resource_name,
};

/// Where the running hub answers.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminArgs {
    /// Loopback address of the running hub's probes, as it was started with.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub bind_address: IpAddr,

    /// Port of the running hub's probes, as it was started with.
    #[arg(long, value_name = "PORT", default_value_t = 10267)]
    pub serve_port: u16,
}

/// Arguments of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// Where the running hub answers.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// How to print it.
    #[arg(long, short, value_enum, default_value_t = StatusFormat::Table)]
    pub output: StatusFormat,
}

/// How `edge-hub status` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StatusFormat {
    /// For people.
    Table,
    /// For programs: one object, whose fields stay.
    Json,
}

/// Why the status is not known.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Nobody answers, or something that is no hub.
    #[error(
        "no hub answers on {address} ({problem}); is `edge-hub run` running, and with this --serve-port?"
    )]
    Ask {
        /// Who was asked.
        address: SocketAddr,
        /// What happened.
        problem: String,
    },
    /// It cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Asks and prints.
pub fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<(), StatusError> {
    let address = SocketAddr::from((args.admin.bind_address, args.admin.serve_port));
    let failed = |problem: String| StatusError::Ask { address, problem };
    let text = ask::get(address, "/v1/status").map_err(failed)?;
    // Read also when it is printed as it is: what is no status must not pass for one.
    let view: HubView = serde_json::from_slice(&text)
        .map_err(|error| failed(format!("it says what no hub says: {error}")))?;
    match args.output {
        StatusFormat::Table => table::print(&view, out)?,
        StatusFormat::Json => {
            let text = serde_json::to_string_pretty(&view).map_err(io::Error::other)?;
            writeln!(out, "{text}")?;
        }
    }
    Ok(())
}
