//! What kube-proxy made of Services: the rules in the network of a node.

use std::collections::BTreeSet;

use anyhow::Result;
use e2e::hub::HubNode;

/// The rules that say what they are for: their chains, and what they say.
#[derive(Debug)]
pub(super) struct Rules(Vec<(String, String)>);

impl Rules {
    /// Those of a node now.
    pub(super) async fn of(node: &HubNode) -> Result<Self> {
        let saved = node.inside(&["iptables-save", "-t", "nat"]).await?.ok()?;
        Ok(Self(saved.lines().filter_map(rule).collect()))
    }

    /// The addresses that what is for a Service's port (`namespace/name`, or `namespace/name:port`) is sent to, with their ports.
    pub(super) fn endpoints(&self, of: &str) -> BTreeSet<&str> {
        let sent = self.within("KUBE-SVC-").filter_map(|comment| comment.split_once(" -> "));
        sent.filter(|(service, _)| *service == of).map(|(_, endpoint)| endpoint).collect()
    }

    /// Whether the Service's address leads anywhere.
    pub(super) fn routes(&self, of: &str) -> bool {
        self.within("KUBE-SERVICES").any(|comment| comment.split(' ').next() == Some(of))
    }

    /// Whether the node opens the Service's port.
    pub(super) fn opens_port(&self, of: &str) -> bool {
        self.within("KUBE-NODEPORTS").any(|comment| comment == of)
    }

    fn within<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(of, _)| of.starts_with(chain)).map(|(_, comment)| &**comment)
    }
}

/// The chain and the comment of a line of `iptables-save`.
fn rule(line: &str) -> Option<(String, String)> {
    let (chain, rest) = line.strip_prefix("-A ")?.split_once(' ')?;
    let comment = rest.split_once("--comment ")?.1;
    let comment = match comment.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => comment.split(' ').next()?,
    };
    Some((chain.to_owned(), comment.to_owned()))
}
