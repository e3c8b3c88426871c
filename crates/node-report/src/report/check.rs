//! What a server checks of a decoded report before it looks at the sequence. Pure.

use std::collections::BTreeSet;

use super::{MAX_PODS, MAX_TEXT, Report};

/// Why a report is not taken at all (400): whoever sent it does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// No node's name.
    #[error("the report names no node")]
    NoNode,
    /// Every report has the node's own usage.
    #[error("the report says nothing of the node itself")]
    NoUsage,
    /// A delta's base comes before it.
    #[error("the delta is based on itself or on a later report")]
    Base,
    /// Only a delta can take pods away.
    #[error("a full report removes pods")]
    RemovedInFull,
    /// Pods are told apart by UID.
    #[error("a pod has no UID, or is in the report twice")]
    PodUid,
    /// See [`MAX_PODS`].
    #[error("the report has more than {MAX_PODS} pods")]
    Pods,
    /// See [`MAX_TEXT`].
    #[error("a name or UID has more than {MAX_TEXT} bytes")]
    Text,
}

impl Report {
    /// What a server checks of a decoded report before it looks at the sequence.
    pub fn check(&self) -> Result<(), Malformed> {
        if self.node.is_empty() {
            return Err(Malformed::NoNode);
        }
        if self.usage.is_none() {
            return Err(Malformed::NoUsage);
        }
        match self.base_seq {
            Some(base) if base >= self.seq => return Err(Malformed::Base),
            None if !self.removed_pods.is_empty() => return Err(Malformed::RemovedInFull),
            _ => {}
        }
        if self.pods.len() > MAX_PODS || self.removed_pods.len() > MAX_PODS {
            return Err(Malformed::Pods);
        }
        let of_pods = self.pods.iter().flat_map(|pod| [&pod.uid, &pod.namespace, &pod.name]);
        let of_hosts = self.usage.iter().flat_map(|usage| &usage.host_applications).map(|one| &one.name);
        let mut texts =
            [&self.node, &self.node_uid, &self.boot_id].into_iter().chain(of_pods).chain(of_hosts);
        if texts.any(|text| text.len() > MAX_TEXT) || self.removed_pods.iter().any(|uid| uid.len() > MAX_TEXT)
        {
            return Err(Malformed::Text);
        }
        let mut seen = BTreeSet::new();
        let uids = self.pods.iter().map(|pod| &pod.uid).chain(&self.removed_pods);
        if uids.into_iter().any(|uid| uid.is_empty() || !seen.insert(uid)) {
            return Err(Malformed::PodUid);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Malformed, Report};
    use crate::report::{NodeUsage, PodUsage, Resources};
    use prost::Message;

    fn full() -> Report {
        Report { node: "n".to_owned(), usage: Some(NodeUsage::default()), ..Report::default() }
    }

    fn pod(uid: &str) -> PodUsage {
        PodUsage { uid: uid.to_owned(), ..PodUsage::default() }
    }

    #[test]
    fn what_is_against_the_protocol_is_told_apart() {
        let long = "x".repeat(254);
        let cases: [(&str, Report, Result<(), Malformed>); 11] = [
            ("full", full(), Ok(())),
            ("delta", Report { seq: 2, base_seq: Some(1), removed_pods: vec!["a".into()], ..full() }, Ok(())),
            ("no node", Report { node: String::new(), ..full() }, Err(Malformed::NoNode)),
            ("no usage", Report { usage: None, ..full() }, Err(Malformed::NoUsage)),
            ("on itself", Report { seq: 2, base_seq: Some(2), ..full() }, Err(Malformed::Base)),
            ("removes", Report { removed_pods: vec!["a".into()], ..full() }, Err(Malformed::RemovedInFull)),
            ("twice", Report { pods: vec![pod("a"), pod("a")], ..full() }, Err(Malformed::PodUid)),
            ("no uid", Report { pods: vec![pod("")], ..full() }, Err(Malformed::PodUid)),
            (
                "there and gone",
                Report {
                    seq: 1,
                    base_seq: Some(0),
                    pods: vec![pod("a")],
                    removed_pods: vec!["a".into()],
                    ..full()
                },
                Err(Malformed::PodUid),
            ),
            (
                "many",
                Report { pods: (0..4_097).map(|n| pod(&n.to_string())).collect(), ..full() },
                Err(Malformed::Pods),
            ),
            (
                "long",
                Report { pods: vec![PodUsage { name: long, ..pod("a") }], ..full() },
                Err(Malformed::Text),
            ),
        ];
        for (name, report, expected) in cases {
            assert_eq!(report.check(), expected, "{name}");
        }
    }

    #[test]
    fn absent_and_zero_stay_apart_on_the_wire() {
        for usage in [
            None,
            Some(Resources { cpu_milli: None, memory_bytes: Some(0) }),
            Some(Resources { cpu_milli: Some(0), memory_bytes: None }),
        ] {
            let report = Report { usage: Some(NodeUsage { usage, ..NodeUsage::default() }), ..full() };
            assert_eq!(Report::decode(report.encode_to_vec().as_slice()).unwrap(), report);
        }
    }

    #[test]
    fn a_field_of_a_later_version_is_passed_over() {
        let mut bytes = full().encode_to_vec();
        bytes.extend([0xfa, 0x07, 0x01, 0x2a]); // tag 127, one byte
        assert_eq!(Report::decode(bytes.as_slice()).unwrap(), full());
    }
}
