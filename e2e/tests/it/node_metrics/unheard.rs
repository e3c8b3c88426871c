//! A leader that no node reaches any more, though it reaches the API server and its standby: it gives the Lease away, and the replica that nodes do
//! reach takes their reports. Nobody is taken for silent for good, and nobody's process ends.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cleanup::Cleanup;
use e2e::{eventually, hack_cluster, kubectl, replicas, repository, throughout};
use serde_json::Value;

use super::ground::{Ground, LEASE, announced};
use super::handed_on::watch::version;
use super::observers::Observers;
use super::{NODE, WARM};

/// With [`NODE`] these are as many as a leader must have heard to know that it is not they who are away.
const OTHERS: [&str; 2] = ["cloud-2", "e2e-unheard-1"];

/// Until none is fresh, each of which is so for 2.5 intervals of two seconds, the five seconds that a leader waits then, and what a busy machine adds.
const GIVEN: Duration = Duration::from_secs(5 + 5 + 20);

/// For how long the next leader must stay.
const STAYS: Duration = Duration::from_secs(15);

#[tokio::test]
#[allow(clippy::print_stdout, reason = "how long it took is read beside the test's name")]
async fn a_leader_that_no_node_reaches_gives_way() -> Result<()> {
    let cluster = repository().join("hack/cluster");
    let mut back = Cleanup::default();
    back.add(&cluster, &["leave", OTHERS[1]]);
    // It has no images, so no pod of the installation may come to it.
    hack_cluster(&["join", OTHERS[1], "--taint", "e2e.isthmus.dev/unheard=yes:NoSchedule"]).await?.ok()?;
    let ground = Ground::new().await?;
    for node in OTHERS {
        back.add(&cluster, &["hub", node, "--off"]);
        hack_cluster(&["hub", node, "--report"]).await?.ok()?;
    }
    eventually("all three report", WARM, || async { seen([NODE, OTHERS[0], OTHERS[1]]).await.map(drop) })
        .await?;
    let observers = Observers::start(&ground).await?;
    let (before, leader) = (ground.holder().await?, ground.leader().await?);
    let mut others = ground.replicas().await?.into_iter().filter(|replica| replica.pod != leader.pod);
    let standby = others.next().context("no standby")?;
    let restarts = replicas::restarts(&ground.client).await?;

    let unheard = leader.unheard_by_all_but(&standby, port(&ground).await?).await?;
    let began = Instant::now();
    replicas::another_leads(&ground.client, LEASE, &before, GIVEN).await.context("it keeps the Lease")?;
    println!("given away {:?} after the last report", began.elapsed());
    let next = ground.holder().await?;
    let reported = seen([]).await?;
    eventually("all three report to the next leader", WARM, || async {
        let now = seen([NODE, OTHERS[0], OTHERS[1]]).await?;
        ensure!(now > reported, "the last of them at {now}, before at {reported}");
        Ok(())
    })
    .await?;
    println!("heard again {:?} after the last report", began.elapsed());
    throughout("the next leader stays", STAYS, || async {
        let holder = ground.holder().await?;
        ensure!(holder == next, "{holder} leads after {next}");
        seen([NODE, OTHERS[0], OTHERS[1]]).await.map(drop)
    })
    .await?;
    observers.check("while the former leader is not heard")?;
    drop(unheard);

    ground.whole().await?;
    observers.up_to_date(&ground).await?;
    observers.check("at the end")?;
    let after = replicas::restarts(&ground.client).await?;
    ensure!(restarts == after, "restarted: {restarts:?}, now {after:?}");
    drop(back);
    Ok(())
}

/// Where replicas take reports.
async fn port(ground: &Ground) -> Result<u16> {
    let servers = announced(&ground.client, "servers").await?;
    let (_, port) = servers.split(',').next().and_then(|first| first.rsplit_once(':')).context("no port")?;
    Ok(port.parse()?)
}

/// The oldest version of these nodes' metrics, all of which are fresh; of none, the version of the list.
async fn seen<const N: usize>(nodes: [&str; N]) -> Result<u64> {
    let list: Value = serde_json::from_str(&kubectl(&["get", "--raw", LIST]).await?.ok()?)?;
    let mut oldest = version(&list)?;
    for node in nodes {
        let mut items = list["items"].as_array().into_iter().flatten();
        let item = items.find(|item| item["metadata"]["name"] == node).with_context(|| node.to_owned())?;
        let freshness = &item["status"]["freshness"];
        ensure!(freshness["state"] == "Fresh", "{node}: {freshness}");
        oldest = oldest.min(version(item)?);
    }
    Ok(oldest)
}

const LIST: &str = "/apis/slo.koordinator.sh/v1beta1/nodemetrics";
