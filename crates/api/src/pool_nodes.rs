//! The nodes of a pool and where they are, as the manager tells them to the pool's hubs: key [`crate::names::POOL_NODES`] of
//! `leader-hub-<pool>`, `name/address` separated by commas. A node with several addresses stands there several times.

use std::{collections::BTreeMap, net::IpAddr};

use crate::raven::gateway::NODES_MAX;

/// How many nodes are named: as many as by the status of a Gateway, for the same reason. Every node of the pool is sent each change.
pub const POOL_NODES_MAX: usize = NODES_MAX;

/// The value of the key: sorted, so that it changes with what it says alone. `None`: they are too many.
pub fn write(nodes: &BTreeMap<&str, IpAddr>) -> Option<String> {
    let entries = || nodes.iter().map(|(name, address)| format!("{name}/{address}"));
    (nodes.len() <= POOL_NODES_MAX).then(|| entries().collect::<Vec<_>>().join(","))
}

/// What the key says. An entry that cannot be read is left out.
pub fn read(text: &str) -> BTreeMap<String, Vec<IpAddr>> {
    let mut nodes: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for entry in text.split(',') {
        if let Some((name, address)) = entry.trim().split_once('/')
            && let Ok(address) = address.parse()
            && !name.is_empty()
        {
            nodes.entry(name.to_owned()).or_default().push(address);
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let nodes = [("shop-2", address("fd00::2")), ("shop-1", address("192.168.1.10"))].into();
        let text = write(&nodes).unwrap();
        assert_eq!(text, "shop-1/192.168.1.10,shop-2/fd00::2");
        let read = read(&text);
        let read: Vec<_> = read.iter().map(|(name, addresses)| (name.as_str(), addresses[0])).collect();
        assert_eq!(read, nodes.into_iter().collect::<Vec<_>>());
        assert_eq!(write(&BTreeMap::new()).as_deref(), Some(""));
    }

    #[test]
    fn entries_that_cannot_be_read_are_left_out() {
        for (text, expected) in [
            ("", vec![]),
            (",,", vec![]),
            ("a", vec![]),
            ("a/", vec![]),
            ("/10.0.0.1", vec![]),
            ("a/b/10.0.0.1", vec![]),
            ("a/10.0.0.1:80, b/10.0.0.2", vec![("b", addresses(&["10.0.0.2"]))]),
            ("a/10.0.0.1,a/fd00::1", vec![("a", addresses(&["10.0.0.1", "fd00::1"]))]),
        ] {
            let expected: BTreeMap<_, _> =
                expected.into_iter().map(|(name, addresses)| (name.to_owned(), addresses)).collect();
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn too_many_are_not_written() {
        let names: Vec<String> = (0..=POOL_NODES_MAX).map(|number| format!("n{number}")).collect();
        let address: IpAddr = "fd00:1111:2222:3333:4444:5555:6666:7777".parse().unwrap();
        let mut nodes: BTreeMap<&str, IpAddr> = names.iter().map(|name| (name.as_str(), address)).collect();
        assert_eq!(write(&nodes), None);
        nodes.pop_first();
        assert_eq!(read(&write(&nodes).unwrap()).len(), POOL_NODES_MAX);
    }
}
