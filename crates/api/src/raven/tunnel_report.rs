//! What the hub of an exposed gateway's node says of its tunnels: the value of the annotation
//! [`crate::annotations::TUNNEL_REPORT`] on the Lease [`crate::names::gateway_lease`], which that hub renews while it accepts links.

use serde::{Deserialize, Serialize};

/// The tunnels that end at a node. JSON; unknown fields are ignored.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelReport {
    /// Which run of the hub it is.
    pub instance: String,
    /// The nodes that can be reached by a tunnel that ends here, sorted.
    #[serde(default)]
    pub links: Vec<ReportedLink>,
    /// The nodes of exposed gateways to which this one has dialled a link, sorted: they live, whatever they say of themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<String>,
    /// The port at which the hub accepts links. Older hubs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A node to which there is at least one registered reverse link.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedLink {
    /// The node that dialled, as its certificate says.
    pub node: String,
    /// Round-trip time in milliseconds, at least 1. Changes of less than a quarter are not reported by themselves.
    #[serde(default)]
    pub round_trip_millis: i32,
}
