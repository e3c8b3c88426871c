//! Whom to report to, as ConfigMap `isthmus-node-metric` says it. Pure.

use std::sync::Arc;

use node_report::http::config_map;
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};

use super::Server;

/// The ConfigMap's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    ca: String,
    server_name: String,
    servers: String,
    epoch: String,
    leader: String,
}

/// Whom to report to.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The leader first, as far as was known; always in the same order where they were given.
    pub(super) servers: Vec<Server>,
    /// The name that their certificates have.
    pub(super) name: ServerName<'static>,
    /// Who signs those.
    pub(super) roots: Arc<RootCertStore>,
    /// The leader's term; 0 if it is not told.
    pub(super) epoch: u64,
    /// Who leads, as replicas know it: what nodes reach may have another name.
    leader: String,
}

/// Why a connection is of no use by what the cluster says now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// Another server leads.
    Leader,
    /// Servers are known by another name or authority.
    Trust,
}

/// Why it cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlaceError {
    #[error(
        "there is no ConfigMap {} in {}, or the hub may not read it",
        api::names::NODE_METRIC_CONFIG_MAP,
        api::names::NAMESPACE
    )]
    Missing,
    #[error("key ca.crt of the ConfigMap holds no certificate")]
    Authority,
    #[error("key server-name of the ConfigMap is no DNS name")]
    Name,
    #[error("key servers of the ConfigMap names no server")]
    Servers,
}

impl Place {
    /// Whether `news` send a connection to `server` away that was right by this, and on which the term `heard` was told. Where the list of
    /// servers is the same whoever leads, nothing but the leader's name and a later term tells of another.
    pub(super) fn elsewhere(&self, news: &Self, server: &Server, heard: Option<u64>) -> Option<Elsewhere> {
        if self.name != news.name || self.roots.roots != news.roots.roots {
            return Some(Elsewhere::Trust);
        }
        let is_other = if self.servers == news.servers {
            self.leader != news.leader && news.epoch > heard.unwrap_or(0)
        } else {
            news.servers.first() != Some(server)
        };
        is_other.then_some(Elsewhere::Leader)
    }
}

impl Told {
    /// Reads the data of the ConfigMap.
    pub(super) fn of(data: impl Fn(&str) -> Option<String>) -> Self {
        let of = |key| data(key).unwrap_or_default();
        Self {
            ca: of(config_map::CA),
            server_name: of(config_map::SERVER_NAME),
            servers: of(config_map::SERVERS),
            epoch: of(config_map::EPOCH),
            leader: of(api::slo::names::LEADER),
        }
    }

    /// What they mean; `instead` of its servers, if there are any. Servers that cannot be read are left out.
    pub(super) fn place(&self, instead: &[Server]) -> Result<Place, PlaceError> {
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_slice_iter(self.ca.as_bytes()).filter_map(Result::ok);
        let (added, _) = roots.add_parsable_certificates(certificates);
        if added == 0 {
            return Err(PlaceError::Authority);
        }
        let name = ServerName::try_from(self.server_name.trim().to_owned()).map_err(|_| PlaceError::Name)?;
        let servers = match instead {
            [] => self.servers.split(',').filter_map(|text| text.parse().ok()).collect(),
            instead => instead.to_vec(),
        };
        if servers.is_empty() {
            return Err(PlaceError::Servers);
        }
        let epoch = self.epoch.trim().parse().unwrap_or(0);
        Ok(Place { servers, name, roots: Arc::new(roots), epoch, leader: self.leader.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::{Elsewhere, PlaceError, Told};

    #[test]
    fn what_is_wrong_in_the_config_map_has_a_name() {
        let authority = testkit::api_server::pki::Authority::generate("a").unwrap();
        let told = |ca: &str, name: &str, servers: &str| Told {
            ca: ca.to_owned(),
            server_name: name.to_owned(),
            servers: servers.to_owned(),
            epoch: "1".to_owned(),
            leader: "a".to_owned(),
        };
        let pem = authority.pem();
        let place = told(pem, "a.example", "1.2.3.4:5, bad,[::1]:6").place(&[]).unwrap();
        let servers: Vec<String> = place.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["1.2.3.4:5", "[::1]:6"]);
        let instead = ["9.9.9.9:9".parse().unwrap()];
        assert_eq!(told(pem, "a.example", "").place(&instead).unwrap().servers, instead);
        for (ca, name, servers, expected) in [
            ("", "a.example", "1.2.3.4:5", PlaceError::Authority),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "a",
                "1.2.3.4:5",
                PlaceError::Authority,
            ),
            (pem, "", "1.2.3.4:5", PlaceError::Name),
            (pem, "a b", "1.2.3.4:5", PlaceError::Name),
            (pem, "a.example", "nobody", PlaceError::Servers),
        ] {
            assert_eq!(told(ca, name, servers).place(&[]).unwrap_err(), expected, "{name:?} {servers:?}");
        }
    }

    #[test]
    fn a_later_term_of_another_leader_is_elsewhere_whatever_the_list() {
        let authority = || testkit::api_server::pki::Authority::generate("a").unwrap();
        let (ours, other) = (authority(), authority());
        let place = |pem: &str, servers: &str, leader: &str, epoch: u64| {
            let [ca, server_name, servers, leader] =
                [pem, "a.example", servers, leader].map(ToOwned::to_owned);
            Told { ca, server_name, servers, epoch: epoch.to_string(), leader }.place(&[]).unwrap()
        };
        let pem = ours.pem();
        let before = place(pem, "a:1,b:1", "x", 1);
        let cases = [
            // A list that is always the same.
            (("a:1,b:1", "y", 2), ("a:1", Some(1)), Some(Elsewhere::Leader)),
            (("a:1,b:1", "y", 2), ("a:1", None), Some(Elsewhere::Leader)),
            // That one was found before the cluster said so; or it leads again.
            (("a:1,b:1", "y", 2), ("b:1", Some(2)), None),
            (("a:1,b:1", "x", 2), ("a:1", Some(1)), None),
            // A list with the leader first, to which others come.
            (("b:1,a:1", "y", 2), ("a:1", Some(1)), Some(Elsewhere::Leader)),
            (("b:1,a:1", "y", 2), ("b:1", Some(2)), None),
            (("a:1,b:1,c:1", "x", 1), ("a:1", Some(1)), None),
        ];
        for ((servers, leader, epoch), (server, heard), expected) in cases {
            let news = place(pem, servers, leader, epoch);
            let found = before.elsewhere(&news, &server.parse().unwrap(), heard);
            assert_eq!(found, expected, "{servers} {leader} {epoch}, at {server} of {heard:?}");
        }
        let news = place(other.pem(), "a:1,b:1", "x", 1);
        assert_eq!(before.elsewhere(&news, &"a:1".parse().unwrap(), Some(1)), Some(Elsewhere::Trust));
    }
}
