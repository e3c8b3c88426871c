//! A digest by which an authority is recognised: SHA-256 of its public key, written as kubeadm writes it.

use std::str::FromStr;

use tls::digest::Sha256Digest;
use x509_parser::prelude::{FromDer, X509Certificate};

/// `sha256:` and 64 hexadecimal digits, of the DER of the authority's `SubjectPublicKeyInfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaPin(Sha256Digest);

/// Not written as it must be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write sha256: and 64 hexadecimal digits, as kubeadm prints them")]
pub struct CaPinError;

impl FromStr for CaPin {
    type Err = CaPinError;

    fn from_str(text: &str) -> Result<Self, CaPinError> {
        let digits = text.trim().strip_prefix("sha256:");
        digits.and_then(Sha256Digest::from_hexadecimal).map(Self).ok_or(CaPinError)
    }
}

impl CaPin {
    /// Whether a certificate (DER) has the public key of this digest.
    pub fn is_of(&self, certificate: &[u8]) -> bool {
        X509Certificate::from_der(certificate)
            .is_ok_and(|(_, parsed)| Sha256Digest::of(parsed.public_key().raw) == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubeadm_prints() {
        let digits = "0123456789abcdef".repeat(4);
        assert_eq!(
            format!("{:?}", format!("sha256:{digits}").parse::<CaPin>()),
            format!("Ok(CaPin(sha256:{digits}))")
        );
        for text in [
            "",
            &digits,
            "sha256:",
            &format!("sha256:{digits}0"),
            &format!("sha256:{}é", &digits[2..]),
            &format!("sha512:{digits}"),
        ] {
            assert_eq!(text.parse::<CaPin>(), Err(CaPinError), "{text}");
        }
    }
}
