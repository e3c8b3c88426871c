//! Pure: which nodes dial exposed gateways, and so whose links are missed if there are none.

use std::collections::BTreeSet;

use super::domains::{Domain, Member};

/// The nodes that dial, by what the cluster knows of them. Whether their hubs run is what their links show.
#[derive(Debug, Default)]
pub(crate) struct Dialers<'a> {
    /// Those that come as far as the API server, and so have a way out.
    pub(crate) ready: BTreeSet<&'a str>,
    /// The others: no gateway is to blame for these.
    pub(crate) away: BTreeSet<&'a str>,
}

impl<'a> Dialers<'a> {
    /// The edge nodes that stand for themselves.
    pub(crate) fn alone(members: &'a [Member]) -> Self {
        let mut dialers = Self::default();
        let alone = |member: &&Member| member.edge && matches!(member.domain, Domain::Pool | Domain::Solo);
        members.iter().filter(alone).for_each(|member| dialers.add(member));
        dialers
    }

    /// One that dials for others.
    pub(crate) fn add(&mut self, member: &'a Member) {
        let those = if member.ready { &mut self.ready } else { &mut self.away };
        those.insert(&member.name);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.away.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::gateway::domains::Word;

    #[test]
    fn edge_nodes_without_a_gateway_dial_by_themselves() {
        let member = |name: &str, domain: Domain, edge: bool, ready: bool| Member {
            name: name.to_owned(),
            domain,
            by: Word::Placed,
            edge,
            ready,
            internal_ip: None,
            pod_cidrs: Vec::new(),
        };
        let members = [
            member("a", Domain::Solo, true, true),
            member("b", Domain::Pool, true, false),
            member("c", Domain::Pool, false, true),
            member("d", Domain::Cloud, false, true),
            member("e", Domain::Gateway("shop".to_owned()), true, true),
        ];
        let mut dialers = Dialers::alone(&members);
        assert_eq!((&dialers.ready, &dialers.away), (&["a"].into(), &["b"].into()));
        dialers.add(&members[4]);
        assert_eq!(dialers.ready, ["a", "e"].into());
        assert!(Dialers::alone(&members[2..]).is_empty());
    }
}
