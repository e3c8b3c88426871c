//! TLS identities that rotate: issue, decide when, resolve, listen.
//!
//! [`issue`] makes certificates, [`request`] asks others for them, [`certificate`] reads them as data, [`window`] and
//! [`rotation`] decide (pure: no clock, no I/O), [`private_file`] and [`pem_file`] keep them on disk, [`resolver`] holds the
//! certificate being served, [`listener`] terminates TLS for axum, [`full_records`] for large answers, and [`signatures`] checks who holds a key. The crate knows nothing of Kubernetes: where
//! certificates are stored and how trust is published is its caller's business.
//! `ring` is the one crypto provider.

pub mod certificate;
pub mod digest;
pub mod full_records;
pub mod issue;
pub mod listener;
pub mod pem_file;
pub mod private_file;
pub mod request;
pub mod resolver;
pub mod rotation;
pub mod secret;
pub mod signatures;
pub mod socket;
pub mod window;

use rustls::{CipherSuite, crypto::CryptoProvider};

/// Makes ring the process's crypto provider: the first line of every `main`, because rustls (and with it the
/// Kubernetes client) panics when it has to choose a provider by itself and cannot.
///
/// Calling it again is harmless, so tests need not coordinate.
pub fn install_provider() {
    // An error means that a provider is installed already; the process has only this one to install.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The provider with the suite first that has the shorter key, as Go's clients have it: it is as strong as the P-256 of certificates, and bulk data costs a
/// quarter less.
pub fn shorter_keys_first() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}
