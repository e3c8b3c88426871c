//! `isthmus-manager retire-node-metrics`: takes away what NodeMetric left on Nodes, where it is served no more. The chart runs it once, with
//! rights of its own, and only where the ConfigMap says that NodeMetric was used: the manager itself spends nothing on it.

use std::io::Write;
use std::time::Duration;

use api::names::{NAMESPACE, NODE_METRIC_CONFIG_MAP};
use api::slo::names::{NODE_METRIC_FRESH, VERSION_CEILING};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::nodes::MetricNode;

/// Nodes in one answer, which is all that is held of them.
const PAGE: u32 = 100;

/// A request that takes longer is given up.
const CALL: Duration = Duration::from_secs(10);

/// How soon a replica takes a Lease that another gave up.
const HAND_OVER: Duration = Duration::from_secs(2);

/// How long replicas that still serve NodeMetric may take to end.
const PATIENCE: Duration = Duration::from_mins(2);

/// Arguments of `retire-node-metrics`.
#[derive(Debug, clap::Args)]
#[command(after_help = daemon::exit::HELP)]
pub struct RetireArgs {
    /// Namespace of the Lease by which replicas elected who takes reports.
    #[arg(long, env = "POD_NAMESPACE", default_value = "isthmus-system")]
    pub namespace: String,

    /// That Lease; nothing is done before it comes to rest.
    #[arg(long, default_value = "isthmus-node-metric", value_name = "NAME")]
    pub lease: String,
}

/// Why not everything is taken away.
#[derive(Debug, thiserror::Error)]
pub enum RetireError {
    /// There is no cluster to be found.
    #[error("cannot find the cluster: {0}")]
    Infer(#[source] Box<kube::Error>),
    /// A request failed.
    #[error(transparent)]
    Api(#[from] Box<kube::Error>),
    /// A request had no answer.
    #[error("the API server does not answer within {CALL:?}")]
    Timeout(#[from] tokio::time::error::Elapsed),
    /// Somebody renews the Lease.
    #[error("{0} still serves NodeMetric")]
    Served(String),
    /// Nothing can be written.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
}

async fn call<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, RetireError> {
    Ok(timeout(CALL, request).await?.map_err(Box::new)?)
}

/// Waits until nobody leads, and takes conditions and places away.
pub async fn run(args: &RetireArgs, out: &mut impl Write) -> Result<(), RetireError> {
    let client = Client::try_default().await.map_err(|error| RetireError::Infer(Box::new(error)))?;
    retire(&client, args, out).await
}

async fn retire(client: &Client, args: &RetireArgs, out: &mut impl Write) -> Result<(), RetireError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let Some(map) = call(maps.get_opt(NODE_METRIC_CONFIG_MAP)).await? else {
        writeln!(out, "NodeMetric was never served here")?;
        return Ok(());
    };
    at_rest(client, args).await?;
    let cleaned = conditions(client).await?;
    writeln!(out, "condition {NODE_METRIC_FRESH} taken from {cleaned} nodes")?;
    // How far versions were told must outlive even this; where the leader is must not.
    let gone: serde_json::Map<_, _> = map
        .data
        .iter()
        .flatten()
        .filter(|(key, _)| *key != VERSION_CEILING)
        .map(|(key, _)| (key.clone(), serde_json::Value::Null))
        .collect();
    if !gone.is_empty() {
        let patch = Patch::Merge(json!({ "data": gone }));
        call(maps.patch(NODE_METRIC_CONFIG_MAP, &PatchParams::default(), &patch)).await?;
    }
    Ok(())
}

/// Until the Lease is as it is for twice its duration and [`HAND_OVER`]: a replica that ends would write the condition again, and one that gave
/// the Lease up may be followed by another that is still to end.
async fn at_rest(client: &Client, args: &RetireArgs) -> Result<(), RetireError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &args.namespace);
    let begun = Instant::now();
    let mut seen: Option<(Option<String>, Option<String>, Instant)> = None;
    loop {
        let spec = call(leases.get_opt(&args.lease)).await?.and_then(|lease| lease.spec).unwrap_or_default();
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        let renewed = spec.renew_time.map(|time| time.0.to_string());
        let since = match &seen {
            Some((of, at, since)) if *of == holder && *at == renewed => *since,
            _ => Instant::now(),
        };
        seen = Some((holder.clone(), renewed, since));
        let duration =
            Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(2)).unwrap_or(2));
        if since.elapsed() > duration * 2 + HAND_OVER {
            return Ok(());
        }
        if let Some(holder) = holder.filter(|_| begun.elapsed() > PATIENCE) {
            return Err(RetireError::Served(holder));
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Of all Nodes, a page at a time; returns how many had it.
async fn conditions(client: &Client) -> Result<usize, RetireError> {
    let nodes: Api<MetricNode> = Api::all(client.clone());
    let patch = Patch::Strategic(json!({
        "status": {"conditions": [{"type": NODE_METRIC_FRESH, "$patch": "delete"}]},
    }));
    let mut cleaned = 0;
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = call(nodes.list(&params)).await?;
        for node in page.items.iter().filter(|node| node.has_condition(NODE_METRIC_FRESH)) {
            match call(nodes.patch_status(&node.name_any(), &PatchParams::default(), &patch)).await {
                Ok(_) => cleaned += 1,
                // It went meanwhile, and the condition with it.
                Err(RetireError::Api(error)) if matches!(&*error, kube::Error::Api(status) if status.code == 404) =>
                    {}
                Err(error) => return Err(error),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(cleaned),
        }
    }
}
