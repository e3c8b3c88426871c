//! What callers are recognised by: the authorities of users and of front proxies, and the headers in which a front proxy names its user. Swapped while
//! connections last.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use tls::certificate::CertificateError;

use super::{chain::Authority, request_header::RequestHeader};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MalformedTrust {
    /// A bundle is not PEM, or holds what is no certificate.
    #[error("certificates of authorities")]
    Certificate(#[source] CertificateError),
    /// A certificate is not one of an authority.
    #[error("a certificate of an authority")]
    Authority(#[source] rustls::Error),
    /// A bundle is empty.
    #[error("a bundle of authorities: {0}")]
    Bundle(String),
    /// A list of names is not JSON.
    #[error("{0}")]
    List(&'static str, #[source] serde_json::Error),
    /// A name is none of a header.
    #[error("the name of a header: {0:?}")]
    Header(String),
}

/// What is trusted now. Nothing, at first: nobody is recognised by a certificate then.
#[derive(Debug, Default)]
pub struct Trust(ArcSwap<Parts>);

#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) front_proxy: Option<RequestHeader>,
    pub(super) clients: Option<Authority>,
}

impl Trust {
    /// Nothing.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Trusts what the `data` of `kube-system/extension-apiserver-authentication` says from now on. On an error what was trusted before stays.
    pub fn install(&self, data: &BTreeMap<String, String>) -> Result<(), MalformedTrust> {
        let clients = data.get("client-ca-file").map(|text| Authority::from_pem(text)).transpose()?;
        let front_proxy = RequestHeader::from_config(data)?;
        self.0.store(Arc::new(Parts { front_proxy, clients }));
        Ok(())
    }

    pub(super) fn parts(&self) -> Arc<Parts> {
        self.0.load_full()
    }
}
