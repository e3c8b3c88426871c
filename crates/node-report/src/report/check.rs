//! What a server checks of a report before it looks at the sequence. Pure.

use std::collections::BTreeSet;

use prost::{DecodeError, Message};

use super::{MAX_TEXT, Report, lists};

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
    /// Its lists are bounded: see [`MAX_PODS`](super::MAX_PODS), [`MAX_AGGREGATES`](super::MAX_AGGREGATES),
    /// [`MAX_NUMA`](super::MAX_NUMA), [`MAX_APPLICATIONS`](super::MAX_APPLICATIONS).
    #[error("the report's list {0} is too long")]
    Long(&'static str),
    /// It is no message.
    #[error("the report is no protobuf message")]
    Encoding,
    /// See [`MAX_TEXT`].
    #[error("a name or UID has more than {MAX_TEXT} bytes")]
    Text,
}

/// Why a body is no report that could be taken (400).
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It does not keep to the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It cannot be decoded.
    #[error(transparent)]
    Message(#[from] DecodeError),
}

impl Report {
    /// Reads a report that comes from anybody, and checks it ([`Report::check`]). Its lists are counted before it is decoded: what it takes in memory is
    /// bounded by a few times the length of the body, and some megabytes.
    pub fn read(body: &[u8]) -> Result<Self, Unreadable> {
        // Room for all pods at once: each is some hundred bytes, which would be moved several times.
        let mut report = Self { pods: Vec::with_capacity(lists::check(body)?), ..Self::default() };
        report.merge(body)?;
        report.check()?;
        Ok(report)
    }

    /// What a server checks of a decoded report before it looks at the sequence. That its lists are short enough was seen in its encoding.
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
    use super::{Malformed, Report, Unreadable};
    use crate::report::{MAX_PODS, NodeUsage, PodUsage, Resources};
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
        let cases: [(&str, Report, Result<(), Malformed>); 10] = [
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
    fn a_body_is_counted_decoded_and_checked() {
        let read = |body: &[u8]| Report::read(body).map_err(|error| error.to_string());
        assert_eq!(read(&full().encode_to_vec()), Ok(full()));
        let pods = (0..=MAX_PODS).map(|n| pod(&n.to_string())).collect();
        let many = Report { pods, ..full() }.encode_to_vec();
        assert_eq!(read(&many), Err("the report's list pods is too long".to_owned()));
        assert_eq!(read(&[]), Err("the report names no node".to_owned()));
        assert_eq!(read(&[0x5b]), Err("the report is no protobuf message".to_owned()));
        // A pod whose UID is no text.
        assert!(matches!(Report::read(&[0x5a, 3, 0x0a, 1, 0xff]), Err(Unreadable::Message(_))));
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
