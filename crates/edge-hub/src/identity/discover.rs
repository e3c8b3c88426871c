//! Fetches the cluster's authority when only its digest is known. Nothing secret is sent, and nothing is believed but what the
//! digest proves.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{BootstrapToken, CaPin, cluster_info};
use crate::{
    metrics::LinkBytes,
    upstream::{Connector, Credential, Endpoint, Link, Timing, TlsMaterial, jittered, json},
};

/// How long to wait after a failure: first and longest.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// How long an API server may take to be connected.
const CONNECT: Duration = Duration::from_secs(10);

/// The pinned authorities in PEM, as soon as an API server shows them.
pub(super) async fn discover(
    endpoints: &[Endpoint],
    pins: &[CaPin],
    token: Option<&BootstrapToken>,
) -> String {
    let mut pause = BACKOFF.0;
    loop {
        match once(endpoints, pins, token).await {
            Ok(found) => {
                info!("found the cluster's authority by its digest");
                return found;
            }
            Err(problem) => {
                warn!(problem, retry = ?pause, "the cluster's authority is not known yet (--ca-cert-hash)");
            }
        }
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

async fn once(
    endpoints: &[Endpoint],
    pins: &[CaPin],
    token: Option<&BootstrapToken>,
) -> Result<String, String> {
    let connector =
        Connector::new(TlsMaterial::unverified(), Timing::default(), Arc::new(LinkBytes::default()));
    let (link, upstream) = Link::without_certificate(endpoints.to_vec(), Arc::new(connector));
    let ask = async {
        upstream.connected(CONNECT).await?;
        let answer = json::get(&upstream, &Credential::Node, cluster_info::PATH).await;
        let answer = answer.map_err(|error| format!("kube-public/cluster-info: {error}"))?;
        cluster_info::authorities(&answer, pins, token).map_err(|error| error.to_string())
    };
    tokio::select! {
        () = link.run(CancellationToken::new()) => Err("the link ended".to_owned()),
        found = ask => found,
    }
}
