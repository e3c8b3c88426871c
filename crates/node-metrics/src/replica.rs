//! Replicas among themselves: each shows the certificate that it serves with, and believes who shows one of the same authority for the
//! same name. No other component's key is signed by that authority.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use aggregated_api::authenticate::{AuthenticationError, header_text};
use aggregated_api::{Authenticator, Peer, User};
use arc_swap::ArcSwap;
use futures::future::{BoxFuture, FutureExt};
use http::HeaderMap;
use tls::certificate::Certificate;

/// Who is a replica.
#[derive(Debug)]
pub struct Replicas {
    name: String,
    authorities: ArcSwap<Vec<Certificate>>,
}

impl Replicas {
    /// Those whose certificate is for DNS name `name`.
    pub fn new(name: String) -> Arc<Self> {
        Arc::new(Self { name, authorities: ArcSwap::default() })
    }

    /// Trusts these authorities and no others from now on.
    pub fn trust(&self, authorities: Vec<Certificate>) {
        self.authorities.store(Arc::new(authorities));
    }

    /// Whether a certificate, whose key the other end has, is a replica's.
    pub fn is_replica(&self, der: &[u8], now: jiff::Timestamp) -> bool {
        let Ok(certificate) = Certificate::from_der(der.to_vec()) else { return false };
        certificate.dns_names().contains(&self.name)
            && certificate.validity().contains(now)
            && self.authorities.load().iter().any(|authority| certificate.is_issued_by(authority))
    }
}

/// Believes replicas on whom they ask for; all others are left to the authenticator within.
pub struct ReplicaAuthenticator {
    replicas: Arc<Replicas>,
    within: Arc<dyn Authenticator>,
}

impl ReplicaAuthenticator {
    /// Looks for replicas before `within` is asked.
    pub fn new(replicas: Arc<Replicas>, within: Arc<dyn Authenticator>) -> Self {
        Self { replicas, within }
    }
}

impl Authenticator for ReplicaAuthenticator {
    fn authenticate<'a>(
        &'a self,
        peer: &'a Peer,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Option<User>, AuthenticationError>> {
        let leaf = peer.certificates.first();
        if leaf.is_some_and(|leaf| self.replicas.is_replica(leaf, jiff::Timestamp::now())) {
            return futures::future::ready(Ok(asked_for(headers))).boxed();
        }
        self.within.authenticate(peer, headers)
    }

    /// Those within know which headers a front proxy of this cluster writes.
    fn strip(&self, headers: &mut HeaderMap) {
        self.within.strip(headers);
    }
}

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// For whom a replica asks.
fn asked_for(headers: &HeaderMap) -> Option<User> {
    let text = |name: &str| Some(header_text(headers.get(name)?)?.to_owned());
    let groups = headers.get_all(GROUP).iter().filter_map(|value| Some(header_text(value)?.to_owned()));
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(key), Some(value)) = (name.as_str().strip_prefix(EXTRA), header_text(value)) {
            extra.entry(decoded(key)).or_default().push(value.to_owned());
        }
    }
    Some(User { name: text(USER)?, uid: text(UID).unwrap_or_default(), groups: groups.collect(), extra })
}

/// Writes for whom is asked; what stood there under these names is taken away.
pub fn ask_for(user: &User, headers: &mut HeaderMap) {
    use http::{HeaderName, HeaderValue};
    let foreign: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    for name in foreign {
        headers.remove(name);
    }
    let User { name, uid, groups, extra } = user;
    let mut add = |key: &str, value: &str| {
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(key), Ok(value)) = (HeaderName::from_bytes(key.as_bytes()), value) {
            headers.append(key, value);
        }
    };
    add(USER, name);
    if !uid.is_empty() {
        add(UID, uid);
    }
    for group in groups {
        add(GROUP, group);
    }
    for (key, values) in extra {
        let key = format!("{EXTRA}{}", encoded(key));
        for value in values {
            add(&key, value);
        }
    }
}

/// A key as part of a header's name: percent-encoded but for what a name may hold.
fn encoded(key: &str) -> String {
    let mut text = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            let _ = write!(text, "%{byte:02x}");
        }
    }
    text
}

fn decoded(key: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = key.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tls::issue::CertificateAuthority;

    use super::*;

    #[test]
    fn for_whom_is_asked_travels_whole_and_strangers_words_do_not() {
        let extra = [("scopes.example.com/Ä".to_owned(), vec!["a".to_owned(), "ß".to_owned()])].into();
        let groups = vec!["g1".to_owned(), "Prüfer".to_owned()];
        let user = User { name: "élise@例え.jp".to_owned(), uid: "7".to_owned(), groups, extra };
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-group", "system:masters".parse().unwrap());
        headers.insert("x-remote-extra-z", "z".parse().unwrap());
        ask_for(&user, &mut headers);
        assert_eq!(asked_for(&headers), Some(user));
        assert_eq!(asked_for(&HeaderMap::new()), None);
    }

    /// Knows front proxies that write a header of their own.
    struct Proxied;

    impl Authenticator for Proxied {
        fn authenticate<'a>(
            &'a self,
            _: &'a Peer,
            headers: &'a HeaderMap,
        ) -> BoxFuture<'a, Result<Option<User>, AuthenticationError>> {
            let name = headers.get("x-user").and_then(header_text).map(str::to_owned);
            futures::future::ready(Ok(name.map(|name| User { name, ..User::default() }))).boxed()
        }

        fn strip(&self, headers: &mut HeaderMap) {
            headers.remove("x-user");
        }
    }

    #[tokio::test]
    async fn strangers_are_left_to_those_within() {
        let guard = ReplicaAuthenticator::new(Replicas::new("a.svc".to_owned()), Arc::new(Proxied));
        let mut headers = HeaderMap::new();
        headers.insert("x-user", "alice".parse().unwrap());
        headers.insert(USER, "admin".parse().unwrap());
        let found = guard.authenticate(&Peer::default(), &headers).await.unwrap();
        assert_eq!(
            found.map(|user| user.name),
            Some("alice".to_owned()),
            "no replica, so not whom it claims"
        );
        guard.strip(&mut headers);
        assert!(!headers.contains_key("x-user"), "another name of a front proxy's header");
    }

    #[test]
    fn a_replica_shows_the_name_and_the_authority() {
        let now = jiff::Timestamp::constant(1_800_000_000, 0);
        let day = Duration::from_hours(24);
        let authority = || CertificateAuthority::generate("test", 30 * day, now).unwrap();
        let (ours, other) = (authority(), authority());
        let leaf = |authority: &CertificateAuthority, name: &str| {
            let leaf = authority.issue(&[name.to_owned()], day, now).unwrap();
            leaf.certificate.der().to_vec()
        };
        let replicas = Replicas::new("a.svc".to_owned());
        assert!(!replicas.is_replica(&leaf(&ours, "a.svc"), now), "nobody is trusted yet");
        replicas.trust(vec![ours.certificate().clone()]);
        assert!(replicas.is_replica(&leaf(&ours, "a.svc"), now));
        assert!(!replicas.is_replica(&leaf(&ours, "b.svc"), now));
        assert!(!replicas.is_replica(&leaf(&other, "a.svc"), now));
        let later = now.checked_add(jiff::SignedDuration::from_hours(25)).unwrap();
        assert!(!replicas.is_replica(&leaf(&ours, "a.svc"), later));
        assert!(!replicas.is_replica(b"garbage", now));
    }
}
