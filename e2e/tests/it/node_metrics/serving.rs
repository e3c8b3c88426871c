//! The certificate that replicas serve and its authority are forced to change (F7): nodes and replicas trust the next authority before anybody
//! serves a certificate of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{SYSTEM, eventually, ground::hub_metrics};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::ground::{Ground, LEASE};
use super::{NODE, WARM, of_last_report};

/// Everybody is given time to trust what comes, twice.
const ROTATED: Duration = Duration::from_mins(5);

/// What of a hub's reports came to nothing.
const LOST: [&str; 4] = ["Failed", "Refused", "Shed", "Dropped"];

/// Has both replaced. No report is lost meanwhile, and whoever goes by the ConfigMap trusts the next authority alone in the end.
pub(super) async fn rotated(ground: &Ground) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(ground.client.clone(), SYSTEM);
    let maps = Api::<ConfigMap>::namespaced(ground.client.clone(), "kube-system");
    let text = |secret: &str, key: &'static str| {
        let (secrets, secret) = (secrets.clone(), secret.to_owned());
        async move {
            let bytes = secrets.get(&secret).await?.data.and_then(|mut data| data.remove(key));
            anyhow::Ok(String::from_utf8(bytes.map(|bytes| bytes.0).unwrap_or_default())?)
        }
    };
    let served = || text("isthmus-webhook-serving", "tls.crt");
    let trusted = || text("isthmus-webhook-serving", "ca.crt");
    let (leaf, authority) = (served().await?, trusted().await?);
    let (epoch, lost) = (of_last_report("epoch").await?, lost().await?);
    let request = format!("{}", jiff::Timestamp::now());
    let rotate = json!({ "metadata": { "annotations": { "isthmus.dev/rotate": request } } });
    secrets.patch("isthmus-webhook-ca", &PatchParams::default(), &Patch::Merge(&rotate)).await?;
    eventually("another authority is trusted, alone", ROTATED, || async {
        let (served, trusted) = (served().await?, trusted().await?);
        ensure!(served != leaf, "the certificate is the old one");
        ensure!(!trusted.contains(authority.trim()) && !trusted.is_empty(), "the old authority is trusted");
        let told = maps.get(LEASE).await?.data.and_then(|mut data| data.remove("ca.crt"));
        ensure!(told.as_ref() == Some(&trusted), "nodes are told of {told:?}");
        Ok(())
    })
    .await?;
    let seq = of_last_report("seq").await?;
    eventually("the node reports on", WARM, || async {
        let now = (of_last_report("epoch").await?, of_last_report("seq").await?);
        ensure!(now > (epoch, seq), "the last report was {now:?}");
        Ok(())
    })
    .await?;
    let (now, lost_now) = (of_last_report("epoch").await?, self::lost().await?);
    ensure!(now == epoch, "another leads since then, which has nothing to do with certificates");
    ensure!(lost_now == lost, "reports that came to nothing: {lost_now}, {lost} of them before");
    Ok(())
}

/// How many reports of the node came to nothing.
async fn lost() -> Result<u64> {
    let metrics = hub_metrics(NODE).await?;
    ensure!(metrics.contains("hub_node_reports_total{outcome=\"Taken\"}"), "no counts of reports: {metrics}");
    let counts = metrics.lines().filter(|line| line.contains("hub_node_reports_total{"));
    let lost = counts
        .filter(|line| LOST.iter().any(|outcome| line.contains(&format!("outcome=\"{outcome}\""))))
        .map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()));
    let lost: Vec<u64> = lost.collect::<Option<_>>().context("counts of reports")?;
    Ok(lost.into_iter().sum())
}
