//! The command line of `edge-hub`.

use crate::{hostnet::HostnetArgs, run::RunArgs};

/// A node's side of Isthmus.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "edge-hub", version, about, after_help = daemon::exit::HELP)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `edge-hub` can do.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Set this node up for a host-network pool, undo that, or check it.
    ///
    /// On a node of a host-network pool every pod uses the node's network: no CNI plugin but the loopback runs, and
    /// neither kube-proxy, a DNS server nor an agent of the network is needed.
    Hostnet(HostnetArgs),
    /// Run the hub: this node's one way to the API server, shared, cached and durable.
    Run(Box<RunArgs>),
}
