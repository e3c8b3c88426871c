//! Reads what a plan is made of from the indexes that watches keep. One request is made: a report that should have changed is asked
//! for before its hub counts as silent, for the watch may lag or be broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::names::{
    NAMESPACE, RAVEN_AGENT_CONFIG_MAP, RAVEN_CONFIG_MAP, TUNNEL_NODES_CONFIG_MAP, gateway_lease,
};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Resource, ResourceExt as _};
use tracing::{debug, info, warn};

use super::Context;
use super::domains::{Rules, claim_cloud};
use super::plan::Observed;
use super::ports::Listeners;
use super::verdict::Switches;
use crate::watches::ByName;

/// How long a question for a report may take.
const QUESTION: Duration = Duration::from_millis(800);

/// Asks for the reports that should have changed.
pub(crate) async fn confirm(context: &Context) {
    let reports = Api::<ConfigMap>::namespaced(context.client.clone(), NAMESPACE);
    let suspects = context.configs.hubs.suspects(Instant::now());
    let ask = |(node, seen): (String, String)| {
        let reports = reports.clone();
        async move {
            let found = tokio::time::timeout(QUESTION, reports.get_opt(&gateway_lease(&node))).await;
            (node, seen, found)
        }
    };
    let mut answers: FuturesUnordered<_> = suspects.into_iter().map(ask).collect();
    while let Some((node, seen, found)) = answers.next().await {
        match found {
            Ok(Ok(Some(report))) if report.resource_version().as_ref() != Some(&seen) => {
                debug!(node, "the watch of reports lags, or etcd was restored");
                drop(context.configs.hubs.answer(&report, &seen, Instant::now()));
            }
            Ok(Ok(found)) => {
                if found.is_none() {
                    context.configs.hubs.missing(&node, &seen, Instant::now());
                }
                if context.configs.hubs.lapse(&node, &seen, Instant::now()) {
                    info!(node, "the hub of a gateway does not renew its report, and leaves the Services");
                }
            }
            Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => {
                if context.configs.hubs.lapse(&node, &seen, Instant::now()) {
                    warn!(
                        node,
                        error = status.message,
                        "the report of a gateway may not be read; its hub leaves the Services"
                    );
                }
            }
            // Nothing can be known of it now, nor written.
            Ok(Err(error)) => {
                debug!(node, %error, "the report of a gateway cannot be read");
                context.configs.hubs.interrupted();
            }
            // Slow is not away: if it is, the watch says so.
            Err(_) => debug!(node, "no answer about the report of a gateway"),
        }
    }
}

/// Reads all that concerns the gateways.
pub(crate) fn observe(context: &Context) -> Observed {
    let mut unreadable = BTreeSet::new();
    let mut gateways = Vec::new();
    for guarded in context.gateways.all() {
        match &guarded.0 {
            Ok(gateway) if gateway.metadata.deletion_timestamp.is_none() => {
                gateways.push(Arc::new(gateway.clone()));
            }
            Ok(_) => {}
            Err(_) => drop(unreadable.insert(guarded.name_any())),
        }
    }
    let pools = context.pools.all();
    let rules = Rules::new(&gateways, &unreadable, context.pools.types());
    // Nothing is decided on the nodes of a cluster without a Gateway; thousands of them would be looked at for each change of one.
    let without = gateways.is_empty() && unreadable.is_empty();
    let mut members = if without { Vec::new() } else { context.nodes.map(|node| rules.member(node)) };
    let cloud_is_of = claim_cloud(&gateways, &mut members);
    let now = Instant::now();
    Observed {
        now,
        time: Timestamp::now(),
        switches: Switches::of(context.configs.named(RAVEN_CONFIG_MAP).as_deref()),
        listeners: Listeners::of(context.configs.named(RAVEN_AGENT_CONFIG_MAP).as_deref()),
        untrusted_selectors: rules.untrusted(),
        malformed_selectors: rules.malformed,
        unreadable,
        gateways,
        members,
        cloud_is_of,
        pools,
        for_edge_pools: context.for_edge_pools,
        hubs: context.configs.hubs.at(now),
        services: by_name(&context.services),
        slices: by_name(&context.slices),
        node_names: context.configs.named(TUNNEL_NODES_CONFIG_MAP),
    }
}

fn by_name<K: Resource<DynamicType = ()>>(index: &ByName<K>) -> BTreeMap<String, Arc<K>> {
    index.all().into_iter().map(|object| (object.name_any(), object)).collect()
}
