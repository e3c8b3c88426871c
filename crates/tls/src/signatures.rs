//! What every verifier of certificates has in common, whatever it makes of the certificate: that the peer holds its key.

use std::sync::LazyLock;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{self, WebPkiSupportedAlgorithms, ring};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::CertificateDer;

/// Those of ring; to ask it for them makes a whole provider.
static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> =
    LazyLock::new(|| ring::default_provider().signature_verification_algorithms);

/// Whether a handshake of TLS 1.2 was signed with the key of `certificate`.
pub fn verify_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    crypto::verify_tls12_signature(message, certificate, signature, &ALGORITHMS)
}

/// Whether a handshake of TLS 1.3 was signed with the key of `certificate`.
pub fn verify_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    crypto::verify_tls13_signature(message, certificate, signature, &ALGORITHMS)
}

/// The schemes that can be verified.
pub fn schemes() -> Vec<SignatureScheme> {
    ALGORITHMS.supported_schemes()
}
