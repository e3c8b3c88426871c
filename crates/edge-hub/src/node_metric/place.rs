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
}

/// Whom to report to.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The leader first, as far as was known.
    pub(super) servers: Vec<Server>,
    /// The name that their certificates have.
    pub(super) name: ServerName<'static>,
    /// Who signs those.
    pub(super) roots: Arc<RootCertStore>,
    /// The leader's term; 0 if it is not told.
    pub(super) epoch: u64,
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
    /// Whether a connection to `server` that was made by this place is right by `other` as well.
    pub(super) fn is_still(&self, other: &Self, server: &Server) -> bool {
        other.servers.first() == Some(server)
            && self.name == other.name
            && self.roots.roots == other.roots.roots
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
        Ok(Place { servers, name, roots: Arc::new(roots), epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::{PlaceError, Told};

    #[test]
    fn what_is_wrong_in_the_config_map_has_a_name() {
        let authority = testkit::api_server::pki::Authority::generate("a").unwrap();
        let told = |ca: &str, name: &str, servers: &str| Told {
            ca: ca.to_owned(),
            server_name: name.to_owned(),
            servers: servers.to_owned(),
            epoch: "1".to_owned(),
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
}
