//! What `kube-public/cluster-info` says of the cluster's authority. It is read over a connection that nobody vouches for: only
//! certificates whose public key was pinned are taken from it, and a signature that is there must be right.

use base64::{Engine, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::Deserialize;
use serde_json::Value;
use tls::certificate::Certificate;

use super::{BootstrapToken, CaPin};

/// Where it is.
pub(super) const PATH: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// The key of the kubeconfig, and the prefix of the keys of its signatures, one a token.
const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";

/// Why nothing in it is trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ClusterInfoError {
    #[error("kube-public/cluster-info holds no kubeconfig with certificate-authority-data")]
    Incomplete,
    #[error(
        "the signature of kube-public/cluster-info is not of the bootstrap token: this is not the cluster, or not its token"
    )]
    Signature,
    #[error(
        "no authority in kube-public/cluster-info has the public key of --ca-cert-hash: this is not the cluster"
    )]
    NotPinned,
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    certificate_authority_data: String,
}

/// The pinned authorities, in PEM.
pub(super) fn authorities(
    config_map: &Value,
    pins: &[CaPin],
    token: Option<&BootstrapToken>,
) -> Result<String, ClusterInfoError> {
    use ClusterInfoError::Incomplete;
    let text = |key: &str| config_map["data"][key].as_str();
    let kubeconfig = text(KUBECONFIG).ok_or(Incomplete)?;
    if let Some(token) = token
        && let Some(signature) = text(&format!("{SIGNATURE}{}", token.id()))
        && !is_signed(kubeconfig, signature, token)
    {
        return Err(ClusterInfoError::Signature);
    }
    let parsed: Kubeconfig = serde_saphyr::from_str(kubeconfig).map_err(|_| Incomplete)?;
    let [Named { cluster }] = parsed.clusters.as_slice() else { return Err(Incomplete) };
    let bundle = BASE64_STANDARD.decode(&cluster.certificate_authority_data).map_err(|_| Incomplete)?;
    let pinned = CertificateDer::pem_slice_iter(&bundle)
        .filter_map(Result::ok)
        .filter(|certificate| pins.iter().any(|pin| pin.is_of(certificate)))
        .filter_map(|certificate| Certificate::from_der(certificate.to_vec()).ok())
        .map(|certificate| certificate.to_pem());
    let pinned: String = pinned.collect();
    if pinned.is_empty() { Err(ClusterInfoError::NotPinned) } else { Ok(pinned) }
}

/// Whether a detached JWS (RFC 7515, appendix F), HS256 with the token's secret, is of `content`. What its header says of
/// algorithms does not count.
fn is_signed(content: &str, signature: &str, token: &BootstrapToken) -> bool {
    let Some((header, tag)) = signature.split_once("..") else { return false };
    let Ok(tag) = BASE64_URL_SAFE_NO_PAD.decode(tag) else { return false };
    let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.key());
    hmac::verify(&key, signed.as_bytes(), &tag).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::api_server::pki::Authority;
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    fn pin(authority: &Authority) -> CaPin {
        let (_, parsed) = X509Certificate::from_der(authority.certificate()).unwrap();
        format!("sha256:{}", tls::digest::Sha256Digest::of(parsed.public_key().raw)).parse().unwrap()
    }

    fn kubeconfig(pem: &str) -> String {
        let data = BASE64_STANDARD.encode(pem);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster:\n    certificate-authority-data: {data}\n    server: https://a:6443\n"
        )
    }

    fn sign(content: &str, token: &BootstrapToken) -> String {
        let header = BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, token.id()));
        let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.key()), signed.as_bytes());
        format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    #[test]
    fn only_what_is_pinned_is_taken() {
        let (ours, theirs) = (Authority::generate("a").unwrap(), Authority::generate("a").unwrap());
        let both = kubeconfig(&format!("{}{}", theirs.pem(), ours.pem()));
        let read =
            |text: &str, pins: &[CaPin]| authorities(&json!({"data": {"kubeconfig": text}}), pins, None);
        let taken = read(&both, &[pin(&ours)]).unwrap();
        assert_eq!(Certificate::from_pem(&taken).unwrap().der(), ours.certificate());
        assert_eq!(tls::certificate::bundle(&taken).unwrap().len(), 1);
        assert_eq!(read(&kubeconfig(theirs.pem()), &[pin(&ours)]), Err(ClusterInfoError::NotPinned));
        assert_eq!(read(&both, &[]), Err(ClusterInfoError::NotPinned));
        for text in ["", "a: [", "clusters: []", "clusters: [{cluster: {server: x}}]", &kubeconfig("")[..90]]
        {
            assert!(read(text, &[pin(&ours)]).is_err(), "{text}");
        }
        assert_eq!(authorities(&json!({}), &[pin(&ours)], None), Err(ClusterInfoError::Incomplete));
    }

    #[test]
    fn a_signature_must_be_of_the_token() {
        let ours = Authority::generate("a").unwrap();
        let text = kubeconfig(ours.pem());
        let token = BootstrapToken::parse("abc123.0123456789abcdef").unwrap();
        let other = BootstrapToken::parse("abc123.ffffffffffffffff").unwrap();
        let read = |signature: &str, token: &BootstrapToken| {
            let data = json!({"data": {"kubeconfig": text, "jws-kubeconfig-abc123": signature}});
            authorities(&data, &[pin(&ours)], Some(token)).map(drop)
        };
        assert_eq!(read(&sign(&text, &token), &token), Ok(()));
        for signature in [sign(&text, &other), sign("another", &token), String::new(), "a..b".to_owned()] {
            assert_eq!(read(&signature, &token), Err(ClusterInfoError::Signature), "{signature}");
        }
        // A token that signs nothing proves nothing; the pin does.
        let unsigned = BootstrapToken::parse("zzz123.0123456789abcdef").unwrap();
        assert_eq!(read(&sign(&text, &token), &unsigned), Ok(()));
    }
}
