//! stub
#![allow(missing_docs, dead_code)]
use crate::leader::LeadershipGuard;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) ca_secret: String,
    pub(crate) serving_secret: String,
    pub(crate) dns_names: Vec<String>,
    pub(crate) mutating_webhook_configuration: String,
    pub(crate) validating_webhook_configuration: String,
    pub(crate) leaf_validity: Duration,
}
#[derive(Clone)]
pub(crate) struct Metrics;
impl Metrics {
    pub(crate) fn register(_: &mut prometheus_client::registry::Registry) -> Self {
        Self
    }
}
pub(crate) async fn run(_: Client, _: Settings, _: LeadershipGuard, _: Metrics, end: CancellationToken) {
    end.cancelled().await
}
pub(crate) struct ServingSecretWatch;
impl ServingSecretWatch {
    pub(crate) fn new(_: Client, _: &Settings, _: Arc<tls::resolver::ServingCertificate>) -> Self {
        Self
    }
    pub(crate) async fn run(self, _h: daemon::ready::Handle) {
        std::future::pending::<()>().await
    }
}
