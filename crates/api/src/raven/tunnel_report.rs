//! What the hub of an exposed gateway's node says of its tunnels: in the ConfigMap [`crate::names::gateway_lease`], which that hub
//! renews while it accepts links.

use std::{
    io::{self, Read as _, Write as _},
    net::SocketAddr,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use serde::{Deserialize, Serialize};

use crate::annotations::TUNNEL_REPORT;

/// The key of `binaryData` of a report that is too long for an annotation.
pub const PACKED_REPORT: &str = "tunnels.json.gz";

/// The longest report that is written as an annotation, in bytes: all annotations of an object together may have 256 KiB.
const ANNOTATION: usize = 64 * 1024;

/// The longest report that is read: who wrote it may be anybody who has a gateway's key.
const LONGEST: u64 = 16 << 20;

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
    /// The nodes that lately lost their last link here because they answered no more, sorted. Who lives and only lost a link is given the
    /// time to dial anew; these have had it. Older hubs do not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
    /// The port at which the hub accepts links. Older hubs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Where the hub takes what is sent to the internal Service, sorted: of its ways in those that listen by now. Older hubs do not say; they
    /// count as listening wherever they should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways_in: Option<Vec<SocketAddr>>,
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

/// Where a report stands in its ConfigMap. A short one is the annotation [`TUNNEL_REPORT`], to be read by whoever looks; a long one is
/// compressed in `binaryData`, for it is written anew with every beat.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StoredReport {
    /// The annotation.
    pub annotation: Option<String>,
    /// What is at [`PACKED_REPORT`]. It counts if both are there.
    pub packed: Option<ByteString>,
}

/// Why a report cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It is not compressed as it should be.
    #[error("the packed report")]
    Packed(#[from] io::Error),
    /// Its JSON is none, or does not fit.
    #[error("the report")]
    Json(#[from] serde_json::Error),
}

impl StoredReport {
    /// As a report is to be written.
    pub fn new(report: &TunnelReport) -> Result<Self, ReportError> {
        let text = serde_json::to_string(report)?;
        if text.len() <= ANNOTATION {
            return Ok(Self { annotation: Some(text), packed: None });
        }
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text.as_bytes())?;
        Ok(Self { annotation: None, packed: Some(ByteString(packed.finish()?)) })
    }

    /// As it was written.
    pub fn of(config: &ConfigMap) -> Self {
        let annotation = config.metadata.annotations.as_ref().and_then(|all| all.get(TUNNEL_REPORT)).cloned();
        let packed = config.binary_data.as_ref().and_then(|data| data.get(PACKED_REPORT)).cloned();
        Self { annotation, packed }
    }

    /// What it says; nothing if there is none.
    pub fn read(&self) -> Result<TunnelReport, ReportError> {
        let report = match (&self.packed, &self.annotation) {
            (Some(packed), _) => {
                let mut text = Vec::new();
                GzDecoder::new(packed.0.as_slice()).take(LONGEST).read_to_end(&mut text)?;
                serde_json::from_slice(&text)?
            }
            (None, Some(text)) if !text.is_empty() => serde_json::from_str(text)?,
            (None, Some(_) | None) => TunnelReport::default(),
        };
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(links: usize, name: impl Fn(usize) -> String) -> TunnelReport {
        let link = |number| ReportedLink {
            node: name(number),
            round_trip_millis: i32::try_from(number * 7919 % 400).unwrap(),
        };
        let links = (0..links).map(link).collect();
        TunnelReport {
            instance: "c1_1".to_owned(),
            links,
            siblings: vec!["c2".to_owned()],
            silent: Vec::new(),
            port: Some(10262),
            ways_in: Some(vec!["10.0.0.1:10263".parse().unwrap()]),
        }
    }

    /// Kubernetes takes 256 KiB of annotations and 1 MiB of data, etcd 1.5 MiB in all.
    #[test]
    fn ten_thousand_links_stay_well_below_what_the_api_server_takes() {
        // Names that compress well, and the longest that a cloud gives, with nothing in common.
        let random = |number: usize| {
            let hash = (number as u128 + 1).wrapping_mul(0x2d99_787f_a931_7d3b_1b87_3593_cc9e_2d51);
            format!("ip-{hash:032x}.eu-central-1.compute.internal")
        };
        for (name, most) in [
            (Box::new(|number| format!("store-{number:05}")) as Box<dyn Fn(usize) -> String>, 100_000),
            (Box::new(random), 350_000),
        ] {
            let report = of(10_000, name);
            let stored = StoredReport::new(&report).unwrap();
            assert_eq!(stored.annotation, None);
            let config = ConfigMap {
                binary_data: stored.packed.clone().map(|packed| [(PACKED_REPORT.to_owned(), packed)].into()),
                ..ConfigMap::default()
            };
            let bytes = serde_json::to_vec(&config).unwrap().len();
            assert!(bytes < most, "{bytes} bytes");
            assert_eq!(StoredReport::of(&config), stored);
            assert_eq!(stored.read().unwrap(), report);
            assert_eq!(StoredReport::new(&report).unwrap(), stored, "the same report is the same bytes");
        }
    }

    #[test]
    fn a_short_report_stands_where_it_always_did() {
        let report = of(1000, |number| format!("store-{number:05}"));
        let stored = StoredReport::new(&report).unwrap();
        assert_eq!(stored.packed, None);
        assert!(stored.annotation.as_ref().is_some_and(|text| text.starts_with("{\"instance\"")));
        assert_eq!(stored.read().unwrap(), report);
        assert_eq!(StoredReport::default().read().unwrap(), TunnelReport::default());
    }

    /// Nowhere, and nothing said, are two things.
    #[test]
    fn ways_in_that_listen_are_told_and_older_hubs_say_nothing_of_them() {
        let read = |text: &str| {
            StoredReport { annotation: Some(text.to_owned()), packed: None }.read().unwrap().ways_in
        };
        assert_eq!(read(r#"{"instance":"x"}"#), None);
        assert_eq!(read(r#"{"instance":"x","waysIn":[]}"#), Some(Vec::new()));
        let both = vec!["10.0.0.1:10263".parse().unwrap(), "[fd00::1]:10263".parse().unwrap()];
        assert_eq!(
            read(r#"{"instance":"x","waysIn":["10.0.0.1:10263","[fd00::1]:10263"]}"#),
            Some(both.clone())
        );
        for ways_in in [None, Some(Vec::new()), Some(both)] {
            let report = TunnelReport { ways_in, ..TunnelReport::default() };
            assert_eq!(StoredReport::new(&report).unwrap().read().unwrap(), report);
        }
    }

    #[test]
    fn damage_is_an_error_and_a_bomb_is_not_unpacked() {
        let read =
            |packed: Vec<u8>| StoredReport { annotation: None, packed: Some(ByteString(packed)) }.read();
        assert!(matches!(read(vec![1, 2, 3]), Err(ReportError::Packed(_))));
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        for _ in 0..64 {
            bomb.write_all(&vec![b' '; 1 << 20]).unwrap();
        }
        bomb.write_all(b"{\"instance\":\"x\"}").unwrap();
        assert!(matches!(read(bomb.finish().unwrap()), Err(ReportError::Json(_))));
        let text = Some("{".to_owned());
        assert!(matches!(StoredReport { annotation: text, packed: None }.read(), Err(ReportError::Json(_))));
    }
}
