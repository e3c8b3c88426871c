//! Both servers: the real one by its kubeconfig, ours in this process.

use std::sync::Arc;

use aggregated_api::authorize::AuthorizationError;
use aggregated_api::{AggregatedApi, Attributes, Authorizer, Decision, MemoryStorage, ResourceInfo, Storage};
use anyhow::{Context, Result};
use e2e::hub::token;
use futures::future::{BoxFuture, FutureExt, ready};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use testkit::client::connection::Endpoint;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The API server, as one who may do anything.
pub(super) async fn real(namespace: &str) -> Result<Endpoint> {
    let config = kube::Config::infer().await?;
    let mut roots = RootCertStore::empty();
    for certificate in config.root_cert.context("no authority in the kubeconfig")? {
        roots.add(CertificateDer::from(certificate))?;
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let authority = config.cluster_url.authority().context("no address in the kubeconfig")?;
    let address: std::net::SocketAddr = authority.as_str().parse()?;
    let token = token(namespace, "admin", "cluster-admin").await?;
    Ok(Endpoint::tls(address, tls, ServerName::IpAddress(address.ip().into())).with_token(&token))
}

/// Nobody else can reach it.
struct Everybody;

impl Authorizer for Everybody {
    fn authorize<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Result<Decision, AuthorizationError>> {
        ready(Ok(Decision::Allowed)).boxed()
    }
}

/// Ours, while this lives.
pub(super) struct Ours {
    pub(super) endpoint: Endpoint,
    _server: JoinSet<()>,
}

impl Ours {
    /// A kind by its CRD, from memory.
    pub(super) async fn start(definition: &str) -> Result<Self> {
        let definition = serde_saphyr::from_str(definition)?;
        let info = ResourceInfo::from_crd(&definition, "v1")?;
        Self::serve(info, Arc::new(MemoryStorage::new())).await
    }

    /// Any kind, from any storage.
    pub(super) async fn serve(info: ResourceInfo, storage: Arc<dyn Storage>) -> Result<Self> {
        let api = AggregatedApi::new().resource(info, storage).authorizer(Arc::new(Everybody));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut server = JoinSet::new();
        server.spawn(async move { _ = axum::serve(listener, api.router()).await });
        Ok(Self { endpoint: Endpoint::plain(address), _server: server })
    }
}
