//! Follows the `ConfigMap` in which the API server says whom its extensions are to trust.
//!
//! Needs the role `extension-apiserver-authentication-reader` of `kube-system`.

use std::sync::Arc;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, utils::Backoff, watcher},
};
use tracing::{info, warn};

use super::Trust;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Keeps `trust` as the cluster says, until it is dropped. What cannot be read changes nothing. `known` is called whenever something was
/// installed: a server that is not ready before calls itself so then. A watch that failed is tried again as `backoff` says, and until then an
/// authority that was replaced is trusted.
pub async fn follow(client: Client, trust: Arc<Trust>, backoff: impl Backoff, known: impl Fn() + Send) {
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mut objects = std::pin::pin!(watcher(api, config).backoff(backoff).applied_objects());
    loop {
        match objects.try_next().await {
            Ok(Some(object)) => match trust.install(&object.data.unwrap_or_default()) {
                Ok(()) => {
                    info!("whom to trust was read");
                    known();
                }
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    warn!(error, "whom to trust cannot be read; all stays as it was");
                }
            },
            Ok(None) => return,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                warn!(error, "cannot watch whom to trust");
            }
        }
    }
}
