//! Where pods of this node reach the hub, if they can: `masterservice`, `forwardkubesvctraffic`, `inclusterconfig` and `serviceenvupdater` send them
//! there, and do nothing otherwise. Pure: the listener, its certificate and the Node's addresses come in.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use kube_wire::{
    edit::{Field, Message},
    object::Object,
};
use rustls::{client::verify_server_name, server::ParsedCertificate};
use rustls_pki_types::{CertificateDer, ServerName};

/// What pods of any cluster call the API server by, beside its address.
const API_SERVER: &str = "kubernetes.default.svc";

const STATUS: Field = Field::new("status", 3);
const ADDRESSES: Field = Field::new("addresses", 5);
const ADDRESS_TYPE: Field = Field::new("type", 1);
const ADDRESS: Field = Field::new("address", 2);

/// The HTTPS listener, as far as pods are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PodAccess {
    /// There is none.
    #[default]
    Off,
    /// It is on a loopback address, and pods have their own.
    Loopback,
    /// At this address, which the operator gave for them.
    At(SocketAddr),
    /// At every address of the node (`0.0.0.0`, `::`): the one that its Node names is theirs.
    Everywhere {
        /// Address and port as given.
        bound: SocketAddr,
        /// What it shows to them.
        certificate: CertificateDer<'static>,
    },
}

/// Why pods are not sent to the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreached {
    /// There is no HTTPS listener.
    Off,
    /// It is on loopback.
    Loopback,
    /// The Node says no address of the listener's family yet.
    NoAddress,
    /// Who calls it so would not trust the certificate.
    Unnamed(String),
}

impl PodAccess {
    /// That of the HTTPS listener with its address and certificate, if it is on.
    pub fn of(secure: Option<(SocketAddr, CertificateDer<'static>)>) -> Self {
        match secure {
            None => Self::Off,
            Some((bound, _)) if bound.ip().is_loopback() => Self::Loopback,
            Some((bound, certificate)) if bound.ip().is_unspecified() => {
                Self::Everywhere { bound, certificate }
            }
            Some((bound, _)) => Self::At(bound),
        }
    }

    /// Whether it depends on what the Node says.
    pub fn asks_node(&self) -> bool {
        matches!(self, Self::Everywhere { .. })
    }

    /// The address for pods, on a node with these internal addresses.
    ///
    /// An address that nobody named for pods is theirs only if the certificate was made for them: to be sent to a server that they
    /// do not trust would cut them off from the API server.
    pub fn address(&self, internal: &[IpAddr]) -> Result<SocketAddr, Unreached> {
        let (bound, certificate) = match self {
            Self::Off => return Err(Unreached::Off),
            Self::Loopback => return Err(Unreached::Loopback),
            Self::At(address) => return Ok(*address),
            Self::Everywhere { bound, certificate } => (bound, certificate),
        };
        // `::` takes IPv4, too.
        let address = internal.iter().find(|address| bound.is_ipv6() || address.is_ipv4());
        let address = *address.ok_or(Unreached::NoAddress)?;
        for name in [address.to_string(), API_SERVER.to_owned()] {
            if !names(certificate, &name) {
                return Err(Unreached::Unnamed(name));
            }
        }
        Ok((address, bound.port()).into())
    }
}

/// Whether a certificate is one of that address or name.
fn names(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(certificate), Ok(name)) = (ParsedCertificate::try_from(certificate), ServerName::try_from(name))
    else {
        return false;
    };
    verify_server_name(&certificate, &name).is_ok()
}

/// The internal addresses of a Node, in its order.
pub(crate) fn internal_addresses(node: &Object) -> Vec<IpAddr> {
    let addresses = Message::of(node).and_then(|node| node.message(STATUS));
    let addresses = addresses.map(|status| status.messages(ADDRESSES)).unwrap_or_default();
    let internal =
        addresses.iter().filter(|address| address.text(ADDRESS_TYPE).as_deref() == Some("InternalIP"));
    internal.filter_map(|address| address.text(ADDRESS)?.parse().ok()).collect()
}

impl fmt::Display for Unreached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => formatter.write_str("the HTTPS proxy is off (--serving-cert-file)"),
            Self::Loopback => formatter.write_str(
                "the HTTPS proxy is on loopback (--secure-bind-address: give it an address of the node, or 0.0.0.0)",
            ),
            Self::NoAddress => formatter.write_str("the Node has no InternalIP yet"),
            Self::Unnamed(name) => {
                write!(formatter, "the certificate of --serving-cert-file does not name {name}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::api_server::pki::Authority;

    use super::*;

    #[test]
    fn pods_are_sent_where_they_reach_the_hub_and_trust_it() {
        tls::install_provider();
        let authority = Authority::generate("test").unwrap();
        let certificate = |names: &[&str]| authority.server(names).unwrap().certificate;
        let whole = certificate(&["10.0.0.5", "fd00::5", API_SERVER]);
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let addresses =
            |texts: &[&str]| -> Vec<IpAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let unnamed = |name: &str| Err(Unreached::Unnamed(name.to_owned()));
        let (node, both) = (&["10.0.0.5"][..], &["fd00::5", "10.0.0.5"][..]);
        let cases = [
            (None, node, Err(Unreached::Off)),
            (Some(("127.0.0.1:10268", &whole)), node, Err(Unreached::Loopback)),
            (Some(("[::1]:10268", &whole)), node, Err(Unreached::Loopback)),
            (Some(("169.254.2.1:10268", &certificate(&["a"]))), node, Ok(at("169.254.2.1:10268"))),
            (Some(("0.0.0.0:1", &whole)), node, Ok(at("10.0.0.5:1"))),
            (Some(("0.0.0.0:1", &whole)), both, Ok(at("10.0.0.5:1"))),
            (Some(("[::]:1", &whole)), both, Ok(at("[fd00::5]:1"))),
            (Some(("[::]:1", &whole)), node, Ok(at("10.0.0.5:1"))),
            (Some(("0.0.0.0:1", &whole)), &[][..], Err(Unreached::NoAddress)),
            (Some(("0.0.0.0:1", &whole)), &["fd00::5"][..], Err(Unreached::NoAddress)),
            (Some(("0.0.0.0:1", &whole)), &["10.0.0.6"][..], unnamed("10.0.0.6")),
            (Some(("0.0.0.0:1", &certificate(&["10.0.0.5"]))), node, unnamed(API_SERVER)),
        ];
        for (secure, internal, expected) in cases {
            let listener = secure.map(|(address, certificate)| (at(address), certificate.clone()));
            let found = PodAccess::of(listener).address(&addresses(internal));
            assert_eq!(found, expected, "{:?} {internal:?}", secure.map(|(address, _)| address));
        }
    }
}
