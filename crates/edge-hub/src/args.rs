//! The command line of `edge-hub`.

use crate::{
    hostnet::HostnetArgs, inspect::CacheCommandArgs, manifest::ManifestArgs, run::RunArgs, status::StatusArgs,
};

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
    /// Say how the hub of this node is: its link, and what it holds.
    ///
    /// Asks the listener of probes. AGE is how long ago what is held was last known to be current; SAVED is what clients were given,
    /// less what came over the link for it.
    Status(StatusArgs),
    /// Print a systemd unit or a static pod that starts the hub.
    ///
    /// Nothing is written: `edge-hub manifest systemd -- --node-name … > /etc/systemd/system/edge-hub.service`. The options after -- are those
    /// of `edge-hub run`, and are checked.
    Manifest(ManifestArgs),
    /// Show what the hub keeps on this node's disk, whether it runs or not.
    Cache(CacheCommandArgs),
}
