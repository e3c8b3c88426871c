//! The options of the tunnel.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

/// The tunnel between cloud and edge.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Tunnel")]
pub struct TunnelArgs {
    /// Play the role in the tunnel that the Gateways of the cluster give this node. All other options of the tunnel count only with
    /// this one, or with the key tunnel of --config.
    #[arg(long)]
    pub tunnel: bool,

    /// Where a gateway accepts the links of other nodes.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10262")]
    pub tunnel_address: SocketAddr,

    /// Where a gateway takes what is sent to Service x-raven-proxy-internal-svc, whose ports they are; if not given, at the internal
    /// addresses that its Node has.
    #[arg(long, value_name = "IP")]
    pub tunnel_ways_in_address: Option<IpAddr>,

    /// Port on 127.0.0.1 of an HTTP proxy (CONNECT, and http:// URIs) by which programs of this node reach nodes and
    /// destinations anywhere by name; 0 is off.
    #[arg(long, value_name = "PORT", default_value_t = 10265)]
    pub tunnel_proxy_port: u16,

    /// Local users who may use that proxy; * for all.
    #[arg(long, value_name = "UID", value_delimiter = ',', default_value = "0", value_parser = uid)]
    pub tunnel_proxy_uids: Vec<LocalUser>,

    /// What may be reached beside the ports of kubelets and those that Gateways list, as WHAT[@WHERE]=PORT[+PORT|-PORT][:WHO]: nodes or
    /// loopback, of all domains or of one; a name, *.NAME or a network, in a domain. WHERE is cloud (the default), pool/NAME or node/NAME.
    /// WHO may ask beside the cloud, with + between several, or all; if not given, all for nodes and names, and the cloud alone for loopback and networks.
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    pub tunnel_destinations: Vec<super::DestinationRule>,

    /// HTTP proxy on the way to gateways, http://[USER:PASSWORD@]HOST:PORT.
    #[arg(long, value_name = "URL", env = "HTTPS_PROXY", hide_env_values = true)]
    pub tunnel_http_proxy: Option<String>,

    /// Gateways that are dialled without it: names with all below them, addresses, networks, or *.
    #[arg(long, value_name = "HOSTS", env = "NO_PROXY")]
    pub tunnel_no_proxy: Option<String>,

    /// Unix socket, mode 0600, by which an API server of this node sends what it has for nodes (`EgressSelector`, `HTTPConnect`).
    #[arg(long, value_name = "FILE")]
    pub tunnel_egress_socket: Option<PathBuf>,

    /// The same and an HTTP proxy (`proxy_url`) on TCP, for clients with a certificate; served with the gateway's certificate.
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "tunnel_client_ca_file",
        requires = "tunnel_client_names"
    )]
    pub tunnel_clients_address: Option<SocketAddr>,

    /// Authorities of those clients (PEM).
    #[arg(long, value_name = "FILE", requires = "tunnel_clients_address")]
    pub tunnel_client_ca_file: Option<PathBuf>,

    /// Common names of those clients. There is no default: any other certificate of the authority is refused.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "tunnel_clients_address")]
    pub tunnel_client_names: Vec<String>,
}

/// A local user, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalUser {
    /// All.
    Any,
    /// The one of this number.
    Uid(u32),
}

fn uid(text: &str) -> Result<LocalUser, String> {
    match text.trim() {
        "*" => Ok(LocalUser::Any),
        number => {
            number.parse().map(LocalUser::Uid).map_err(|_| "write the number of a user, or *".to_owned())
        }
    }
}
