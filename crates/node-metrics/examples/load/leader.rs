//! The process that is measured: store and listeners as the manager has them.

use std::collections::BTreeSet;
use std::sync::Arc;

use aggregated_api::authenticate::{AuthenticationError, client_certificates};
use aggregated_api::authorize::{Attributes, AuthorizationError, Authorizer, Decision};
use aggregated_api::{AggregatedApi, Authenticator, Peer, User};
use anyhow::Result;
use futures::future::{self, BoxFuture, FutureExt};
use http::HeaderMap;
use node_metrics::admission::Admission;
use node_metrics::copy_stream;
use node_metrics::freshness::Now;
use node_metrics::listener::{self, ClientAuthorities, Reports};
use node_metrics::metrics::Metrics;
use node_metrics::replica::{ReplicaAuthenticator, Replicas};
use node_metrics::storage::{NodeMetricStorage, NodeMetrics};
use node_metrics::store::{NodeFacts, Settings, Store};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use testkit::api_server::access::User as Subject;
use testkit::api_server::pki::Authority;
use tls::certificate::bundle;
use tls::full_records::FullRecordsListener;
use tls::listener::{Limits, TlsListener};
use tls::resolver::ServingCertificate;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::{Duration, Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{Files, NAME, nodes};

/// Takes anybody for an administrator: who calls is found once a watch.
struct Anybody;

impl Authenticator for Anybody {
    fn authenticate<'a>(
        &'a self,
        _peer: &'a Peer,
        _headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Option<User>, AuthenticationError>> {
        future::ready(Ok(Some(User { name: "admin".to_owned(), ..User::default() }))).boxed()
    }
}

impl Authorizer for Anybody {
    fn authorize<'a>(
        &'a self,
        _attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, AuthorizationError>> {
        future::ready(Ok(Decision::Allowed)).boxed()
    }
}

/// It leads until it is dropped.
pub(crate) struct Leader {
    _runtime: Runtime,
    authorities: Arc<ClientAuthorities>,
}

/// A clock, as the manager has it.
pub(crate) fn clock() -> impl Fn() -> Now + Send + Sync + 'static {
    let start = Instant::now();
    move || Now { steady: start.elapsed(), wall: jiff::Timestamp::now() }
}

impl Leader {
    /// Leads `count` nodes that have yet to report.
    pub(crate) fn start(files: &Files, count: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let authorities = Arc::new(ClientAuthorities::default());
        runtime.block_on(serve(files, count, &authorities))?;
        Ok(Self { _runtime: runtime, authorities })
    }

    /// Takes reports with certificates of these authorities, which stand in that file.
    pub(crate) fn trust(&self, file: &str) -> Result<()> {
        Ok(self.authorities.install(&bundle(&std::fs::read_to_string(file)?)?)?)
    }
}

async fn serve(files: &Files, count: usize, authorities: &Arc<ClientAuthorities>) -> Result<()> {
    let authority = Authority::generate("replicas")?;
    let identity = authority.peer(&Subject::new("replica", &[]), &[NAME])?;
    files.write("ca.crt", authority.pem())?;
    files.write("tls.crt", &identity.certificate_pem)?;
    files.write("tls.key", &identity.key_pem)?;
    let serving = ServingCertificate::new();
    serving.install(&identity.certificate_pem, &identity.key_pem)?;

    let source =
        NodeMetrics::new(Store::new(Settings::default()), "slo.koordinator.sh/v1beta1", clock(), || true);
    let names: BTreeSet<Arc<str>> = (0..count).map(|number| nodes::name(number).into()).collect();
    source.change(|store, now| {
        for name in &names {
            store.node_applied(now, NodeFacts::alive(name));
        }
        store.nodes_listed(now, &names);
        store.promote(now, 0)
    });
    let replicas = Replicas::new(NAME.to_owned());
    replicas.trust(bundle(authority.pem())?);
    let router = AggregatedApi::new()
        .resource(node_metrics::resource("v1beta1")?, Arc::new(NodeMetricStorage(Arc::clone(&source))))
        .authenticator(Arc::new(ReplicaAuthenticator::new(Arc::clone(&replicas), Arc::new(Anybody))))
        .authorizer(Arc::new(Anybody))
        .router();
    let router = copy_stream::router(Arc::clone(&source), replicas).merge(router);
    let taken = listener::router(
        Arc::new(Reports {
            source: Arc::clone(&source),
            admission: Mutex::new(Admission::new(5_000)),
            leader: Box::new(|| None),
            metrics: Metrics::register(&mut Registry::default()),
        }),
        Arc::clone(authorities),
    );
    let api = TcpListener::bind("127.0.0.1:0").await?;
    let reports = TcpListener::bind("127.0.0.1:0").await?;
    files.write("api", &api.local_addr()?.to_string())?;
    files.write("reports", &reports.local_addr()?.to_string())?;
    let api = TlsListener::new(api, client_certificates::server_config(&serving)?, Limits::default());
    let api = FullRecordsListener::new(api);
    let tls = listener::server_config(&serving, Arc::clone(authorities))?;
    let reports = TlsListener::new(reports, tls, Limits::default());
    let api = axum::serve(api, router.into_make_service_with_connect_info::<Peer>());
    tokio::spawn(listener::serve(reports, taken, CancellationToken::new()));
    tokio::spawn(async move { api.await });
    tokio::spawn(async move {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            second.tick().await;
            source.change(Store::tick);
            source.release();
        }
    });
    Ok(())
}
