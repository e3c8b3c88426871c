//! What the stored bytes mean: pure. Turns an observation into the state that [`tls::rotation::plan`] decides on, and
//! keeps the keys at hand for what it decides. Nothing that is stored can make it fail: what cannot be used counts as
//! absent and is named as a problem.

use std::{collections::BTreeSet, fmt};

use tls::{
    certificate::{Certificate, bundle},
    digest::Sha256Digest,
    issue::CertificateAuthority,
    resolver::ServingCertificate,
    rotation::{Authority, Leaf, Stored},
};

use super::{
    ROTATE, ROTATED,
    observe::{Observed, StoredSecret, Webhook},
};

/// Keys of the Secret of authorities.
pub(super) const CA: (&str, &str) = ("ca.crt", "ca.key");
pub(super) const NEXT: (&str, &str) = ("next.crt", "next.key");
pub(super) const RETIRED: &str = "retired.crt";
/// Keys of the serving Secret, as `kubernetes.io/tls` has them.
pub(super) const SERVING: (&str, &str) = ("tls.crt", "tls.key");
pub(super) const SERVING_CA: &str = "ca.crt";

/// What is stored, understood.
#[derive(Debug)]
pub(super) struct State {
    pub(super) stored: Stored,
    pub(super) current: Option<CertificateAuthority>,
    pub(super) next: Option<CertificateAuthority>,
    pub(super) retired: Vec<Certificate>,
    /// The value of the annotation that forces a rotation.
    pub(super) requested: Option<String>,
    pub(super) problems: Vec<Problem>,
}

/// Something that is stored and cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    place: String,
    reason: String,
}

/// Understands an observation.
pub(super) fn interpret(observed: &Observed, dns_names: &[String]) -> State {
    let mut problems = Vec::new();
    let Observed { serving, configurations, authorities } = observed;
    let current = authority(authorities, CA, &mut problems);
    let next = authority(authorities, NEXT, &mut problems);
    let retired = authorities.text(RETIRED).map_or_else(Vec::new, |text| {
        bundle(text).unwrap_or_else(|error| {
            problems.push(Problem::new(authorities, RETIRED, &error));
            Vec::new()
        })
    });
    let webhooks = configurations.iter().flat_map(|configuration| &configuration.webhooks);
    let mut places: Vec<Vec<Certificate>> = webhooks.map(published).collect();
    // Replicas, Prometheus and, by a copy of it, nodes read there whom to trust.
    places.push(published_in(serving));

    let issuing = [&current, &next].into_iter().flatten().map(CertificateAuthority::certificate);
    let known: Vec<&Certificate> = issuing.chain(&retired).chain(places.iter().flatten()).collect();
    let leaf = served(serving, &mut problems).and_then(|leaf| {
        let issuer = known.iter().find(|authority| leaf.is_issued_by(authority));
        if issuer.is_none() {
            problems.push(Problem::new(serving, SERVING.0, &"no known authority issued it"));
        }
        Some(Leaf {
            id: leaf.fingerprint(),
            issuer: issuer?.fingerprint(),
            validity: leaf.validity(),
            names_match: set(leaf.dns_names()) == set(dns_names),
        })
    });
    let requested = authorities.annotations.get(ROTATE).cloned();
    let stored = Stored {
        current: current.as_ref().map(|authority| Authority::from(authority.certificate())),
        next: next.as_ref().map(|authority| Authority::from(authority.certificate())),
        retired: retired.iter().map(Certificate::fingerprint).collect(),
        leaf,
        published: places.iter().map(|place| fingerprints(place)).collect(),
        forced: requested.is_some() && requested.as_ref() != authorities.annotations.get(ROTATED),
    };
    State { stored, current, next, retired, requested, problems }
}

impl State {
    /// What is to be published, as certificates, in the order of [`Stored::bundle`].
    pub(super) fn bundle(&self) -> Vec<&Certificate> {
        let issuing =
            [&self.current, &self.next].into_iter().flatten().map(CertificateAuthority::certificate);
        let mut bundle: Vec<&Certificate> = Vec::new();
        for certificate in issuing.chain(&self.retired) {
            if !bundle.contains(&certificate) {
                bundle.push(certificate);
            }
        }
        bundle
    }
}

/// What a webhook trusts. A bundle that cannot be read as a whole trusts nobody: the API server refuses it as well.
pub(super) fn published(webhook: &Webhook) -> Vec<Certificate> {
    std::str::from_utf8(&webhook.ca_bundle).ok().and_then(|text| bundle(text).ok()).unwrap_or_default()
}

/// What those trust who read the serving Secret.
pub(super) fn published_in(serving: &StoredSecret) -> Vec<Certificate> {
    serving.text(SERVING_CA).and_then(|text| bundle(text).ok()).unwrap_or_default()
}

fn authority(
    secret: &StoredSecret,
    (certificate, key): (&'static str, &'static str),
    problems: &mut Vec<Problem>,
) -> Option<CertificateAuthority> {
    if !secret.holds(certificate) && !secret.holds(key) {
        return None;
    }
    let (certificate_pem, key_pem) =
        (secret.text(certificate).unwrap_or_default(), secret.text(key).unwrap_or_default());
    CertificateAuthority::from_pem(certificate_pem, key_pem)
        .inspect_err(|error| problems.push(Problem::new(secret, certificate, error)))
        .ok()
}

/// The certificate that replicas serve, if they can: they refuse what this refuses, by the same code.
fn served(secret: &StoredSecret, problems: &mut Vec<Problem>) -> Option<Certificate> {
    let (certificate, key) = SERVING;
    if !secret.holds(certificate) && !secret.holds(key) {
        return None;
    }
    let (certificate_pem, key_pem) =
        (secret.text(certificate).unwrap_or_default(), secret.text(key).unwrap_or_default());
    ServingCertificate::default()
        .install(certificate_pem, key_pem)
        .inspect_err(|error| problems.push(Problem::new(secret, certificate, error)))
        .ok()
}

fn fingerprints(certificates: &[Certificate]) -> Vec<Sha256Digest> {
    certificates.iter().map(Certificate::fingerprint).collect()
}

fn set(names: &[String]) -> BTreeSet<&str> {
    names.iter().map(String::as_str).collect()
}

impl Problem {
    fn new(secret: &StoredSecret, key: &str, reason: &dyn fmt::Display) -> Self {
        Self { place: format!("{}[{key}]", secret.name), reason: reason.to_string() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}
